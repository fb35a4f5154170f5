//! An import that is killed anywhere, and what is left: for each session the
//! old record or the new one, whole; no entry without its journal; and the next
//! run finishes as if nothing had happened.
//!
//! `KILLS=300` kills that often; the default keeps the suite short.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod support;

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use support::{HEADER, Workspace, message};

/// The clocks of a first import and of one over it: they stand, so that stores
/// can be compared.
const FIRST: (&str, &str) = ("1790000000", "2026-09-21T14:13:20.000Z");
const SECOND: (&str, &str) = ("1790000001", "2026-09-21T14:13:21.000Z");

fn kills() -> u64 {
    let kills = std::env::var("KILLS").ok();
    kills.map_or(20, |kills| kills.parse().unwrap())
}

/// A workspace that takes long enough to be killed in.
fn workspace() -> Workspace {
    let workspace = Workspace::new();
    for number in 0..200 {
        fill(&workspace, number, 12);
    }
    workspace
}

fn fill(workspace: &Workspace, number: u64, messages: u64) {
    let mut lines = vec![HEADER.to_owned()];
    lines.extend((0..messages).map(|at| message("user", &format!("message {at} of {number}"))));
    // A line for the residue, so that three files are put in place.
    lines.push("{\"role\":\"user\"}".to_owned());
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    workspace.transcript(&format!("{}_helper", 1_777_700_000 + number), &lines);
}

fn import(workspace: &Workspace, clock: (&str, &str), arguments: &[&str]) -> Child {
    workspace
        .process(arguments)
        .env("SOURCE_DATE_EPOCH", clock.0)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn finish(workspace: &Workspace, clock: (&str, &str), arguments: &[&str]) -> Duration {
    let start = Instant::now();
    let status = import(workspace, clock, arguments).wait().unwrap();
    assert!(status.success(), "{status}");
    start.elapsed()
}

fn kill_after(workspace: &Workspace, clock: (&str, &str), arguments: &[&str], delay: Duration) {
    let mut child = import(workspace, clock, arguments);
    std::thread::sleep(delay);
    child.kill().unwrap();
    child.wait().unwrap();
}

/// What must hold at any moment: every stream reads strictly, and every entry
/// of this clock vouches for files that are there, byte for byte.
fn check(workspace: &Workspace, clock: (&str, &str)) {
    if workspace.store().join("kv/migration_items").exists() {
        let store = workspace.read_store();
        store
            .check(|entry| entry["imported_at"] == clock.1)
            .unwrap();
    }
}

/// Fractions of a time, spread without being regular.
fn moments(whole: Duration, count: u64) -> impl Iterator<Item = Duration> {
    (0..count).map(move |at| {
        let spread = (at * 7919 + 13) % 1000;
        whole.mul_f64(f64::from(u32::try_from(spread).unwrap()) / 900.0)
    })
}

/// The store but for what tells how often it was written: the reports of
/// imports, and the marker with its counts.
fn contents(workspace: &Workspace) -> std::collections::BTreeMap<std::path::PathBuf, Vec<u8>> {
    let mut files = support::store::Store::bytes(&workspace.store());
    files.retain(|path, _| {
        !path.starts_with("kv/session_import.imports") && !path.starts_with("kv/migrations")
    });
    files
}

#[test]
fn a_first_import_that_is_killed_is_finished_by_the_next() {
    let undisturbed = workspace();
    let time = finish(&undisturbed, FIRST, &[]);
    let expected = contents(&undisturbed);
    for delay in moments(time, kills() / 2) {
        let workspace = workspace();
        kill_after(&workspace, FIRST, &[], delay);
        check(&workspace, FIRST);
        finish(&workspace, FIRST, &[]);
        assert!(contents(&workspace) == expected, "killed after {delay:?}");
    }
}

#[test]
fn an_import_over_another_that_is_killed_is_finished_by_the_next() {
    let undisturbed = workspace();
    finish(&undisturbed, FIRST, &[]);
    (0..200).for_each(|number| fill(&undisturbed, number, 13));
    let time = finish(&undisturbed, SECOND, &["--force"]);
    let expected = contents(&undisturbed);
    let workspace = workspace();
    finish(&workspace, FIRST, &[]);
    (0..200).for_each(|number| fill(&workspace, number, 13));
    for delay in moments(time, kills() / 2) {
        kill_after(&workspace, SECOND, &["--force"], delay);
        check(&workspace, SECOND);
    }
    finish(&workspace, SECOND, &[]);
    assert!(contents(&workspace) == expected);
}
