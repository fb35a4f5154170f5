//! What goes on while an import runs: the application writes, another import
//! begins, a source goes away, the clock is set back.

// Clippy takes only functions marked as tests for tests.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod support;

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::{HEADER, Outcome, Workspace, message};

const LIVE: &str = "session_raw/1778700000_live.jsonl";

fn tick(number: usize) -> String {
    message("user", &format!("tick {number}"))
}

/// A session of fifty messages.
fn fifty() -> Workspace {
    let workspace = Workspace::new();
    let lines: Vec<String> = (0..50).map(tick).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    workspace.transcript("1778700000_live", &lines);
    workspace
}

/// Adds a record in two halves, again and again; gives how many there are then.
fn append(file: &Path, until: Instant) -> usize {
    let mut number = 50;
    while Instant::now() < until {
        let line = tick(number) + "\n";
        let (start, end) = line.split_at(12);
        let mut file = File::options().append(true).open(file).unwrap();
        file.write_all(start.as_bytes()).unwrap();
        std::thread::sleep(Duration::from_millis(4));
        file.write_all(end.as_bytes()).unwrap();
        number += 1;
        std::thread::sleep(Duration::from_millis(2));
    }
    number
}

/// Writes the whole file again for each record, as the application did before
/// its fifth format: for a moment it is empty.
fn rewrite(file: &Path, until: Instant) -> usize {
    let mut number = 50;
    while Instant::now() < until {
        number += 1;
        let mut file = File::create(file).unwrap();
        writeln!(file, "{HEADER}").unwrap();
        for number in 0..number {
            writeln!(file, "{}", tick(number)).unwrap();
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    number
}

/// How many ticks the store has, which must be the first ones, each once.
#[track_caller]
fn ticks(workspace: &Workspace) -> usize {
    let store = workspace.read_store();
    let Some(session) = store.find(LIVE) else {
        return 0;
    };
    for (number, content) in session.contents().into_iter().enumerate() {
        assert_eq!(content, format!("tick {number}"));
    }
    session.messages.len()
}

fn beside(writer: fn(&Path, Instant) -> usize, may_fail: bool) {
    let workspace = fifty();
    let file = workspace.path(LIVE);
    let until = Instant::now() + Duration::from_secs(2);
    let writer = std::thread::spawn(move || writer(&file, until));
    let mut before = 0;
    while !writer.is_finished() {
        let run = workspace.run(&["--json"]);
        assert!(
            run.code == 0 || (may_fail && run.code == 3),
            "{}",
            run.stdout
        );
        let now = ticks(&workspace);
        assert!(now >= before, "{now} after {before}");
        assert!(may_fail || now >= 50, "{now}");
        before = now;
    }
    let all = writer.join().unwrap();
    workspace.run(&[]).code(0);
    assert_eq!(ticks(&workspace), all);
    workspace
        .call("verify", &[])
        .code(0)
        .says("Nothing is wrong");
    workspace.run(&[]).code(0).says("Nothing to do");
}

#[test]
fn a_source_that_is_appended_to_is_imported_whole() {
    beside(append, false);
}

#[test]
fn a_source_that_is_rewritten_never_gets_shorter_in_the_store() {
    beside(rewrite, true);
}

/// A run in the background.
fn start(workspace: &Workspace, arguments: &[&str]) -> Child {
    let mut process = workspace.process(arguments);
    process.stdout(Stdio::piped()).stderr(Stdio::piped());
    process.spawn().unwrap()
}

fn outcome(process: Child) -> Outcome {
    let output = process.wait_with_output().unwrap();
    Outcome {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Eight sessions of 25 messages.
fn eight() -> Workspace {
    let workspace = Workspace::new();
    let lines: Vec<String> = (0..25).map(tick).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    for number in 0..8 {
        workspace.transcript(&format!("177860000{number}_p{number}"), &lines);
    }
    workspace
}

#[track_caller]
fn assert_eight(workspace: &Workspace) {
    let store = workspace.read_store();
    let counts: Vec<usize> = store.streams.values().map(Vec::len).collect();
    assert_eq!(counts, [25; 8]);
    assert_eq!((store.descriptors.len(), store.imports.len()), (8, 1));
    store.check(|_| true).unwrap();
}

#[test]
fn of_two_imports_at_once_one_writes() {
    for _ in 0..10 {
        let workspace = eight();
        let both = [
            start(&workspace, &["--json"]),
            start(&workspace, &["--json"]),
        ];
        let mut imported = Vec::new();
        for run in both.map(outcome) {
            if run.code == 11 {
                run.logs("another import is running");
            } else {
                imported.push(run.code(0).json()["imported"].as_u64().unwrap());
            }
        }
        assert_eq!(imported.iter().sum::<u64>(), 8, "{imported:?}");
        assert_eight(&workspace);
    }
}

#[test]
fn an_import_that_waits_for_another_does_nothing_twice() {
    for _ in 0..5 {
        let workspace = eight();
        let arguments = ["--json", "--retry-lock", "60s"];
        let both = [start(&workspace, &arguments), start(&workspace, &arguments)];
        let reports = both.map(|run| outcome(run).code(0).json());
        let count = |name: &str| -> u64 {
            reports
                .iter()
                .map(|report| report[name].as_u64().unwrap())
                .sum()
        };
        assert_eq!((count("imported"), count("skipped")), (8, 8));
        assert_eight(&workspace);
    }
}

#[test]
fn a_dry_run_beside_an_import_is_harmless() {
    let workspace = eight();
    let run = start(&workspace, &["--json"]);
    let plan = start(&workspace, &["--dry-run", "--json"]);
    outcome(plan).code(0);
    outcome(run).code(0);
    assert_eight(&workspace);
}

#[test]
fn a_source_that_vanishes_fails_alone() {
    let workspace = eight();
    workspace.transcript("1778600009_other", &[&tick(0)]);
    let lock = workspace.hold_lock();
    let gone = "session_raw/1778600008_gone.jsonl";
    workspace.transcript("1778600008_gone", &[&tick(0)]);
    workspace.transcript("1778600010_new", &[&tick(0)]);
    // It lists the folders, and then waits for the lock.
    let run = start(&workspace, &["--json", "--retry-lock", "60s"]);
    std::thread::sleep(Duration::from_millis(1500));
    workspace.remove(gone);
    drop(lock);
    let report = outcome(run).code(3).json();
    assert_eq!(
        (&report["imported"], &report["failed"]),
        (&json!(1), &json!(1)),
        "{report}"
    );
    let items = report["items"].as_array().unwrap();
    let item = items.iter().find(|item| item["source"] == gone).unwrap();
    assert!(
        item["warnings"].to_string().contains("vanished: "),
        "{item}"
    );
    workspace.run(&[]).code(0);
    assert!(workspace.read_store().failures.is_empty());
    workspace.call("verify", &[]).code(0);
}

fn at(workspace: &Workspace, clock: &str, command: &str) -> Outcome {
    let mut program = workspace.command();
    program
        .env("SOURCE_DATE_EPOCH", clock)
        .args([command, "--json", "-w"])
        .arg(workspace.root());
    Outcome::of(&mut program)
}

#[test]
fn a_clock_that_was_set_back_loses_nothing() {
    let workspace = fifty();
    at(&workspace, "1900000000", "run").code(0);
    workspace.append(LIVE, tick(50) + "\n");
    workspace.mtime(LIVE, 1_850_000_000);
    // Earlier than the import before, and than the source.
    let report = at(&workspace, "1800000000", "run").code(0).json();
    assert_eq!(report["imported"], 1);
    assert_eq!(ticks(&workspace), 51);
    let report = at(&workspace, "1800000000", "run").code(0).json();
    assert_eq!(report["already_done"], true);
    let imports = workspace.read_store().imports;
    let times: Vec<&Value> = imports
        .values()
        .map(|import| &import["imported_at"])
        .collect();
    assert_eq!(times.len(), 2, "{times:?}");
    for clock in ["1800000000", "1900000000"] {
        let report = at(&workspace, clock, "verify").code(0).json();
        assert_eq!(report["clean"], true);
    }
    at(&workspace, "1700000000", "undo").code(0);
    assert!(workspace.read_store().entries.is_empty());
}

#[test]
fn sources_of_the_future_are_done_once() {
    let workspace = fifty();
    workspace.mtime(LIVE, 4_000_000_000);
    workspace.run(&[]).code(0).says("1 imported");
    workspace.run(&[]).code(0).says("Nothing to do");
    fs::remove_file(workspace.store().join(".session-import.stat")).unwrap();
    workspace.run(&[]).code(0).says("Nothing to do");
}

#[test]
fn an_empty_clock_is_none() {
    let workspace = fifty();
    at(&workspace, "", "run").code(0);
    let entry = workspace.read_store().session(LIVE).entry;
    assert!(!entry["imported_at"].as_str().unwrap().starts_with("1970"));
    assert!(workspace.store().join(".session-import.stat").exists());
    at(&workspace, "soon", "run").code(2);
}
