//! `accept`: a failure that is settled, and when it comes up again.

// Clippy takes only functions marked as tests for tests.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod support;

use serde_json::{Value, json};
use session_import::model::key::Sha256;
use support::{Outcome, Workspace, assert_schema};

const BAD: &str = "session_raw/3_bad.jsonl";
const HI: &str = r#"{"role":"user","content":"hi"}"#;
const HELLO: &str = r#"{"role":"assistant","content":"hello"}"#;
const MARKER: &str = "tinyagents_store/kv/migrations/session_import_v1.json";
const FAILED: &str = "tinyagents_store/kv/session_import.failed";

/// One good session, and a file that is none.
fn one_bad() -> Workspace {
    let workspace = Workspace::new();
    workspace
        .transcript("1_one", &[HI, HELLO])
        .file(BAD, "no header\n");
    workspace.run(&[]).code(3);
    workspace
}

#[track_caller]
fn accept(workspace: &Workspace, source: &str) -> Value {
    let arguments = [source, "--reason", "lost in the crash", "--json"];
    let report = workspace.call("accept", &arguments).code(0).json();
    assert_schema("accept", &report);
    report
}

fn entry(workspace: &Workspace, source: &str) -> Value {
    let key = Sha256::of(source.as_bytes());
    let path = format!("tinyagents_store/kv/migration_items/{key}.json");
    serde_json::from_str(&workspace.read(path)).unwrap()
}

/// What a run says of a session.
#[track_caller]
fn action(run: &Outcome, key: &str) -> String {
    let run = run.json();
    let mut items = run["items"].as_array().unwrap().iter();
    let item = items.find(|item| item["session_key"] == key).unwrap();
    item["action"].as_str().unwrap().to_owned()
}

#[test]
fn an_accepted_failure_is_skipped_until_its_source_changes() {
    let workspace = one_bad();
    assert!(!workspace.tree().has(MARKER));
    let report = accept(&workspace, BAD);
    assert_eq!(
        (&report["accepted"], &report["still_failed"]),
        (&json!(1), &json!(0))
    );
    assert_eq!(report["items"][0]["code"], "no-header");
    assert_eq!(report["items"][0]["keeps_record"], false);
    assert!(workspace.tree().paths(FAILED).is_empty());

    let entry = entry(&workspace, BAD);
    let accepted = &entry["accepted"];
    assert_eq!(accepted["reason"], "lost in the crash");
    assert_eq!(accepted["sha256"], Sha256::of(b"no header\n").to_string());
    assert_eq!(
        (&accepted["size"], &entry["size"]),
        (&json!(10), &json!(10))
    );
    assert_eq!(entry["session_key"], "3_bad");
    assert_eq!(entry["stream"], "session.3_bad.messages");
    assert_eq!(entry["journal_sha256"], Value::Null);

    for arguments in [
        ["--json"].as_slice(),
        &["--json", "--checksum"],
        &["--json"],
    ] {
        let run = workspace.run(arguments).code(0);
        assert_eq!(action(&run, "3_bad"), "skipped_accepted");
        assert!(workspace.tree().has(MARKER));
    }

    // Another time alone is no change.
    workspace.mtime(BAD, support::WRITTEN_AT);
    workspace.run(&[]).code(0);

    workspace.transcript("3_bad", &[HI]);
    let run = workspace.run(&["--json"]).code(0);
    assert_eq!(action(&run, "3_bad"), "imported");
    assert_eq!(self::entry(&workspace, BAD)["accepted"], Value::Null);
}

#[test]
fn one_that_fails_again_after_a_change_can_be_accepted_again() {
    let workspace = one_bad();
    accept(&workspace, "3_bad");
    workspace.append(BAD, "nor here\n");
    let run = workspace.run(&["--json"]).code(3);
    assert_eq!(action(&run, "3_bad"), "failed");
    assert!(!workspace.tree().has(MARKER));
    accept(&workspace, "3_bad");
    let run = workspace.run(&["--json"]).code(0);
    assert_eq!(action(&run, "3_bad"), "skipped_accepted");
    // Forced, it is tried all the same.
    workspace.run(&["--force"]).code(3);
    // And what was accepted is so still; the failure goes.
    let run = workspace.run(&["--json"]).code(0);
    assert_eq!(action(&run, "3_bad"), "skipped_accepted");
    assert!(workspace.tree().paths(FAILED).is_empty());
}

