//! The serde types of what lies in the key-value half (`tinyagents-store.md`).
//!
//! Reading is tolerant where another program, or another version of this one,
//! may have written: unknown keys are ignored, our own are all optional.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::name::{StoreName, StreamName};
use crate::model::diagnostic::Code;
use crate::model::key::{SessionKey, Sha256};
use crate::model::session::{Kind, Lines};
use crate::report::RunReport;

/// The revision of our reading rules: an entry with an older one is read again.
pub const RULES: u32 = 1;
/// By this name we know our own records.
pub const TOOL_NAME: &str = "session-import";
/// Version of descriptors, entries, markers and reports, as the application's
/// earlier importer counts it: with any other it would import over ours.
pub const VERSION: u32 = 1;
/// The format of what is ours alone; a store with a higher one is left alone.
pub const FORMAT: u32 = 1;

/// A session's descriptor: exactly the application's fields and nullability.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[expect(
    missing_docs,
    reason = "the fields are the application's; see the design's table"
)]
pub struct Descriptor {
    pub session_key: SessionKey,
    pub parent_session_key: Option<SessionKey>,
    pub thread_id: String,
    pub thread_id_synthesized: bool,
    pub task_id: Option<String>,
    pub run_ids: Vec<String>,
    pub stream: String,
    pub dispatcher: String,
    pub agent_name: String,
    pub agent_id: Option<String>,
    pub agent_type: Option<String>,
    pub provider: Option<String>,
    pub model: Option<String>,
    pub created: String,
    pub updated: String,
    pub turn_count: u64,
    pub usage: Usage,
    pub source: Sources,
    pub import: Import,
}

/// What a session used, over all turns.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens in.
    pub input: u64,
    /// Tokens out.
    pub output: u64,
    /// Tokens in that came from the cache.
    pub cached_input: u64,
    /// US dollars.
    pub cost_usd: f64,
}

/// Where a session came from, relative to the workspace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sources {
    /// The transcript.
    pub jsonl: Option<String>,
    /// The Markdown transcript, or the transcript's companion.
    pub md: Option<String>,
}

/// Which import wrote a descriptor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Import {
    /// [`VERSION`].
    pub version: u32,
    /// When.
    pub imported_at: String,
    /// Number of warnings about the session.
    pub warnings: u64,
}

/// Who wrote a record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tool {
    /// [`TOOL_NAME`] in ours.
    pub name: String,
    /// Its version.
    pub version: String,
}

impl Tool {
    /// This tool.
    pub fn this() -> Self {
        Self {
            name: TOOL_NAME.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}

/// How a failed item was settled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accepted {
    /// The operator's words.
    pub reason: String,
    /// When.
    pub at: String,
    /// The source's bytes at the time; others are tried again. Absent where
    /// they could not be read: then it is tried again once they can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<Sha256>,
    /// Its size in bytes. The entry's own is that of the source whose record
    /// is in the store, if there is one.
    pub size: u64,
    /// Its mtime in milliseconds since 1970.
    pub mtime_ms: u64,
}

/// An item ledger entry: the eight keys of the existing importer, then ours.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// [`VERSION`].
    pub version: u32,
    /// The session's key.
    pub session_key: SessionKey,
    /// The source, relative to the workspace.
    pub source: String,
    /// The source's size in bytes.
    pub size: u64,
    /// The source's mtime in milliseconds since 1970.
    pub mtime_ms: u64,
    /// The stream of messages.
    pub stream: String,
    /// Number of messages in it.
    pub messages: u64,
    /// When.
    pub imported_at: String,

    /// [`RULES`] at the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules: Option<u32>,
    /// The source's bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<Sha256>,
    /// The stream's bytes as written. Absent in an entry of the existing importer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub journal_sha256: Option<Sha256>,
    /// The residue stream's bytes as written; absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub residue_sha256: Option<Sha256>,
    /// The descriptor's bytes as written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub descriptor_sha256: Option<Sha256>,
    /// How the source was read; absent if a later version has a kind of its own.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "lenient"
    )]
    pub kind: Option<Kind>,
    /// The record of the session that was replaced and was not ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced: Option<Value>,
    /// Settled by `accept`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted: Option<Accepted>,
    /// Who wrote the entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<Tool>,

    /// Generation of the source's format.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u8>,
    /// The source's lines by what became of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<Lines>,
    /// Compactions replayed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compactions: Option<u64>,
    /// Partial answers left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupted: Option<u64>,
    /// Lines that the application's reader skips.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejected: Option<u64>,
    /// A title, where the source has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The profile whose folder the source lies in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// The application's own id of the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The same of its parent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_session_id: Option<String>,
    /// Read from the rendered view.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lossy: Option<bool>,
    /// Some of it was brought back by `--salvage`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub salvaged: Option<bool>,
    /// `--salvage` was asked for: remembered for later imports of this item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub salvage: Option<bool>,
    /// The sub-agent's record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subagent: Option<Value>,
    /// Keys of the header that the descriptor has no place for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unmapped_meta: Option<Map<String, Value>>,
    /// The first header's line, where a later one counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_header: Option<String>,
    /// Older copies of the source that were left alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub older_copies: Option<Vec<String>>,
    /// The next run reads the source again, whatever its size and times say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsettled: Option<bool>,
}

