//! What is said must be true: of a pattern that fits nothing, of a store that
//! is empty, of what was never imported.

// Clippy takes only functions marked as tests for tests.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod support;

use serde_json::json;
use support::{Workspace, message};

const BAD: &str = "session_raw/1777000009_bad.jsonl";

fn one() -> Workspace {
    let workspace = Workspace::new();
    workspace.transcript("1777000000_one", &[&message("user", "hi")]);
    workspace
}

#[test]
fn a_store_among_the_sources_is_refused() {
    let workspace = one();
    workspace.folder("sessions/2026_04_02").folder(".openhuman");
    let before = workspace.tree();
    for store in [
        "session_raw",
        "session_raw/02042026",
        "sessions/2026_04_02/store",
        "session_db",
        ".openhuman/store",
        "session_raw-work/store",
    ] {
        let path = workspace.path(store);
        let store = ["--store", path.to_str().unwrap()];
        for (command, more) in [
            ("run", &[][..]),
            ("run", &["--dry-run"]),
            ("status", &[]),
            ("verify", &[]),
            ("accept", &["x", "--reason", "y"]),
        ] {
            let outcome = workspace
                .call(command, &[&store[..], more].concat())
                .code(2);
            outcome.logs(store[1]).logs("folder of sources");
        }
    }
    before.assert_same(&workspace.tree());
    // Beside them is where it belongs.
    let beside = workspace.path("other_store");
    workspace
        .run(&["--store", beside.to_str().unwrap()])
        .code(0);
}

#[test]
fn patterns_that_fit_no_session_are_named() {
    let workspace = one();
    let only = ["--only", "nope", "--only", "*_one"];
    let told = "nothing-selected";
    let fits = "no session key fits --only nope";
    workspace
        .run(&["--only", "nope", "--dry-run"])
        .code(0)
        .says(told)
        .says(fits);
    let run = workspace.run(&only).code(0).says(fits);
    assert!(!run.stdout.contains("*_one\n"), "{}", run.stdout);
    workspace.run(&["--only", "nope"]).code(0).says(fits);
    let verify = workspace
        .call("verify", &["--only", "nope"])
        .code(0)
        .says(fits);
    let verify = verify.says("There was nothing to verify");
    assert!(
        !verify.stdout.contains("Nothing is wrong"),
        "{}",
        verify.stdout
    );
    workspace
        .call("verify", &only)
        .code(0)
        .says(fits)
        .says("Nothing is wrong");
    workspace
        .call("undo", &["--only", "nope"])
        .code(0)
        .says(fits);
    let report = workspace
        .call("undo", &["--json", "--only", "nope", "-n"])
        .code(0)
        .json();
    assert_eq!(report["warnings"], json!([format!("{told}: {fits}")]));
    // What once failed, or is in the store alone, fits as well.
    workspace.file(BAD, "no header\n");
    workspace.run(&[]).code(3);
    workspace.remove("session_raw/1777000000_one.jsonl");
    for (command, pattern) in [("verify", "*_one"), ("undo", "*_bad"), ("undo", "*_one")] {
        let outcome = workspace.call(command, &["--only", pattern]);
        assert!(!outcome.stdout.contains(told), "{}", outcome.stdout);
    }
}

#[test]
fn a_store_without_the_sessions_is_not_right() {
    let workspace = one();
    let verify = workspace.call("verify", &[]).code(0);
    let verify = verify.says("Nothing was verified: nothing of it is in the store.");
    assert!(
        !verify.stdout.contains("Nothing is wrong"),
        "{}",
        verify.stdout
    );
    workspace.file(BAD, "no header\n");
    workspace.run(&[]).code(3);
    let verify = workspace.call("verify", &[]).code(0);
    verify.says("What is in the store is right; not everything is in it.");
    workspace.remove(BAD);
    workspace.run(&[]).code(0);
    workspace
        .call("verify", &[])
        .code(0)
        .says("Nothing is wrong.");
}

#[test]
fn what_has_not_failed_is_answered_in_one_line() {
    let workspace = one();
    workspace.file(BAD, "no header\n");
    workspace.run(&[]).code(3);
    let outcome = workspace
        .call("accept", &["nosuch", "--reason", "x"])
        .code(2);
    assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
    assert!(!outcome.stderr.contains(r"\u{a}"), "{}", outcome.stderr);
    outcome.logs(&format!(
        "nosuch has not failed; these have: {BAD} (no-header)"
    ));
}

#[test]
fn an_accepted_failure_was_never_a_session() {
    let workspace = one();
    workspace.file(BAD, "no header\n");
    workspace.run(&[]).code(3);
    workspace.call("accept", &[BAD, "--reason", "x"]).code(0);
    let only = ["--only", "*_bad"];
    let plan = workspace.call("undo", &["-n", "--only", "*_bad"]).code(0);
    let plan = plan.says("1 accepted failure: 1 would be forgotten.");
    assert!(!plan.stdout.contains("imported session"), "{}", plan.stdout);
    workspace
        .call("undo", &[])
        .code(0)
        .says("1 imported session: 1 removed.")
        .says("1 accepted failure: 1 forgotten. The next run tries again.");
    workspace
        .call("undo", &only)
        .code(0)
        .says("Nothing to undo");
}

#[test]
fn one_is_never_a_plural() {
    let workspace = one();
    workspace.file(BAD, "no header\n");
    let mut all = String::new();
    for (command, arguments) in [
        ("run", &["--dry-run"][..]),
        ("run", &["--progress", "always"]),
        ("status", &[]),
        ("verify", &["-v"]),
        ("accept", &[BAD, "--reason", "x"]),
        ("undo", &["-n"]),
        ("undo", &[]),
    ] {
        let outcome = workspace.call(command, arguments);
        all += &outcome.stdout;
        all += &outcome.stderr;
    }
    let words = [
        "session", "message", "line", "folder", "source", "failure", "item", "byte",
    ];
    for word in words {
        let wrong = format!("1 {word}s");
        let found = all.match_indices(&wrong).find(|(at, _)| {
            let before = all[..*at].chars().next_back();
            !before.is_some_and(|c| c.is_ascii_digit() || c == ',' || c == '.')
        });
        assert!(found.is_none(), "{wrong}:\n{all}");
    }
}

#[test]
fn one_long_name_does_not_push_every_row_apart() {
    let workspace = one();
    let long = format!("1777000001_{}", "x".repeat(180));
    workspace.transcript(&long, &[&message("user", "hi")]);
    let plan = workspace.run(&["--dry-run"]).code(0);
    let table = plan.stdout.split("\n\n").next().unwrap();
    for row in table.lines() {
        assert!(row.chars().count() < 300, "{row}");
    }
    assert!(table.contains('…'), "{table}");
}
