//! Something else where a file of the store or a source should be: a folder, a
//! pipe, a socket, a device, a link. It is named, nothing is half replaced, no
//! other session waits for it, and nothing that blocks is ever opened.

// Clippy takes only functions marked as tests for tests.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod support;

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, mkfifoat, mknodat};
use serde_json::Value;
use session_import::model::key::Sha256;
use support::{Outcome, Workspace, is_root, message};

const ONE: &str = "session_raw/1777000000_one.jsonl";
const TWO: &str = "session_raw/1777000001_two.jsonl";
const STORE: &str = "tinyagents_store";
/// Whatever hangs is no success.
const LONGEST: Duration = Duration::from_secs(60);

/// Two sessions; the first has a line that is no message, and so a residue.
fn two() -> Workspace {
    let workspace = Workspace::new();
    workspace
        .transcript("1777000000_one", &[&message("user", "a"), "no record"])
        .transcript("1777000001_two", &[&message("user", "b")]);
    workspace
}

fn key(source: &str) -> Sha256 {
    Sha256::of(source.as_bytes())
}

/// Places of files of the first session, relative to the store.
fn places() -> [String; 4] {
    [
        "journal/session.1777000000_one.messages.jsonl".to_owned(),
        "journal/session.1777000000_one.residue.jsonl".to_owned(),
        "kv/sessions/1777000000_one.json".to_owned(),
        format!("kv/migration_items/{}.json", key(ONE)),
    ]
}

#[track_caller]
fn call(workspace: &Workspace, command: &str, arguments: &[&str]) -> Outcome {
    let mut program = workspace.command();
    program
        .timeout(LONGEST)
        .arg(command)
        .arg("-w")
        .arg(workspace.root())
        .args(arguments);
    Outcome::of(&mut program)
}

