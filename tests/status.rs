//! `status`: it says what a run would do, and opens nothing for it.

// Clippy takes only functions marked as tests for tests.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use support::{Outcome, Workspace, assert_schema};

const HI: &str = r#"{"role":"user","content":"hi"}"#;
const HELLO: &str = r#"{"role":"assistant","content":"hello"}"#;

/// What `status --json` says, checked.
#[track_caller]
fn status(workspace: &Workspace) -> Value {
    let report = workspace.call("status", &["--json"]).code(0).json();
    assert_schema("status", &report);
    let sum: u64 = states(&report).values().sum();
    assert_eq!(report["scanned"], sum);
    let steps = report["next"].as_array().unwrap().iter();
    let sessions: u64 = steps.map(|step| step["sessions"].as_u64().unwrap()).sum();
    assert_eq!(sessions, sum);
    report
}

/// The states that there are.
fn states(report: &Value) -> BTreeMap<String, u64> {
    let states = report["states"].as_object().unwrap().iter();
    let states = states.map(|(state, count)| (state.clone(), count.as_u64().unwrap()));
    states.filter(|(_, count)| *count > 0).collect()
}

fn counts(expected: &[(&str, u64)]) -> BTreeMap<String, u64> {
    let expected = expected.iter();
    expected
        .map(|(state, count)| ((*state).to_owned(), *count))
        .collect()
}

fn reasons(report: &Value) -> Vec<&str> {
    let steps = report["next"].as_array().unwrap().iter();
    steps.map(|step| step["reason"].as_str().unwrap()).collect()
}

fn two() -> Workspace {
    let workspace = Workspace::new();
    workspace
        .transcript("1_one", &[HI, HELLO])
        .transcript("2_two", &[HI, "no json", HELLO]);
    workspace
}

#[test]
fn before_any_import_all_is_new_and_nothing_is_made() {
    let workspace = two();
    let before = workspace.tree();
    let report = status(&workspace);
    assert_eq!(states(&report), counts(&[("new", 2)]));
    assert_eq!(
        (&report["store_exists"], &report["marker"]),
        (&json!(false), &Value::Null)
    );
    assert_eq!(report["nothing_to_do"], false);
    let bytes: u64 = ["1_one", "2_two"]
        .map(|stem| {
            fs::metadata(workspace.path(format!("session_raw/{stem}.jsonl")))
                .unwrap()
                .len()
        })
        .iter()
        .sum();
    assert_eq!(report["bytes"]["to_read"], bytes);
    workspace
        .call("status", &[])
        .code(0)
        .says("not there yet")
        .says("import 2 sessions")
        .says("session-import run --dry-run -w");
    before.assert_same(&workspace.tree());
}

#[test]
fn after_an_import_all_is_up_to_date() {
    let workspace = two();
    workspace.run(&[]).code(0);
    let before = workspace.tree();
    let report = status(&workspace);
    before.assert_same(&workspace.tree());
    assert_eq!(states(&report), counts(&[("up_to_date", 2)]));
    assert_eq!(report["nothing_to_do"], true);
    let marker = &report["marker"];
    assert_eq!(
        (&marker["is_ours"], &marker["is_clean"]),
        (&json!(true), &json!(true))
    );
    assert!(
        marker["tool"]
            .as_str()
            .unwrap()
            .starts_with("session-import ")
    );
    assert_eq!(
        (&report["sessions"], &report["messages"]),
        (&json!(2), &json!(4))
    );
    let lines = &report["lines"];
    assert_eq!(
        (&lines["residue"], &lines["rejected"]),
        (&json!(1), &json!(1))
    );
    let streams = workspace
        .tree()
        .paths("tinyagents_store/journal")
        .into_iter();
    let streams: u64 = streams
        .map(|path| fs::metadata(workspace.path(path)).unwrap().len())
        .sum();
    assert_eq!(report["bytes"]["streams"], streams);
    let text = workspace.call("status", &[]).code(0);
    assert!(!text.stdout.contains("Next,"), "{}", text.stdout);
}

