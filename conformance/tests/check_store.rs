//! The check itself: that it passes a good store, written by hand, and finds
//! each thing that it is there to find.

use std::{fs, path::Path};

use conformance::{VERSIONS, check_store, copy_store};
use serde_json::{Value, json};
use tempfile::TempDir;

const KEY: &str = "1719800000_orchestrator";

fn descriptor() -> Value {
    json!({
        "session_key": KEY,
        "parent_session_key": null,
        "thread_id": "thread-1",
        "thread_id_synthesized": false,
        "task_id": null,
        "run_ids": ["run-1"],
        "stream": format!("session.{KEY}.messages"),
        "dispatcher": "native",
        "agent_name": "orchestrator",
        "agent_id": null,
        "agent_type": null,
        "provider": null,
        "model": null,
        "created": "2026-07-01T10:00:00Z",
        "updated": "2026-07-01T10:01:00Z",
        "turn_count": 1,
        "usage": { "input": 10, "output": 5, "cached_input": 0, "cost_usd": 0.25 },
        "source": { "jsonl": format!("session_raw/{KEY}.jsonl"), "md": null },
        "import": { "version": 1, "imported_at": "2026-07-02T00:00:00.000Z", "warnings": 0 },
    })
}

fn record(offset: u64, value: Value) -> String {
    let record = json!({ "offset": offset, "value": value, "created_at_ms": 1 });
    format!("{record}\n")
}

/// A store by hand: two messages, one residue record, one empty session.
fn good_store() -> TempDir {
    let store = TempDir::new().unwrap();
    let hello = json!({ "role": "user", "content": "héllo\u{2028}" });
    let answer = json!({
        "id": "m1",
        "role": "assistant",
        "content": "",
        "extra_metadata": { "openhuman_turn_usage": {} },
        "session_import": { "unmapped": { "ts": "x" } },
    });
    let residue = json!({ "line": 3, "why": "malformed", "text": "{" });
    put_stream(
        &store,
        &format!("session.{KEY}.messages"),
        &(record(0, hello) + &record(1, answer)),
    );
    put_stream(
        &store,
        &format!("session.{KEY}.residue"),
        &record(0, residue),
    );
    put_stream(&store, "session.empty.messages", "");
    put_descriptor(&store, &descriptor());
    put(
        &store,
        "kv/session_import.meta/format.json",
        "{\"format\": 1}",
    );
    // What starts with a dot is nobody's record.
    put(&store, "journal/.session-import-x.tmp", "half");
    put(&store, "journal/.session-import-x.jsonl", "half");
    put(&store, ".session-import.lock", "");
    store
}

fn put(store: &TempDir, name: &str, text: &str) {
    let path = store.path().join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn put_stream(store: &TempDir, stream: &str, text: &str) {
    put(store, &format!("journal/{stream}.jsonl"), text);
}

fn put_descriptor(store: &TempDir, descriptor: &Value) {
    put(
        store,
        &format!("kv/sessions/{KEY}.json"),
        &descriptor.to_string(),
    );
}

/// Every version must find exactly one failure, in that file and with these
/// words in its reason.
#[track_caller]
fn assert_fails(store: &Path, append: bool, file: &str, reason: &str) {
    for outcome in check_store(store, append).unwrap() {
        let [failure] = outcome.failures.as_slice() else {
            panic!("tinyagents {}: {:?}", outcome.version, outcome.failures);
        };
        assert_eq!(
            failure.path,
            store.join(file),
            "tinyagents {}",
            outcome.version
        );
        assert!(
            failure.reason.contains(reason),
            "tinyagents {}: {}",
            outcome.version,
            failure.reason
        );
    }
}

#[track_caller]
fn assert_stream_fails(text: &str, reason: &str) {
    let store = good_store();
    let stream = format!("session.{KEY}.messages");
    put_stream(&store, &stream, text);
    assert_fails(
        store.path(),
        false,
        &format!("journal/{stream}.jsonl"),
        reason,
    );
}

#[track_caller]
fn assert_descriptor_fails(change: impl FnOnce(&mut Value), reason: &str) {
    let store = good_store();
    let mut descriptor = descriptor();
    change(&mut descriptor);
    put_descriptor(&store, &descriptor);
    assert_fails(
        store.path(),
        false,
        &format!("kv/sessions/{KEY}.json"),
        reason,
    );
}

/// The field of a descriptor with this dotted name.
fn parent_of<'a>(descriptor: &'a mut Value, field: &'a str) -> (&'a mut Value, &'a str) {
    match field.split_once('.') {
        Some((outer, inner)) => (&mut descriptor[outer], inner),
        None => (descriptor, field),
    }
}