/// What may lie in a file's place, each made by one of these.
type Thing = (&'static str, fn(&Path));

const FOLDER: Thing = ("a folder", |path| fs::create_dir(path).unwrap());
const PIPE: Thing = ("a pipe", |path| {
    mkfifoat(CWD, path, Mode::RUSR | Mode::WUSR).unwrap();
});
/// Bound where the path is short, and moved: a socket's own may have only
/// about a hundred bytes.
const SOCKET: Thing = ("a socket", |path| {
    let folder = tempfile::tempdir().unwrap();
    let short = folder.path().join("s");
    drop(UnixListener::bind(&short).unwrap());
    fs::rename(&short, path).unwrap();
});
const DEVICE: Thing = ("a device", |path| {
    mknodat(
        CWD,
        path,
        FileType::CharacterDevice,
        Mode::RUSR,
        rustix::fs::makedev(1, 5),
    )
    .unwrap();
});

/// Those that this user can make.
fn things() -> Vec<Thing> {
    let mut things = vec![FOLDER, PIPE, SOCKET];
    if is_root() {
        things.push(DEVICE);
    }
    things
}

fn put(workspace: &Workspace, place: &str, make: fn(&Path)) {
    let path = workspace.path(place);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let _ = fs::remove_file(&path);
    make(&path);
}

fn item(report: &Value, source: &str) -> Value {
    let mut items = report["items"].as_array().unwrap().iter();
    items.find(|item| item["source"] == source).unwrap().clone()
}

#[test]
fn what_lies_in_a_files_place_fails_its_session_alone() {
    for place in places() {
        for (what, make) in things() {
            let context = format!("{what} at {place}");
            let workspace = two();
            put(&workspace, &format!("{STORE}/{place}"), make);
            if place.contains("kv/sessions") {
                // The name is taken, then, and the session gets another one.
                let report = call(&workspace, "run", &["--json"]).code(0).json();
                assert!(item(&report, ONE).to_string().contains("name-taken"));
                continue;
            }
            let before = workspace.tree();
            let plan = call(&workspace, "run", &["--dry-run", "--json"])
                .code(3)
                .json();
            before.assert_same(&workspace.tree());
            let report = call(&workspace, "run", &["--json"]).code(3).json();
            assert_eq!(
                (&report["imported"], &report["failed"]),
                (&1.into(), &1.into()),
                "{context}"
            );
            let failed = item(&report, ONE);
            let told = failed["warnings"].as_array().unwrap().last().unwrap();
            let told = told.as_str().unwrap();
            assert!(told.starts_with("store-write: "), "{told}");
            assert!(
                told.contains(&place) && told.contains("move it away"),
                "{told}"
            );
            assert_eq!(
                item(&plan, ONE)["warnings"],
                failed["warnings"],
                "{context}"
            );
            assert!(!failed.to_string().contains("mended"), "{failed}");
            // The other is in, whole; of the first there is nothing.
            let tree = workspace.tree();
            for other in places().iter().filter(|other| **other != place) {
                assert!(!tree.has(&format!("{STORE}/{other}")), "{context}: {other}");
            }
            assert!(tree.paths("tinyagents_store/kv/migrations").is_empty());
            // Moved away, all is well.
            let path = workspace.path(format!("{STORE}/{place}"));
            fs::rename(&path, workspace.home().join("away")).unwrap();
            call(&workspace, "run", &[]).code(0);
            workspace.read_store().check(|_| true).unwrap();
            call(&workspace, "verify", &[]).code(0);
        }
    }
}

#[test]
fn an_imported_session_keeps_all_of_its_other_files() {
    for place in places() {
        for arguments in [
            &["--force", "--json"][..],
            &["--checksum", "--json"],
            &["--overwrite", "--json"],
        ] {
            let workspace = two();
            call(&workspace, "run", &[]).code(0);
            workspace.append(ONE, message("user", "more") + "\n");
            put(&workspace, &format!("{STORE}/{place}"), FOLDER.1);
            let before = files_of_one(&workspace);
            let report = call(&workspace, "run", arguments).code(3).json();
            assert_eq!(item(&report, ONE)["action"], "failed", "{place}");
            assert!(
                !item(&report, ONE).to_string().contains("mended"),
                "{report}"
            );
            assert!(
                !report["warnings"].to_string().contains("imported again"),
                "{report}"
            );
            assert_eq!(before, files_of_one(&workspace), "{place}");
        }
    }
}

/// The bytes of the first session's files, as far as they are files.
fn files_of_one(workspace: &Workspace) -> Vec<Option<Vec<u8>>> {
    let store = workspace.store();
    places()
        .iter()
        .map(|place| fs::read(store.join(place)).ok())
        .collect()
}

#[test]
fn a_folder_in_a_streams_place_is_no_session_that_is_done() {
    for place in &places()[..3] {
        let workspace = two();
        call(&workspace, "run", &[]).code(0);
        put(&workspace, &format!("{STORE}/{place}"), FOLDER.1);
        if place.contains("residue") {
            // A plain run looks for a stream and a descriptor.
            call(&workspace, "verify", &[]).code(3);
            call(&workspace, "run", &["--checksum"]).code(3);
        } else {
            call(&workspace, "run", &[]).code(3).says(place);
        }
    }
}

#[test]
fn a_link_in_a_files_place_is_replaced_and_never_followed() {
    for place in places() {
        let workspace = two();
        let target = workspace.home().join("target");
        fs::write(&target, "not ours").unwrap();
        workspace.link(format!("{STORE}/{place}"), &target);
        let report = call(&workspace, "run", &["--json", "--overwrite"])
            .code(0)
            .json();
        assert_eq!(report["imported"], 2, "{place}");
        assert_eq!(fs::read(&target).unwrap(), b"not ours");
        if place.contains("kv/sessions") {
            assert!(item(&report, ONE).to_string().contains("name-taken"));
            continue;
        }
        let kind = fs::symlink_metadata(workspace.store().join(&place)).unwrap();
        assert!(kind.is_file(), "{place}");
        call(&workspace, "verify", &[]).code(0);
    }
}

#[test]
fn a_folder_that_is_a_link_is_refused() {
    for folder in ["journal", "kv", "kv/sessions", "kv/migration_items"] {
        let workspace = two();
        let target = workspace.home().join("elsewhere");
        fs::create_dir(&target).unwrap();
        workspace.link(format!("{STORE}/{folder}"), &target);
        call(&workspace, "run", &[])
            .code(1)
            .logs(folder)
            .logs("link");
        assert_eq!(fs::read_dir(&target).unwrap().count(), 0);
    }
}

#[test]
fn a_failure_that_cannot_be_recorded_stops_nothing() {
    let bad = "session_raw/1777000002_bad.jsonl";
    let place = |source| format!("{STORE}/kv/session_import.failed/{}.json", key(source));
    let workspace = two();
    workspace.file(bad, "no header\n");
    // Of the one that fails, and of one that does not.
    put(&workspace, &place(bad), FOLDER.1);
    put(&workspace, &place(TWO), FOLDER.1);
    for arguments in [&["--json"][..], &["--json"], &["--json", "--checksum"]] {
        let report = call(&workspace, "run", arguments).code(3).json();
        assert_eq!(
            (&report["scanned"], &report["failed"]),
            (&3.into(), &1.into())
        );
        assert!(
            report["warnings"]
                .to_string()
                .contains("could not be recorded"),
            "{report}"
        );
        assert!(
            report.to_string().contains(&key(bad).to_string()),
            "{report}"
        );
    }
    workspace.file(bad, workspace.read(TWO));
    fs::remove_dir(workspace.path(place(bad))).unwrap();
    call(&workspace, "run", &[]).code(0);
    let again = call(&workspace, "run", &["--checksum", "--json"])
        .code(0)
        .json();
    let told = again["warnings"].to_string();
    assert!(
        told.contains("leftover") && told.contains("move it away"),
        "{told}"
    );
}

#[test]
fn what_lies_in_the_markers_place_is_told_and_stops_nothing() {
    let place = format!("{STORE}/kv/migrations/session_import_v1.json");
    for (what, make) in things() {
        let workspace = two();
        put(&workspace, &place, make);
        let report = call(&workspace, "run", &["--json"]);
        let json = report.json();
        assert_eq!(json["imported"], 2, "{what}");
        if what == FOLDER.0 {
            // Anything else gives way to a rename.
            let report = report.code(3).json();
            assert!(
                report["warnings"]
                    .to_string()
                    .contains("marker-not-written"),
                "{report}"
            );
        }
        call(&workspace, "status", &[]);
    }
}

#[test]
fn nothing_waits_for_a_pipe_in_the_store() {
    let places = [
        ".session-import.stat",
        ".session-import.lock",
        "kv/migrations/session_import_v1.json",
        "kv/session_import.meta/format.json",
        "kv/session_import.imports/20260101T000000Z-1.json",
        "kv/sessions/other.json",
        "journal/session.other.messages.jsonl",
    ];
    let entry = format!("kv/migration_items/{}.json", key("session_raw/gone.jsonl"));
    let failure = format!(
        "kv/session_import.failed/{}.json",
        key("session_raw/gone.jsonl")
    );
    for place in places.into_iter().chain([entry.as_str(), &failure]) {
        for (_, make) in things() {
            let workspace = two();
            call(&workspace, "run", &[]).code(0);
            put(&workspace, &format!("{STORE}/{place}"), make);
            for command in ["status", "verify", "run", "run", "undo"] {
                // That it ends is the point, and that it says which.
                let outcome = call(&workspace, command, &[]);
                if outcome.code == 1 {
                    assert!(
                        outcome.stderr.contains(place),
                        "{command}, {place}: {}",
                        outcome.stderr
                    );
                }
            }
            call(&workspace, "accept", &["nothing", "--reason", "x"]);
        }
    }
}

#[test]
fn nothing_waits_for_a_pipe_among_the_sources() {
    let places = [
        "session_raw/1777000002_pipe.jsonl",
        "session_raw/02042026/main_0.jsonl",
        "session_raw-work/1777000003_pipe.jsonl",
        "sessions/2026_04_02/main_1.md",
        ".openhuman/subagent_sessions.json",
        "session_db/sessions.db",
        "session_db/sessions.db-wal",
    ];
    for place in places {
        for (_, make) in things() {
            let workspace = two();
            if place.ends_with("-wal") {
                workspace.file("session_db/sessions.db", "");
            }
            put(&workspace, place, make);
            let report = call(&workspace, "run", &["--json"]).code(0).json();
            assert_eq!(report["imported"], 2, "{place}");
            call(&workspace, "status", &[]).code(0);
            call(&workspace, "verify", &[]).code(0);
        }
    }
}

#[test]
fn a_damaged_format_record_says_what_to_do() {
    let workspace = two();
    call(&workspace, "run", &[]).code(0);
    let format = format!("{STORE}/kv/session_import.meta/format.json");
    workspace.file(&format, "{");
    // A plain run has nothing to do and does not get that far.
    workspace.append(ONE, message("user", "more") + "\n");
    for command in ["run", "status", "verify", "undo"] {
        let outcome = call(&workspace, command, &[]).code(1);
        outcome.logs("format.json").logs("remove that file");
    }
    workspace.remove(&format);
    call(&workspace, "run", &["--force"]).code(0);
    call(&workspace, "verify", &[])
        .code(0)
        .says("Nothing is wrong");
}
