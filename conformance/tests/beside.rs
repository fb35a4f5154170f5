//! A writer beside us: the live application writes turn after turn, transcript
//! and store, while imports run in a loop.
//!
//! The application takes no lock, and it makes its streams short itself (it
//! removes a stream and appends to it again). So nothing is judged while it
//! writes. After each import it pauses; by then it has left every stream whole,
//! and whatever is wrong is the importer's doing:
//!
//! - a stream that holds what nobody wrote, or that no reader takes, is never
//!   right;
//! - a stream that an import overtook (its older reading of the source put in
//!   place of a newer mirror, or under a mirror half done) is what can happen
//!   between the importer's last look and its rename. That window is narrow and
//!   cannot be closed (`docs/guarantees.md`), so such streams are counted, and
//!   must be rare;
//! - an import while the application is quiet must then put right what was
//!   merely behind, and spoil nothing. What was overtaken half way is put right
//!   by the application's next turn, which mirrors the session anew.
//!
//! At the end, one import and a `verify` must be clean.
//!
//! `SESSION_IMPORT_BIN` names the program under test (an absolute path);
//! `BESIDE_SECONDS` makes the writer work longer than 5 seconds.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use conformance::{
    Opened as _, V2, check_store, copy_store,
    live::{Pause, Written, message},
};
use serde_json::Value;
use tempfile::TempDir;

/// Both tests want two processors for themselves, writer and importer: where
/// they wait for one, "between two appends" becomes a long time.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn beside_a_writer_that_rewrites_its_transcripts() {
    beside("gen4");
}

#[test]
fn beside_a_writer_that_appends_to_its_transcripts() {
    beside("gen5");
}

fn beside(mode: &str) {
    let Some(program) = env::var_os("SESSION_IMPORT_BIN") else {
        say(&format!(
            "notice: SESSION_IMPORT_BIN is not set, skipped: beside a writer ({mode})"
        ));
        return;
    };
    let seconds = env::var("BESIDE_SECONDS").map_or(5, |s| s.parse().unwrap());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = TempDir::new().unwrap();
    let workspace = dir.path().join("workspace");
    let importer = Importer {
        program: program.into(),
        workspace: workspace.clone(),
    };
    let mut monitor = Monitor::new(&workspace);
    let mut writer = LiveWriter::start(dir.path(), &workspace, mode);

    // The writer starts its round when it resumes. The imports start at another
    // moment of it each time, else they would meet the same session's mirror.
    let mut delays = (0..60).step_by(7).map(Duration::from_millis).cycle();
    let start = Instant::now();
    let mut written = writer.pause();
    while start.elapsed() < Duration::from_secs(seconds) {
        monitor.look_after_quiet_import(&written, &importer.run());
        writer.resume();
        thread::sleep(delays.next().unwrap());
        monitor.note_import_beside_the_writer(&importer.run());
        written = writer.pause();
        monitor.look_after_import_beside_the_writer(&written);
    }
    if monitor.awaits_the_next_turn() {
        writer.resume();
        written = writer.pause();
        monitor.look_after_the_writer_alone(&written);
    }
    writer.stop();

    let last = importer.run();
    assert_eq!(last.code, 0, "the last import: {last:#?}");
    monitor.look_after_quiet_import(&written, &last);
    importer.verify();
    assert_conforms(&importer.store());
    monitor.assert_overtaken_are_rare();
    monitor.report(mode, &written);
}

/// Prints past the test's capture: a skipped test must be seen to be skipped,
/// and the figures of one that passed are wanted.
fn say(line: &str) {
    let line = format!("{line}\n");
    io::stderr().write_all(line.as_bytes()).unwrap();
}

// The writer

/// The running writer; killed when the test fails before its end.
struct LiveWriter {
    child: Child,
    pause: Pause,
}

impl LiveWriter {
    fn start(dir: &Path, workspace: &Path, mode: &str) -> Self {
        let control = dir.join("control");
        fs::create_dir(&control).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_live-writer"))
            .arg(workspace)
            // The test says when it is over; the time is for a writer whose
            // test was killed.
            .args([mode, "86400", "--control"])
            .arg(&control)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self {
            child,
            pause: Pause::new(control),
        }
    }

