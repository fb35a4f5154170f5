//! Input made to do harm: names that lead elsewhere, texts that act on a
//! terminal, bombs. Nothing outside of the store is ever written, nothing acts
//! on the terminal, and the run ends.

// Clippy takes only functions marked as tests for tests.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod support;

use std::fmt::Write as _;
use std::fs;
use std::time::Duration;

use serde_json::{Value, json};
use support::{HEADER, Outcome, Workspace, message};

const STORE: &str = "tinyagents_store";
/// Moves the cursor up, clears the line, turns the direction of writing
/// around, rings, and ends a line as a terminal knows it.
const ACTS: &str = "x\u{1b}[1A\u{1b}[2K\u{202e}gnp\u{2066}\u{7}\u{9b}2J\u{2028}\u{61c}\ry";

/// What acts on a terminal, but for the ends of lines.
fn acts(c: char) -> bool {
    let is_mark = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}')
        || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    is_mark || (c.is_control() && c != '\n')
}

#[track_caller]
fn call(workspace: &Workspace, command: &str, arguments: &[&str]) -> Outcome {
    let mut program = workspace.command();
    program
        .timeout(Duration::from_secs(120))
        .arg(command)
        .arg("-w")
        .arg(workspace.root())
        .args(arguments);
    let outcome = Outcome::of(&mut program);
    assert!(
        (0..=11).contains(&outcome.code),
        "{command}: {}",
        outcome.stderr
    );
    for text in [&outcome.stdout, &outcome.stderr] {
        // JSON is for programs, and may hold marks as they stand.
        let is_json = arguments.contains(&"--json") && std::ptr::eq(text, &outcome.stdout);
        let raw: Vec<char> = text.chars().filter(|c| acts(*c)).collect();
        assert!(
            is_json || raw.is_empty(),
            "{command} {arguments:?}: {raw:?}\n{text:?}"
        );
    }
    outcome
}

/// Every command, in all the ways that print; nothing outside of the store may
/// change.
#[track_caller]
fn everything(workspace: &Workspace) {
    let around = |workspace: &Workspace| {
        support::Tree::of(workspace.home()).without(&["workspace/tinyagents_store"])
    };
    let before = around(workspace);
    for (command, arguments) in [
        ("run", &["--dry-run", "-v"][..]),
        ("run", &["-vv"]),
        ("run", &["--salvage", "-v"]),
        ("run", &["--force", "--json"]),
        ("status", &["-v"]),
        ("status", &["--format", "markdown"]),
        ("verify", &["-v"]),
        ("verify", &["--diff", "-v"]),
        ("undo", &["--dry-run", "-v"]),
        ("undo", &["-v"]),
    ] {
        call(workspace, command, arguments);
    }
    before.assert_same(&around(workspace));
}

fn header(fields: Value) -> String {
    let mut header: Value = serde_json::from_str(HEADER).unwrap();
    for (key, value) in fields.as_object().unwrap() {
        header["_meta"][key] = value.clone();
    }
    header.to_string()
}

fn subagent(id: &str, more: Value) -> Value {
    let mut record = json!({
        "subagentSessionId": id, "parentSession": "p", "agentId": "a", "sandboxMode": "none",
        "taskKey": "k", "taskTitle": "t", "status": "idle", "reusable": true, "createdAt": "c",
        "updatedAt": "u", "lastUsedAt": "l",
        "latestHistory": [{"role": "user", "content": "hi"}],
    });
    for (key, value) in more.as_object().unwrap() {
        record[key] = value.clone();
    }
    record
}