#[test]
fn the_versions_are_those_of_the_manifest() {
    let manifest = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"));
    for version in VERSIONS {
        assert!(manifest.contains(&format!("version = \"={}\"", version.name)));
    }
}

#[test]
fn a_good_store_is_counted_and_left_alone() {
    let store = good_store();
    let before = tempfile::tempdir().unwrap();
    copy_store(store.path(), before.path()).unwrap();

    for outcome in check_store(store.path(), false).unwrap() {
        assert_eq!(outcome.failures, []);
        assert_eq!(
            outcome.counts.to_string(),
            "3 streams, 3 records, 2 keys, 1 descriptors, 0 appended"
        );
    }

    for name in ["journal", "kv/sessions", "kv/session_import.meta"] {
        for entry in fs::read_dir(store.path().join(name)).unwrap() {
            let path = entry.unwrap().path();
            let copy = before.path().join(path.strip_prefix(store.path()).unwrap());
            assert_eq!(fs::read(path).unwrap(), fs::read(copy).unwrap());
        }
    }
}

#[test]
fn each_version_appends_one_record_to_each_message_stream() {
    let store = good_store();

    for outcome in check_store(store.path(), true).unwrap() {
        assert_eq!(outcome.failures, []);
        // The counts are those of the store as it was given.
        assert_eq!(
            outcome.counts.to_string(),
            "3 streams, 3 records, 2 keys, 1 descriptors, 2 appended"
        );
    }
    let journal = store
        .path()
        .join(format!("journal/session.{KEY}.messages.jsonl"));
    let lines = fs::read_to_string(journal).unwrap().lines().count();
    assert_eq!(lines, 2 + VERSIONS.len());
    let residue = store
        .path()
        .join(format!("journal/session.{KEY}.residue.jsonl"));
    assert_eq!(fs::read_to_string(residue).unwrap().lines().count(), 1);
}

#[test]
fn a_folder_without_a_store_fails() {
    let empty = TempDir::new().unwrap();
    assert_fails(empty.path(), false, "", "no store");
    assert_fails(empty.path(), true, "", "no store");
    let missing = empty.path().join("no/such/folder");
    assert_fails(&missing, false, "", "no store");
}

#[test]
fn a_gap_in_the_offsets_fails() {
    let message = json!({ "role": "user", "content": "x" });
    let text = record(0, message.clone()) + &record(2, message);
    assert_stream_fails(&text, "record 1 has offset 2");
}

#[test]
fn an_offset_given_twice_fails() {
    let message = json!({ "role": "user", "content": "x" });
    let text = record(0, message.clone()) + &record(0, message);
    assert_stream_fails(&text, "record 1 has offset 0");
}

#[test]
fn a_stream_that_does_not_start_at_zero_fails() {
    let text = record(1, json!({ "role": "user", "content": "x" }));
    assert_stream_fails(&text, "record 0 has offset 1");
}

