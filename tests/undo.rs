//! `undo`: what goes, what stays, and that nothing in between is ever half.

// Clippy takes only functions marked as tests for tests.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use session_import::ops::undo;
use support::{Outcome, Tree, Workspace, assert_schema};

const EPOCH: &str = "1800000000";
const LOCK: &str = "tinyagents_store/.session-import.lock";
const HI: &str = r#"{"role":"user","content":"hi"}"#;
const HELLO: &str = r#"{"role":"assistant","content":"hello"}"#;

/// A command under a clock that stands, so that two stores can be compared.
#[track_caller]
fn at_epoch(workspace: &Workspace, command: &str, arguments: &[&str]) -> Outcome {
    let mut program = workspace.command();
    program
        .env("SOURCE_DATE_EPOCH", EPOCH)
        .arg(command)
        .arg("-w")
        .arg(workspace.root())
        .args(arguments);
    Outcome::of(&mut program)
}

/// What `undo --json` says, checked against its schema.
#[track_caller]
fn report(outcome: &Outcome) -> Value {
    let report = outcome.json();
    assert_schema("undo", &report);
    let number = |name: &str| report[name].as_u64().unwrap();
    assert_eq!(
        number("scanned"),
        number("removed") + number("kept") + number("failed")
    );
    assert_eq!(
        number("scanned"),
        report["items"].as_array().unwrap().len() as u64
    );
    report
}

/// The codes that the items of a report bear, by session.
fn codes(report: &Value) -> Vec<(String, String)> {
    let items = report["items"].as_array().unwrap().iter();
    let codes = items.flat_map(|item| {
        let key = item["session_key"].as_str().unwrap();
        let all = item["diagnostics"].as_array().unwrap().iter();
        all.map(move |d| (key.to_owned(), d["code"].as_str().unwrap().to_owned()))
    });
    codes.collect()
}

/// The tree without times, and without the lock's file.
fn contents(workspace: &Workspace) -> Tree {
    workspace.tree().without(&[LOCK]).contents()
}

/// The tree without times, and without the store.
fn without_store(workspace: &Workspace) -> Tree {
    workspace.tree().without(&["tinyagents_store"]).contents()
}

#[track_caller]
fn assert_only_the_lock_is_left(workspace: &Workspace) {
    assert_eq!(workspace.tree().paths("tinyagents_store"), [LOCK]);
    assert_eq!(fs::read(workspace.path(LOCK)).unwrap(), b"");
}

/// Two sessions, one with a rejected line.
fn two() -> Workspace {
    let workspace = Workspace::new();
    workspace
        .transcript("1_one", &[HI, HELLO])
        .transcript("2_two", &[HI, "no json", HELLO]);
    workspace
}

fn stream(name: &str) -> String {
    format!("tinyagents_store/journal/session.{name}.messages.jsonl")
}

fn descriptor(name: &str) -> String {
    format!("tinyagents_store/kv/sessions/{name}.json")
}

/// What the application does after a turn: it writes the stream anew and puts
/// the descriptor.
fn application_goes_on(workspace: &Workspace, name: &str, more: &str) {
    let path = stream(name);
    let old = workspace.read(&path);
    let offset = old.lines().count();
    let line = json!({
        "offset": offset,
        "value": {"role": "user", "content": more},
        "created_at_ms": 5,
    });
    workspace
        .remove(&path)
        .file(&path, format!("{old}{line}\n"));
    let path = descriptor(name);
    let mut value: Value = serde_json::from_str(&workspace.read(&path)).unwrap();
    value["turn_count"] = 7.into();
    value["import"]["imported_at"] = "".into();
    workspace.file(&path, value.to_string());
}

fn entries(workspace: &Workspace) -> Vec<Value> {
    let mut paths = workspace
        .tree()
        .paths("tinyagents_store/kv/migration_items");
    // Not what was cut off.
    paths.retain(|path| path.ends_with(".json"));
    let entries = paths.iter().map(|path| workspace.read(path));
    entries
        .map(|text| serde_json::from_str(&text).unwrap())
        .collect()
}

