//! The second, naive reader, written straight from the contract
//! (`openhuman-workspace.md`, sections 1 and 2).
//!
//! Property tests compare it with the importer's reader. So it is as simple as can be and shares nothing with that
//! reader: the whole file in memory, one pass over its lines, derived structs for what the application's reader
//! derives, and `serde_json::Value` for all the rest. Where it matters how deep a value may nest, it asks the strict
//! parser itself instead of counting.
//!
//! Numbers such as "rule 6" are those of section 1, "How the reader reads a file".

// Each test binary that includes this folder uses a part of it. Slices are taken at offsets that were just found.
#![allow(dead_code, clippy::indexing_slicing, clippy::string_slice)]

pub mod markdown;
pub mod strategies;

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// What one transcript file holds.
#[derive(Debug, Clone, PartialEq)]
pub struct NaiveTranscript {
    /// The counting header: the fields that the reader knows, absent ones left out, `version` always there.
    pub meta: Value,
    pub messages: Vec<NaiveMessage>,
    /// For each message, what `session_import.unmapped` of its record must hold; `None` where there is nothing.
    pub unmapped: Vec<Option<Value>>,
    /// Line number from 1, why it is no message, and the raw line without its newline; in the order of the file.
    pub residue: Vec<(u64, String, Vec<u8>)>,
    pub lines: NaiveLines,
}

/// The four fields of a journal record (rule 9).
#[derive(Debug, Clone, PartialEq)]
pub struct NaiveMessage {
    pub id: Option<String>,
    pub role: String,
    pub content: String,
    pub extra_metadata: Option<Value>,
}

/// How the lines of the file divide up; the last four sum to `total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NaiveLines {
    pub total: u64,
    /// The first header; later ones are residue.
    pub headers: u64,
    /// Message lines that are messages of the result: entries of a compaction have no line of their own.
    pub messages: u64,
    pub residue: u64,
    pub blank: u64,
}

/// Why a file as a whole cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NaiveError {
    /// No line that is not blank.
    EmptyFile,
    /// The first line that is not blank has no valid `_meta`.
    NoHeader { line: u64 },
    /// The first line that is not blank is not UTF-8 (which UTF-16 is a case of).
    HeaderNotUtf8 { line: u64 },
    /// Markdown that is not UTF-8.
    MarkdownNotUtf8,
    /// Markdown without a complete `<!-- session_transcript` comment.
    NoMarkdownHeader,
    /// Markdown whose first line is not the title of a rendered transcript.
    NotRendered,
}

/// Reads a transcript as the application's reader does, and keeps what that reader drops.
pub fn read_jsonl(bytes: &[u8]) -> Result<NaiveTranscript, NaiveError> {
    // "Beyond the reader": a byte order mark at the start is skipped.
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);

    // Rule 1: lines end at `\n`, so a final newline starts no further line.
    let mut raw_lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    if raw_lines.last().is_some_and(|last| last.is_empty()) {
        raw_lines.pop();
    }

    let mut lines = NaiveLines {
        total: raw_lines.len() as u64,
        ..NaiveLines::default()
    };
    let mut meta: Option<Meta> = None;
    let mut kept: Vec<Kept> = Vec::new();
    let mut residue: Vec<(u64, String, Vec<u8>)> = Vec::new();

    for (number, raw) in (1u64..).zip(raw_lines) {
        let mut reject = |why: &str| residue.push((number, why.to_owned(), raw.to_vec()));

        let Ok(text) = std::str::from_utf8(raw) else {
            if meta.is_none() {
                return Err(NaiveError::HeaderNotUtf8 { line: number });
            }
            reject("malformed");
            continue;
        };
        // Rule 1 again: Unicode white space, which is more than JSON's own.
        let text = text.trim();
        if text.is_empty() {
            lines.blank += 1;
            continue;
        }

        if meta.is_none() {
            // Rule 2. This line goes to the derived struct at once: what that skips need not pass the strict parser.
            match serde_json::from_str::<MetaLine>(text) {
                Ok(line) => meta = Some(line.meta),
                Err(_) => return Err(NaiveError::NoHeader { line: number }),
            }
            lines.headers = 1;
            continue;
        }

        match later_line(text) {
            None => reject("malformed"),
            Some(Record::Header(newer)) => {
                meta = Some(*newer);
                reject("header");
            }
            Some(Record::Tools) => reject("tools"),
            Some(Record::Compaction(replacement)) => {
                // Rule 3: it replaces all messages read so far, those of an earlier compaction too.
                for old in kept.drain(..) {
                    if let Some((line, raw)) = old.line {
                        residue.push((line, "superseded".to_owned(), raw));
                    }
                }
                kept = replacement;
                residue.push((number, "compaction".to_owned(), raw.to_vec()));
            }
            Some(Record::Message(message)) if message.interrupted => reject("interrupted"), // rule 5
            Some(Record::Message(message)) => kept.push(Kept {
                line: Some((number, raw.to_vec())),
                ..*message
            }),
        }
    }

    let Some(meta) = meta else {
        return Err(NaiveError::EmptyFile);
    };

    let mut messages = Vec::new();
    let mut unmapped = Vec::new();
    for one in kept {
        if too_deep_for_a_record(&one.message) {
            // A compaction's entry has no line of its own; the compaction is residue already.
            if let Some((line, raw)) = one.line {
                residue.push((line, "too-deep".to_owned(), raw));
            }
            continue;
        }
        lines.messages += u64::from(one.line.is_some());
        messages.push(one.message);
        unmapped.push(one.unmapped);
    }
    residue.sort_by_key(|(line, _, _)| *line);
    lines.residue = residue.len() as u64;

    Ok(NaiveTranscript {
        meta: serde_json::to_value(meta).unwrap_or_default(),
        messages,
        unmapped,
        residue,
        lines,
    })
}

