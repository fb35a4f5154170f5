//! Killed anywhere: an import that ends at a random moment leaves of every
//! session the old or the new record, whole, and the next one finishes.
//!
//! `KILLS=300 cargo test --test killed` for more than the usual few.

// Clippy takes only functions marked as tests for tests.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr
)]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use support::store::Store;
use support::{HEADER, Outcome, WRITTEN_AT, message, program};
use tempfile::TempDir;

const SESSIONS: usize = 240;

/// Every file of a store without the times of imports.
type Timeless = BTreeMap<PathBuf, String>;

#[test]
fn killed_during_a_first_import() {
    let place = Place::new(&[], |_| ());
    assert!(place.old.is_empty());
    place.kill_often();
}

#[test]
fn killed_while_everything_is_imported_anew() {
    let place = Place::new(&["--force"], |workspace| {
        run(workspace, &[]).code(0);
        for number in 0..SESSIONS {
            // A third grows, a third gets shorter, a third stays.
            match number % 3 {
                0 => session(workspace, number, messages(number) + 1),
                1 => session(workspace, number, messages(number) - 1),
                _ => {}
            }
        }
    });
    assert!(place.old.len() > 3 * SESSIONS);
    place.kill_often();
}

#[test]
fn stopped_in_good_order() {
    let place = Place::new(&[], |_| ());
    let mut stopped = 0;
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        for (arguments, share) in [(&["-j", "1"][..], 4), (&[], 3), (&["--force"], 2)] {
            let workspace = place.copy();
            let mut child = spawn(workspace.path(), arguments);
            wait_for(workspace.path(), &mut child, SESSIONS / share);
            let _ = kill_process(Pid::from_child(&child), signal);
            let ended = child.wait().unwrap().code();
            // It may have been too fast.
            assert!(
                [Some(code), Some(0)].contains(&ended),
                "{signal:?}: {ended:?}"
            );
            stopped += usize::from(ended == Some(code));
            let root = store(workspace.path());
            place.is_whole(&root, &BTreeSet::new()).unwrap();
            assert_eq!(temporary(&root), Vec::<PathBuf>::new());
            let mut verify = command("verify", workspace.path());
            Outcome::of(&mut verify).code(0);
            place.is_finished(workspace.path()).unwrap();
        }
    }
    assert!(stopped > 0, "no signal came in time");
}

/// A workspace that waits for an import, and what that comes to.
struct Place {
    arguments: &'static [&'static str],
    base: TempDir,
    old: Timeless,
    new: Timeless,
    /// How long an undisturbed import takes.
    duration: Duration,
}

impl Place {
    fn new(arguments: &'static [&'static str], prepare: impl Fn(&Path)) -> Self {
        let base = folder();
        for number in 0..SESSIONS {
            session(base.path(), number, messages(number));
        }
        prepare(base.path());
        let place = Self {
            arguments,
            old: timeless(&store(base.path())),
            new: Timeless::new(),
            base,
            duration: Duration::ZERO,
        };
        let undisturbed = place.copy();
        let started = Instant::now();
        run(undisturbed.path(), arguments).code(0);
        Self {
            duration: started.elapsed(),
            new: timeless(&store(undisturbed.path())),
            ..place
        }
    }

    fn copy(&self) -> TempDir {
        let copy = folder();
        let from = self.base.path();
        for entry in walkdir::WalkDir::new(from) {
            let entry = entry.unwrap();
            let target = copy.path().join(entry.path().strip_prefix(from).unwrap());
            if entry.file_type().is_dir() {
                fs::create_dir_all(target).unwrap();
                continue;
            }
            fs::copy(entry.path(), &target).unwrap();
            let modified = entry.metadata().unwrap().modified().unwrap();
            let file = fs::File::options().append(true).open(target).unwrap();
            file.set_modified(modified).unwrap();
        }
        copy
    }

    fn kill_often(&self) {
        let kills = std::env::var("KILLS").map_or(20, |text| text.parse::<usize>().unwrap());
        let mut random = Random::new();
        let seed = random.0;
        let mut killed = 0;
        // The two tests share them.
        for number in 0_usize.. {
            if killed >= kills / 2 {
                break;
            }
            assert!(
                number < 10 * kills,
                "every import is over before it is killed"
            );
            let workspace = self.copy();
            let root = store(workspace.path());
            // Some are killed again and again before they may finish.
            for again in 0..1 + number % 3 {
                let seen = times(&root);
                let mut child = spawn(workspace.path(), self.arguments);
                std::thread::sleep(self.duration.mul_f64(random.fraction() * 1.1));
                let _ = kill_process(Pid::from_child(&child), Signal::KILL);
                killed += usize::from(child.wait().unwrap().code().is_none());
                if let Err(what) = self.is_whole(&root, &seen) {
                    panic!("seed {seed}, round {number}.{again}: {what}");
                }
            }
            if let Err(what) = self.is_finished(workspace.path()) {
                panic!("seed {seed}, round {number}, the next import: {what}");
            }
        }
        eprintln!("{killed} imports were killed");
    }

    /// Of every file the old or the new content; no entry of the new import
    /// without all that it vouches for; no marker that says too much. Entries of
    /// the imports at the times `seen` may have the files of the one that was
    /// killed beside them, until the next one.
    fn is_whole(&self, root: &Path, seen: &BTreeSet<String>) -> Result<(), String> {
        let found = timeless(root);
        let (mut not_old, mut not_new) = (Vec::new(), Vec::new());
        for path in self.old.keys().chain(self.new.keys()).chain(found.keys()) {
            let [old, new, found] = [&self.old, &self.new, &found].map(|files| files.get(path));
            if found != old && found != new {
                return Err(format!(
                    "{} is neither old nor new: {found:?}",
                    path.display()
                ));
            }
            if found != old {
                not_old.push(path.display());
            }
            if found != new {
                not_new.push(path.display());
            }
        }
        let before = Store::try_read(&store(self.base.path()))?;
        let now = Store::try_read(root)?;
        now.check(|entry| !seen.contains(&time(entry)))?;
        match now.marker {
            Some(marker) if before.marker.as_ref() == Some(&marker) && !not_old.is_empty() => Err(
                format!("the old marker is there, but also the new {}", not_old[0]),
            ),
            Some(marker) if before.marker.as_ref() != Some(&marker) && !not_new.is_empty() => {
                Err(format!("there is a marker, but not {}", not_new[0]))
            }
            _ => Ok(()),
        }
    }

    /// One more import, and all is as if there had been no other.
    fn is_finished(&self, workspace: &Path) -> Result<(), String> {
        let root = store(workspace);
        run(workspace, self.arguments).code(0);
        let found = timeless(&root);
        for path in self.new.keys().chain(found.keys()) {
            let (new, found) = (self.new.get(path), found.get(path));
            if new != found {
                return Err(format!("{} differs\n{new:?}\n{found:?}", path.display()));
            }
        }
        let store = Store::try_read(&root)?;
        store.check(|_| true)?;
        if store.marker.is_none() || !temporary(&root).is_empty() {
            return Err(format!("{:?} {:?}", store.marker, temporary(&root)));
        }
        let report = run(workspace, &["--json"]).code(0).json();
        assert_eq!(report["skipped"], SESSIONS);
        Outcome::of(&mut command("verify", workspace)).code(0);
        Ok(())
    }
}

