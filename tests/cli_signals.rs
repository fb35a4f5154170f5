//! Signals: a run that is asked to stop, and one that must not hear it.

// What `/proc` says about a process tells when it listens.
#![cfg(target_os = "linux")]
// Clippy takes only functions marked as tests for tests.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use support::{DEFAULT_SIGNALS, Workspace, assert_schema};

const USER: &str = r#"{"role":"user","content":"hello"}"#;

#[test]
fn a_signal_ends_a_run_in_good_order() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let workspace = many();
        let mut command = workspace.process(&["--json", "-j", "1"]);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        wait_for_work(&workspace, &mut child);
        send(&child, signal);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{signal:?}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_schema("run", &report);

        let rest = workspace.run(&["--json"]).code(0).json();
        let done = |report: &Value| report["imported"].as_u64().unwrap();
        assert_eq!(rest["scanned"], MANY);
        assert_eq!(done(&report) + done(&rest), MANY, "{signal:?}");
    }
}

#[test]
fn ctrl_c_twice_ends_at_once() {
    let (workspace, held) = waiting();
    let mut command = workspace.process(&["--retry-lock", "10m"]);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap());
    wait_for_handlers(&mut child);
    send(&child, Signal::INT);
    let mut line = String::new();
    log.read_line(&mut line).unwrap();
    assert!(line.contains("Ctrl-C again"), "{line}");
    send(&child, Signal::INT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    drop(held);
}

#[test]
fn an_ignored_hangup_stays_ignored() {
    let (workspace, held) = waiting();
    let process = workspace.process(&["--retry-lock", "10m"]);
    // Not through `env`, which would undo what `nohup` does.
    let program = [process.get_program()].into_iter();
    let program = program.filter(|program| *program != "env");
    let arguments = process.get_args().filter(|one| *one != DEFAULT_SIGNALS);
    let mut command = Command::new("nohup");
    command
        .args(program)
        .args(arguments)
        .env("HOME", workspace.home());
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for_handlers(&mut child);
    send(&child, Signal::HUP);
    std::thread::sleep(Duration::from_millis(100));
    drop(held);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// Sends a signal, unless it is over already.
fn send(child: &Child, signal: Signal) {
    let _ = kill_process(Pid::from_child(child), signal);
}

/// A workspace with something to import, and the lock that this waits for.
#[track_caller]
fn waiting() -> (Workspace, fs::File) {
    let workspace = Workspace::new();
    workspace.transcript("1779000000_ok", &[USER]);
    let held = workspace.hold_lock();
    workspace.transcript("1779000001_new", &[USER]);
    (workspace, held)
}

const MANY: u64 = 300;

fn many() -> Workspace {
    let workspace = Workspace::new();
    let lines = vec![USER; 300];
    for number in 0..MANY {
        workspace.transcript(&format!("{}_many", 1_779_000_000 + number), &lines);
    }
    workspace
}

/// Until signals are listened to: at first they end the process as ever.
#[track_caller]
fn wait_for_handlers(child: &mut Child) {
    let file = format!("/proc/{}/status", child.id());
    wait_until(child, || {
        let status = fs::read_to_string(&file).unwrap_or_default();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let mask = u64::from_str_radix(caught.unwrap_or("0").trim(), 16).unwrap();
        mask & (1 << (Signal::TERM.as_raw() - 1)) != 0
    });
}

/// Until the run has written something, and goes on.
#[track_caller]
fn wait_for_work(workspace: &Workspace, child: &mut Child) {
    let journals = workspace.store().join("journal");
    wait_until(child, || {
        fs::read_dir(&journals).map_or(0, Iterator::count) > 0
    });
}

#[track_caller]
fn wait_until(child: &mut Child, is_so: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(child.try_wait().unwrap().is_none(), "it is over already");
        assert!(
            started.elapsed() < Duration::from_secs(60),
            "it does not get there"
        );
        std::thread::sleep(Duration::from_millis(2));
    }
}