#[test]
fn a_line_that_the_strict_parser_refuses_fails() {
    let lone = r#"{"offset":0,"value":{"role":"user","content":"\ud800"},"created_at_ms":1}"#;
    assert_stream_fails(&format!("{lone}\n"), "hex escape");
    let nested = format!("{}{}", "[".repeat(130), "]".repeat(130));
    let deep = format!(r#"{{"offset":0,"value":{{"x":{nested}}},"created_at_ms":1}}"#);
    assert_stream_fails(&format!("{deep}\n"), "recursion limit");
    let no_time = r#"{"offset":0,"value":{"role":"user","content":"x"}}"#;
    assert_stream_fails(&format!("{no_time}\n"), "created_at_ms");
    assert_stream_fails("{\"offset\":0,\"val\n", "");
}

#[test]
fn a_message_without_role_or_content_as_strings_fails() {
    for (value, reason) in [
        (json!({ "content": "x" }), "role"),
        (json!({ "role": "user" }), "content"),
        (json!({ "role": "user", "content": null }), "null"),
        (
            json!({ "role": "user", "content": [{ "text": "x" }] }),
            "sequence",
        ),
        (json!({ "role": 1, "content": "x" }), "integer"),
        (
            json!({ "role": "user", "content": "x", "id": 7 }),
            "integer",
        ),
        (json!("x"), "record 0 is no message"),
    ] {
        assert_stream_fails(&record(0, value), reason);
    }
}

#[test]
fn a_last_line_without_its_newline_fails() {
    let text = record(0, json!({ "role": "user", "content": "x" }));
    assert_stream_fails(text.trim_end(), "no newline at the end");
}

#[test]
fn a_name_that_the_crate_refuses_fails() {
    let store = good_store();
    put_stream(&store, "session.a b.residue", "");
    assert_fails(
        store.path(),
        false,
        "journal/session.a b.residue.jsonl",
        "invalid characters",
    );
}

#[test]
fn a_key_that_is_not_json_fails() {
    let store = good_store();
    put(&store, "kv/migration_items/ab.json", "{");
    assert_fails(store.path(), false, "kv/migration_items/ab.json", "EOF");
}

#[test]
fn null_is_refused_where_the_application_wants_a_value() {
    for field in [
        "session_key",
        "thread_id",
        "thread_id_synthesized",
        "run_ids",
        "stream",
        "dispatcher",
        "agent_name",
        "created",
        "updated",
        "turn_count",
        "usage",
        "usage.input",
        "usage.output",
        "usage.cached_input",
        "usage.cost_usd",
        "source",
        "import",
        "import.version",
        "import.imported_at",
        "import.warnings",
    ] {
        assert_descriptor_fails(
            |descriptor| {
                let (object, field) = parent_of(descriptor, field);
                object[field] = Value::Null;
            },
            "null",
        );
    }
}

#[test]
fn null_passes_where_the_application_knows_it() {
    for field in [
        "parent_session_key",
        "task_id",
        "agent_id",
        "agent_type",
        "provider",
        "model",
        "source.jsonl",
        "source.md",
    ] {
        for value in [Value::Null, json!("some")] {
            let store = good_store();
            let mut descriptor = descriptor();
            let (object, name) = parent_of(&mut descriptor, field);
            object[name] = value;
            put_descriptor(&store, &descriptor);
            for outcome in check_store(store.path(), false).unwrap() {
                assert_eq!(outcome.failures, [], "{field}");
            }
        }
    }
}

#[test]
fn a_field_that_may_be_null_may_not_be_missing() {
    for field in ["task_id", "model", "source.md", "run_ids", "usage.input"] {
        assert_descriptor_fails(
            |descriptor| {
                let (object, field) = parent_of(descriptor, field);
                object.as_object_mut().unwrap().remove(field);
            },
            "missing field",
        );
    }
}

#[test]
fn an_unknown_field_passes() {
    let store = good_store();
    let mut descriptor = descriptor();
    descriptor["later"] = json!(1);
    put_descriptor(&store, &descriptor);
    for outcome in check_store(store.path(), false).unwrap() {
        assert_eq!(outcome.failures, []);
    }
}

#[test]
fn a_descriptor_without_its_stream_fails() {
    assert_descriptor_fails(
        |descriptor| descriptor["stream"] = json!("session.other.messages"),
        "is not there",
    );
}