impl Entry {
    /// An entry of ours with the keys that every entry has; the hashes of what
    /// is written are filled in by the commit.
    pub fn new(session_key: SessionKey, source: String, name: &StoreName) -> Self {
        Self {
            version: VERSION,
            session_key,
            source,
            size: 0,
            mtime_ms: 0,
            stream: name.messages().as_str().to_owned(),
            messages: 0,
            imported_at: String::new(),
            rules: Some(RULES),
            sha256: None,
            journal_sha256: None,
            residue_sha256: None,
            descriptor_sha256: None,
            kind: None,
            replaced: None,
            accepted: None,
            tool: Some(Tool::this()),
            generation: None,
            lines: None,
            compactions: None,
            interrupted: None,
            rejected: None,
            title: None,
            profile: None,
            session_id: None,
            parent_session_id: None,
            lossy: None,
            salvaged: None,
            salvage: None,
            subagent: None,
            unmapped_meta: None,
            first_header: None,
            older_copies: None,
            unsettled: None,
        }
    }

    /// Whether this tool wrote it. The existing importer's entries give their
    /// sources a session key and never count as done; `accept` may have added
    /// to one.
    pub fn is_ours(&self) -> bool {
        self.has_record() || (self.accepted.is_some() && self.tool.is_some())
    }

    /// Whether it bears our marks and has lost what makes it ours: damage, since
    /// the existing importer's has none of them.
    pub fn has_lost_its_hash(&self) -> bool {
        let is_marked = self.tool.is_some() || self.rules.is_some() || self.sha256.is_some();
        is_marked && !self.is_ours()
    }

    /// Whether it vouches for a stream: not where a failure was accepted and
    /// nothing was imported before.
    pub fn has_record(&self) -> bool {
        self.journal_sha256.is_some()
    }

    /// The name that the session was given, if the stream is one of messages.
    pub fn store_name(&self) -> Option<StoreName> {
        StreamName::parse(&self.stream)?.of_messages()
    }
}

/// A failed item, until it succeeds, is accepted or undone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The source, relative to the workspace.
    pub source: String,
    /// The session's key.
    pub session_key: SessionKey,
    /// Why.
    pub code: Code,
    /// The same in words.
    pub message: String,
    /// The source's size in bytes.
    pub size: u64,
    /// The source's mtime in milliseconds since 1970.
    pub mtime_ms: u64,
    /// When.
    pub at: String,
}

/// The marker of a completed import.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Marker {
    /// [`VERSION`].
    pub version: u32,
    /// When.
    pub imported_at: String,
    /// Items.
    pub scanned: u64,
    /// Items imported.
    pub imported: u64,
    /// Items that needed nothing.
    pub skipped: u64,
    /// Items that could not be imported: 0.
    pub failed: u64,
    /// Messages written.
    pub messages_written: u64,
    /// Number of warnings.
    #[serde(deserialize_with = "count")]
    pub warnings: u64,
    /// Who wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<Tool>,
    /// [`RULES`] at the time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rules: Option<u32>,
}

impl Marker {
    /// Whether this tool wrote it; another one's does not count.
    pub fn is_ours(&self) -> bool {
        self.tool
            .as_ref()
            .is_some_and(|tool| tool.name == TOOL_NAME)
    }

    /// Whether its numbers add up, its time is one, and its file has the bytes
    /// that are written.
    pub(crate) fn is_sound(&self, bytes: &[u8]) -> bool {
        let is_time = chrono::DateTime::parse_from_rfc3339(&self.imported_at).is_ok();
        self.adds_up() && is_time && super::kv::is_as_written(bytes, self, self.tool.as_ref())
    }