#[test]
fn names_that_lead_elsewhere_stay_in_the_store() {
    let workspace = Workspace::new();
    let line = message("user", "hi");
    for stem in [
        "CON",
        "nul",
        "COM1.x",
        "Prn",
        "aux.",
        "a..",
        "-rf",
        "~",
        "%2e%2e",
        "a\\..\\..\\b",
        "$HOME",
        "a\nb",
        "\u{fe0f}",
        "session",
        "SESSION",
        "...x",
        " ",
        "a b",
    ] {
        workspace.transcript(stem, &[&line]);
    }
    // Hidden, so no transcripts at all.
    workspace.file("session_raw/...jsonl", format!("{HEADER}\n{line}\n"));
    workspace.file("session_raw/.jsonl", format!("{HEADER}\n{line}\n"));
    workspace.file("session_raw-../up.jsonl", format!("{HEADER}\n{line}\n"));
    workspace.file(
        "session_raw-CON/1777000000_a.jsonl",
        format!("{HEADER}\n{line}\n"),
    );
    let ids = [
        "../../../escape",
        "/etc/passwd",
        "..",
        ".",
        "",
        "CON",
        "a/../b",
        "nul\u{0}byte",
    ];
    let records: Vec<Value> = ids.iter().map(|id| subagent(id, json!({}))).collect();
    workspace.file(
        ".openhuman/subagent_sessions.json",
        Value::from(records).to_string(),
    );
    let report = call(&workspace, "run", &["--json"]).json();
    assert_eq!(report["failed"], 0, "{report}");
    assert!(report["imported"].as_u64().unwrap() >= 26, "{report}");
    let tree = workspace.tree();
    for folder in ["journal", "kv/sessions"] {
        let mut folded = Vec::new();
        for path in tree.paths(&format!("{STORE}/{folder}")) {
            let name = path.rsplit('/').next().unwrap();
            let name = name.trim_start_matches("session.");
            let base = name.split('.').next().unwrap().to_ascii_lowercase();
            assert!(
                !["con", "nul", "com1", "prn", "aux", ""].contains(&base.as_str()),
                "{path}"
            );
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            assert!(name.chars().all(is_plain), "{path}");
            folded.push(path.to_ascii_lowercase());
        }
        let number = folded.len();
        folded.sort();
        folded.dedup();
        assert_eq!(folded.len(), number, "two names differ only in case");
    }
    workspace.read_store().check(|_| true).unwrap();
    call(&workspace, "verify", &[])
        .code(0)
        .says("Nothing is wrong");
    everything(&workspace);
}

#[test]
fn nothing_acts_on_the_terminal() {
    let workspace = Workspace::new();
    let line = message("user", ACTS);
    let fields = json!({
        "agent": ACTS, "agent_id": ACTS, "agent_type": ACTS, "dispatcher": ACTS, "created": ACTS,
        "updated": ACTS, "provider": ACTS, "model": ACTS, "thread_id": ACTS, "task_id": ACTS,
        "session_id": ACTS, "parent_session_id": ACTS, ACTS: ACTS,
    });
    let text = format!("{}\n{line}\n{{\"role\":\"{ACTS}\n{line}\n", header(fields));
    // In names of files, of folders, and of what is not read.
    for place in [
        format!("session_raw/1777000000_{ACTS}.jsonl"),
        format!("session_raw/1777000001_a__1777000002_{ACTS}.jsonl"),
        format!("session_raw-{ACTS}/1777000003_a.jsonl"),
        format!("session_raw/{ACTS}/1777000004_a.jsonl"),
        format!("session_raw/1777000005_{ACTS}.JSONL"),
        format!("session_raw_{ACTS}/1777000006_a.jsonl"),
        format!("sessions/{ACTS}/1777000007_{ACTS}.md"),
    ] {
        workspace.file(place, &text);
    }
    workspace.file(
        format!("session_raw/1777000008_{ACTS}.jsonl"),
        format!("no header {ACTS}\n"),
    );
    workspace.link(
        format!("session_raw/1777000009_{ACTS}.jsonl"),
        format!("/{ACTS}"),
    );
    let more = json!({"agentId": ACTS, "displayName": ACTS, "taskTitle": ACTS, "workerThreadId": ACTS,
        "parentSession": ACTS, "parentThreadId": ACTS, "latestError": ACTS});
    let records =
        json!([subagent(ACTS, more.clone()), subagent(ACTS, more), {"subagentSessionId": ACTS}]);
    workspace.file(".openhuman/subagent_sessions.json", records.to_string());
    everything(&workspace);

    // What is in the store differs from what is in the sources, and says so.
    call(&workspace, "run", &["--json"]);
    let journal = workspace.store().join("journal");
    for entry in fs::read_dir(journal).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replace("gnp", "\u{9b}gnp\u{202e}")).unwrap();
    }
    let diff = call(&workspace, "verify", &["--diff"]).code(3);
    diff.says(r"\u{202e}");
    // A damaged name in the lock, the format record and the arguments.
    let format = format!("{STORE}/kv/session_import.meta/format.json");
    workspace.file(
        &format,
        json!({"format": 1, "workspace": format!("/{ACTS}")}).to_string(),
    );
    call(&workspace, "status", &[]);
    workspace.file(&format, json!({"format": 1, "workspace": "/"}).to_string());
    call(&workspace, "run", &[]).code(1);
    workspace.remove(&format);
    call(&workspace, "run", &["--only", ACTS]);
    call(&workspace, "run", &["--only", &format!("[{ACTS}")]).code(2);
    call(&workspace, "undo", &["--only", ACTS]);
    call(&workspace, "verify", &["--only", ACTS]);
    call(&workspace, "accept", &[ACTS, "--reason", ACTS]).code(2);
    let bad = format!("session_raw/1777000008_{ACTS}.jsonl");
    call(&workspace, "accept", &[&bad, "--reason", ACTS]).code(0);
    call(
        &workspace,
        "run",
        &["--store", &format!("session_raw/{ACTS}")],
    );
}