#[test]
fn a_source_is_named_in_any_of_five_ways() {
    let absolute = |workspace: &Workspace| workspace.path(BAD).to_str().unwrap().to_owned();
    let ways: [&dyn Fn(&Workspace) -> String; 5] = [
        &|_| BAD.to_owned(),
        &|_| format!("./{BAD}"),
        &|_| "3_bad".to_owned(),
        &absolute,
        &|workspace| {
            // The workspace by another name.
            let link = workspace.home().join("link");
            std::os::unix::fs::symlink(workspace.root(), &link).unwrap();
            link.join(BAD).to_str().unwrap().to_owned()
        },
    ];
    for way in ways {
        let workspace = one_bad();
        accept(&workspace, &way(&workspace));
    }
}

#[test]
fn a_name_that_is_not_utf8_is_accepted_as_it_is_shown() {
    use std::os::unix::ffi::OsStrExt as _;
    let workspace = Workspace::new();
    let name = std::ffi::OsStr::from_bytes(b"session_raw/3_\xff.jsonl");
    workspace
        .transcript("1_one", &[HI])
        .file(name, "no header\n");
    workspace.run(&[]).code(3);
    accept(&workspace, "session_raw/3_%FF.jsonl");
    workspace.run(&[]).code(0);
}

#[test]
fn wrong_usage_settles_nothing_and_names_what_has_failed() {
    let workspace = one_bad();
    let before = workspace.tree();
    let call = |arguments: &[&str]| workspace.call("accept", arguments).code(2);
    call(&["3_bad", "1_one", "--reason", "x"])
        .logs("1_one has not failed; these have:")
        .logs("session_raw/3_bad.jsonl (no-header)");
    call(&["session_raw/9_none.jsonl", "--reason", "x"]).logs("has not failed");
    call(&["3_bad", "--reason", "  "]).logs("--reason");
    call(&["3_bad"]);
    call(&["--reason", "x"]);
    before.assert_same(&workspace.tree());

    let document = call(&["1_one", "--reason", "x", "--json"]).json();
    assert_schema("error", &document);
    assert_eq!(document["error"]["code"], "usage");
}

#[test]
fn without_a_store_nothing_has_failed() {
    let workspace = Workspace::new();
    workspace.file(BAD, "no header\n");
    let before = workspace.tree();
    let outcome = workspace.call("accept", &[BAD, "--reason", "x"]).code(2);
    outcome.logs("nothing has, as far as the store knows");
    before.assert_same(&workspace.tree());
}

#[test]
fn a_source_that_changed_since_it_failed_is_not_accepted_unseen() {
    let workspace = one_bad();
    workspace.transcript("3_bad", &[HI]);
    let outcome = workspace
        .call("accept", &["3_bad", "--reason", "x"])
        .code(2);
    outcome.logs("has changed since it failed");
    workspace.remove(BAD);
    let outcome = workspace
        .call("accept", &["3_bad", "--reason", "x"])
        .code(2);
    outcome.logs("is gone since it failed");
    workspace.run(&[]).code(0);
    assert!(workspace.tree().paths(FAILED).is_empty());
}

#[test]
fn an_earlier_record_stays_and_counts_when_its_source_comes_back() {
    let workspace = Workspace::new();
    workspace.transcript("1_one", &[HI, HELLO]);
    workspace.run(&[]).code(0);
    let source = "session_raw/1_one.jsonl";
    let good = workspace.read(source);
    let stream = workspace.read("tinyagents_store/journal/session.1_one.messages.jsonl");
    let before = entry(&workspace, source);
    workspace.file(source, "no header\n");
    workspace.run(&[]).code(3);
    assert_eq!(
        accept(&workspace, "1_one")["items"][0]["keeps_record"],
        true
    );
    let mut accepted = entry(&workspace, source);
    accepted.as_object_mut().unwrap().remove("accepted");
    assert_eq!(accepted, before);
    let run = workspace.run(&["--json"]).code(0);
    assert_eq!(action(&run, "1_one"), "skipped_accepted");
    let after = workspace.read("tinyagents_store/journal/session.1_one.messages.jsonl");
    assert_eq!(after, stream);

    workspace.file(source, good);
    let run = workspace.run(&["--json"]).code(0);
    assert_eq!(action(&run, "1_one"), "skipped_unchanged");
    workspace
        .call("undo", &[])
        .code(0)
        .says("Nothing of any import is left.");
}