    /// Makes the writer pause; what it has written.
    fn pause(&mut self) -> Written {
        fs::write(self.pause.asked(), "").unwrap();
        let answered = self.pause.answered();
        self.wait_until(|| answered.exists());
        serde_json::from_slice(&fs::read(answered).unwrap()).unwrap()
    }

    /// Lets the writer go on. Waits until it does, lest the next pause take
    /// this one's answer for its own.
    fn resume(&mut self) {
        fs::remove_file(self.pause.asked()).unwrap();
        let answered = self.pause.answered();
        self.wait_until(|| !answered.exists());
    }

    /// Ends the pausing writer.
    fn stop(mut self) {
        fs::write(self.pause.stop(), "").unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "the writer failed: {status}");
    }

    fn wait_until(&mut self, done: impl Fn() -> bool) {
        let start = Instant::now();
        while !done() {
            // The importer must not make the application fail.
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("the writer failed: {status}");
            }
            assert!(
                start.elapsed() < Duration::from_secs(60),
                "the writer hangs"
            );
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for LiveWriter {
    fn drop(&mut self) {
        // Fails when it has ended, which is as well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

// The importer

struct Importer {
    program: PathBuf,
    workspace: PathBuf,
}

/// An import's exit code, and why each item that failed did so.
#[derive(Debug)]
#[allow(dead_code, reason = "shown whole when a test fails")]
struct Import {
    code: i32,
    failed: BTreeMap<String, BTreeSet<String>>,
    stderr: String,
}

impl Importer {
    fn store(&self) -> PathBuf {
        self.workspace.join("tinyagents_store")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(arguments)
            .arg("-w")
            .arg(&self.workspace)
            // A fixed clock would switch off what is tested here.
            .env_remove("SOURCE_DATE_EPOCH");
        command
    }

    fn run(&self) -> Import {
        let output = self.command(&["run", "--json"]).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let code = output.status.code().unwrap_or(-1);
        assert!(matches!(code, 0 | 3), "exit code {code}: {stderr}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["unreadable"], 0, "{report:#}");
        let failed: BTreeMap<String, BTreeSet<String>> = report["items"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|item| item["action"] == "failed")
            .map(|item| (text(&item["session_key"]), codes(item)))
            .collect();
        assert_eq!(report["failed"], failed.len(), "{report:#}");
        Import {
            code,
            failed,
            stderr,
        }
    }

    fn verify(&self) {
        let output = self.command(&["verify"]).output().unwrap();
        assert!(
            output.status.success(),
            "verify: {}\n{}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

fn codes(item: &Value) -> BTreeSet<String> {
    let diagnostics = item["diagnostics"].as_array().unwrap();
    diagnostics.iter().map(|d| text(&d["code"])).collect()
}

// The monitor

/// What a stream holds, compared with what the writer wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    /// Every message, in order, and nothing else.
    Whole,
    /// The first of them only: an older reading took the mirror's place.
    Behind,
    /// The first of them, then the last of them: an import's rename fell
    /// between two of the mirror's appends.
    Mixed,
    /// The same, within an append: `tinyagents` had read the next offset in
    /// the old file and then wrote the record to the new one.
    Torn,
}

struct Monitor {
    store: PathBuf,
    imports: usize,
    /// Why items failed beside the writer, and how often.
    failed_beside: BTreeMap<String, usize>,
    /// What was found at looks after imports beside the writer.
    looks: BTreeMap<State, usize>,
    /// The streams as they were before the quiet import.
    states: BTreeMap<String, State>,
}

impl Monitor {
    fn new(workspace: &Path) -> Self {
        Self {
            store: workspace.join("tinyagents_store"),
            imports: 0,
            failed_beside: BTreeMap::new(),
            looks: BTreeMap::new(),
            states: BTreeMap::new(),
        }
    }

    /// An item may fail while its files change under the importer; the next
    /// quiet import shows that it does not stay so.
    fn note_import_beside_the_writer(&mut self, import: &Import) {
        self.imports += 1;
        for code in import.failed.values().flatten() {
            *self.failed_beside.entry(code.clone()).or_default() += 1;
        }
    }

    /// The writer, quiet now, left every stream whole; an import was beside it.
    fn look_after_import_beside_the_writer(&mut self, written: &Written) {
        self.states = self.read(written);
        for state in self.states.values() {
            *self.looks.entry(*state).or_default() += 1;
        }
    }

    /// The writer has mirrored its sessions once more, and nobody was beside it.
    fn look_after_the_writer_alone(&mut self, written: &Written) {
        self.states = self.read(written);
        let whole = self.states.values().all(|state| *state == State::Whole);
        assert!(whole, "{:#?}", self.states);
    }

    fn awaits_the_next_turn(&self) -> bool {
        self.states.values().any(|state| *state >= State::Mixed)
    }

    /// An import has run while the writer was quiet.
    fn look_after_quiet_import(&mut self, written: &Written, import: &Import) {
        self.imports += 1;
        let before = |stem: &str| *self.states.get(stem).unwrap_or(&State::Whole);
        for (stem, state) in self.read(written) {
            if matches!(before(&stem), State::Whole | State::Behind) {
                assert_eq!(state, State::Whole, "{stem}: {import:#?}");
            }
        }
        // What agrees with no reading of the source is the application's to
        // put right.
        for (stem, codes) in &import.failed {
            let expected = match before(stem) {
                State::Whole | State::Behind => false,
                State::Mixed => codes.contains("store-diverged"),
                State::Torn => true,
            };
            assert!(expected, "a quiet import failed: {import:#?}");
        }
    }

    fn read(&self, written: &Written) -> BTreeMap<String, State> {
        let store = V2::open(&self.store).unwrap();
        written
            .messages
            .iter()
            .map(|(stem, &count)| (stem.clone(), state(&store, stem, count)))
            .collect()
    }

    fn assert_overtaken_are_rare(&self) {
        let looks: usize = self.looks.values().sum();
        let found = |state| self.looks.get(&state).copied().unwrap_or(0);
        // To be behind, the importer must have been stopped between its last
        // look and its rename for as long as a whole mirror takes.
        let behind = found(State::Behind);
        assert!(behind <= 1 + looks / 100, "{:?}", self.looks);
        // Between two appends, the writer need only have been stopped.
        let mixed = found(State::Mixed) + found(State::Torn);
        assert!(mixed <= 2 + looks / 50, "{:?}", self.looks);
    }

    fn report(&self, mode: &str, written: &Written) {
        say(&format!(
            "beside a writer ({mode}): {} messages in {} sessions, {} imports, \
             looks at a stream {:?}, failed and tried again {:?}",
            written.messages.values().sum::<usize>(),
            written.messages.len(),
            self.imports,
            self.looks,
            self.failed_beside
        ));
    }
}

/// Reads a stream strictly and compares it with the first `count` messages.
#[track_caller]
fn state(store: &V2, stem: &str, count: usize) -> State {
    let stream = format!("session.{stem}.messages");
    let records = store
        .read_from(&stream, 0)
        .unwrap_or_else(|e| panic!("{stream}: {e}"));
    let dense = (0..).zip(&records).all(|(at, (offset, _))| *offset == at);
    let held: Vec<Value> = records
        .into_iter()
        .map(|(_, value)| theirs(value))
        .collect();
    let wanted: Vec<Value> = (0..count).map(|n| message(stem, n)).collect();
    let agree = held.iter().zip(&wanted).take_while(|(a, b)| a == b).count();
    let rest = &held[agree..];
    match (rest.is_empty(), dense) {
        (true, true) if agree == count => State::Whole,
        (true, true) => State::Behind,
        (false, true) if wanted.ends_with(rest) => State::Mixed,
        (false, false) if wanted.ends_with(rest) => State::Torn,
        _ => panic!(
            "{stream}: {agree} messages of {count}, then what nobody wrote, \
             or offsets that are not dense: {rest:#?}"
        ),
    }
}

/// The record without what is the importer's own in it.
fn theirs(mut value: Value) -> Value {
    if let Some(fields) = value.as_object_mut() {
        fields.remove("session_import");
    }
    value
}

/// The store is one that every version reads and writes on in.
fn assert_conforms(store: &Path) {
    let copy = tempfile::tempdir().unwrap();
    copy_store(store, copy.path()).unwrap();
    for outcome in check_store(copy.path(), true).unwrap() {
        assert_eq!(outcome.failures, [], "tinyagents {}", outcome.version);
    }
}