/// A message that no compaction has replaced yet.
struct Kept {
    /// `None` for an entry of a compaction.
    line: Option<(u64, Vec<u8>)>,
    interrupted: bool,
    message: NaiveMessage,
    unmapped: Option<Value>,
}

enum Record {
    Header(Box<Meta>),
    Compaction(Vec<Kept>),
    Tools,
    Message(Box<Kept>),
}

/// Rule 3: one record after the header, or `None` for a malformed one.
fn later_line(text: &str) -> Option<Record> {
    // First the whole line must pass the strict parser, whatever the structs below would skip.
    let value: Value = serde_json::from_str(text).ok()?;

    // Only an object has keys: a whole line that is an array is no header here, other than on the first line.
    if value.get("_meta").is_some() {
        let line: MetaLine = serde_json::from_str(text).ok()?;
        return Some(Record::Header(Box::new(line.meta)));
    }
    match value.get("kind").and_then(Value::as_str) {
        Some("compaction") => {
            let record: CompactionLine = serde_json::from_str(text).ok()?;
            let raw: RawCompaction = serde_json::from_str(text).ok()?;
            let entries = record.replacement.into_iter().zip(&raw.replacement);
            Some(Record::Compaction(
                entries.map(|(line, raw)| kept(line, raw.get())).collect(),
            ))
        }
        Some("tools") => {
            let _: ToolsLine = serde_json::from_str(text).ok()?;
            Some(Record::Tools)
        }
        _ => Some(Record::Message(Box::new(kept(
            serde_json::from_str(text).ok()?,
            text,
        )))),
    }
}

fn kept(line: MessageLine, raw: &str) -> Kept {
    Kept {
        line: None,
        interrupted: line.interrupted,
        unmapped: unmapped(&line, raw),
        message: message(line),
    }
}

// The shapes of rules 2 to 4, with serde's derive as in the application's reader. The order of the fields counts:
// where the struct has no flattened field, it may also be written as an array.

#[derive(Deserialize)]
struct MetaLine {
    #[serde(rename = "_meta")]
    meta: Meta,
}

#[derive(Serialize, Deserialize)]
struct Meta {
    #[serde(default)]
    version: u32,
    agent: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    agent_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    agent_type: Option<String>,
    dispatcher: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    provider: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    created: String,
    updated: String,
    turn_count: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    prefix_message_count: Option<u64>,
    input_tokens: u64,
    output_tokens: u64,
    cached_input_tokens: u64,
    charged_amount_usd: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    thread_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    task_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parent_session_id: Option<String>,
}

/// A flattened rest makes the line an object and nothing else, and lets unknown keys repeat.
#[derive(Deserialize)]
struct CompactionLine {
    #[serde(rename = "kind")]
    _kind: String,
    replacement: Vec<MessageLine>,
    #[serde(default, rename = "ts")]
    _ts: Option<String>,
    #[serde(default, rename = "request_id")]
    _request_id: Option<String>,
    #[serde(flatten)]
    _rest: HashMap<String, Value>,
}

/// The same line again, for the text of each entry.
#[derive(Deserialize)]
struct RawCompaction {
    replacement: Vec<Box<RawValue>>,
}