#[test]
fn undo_takes_it_back() {
    let workspace = one_bad();
    accept(&workspace, "3_bad");
    workspace.run(&[]).code(0);
    let undone = workspace
        .call("undo", &["--only", "3_bad", "--json"])
        .code(0);
    assert_eq!(undone.json()["items"][0]["stream"], Value::Null);
    assert!(!workspace.tree().has(MARKER));
    let run = workspace.run(&["--json"]).code(3);
    assert_eq!(action(&run, "3_bad"), "failed");
    assert_eq!(action(&run, "1_one"), "skipped_unchanged");
}

#[test]
fn undo_gives_the_existing_importers_entry_back() {
    let workspace = Workspace::new();
    workspace.file(BAD, "no header\n");
    let key = Sha256::of(BAD.as_bytes());
    let theirs = json!({
        "version": 1, "session_key": "3_bad", "source": BAD, "size": 3, "mtime_ms": 4,
        "stream": "session.3_bad.messages", "messages": 0,
        "imported_at": "2026-01-01T00:00:00.000Z",
    });
    let path = format!("tinyagents_store/kv/migration_items/{key}.json");
    workspace.file(&path, theirs.to_string());
    workspace.run(&[]).code(3);
    accept(&workspace, "3_bad");
    workspace.run(&[]).code(0);
    workspace.call("undo", &[]).code(0);
    let back: Value = serde_json::from_str(&workspace.read(&path)).unwrap();
    assert_eq!(back, theirs);
}

/// Root may read everything.
fn may_read_all(workspace: &Workspace) -> bool {
    workspace.mode(BAD, 0o000);
    std::fs::read(workspace.path(BAD)).is_ok()
}

#[test]
fn what_cannot_be_read_is_accepted_by_size_and_time() {
    let workspace = Workspace::new();
    workspace
        .transcript("1_one", &[HI])
        .transcript("3_bad", &[HI]);
    if may_read_all(&workspace) {
        return;
    }
    workspace.run(&[]).code(3);
    let report = accept(&workspace, "3_bad");
    assert_eq!(report["items"][0]["sha256"], Value::Null);
    for _ in 0..2 {
        let run = workspace.run(&["--json"]).code(0);
        assert_eq!(action(&run, "3_bad"), "skipped_accepted");
    }
    workspace.mode(BAD, 0o600);
    let run = workspace.run(&["--json"]).code(0);
    assert_eq!(action(&run, "3_bad"), "imported");
}

#[test]
fn a_stream_that_went_another_way_can_be_accepted_and_is_left_alone() {
    let workspace = Workspace::new();
    workspace.transcript("1_one", &[HI, HELLO]);
    let path = "tinyagents_store/journal/session.1_one.messages.jsonl";
    let record =
        json!({"offset": 0, "value": {"role": "user", "content": "other"}, "created_at_ms": 1});
    workspace.file(path, format!("{record}\n"));
    let before = workspace.read(path);
    workspace.run(&[]).code(3);
    accept(&workspace, "1_one");
    workspace.run(&[]).code(0);
    workspace.call("undo", &[]).code(0);
    assert_eq!(workspace.read(path), before);
}

#[test]
fn a_stream_of_the_application_is_not_taken_for_ours_once_accepted() {
    let workspace = Workspace::new();
    workspace.file("session_raw/1_one.jsonl", "no header\n");
    workspace.run(&[]).code(3);
    accept(&workspace, "1_one");
    // The application comes, and the source becomes good.
    let path = "tinyagents_store/journal/session.1_one.messages.jsonl";
    let record =
        json!({"offset": 0, "value": {"role": "user", "content": "hi"}, "created_at_ms": 1});
    workspace.file(path, format!("{record}\n"));
    workspace.transcript("1_one", &[HI, HELLO]);
    workspace.run(&[]).code(0);
    let replaced = &entry(&workspace, "session_raw/1_one.jsonl")["replaced"];
    assert_eq!(replaced["record"], "the application's");
    workspace.call("undo", &[]).code(0).says("not-brought-back");
}

#[test]
fn several_at_once_and_what_is_said() {
    let workspace = one_bad();
    workspace.file("session_raw/4_bad.jsonl", "");
    workspace.run(&[]).code(3);
    let outcome = workspace
        .call("accept", &["3_bad", "--reason", "crash \u{1b}[2J"])
        .code(0);
    assert!(!outcome.stdout.contains('\u{1b}'));
    outcome
        .says("Accepted: 1 failed session, for the reason: crash \\u{1b}[2J")
        .says("Still failed: 1 session.");
    workspace.run(&[]).code(3);
    workspace.call("undo", &["--only", "3_bad"]).code(0);
    workspace.run(&[]).code(3);
    workspace
        .call("accept", &["3_bad", "4_bad", "3_bad", "--reason", "crash"])
        .code(0)
        .says("Accepted: 2 failed sessions")
        .says("No other session has failed.");
    workspace.run(&[]).code(0);
}

