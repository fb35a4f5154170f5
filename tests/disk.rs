//! The disk under a store: too small, read-only, another file system, and a
//! workspace that another user may read only in part.

// Clippy takes only functions marked as tests for tests.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr
)]

mod support;

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use support::{Outcome, Workspace, is_root, message};

const STORE: &str = "tinyagents_store";
const MARKER: &str = "tinyagents_store/kv/migrations/session_import_v1.json";
/// Nobody, on all systems that have one.
const OTHER: u32 = 65534;

/// A file system in memory, as large as it says, until dropped.
struct Disk(PathBuf);

impl Disk {
    /// `None`, and a word about it, where nobody may mount.
    fn mount(at: &Path, options: &str) -> Option<Self> {
        fs::create_dir_all(at).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(at);
        let is_mounted = is_root() && mount.output().is_ok_and(|output| output.status.success());
        if !is_mounted {
            eprintln!("skipped: only root can mount a small disk, and not everywhere");
        }
        is_mounted.then(|| Self(at.to_owned()))
    }

    fn remount(&self, options: &str) {
        let mut mount = Command::new("mount");
        mount
            .arg("-o")
            .arg(format!("remount,{options}"))
            .arg(&self.0);
        assert!(mount.status().unwrap().success());
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// A message line that takes about three times its bytes in a journal.
fn short(number: usize) -> String {
    format!(r#"{{"role":"u","content":"{number}"}}"#)
}

fn transcript(workspace: &Workspace, stem: &str, lines: &[String]) {
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    workspace.transcript(stem, &lines);
}

fn find<'r>(report: &'r Value, source: &str) -> &'r Value {
    let mut items = report["items"].as_array().unwrap().iter();
    items.find(|item| item["source"] == source).unwrap()
}

#[test]
fn what_does_not_fit_fails_and_comes_with_the_next_run() {
    let workspace = Workspace::new();
    transcript(&workspace, "1778400000_first", &[short(0)]);
    let many: Vec<String> = (0..1000).map(short).collect();
    transcript(&workspace, "1778400001_second", &many);
    transcript(&workspace, "1778400002_third", &[short(0)]);
    let Some(disk) = Disk::mount(&workspace.store(), "size=96k") else {
        return;
    };
    // By the sources' bytes there is room enough; the journal is larger.
    let report = workspace.run(&["--json", "-j1"]).code(3).json();
    let second = "session_raw/1778400001_second.jsonl";
    let failed = find(&report, second);
    assert_eq!(failed["action"], "failed");
    assert!(
        failed["warnings"].to_string().contains("No space left"),
        "{failed}"
    );
    assert!(!workspace.tree().has(MARKER));
    let store = workspace.read_store();
    assert!(store.find(second).is_none() && !store.entries.contains_key(second));
    store.check(|_| true).unwrap();
    assert!(
        !workspace
            .tree()
            .paths(STORE)
            .iter()
            .any(|path| path.ends_with(".tmp"))
    );

    disk.remount("size=10m");
    workspace.run(&[]).code(0);
    let store = workspace.read_store();
    let counts = store.streams.values().map(Vec::len);
    assert_eq!(counts.collect::<Vec<_>>(), [1, 1000, 1]);
    workspace
        .call("verify", &[])
        .code(0)
        .says("Nothing is wrong");
}

#[test]
fn an_import_that_cannot_fit_is_not_begun() {
    let workspace = Workspace::new();
    let large = message("user", &"x".repeat(200 << 10));
    transcript(&workspace, "1778400000_large", &[large]);
    let Some(_disk) = Disk::mount(&workspace.store(), "size=96k") else {
        return;
    };
    let outcome = workspace.run(&[]).code(1);
    outcome
        .logs("needed for 1 session,")
        .logs("nothing was imported")
        .logs("once there is room");
    assert!(workspace.read_store().streams.is_empty());
}

#[test]
fn many_small_files_need_a_block_each() {
    let workspace = Workspace::new();
    // Twelve kilobytes of sources, and 120 of files.
    for number in 0..40 {
        transcript(&workspace, &format!("17784000{number:02}_a"), &[]);
    }
    let Some(_disk) = Disk::mount(&workspace.store(), "size=256k") else {
        return;
    };
    workspace.run(&[]).code(1).logs("nothing was imported");
}

#[test]
fn histories_without_room_leave_what_was_imported_and_say_so() {
    let workspace = Workspace::new();
    transcript(&workspace, "1778400000_first", &[short(0)]);
    transcript(&workspace, "1778400001_second", &[short(1)]);
    let record = json!([{
        "subagentSessionId": "big", "parentSession": "1778400000_first", "agentId": "a",
        "workerThreadId": "thr-big", "sandboxMode": "none", "taskKey": "k", "taskTitle": "t",
        "status": "idle", "reusable": true, "createdAt": "c", "updatedAt": "u", "lastUsedAt": "l",
        "latestHistory": [{"role": "user", "content": "y".repeat(150 << 10)}],
    }]);
    workspace.file(".openhuman/subagent_sessions.json", record.to_string());
    let Some(disk) = Disk::mount(&workspace.store(), "size=128k") else {
        return;
    };
    let report = workspace.run(&["--json"]).code(3).json();
    assert_eq!(
        (&report["imported"], &report["failed"]),
        (&json!(2), &json!(1)),
        "{report}"
    );
    let failed = find(&report, ".openhuman/subagent_sessions.json#big");
    assert!(
        failed["warnings"]
            .to_string()
            .contains("once there is room"),
        "{failed}"
    );
    assert_eq!(workspace.read_store().entries.len(), 2);
    assert!(!workspace.tree().has(MARKER));
    // Nothing new to import, and still no room: now nothing was.
    let again = workspace.run(&[]).code(1);
    again.logs("nothing was imported");
    disk.remount("size=10m");
    workspace.run(&[]).code(0);
    assert_eq!(workspace.read_store().entries.len(), 3);
}

#[test]
fn a_store_on_another_file_system_is_one_like_any_other() {
    let workspace = Workspace::new();
    transcript(
        &workspace,
        "1778400000_first",
        &[short(0), "torn".to_owned()],
    );
    let elsewhere = workspace.home().join("disk");
    let Some(disk) = Disk::mount(&elsewhere, "size=10m") else {
        return;
    };
    let store = elsewhere.join("store");
    let store = ["--store", store.to_str().unwrap()];
    workspace.run(&store).code(0).says("1 imported");
    workspace.run(&store).code(0).says("Nothing to do");
    workspace
        .call("verify", &store)
        .code(0)
        .says("Nothing is wrong");

    // Read-only: what reads works, what writes says where it could not.
    workspace.append("session_raw/1778400000_first.jsonl", short(1) + "\n");
    disk.remount("ro");
    workspace.call("status", &store).code(0);
    workspace.call("verify", &store).code(0);
    workspace
        .run(&[&store[..], &["--dry-run"]].concat())
        .code(0);
    for command in ["run", "undo"] {
        workspace
            .call(command, &store)
            .code(1)
            .logs(store[1])
            .logs("Read-only");
    }
    disk.remount("rw");
    workspace.call("undo", &store).code(0);
}

/// A copy of case 27 that belongs to another user, and the program as theirs.
struct Theirs(Workspace);

impl Theirs {
    /// `None`, and a word about it, for whoever cannot be somebody else.
    fn new() -> Option<Self> {
        if !is_root() {
            eprintln!("skipped: only root can act as another user");
            return None;
        }
        let workspace = Workspace::new();
        let line = |content: &str| [message("user", content)];
        transcript(&workspace, "1778300000_ok", &line("readable"));
        transcript(&workspace, "1778300001_secret", &line("mode 000"));
        workspace.rename(
            "session_raw/1778300001_secret.jsonl",
            "session_raw/1778300001_secret.jsonl",
        );
        transcript(&workspace, "1778300002_hidden", &line("folder mode 000"));
        workspace.rename(
            "session_raw/1778300002_hidden.jsonl",
            "session_raw/02052026/1778300002_hidden.jsonl",
        );
        let theirs = Self(workspace);
        theirs.give();
        Some(theirs)
    }

