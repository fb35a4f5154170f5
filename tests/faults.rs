//! Every step fails once: the n-th file operation of an import fails, for each
//! n and in each way, or the import is killed right before it; and the import
//! after it must put everything right.
//!
//! `cargo test --features fault-injection --test faults`

// Clippy takes only functions marked as tests for tests.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr
)]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use support::store::Store;
use support::{HEADER, Outcome, message, program};
use tempfile::TempDir;

const KINDS: [&str; 5] = ["ENOSPC", "EIO", "EACCES", "short", "kill"];

/// Clocks of the import that made the store and of the one that is broken.
const BEFORE: &str = "1790000000";
const NOW: &str = "1800000000";
/// The same as it stands in records.
const NOW_TEXTS: [&str; 2] = ["2027-01-15T08:00:00.000Z", "1800000000000"];
/// The next import comes later, where the one before was killed.
const LATER: &str = "1800000007";
const LATER_TEXTS: [&str; 2] = ["2027-01-15T08:00:07.000Z", "1800000007000"];

type Files = BTreeMap<PathBuf, Vec<u8>>;

/// A workspace that waits for an import, and what that must come to.
struct Scenario {
    name: &'static str,
    arguments: &'static [&'static str],
    base: TempDir,
    /// The store as it is before the import.
    old: Files,
    /// The store as an undisturbed import leaves it, and that one's exit code.
    new: Files,
    code: i32,
    operations: u64,
}

#[test]
fn every_step_of_a_first_import() {
    let scenario = Scenario::new("first", &[], |workspace| first(workspace, false));
    assert_eq!(scenario.code, 0);
    scenario.break_every_step();
}

#[test]
fn every_step_of_a_first_import_in_which_a_source_fails() {
    let scenario = Scenario::new("first with a failure", &[], |workspace| {
        first(workspace, true);
    });
    assert_eq!(scenario.code, 3);
    scenario.break_every_step();
}

#[test]
fn every_step_of_an_import_of_what_has_changed() {
    let scenario = Scenario::new("again", &[], |workspace| {
        first(workspace, false);
        import(workspace, BEFORE, &[]).code(0);
        change(workspace);
    });
    assert_eq!(scenario.code, 0);
    scenario.break_every_step();
}

#[test]
fn every_step_of_an_import_of_everything_anew() {
    let scenario = Scenario::new("--force", &["--force"], |workspace| {
        first(workspace, true);
        import(workspace, BEFORE, &[]).code(3);
        change(workspace);
    });
    assert_eq!(scenario.code, 0);
    scenario.break_every_step();
}

