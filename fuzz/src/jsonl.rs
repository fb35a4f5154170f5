//! JSONL transcripts: the reader against the naive one, and its invariants
//! with and without salvage.

use std::cell::RefCell;
use std::collections::BTreeSet;

use proptest::strategy::{BoxedStrategy, Strategy as _};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use session_import::model::session::Header;
use session_import::source::openhuman::Format;

use crate::mutation::{self, Fresh};
use crate::naive::{self, NaiveLines, NaiveTranscript, strategies};
use crate::taken::{Told, Whole, check_salvage_only_adds, lines, read, without_mark};

/// Reads a transcript in each way.
pub fn check(bytes: &[u8]) {
    let plain = read(Format::Jsonl, bytes, false);
    match (&plain, naive::read_jsonl(bytes)) {
        (Ok(_), Ok(_)) if lines(bytes).into_iter().any(hides_a_deep_value) => {}
        (Ok(plain), Ok(naive)) => compare(plain, &naive),
        (Err(_), Err(_)) => {}
        (Ok(_), Err(naive)) => panic!("read, though the naive reader gives up: {naive:?}"),
        (Err(error), Ok(_)) => panic!("given up, though the naive reader reads it: {error}"),
    }
    if let Ok(plain) = &plain {
        check_lines(bytes, plain);
    }
    let Ok(salvaged) = read(Format::Jsonl, bytes, true) else {
        assert!(plain.is_err(), "salvage gives up what a plain read takes");
        return;
    };
    check_lines(bytes, &salvaged);
    let Ok(plain) = plain else {
        assert!(salvaged.reading.salvaged);
        return;
    };
    check_salvage_only_adds(&plain, &salvaged);
    let brought_back = salvaged.taken.messages.iter().filter_map(|told| {
        let line = told.salvaged.as_ref()?.get("line")?;
        Some(line.as_u64().expect("salvaged has its line"))
    });
    let brought_back: BTreeSet<u64> = brought_back.collect();
    let in_residue = |line: &u64| salvaged.taken.residue.iter().any(|left| left.line == *line);
    assert!(brought_back.iter().all(in_residue));
    // What stands before a compaction was brought back, and replaced. A line
    // may bring back a header alone.
    let counted = plain.reading.salvageable;
    if plain.reading.compactions == 0 && !plain.has_damaged_header() {
        assert_eq!(counted, brought_back.len() as u64, "salvageable lines");
    } else {
        assert!(counted >= brought_back.len() as u64, "salvageable lines");
    }
}

/// Every line is where the sum says, and the residue is as it stood.
fn check_lines(bytes: &[u8], whole: &Whole) {
    let all = lines(without_mark(bytes));
    let counts = whole.reading.lines;
    let marked_only = bytes == b"\xEF\xBB\xBF";
    assert_eq!(counts.total, all.len() as u64 + u64::from(marked_only));
    assert_eq!(counts.residue, whole.taken.residue.len() as u64);
    let mut before = 0;
    for left in &whole.taken.residue {
        assert!(left.line > before, "residue is out of order");
        before = left.line;
        assert_eq!(left.text, all[left.line as usize - 1], "line {before}");
    }
}

/// Whether the line has a deep value under a key that comes again: it is no
/// part of what the line means, but of its text. The reader goes by the text
/// where it asks what nests too deep for a record, the naive one by the value.
fn hides_a_deep_value(line: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(line) else {
        return false;
    };
    let deep = depth(text);
    let value = || serde_json::from_str::<Value>(text.trim());
    deep > 100 && value().is_ok_and(|value| depth(&value.to_string()) < deep)
}

/// How deep it nests.
fn depth(json: &str) -> usize {
    let (mut level, mut deepest, mut in_text, mut escaped) = (0_usize, 0, false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_text,
            b'"' => in_text = !in_text,
            b'[' | b'{' if !in_text => level += 1,
            b']' | b'}' if !in_text => level = level.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(level);
    }
    deepest
}

fn compare(ours: &Whole, naive: &NaiveTranscript) {
    let lines = ours.reading.lines;
    let lines = NaiveLines {
        total: lines.total,
        headers: lines.headers,
        messages: lines.messages,
        residue: lines.residue,
        blank: lines.blank,
    };
    assert_eq!(lines, naive.lines);
    assert_eq!(meta(&ours.reading.header), naive.meta);
    let residue = ours.taken.residue.iter();
    let residue: Vec<_> = residue
        .map(|left| (left.line, left.why.to_owned(), left.text.clone()))
        .collect();
    assert_eq!(residue, naive.residue);
    assert_eq!(ours.taken.messages.len(), naive.messages.len());
    for (ours, naive) in ours.taken.messages.iter().zip(&naive.messages) {
        assert_eq!(ours.id, naive.id);
        assert_eq!(ours.role, naive.role);
        assert_eq!(ours.content, naive.content);
        assert_eq!(ours.extra_metadata, naive.extra_metadata);
        assert_eq!(ours.salvaged, None);
    }
    for (ours, naive) in ours.taken.messages.iter().zip(&naive.unmapped) {
        compare_unmapped(ours, naive.as_ref());
    }
}

/// Equal, but for a line that has itself a key of the name under which a
/// replaced turn usage is kept: then both values are there, and the naive
/// reader has room for one.
fn compare_unmapped(ours: &Told, naive: Option<&Value>) {
    const TURN_USAGE: &str = "openhuman_turn_usage";
    if ours.unmapped.as_ref() == naive {
        return;
    }
    let without = |value: Option<&Value>| {
        let mut value = value.cloned().unwrap_or_default();
        let one = value.as_object_mut()?.remove(TURN_USAGE)?;
        Some((value, one))
    };
    let (Some((mine, _)), Some((theirs, one))) = (without(ours.unmapped.as_ref()), without(naive))
    else {
        panic!("unmapped: {:?}, naively {naive:?}", ours.unmapped);
    };
    assert_eq!(mine, theirs, "unmapped");
    let text = ours.unmapped_text.as_deref().unwrap_or_default();
    assert!(members(text, TURN_USAGE).contains(&one), "unmapped: {one}");
}

