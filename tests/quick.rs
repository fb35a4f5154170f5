//! A run in which nothing has changed looks at names and times alone, and still
//! tells the truth.

// Clippy takes only functions marked as tests for tests.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod support;

use std::fs;

use support::{WRITTEN_AT, Workspace, message};

const ONE: &str = "session_raw/1779000000_one.jsonl";

fn user(text: &str) -> String {
    message("user", text)
}

/// Two sessions, imported.
fn imported() -> Workspace {
    let workspace = Workspace::new();
    workspace.transcript("1779000000_one", &[&user("one"), &user("two"), "{"]);
    workspace.transcript("1779000001_two", &[&user("x")]);
    workspace.run(&[]).code(0);
    workspace.run(&[]).code(0).says("Nothing to do");
    workspace
}

#[test]
fn what_only_leaves_out_is_not_noted_as_seen() {
    let workspace = imported();
    // Other bytes at the same size and mtime.
    let text = workspace.read(ONE).replace("two", "TWO");
    workspace.file(ONE, text);
    workspace.mtime(ONE, WRITTEN_AT);
    workspace.run(&["--only", "1779000001*"]).code(0);
    let report = workspace.run(&["--json"]).code(0).json();
    assert_eq!(report["imported"], 1, "{report:#}");
    let session = workspace.read_store().session(ONE);
    assert_eq!(session.contents(), ["one", "TWO"]);
}

#[test]
fn rejected_lines_are_told_again() {
    let workspace = imported();
    for arguments in [
        &["--strict"][..],
        &["--strict", "--json"],
        &["--strict", "-n"],
    ] {
        workspace.run(arguments).code(3);
    }
    let rejected = |arguments: &[&str]| {
        let arguments = [arguments, &["--json"]].concat();
        workspace.run(&arguments).code(0).json()["rejected"].clone()
    };
    assert_eq!(rejected(&[]), 1);
    // Looked at closer, it is the same.
    assert_eq!(rejected(&["--checksum"]), 1);
    workspace.transcript("1779000002_three", &[&user("y")]);
    assert_eq!(rejected(&[]), 1);
    assert_eq!(rejected(&[]), 1);
}

#[test]
fn a_store_of_another_format_is_refused_also_when_nothing_changed() {
    for (format, says) in [("{\"format\":2}", "format 2"), ("{", "format")] {
        let workspace = imported();
        let path = workspace.store().join("kv/session_import.meta/format.json");
        fs::write(&path, format).unwrap();
        workspace.run(&[]).code(1).logs(says);
        workspace.run(&["--dry-run"]).code(1).logs(says);
        assert_eq!(fs::read_to_string(&path).unwrap(), format);
    }
}

#[test]
fn a_workspace_that_moved_takes_its_store_along_also_when_nothing_changed() {
    let workspace = Workspace::new();
    let place = tempfile::tempdir().unwrap();
    let [old, new, other] = ["old", "new", "other"].map(|name| place.path().join(name));
    let store = place.path().join("store");
    for root in [&old, &other] {
        fs::create_dir_all(root.join("session_raw")).unwrap();
        let name = root.file_name().unwrap().to_str().unwrap();
        let text = format!("{}\n{}\n", support::HEADER, user(name));
        fs::write(root.join(ONE), text).unwrap();
    }
    let run = |root: &std::path::Path| {
        let (root, store) = (root.to_str().unwrap(), store.to_str().unwrap());
        let mut command = workspace.command();
        support::Outcome::of(command.args(["run", "-w", root, "--store", store]))
    };
    run(&old).code(0);
    run(&old).code(0).says("Nothing to do");
    fs::rename(&old, &new).unwrap();
    run(&new).code(0).says("workspace-moved");
    run(&new).code(0).says("Nothing to do");
    // It has an owner that exists.
    run(&other).code(1).logs("belongs to the workspace");
}
