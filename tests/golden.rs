//! Every `fixtures/openhuman/<case>`: its workspace is imported, and the whole
//! store that comes out is compared with `expected/`, byte for byte.
//!
//! `UPDATE_GOLDENS=1` records `expected/` and `report.json` anew. What is
//! recorded must be read and held against the case's `case.md`, which was
//! written first and by the contract (`fixtures/README.md`).

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use serde_json::Value;

/// A checkout keeps no times; item ledger entries in `store/` count on this one.
const MTIME: u64 = 1_795_000_000;
const SOURCE_DATE_EPOCH: &str = "1800000000";

/// Stands for the copy's path in `report.json`.
const WORKSPACE: &str = "{workspace}";

type Files = BTreeMap<String, Vec<u8>>;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/openhuman")
}

fn cases() -> Vec<PathBuf> {
    let mut cases: Vec<_> = fs::read_dir(fixtures())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect();
    cases.sort();
    cases
}

/// All files below a folder, by relative path.
fn files(root: &Path) -> Files {
    let walk = walkdir::WalkDir::new(root).into_iter().map(Result::unwrap);
    walk.filter(|entry| entry.file_type().is_file())
        .map(|entry| {
            let relative = entry.path().strip_prefix(root).unwrap();
            let relative = relative.to_str().unwrap().to_owned();
            (relative, fs::read(entry.path()).unwrap())
        })
        .collect()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for (relative, bytes) in files(from) {
        let path = to.join(relative);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

fn set_mtimes(root: &Path) {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(MTIME);
    for relative in files(root).keys() {
        let file = fs::File::options()
            .write(true)
            .open(root.join(relative))
            .unwrap();
        file.set_modified(time).unwrap();
    }
}

/// What a run must not touch: bytes, size, mtime and change time.
fn sources(root: &Path) -> BTreeMap<String, (Vec<u8>, i64, i64)> {
    use std::os::unix::fs::MetadataExt as _;
    files(root)
        .into_iter()
        .filter(|(relative, _)| !relative.starts_with("tinyagents_store/"))
        .map(|(relative, bytes)| {
            let metadata = fs::metadata(root.join(&relative)).unwrap();
            (
                relative,
                (bytes, metadata.mtime_nsec(), metadata.ctime_nsec()),
            )
        })
        .collect()
}

struct Outcome {
    code: i32,
    report: Value,
    store: Files,
}

fn run(case: &Path) -> Outcome {
    let folder = tempfile::tempdir().unwrap();
    let workspace = folder.path().join("workspace");
    copy(&case.join("workspace"), &workspace);
    let store = workspace.join("tinyagents_store");
    if case.join("store").is_dir() {
        copy(&case.join("store"), &store);
    }
    set_mtimes(&workspace);
    let before = sources(&workspace);
    let arguments = fs::read_to_string(case.join("args")).unwrap_or_default();
    let output = Command::new(env!("CARGO_BIN_EXE_session-import"))
        .args(["run", "--json", "--workspace"])
        .arg(&workspace)
        .args(arguments.lines())
        .env("SOURCE_DATE_EPOCH", SOURCE_DATE_EPOCH)
        .env_remove("OPENHUMAN_STORAGE_URL")
        .output()
        .unwrap();
    assert_eq!(
        sources(&workspace),
        before,
        "{}: a source was touched",
        case.display()
    );
    let text = String::from_utf8(output.stdout).unwrap();
    let text = text.replace(workspace.to_str().unwrap(), WORKSPACE);
    let mut written = match store.is_dir() {
        true => files(&store),
        false => Files::new(),
    };
    // Empty when nobody holds it, and made also where nothing else is.
    assert_eq!(
        written.remove(".session-import.lock").unwrap_or_default(),
        b""
    );
    Outcome {
        code: output.status.code().unwrap(),
        report: serde_json::from_str(&text).unwrap_or_else(|error| {
            panic!("{}: {error} in {text:?}", case.display());
        }),
        store: written,
    }
}

fn record(case: &Path, outcome: &Outcome) {
    let expected = case.join("expected");
    if expected.exists() {
        fs::remove_dir_all(&expected).unwrap();
    }
    for (relative, bytes) in &outcome.store {
        let path = expected.join(relative);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    fs::write(case.join("report.json"), report(outcome)).unwrap();
}

/// The report and the exit code, as `report.json` has them.
fn report(outcome: &Outcome) -> String {
    let value = serde_json::json!({ "exit": outcome.code, "report": outcome.report });
    format!("{value:#}\n")
}

/// Files that differ, in words.
fn differences(expected: &Files, found: &Files) -> Vec<String> {
    let mut all = Vec::new();
    for name in expected.keys().filter(|name| !found.contains_key(*name)) {
        all.push(format!("missing: {name}"));
    }
    for (name, bytes) in found {
        let Some(wanted) = expected.get(name) else {
            all.push(format!("not expected: {name}"));
            continue;
        };
        if wanted == bytes {
            continue;
        }
        let (wanted, found) = (
            String::from_utf8_lossy(wanted),
            String::from_utf8_lossy(bytes),
        );
        let at = wanted.lines().zip(found.lines()).position(|(a, b)| a != b);
        let at = at.unwrap_or(0);
        let line = |text: &str| text.lines().nth(at).unwrap_or("(no such line)").to_owned();
        all.push(format!(
            "{name}, line {}:\n  expected {}\n  found    {}",
            at + 1,
            line(&wanted),
            line(&found)
        ));
    }
    all
}

#[test]
fn every_case_gives_the_store_that_is_expected() {
    let update = std::env::var_os("UPDATE_GOLDENS").is_some();
    let schema = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/schema/run.json");
    let schema = serde_json::from_slice(&fs::read(schema).unwrap()).unwrap();
    let schema = jsonschema::validator_for(&schema).unwrap();
    let (mut wrong, mut checked) = (Vec::new(), 0);
    for case in cases() {
        let name = case.file_name().unwrap().to_str().unwrap().to_owned();
        let outcome = run(&case);
        // A run that could not start gives an error report instead.
        if outcome.report.get("error").is_none() {
            let errors: Vec<_> = schema.iter_errors(&outcome.report).collect();
            assert!(errors.is_empty(), "{name}: {errors:#?}");
        }
        if update {
            record(&case, &outcome);
            continue;
        }
        let expected = match case.join("expected").is_dir() {
            true => files(&case.join("expected")),
            false => Files::new(),
        };
        let mut found = differences(&expected, &outcome.store);
        let wanted = fs::read_to_string(case.join("report.json")).unwrap_or_default();
        if wanted != report(&outcome) {
            let files = |text: String| Files::from([("report.json".to_owned(), text.into_bytes())]);
            found.extend(differences(&files(wanted), &files(report(&outcome))));
        }
        checked += 1;
        if !found.is_empty() {
            wrong.push(format!("== {name}\n{}", found.join("\n")));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} cases differ\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(update || checked > 150, "only {checked} cases were found");
}