#[test]
fn every_state_has_its_sessions() {
    let workspace = two();
    workspace
        .transcript("3_changed", &[HI])
        .transcript("4_gone", &[HI])
        .transcript("5_half", &[HI])
        .transcript("6_theirs", &[HI])
        .file("session_raw/7_accepted.jsonl", "no header\n")
        .file("session_raw/8_bad.jsonl", "no header\n");
    workspace.run(&[]).code(3);
    workspace
        .call("accept", &["7_accepted", "--reason", "x"])
        .code(0);
    workspace.run(&[]).code(3);

    workspace.append("session_raw/3_changed.jsonl", format!("{HELLO}\n"));
    workspace.remove("session_raw/4_gone.jsonl");
    workspace.remove("tinyagents_store/journal/session.5_half.messages.jsonl");
    let key = session_import::model::key::Sha256::of(b"session_raw/6_theirs.jsonl");
    let entry = format!("tinyagents_store/kv/migration_items/{key}.json");
    let mut theirs: Value = serde_json::from_str(&workspace.read(&entry)).unwrap();
    let eight = [
        "version",
        "session_key",
        "source",
        "size",
        "mtime_ms",
        "stream",
        "messages",
        "imported_at",
    ];
    theirs
        .as_object_mut()
        .unwrap()
        .retain(|key, _| eight.contains(&key.as_str()));
    workspace.file(&entry, theirs.to_string());
    workspace.transcript("9_new", &[HI]);

    let report = status(&workspace);
    let expected = counts(&[
        ("accepted", 1),
        ("changed", 1),
        ("earlier_importer", 1),
        ("failed", 1),
        ("new", 1),
        ("outdated", 1),
        ("source_gone", 1),
        ("up_to_date", 2),
    ]);
    assert_eq!(states(&report), expected);
    assert_eq!(
        reasons(&report),
        [
            "no-header",
            "new",
            "its size or time changed",
            "record incomplete",
            "imported by the earlier importer",
            "unchanged",
            "accepted",
            "its source is gone; the record stays",
        ]
    );
    assert_eq!(report["next"][0]["examples"][0], "session_raw/8_bad.jsonl");
    assert_eq!(report["nothing_to_do"], false);

    // A run does as much.
    let run = workspace.run(&["--json"]).code(3).json();
    assert_eq!(
        (&run["imported"], &run["skipped"], &run["failed"]),
        (&json!(4), &json!(3), &json!(1))
    );
}

#[test]
fn where_the_application_has_gone_on_a_run_skips() {
    let workspace = Workspace::new();
    workspace.transcript("1_one", &[HI]);
    let record = |offset: u64, role: &str, content: &str| {
        let value = json!({"role": role, "content": content});
        let record = json!({"offset": offset, "value": value, "created_at_ms": 1});
        format!("{record}\n")
    };
    let stream = "tinyagents_store/journal/session.1_one.messages.jsonl";
    let ahead = record(0, "user", "hi") + &record(1, "assistant", "hello");
    workspace.file(stream, ahead);
    for _ in 0..3 {
        workspace.run(&[]).code(0);
        let report = status(&workspace);
        assert_eq!(states(&report), counts(&[("ahead", 1)]));
    }
}

#[test]
fn what_the_cache_does_not_know_would_be_looked_at() {
    let workspace = two();
    workspace.run(&[]).code(0);
    workspace.remove("tinyagents_store/.session-import.stat");
    let report = status(&workspace);
    assert_eq!(states(&report), counts(&[("to_look_at", 2)]));
    assert_eq!(report["nothing_to_do"], false);

    // Which is what a run does.
    workspace.run(&[]).code(0);
    assert_eq!(states(&status(&workspace)), counts(&[("up_to_date", 2)]));
    workspace.mtime("session_raw/1_one.jsonl", support::WRITTEN_AT);
    let report = status(&workspace);
    assert_eq!(
        states(&report),
        counts(&[("to_look_at", 1), ("up_to_date", 1)])
    );
}