    fn give(&self) {
        for entry in walkdir::WalkDir::new(self.0.home()) {
            let path = entry.unwrap().into_path();
            std::os::unix::fs::lchown(path, Some(OTHER), Some(OTHER)).unwrap();
        }
    }

    #[track_caller]
    fn call(&self, command: &str, arguments: &[&str]) -> Outcome {
        // From a folder that they may read: the build's may be somebody else's.
        let program = self.0.home().join("session-import");
        if !program.exists() {
            // Not by this process: a child that another test starts meanwhile
            // would have the copy open, and a program that is open for writing
            // cannot be started.
            let mut copy = Command::new("cp");
            copy.arg(assert_cmd::cargo::cargo_bin!("session-import"));
            assert!(copy.arg(&program).status().unwrap().success());
        }
        let mut process = Command::new(&program);
        process
            .env_clear()
            .env("HOME", self.0.home())
            .current_dir(self.0.home())
            .args([command, "-w"])
            .arg(self.0.root())
            .args(arguments)
            .uid(OTHER)
            .gid(OTHER);
        let output = process.output().unwrap();
        Outcome {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

#[test]
fn what_may_not_be_read_is_told_and_comes_once_it_may() {
    let Some(theirs) = Theirs::new() else { return };
    let workspace = &theirs.0;
    workspace
        .mode("session_raw/1778300001_secret.jsonl", 0)
        .mode("session_raw/02052026", 0);
    let before = workspace.tree();
    let report = theirs.call("run", &["--json"]).code(3).json();
    let count = |name: &str| report[name].as_u64().unwrap();
    assert_eq!(
        (count("imported"), count("failed"), count("unreadable")),
        (1, 1, 1)
    );
    let warnings = report.to_string();
    assert!(warnings.contains("02052026") && warnings.contains("ermission denied"));
    assert!(!workspace.tree().has(MARKER));
    before
        .without(&[STORE])
        .assert_same(&workspace.tree().without(&[STORE]));

    workspace
        .mode("session_raw/1778300001_secret.jsonl", 0o600)
        .mode("session_raw/02052026", 0o700);
    let report = theirs.call("run", &["--json"]).code(0).json();
    assert_eq!(
        (&report["imported"], &report["skipped"]),
        (&json!(2), &json!(1))
    );
    assert!(workspace.tree().has(MARKER));
}

#[test]
fn a_workspace_that_may_not_be_written_gets_no_store() {
    let Some(theirs) = Theirs::new() else { return };
    let workspace = &theirs.0;
    for folder in ["", "session_raw", "session_raw/02052026"] {
        workspace.mode(folder, 0o500);
    }
    let before = workspace.tree();
    let plan = theirs.call("run", &["--dry-run", "--json"]).code(0).json();
    assert_eq!(plan["imported"], 3);
    let run = theirs.call("run", &[]).code(1);
    assert!(!run.stdout.contains("imported"), "{}", run.stdout);
    run.logs(STORE).logs("ermission denied");
    before.assert_same(&workspace.tree());
}

#[test]
fn a_store_that_may_not_be_written_stays_as_it_is() {
    let Some(theirs) = Theirs::new() else { return };
    let workspace = &theirs.0;
    theirs.call("run", &[]).code(0);
    workspace.append(
        "session_raw/1778300000_ok.jsonl",
        message("user", "more") + "\n",
    );
    for entry in walkdir::WalkDir::new(workspace.store()) {
        let path = entry.unwrap().into_path();
        let mode = if path.is_dir() { 0o500 } else { 0o400 };
        workspace.mode(path.strip_prefix(workspace.root()).unwrap(), mode);
    }
    let before = workspace.tree();
    theirs.call("run", &[]).code(1).logs(STORE);
    theirs.call("undo", &[]).code(1).logs(STORE);
    theirs.call("status", &[]).code(0);
    theirs.call("verify", &[]).code(0);
    before.assert_same(&workspace.tree());
}

#[test]
fn a_file_in_the_stores_place_is_told() {
    let workspace = Workspace::new();
    transcript(&workspace, "1778300000_ok", &[short(0)]);
    workspace.file(STORE, "");
    let before = workspace.tree();
    workspace
        .run(&[])
        .code(1)
        .logs(STORE)
        .logs("a file, not a folder");
    before.assert_same(&workspace.tree());
}

#[test]
fn a_view_waits_for_a_folder_that_cannot_be_listed() {
    let Some(theirs) = Theirs::new() else { return };
    let workspace = &theirs.0;
    let view = "# Session transcript — main\n\n- Dispatcher: native\n\n---\n\n## [user]\n\nhi\n";
    let line = message("user", "hi") + "\n";
    let header = support::HEADER;
    workspace
        .file(
            "session_raw/02042026/main_0.jsonl",
            format!("{header}\n{line}"),
        )
        .file("sessions/2026_04_02/main_0.md", view)
        // Of a day whose folder can be listed, and holds no such transcript.
        .file("sessions/2026_05_02/main_0.md", view.replace("hi", "other"))
        .mode("session_raw/02042026", 0);
    theirs.give();
    let status = theirs.call("status", &["--json"]).json();
    assert_eq!(status["scanned"], 4, "{status}");
    assert!(
        status["warnings"].to_string().contains("held-back"),
        "{status}"
    );
    let report = theirs.call("run", &["--json"]).code(3).json();
    let sources: Vec<&str> = report["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["source"].as_str().unwrap())
        .collect();
    assert!(
        !sources.contains(&"sessions/2026_04_02/main_0.md"),
        "{sources:?}"
    );
    assert!(
        sources.contains(&"sessions/2026_05_02/main_0.md"),
        "{sources:?}"
    );
    let warnings = report["warnings"].to_string();
    assert!(
        warnings.contains("held-back: sessions/2026_04_02/main_0.md waits: session_raw/02042026"),
        "{warnings}"
    );
    workspace.mode("session_raw/02042026", 0o700);
    theirs.call("run", &[]).code(0);
    let store = workspace.read_store();
    let session = store.session("session_raw/02042026/main_0.jsonl");
    assert_eq!(
        session.descriptor["source"]["md"],
        "sessions/2026_04_02/main_0.md"
    );
    assert!(session.entry.get("lossy").is_none());
    assert_eq!(store.entries.len(), 5);
    // A view that was imported while there was no transcript stays.
    workspace.mode("session_raw/02052026", 0);
    let report = theirs.call("run", &["--json"]).code(3).json();
    assert!(
        !report["warnings"].to_string().contains("held-back"),
        "{report}"
    );
}