fn messages(number: usize) -> usize {
    2 + number * 7 % 40
}

/// One in four has a line that is no message, and so a residue.
fn session(workspace: &Path, number: usize, messages: usize) {
    let folder = workspace.join("session_raw");
    fs::create_dir_all(&folder).unwrap();
    let mut text = format!("{HEADER}\n");
    for message_number in 0..messages {
        let content = format!("message {message_number} {}", "x".repeat(number));
        text += &message("user", &content);
        text.push('\n');
    }
    if number.is_multiple_of(4) {
        text += "{\"role\":\"assi";
    }
    let path = folder.join(format!("{}_many.jsonl", 1_779_000_000 + number));
    fs::write(&path, text).unwrap();
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(WRITTEN_AT);
    let file = fs::File::options().append(true).open(path).unwrap();
    file.set_modified(time).unwrap();
}

fn folder() -> TempDir {
    // In memory, where that is possible: what a killed process has written is
    // there whether it was flushed or not.
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

fn store(workspace: &Path) -> PathBuf {
    workspace.join("tinyagents_store")
}

fn command(name: &str, workspace: &Path) -> assert_cmd::Command {
    let mut command = program();
    command
        .args([name, "-w"])
        .arg(workspace)
        .env("HOME", workspace);
    command
}

fn run(workspace: &Path, arguments: &[&str]) -> Outcome {
    Outcome::of(command("run", workspace).args(arguments))
}

fn spawn(workspace: &Path, arguments: &[&str]) -> Child {
    let program = command("run", workspace);
    let mut command = Command::new(program.get_program());
    command
        .args(program.get_args())
        .args(arguments)
        .env_remove("SOURCE_DATE_EPOCH")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.spawn().unwrap()
}

/// Until so many files were begun, or it is over.
fn wait_for(workspace: &Path, child: &mut Child, files: usize) {
    let journals = store(workspace).join("journal");
    let count = || fs::read_dir(&journals).map_or(0, Iterator::count);
    while count() < files && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The times of the imports that the item ledger knows.
fn times(root: &Path) -> BTreeSet<String> {
    Store::read(root).entries.values().map(time).collect()
}

fn time(entry: &Value) -> String {
    entry["imported_at"].to_string()
}

/// What an import that was killed left under a temporary name.
fn temporary(root: &Path) -> Vec<PathBuf> {
    let files = Store::bytes(root).into_keys();
    files.filter(|path| is_temporary(path)).collect()
}

fn is_temporary(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with(".session-import-") && name.ends_with(".tmp")
}

/// Every file that an import vouches for, without what tells when that was:
/// times, and hashes over them. Apart from these are the log of imports, and
/// the marker, which counts what the last import had to do.
fn timeless(root: &Path) -> Timeless {
    let files = Store::bytes(root).into_iter();
    let apart = ["kv/session_import.imports", "kv/migrations"];
    let files = files.filter(|(path, _)| {
        !is_temporary(path) && !apart.iter().any(|folder| path.starts_with(folder))
    });
    files
        .map(|(path, bytes)| {
            let text = String::from_utf8(bytes).unwrap();
            let without = match path.extension().is_some_and(|end| end == "jsonl") {
                true => text
                    .split_inclusive('\n')
                    .map(|line| {
                        let (record, _) =
                            line.split_once(",\"created_at_ms\":").unwrap_or((line, ""));
                        let end = if line.ends_with('\n') { "\n" } else { "" };
                        format!("{record}{end}")
                    })
                    .collect(),
                false => {
                    let is_of_time = |line: &&str| {
                        line.contains("\"imported_at\"") || line.contains("_sha256\"")
                    };
                    text.lines().filter(|line| !is_of_time(line)).collect()
                }
            };
            (path, without)
        })
        .collect()
}

/// Numbers that nobody foresees; a failing test names its seed.
struct Random(u64);

impl Random {
    fn new() -> Self {
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap();
        Self(now.as_nanos() as u64 | 1)
    }

    fn fraction(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % 10_000) as f64 / 10_000.0
    }
}