#[test]
fn an_import_undone_whole_is_as_if_never_made_and_comes_back_the_same() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/openhuman");
    let mut cases: Vec<PathBuf> = fs::read_dir(fixtures)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        // These had a store before; what was replaced cannot come back.
        .filter(|case| case.join("workspace").is_dir() && !case.join("store").is_dir())
        .collect();
    cases.sort();
    assert!(cases.len() > 50);
    // Most of the time goes to flushing.
    let parts = cases.len().div_ceil(4);
    std::thread::scope(|scope| {
        for part in cases.chunks(parts) {
            scope.spawn(|| part.iter().for_each(|case| undone_and_done_again(case)));
        }
    });
}

#[track_caller]
fn undone_and_done_again(case: &Path) {
    let workspace = Workspace::copy_of(case.join("workspace"));
    let before = workspace.tree();
    let arguments = fs::read_to_string(case.join("args")).unwrap_or_default();
    let arguments: Vec<&str> = arguments.lines().collect();
    at_epoch(&workspace, "run", &arguments);
    let imported = contents(&workspace);
    if !imported.has("tinyagents_store") {
        return;
    }
    let outcome = at_epoch(&workspace, "undo", &["--json"]).code(0);
    let report = report(&outcome);
    let case = case.display();
    assert_eq!(report["undone_whole"], true, "{case}: {report:#}");
    assert_eq!(report["kept"], 0, "{case}");
    assert_only_the_lock_is_left(&workspace);
    let after = workspace.tree().without(&["tinyagents_store"]);
    before.without(&["tinyagents_store"]).assert_same(&after);

    at_epoch(&workspace, "run", &arguments);
    imported.assert_same(&contents(&workspace));
}

#[test]
fn the_stat_cache_goes_too() {
    let workspace = two();
    workspace.run(&[]).code(0);
    assert!(
        workspace
            .tree()
            .has("tinyagents_store/.session-import.stat")
    );
    workspace
        .call("undo", &[])
        .code(0)
        .says("Nothing of any import is left.");
    assert_only_the_lock_is_left(&workspace);
    workspace.run(&["--json"]).code(0);
    assert_eq!(entries(&workspace).len(), 2);
}

#[test]
fn undone_twice_there_is_nothing_to_do() {
    let workspace = two();
    workspace.run(&[]).code(0);
    workspace.call("undo", &[]).code(0);
    let before = workspace.tree();
    workspace.call("undo", &[]).code(0).says("Nothing to undo");
    before.assert_same(&workspace.tree());
}

#[test]
fn without_a_store_nothing_is_made() {
    let workspace = two();
    let before = workspace.tree();
    let outcome = workspace.call("undo", &["--json"]).code(0);
    assert_eq!(report(&outcome)["undone_whole"], true);
    workspace.call("undo", &["-n"]).code(0);
    before.assert_same(&workspace.tree());
}

#[test]
fn a_store_of_the_application_alone_is_not_touched() {
    let workspace = two();
    workspace
        .file("tinyagents_store/journal/session.9_x.messages.jsonl", "")
        .file("tinyagents_store/kv/sessions/9_x.json", "{}")
        .folder("tinyagents_store/kv/notes");
    let before = workspace.tree();
    workspace.call("undo", &[]).code(0).says("Nothing to undo");
    before.assert_same(&workspace.tree());
}

#[test]
fn what_others_have_in_the_store_stays() {
    let workspace = two();
    let theirs = "0000000000000000000000000000000000000000000000000000000000000000";
    let entry = json!({
        "version": 1, "session_key": "9_x", "source": "session_raw/9_x.jsonl", "size": 3,
        "mtime_ms": 4, "stream": "session.9_x.messages", "messages": 0, "imported_at": "then",
    });
    workspace
        .file(stream("9_x"), "")
        .file(descriptor("9_x"), "{}")
        .file("tinyagents_store/kv/own/key.json", "1")
        .file(
            format!("tinyagents_store/kv/migration_items/{theirs}.json"),
            entry.to_string(),
        );
    let before = contents(&workspace);
    workspace.run(&[]).code(0);
    workspace.call("undo", &[]).code(0);
    before.assert_same(&contents(&workspace));
}