/// Sessions of every kind: plain, with residue, from Markdown, from a
/// sub-agent's history, from a date folder; perhaps one that fails.
fn first(workspace: &Path, with_failure: bool) {
    write(
        workspace,
        "session_raw/1779000000_grows.jsonl",
        &text(0..3, ""),
    );
    write(
        workspace,
        "session_raw/1779000001_torn.jsonl",
        &text(0..2, r#"{"role":"assi"#),
    );
    write(
        workspace,
        "session_raw/1779000002_shrinks.jsonl",
        &text(0..5, ""),
    );
    write(
        workspace,
        "session_raw/1779000003_stays.jsonl",
        &text(0..1, ""),
    );
    write(
        workspace,
        "session_raw/02042026/main_0.jsonl",
        &text(0..2, ""),
    );
    if with_failure {
        write(
            workspace,
            "session_raw/1779000004_bad.jsonl",
            "no json at all\n",
        );
    }
    let markdown = "<!-- session_transcript\nagent: helper\n-->\n\n\
                    <!--MSG role=\"user\"-->\nhello\n<!--/MSG-->\n";
    write(workspace, "sessions/2026_04_01/helper_0.md", markdown);
    history(workspace, &["look", "seen"]);
}

/// And what becomes of them: one grows, one loses its residue, one is shorter,
/// one moves, one is repaired.
fn change(workspace: &Path) {
    write(
        workspace,
        "session_raw/1779000000_grows.jsonl",
        &text(0..4, ""),
    );
    write(
        workspace,
        "session_raw/1779000001_torn.jsonl",
        &text(0..3, ""),
    );
    write(
        workspace,
        "session_raw/1779000002_shrinks.jsonl",
        &text(0..2, "{}"),
    );
    write(
        workspace,
        "session_raw/1779000004_bad.jsonl",
        &text(0..1, ""),
    );
    fs::remove_file(workspace.join("session_raw/02042026/main_0.jsonl")).unwrap();
    write(workspace, "session_raw/main_0.jsonl", &text(0..2, ""));
    history(workspace, &["look", "seen", "found"]);
}

fn text(messages: std::ops::Range<usize>, last: &str) -> String {
    let mut text = format!("{HEADER}\n");
    for number in messages {
        text += &message("user", &format!("message {number}"));
        text.push('\n');
    }
    if !last.is_empty() {
        text += &format!("{last}\n");
    }
    text
}

fn history(workspace: &Path, messages: &[&str]) {
    let messages: Vec<Value> = messages
        .iter()
        .map(|content| json!({"role": "user", "content": content}))
        .collect();
    let record = json!([{
        "subagentSessionId": "sub-1", "parentSession": "1779000000_grows", "agentId": "scout",
        "sandboxMode": "none", "taskKey": "t", "taskTitle": "T", "status": "closed",
        "reusable": false, "createdAt": "c", "updatedAt": "u", "lastUsedAt": "l",
        "workerThreadId": "thr-nowhere", "latestHistory": messages,
    }]);
    write(
        workspace,
        ".openhuman/subagent_sessions.json",
        &record.to_string(),
    );
}

fn write(workspace: &Path, path: &str, text: &str) {
    let path = workspace.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    // A source that was written just now and is shorter is taken to be in the
    // middle of being written.
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(support::WRITTEN_AT);
    let file = fs::File::options().append(true).open(path).unwrap();
    file.set_modified(time).unwrap();
}

fn folder() -> TempDir {
    // In memory, where that is possible: only the order of steps counts here.
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

fn store(workspace: &Path) -> PathBuf {
    workspace.join("tinyagents_store")
}

/// An import, one step after the other, so that the n-th is always the same.
fn import(workspace: &Path, clock: &str, arguments: &[&str]) -> Outcome {
    import_with(workspace, clock, arguments, &[])
}

fn import_with(
    workspace: &Path,
    clock: &str,
    arguments: &[&str],
    environment: &[(&str, &str)],
) -> Outcome {
    let mut command = program();
    command
        .args(["run", "--json", "-j", "1", "-w"])
        .arg(workspace)
        .args(arguments)
        .env("SOURCE_DATE_EPOCH", clock)
        .env("HOME", workspace)
        .envs(environment.iter().copied());
    Outcome::of(&mut command)
}

fn copy(from: &Path, to: &Path) {
    for entry in walkdir::WalkDir::new(from) {
        let entry = entry.unwrap();
        let target = to.join(entry.path().strip_prefix(from).unwrap());
        if entry.file_type().is_dir() {
            fs::create_dir_all(target).unwrap();
            continue;
        }
        fs::copy(entry.path(), &target).unwrap();
        let modified = entry.metadata().unwrap().modified().unwrap();
        let file = fs::File::options().append(true).open(target).unwrap();
        file.set_modified(modified).unwrap();
    }
}

impl Scenario {
    fn new(
        name: &'static str,
        arguments: &'static [&'static str],
        prepare: impl Fn(&Path),
    ) -> Self {
        let base = folder();
        prepare(base.path());
        let old = Store::bytes(&store(base.path()));
        let undisturbed = folder();
        copy(base.path(), undisturbed.path());
        let counter = base.path().with_extension("count");
        let count = [("SESSION_IMPORT_FAULT_COUNT", counter.to_str().unwrap())];
        let outcome = import_with(undisturbed.path(), NOW, arguments, &count);
        let operations = fs::read_to_string(&counter).unwrap();
        fs::remove_file(&counter).unwrap();
        let new = Store::bytes(&store(undisturbed.path()));
        Store::read(&store(undisturbed.path()))
            .check(|_| true)
            .unwrap();
        Self {
            name,
            arguments,
            base,
            old,
            new,
            code: outcome.code,
            operations: operations.parse().unwrap(),
        }
    }

    /// Each step in each way; `FAULT_KINDS=1` for one way each, in turn.
    fn break_every_step(&self) {
        assert!(self.operations > 50, "{} operations", self.operations);
        let ways = std::env::var("FAULT_KINDS").map_or(KINDS.len() as u64, |n| n.parse().unwrap());
        let next = AtomicU64::new(0);
        let wrong = Mutex::new(Vec::new());
        let threads = std::thread::available_parallelism().map_or(1, Into::into);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    loop {
                        let index = next.fetch_add(1, Ordering::SeqCst);
                        let (step, way) = (index / ways + 1, index % ways);
                        if step > self.operations {
                            return;
                        }
                        let kind = KINDS[((step + way) % KINDS.len() as u64) as usize];
                        if let Err(what) = self.break_one(step, kind) {
                            wrong.lock().unwrap().push((step, kind, what));
                        }
                    }
                });
            }
        });
        let mut wrong = wrong.into_inner().unwrap();
        wrong.sort();
        if let Some((_, _, first)) = wrong.first() {
            let line = |(step, kind, what): &(u64, &str, String)| {
                let what = what.lines().next().unwrap_or_default();
                format!("step {step} with {kind}: {what}\n")
            };
            let all: String = wrong.iter().map(line).collect();
            panic!("{}\n{all}the first in full: {first}", self.name);
        }
        let (name, steps) = (self.name, self.operations);
        eprintln!("{name}: {steps} steps failed in {ways} ways each");
    }

    fn break_one(&self, step: u64, kind: &str) -> Result<(), String> {
        let workspace = folder();
        copy(self.base.path(), workspace.path());
        let root = store(workspace.path());
        let fault = format!("{step}:{kind}");
        let fault = [("SESSION_IMPORT_FAULT", fault.as_str())];
        let outcome = import_with(workspace.path(), NOW, self.arguments, &fault);
        let said = format!("{}\n{}", outcome.stdout, outcome.stderr);
        let broken = |what: String| format!("{what}\n{said}");
        let document: Value = if kind == "kill" {
            Value::Null
        } else {
            serde_json::from_str(&outcome.stdout).map_err(|error| broken(error.to_string()))?
        };
        let codes: &[i32] = if kind == "kill" { &[-1] } else { &[0, 1, 3] };
        if !codes.contains(&outcome.code) || said.contains("panicked") {
            return Err(format!("exit {}\n{said}", outcome.code));
        }
        self.is_whole(&root, &document).map_err(broken)?;

        let clock = if kind == "kill" { LATER } else { NOW };
        let again = import(workspace.path(), clock, self.arguments);
        let said = format!("{said}\nthen\n{}\n{}", again.stdout, again.stderr);
        let broken = |what: String| format!("{what}\n{said}");
        if again.code != self.code {
            return Err(broken(format!("the next import ends with {}", again.code)));
        }
        self.is_as_undisturbed(&root, kind == "kill")
            .map_err(broken)
    }

    /// What holds right after the failure: of every file the old or the new
    /// bytes, no entry of this import without all that it vouches for, no
    /// marker that says too much, and a report that says no more than is true.
    fn is_whole(&self, root: &Path, document: &Value) -> Result<(), String> {
        let found = Store::bytes(root);
        let (mut is_old, mut not_new) = (true, Vec::new());
        for path in self.old.keys().chain(self.new.keys()).chain(found.keys()) {
            // A failure says what went wrong here; the marker has its own rule.
            let is_failure = path.starts_with("kv/session_import.failed");
            if is_apart(path) || is_temporary(path) || is_failure || path.ends_with(MARKER) {
                continue;
            }
            let [old, new, found] = [&self.old, &self.new, &found].map(|files| files.get(path));
            if found != old && found != new {
                return Err(format!("{} is neither old nor new", path.display()));
            }
            is_old &= found == old;
            if found != new {
                not_new.push(path.display());
            }
        }
        let store = Store::try_read(root)?;
        store.check(|entry| entry["imported_at"].as_str() == Some(NOW_TEXTS[0]))?;
        let is_marker = |path: &&PathBuf| path.ends_with(MARKER);
        let marker = found.keys().find(is_marker).map(|path| &found[path]);
        let old_marker = self.old.keys().find(is_marker).map(|path| &self.old[path]);
        match marker {
            Some(_) if marker == old_marker && !is_old => {
                Err("the old marker vouches for what has changed".to_owned())
            }
            Some(_) if marker != old_marker && !not_new.is_empty() => {
                Err(format!("there is a marker, but also {}", not_new[0]))
            }
            _ => Ok(()),
        }?;
        for item in document["items"].as_array().into_iter().flatten() {
            let source = item["source"].as_str().unwrap_or_default();
            let entry = store.entries.get(source);
            if item["action"] == "imported" && entry.is_none() {
                return Err(format!("{source} is called imported and has no entry"));
            }
        }
        Ok(())
    }

    /// What holds after the next import. Two things tell how often an import
    /// was tried, and are apart: the log of imports, which has an entry for
    /// each that changed something, and in the marker the numbers of the last
    /// one, which had less to do or less to warn about. Where the next import
    /// came later, times and the hashes over them are apart as well.
    fn is_as_undisturbed(&self, root: &Path, was_later: bool) -> Result<(), String> {
        let found = Store::bytes(root);
        for path in self.new.keys().chain(found.keys()) {
            if is_apart(path) {
                continue;
            }
            let (new, found) = (self.new.get(path), found.get(path));
            let text = |bytes: Option<&Vec<u8>>| {
                let text = bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned());
                text.unwrap_or_else(|| "not there".to_owned())
            };
            let is_same = if path.ends_with(MARKER) {
                marker(new) == marker(found)
            } else if was_later {
                timeless(path, &text(new)) == timeless(path, &text(found))
            } else {
                new == found
            };
            if !is_same {
                let path = path.display();
                return Err(format!("{path} differs\n{}\n{}", text(new), text(found)));
            }
        }
        let store = Store::try_read(root)?;
        store.check(|_| true)?;
        for (key, report) in &store.imports {
            if report["imported"].as_array().is_none_or(Vec::is_empty) {
                return Err(format!("the report {key} is of an import that did nothing"));
            }
        }
        Ok(())
    }
}

const MARKER: &str = "session_import_v1.json";

/// The log of imports.
fn is_apart(path: &Path) -> bool {
    path.starts_with("kv/session_import.imports")
}

/// What an import that failed may leave for the next one to clear away.
fn is_temporary(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with(".session-import-") && name.ends_with(".tmp")
}

/// A record without the time of its import.
fn timeless(path: &Path, text: &str) -> String {
    let mut text = text.to_owned();
    for (later, now) in LATER_TEXTS.iter().zip(NOW_TEXTS) {
        text = text.replace(later, now);
    }
    if path.starts_with("kv/migration_items") {
        let is_hash = |line: &&str| line.contains("_sha256\"");
        text = text.lines().filter(|line| !is_hash(line)).collect();
    }
    text
}

/// The marker without what differs from one import to the next.
fn marker(bytes: Option<&Vec<u8>>) -> Option<Value> {
    let mut marker: Value = serde_json::from_slice(bytes?).ok()?;
    for key in [
        "imported",
        "imported_at",
        "skipped",
        "messages_written",
        "warnings",
    ] {
        marker.as_object_mut()?.remove(key);
    }
    Some(marker)
}