/// All values of a key.
fn members(object: &str, key: &str) -> Vec<Value> {
    struct Members<'k>(&'k str, Vec<Value>);
    impl<'de> serde::de::Visitor<'de> for Members<'_> {
        type Value = Vec<Value>;
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an object")
        }
        fn visit_map<A: serde::de::MapAccess<'de>>(
            mut self,
            mut map: A,
        ) -> Result<Vec<Value>, A::Error> {
            while let Some((key, value)) = map.next_entry::<String, Box<RawValue>>()? {
                if key == self.0 {
                    self.1
                        .push(serde_json::from_str(value.get()).expect("strict"));
                }
            }
            Ok(self.1)
        }
    }
    let mut reader = serde_json::Deserializer::from_str(object);
    serde::Deserializer::deserialize_map(&mut reader, Members(key, Vec::new())).expect("an object")
}

/// The header in the naive reader's form.
fn meta(header: &Header) -> Value {
    let mut meta = json!({
        "version": header.version,
        "agent": header.agent,
        "dispatcher": header.dispatcher,
        "created": header.created,
        "updated": header.updated,
        "turn_count": header.turn_count,
        "input_tokens": header.input_tokens,
        "output_tokens": header.output_tokens,
        "cached_input_tokens": header.cached_input_tokens,
        "charged_amount_usd": header.charged_amount_usd,
    });
    let texts = [
        ("agent_id", &header.agent_id),
        ("agent_type", &header.agent_type),
        ("provider", &header.provider),
        ("model", &header.model),
        ("thread_id", &header.thread_id),
        ("task_id", &header.task_id),
        ("session_id", &header.session_id),
        ("parent_session_id", &header.parent_session_id),
    ];
    for (key, text) in texts {
        if let Some(text) = text {
            meta[key] = json!(text);
        }
    }
    if let Some(count) = header.prefix_message_count {
        meta["prefix_message_count"] = json!(count);
    }
    meta
}

thread_local! {
    static FILE: BoxedStrategy<Vec<u8>> = strategies::transcript();
    static LINE: BoxedStrategy<Vec<u8>> = strategies::record_line();
    static HEADER: BoxedStrategy<Vec<u8>> =
        strategies::header_line().prop_map(String::into_bytes).boxed();
    static VALUE: RefCell<BoxedStrategy<Vec<u8>>> = RefCell::new(value());
}

fn value() -> BoxedStrategy<Vec<u8>> {
    proptest::prop_oneof![
        4 => strategies::json_value(),
        2 => strategies::quoted(),
        1 => strategies::skippable_value(),
    ]
    .prop_map(String::into_bytes)
    .boxed()
}

/// Pieces that matter to this reader.
const TOKENS: &[&str] = &[
    "\"_meta\"",
    "\"kind\":\"compaction\"",
    "\"kind\":\"tools\",\"tools\":1",
    "\"replacement\":[]",
    "\"interrupted\":true",
    "\"v\":2",
    "\"v\":3",
    "\"shape\":\"assistant_calls\"",
    "\"shape\":\"tool_result\"",
    "\"shape\":\"user_parts\"",
    "\"tool_call_id\":\"c\"",
    "\"role\":\"assistant\"",
    "\"role\":\"user\",\"content\":\"\"",
    "{\"role\":\"user\",\"content\":\"\"}",
    "{\"id\":",
    "\"extra_metadata\":{\"openhuman_turn_usage\":1}",
    "\"openhuman_turn_usage\":null",
    "\"extra_metadata\":[1]",
    "\"content\":null",
    "\"content\":[{\"type\":\"text\",\"text\":\"a\"}]",
    "\"provider\":\"p\",\"model\":\"m\",\"ts\":\"t\"",
    "\"usage\":[1,2,3,4,5]",
    "\"usage\":{\"input\":1,\"output\":2,\"cached_input\":3,\"cost_usd\":4}",
    "\"tool_calls\":[[\"a\",\"b\",\"c\",{}]]",
    "\"parts\":[{\"type\":\"image\",\"url\":\"u\"}]",
    "\"parts\":[{\"type\":\"audio\",\"source\":{\"type\":\"url\",\"url\":\"u\"},\"mime_type\":\"m\"}]",
    "\"iteration\":4294967296",
    "\"cache_breakpoints\":[1]",
    "\"thread_id\":\" \"",
    "\"prefix_message_count\":null",
    "\"version\":1",
    "\\ud83d",
    "\\ude80",
    "\\u0000",
    "\\u005fmeta",
    "1e400",
    "-0",
    "18446744073709551616",
    "null",
    "\0",
    "\u{a0}",
    "\u{feff}",
    "\r",
];

/// A mutation of a transcript.
pub fn mutate(bytes: &mut [u8], size: usize, max_size: usize, seed: u32) -> usize {
    mutation::mutate(
        bytes,
        size,
        max_size,
        seed,
        TOKENS,
        &|fresh, runner| match fresh {
            Fresh::File => FILE.with(|strategy| mutation::one(strategy, runner)),
            Fresh::Line => LINE.with(|strategy| mutation::one(strategy, runner)),
            Fresh::FirstLine => HEADER.with(|strategy| mutation::one(strategy, runner)),
            Fresh::Value => VALUE.with_borrow(|strategy| mutation::one(strategy, runner)),
        },
    )
}