#[test]
fn a_dry_run_says_the_same_and_writes_nothing() {
    let workspace = two();
    workspace.run(&[]).code(0);
    application_goes_on(&workspace, "1_one", "more");
    let before = workspace.tree();
    let planned = report(&workspace.call("undo", &["-n", "--json"]).code(0));
    before.assert_same(&workspace.tree());
    workspace
        .call("undo", &["-n"])
        .code(0)
        .says("Nothing was written.")
        .says("2_two  2 messages");

    let mut done = report(&workspace.call("undo", &["--json"]).code(0));
    let mut planned = planned;
    assert_eq!(planned["items"][1]["action"], "would_remove");
    assert_eq!(done["items"][1]["action"], "removed");
    for report in [&mut planned, &mut done] {
        report["dry_run"] = Value::Null;
        report["items"][1]["action"] = Value::Null;
    }
    assert_eq!(planned, done);
}

#[test]
fn what_the_application_has_gone_on_with_is_kept_and_named() {
    let workspace = two();
    workspace.run(&[]).code(0);
    application_goes_on(&workspace, "1_one", "more");
    let gone_on = workspace.read(stream("1_one"));
    let outcome = workspace.call("undo", &["--json"]).code(0);
    let report = report(&outcome);
    assert_eq!(
        codes(&report),
        [("1_one".into(), "written-on-since".into())]
    );
    assert_eq!(report["undone_whole"], false);
    assert_eq!(workspace.read(stream("1_one")), gone_on);
    let tree = workspace.tree();
    assert!(tree.has(&descriptor("1_one")) && !tree.has(&descriptor("2_two")));
    assert!(!tree.has("tinyagents_store/kv/migrations/session_import_v1.json"));
    // Its entry too: a run still knows that the store is ahead.
    assert_eq!(entries(&workspace).len(), 1);
    let run = workspace.run(&["--json"]).code(0).json();
    assert_eq!(run["items"][0]["action"], "skipped_store_ahead");

    workspace.call("undo", &["--overwrite"]).code(0);
    assert_only_the_lock_is_left(&workspace);
}

#[test]
fn a_descriptor_of_the_application_is_kept_with_its_stream() {
    let workspace = two();
    workspace.run(&[]).code(0);
    let mut value: Value = serde_json::from_str(&workspace.read(descriptor("1_one"))).unwrap();
    value["import"]["imported_at"] = "then".into();
    workspace.file(descriptor("1_one"), value.to_string());
    workspace
        .call("undo", &[])
        .code(0)
        .says("its descriptor is not as the import left it");
    let tree = workspace.tree();
    assert!(tree.has(&descriptor("1_one")) && tree.has(&stream("1_one")));
}

#[test]
fn what_took_the_place_of_another_record_is_kept_whatever_is_asked() {
    let workspace = two();
    let line = |offset: u64, role: &str, content: &str| {
        let value = json!({"role": role, "content": content});
        let record = json!({"offset": offset, "value": value, "created_at_ms": 5});
        format!("{record}\n")
    };
    workspace.file(stream("1_one"), line(0, "user", "hi"));
    workspace.run(&[]).code(0);
    let grown = r#"{"role":"user","content":"again"}"#;
    // A later import of the same session knows it still.
    workspace.append("session_raw/1_one.jsonl", format!("{grown}\n"));
    workspace.run(&[]).code(0);
    for arguments in [["--json"].as_slice(), &["--json", "--overwrite"]] {
        let report = report(&workspace.call("undo", arguments).code(0));
        assert_eq!(
            codes(&report),
            [("1_one".into(), "not-brought-back".into())]
        );
        assert_eq!(workspace.read(stream("1_one")).lines().count(), 3);
        assert_eq!(entries(&workspace).len(), 1);
    }
}

#[test]
fn the_only_copy_is_kept() {
    let workspace = two();
    workspace.run(&[]).code(0);
    workspace.remove("session_raw/1_one.jsonl");
    let report_of = report(&workspace.call("undo", &["--json"]).code(0));
    assert_eq!(codes(&report_of), [("1_one".into(), "only-copy".into())]);
    assert!(workspace.tree().has(&stream("1_one")));
    workspace.call("undo", &["--overwrite"]).code(0);
    assert_only_the_lock_is_left(&workspace);
}

#[test]
fn messages_that_the_source_no_longer_has_are_kept() {
    let workspace = two();
    workspace.run(&[]).code(0);
    // Rewritten with another end, long ago.
    let other = r#"{"role":"assistant","content":"something else"}"#;
    workspace.transcript("1_one", &[HI, other, HI]);
    workspace.run(&["--json"]).code(0);
    let residue = workspace.read("tinyagents_store/journal/session.1_one.residue.jsonl");
    assert!(residue.contains("dropped"), "{residue}");
    let report = report(&workspace.call("undo", &["--json"]).code(0));
    assert_eq!(codes(&report), [("1_one".into(), "only-copy".into())]);
    let kept = workspace.read("tinyagents_store/journal/session.1_one.residue.jsonl");
    assert_eq!(kept, residue);
}