#[derive(Deserialize)]
struct ToolsLine {
    #[serde(rename = "kind")]
    _kind: String,
    #[serde(rename = "tools")]
    _tools: Value,
    #[serde(default, rename = "ts")]
    _ts: Option<String>,
    #[serde(flatten)]
    _rest: HashMap<String, Value>,
}

#[derive(Deserialize)]
struct MessageLine {
    id: Option<String>,
    role: String,
    content: String,
    extra_metadata: Option<Value>,
    #[serde(default, rename = "cache_breakpoints")]
    _cache_breakpoints: Vec<u64>,
    provider: Option<String>,
    model: Option<String>,
    usage: Option<Usage>,
    reasoning_content: Option<String>,
    tool_calls: Option<Vec<ToolCall>>,
    iteration: Option<u32>,
    ts: Option<String>,
    #[serde(default, rename = "request_id")]
    _request_id: Option<String>,
    #[serde(default)]
    interrupted: bool,
    #[serde(default, rename = "failure")]
    _failure: bool,
    #[serde(default, rename = "failure_detail")]
    _failure_detail: Option<String>,
    #[serde(default)]
    v: u32,
    shape: Option<String>,
    tool_call_id: Option<String>,
    /// Lenient (rule 4): any JSON here, and `parts` below decides.
    parts: Option<Value>,
    #[serde(default, rename = "background")]
    _background: Option<Value>,
    #[serde(flatten)]
    _rest: HashMap<String, Value>,
}

#[derive(Clone, Serialize, Deserialize)]
struct Usage {
    input: u64,
    output: u64,
    cached_input: u64,
    #[serde(default)]
    context_window: u64,
    cost_usd: f64,
}