#[test]
fn names_are_given_as_an_import_would() {
    let workspace = Workspace::new();
    workspace
        .transcript("a_b", &[HI])
        .file("session_raw/a b.jsonl", "no header\n")
        .file("session_raw/A_B.jsonl", "no header\n");
    workspace.run(&[]).code(3);
    accept(&workspace, "a b");
    accept(&workspace, "A_B");
    let names = ["a_b", "a b", "A_B"].map(|stem| {
        let entry = entry(&workspace, &format!("session_raw/{stem}.jsonl"));
        entry["stream"].as_str().unwrap().to_ascii_lowercase()
    });
    assert!(names.iter().all(|name| name.starts_with("session.a_b")));
    let different: std::collections::BTreeSet<_> = names.iter().collect();
    assert_eq!(different.len(), 3, "{names:?}");
}

#[test]
fn a_subagents_history_can_be_accepted() {
    let workspace = Workspace::new();
    // A stream that went another way makes it fail.
    let record = json!([{
        "subagentSessionId": "s1", "parentSession": "1_one", "workerThreadId": "thr-9",
        "agentId": "helper", "sandboxMode": "none", "taskKey": "t", "taskTitle": "T",
        "status": "closed", "reusable": false, "createdAt": "2026-05-02T08:00:00Z",
        "updatedAt": "2026-05-02T08:00:00Z", "lastUsedAt": "2026-05-02T08:00:00Z",
        "latestHistory": [{"role": "user", "content": "hi"}],
    }]);
    workspace.transcript("1_one", &[HI]);
    workspace.file(".openhuman/subagent_sessions.json", record.to_string());
    let path = "tinyagents_store/journal/session.subagent-s1.messages.jsonl";
    let other =
        json!({"offset": 0, "value": {"role": "user", "content": "other"}, "created_at_ms": 1});
    workspace.file(path, format!("{other}\n"));
    let run = workspace.run(&["--json"]);
    assert_eq!(action(&run, "subagent-s1"), "failed");
    accept(&workspace, ".openhuman/subagent_sessions.json#s1");
    let run = workspace.run(&["--json"]).code(0);
    assert_eq!(action(&run, "subagent-s1"), "skipped_accepted");
}

#[cfg(feature = "fault-injection")]
#[test]
fn whatever_fails_it_is_accepted_or_not_and_can_be_done_again() {
    let prepared = || {
        let workspace = one_bad();
        workspace.file("session_raw/4_bad.jsonl", "");
        workspace.run(&[]).code(3);
        workspace
    };
    let call = |workspace: &Workspace, fault: Option<(&str, String)>| {
        let mut program = workspace.command();
        program.env("SOURCE_DATE_EPOCH", "1800000000");
        if let Some((name, value)) = fault {
            program.env(name, value);
        }
        program.args(["accept", "3_bad", "4_bad", "--reason", "x", "-w"]);
        Outcome::of(program.arg(workspace.root()))
    };
    let workspace = prepared();
    let count = workspace.home().join("count");
    let name = "SESSION_IMPORT_FAULT_COUNT";
    call(&workspace, Some((name, count.to_str().unwrap().to_owned()))).code(0);
    let operations: u64 = std::fs::read_to_string(count).unwrap().parse().unwrap();
    assert!(operations > 5);
    for fault in ["EIO", "ENOSPC", "short", "kill"] {
        for number in 1..=operations {
            println!("{number}:{fault}");
            let workspace = prepared();
            call(
                &workspace,
                Some(("SESSION_IMPORT_FAULT", format!("{number}:{fault}"))),
            );
            let failed = workspace.tree().paths(FAILED).len();
            let accepted = workspace
                .tree()
                .paths("tinyagents_store/kv/migration_items")
                .len()
                - 1;
            let accepted = accepted.min(2);
            assert!(
                failed + accepted >= 2,
                "{failed} failed, {accepted} accepted"
            );
            // Done again, if it was not done; a run then agrees.
            let again = call(&workspace, None);
            assert!(
                failed == 0 || again.code == 0 || again.code == 2,
                "{}",
                again.stderr
            );
            for bad in ["3_bad", "4_bad"] {
                workspace.call("accept", &[bad, "--reason", "x"]);
            }
            workspace.run(&[]).code(0);
            assert!(workspace.tree().paths(FAILED).is_empty());
        }
    }
}