#[test]
fn only_what_is_named_goes() {
    let workspace = two();
    at_epoch(&workspace, "run", &[]).code(0);
    let whole = contents(&workspace);
    workspace
        .call("undo", &["--only", "9*"])
        .code(0)
        .says("Nothing to undo");
    whole.assert_same(&contents(&workspace));
    let report = report(&workspace.call("undo", &["--json", "--only", "2*"]).code(0));
    assert_eq!(report["removed"], 1);
    assert_eq!(report["undone_whole"], false);
    let gone = [
        stream("2_two"),
        "tinyagents_store/journal/session.2_two.residue.jsonl".to_owned(),
        descriptor("2_two"),
        "tinyagents_store/kv/migrations/session_import_v1.json".to_owned(),
    ];
    let mut paths = whole.paths("tinyagents_store");
    paths.retain(|path| !gone.contains(path));
    let left = contents(&workspace).paths("tinyagents_store");
    let entry = |path: &&String| path.contains("migration_items/");
    assert_eq!(left.iter().filter(entry).count(), 1);
    let without_entries = |paths: Vec<String>| -> Vec<String> {
        paths
            .into_iter()
            .filter(|path| !path.contains("migration_items/"))
            .collect()
    };
    assert_eq!(without_entries(left), without_entries(paths));
    // What is left is done; what went comes back.
    let run = at_epoch(&workspace, "run", &["--json"]).code(0).json();
    assert_eq!((&run["imported"], &run["skipped"]), (&json!(1), &json!(1)));
}

#[test]
fn a_bad_pattern_is_wrong_usage() {
    let workspace = two();
    workspace.run(&[]).code(0);
    let before = workspace.tree();
    workspace.call("undo", &["--only", "["]).code(2);
    before.assert_same(&workspace.tree());
}

#[test]
fn failures_are_forgotten() {
    let workspace = two();
    workspace.file("session_raw/3_bad.jsonl", "no header\n");
    workspace.run(&[]).code(3);
    workspace.call("undo", &["--only", "1*"]).code(0);
    let failed = "tinyagents_store/kv/session_import.failed";
    assert_eq!(workspace.tree().paths(failed).len(), 1);
    let outcome = workspace.call("undo", &["--only", "3*", "--json"]).code(0);
    assert_eq!(report(&outcome)["failures_forgotten"], 1);
    assert_eq!(workspace.tree().paths(failed).len(), 0);
    workspace.call("undo", &[]).code(0);
    assert_only_the_lock_is_left(&workspace);
}

#[test]
fn a_damaged_entry_is_left_alone() {
    let workspace = two();
    workspace.run(&[]).code(0);
    let paths = workspace
        .tree()
        .paths("tinyagents_store/kv/migration_items");
    workspace.file(&paths[0], "{");
    let report = report(&workspace.call("undo", &["--json"]).code(0));
    assert_eq!(report["diagnostics"][0]["code"], "entry-unusable");
    assert_eq!(report["undone_whole"], false);
    assert!(workspace.tree().has(&paths[0]));
}

#[test]
fn a_store_outside_the_workspace_is_undone_too() {
    let workspace = two();
    let store = workspace.home().join("elsewhere");
    let store = store.to_str().unwrap();
    workspace.run(&["--store", store]).code(0);
    workspace.call("undo", &["--store", store]).code(0);
    let left = Tree::of(Path::new(store)).paths("");
    assert_eq!(left, [".session-import.lock"]);
    // Another workspace's is refused.
    workspace.run(&["--store", store]).code(0);
    let other = two();
    other.call("undo", &["--store", store]).code(1);
}

#[test]
fn a_running_import_is_not_undone() {
    let workspace = two();
    let lock = workspace.hold_lock();
    workspace.call("undo", &[]).code(11);
    workspace.call("undo", &["-n"]).code(11);
    drop(lock);
    workspace.call("undo", &[]).code(0);
}

