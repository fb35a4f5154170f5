//! Streams of a store: the strict reader takes exactly what the application's
//! takes, which is `serde_json` into this struct.

use proptest::strategy::{BoxedStrategy, Strategy as _};
use serde::Deserialize;
use serde_json::Value;
use session_import::fuzzing;

use crate::mutation::{self, Fresh};
use crate::naive::strategies;

#[derive(Debug, PartialEq, Deserialize)]
struct Record {
    offset: u64,
    value: Value,
    created_at_ms: u64,
}

/// What the application's reader does.
fn naive(bytes: &[u8]) -> Option<Vec<Record>> {
    let text = std::str::from_utf8(bytes).ok()?;
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines.map(|line| serde_json::from_str(line).ok()).collect()
}

/// Reads a stream.
fn strict(bytes: &[u8]) -> Option<Vec<Record>> {
    let mut reader = fuzzing::stream(bytes)
        .expect("the stream can be opened")
        .expect("the stream is there");
    let mut records = Vec::new();
    while let Some(record) = reader.next().ok()? {
        let value: Value = serde_json::from_str(record.value()).expect("its value is JSON");
        let text = |key: &str| value.get(key).and_then(Value::as_str);
        assert_eq!(record.id.as_deref(), text("id"));
        assert_eq!(record.role.as_deref(), text("role"));
        assert_eq!(record.content.as_deref(), text("content"));
        records.push(Record {
            offset: record.offset,
            created_at_ms: record.created_at_ms,
            value,
        });
    }
    Some(records)
}

/// Reads a stream with both.
pub fn check(bytes: &[u8]) {
    assert_eq!(strict(bytes), naive(bytes));
}

thread_local! {
    static VALUE: BoxedStrategy<String> = proptest::prop_oneof![
        6 => strategies::json_value(),
        2 => strategies::message_line(),
        1 => strategies::skippable_value(),
    ].boxed();
}

const TOKENS: &[&str] = &[
    "\"offset\":0",
    "\"created_at_ms\":1",
    "\"value\":null",
    "{\"offset\":0,\"value\":{},\"created_at_ms\":1}",
    "[0,{},1]",
    "\"id\":\"a\"",
    "\"role\":\"\\u0061\"",
    "\"content\":1",
    "\"more\":\"\\ud800\"",
    "\\ud83d",
    "\\ude80",
    "\"\\u006fffset\":1",
    "1e400",
    "-0",
    "1.0",
    "18446744073709551616",
    "null",
    "\0",
    "\t",
    "\u{a0}",
    "\u{2028}",
    "\u{feff}",
    "\r",
    "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
    "]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]",
];

/// A mutation of a stream.
pub fn mutate(bytes: &mut [u8], size: usize, max_size: usize, seed: u32) -> usize {
    mutation::mutate(bytes, size, max_size, seed, TOKENS, &|fresh, runner| {
        let value = VALUE.with(|strategy| {
            let value = strategy.clone().prop_map(String::into_bytes);
            mutation::one(&value, runner)
        });
        match fresh {
            Fresh::Value => value,
            Fresh::File | Fresh::Line | Fresh::FirstLine => [
                b"{\"offset\":0,\"value\":",
                &value[..],
                b",\"created_at_ms\":1767225600000}",
            ]
            .concat(),
        }
    })
}