#[test]
fn a_failure_is_tried_again_and_named_by_its_code() {
    let workspace = two();
    workspace.file("session_raw/3_bad.jsonl", "no header\n");
    workspace.run(&[]).code(3);
    workspace
        .call("status", &[])
        .code(0)
        .says("none is complete")
        .says("try again 1 session (10 B): no-header")
        .says("session-import --explain no-header");
    workspace.append("session_raw/3_bad.jsonl", "more\n");
    let report = status(&workspace);
    assert_eq!(reasons(&report)[0], "changed since it failed");
}

#[test]
fn files_that_may_be_one_session_are_told_as_such() {
    let workspace = two();
    let view = "# Session transcript — helper\n";
    workspace.file("sessions/2026_05_02/1_one.md", view).file(
        "session_raw/02052026/2_two.jsonl",
        workspace.read("session_raw/2_two.jsonl"),
    );
    let report = status(&workspace);
    assert_eq!(states(&report), counts(&[("new", 1), ("to_look_at", 3)]));
    workspace.run(&[]);
    let report = status(&workspace);
    assert_eq!(report["states"]["to_look_at"], 0, "{report:#}");
    assert_eq!(report["states"]["new"], 0);
}

#[test]
fn a_moved_source_is_not_called_new() {
    let workspace = two();
    workspace.run(&[]).code(0);
    workspace.rename("session_raw/1_one.jsonl", "session_raw-p/1_one.jsonl");
    let report = status(&workspace);
    let expected = counts(&[("source_gone", 1), ("to_look_at", 1), ("up_to_date", 1)]);
    assert_eq!(states(&report), expected);
    workspace.run(&[]).code(0);
    assert_eq!(states(&status(&workspace)), counts(&[("up_to_date", 2)]));
}

#[test]
fn another_tools_marker_does_not_count() {
    let workspace = two();
    let marker = json!({"version": 1, "imported_at": "2026-01-01T00:00:00Z", "scanned": 2});
    let path = "tinyagents_store/kv/migrations/session_import_v1.json";
    workspace.file(path, marker.to_string());
    let report = status(&workspace);
    assert_eq!(report["marker"]["is_ours"], false);
    workspace
        .call("status", &[])
        .code(0)
        .says("that does not count here");
}

#[test]
fn a_workspace_without_a_session_is_looked_at_too() {
    let workspace = Workspace::new();
    let report = status(&workspace);
    assert_eq!(
        (&report["scanned"], &report["nothing_to_do"]),
        (&json!(0), &json!(true))
    );
    workspace
        .call("status", &[])
        .code(0)
        .says("No session was found.");
}

#[test]
fn without_a_workspace_there_is_nothing_to_look_at() {
    let workspace = Workspace::new();
    let mut program = workspace.command();
    program.args(["status", "-w"]).arg(workspace.path("none"));
    Outcome::of(&mut program).code(10);
}

#[test]
fn during_an_import_it_says_who_is_importing() {
    let workspace = two();
    let lock = workspace.hold_lock();
    workspace.call("status", &[]).code(11);
    drop(lock);
    workspace.call("status", &[]).code(0);
}

#[test]
fn as_markdown_it_has_tables_that_no_name_breaks() {
    let workspace = two();
    workspace.transcript("3_a|b`c", &[HI]);
    let text = workspace.call("status", &["--format", "markdown"]).code(0);
    assert!(
        text.stdout
            .starts_with("# session-import status\n\n| | |\n| --- | --- |\n")
    );
    text.says("| 3 | new | new |")
        .says(r"session\_raw/3\_a\|b\`c.jsonl");
}