#[test]
fn an_interrupted_undo_goes_on_the_next_time() {
    let workspace = two();
    workspace.run(&[]).code(0);
    let options = undo::Options {
        workspace: Some(workspace.root()),
        ..Default::default()
    };
    options.interrupt.stop();
    let report = undo::undo(&options).unwrap();
    assert_eq!((report.removed, report.failed), (0, 2));
    assert!(!report.undone_whole && !report.is_clean());
    assert_eq!(entries(&workspace).len(), 2);
    workspace.call("undo", &[]).code(0);
    assert_only_the_lock_is_left(&workspace);
}

#[test]
fn a_link_in_the_place_of_a_stream_is_not_followed() {
    let workspace = two();
    workspace.run(&[]).code(0);
    let text = workspace.read(stream("1_one"));
    let outside = workspace.home().join("outside");
    fs::write(&outside, text).unwrap();
    workspace
        .remove(stream("1_one"))
        .link(stream("1_one"), &outside);
    workspace
        .call("undo", &[])
        .code(0)
        .says("its stream is not as the import left it");
    workspace.call("undo", &["--overwrite"]).code(0);
    assert_only_the_lock_is_left(&workspace);
    assert!(outside.exists());
}

#[test]
fn sources_are_not_touched() {
    let workspace = two();
    let before = workspace.tree().without(&["tinyagents_store"]);
    workspace.run(&[]).code(0);
    workspace.call("undo", &[]).code(0);
    before.assert_same(&workspace.tree().without(&["tinyagents_store"]));
    assert_eq!(without_store(&workspace).paths("session_raw").len(), 2);
}

#[cfg(feature = "fault-injection")]
mod faults {
    use super::*;

    /// A workspace with all that a session can have, imported; and its tree.
    fn imported() -> (Workspace, Tree) {
        let workspace = two();
        workspace.file("session_raw/3_bad.jsonl", "no header\n");
        at_epoch(&workspace, "run", &[]).code(3);
        at_epoch(&workspace, "accept", &["3_bad", "--reason", "empty"]).code(0);
        workspace.file("session_raw/4_bad.jsonl", "no header\n");
        at_epoch(&workspace, "run", &[]).code(3);
        let tree = contents(&workspace);
        (workspace, tree)
    }

    fn faulty(workspace: &Workspace, fault: &str, arguments: &[&str]) -> Outcome {
        let mut program = workspace.command();
        program
            .env("SOURCE_DATE_EPOCH", EPOCH)
            .env("SESSION_IMPORT_FAULT", fault)
            .args(["undo", "-w"])
            .arg(workspace.root())
            .args(arguments);
        Outcome::of(&mut program)
    }

    fn operations() -> u64 {
        let (workspace, _) = imported();
        let count = workspace.home().join("count");
        let mut program = workspace.command();
        program
            .env("SOURCE_DATE_EPOCH", EPOCH)
            .env("SESSION_IMPORT_FAULT_COUNT", &count)
            .args(["undo", "-w"])
            .arg(workspace.root());
        Outcome::of(&mut program).code(0);
        assert_only_the_lock_is_left(&workspace);
        fs::read_to_string(count).unwrap().parse().unwrap()
    }

    /// No entry vouches for what is not there, whatever was cut off.
    #[track_caller]
    fn assert_no_entry_lies(workspace: &Workspace) {
        let tree = workspace.tree();
        for entry in entries(workspace) {
            if entry["journal_sha256"].is_null() {
                continue;
            }
            let path = format!(
                "tinyagents_store/journal/{}.jsonl",
                entry["stream"].as_str().unwrap()
            );
            let bytes = fs::read(workspace.path(&path)).unwrap();
            let hash = session_import::model::key::Sha256::of(&bytes).to_string();
            assert_eq!(entry["journal_sha256"], hash);
            assert!(tree.has(&descriptor(entry["session_key"].as_str().unwrap())));
        }
    }

    #[test]
    fn whatever_fails_the_next_undo_ends_it() {
        let operations = operations();
        assert!(operations > 20);
        for fault in ["EIO", "ENOSPC", "EACCES", "kill"] {
            for number in 1..=operations {
                let (workspace, _) = imported();
                let outcome = faulty(&workspace, &format!("{number}:{fault}"), &[]);
                println!("{number}:{fault} → {}", outcome.code);
                assert!(matches!(outcome.code, -1 | 0 | 1 | 3), "{}", outcome.stderr);
                assert_no_entry_lies(&workspace);
                at_epoch(&workspace, "undo", &[]).code(0);
                // Its text may be that of a holder who is gone.
                assert_eq!(workspace.tree().paths("tinyagents_store"), [LOCK]);
            }
        }
    }