    /// Whether its numbers add up: a marker is written when nothing failed.
    pub(crate) fn adds_up(&self) -> bool {
        self.failed == 0 && self.imported.checked_add(self.skipped) == Some(self.scanned)
    }
}

/// The format of what is ours, and the workspace of a store outside of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Format {
    /// [`FORMAT`].
    pub format: u32,
    /// The workspace, where the store lies outside of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
}

/// The report of an import that changed something, kept in the store.
///
/// The fields stand in alphabetical order, as keys do in every key-value file:
/// it is written without being built up as a value first, since it may name a
/// hundred thousand sessions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportRecord {
    /// Keys of the items that could not be imported.
    pub failed: Vec<SessionKey>,
    /// Keys of the items imported.
    pub imported: Vec<SessionKey>,
    /// When.
    pub imported_at: String,
    /// Messages written.
    pub messages_written: u64,
    /// Lines that the application's reader skips, over all items read.
    pub rejected: u64,
    /// [`RULES`] at the time.
    pub rules: u32,
    /// Items.
    pub scanned: u64,
    /// Items that needed nothing.
    pub skipped: u64,
    /// Who wrote it.
    pub tool: Tool,
    /// Source folders that could not be listed.
    pub unreadable: u64,
    /// [`VERSION`].
    pub version: u32,
    /// Warnings about no single item, `code: sentence`.
    pub warnings: Vec<String>,
}

impl ImportRecord {
    /// What is kept of a run's report, without its items' keys: the report need
    /// not have them all.
    pub fn of(report: &RunReport, imported_at: String) -> Self {
        Self {
            failed: Vec::new(),
            imported: Vec::new(),
            imported_at,
            messages_written: report.messages_written,
            rejected: report.rejected,
            rules: RULES,
            scanned: report.scanned,
            skipped: report.skipped,
            tool: Tool::this(),
            unreadable: report.unreadable,
            version: VERSION,
            warnings: report.warnings.clone(),
        }
    }
}

/// What does not fit is absent.
fn lenient<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: serde::de::DeserializeOwned,
{
    let value = Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).ok())
}

/// A number, or the length of a list: the two ways in which warnings are given.
fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::Array(all) => all.len() as u64,
        value => value.as_u64().unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(json: &Value) -> Vec<&str> {
        json.as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect()
    }

    #[test]
    fn an_entry_of_the_existing_importer_is_read_and_is_not_ours() {
        let entry: Entry = serde_json::from_str(
            r#"{"version":1,"session_key":"1_a","source":"session_raw/1_a.jsonl","size":3,
                "mtime_ms":4,"stream":"session.1_a.messages","messages":5,
                "imported_at":"2026-01-01T00:00:00.000Z","later":{"key":1},"kind":"unheard_of"}"#,
        )
        .unwrap();
        assert!(!entry.is_ours());
        assert_eq!(entry.kind, None);
        assert_eq!(entry.store_name().unwrap().as_str(), "1_a");
    }

    #[test]
    fn a_new_entry_has_no_empty_keys() {
        let name = StoreName::parse("1_a").unwrap();
        let entry = Entry::new(
            SessionKey::new("1_a"),
            "session_raw/1_a.jsonl".into(),
            &name,
        );
        let json = serde_json::to_value(&entry).unwrap();
        assert_eq!(
            keys(&json),
            [
                "imported_at",
                "messages",
                "mtime_ms",
                "rules",
                "session_key",
                "size",
                "source",
                "stream",
                "tool",
                "version"
            ]
        );
    }

    #[test]
    fn a_stream_name_that_leads_elsewhere_is_none() {
        let name = StoreName::parse("1_a").unwrap();
        let mut entry = Entry::new(SessionKey::new("1_a"), String::new(), &name);
        entry.stream = "session.../../x.messages".into();
        assert_eq!(entry.store_name(), None);
    }

    #[test]
    fn a_foreign_marker_is_read_and_does_not_count() {
        let marker: Marker =
            serde_json::from_str(r#"{"version":1,"warnings":["a","b"],"scanned":2}"#).unwrap();
        assert_eq!(marker.warnings, 2);
        assert!(!marker.is_ours());
    }

    #[test]
    fn the_report_of_an_import_has_its_keys_sorted() {
        let record = ImportRecord::of(&RunReport::default(), "now".into());
        let text = serde_json::to_string(&record).unwrap();
        let sorted = serde_json::to_value(&record).unwrap().to_string();
        assert_eq!(text, sorted);
    }
}