#[test]
fn an_undo_that_was_cut_off_is_told() {
    let workspace = two();
    workspace.run(&[]).code(0);
    let items = "tinyagents_store/kv/migration_items";
    let path = workspace.tree().paths(items).remove(0);
    let name = Path::new(&path).file_name().unwrap();
    let to = Path::new("tinyagents_store/kv/session_import.undo").join(name);
    workspace.rename(&path, to);
    let report = status(&workspace);
    assert_eq!(report["diagnostics"][0]["code"], "undo-unfinished");
}

#[test]
fn no_source_and_no_stream_is_opened() {
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
    let age = |path: &Path| {
        let file = fs::File::options().append(true).open(path).unwrap();
        file.set_times(fs::FileTimes::new().set_accessed(old))
            .unwrap();
    };
    let is_opened = |path: &Path| fs::metadata(path).unwrap().accessed().unwrap() != old;
    // Where the file system keeps no such time there is nothing to see.
    let probe = tempfile::NamedTempFile::new().unwrap();
    fs::write(probe.path(), "x").unwrap();
    age(probe.path());
    fs::read(probe.path()).unwrap();
    if !is_opened(probe.path()) {
        return;
    }
    let workspace = two();
    workspace
        .file(
            "sessions/2026_05_02/1_one.md",
            "# Session transcript — helper\n",
        )
        .file(
            "session_raw/02052026/2_two.jsonl",
            workspace.read("session_raw/2_two.jsonl"),
        )
        .file(".openhuman/subagent_sessions.json", "[]");
    for is_imported in [false, true] {
        if is_imported {
            workspace.run(&[]);
            // Such a source a run would read.
            workspace.mtime("session_raw/1_one.jsonl", 5);
        }
        let paths: Vec<_> = walkdir::WalkDir::new(workspace.root())
            .into_iter()
            .map(|entry| entry.unwrap().into_path())
            .filter(|path| path.is_file() && !path.starts_with(workspace.store().join("kv")))
            .filter(|path| !path.file_name().unwrap().to_str().unwrap().starts_with('.'))
            .collect();
        paths.iter().for_each(|path| age(path));
        status(&workspace);
        for path in paths {
            assert!(!is_opened(&path), "{} was opened", path.display());
        }
    }
}

#[test]
fn after_a_run_it_agrees_with_the_next_run_in_every_case() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/openhuman");
    let mut cases: Vec<_> = fs::read_dir(fixtures)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|case| case.join("workspace").is_dir())
        .collect();
    cases.sort();
    // Most of the time goes to flushing.
    let parts = cases.len().div_ceil(4);
    std::thread::scope(|scope| {
        for part in cases.chunks(parts) {
            scope.spawn(|| part.iter().for_each(|case| assert_agrees(case)));
        }
    });
}

#[track_caller]
fn assert_agrees(case: &Path) {
    let workspace = Workspace::copy_of(case.join("workspace"));
    let arguments = fs::read_to_string(case.join("args")).unwrap_or_default();
    let arguments: Vec<&str> = arguments.lines().collect();
    if arguments.contains(&"--only") {
        return;
    }
    workspace.run(&arguments);
    let report = status(&workspace);
    let run = workspace.run(&["--json", "-n"]).json();
    let case = case.display();
    let number = |name: &str| report["states"][name].as_u64().unwrap();
    assert_eq!(
        number("to_look_at") + number("new") + number("changed"),
        0,
        "{case}: {report:#}"
    );
    assert_eq!(run["failed"], number("failed"), "{case}: {report:#}");
    let skipped = number("up_to_date") + number("ahead") + number("accepted");
    assert_eq!(run["skipped"], skipped, "{case}: {report:#}");
    assert_eq!(run["imported"], number("outdated"), "{case}: {report:#}");
    if run["already_done"] == true {
        assert_eq!(report["nothing_to_do"], true, "{case}: {report:#}");
    }
}