    #[test]
    fn whatever_fails_the_next_run_imports_all() {
        // Streams and descriptors with their contents.
        let sessions = |workspace: &Workspace| -> Vec<(String, String)> {
            let tree = workspace.tree();
            let folders = ["journal", "kv/sessions"].into_iter();
            let paths = folders.flat_map(|name| tree.paths(&format!("tinyagents_store/{name}")));
            paths
                .map(|path| (path.clone(), workspace.read(path)))
                .collect()
        };
        let expected = sessions(&imported().0);
        for number in 1..=operations() {
            let (workspace, _) = imported();
            faulty(&workspace, &format!("{number}:kill"), &[]);
            at_epoch(&workspace, "run", &[]).code(3);
            let after = contents(&workspace);
            println!("{number}");
            assert_no_entry_lies(&workspace);
            assert_eq!(sessions(&workspace), expected);
            for entry in entries(&workspace) {
                assert_eq!(entry["replaced"], Value::Null, "{entry:#}");
            }
            assert!(!after.has("tinyagents_store/kv/session_import.undo"));
        }
    }

    #[test]
    fn an_import_that_was_cut_off_is_undone_too() {
        let run = |workspace: &Workspace, fault: &str, arguments: &[&str]| {
            let mut program = workspace.command();
            program
                .env("SOURCE_DATE_EPOCH", EPOCH)
                .env("SESSION_IMPORT_FAULT", fault)
                .args(["run", "-w"])
                .arg(workspace.root())
                .args(arguments);
            Outcome::of(&mut program)
        };
        let mut without_entry = 0;
        for number in 1.. {
            let workspace = two();
            let outcome = run(&workspace, &format!("{number}:kill"), &[]);
            let tree = workspace.tree();
            let mut streams = tree.paths("tinyagents_store/journal");
            streams.retain(|path| path.ends_with(".jsonl"));
            let is_without = !streams.is_empty() && entries(&workspace).is_empty();
            without_entry += usize::from(is_without);
            let undone = at_epoch(&workspace, "undo", &["--json"]).code(0);
            if tree.has("tinyagents_store") {
                assert_eq!(report(&undone)["undone_whole"], true);
                let left = workspace.tree().paths("tinyagents_store");
                assert!(left.is_empty() || left == [LOCK], "{number}: {left:?}");
            }
            if outcome.code == 0 {
                break;
            }
        }
        assert!(without_entry > 0);
        // One that was to replace another.
        for number in 1.. {
            let workspace = two();
            let other = "1800000001";
            at_epoch(&workspace, "run", &[]).code(0);
            let mut program = workspace.command();
            program
                .env("SOURCE_DATE_EPOCH", other)
                .env("SESSION_IMPORT_FAULT", format!("{number}:kill"))
                .args(["run", "--force", "-w"]);
            let outcome = Outcome::of(program.arg(workspace.root()));
            let undone = report(&at_epoch(&workspace, "undo", &["--json"]).code(0));
            // A descriptor alone may be anybody's.
            let kept = undone["items"].as_array().unwrap().iter();
            for item in kept.filter(|item| item["action"] == "kept") {
                let why = item["diagnostics"][0]["message"].as_str().unwrap();
                assert!(why.contains("descriptor"), "{number}: {why}");
            }
            if outcome.code == 0 {
                break;
            }
        }
    }

    #[test]
    fn what_the_application_wrote_during_a_cut_off_undo_is_kept() {
        let mut was_between = 0;
        for number in 1..=operations() {
            let (workspace, _) = imported();
            faulty(&workspace, &format!("{number}:kill"), &[]);
            if !workspace.tree().has(&stream("1_one"))
                || !workspace.tree().has(&descriptor("1_one"))
            {
                continue;
            }
            was_between += usize::from(entries(&workspace).len() < 3);
            application_goes_on(&workspace, "1_one", "more");
            let gone_on = workspace.read(stream("1_one"));
            at_epoch(&workspace, "undo", &[]).code(0);
            assert_eq!(workspace.read(stream("1_one")), gone_on);
            assert_eq!(entries(&workspace).len(), 1);
        }
        assert!(was_between > 0);
    }
}
