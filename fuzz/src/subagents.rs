//! The sub-agents file: no panic, warnings and records within bounds, and each
//! history as the strict reader of a store takes it.

use proptest::strategy::{BoxedStrategy, Strategy as _};
use serde_json::value::RawValue;
use session_import::fuzzing;
use session_import::source::openhuman::subagents::{Subagents, read_history};

use crate::mutation::{self, Fresh};
use crate::naive::strategies;
use crate::taken::{Taken, without_mark};

/// Warnings that the file may give: those that are named, and their rest.
const MOST_WARNINGS: usize = 21;

/// Histories that are read again: each seeks its record from the start.
const HISTORIES: usize = 8;

/// Reads the file and its histories.
pub fn check(bytes: &[u8]) {
    fuzzing::subagents(bytes, |workspace| {
        let (subagents, warnings) = Subagents::read(workspace);
        assert!(warnings.len() <= MOST_WARNINGS, "{}", warnings.len());
        assert!(subagents.mtime.is_some() || subagents.records.is_empty());

        // All of the file, or nothing of it.
        let records: Result<Vec<&RawValue>, _> = serde_json::from_slice(without_mark(bytes));
        let Ok(records) = records else {
            assert!(subagents.records.is_empty(), "no array, but has records");
            assert!(!warnings.is_empty(), "no array, but no warning");
            return Ok(());
        };
        assert!(subagents.records.len() <= records.len());
        assert!(subagents.records.len() == records.len() || !warnings.is_empty());

        for (index, subagent) in subagents.records.iter().enumerate() {
            let is_record = |raw: &&&RawValue| raw.get().len() as u64 == subagent.bytes;
            assert!(records.iter().any(|raw| is_record(&raw)));
            let earlier = &subagents.records[..index];
            assert!(earlier.iter().all(|earlier| earlier.id != subagent.id));
            assert!(!subagent.id.is_empty());
            let about = subagent.about.to_string();
            let about: serde_json::Value = serde_json::from_str(&about).expect("strict");
            // Around it lies an entry, and the entry's own object.
            assert!(
                serde_json::from_str::<serde_json::Value>(&format!("[[[[[[{about}]]]]]]")).is_ok()
            );
            assert!(about.get("latestHistory").is_none());
            if let Some(thread) = &subagent.worker_thread_id {
                assert!(subagents.by_worker_thread(thread).is_some());
            }
        }
        for subagent in subagents.records.iter().take(HISTORIES) {
            let mut taken = Taken::default();
            let reading = read_history(workspace, subagent, &mut taken)?;
            taken.check(&reading);
            assert_eq!(reading.lines.total, subagent.history_len);
            assert_eq!(reading.lines.residue, taken.residue.len() as u64);
        }
        Ok(())
    })
    .unwrap_or_else(|error| panic!("{error}"));
}

thread_local! {
    static VALUE: BoxedStrategy<Vec<u8>> = proptest::prop_oneof![
        2 => strategies::json_value(),
        1 => strategies::quoted(),
        1 => strategies::skippable_value(),
        2 => strategies::message_line(),
    ]
    .prop_map(String::into_bytes)
    .boxed();
}

const TOKENS: &[&str] = &[
    "\"subagentSessionId\":\"a\"",
    "\"subagentSessionId\":\"b\"",
    "\"parentSession\":null",
    "\"parentSession\":1",
    "\"parentThreadId\":\"t\"",
    "\"workerThreadId\":\"w\"",
    "\"agentId\":\"a\"",
    "\"taskKey\":\"k\"",
    "\"currentTaskId\":null",
    "\"createdAt\":\"c\"",
    "\"model\":1",
    "\"latestHistory\":[]",
    "\"latestHistory\":null",
    "\"latestHistory\":[{\"role\":\"user\",\"content\":\"\"}]",
    "{\"subagentSessionId\":\"c\",\"latestHistory\":[{\"role\":\"user\",\"content\":\"x\"},1]}",
    "{\"role\":\"user\",\"content\":\"\",\"extra_metadata\":{}}",
    "\"role\":\"user\"",
    "\"id\":1",
    "\"extra_metadata\":1e400",
    "\"x\":12345678901234567890123",
    "\\ud83d",
    "\\u0000",
    "\n",
    "\u{feff}",
    "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
    "]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]",
];

/// A mutation of the file.
pub fn mutate(bytes: &mut [u8], size: usize, max_size: usize, seed: u32) -> usize {
    mutation::mutate(bytes, size, max_size, seed, TOKENS, &|fresh, runner| {
        let mut value = || VALUE.with(|strategy| mutation::one(strategy, runner));
        let record = |value: Vec<u8>| {
            let (before, between) = (
                "{\"subagentSessionId\":\"n\",\"x\":",
                ",\"latestHistory\":[",
            );
            [before.as_bytes(), &value, between.as_bytes(), &value, b"]}"].concat()
        };
        match fresh {
            Fresh::Value => value(),
            Fresh::Line | Fresh::FirstLine => record(value()),
            Fresh::File => [b"[", &record(value())[..], b"]"].concat(),
        }
    })
}
