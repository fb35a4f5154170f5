//! Run again: what is done stays done, what changed is found, and nothing
//! that the application or an earlier import left is lost.

// Clippy takes only functions marked as tests for tests.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use session_import::model::key::Sha256;
use support::store::Store;
use support::{HEADER, WRITTEN_AT, Workspace, has_program, is_root, message};

const ONE: &str = "session_raw/1779000000_one.jsonl";
const TWO: &str = "session_raw/1779000001_two.jsonl";

/// Messages `from..to`, a line each.
fn lines(from: usize, to: usize) -> Vec<String> {
    let role = |n| if n % 2 == 0 { "user" } else { "assistant" };
    (from..to)
        .map(|n| message(role(n), &format!("message {n}")))
        .collect()
}

fn transcript(workspace: &Workspace, stem: &str, lines: &[String]) {
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    workspace.transcript(stem, &lines);
}

/// Two sessions: three messages, and two with a line that is none.
fn two() -> Workspace {
    let workspace = Workspace::new();
    transcript(&workspace, "1779000000_one", &lines(0, 3));
    let mut torn = lines(0, 2);
    torn.push(r#"{"role":"assi"#.to_owned());
    transcript(&workspace, "1779000001_two", &torn);
    workspace
}

/// `imported`, `skipped`, `failed` of a run that exits so.
#[track_caller]
fn counts(workspace: &Workspace, arguments: &[&str], code: i32) -> [u64; 3] {
    let arguments = [arguments, &["--json"]].concat();
    let report = workspace.run(&arguments).code(code).json();
    ["imported", "skipped", "failed"].map(|key| report[key].as_u64().unwrap())
}

#[track_caller]
fn items(report: &Value) -> BTreeMap<String, Value> {
    let items = report["items"].as_array().unwrap();
    let named = items.iter().map(|item| {
        let source = item["source"].as_str().unwrap().to_owned();
        (source, item.clone())
    });
    named.collect()
}

/// Contents of the messages of a source's session, checked with all else.
#[track_caller]
fn contents(workspace: &Workspace, source: &str) -> Vec<String> {
    let store = workspace.read_store();
    store.check(|_| true).unwrap();
    let session = store.session(source);
    session.contents().into_iter().map(str::to_owned).collect()
}

/// The texts of the messages that a residue holds because the source no
/// longer does.
#[track_caller]
fn dropped(workspace: &Workspace, source: &str) -> Vec<String> {
    let session = workspace.read_store().session(source);
    let dropped = session
        .residue
        .iter()
        .filter(|value| value["why"] == "dropped");
    dropped
        .map(|value| {
            assert_eq!(value["line"], Value::Null);
            value["record"]["content"].as_str().unwrap().to_owned()
        })
        .collect()
}

fn texts(from: usize, to: usize) -> Vec<String> {
    (from..to).map(|n| format!("message {n}")).collect()
}

/// A file's bytes and inode: a file that is written again has another.
fn fingerprint(path: &Path) -> (Vec<u8>, u64, i64, i64) {
    let stat = fs::metadata(path).unwrap();
    (
        fs::read(path).unwrap(),
        stat.ino(),
        stat.ctime(),
        stat.ctime_nsec(),
    )
}

/// The store's files that were written since.
fn written(
    workspace: &Workspace,
    before: &BTreeMap<PathBuf, (Vec<u8>, u64, i64, i64)>,
) -> Vec<String> {
    let now = all_files(workspace);
    let new = now
        .iter()
        .filter(|(path, print)| before.get(*path) != Some(print));
    new.map(|(path, _)| path.display().to_string()).collect()
}

fn all_files(workspace: &Workspace) -> BTreeMap<PathBuf, (Vec<u8>, u64, i64, i64)> {
    let root = workspace.store();
    let files = Store::bytes(&root).into_keys();
    files
        .map(|path| (path.clone(), fingerprint(&root.join(path))))
        .collect()
}

// --------------------------------------------------------------------------
// Nothing to do

#[test]
fn a_second_run_opens_no_source() {
    if !has_program("strace") {
        return;
    }
    let workspace = Workspace::new();
    for number in 0..50 {
        transcript(
            &workspace,
            &format!("{}_many", 1_779_000_000 + number),
            &lines(0, 2),
        );
    }
    // Files that must be looked into to know what they are.
    transcript(&workspace, "main_0", &lines(0, 2));
    workspace
        .file(
            "session_raw/01042026/main_0.jsonl",
            format!("{HEADER}\n{}\n", message("user", "x")),
        )
        .file(
            "sessions/2026_04_01/main_0.md",
            "# Session transcript — main\n\n- Turns: 1\n",
        )
        .file("sessions/2026_04_01/README.md", "my own notes\n");
    let first = opened(&workspace, &[]);
    let sources = first.iter().filter(|path| path.contains("/session_raw/"));
    assert_eq!(sources.collect::<BTreeSet<_>>().len(), 52);
    assert_eq!(opened(&workspace, &[]), Vec::<String>::new());
    let report = workspace.run(&["--json"]).code(0).json();
    assert_eq!(report["already_done"], true);
    assert_eq!(report["skipped"], report["scanned"]);

    // And one that is touched is the only one opened.
    workspace.mtime("session_raw/1779000007_many.jsonl", WRITTEN_AT + 1);
    // Then the item ledger is read, to know what else is done.
    let mut third = opened(&workspace, &[]);
    third.retain(|path| {
        !["/migration_items/", "/.session-import-"]
            .iter()
            .any(|part| path.contains(part))
    });
    assert!(!third.is_empty());
    let is_it = |path: &String| path.contains("1779000007_many");
    assert!(third.iter().all(is_it), "{third:?}");
}

/// The sources and streams that a run opens, however often.
fn opened(workspace: &Workspace, arguments: &[&str]) -> Vec<String> {
    let trace = workspace.home().join("trace");
    let program = workspace.process(arguments);
    let mut command = std::process::Command::new("strace");
    command
        .args(["-f", "-qq", "-e", "trace=open,openat,openat2", "-o"])
        .arg(&trace)
        .arg(program.get_program())
        .args(program.get_args())
        .env("HOME", workspace.home());
    assert!(command.output().unwrap().status.success());
    let trace = fs::read_to_string(trace).unwrap();
    let named = trace.lines().filter(|line| !line.contains("ENOENT"));
    let named = named.filter_map(|line| line.split('"').nth(1));
    let is_source = |path: &&str| {
        let is_stream = path.contains("/journal/") || path.contains("/migration_items/");
        let ends = [".jsonl", ".md"].iter().any(|end| path.ends_with(end));
        (ends && path.contains("/session")) || is_stream
    };
    named.filter(is_source).map(str::to_owned).collect()
}

#[test]
fn only_what_was_touched_is_read_and_written_again() {
    let workspace = two();
    assert_eq!(counts(&workspace, &[], 0), [2, 0, 0]);
    let before = all_files(&workspace);
    workspace.mtime(ONE, WRITTEN_AT + 1);
    assert_eq!(counts(&workspace, &[], 0), [1, 1, 0]);
    let written = written(&workspace, &before);
    // Its three files, the marker, and the report of this import.
    assert_eq!(written.len(), 5, "{written:#?}");
    assert!(
        !written.iter().any(|path| path.contains("two")),
        "{written:#?}"
    );
    assert_eq!(counts(&workspace, &[], 0), [0, 2, 0]);
}

#[test]
fn other_bytes_at_the_same_size_and_mtime_are_found() {
    let workspace = two();
    counts(&workspace, &[], 0);
    let text = workspace.read(ONE).replace("message 2", "MESSAGE 2");
    workspace.file(ONE, text);
    assert_eq!(counts(&workspace, &[], 0), [1, 1, 0]);
    assert_eq!(
        contents(&workspace, ONE),
        ["message 0", "message 1", "MESSAGE 2"]
    );
    // The same bytes in a new file are no change.
    let text = workspace.read(ONE);
    workspace.remove(ONE).file(ONE, text);
    let before = all_files(&workspace);
    assert_eq!(counts(&workspace, &[], 0), [0, 2, 0]);
    assert_eq!(written(&workspace, &before), Vec::<String>::new());
}

#[test]
fn without_the_cache_the_bytes_decide() {
    let workspace = two();
    counts(&workspace, &[], 0);
    fs::remove_file(workspace.store().join(".session-import.stat")).unwrap();
    let before = all_files(&workspace);
    assert_eq!(counts(&workspace, &[], 0), [0, 2, 0]);
    assert_eq!(written(&workspace, &before), Vec::<String>::new());
    fs::write(
        workspace.store().join(".session-import.stat"),
        "\0garbage\n{}",
    )
    .unwrap();
    assert_eq!(counts(&workspace, &[], 0), [0, 2, 0]);
}

// --------------------------------------------------------------------------
// What comes and changes

#[test]
fn a_failed_item_that_is_repaired_is_taken() {
    let workspace = two();
    workspace.file("session_raw/1779000002_bad.jsonl", "no json at all\n");
    assert_eq!(counts(&workspace, &[], 3), [2, 0, 1]);
    let store = workspace.read_store();
    assert!(
        store
            .failures
            .contains_key("session_raw/1779000002_bad.jsonl")
    );
    assert_eq!(store.marker, None);
    assert_eq!(counts(&workspace, &[], 3), [0, 2, 1]);
    transcript(&workspace, "1779000002_bad", &lines(0, 1));
    assert_eq!(counts(&workspace, &[], 0), [1, 2, 0]);
    let store = workspace.read_store();
    assert!(store.failures.is_empty() && store.marker.is_some());
    // One that fails later keeps what it had.
    workspace.file(ONE, "torn\n");
    assert_eq!(counts(&workspace, &[], 3), [0, 2, 1]);
    assert_eq!(contents(&workspace, ONE), texts(0, 3));
    assert_eq!(workspace.read_store().marker, None);
}

#[test]
fn the_four_runs_of_the_report_about_the_marker() {
    let workspace = Workspace::new();
    let header = |agent: &str| HEADER.replace("helper", agent);
    let good = "session_raw/1777800000_good.jsonl";
    workspace
        .file(
            good,
            format!("{}\n{}\n", header("good"), message("user", "good")),
        )
        .file(
            "session_raw/1777800001_bad.jsonl",
            [message("user", "a"), message("user", "b")].join("\n"),
        );
    let run = |code| {
        let report = workspace.run(&["--json"]).code(code).json();
        ["imported", "skipped", "failed", "messages_written"]
            .map(|key| report[key].as_u64().unwrap())
    };
    assert_eq!(run(3), [1, 0, 1, 1]);
    assert_eq!(workspace.read_store().marker, None);
    let bad = workspace.read("session_raw/1777800001_bad.jsonl");
    workspace.file(
        "session_raw/1777800001_bad.jsonl",
        format!("{}\n{bad}\n", header("bad")),
    );
    assert_eq!(run(0), [1, 1, 0, 2]);
    assert!(workspace.read_store().marker.is_some());
    workspace.file(
        "session_raw/1777800002_late.jsonl",
        format!("{}\n{}\n", header("late"), message("user", "came later")),
    );
    assert_eq!(run(0), [1, 2, 0, 1]);
    workspace.append(good, message("assistant", "grown by one") + "\n");
    assert_eq!(run(0), [1, 2, 0, 2]);
    assert_eq!(contents(&workspace, good), ["good", "grown by one"]);
}

#[test]
fn a_compaction_after_the_import_moves_what_it_replaced() {
    let workspace = two();
    counts(&workspace, &[], 0);
    let compaction = json!({"kind": "compaction", "replacement": [
        {"role": "user", "content": "in short"},
    ]});
    workspace.append(
        ONE,
        format!("{compaction}\n{}\n", message("user", "and on")),
    );
    assert_eq!(counts(&workspace, &[], 0), [1, 1, 0]);
    assert_eq!(contents(&workspace, ONE), ["in short", "and on"]);
    let session = workspace.read_store().session(ONE);
    let whys: Vec<&Value> = session.residue.iter().map(|value| &value["why"]).collect();
    // They are in the source still, so they are not dropped as well.
    assert_eq!(
        whys,
        ["superseded", "superseded", "superseded", "compaction"]
    );
}

#[test]
fn what_a_shrunk_source_no_longer_has_stays() {
    let workspace = two();
    transcript(&workspace, "1779000000_one", &lines(0, 5));
    counts(&workspace, &[], 0);
    transcript(&workspace, "1779000000_one", &lines(0, 3));
    let report = workspace.run(&["--json"]).code(0).json();
    let warnings = items(&report)[ONE]["warnings"].to_string();
    assert!(warnings.contains("dropped-messages"), "{warnings}");
    assert_eq!(contents(&workspace, ONE), texts(0, 3));
    assert_eq!(dropped(&workspace, ONE), texts(3, 5));
    // Over further imports, whatever makes them.
    workspace.mtime(ONE, WRITTEN_AT + 1);
    assert_eq!(counts(&workspace, &[], 0), [1, 1, 0]);
    assert_eq!(dropped(&workspace, ONE), texts(3, 5));
    assert_eq!(counts(&workspace, &["--force"], 0), [2, 0, 0]);
    assert_eq!(dropped(&workspace, ONE), texts(3, 5));
    // Shorter still, and then on another way.
    transcript(&workspace, "1779000000_one", &lines(0, 1));
    assert_eq!(counts(&workspace, &[], 0), [1, 1, 0]);
    assert_eq!(
        dropped(&workspace, ONE),
        [texts(3, 5), texts(1, 3)].concat()
    );
    transcript(
        &workspace,
        "1779000000_one",
        &[lines(0, 1), lines(7, 9)].concat(),
    );
    assert_eq!(counts(&workspace, &[], 0), [1, 1, 0]);
    assert_eq!(
        contents(&workspace, ONE),
        [texts(0, 1), texts(7, 9)].concat()
    );
    assert_eq!(
        dropped(&workspace, ONE),
        [texts(3, 5), texts(1, 3)].concat()
    );
    workspace.read_store().check(|_| true).unwrap();
}

/// A run that is cut off between a session's streams and its entry must not
/// forget the messages that only the store still has.
#[test]
fn what_was_dropped_survives_an_import_that_was_cut_off() {
    let workspace = two();
    transcript(&workspace, "1779000000_one", &lines(0, 5));
    counts(&workspace, &[], 0);
    let root = workspace.store();
    let before = Store::bytes(&root);
    transcript(&workspace, "1779000000_one", &lines(0, 3));
    counts(&workspace, &[], 0);
    let after = Store::bytes(&root);
    let is_new = |path: &&PathBuf| before.get(*path) != after.get(*path);
    let new: Vec<&PathBuf> = after.keys().filter(is_new).collect();
    let place = |part: &str| {
        let found = new
            .iter()
            .find(|path| path.to_string_lossy().contains(part));
        (*found.unwrap_or_else(|| panic!("{part} in {new:?}"))).clone()
    };
    // In the order in which a commit puts them in place.
    let steps = [
        place("one.residue"),
        place("one.messages"),
        place("sessions/1779000000_one"),
        place("migration_items"),
    ];
    for done in 0..=steps.len() {
        for (path, bytes) in &before {
            fs::write(root.join(path), bytes).unwrap();
        }
        for path in after.keys().filter(|path| !before.contains_key(*path)) {
            let _ = fs::remove_file(root.join(path));
        }
        fs::remove_file(root.join("kv/migrations/session_import_v1.json")).unwrap();
        for path in &steps[..done] {
            fs::write(root.join(path), &after[path]).unwrap();
        }
        workspace.run(&[]).code(0);
        assert_eq!(contents(&workspace, ONE), texts(0, 3), "after {done} steps");
        assert_eq!(dropped(&workspace, ONE), texts(3, 5), "after {done} steps");
    }
}

// --------------------------------------------------------------------------
// Names and keys

#[test]
fn a_source_that_moved_takes_its_key_along() {
    let old = "session_raw/02042026/main_0.jsonl";
    let first = "session_raw/01042026/main_0.jsonl";
    let new = "session_raw/main_0.jsonl";
    for grown in [false, true] {
        let workspace = Workspace::new();
        let text = |lines: &[String]| format!("{HEADER}\n{}\n", lines.join("\n"));
        workspace
            .file(first, text(&[message("user", "another day")]))
            .file(old, text(&lines(0, 3)));
        counts(&workspace, &[], 0);
        let key = workspace.read_store().session(old).entry["session_key"].clone();
        assert_eq!(key, "main_0.02042026");
        let streams = workspace.read_store().streams.len();
        workspace.rename(old, new);
        if grown {
            workspace.append(new, lines(3, 5).join("\n") + "\n");
        }
        let expected = if grown { [1, 1, 0] } else { [0, 2, 0] };
        assert_eq!(counts(&workspace, &[], 0), expected);
        let store = workspace.read_store();
        assert!(!store.entries.contains_key(old), "the old entry is gone");
        let session = store.session(new);
        assert_eq!(session.entry["session_key"], key);
        assert_eq!(session.descriptor["session_key"], key);
        assert_eq!(session.descriptor["source"]["jsonl"], new);
        assert_eq!(store.streams.len(), streams);
        let wanted = if grown { texts(0, 5) } else { texts(0, 3) };
        assert_eq!(contents(&workspace, new), wanted);
        assert_eq!(counts(&workspace, &[], 0), [0, 2, 0]);
        assert!(workspace.read_store().marker.is_some());
    }
}

#[test]
fn keys_stay_whatever_comes_and_goes() {
    let workspace = Workspace::new();
    let text = |content: &str| format!("{HEADER}\n{}\n", message("user", content));
    let key = |source: &str| {
        let entry = workspace.read_store().entries[source].clone();
        entry["session_key"].as_str().unwrap().to_owned()
    };
    let (second, first, flat) = (
        "session_raw/02042026/main_0.jsonl",
        "session_raw/01042026/main_0.jsonl",
        "session_raw/main_0.jsonl",
    );
    workspace.file(second, text("second"));
    counts(&workspace, &[], 0);
    assert_eq!(key(second), "main_0");
    // Those that come before it in the order of candidates take nothing away.
    workspace
        .file(first, text("first"))
        .file(flat, text("flat"));
    assert_eq!(counts(&workspace, &[], 0), [2, 1, 0]);
    assert_eq!(key(second), "main_0");
    assert_eq!(key(first), "main_0.01042026");
    assert_eq!(key(flat), "main_0.session_raw");
    // A record whose source is gone may be the only copy left.
    workspace.remove(second);
    workspace.file("session_raw-work/main_0.jsonl", text("work"));
    assert_eq!(counts(&workspace, &["--force"], 0), [3, 0, 0]);
    assert_eq!(contents(&workspace, second), ["second"]);
    assert_eq!(key("session_raw-work/main_0.jsonl"), "main_0.work");
    assert_eq!(key(flat), "main_0.session_raw");
    // And it is found again when it comes back.
    workspace.file(second, text("second"));
    assert_eq!(counts(&workspace, &[], 0)[0], 0);
    assert_eq!(key(second), "main_0");
    let store = workspace.read_store();
    assert_eq!(store.entries.len(), 4);
    store.check(|_| true).unwrap();
}

#[test]
fn a_part_of_the_workspace_gets_the_keys_of_the_whole() {
    let text = |content: &str| format!("{HEADER}\n{}\n", message("user", content));
    let new = || {
        let workspace = two();
        workspace
            .file("session_raw/01042026/main_0.jsonl", text("first"))
            .file("session_raw/02042026/main_0.jsonl", text("second"));
        workspace
    };
    let whole = new();
    counts(&whole, &[], 0);
    let keys = |workspace: &Workspace| -> BTreeMap<String, (Value, Value)> {
        let entries = workspace.read_store().entries.into_iter();
        entries
            .map(|(source, entry)| {
                (
                    source,
                    (entry["session_key"].clone(), entry["stream"].clone()),
                )
            })
            .collect()
    };
    let parts = new();
    for only in ["main_0.*", "*_two", "main_0", "17790*"] {
        let report = parts.run(&["--json", "--only", only]).code(0).json();
        assert!(report["scanned"].as_u64().unwrap() > 0, "{only}");
        assert_eq!(parts.read_store().marker, None, "{only}");
    }
    assert_eq!(keys(&whole), keys(&parts));
}

#[test]
fn a_part_leaves_the_marker_alone_unless_it_fails() {
    let workspace = two();
    counts(&workspace, &[], 0);
    let marker = workspace
        .store()
        .join("kv/migrations/session_import_v1.json");
    let before = fingerprint(&marker);
    transcript(&workspace, "1779000000_one", &lines(0, 4));
    assert_eq!(counts(&workspace, &["--only", "*_one"], 0), [1, 0, 0]);
    assert_eq!(counts(&workspace, &["--only", "nothing*"], 0), [0, 0, 0]);
    assert_eq!(fingerprint(&marker), before);
    // What the others have become is seen by a whole run all the same.
    transcript(&workspace, "1779000001_two", &lines(0, 4));
    assert_eq!(counts(&workspace, &["--only", "*_one"], 0), [0, 1, 0]);
    assert_eq!(counts(&workspace, &[], 0), [1, 1, 0]);
    workspace.file(TWO, "nothing that could be read\n");
    assert_eq!(counts(&workspace, &["--only", "*_two"], 3), [0, 0, 1]);
    assert!(!marker.exists());
}

// --------------------------------------------------------------------------
// The store behind the marker

#[test]
fn a_store_half_deleted_is_mended() {
    let new = || {
        let workspace = two();
        counts(&workspace, &[], 0);
        workspace
    };
    let whole = new();
    let paths: Vec<PathBuf> = Store::bytes(&whole.store()).into_keys().collect();
    assert_eq!(paths.len(), 10, "{paths:?}");
    let wanted = [contents(&whole, ONE), contents(&whole, TWO)];
    let residue = whole.read_store().session(TWO).residue;
    for index in 0..paths.len() {
        let workspace = new();
        // The report of an import has its time for a name.
        let path = Store::bytes(&workspace.store())
            .into_keys()
            .nth(index)
            .unwrap();
        fs::remove_file(workspace.store().join(&path)).unwrap();
        let name = path.display().to_string();
        // Whether a residue is there is not looked at for each of a hundred
        // thousand sessions: a part of it may be compared on request.
        let arguments: &[&str] = if name.contains("residue") {
            &["--checksum"]
        } else {
            &[]
        };
        workspace.run(arguments).code(0);
        let found = [contents(&workspace, ONE), contents(&workspace, TWO)];
        assert_eq!(found, wanted, "{name}");
        let store = workspace.read_store();
        assert_eq!(store.session(TWO).residue, residue, "{name}");
        assert!(store.marker.is_some(), "{name}");
        // The one is a log; the other is written with the next import, and
        // until then the store is in its workspace and in the first format.
        let waits = name.contains("imports") || name.contains("meta");
        assert!(waits || workspace.store().join(&path).exists(), "{name}");
        assert_eq!(counts(&workspace, &[], 0), [0, 2, 0], "{name}");
    }
    // All of it at once but the entries and the marker.
    let workspace = new();
    fs::remove_dir_all(workspace.store().join("journal")).unwrap();
    fs::remove_dir_all(workspace.store().join("kv/sessions")).unwrap();
    assert_eq!(counts(&workspace, &[], 0), [2, 0, 0]);
    assert_eq!(
        [contents(&workspace, ONE), contents(&workspace, TWO)],
        wanted
    );
}

#[test]
fn checksum_mends_what_is_damaged() {
    let workspace = two();
    counts(&workspace, &[], 0);
    let root = workspace.store();
    let wanted = Store::bytes(&root);
    for path in wanted
        .keys()
        .filter(|path| !path.to_string_lossy().contains("session_import"))
    {
        if path.starts_with("kv/migration_items") {
            continue;
        }
        let mut bytes = wanted[path].clone();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(root.join(path), &bytes).unwrap();
        assert_eq!(
            counts(&workspace, &["--checksum"], 0),
            [1, 1, 0],
            "{path:?}"
        );
        workspace.read_store().check(|_| true).unwrap();
        assert_eq!(contents(&workspace, ONE), texts(0, 3));
    }
    assert_eq!(counts(&workspace, &["--checksum"], 0), [0, 2, 0]);
    // Its own, where an entry is what is damaged: it vouches for nothing then.
    for path in wanted
        .keys()
        .filter(|path| path.starts_with("kv/migration_items"))
    {
        fs::write(root.join(path), "{\"version\":1,").unwrap();
        assert_eq!(
            counts(&workspace, &["--checksum"], 0),
            [1, 1, 0],
            "{path:?}"
        );
        workspace.read_store().check(|_| true).unwrap();
    }
}

// --------------------------------------------------------------------------
// The live application

/// Writes a stream as the application does: removed, then message by message,
/// each with a time of its own.
fn mirror(workspace: &Workspace, name: &str, lines: &[String], descriptor: Option<Value>) {
    let journal = workspace.store().join("journal");
    let sessions = workspace.store().join("kv/sessions");
    for folder in [&journal, &sessions] {
        fs::create_dir_all(folder).unwrap();
    }
    let mut text = String::new();
    for (offset, line) in lines.iter().enumerate() {
        let value: Value = serde_json::from_str(line).unwrap();
        let ms = 1_777_709_500_000 + offset;
        text += &format!("{{\"offset\":{offset},\"value\":{value},\"created_at_ms\":{ms}}}\n");
    }
    fs::write(journal.join(format!("session.{name}.messages.jsonl")), text).unwrap();
    if let Some(descriptor) = descriptor {
        let text = format!("{descriptor:#}");
        fs::write(sessions.join(format!("{name}.json")), text).unwrap();
    }
}

/// A descriptor as the application puts it.
fn descriptor(name: &str, imported_at: &str) -> Value {
    json!({
        "session_key": name, "parent_session_key": null, "thread_id": "thr-1",
        "thread_id_synthesized": false, "task_id": null, "run_ids": [],
        "stream": format!("session.{name}.messages"), "dispatcher": "native",
        "agent_name": "helper", "agent_id": null, "agent_type": null, "provider": null,
        "model": null, "created": "c", "updated": "u", "turn_count": 1,
        "usage": {"input": 1, "output": 1, "cached_input": 0, "cost_usd": 0.0},
        "source": {"jsonl": format!("session_raw/{name}.jsonl"), "md": null},
        "import": {"version": 1, "imported_at": imported_at, "warnings": 0},
    })
}

const NAME: &str = "1779000000_one";
const BY_APPLICATION: &str = "2026-05-02T08:11:40.000Z";

fn stream(workspace: &Workspace, name: &str) -> PathBuf {
    let file = format!("journal/session.{name}.messages.jsonl");
    workspace.store().join(file)
}

/// What was done about the first session, and what is said about it.
#[track_caller]
fn action(workspace: &Workspace, arguments: &[&str], code: i32) -> (String, String) {
    let arguments = [arguments, &["--json"]].concat();
    let report = workspace.run(&arguments).code(code).json();
    let item = items(&report)[ONE].clone();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (text(&item["action"]), item["diagnostics"].to_string())
}

#[test]
fn a_stream_that_the_application_wrote_on_in_is_kept() {
    let workspace = two();
    counts(&workspace, &[], 0);
    mirror(
        &workspace,
        NAME,
        &lines(0, 5),
        Some(descriptor(NAME, BY_APPLICATION)),
    );
    let before = fingerprint(&stream(&workspace, NAME));
    // The source has one turn more as well, and the store still more.
    transcript(&workspace, NAME, &lines(0, 4));
    let (what, why) = action(&workspace, &[], 0);
    assert_eq!(what, "skipped_store_ahead", "{why}");
    assert!(why.contains("store-ahead"), "{why}");
    assert_eq!(action(&workspace, &[], 0).0, "skipped_store_ahead");
    assert_eq!(action(&workspace, &["--force"], 0).0, "skipped_store_ahead");
    assert_eq!(fingerprint(&stream(&workspace, NAME)), before);
    // The source catches up and goes past it.
    transcript(&workspace, NAME, &lines(0, 6));
    assert_eq!(action(&workspace, &[], 0).0, "imported");
    assert_eq!(contents(&workspace, ONE), texts(0, 6));
    assert_eq!(dropped(&workspace, ONE), Vec::<String>::new());
}

#[test]
fn a_stream_that_went_another_way_is_nobodys_to_replace() {
    let workspace = two();
    counts(&workspace, &[], 0);
    let other = [lines(0, 2), lines(10, 12)].concat();
    mirror(
        &workspace,
        NAME,
        &other,
        Some(descriptor(NAME, BY_APPLICATION)),
    );
    let before = fingerprint(&stream(&workspace, NAME));
    transcript(&workspace, NAME, &lines(0, 4));
    for arguments in [&[][..], &["--force"], &["--checksum"]] {
        let (what, why) = action(&workspace, arguments, 3);
        assert_eq!(what, "failed", "{arguments:?}");
        assert!(why.contains("store-diverged"), "{why}");
    }
    assert_eq!(fingerprint(&stream(&workspace, NAME)), before);
    assert_eq!(workspace.read_store().marker, None);
    assert_eq!(action(&workspace, &["--overwrite"], 0).0, "imported");
    assert_eq!(contents(&workspace, ONE), texts(0, 4));
    let entry = workspace.read_store().session(ONE).entry;
    assert!(
        entry
            .get("replaced")
            .is_some_and(|replaced| !replaced.is_null())
    );
    assert!(workspace.read_store().marker.is_some());
}

#[test]
fn a_stream_of_the_application_without_an_entry() {
    for (there, expected) in [
        (lines(0, 2), "imported"),
        (lines(0, 3), "imported"),
        (lines(0, 5), "skipped_store_ahead"),
        (lines(7, 9), "failed"),
    ] {
        let workspace = two();
        mirror(
            &workspace,
            NAME,
            &there,
            Some(descriptor(NAME, BY_APPLICATION)),
        );
        let before = fs::read(stream(&workspace, NAME)).unwrap();
        let code = if expected == "failed" { 3 } else { 0 };
        assert_eq!(action(&workspace, &[], code).0, expected, "{there:?}");
        if expected == "imported" {
            assert_eq!(contents(&workspace, ONE), texts(0, 3));
            let entry = workspace.read_store().session(ONE).entry;
            assert!(entry.get("replaced").is_some(), "{entry:#}");
        } else {
            assert_eq!(fs::read(stream(&workspace, NAME)).unwrap(), before);
            assert!(!workspace.read_store().entries.contains_key(ONE));
        }
    }
}

#[test]
fn a_damaged_stream_is_not_taken_for_one_that_was_written_on() {
    let workspace = two();
    counts(&workspace, &[], 0);
    let path = stream(&workspace, NAME);
    let whole = fs::read_to_string(&path).unwrap();
    for damaged in [
        whole.replace("message 1", "message X"),
        whole.lines().take(2).collect::<Vec<_>>().join("\n"),
        whole.clone() + "{\"offset\":3,\"value\":{\"role\n",
        String::new(),
    ] {
        fs::write(&path, damaged).unwrap();
        // What is done is not looked into; asked to, it is written again.
        assert_eq!(counts(&workspace, &[], 0), [0, 2, 0]);
        assert_eq!(action(&workspace, &["--checksum"], 0).0, "imported");
        assert_eq!(contents(&workspace, ONE), texts(0, 3));
    }
}

#[test]
fn a_store_of_the_earlier_importer_is_taken_over() {
    let workspace = two();
    let before = "2026-05-03T10:00:00.000Z";
    // It knew nothing of what the reader drops, and lost a message on its way.
    mirror(
        &workspace,
        NAME,
        &lines(0, 2),
        Some(descriptor(NAME, before)),
    );
    let items_folder = workspace.store().join("kv/migration_items");
    let markers = workspace.store().join("kv/migrations");
    for folder in [&items_folder, &markers] {
        fs::create_dir_all(folder).unwrap();
    }
    let size = fs::metadata(workspace.path(ONE)).unwrap().len();
    let entry = json!({
        "version": 1, "session_key": NAME, "source": ONE, "size": size,
        "mtime_ms": WRITTEN_AT * 1000, "stream": format!("session.{NAME}.messages"),
        "messages": 3, "imported_at": before,
    });
    let key = Sha256::of(ONE.as_bytes()).to_string();
    fs::write(items_folder.join(format!("{key}.json")), entry.to_string()).unwrap();
    let marker = json!({
        "version": 1, "imported_at": before, "scanned": 1, "imported": 1, "skipped": 0,
        "failed": 0, "messages_written": 3, "warnings": [],
    });
    fs::write(markers.join("session_import_v1.json"), marker.to_string()).unwrap();
    assert_eq!(counts(&workspace, &[], 0), [2, 0, 0]);
    assert_eq!(contents(&workspace, ONE), texts(0, 3));
    let store = workspace.read_store();
    let entry = store.session(ONE).entry;
    assert_eq!(entry["session_key"], NAME);
    assert_eq!(entry["replaced"]["imported_at"], before);
    assert_eq!(store.marker.unwrap()["tool"]["name"], "session-import");
    assert_eq!(counts(&workspace, &[], 0), [0, 2, 0]);
}

// --------------------------------------------------------------------------
// Whose files they are

#[test]
fn an_import_by_root_leaves_files_that_the_owner_can_write() {
    if !is_root() {
        eprintln!("skipped: only root can give files away");
        return;
    }
    let workspace = two();
    workspace.file("session_raw/1779000002_bad.jsonl", "no json at all\n");
    for entry in walkdir::WalkDir::new(workspace.root()) {
        std::os::unix::fs::chown(entry.unwrap().path(), Some(1234), Some(4321)).unwrap();
    }
    workspace.run(&[]).code(3);
    workspace.remove("session_raw/1779000002_bad.jsonl");
    workspace.run(&["--force"]).code(0);
    let mut seen = 0;
    for entry in walkdir::WalkDir::new(workspace.store()) {
        let entry = entry.unwrap();
        let stat = entry.metadata().unwrap();
        let mode = if stat.is_dir() { 0o700 } else { 0o600 };
        assert_eq!((stat.uid(), stat.gid()), (1234, 4321), "{:?}", entry.path());
        assert_eq!(stat.mode() & 0o7777, mode, "{:?}", entry.path());
        seen += 1;
    }
    assert!(seen > 15);
}
