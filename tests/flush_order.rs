//! The order in which the real program makes its files durable, seen from its
//! system calls (`tinyagents-store.md`, Writing): no item ledger entry is put in
//! place before the data of what it vouches for was flushed, and the marker not
//! before the entries and their folder.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr
)]

mod support;

use std::collections::BTreeMap;
use std::process::Command;

use support::{HEADER, Workspace, has_program, message};

/// A step that matters for durability, in the order in which it ended.
#[derive(Debug, PartialEq)]
enum Step {
    /// Bytes went to a file.
    Write(String),
    /// A file, a folder, or (`None`) the whole file system was flushed.
    Flush(Option<String>),
    /// A file got another name.
    Rename(String, String),
}

/// Steps from the output of `strace -f -y`, where descriptors have their paths.
fn steps(trace: &str) -> Vec<Step> {
    let mut begun: BTreeMap<&str, &str> = BTreeMap::new();
    let mut steps = Vec::new();
    for line in trace.lines() {
        let Some((pid, call)) = line.split_once(char::is_whitespace) else {
            continue;
        };
        let call = call.trim_start();
        let whole = if let Some(start) = call.strip_suffix("<unfinished ...>") {
            begun.insert(pid, start);
            continue;
        } else if let Some(rest) = call.strip_prefix("<... ") {
            let start = begun.remove(pid).unwrap_or_default();
            format!(
                "{start}{}",
                rest.split_once("resumed>").unwrap_or_default().1
            )
        } else {
            call.to_owned()
        };
        if !whole.contains(" = 0") && !whole.starts_with("write") && !whole.starts_with("pwrite") {
            continue;
        }
        steps.extend(step(&whole));
    }
    steps
}

fn step(call: &str) -> Option<Step> {
    let (name, arguments) = call.split_once('(')?;
    let path = || {
        let (_, rest) = arguments.split_once('<')?;
        let (path, _) = rest.split_once('>')?;
        Some(path.trim_end_matches(" (deleted)").to_owned())
    };
    match name {
        "write" | "pwrite64" | "writev" => Some(Step::Write(path()?)),
        "fsync" | "fdatasync" => Some(Step::Flush(Some(path()?))),
        "syncfs" => Some(Step::Flush(None)),
        "rename" | "renameat" | "renameat2" => {
            // Folders' descriptors have their paths in angle brackets, names
            // stand in quotes.
            let folders: Vec<&str> = arguments
                .split('<')
                .skip(1)
                .filter_map(|part| part.split_once('>').map(|(path, _)| path))
                .collect();
            let names: Vec<&str> = arguments.split('"').skip(1).step_by(2).collect();
            let [from, to] = names.as_slice() else {
                return None;
            };
            let full = |at: usize, name: &str| match folders.get(at) {
                Some(folder) if !name.starts_with('/') => format!("{folder}/{name}"),
                _ => name.to_owned(),
            };
            Some(Step::Rename(full(0, from), full(1, to)))
        }
        _ => None,
    }
}

/// Whether what was last written to a file was flushed before step `at`.
fn is_flushed_before(steps: &[Step], file: &str, at: usize) -> bool {
    let before = &steps[..at];
    let written = before
        .iter()
        .rposition(|step| matches!(step, Step::Write(path) if path == file));
    let from = written.map_or(0, |written| written + 1);
    before[from..].iter().any(|step| match step {
        Step::Flush(None) => true,
        Step::Flush(Some(path)) => path == file,
        _ => false,
    })
}

fn check(sessions: u64, arguments: &[&str]) {
    if !has_program("strace") {
        eprintln!("skipped: strace is not installed");
        return;
    }
    let workspace = Workspace::new();
    for number in 0..sessions {
        let line = message("user", &number.to_string());
        let stem = format!("{}_helper", 1_777_700_000 + number);
        workspace.transcript(&stem, &[HEADER, &line, "{\"role\":\"user\"}"]);
    }
    let trace = workspace.home().join("trace");
    let import = workspace.process(arguments);
    let mut strace = Command::new("strace");
    strace
        .args(["-f", "-y", "-s", "4096", "-o"])
        .arg(&trace)
        .args([
            "-e",
            "trace=write,pwrite64,writev,fsync,fdatasync,syncfs,rename,renameat,renameat2",
        ])
        .arg(import.get_program())
        .args(import.get_args())
        .env("HOME", workspace.home());
    let output = strace.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let steps = steps(&std::fs::read_to_string(&trace).unwrap());

    let placed = |at: &usize| match &steps[*at] {
        Step::Rename(from, to) => (from.clone(), to.clone()),
        other => panic!("{other:?}"),
    };
    let renames: Vec<usize> = (0..steps.len())
        .filter(|at| matches!(steps[*at], Step::Rename(..)))
        .collect();
    let (mut entries, mut vouched) = (Vec::new(), 0);
    for at in &renames {
        let (_, to) = placed(at);
        if !to.contains("/kv/migration_items/") {
            continue;
        }
        entries.push(*at);
        let entry: serde_json::Value =
            serde_json::from_slice(&std::fs::read(&to).unwrap()).unwrap();
        let stream = entry["stream"].as_str().unwrap();
        let name = stream
            .trim_start_matches("session.")
            .trim_end_matches(".messages");
        for file in [
            format!("/journal/{stream}.jsonl"),
            format!("/journal/session.{name}.residue.jsonl"),
            format!("/kv/sessions/{name}.json"),
        ] {
            let put = renames.iter().find(|at| placed(at).1.ends_with(&file));
            let put = put.unwrap_or_else(|| panic!("{file} was never put in place"));
            assert!(put < at, "{to} was put in place before {file}");
            let (from, target) = placed(put);
            assert!(
                is_flushed_before(&steps, &from, *put),
                "{file} was put in place unflushed"
            );
            let folder = target.rsplit_once('/').unwrap().0;
            let is_durable = steps[*put..*at].iter().any(|step| match step {
                Step::Flush(None) => true,
                Step::Flush(Some(path)) => path == folder,
                _ => false,
            });
            assert!(
                is_durable,
                "the name {file} was not durable before its entry"
            );
            vouched += 1;
        }
    }
    assert_eq!(entries.len() as u64, sessions);
    assert_eq!(vouched, sessions * 3);
    let marker = renames
        .iter()
        .find(|at| placed(at).1.contains("/kv/migrations/"));
    let marker = *marker.expect("the marker was put in place");
    let last = *entries.iter().max().unwrap();
    assert!(last < marker, "the marker was put in place before an entry");
    let are_durable = steps[last..marker].iter().any(|step| match step {
        Step::Flush(None) => true,
        Step::Flush(Some(path)) => path.ends_with("/kv/migration_items"),
        _ => false,
    });
    assert!(
        are_durable,
        "the entries' names were not durable before the marker"
    );
}

#[test]
fn a_few_sessions_are_flushed_file_by_file_in_order() {
    check(3, &[]);
}

#[test]
fn many_sessions_are_flushed_by_the_batch_in_order() {
    check(120, &[]);
}