#[derive(Clone, Serialize, Deserialize)]
struct ToolCall {
    id: String,
    name: String,
    arguments: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    extra_content: Option<Value>,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Part {
    Text {
        text: String,
    },
    Image {
        url: String,
    },
    Audio {
        source: MediaSource,
        mime_type: String,
    },
    Video {
        source: MediaSource,
        mime_type: String,
    },
    Document {
        source: MediaSource,
        mime_type: String,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum MediaSource {
    Path { path: String },
    Url { url: String },
}

impl MessageLine {
    /// One part that does not fit makes the whole field absent; an empty list is not absent.
    fn parts(&self) -> Option<Vec<Part>> {
        serde_json::from_value(self.parts.clone()?).ok()
    }

    /// Rule 7, or `None` where `content` stays as it stands.
    fn rebuilt_content(&self) -> Option<String> {
        if self.v != 2 {
            return None;
        }
        // `Value` keeps its keys sorted and prints no spaces, which is the form that the rule asks for.
        match self.shape.as_deref()? {
            "assistant_calls" => {
                let calls = self.tool_calls.as_ref().filter(|calls| !calls.is_empty())?;
                Some(json!({"content": self.content, "tool_calls": calls}).to_string())
            }
            "tool_result" => {
                let id = self.tool_call_id.as_ref()?;
                Some(json!({"content": self.content, "tool_call_id": id}).to_string())
            }
            "user_parts" => {
                let parts = self.parts()?;
                let mut flat = String::new();
                for part in &parts {
                    match part {
                        Part::Text { text } => flat.push_str(text),
                        Part::Image { url } => flat.push_str(&format!("[OH_IMAGE:{url}]")),
                        Part::Audio { .. } | Part::Video { .. } | Part::Document { .. } => {
                            return Some(json!({"_tinyagents_media_parts": parts}).to_string());
                        }
                    }
                }
                Some(flat)
            }
            _ => None,
        }
    }

    /// Rule 6.
    fn turn_usage(&self) -> Option<Value> {
        if self.role != "assistant" {
            return None;
        }
        let mut turn = json!({
            "provider": self.provider.as_ref()?,
            "model": self.model.as_ref()?,
            "usage": self.usage.as_ref()?,
            "ts": self.ts.as_ref()?,
            "tool_calls": self.tool_calls.clone().unwrap_or_default(),
            "iteration": self.iteration.unwrap_or_default(),
        });
        if let (Some(turn), Some(reasoning)) = (turn.as_object_mut(), &self.reasoning_content) {
            turn.insert("reasoning_content".to_owned(), json!(reasoning));
        }
        Some(turn)
    }
}

/// Rule 9, with rules 6 and 7.
fn message(line: MessageLine) -> NaiveMessage {
    let content = line
        .rebuilt_content()
        .unwrap_or_else(|| line.content.clone());
    let extra_metadata = match (line.extra_metadata.clone(), line.turn_usage()) {
        (extra, None) => extra,
        (None, Some(turn)) => Some(json!({TURN_USAGE: turn})),
        (Some(Value::Object(mut extra)), Some(turn)) => {
            extra.insert(TURN_USAGE.to_owned(), turn);
            Some(Value::Object(extra))
        }
        (Some(other), Some(turn)) => Some(json!({"value": other, TURN_USAGE: turn})),
    };
    NaiveMessage {
        id: line.id,
        role: line.role,
        content,
        extra_metadata,
    }
}

const TURN_USAGE: &str = "openhuman_turn_usage";

/// Keys that a message line's struct names. Only of these may a null go without a trace.
const KNOWN: [&str; 21] = [
    "id",
    "role",
    "content",
    "extra_metadata",
    "cache_breakpoints",
    "provider",
    "model",
    "usage",
    "reasoning_content",
    "tool_calls",
    "iteration",
    "ts",
    "request_id",
    "interrupted",
    "failure",
    "failure_detail",
    "v",
    "shape",
    "tool_call_id",
    "parts",
    "background",
];

/// "Beyond the reader": each top-level key that did not make it into the four fields, with its value as it stood.
fn unmapped(line: &MessageLine, raw: &str) -> Option<Value> {
    // Of a key given twice (only an unknown one can be), the last counts, as in a `Value`.
    let keys: BTreeMap<String, &RawValue> = serde_json::from_str(raw).ok()?;
    let turn_usage = line.turn_usage();
    let typed = line.v == 2;
    let mut out = Map::new();

    for (key, raw) in &keys {
        let value: Value = serde_json::from_str(raw.get()).ok()?;
        let dropped = match key.as_str() {
            known if KNOWN.contains(&known) && value.is_null() => false,
            "id" | "role" | "extra_metadata" => false,
            // The flat form of an image row is made of its parts alone: the row's own text is nowhere in it.
            "content" => {
                typed
                    && line.shape.as_deref() == Some("user_parts")
                    && line.rebuilt_content().is_some()
            }
            "provider" | "model" | "ts" | "reasoning_content" | "iteration" => turn_usage.is_none(),
            "usage" => turn_usage.is_none() || has_unknown_key(&value, &USAGE_KEYS),
            "tool_calls" => {
                let calls = value.as_array().into_iter().flatten();
                turn_usage.is_none()
                    || typed
                    || calls
                        .into_iter()
                        .any(|call| has_unknown_key(call, &CALL_KEYS))
            }
            _ => true,
        };
        if dropped {
            out.insert(key.clone(), or_as_text(value, raw.get()));
        }
    }

    // What stood where rule 6 puts the turn usage, unless the very same stands there now.
    if let (Some(new), Some(extra)) = (&turn_usage, keys.get("extra_metadata")) {
        let extra: BTreeMap<String, &RawValue> =
            serde_json::from_str(extra.get()).unwrap_or_default();
        if let Some(raw) = extra.get(TURN_USAGE) {
            let old: Value = serde_json::from_str(raw.get()).ok()?;
            if old != *new && !out.contains_key(TURN_USAGE) {
                out.insert(TURN_USAGE.to_owned(), or_as_text(old, raw.get()));
            }
        }
    }

    (!out.is_empty()).then_some(Value::Object(out))
}

const USAGE_KEYS: [&str; 5] = [
    "input",
    "output",
    "cached_input",
    "context_window",
    "cost_usd",
];
const CALL_KEYS: [&str; 4] = ["id", "name", "arguments", "extra_content"];

/// False for the array form, which has no keys.
fn has_unknown_key(value: &Value, known: &[&str]) -> bool {
    value
        .as_object()
        .is_some_and(|object| object.keys().any(|key| !known.contains(&key.as_str())))
}

/// A value that the strict parser would refuse inside its record is kept as text.
fn or_as_text(value: Value, raw: &str) -> Value {
    let record = format!(r#"{{"value":{{"session_import":{{"unmapped":{{"key":{raw}}}}}}}}}"#);
    if serde_json::from_str::<Value>(&record).is_ok() {
        value
    } else {
        json!({"json": raw})
    }
}

/// The one exception to "the four fields equal the reader's result": a record that no strict reader would take.
fn too_deep_for_a_record(message: &NaiveMessage) -> bool {
    let record =
        json!({"offset": 0, "value": {"extra_metadata": message.extra_metadata}}).to_string();
    serde_json::from_str::<Value>(&record).is_err()
}
