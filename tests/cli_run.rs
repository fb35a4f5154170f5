//! `run` as an operator and a script see it.

// Clippy takes only functions marked as tests for tests.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod support;

use std::fs;
use std::io::pipe;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::{HEADER, Outcome, Tree, Workspace, assert_schema};

const USER: &str = r#"{"role":"user","content":"hello"}"#;
const ASSISTANT: &str = r#"{"role":"assistant","content":"hi"}"#;

/// One session that is as it should be, one without a thread, one damaged.
fn three() -> Workspace {
    let workspace = Workspace::new();
    let no_thread = HEADER.replace(r#","thread_id":"thr-1""#, "");
    workspace
        .transcript("1779000000_ok", &[USER, ASSISTANT])
        .file(
            "session_raw/1779000001_warn.jsonl",
            format!("{no_thread}\n{USER}\n"),
        )
        .file("session_raw/1779000002_bad.jsonl", "no json at all\n");
    workspace
}

/// Two sessions, the second with a line that the reader skips.
fn rejected() -> Workspace {
    let workspace = Workspace::new();
    workspace
        .transcript("1779000000_ok", &[USER, ASSISTANT])
        .transcript("1779000001_torn", &[USER, r#"{"role":"assi"#]);
    workspace
}

#[test]
fn text_goes_from_what_is_missing_to_what_to_type() {
    let outcome = three().run(&[]).code(3);
    let text = &outcome.stdout;
    let at = |part: &str| {
        text.find(part)
            .unwrap_or_else(|| panic!("no '{part}' in:\n{text}"))
    };
    let order = [
        at("Not imported: 1 of 3 sessions"),
        at("session_raw/1779000002_bad.jsonl"),
        at("Warnings"),
        at("thread-id-synthesized"),
        at("3 sessions: 2 imported, 0 skipped, 1 failed."),
        at("3 messages written."),
        at("Next, "),
    ];
    assert!(order.is_sorted(), "{text}");
    assert_eq!(outcome.stderr, "");
}

#[test]
fn json_is_one_document_that_adds_up() {
    let outcome = three().run(&["--json"]).code(3);
    let report = outcome.json();
    assert_schema("run", &report);
    let numbers = [
        "scanned",
        "imported",
        "skipped",
        "failed",
        "unreadable",
        "messages_written",
    ];
    assert_eq!(
        numbers.map(|name| report[name].as_u64()),
        [3, 2, 0, 1, 0, 3].map(Some)
    );
    let actions: Vec<_> = items(&report)
        .iter()
        .map(|item| item["action"].clone())
        .collect();
    assert_eq!(actions, ["imported", "imported", "failed"]);
    let sums = items(&report).iter().all(|item| {
        let of = |name: &str| item["lines"][name].as_u64().unwrap();
        of("total") == of("headers") + of("messages") + of("residue") + of("blank")
    });
    assert!(sums, "{report:#}");
    // What a script greps for without a JSON parser is there too.
    outcome.logs("[session-import] error: ");
}

#[test]
fn a_dry_run_says_what_the_run_says_and_writes_nothing() {
    for workspace in [three(), rejected()] {
        let before = Tree::of(workspace.home());
        let mut plan = workspace.run(&["--dry-run", "--json"]).json();
        let text = workspace
            .run(&["-n"])
            .says("SESSION")
            .says("Nothing was written.");
        before.assert_same(&Tree::of(workspace.home()));

        let outcome = workspace.run(&["--json"]);
        assert_eq!(outcome.code, text.code);
        let mut report = outcome.json();
        assert_eq!(plan["messages_written"], 0);
        for document in [&mut plan, &mut report] {
            document["messages_written"] = json!(null);
            document["dry_run"] = json!(null);
            for item in document["items"].as_array_mut().unwrap() {
                if item["action"] == "would_import" {
                    item["action"] = json!("imported");
                }
            }
        }
        assert_eq!(plan, report);
    }
}

#[test]
fn sources_stay_as_they_were() {
    let workspace = three();
    let before = workspace.tree().without(&["tinyagents_store"]);
    workspace.run(&[]).code(3);
    workspace.run(&["--force", "--salvage"]);
    before.assert_same(&workspace.tree().without(&["tinyagents_store"]));
}

#[test]
fn a_second_run_has_nothing_to_do() {
    let workspace = rejected();
    workspace.run(&[]).code(0).says("2 imported");
    let store = Tree::of(&workspace.store());
    let report = workspace.run(&["--json"]).code(0).json();
    assert_schema("run", &report);
    assert_eq!(report["already_done"], true);
    assert_eq!(report["skipped"], 2);
    workspace.run(&[]).code(0).says("Nothing to do: 2 sessions");
    assert_eq!(contents(store), contents(Tree::of(&workspace.store())));
}

/// The cache of what files were like is not part of a store's content.
fn contents(store: Tree) -> Tree {
    store.without(&[".session-import.stat"]).contents()
}

#[test]
fn an_empty_workspace_is_no_failure_and_says_where_it_looked() {
    let workspace = Workspace::new();
    let outcome = workspace.run(&[]).code(0);
    let outcome = outcome
        .says(workspace.root().to_str().unwrap())
        .says("session_raw");
    assert!(!outcome.stdout.contains("Next,"), "{}", outcome.stdout);
    let report = workspace.run(&["--json"]).code(0).json();
    assert_schema("run", &report);
    assert_eq!(report["scanned"], 0);
    assert!(!workspace.store().exists());
}

#[test]
fn a_bad_pattern_is_wrong_usage() {
    let workspace = three();
    let before = workspace.tree();
    let outcome = workspace.run(&["--json", "--only", "["]).code(2);
    assert_schema("error", &outcome.json());
    assert_eq!(outcome.json()["error"]["code"], "usage");
    before.assert_same(&workspace.tree());
}

#[test]
fn strict_makes_a_rejected_line_a_failure() {
    let outcome = rejected()
        .run(&[])
        .code(0)
        .says("1 line that the application cannot read");
    assert!(outcome.stdout.contains("torn-line") || outcome.stdout.contains("malformed-line"));
    rejected().run(&["--strict"]).code(3).says("--strict");
    rejected().run(&["--strict", "--dry-run"]).code(3);
}

#[test]
fn the_next_command_does_what_it_says() {
    let workspace = three();
    let plan = workspace.run(&["-n", "--only", "1779000000_*"]).code(0);
    let command = plan.stdout.lines().last().unwrap().trim();
    let words = command
        .strip_prefix("session-import ")
        .unwrap()
        .replace('\'', "");
    let mut program = workspace.command();
    Outcome::of(program.args(words.split(' ')))
        .code(0)
        .says("1 session: 1 imported");
}

#[test]
fn nothing_but_text_without_a_terminal() {
    for arguments in [["-v", "--json"], ["-n", "-v"], ["-v", "--progress=always"]] {
        let outcome = three().run(&arguments).code(3);
        for stream in [&outcome.stdout, &outcome.stderr] {
            assert!(!stream.contains(['\u{1b}', '\r']), "{stream}");
        }
        let log = outcome.stderr;
        assert!(
            log.lines()
                .all(|line| line.starts_with("[session-import] ")),
            "{log}"
        );
    }
}

#[test]
fn names_cannot_act_on_a_terminal() {
    let workspace = Workspace::new();
    let name = "1779000000_\u{1b}[2J\u{202e}a\nFAKE";
    workspace.file(format!("session_raw/{name}.jsonl"), "no json at all\n");
    workspace.transcript(&format!("{name}b"), &[USER]);
    for arguments in [["-v", "-n"], ["-v", "--force"]] {
        let outcome = workspace.run(&arguments).code(3).says(r"\u{1b}[2J");
        for stream in [&outcome.stdout, &outcome.stderr] {
            assert!(!stream.contains(['\u{1b}', '\u{202e}']), "{stream}");
            assert!(
                !stream.lines().any(|line| line.starts_with("FAKE")),
                "{stream}"
            );
        }
    }
}

#[test]
fn a_reader_that_has_gone_does_not_stop_an_import() {
    let undisturbed = three();
    let disturbed = three();
    for (workspace, gone) in [(&undisturbed, false), (&disturbed, true)] {
        let (reader, writer) = pipe().unwrap();
        let reader = (!gone).then_some(reader);
        let mut command = workspace.process(&["--json"]);
        command
            .stdout(writer)
            .stderr(Stdio::piped())
            .env("SOURCE_DATE_EPOCH", "1780000000");
        let mut child = command.spawn().unwrap();
        // The parent's end of the pipe lives in the command.
        drop(command);
        if let Some(mut reader) = reader {
            std::io::copy(&mut reader, &mut std::io::sink()).unwrap();
        }
        assert_eq!(child.wait().unwrap().code(), Some(3));
    }
    let stores = [undisturbed, disturbed].map(|workspace| Tree::of(&workspace.store()).contents());
    stores[0].assert_same(&stores[1]);
}

#[test]
fn a_second_import_says_who_is_at_it() {
    let workspace = three();
    let held = workspace.hold_lock();
    let outcome = workspace.run(&["--json"]).code(11);
    assert_schema("error", &outcome.json());
    assert_eq!(outcome.json()["error"]["code"], "locked");
    let started = Instant::now();
    workspace.run(&["--retry-lock", "300ms"]).code(11);
    assert!(started.elapsed() >= Duration::from_millis(300));
    drop(held);
    workspace.run(&["--retry-lock", "300ms"]).code(3);
}

#[test]
fn a_store_that_cannot_be_made_is_1() {
    let workspace = three();
    let file = workspace.home().join("file");
    fs::write(&file, "in the way").unwrap();
    let outcome = workspace.run(&["--json", "--store", file.join("store").to_str().unwrap()]);
    let outcome = outcome.code(1);
    assert_schema("error", &outcome.json());
    assert_eq!(outcome.json()["error"]["exit_code"], 1);
}

#[test]
fn the_workspace_of_the_environment_is_taken() {
    let workspace = three();
    let mut program = workspace.command();
    program
        .env("OPENHUMAN_WORKSPACE", workspace.root())
        .args(["run", "-n"]);
    Outcome::of(&mut program).code(3).says("3 sessions");
}

#[track_caller]
fn items(report: &Value) -> &Vec<Value> {
    report["items"].as_array().unwrap()
}