#[test]
fn an_explanation_is_only_given_of_a_code() {
    let outcome = support::call(&["--explain", ACTS]).code(2);
    let text = outcome.stdout + &outcome.stderr;
    assert!(!text.chars().any(acts), "{text:?}");
}

#[test]
fn bombs_are_lines_like_any_other() {
    let workspace = Workspace::new();
    let deep = |open: &str, close: &str, depth: usize| {
        format!(
            r#"{{"role":"user","content":"deep","extra_metadata":{}1{}}}"#,
            open.repeat(depth),
            close.repeat(depth)
        )
    };
    let mut wide = r#"{"role":"user","content":"wide""#.to_owned();
    for number in 0..1_000_000 {
        write!(wide, r#","k{number}":{number}"#).unwrap();
    }
    wide.push('}');
    let twice = r#"{"role":"user","content":"a","content":"b"}"#.to_owned();
    let huge = format!(
        r#"{{"role":"user","content":"n","n":{}}}"#,
        "9".repeat(1_000_000)
    );
    let lines = [
        deep("[", "]", 100_000),
        deep(r#"{"a":"#, "}", 100_000),
        "[".repeat(1_000_000),
        deep("[", "]", 120),
        wide,
        twice,
        huge,
        format!("\u{0}{}\u{0}", message("user", "nul")),
        message("user", "the last"),
    ];
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    workspace.transcript("1777000000_bombs", &lines);
    let report = call(&workspace, "run", &["--json"]).code(0).json();
    assert_eq!(report["imported"], 1, "{report}");
    let store = workspace.read_store();
    store.check(|_| true).unwrap();
    let session = store.session("session_raw/1777000000_bombs.jsonl");
    let contents = session.contents();
    assert!(contents.contains(&"wide") && contents.contains(&"the last"));
    assert_eq!(session.messages.len() + session.residue.len(), lines.len());
    call(&workspace, "verify", &["--diff"]).code(0);
    call(&workspace, "run", &["--salvage"]).code(0);
    call(&workspace, "verify", &[]).code(0);
}

#[test]
fn a_database_and_a_list_of_sub_agents_may_hold_anything() {
    let workspace = Workspace::new();
    workspace.transcript("1777000000_a", &[&message("user", "hi")]);
    let victim = workspace.path("victim");
    fs::write(&victim, "untouched").unwrap();
    let file = workspace.path("session_db/sessions.db");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let database = rusqlite::Connection::open(&file).unwrap();
    database
        .execute_batch(
            "CREATE TABLE real (id TEXT, n INTEGER);
             WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 1000)
               INSERT INTO real SELECT 'r' || x, x FROM c;
             -- Endless, if anybody asks.
             CREATE VIEW agent_runs AS
               WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c)
               SELECT x AS id, 'thr-1' AS parent_thread_id, NULL AS worker_thread_id FROM c;
             CREATE TABLE sessions (id TEXT, thread_id TEXT);
             CREATE TRIGGER t AFTER INSERT ON sessions BEGIN DELETE FROM real; END;
             CREATE TABLE run_events (run_id TEXT CHECK (randomblob(1000000000) IS NULL));",
        )
        .unwrap();
    drop(database);
    let mut records: Vec<Value> = (0..1000)
        .map(|n| subagent(&n.to_string(), json!({})))
        .collect();
    records.push(json!([[[[[]]]]]));
    records.push(json!({"subagentSessionId": {"not": "text"}}));
    records.push(subagent(
        "history",
        json!({"latestHistory": {"no": "list"}}),
    ));
    records.push(subagent(
        "deep",
        json!({"latestHistory": [{"role": "user", "content": [[[1]]]}]}),
    ));
    workspace.file(
        ".openhuman/subagent_sessions.json",
        Value::from(records).to_string(),
    );
    let before = workspace.tree().without(&[STORE]);
    let report = call(&workspace, "run", &["--json"]).json();
    assert!(report["imported"].as_u64().unwrap() >= 1001, "{report}");
    let codes = report["warnings"].to_string();
    assert!(
        codes.contains("run-ledger-") && codes.contains("subagents-unusable"),
        "{codes}"
    );
    before.assert_same(&workspace.tree().without(&[STORE]));
    everything(&workspace);
}
