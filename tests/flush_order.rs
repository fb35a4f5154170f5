//! The order of flushes, as the system calls of the real program show it: no
//! item ledger entry is renamed into place before what it vouches for is
//! durable, and no marker before the entries.

#![cfg(target_os = "linux")]
// Clippy takes only functions marked as tests for tests.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use support::{HEADER, WRITTEN_AT, Workspace, has_program, message};

/// What the program did, in the order in which it ended. What makes something
/// durable counts for all that had ended before it `began`.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Call {
    /// A file of the store was created or written, by its path.
    Write(String),
    /// A file or folder was made durable, by its path.
    Fsync {
        path: String,
        began: usize,
    },
    /// The file system was.
    Syncfs {
        began: usize,
    },
    /// A file is about to be put in place: what it vouches for must be durable.
    Placing {
        from: String,
        to: String,
    },
    /// It was put in place.
    Placed(String),
    Unlink(String),
}

#[test]
fn few_sessions_are_flushed_one_by_one() {
    let calls = trace(|workspace| sessions(workspace, 3, 2), &[]);
    let Some(calls) = calls else { return };
    assert!(!calls.iter().any(|call| matches!(call, Call::Syncfs { .. })));
    assert_eq!(check(&calls), Ok((3, 1)));
}

#[test]
fn many_sessions_are_flushed_at_once() {
    let calls = trace(|workspace| sessions(workspace, 60, 2), &[]);
    let Some(calls) = calls else { return };
    // One for the files, one for their names, one each for the entries'.
    let at_once = calls
        .iter()
        .filter(|call| matches!(call, Call::Syncfs { .. }));
    assert!((1..=8).contains(&at_once.count()));
    assert_eq!(check(&calls), Ok((60, 1)));
}

#[test]
fn an_import_of_everything_anew_keeps_to_the_order() {
    for number in [3, 60] {
        let prepare = |workspace: &Workspace| {
            sessions(workspace, number, 2);
            workspace.run(&[]).code(0);
            sessions(workspace, number, 3);
        };
        let Some(calls) = trace(prepare, &["--force"]) else {
            return;
        };
        assert_eq!(check(&calls), Ok((number, 1)));
        // The marker goes first of all that was there, and durably.
        let is_placed = |call: &Call| matches!(call, Call::Placed(to) if !is_apart(to));
        let first = calls.iter().position(is_placed).unwrap();
        let before = &calls[..first];
        let is_gone = |call: &Call| matches!(call, Call::Unlink(path) if path.ends_with(MARKER));
        let gone = before.iter().position(is_gone);
        let gone = gone.unwrap_or_else(|| panic!("the marker stays: {before:#?}"));
        let folder = |call: &Call| match call {
            Call::Fsync { path, began } => path.ends_with("/migrations") && *began > gone,
            _ => false,
        };
        assert!(
            before
                .iter()
                .any(|call| folder(call) || flushes_all(call, gone))
        );
    }
}

const MARKER: &str = "/session_import_v1.json";

fn sessions(workspace: &Workspace, number: usize, messages: usize) {
    for index in 0..number {
        let mut text = format!("{HEADER}\n");
        for message_number in 0..messages {
            text += &message("user", &format!("message {message_number}"));
            text.push('\n');
        }
        // One in three has a residue.
        if index % 3 == 0 {
            text += "{\"role\":\"assi\n";
        }
        let path = format!("session_raw/{}_many.jsonl", 1_779_000_000 + index);
        workspace.file(&path, text);
        workspace.mtime(&path, WRITTEN_AT + messages as u64);
    }
}

/// What is not part of a store's order: lock, cache, format and log.
fn is_apart(path: &str) -> bool {
    [
        "/.session-import.",
        "/session_import.meta/",
        "/session_import.imports/",
    ]
    .iter()
    .any(|part| path.contains(part))
}

fn flushes_all(call: &Call, after: usize) -> bool {
    matches!(call, Call::Syncfs { began } if *began > after)
}

/// Goes through the calls. Gives the number of entries and markers that were
/// put in place, or what is out of order.
fn check(calls: &[Call]) -> Result<(usize, usize), String> {
    // The last change of each file's content and of each folder's names, until
    // it is flushed: what would be lost now.
    let mut content: BTreeMap<&str, usize> = BTreeMap::new();
    let mut names: BTreeMap<&str, (usize, BTreeSet<&str>)> = BTreeMap::new();
    let (mut entries, mut markers) = (0, 0);
    for (index, call) in calls.iter().enumerate() {
        match call {
            Call::Write(path) => {
                content.insert(path, index);
            }
            Call::Fsync { path, began } => {
                content.retain(|file, at| *file != path || *at >= *began);
                names.retain(|folder, (at, _)| *folder != path || *at >= *began);
            }
            Call::Syncfs { began } => {
                content.retain(|_, at| *at >= *began);
                names.retain(|_, (at, _)| *at >= *began);
            }
            Call::Unlink(path) => change(&mut names, path, index),
            Call::Placed(to) => {
                entries += usize::from(to.contains("/migration_items/"));
                markers += usize::from(to.ends_with(MARKER));
                change(&mut names, to, index);
            }
            Call::Placing { from, to } => {
                let places: &[&str] = if to.ends_with(MARKER) {
                    &["/journal", "/sessions", "/migration_items"]
                } else if to.contains("/migration_items/") {
                    &["/journal", "/sessions"]
                } else {
                    &[]
                };
                let lost = lost(&content, &names, places);
                if !lost.is_empty() {
                    return Err(format!("{to} is put in place before {lost:?}"));
                }
                if !is_apart(to) && content.contains_key(from.as_str()) {
                    return Err(format!("{to} is put in place before its content"));
                }
            }
        }
    }
    // And in the end all is durable.
    let stays = names.keys().filter(|folder| !folder.ends_with("_store"));
    let stays: Vec<_> = stays.collect();
    if !stays.is_empty() {
        return Err(format!("never flushed: {stays:?}"));
    }
    Ok((entries, markers))
}

fn change<'a>(
    names: &mut BTreeMap<&'a str, (usize, BTreeSet<&'a str>)>,
    path: &'a str,
    index: usize,
) {
    let (folder, name) = path.rsplit_once('/').unwrap();
    let (at, all) = names.entry(folder).or_default();
    *at = index;
    all.insert(name);
}

/// What in these folders would be lost if the power failed now.
fn lost(
    content: &BTreeMap<&str, usize>,
    names: &BTreeMap<&str, (usize, BTreeSet<&str>)>,
    folders: &[&str],
) -> Vec<String> {
    let mut all = Vec::new();
    for folder in folders {
        // Temporary files of a later batch are nothing that it vouches for.
        let files = content.keys().filter(|file| {
            let (place, name) = file.rsplit_once('/').unwrap();
            place.ends_with(folder) && !is_temporary(name)
        });
        all.extend(files.map(|file| (*file).to_owned()));
        let names = names.iter().filter(|(place, _)| place.ends_with(folder));
        for (place, (_, names)) in names {
            let names = names.iter().filter(|name| !is_temporary(name));
            all.extend(names.map(|name| format!("the name {place}/{name}")));
        }
    }
    all
}

fn is_temporary(name: &str) -> bool {
    name.starts_with(".session-import-")
}

/// Runs the program under `strace` on a prepared workspace. `None` where that
/// is not possible.
fn trace(prepare: impl Fn(&Workspace), arguments: &[&str]) -> Option<Vec<Call>> {
    if !has_program("strace") {
        return None;
    }
    let workspace = Workspace::new();
    prepare(&workspace);
    let trace = workspace.home().join("trace");
    let program = workspace.process(arguments);
    let mut command = std::process::Command::new("strace");
    command
        .args(["-f", "-qq", "-y", "-s", "0", "-o"])
        .arg(&trace)
        .args(["-e", "trace=write,pwrite64,writev,ftruncate,fsync,fdatasync,syncfs,rename,renameat,renameat2,unlink,unlinkat"])
        .arg(program.get_program())
        .args(program.get_args())
        .env("HOME", workspace.home());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = fs::read_to_string(trace).unwrap();
    let store = workspace.store().display().to_string();
    Some(calls(&text, &store))
}

/// The calls about the store. A call that another thread interrupted stands on
/// two lines, and counts where it ended.
fn calls(trace: &str, store: &str) -> Vec<Call> {
    let mut open: BTreeMap<&str, (usize, String)> = BTreeMap::new();
    let mut all = Vec::new();
    for line in trace.lines() {
        let (thread, rest) = line.split_once(' ').unwrap();
        let rest = rest.trim_start();
        let began;
        let call = if let Some(start) = rest.strip_suffix(" <unfinished ...>") {
            open.insert(thread, (all.len(), start.to_owned()));
            all.extend(placing(start, store));
            continue;
        } else if rest.starts_with("<... ") {
            let (at, start) = open.remove(thread).unwrap_or_else(|| panic!("{line}"));
            began = at;
            let (_, end) = rest.split_once("resumed>").unwrap();
            format!("{start}{end}")
        } else {
            began = all.len();
            all.extend(placing(rest, store));
            rest.to_owned()
        };
        let Some((name, arguments)) = call.split_once('(') else {
            continue;
        };
        let is_good = call
            .rsplit_once(" = ")
            .is_some_and(|(_, result)| !result.starts_with('-'));
        if !is_good || !arguments.contains(store) {
            continue;
        }
        let path = |number| path(arguments, number);
        all.push(match name {
            "write" | "pwrite64" | "writev" | "ftruncate" => Call::Write(path(0)),
            "fsync" | "fdatasync" => Call::Fsync {
                path: path(0),
                began,
            },
            "syncfs" => Call::Syncfs { began },
            "rename" | "renameat" | "renameat2" => Call::Placed(path(1)),
            "unlink" | "unlinkat" => Call::Unlink(path(0)),
            other => panic!("{other}"),
        });
    }
    assert!(!all.is_empty(), "{trace}");
    all
}

/// A call that begins to put a file in place.
fn placing(call: &str, store: &str) -> Option<Call> {
    let (name, arguments) = call.split_once('(')?;
    let is_it = name.starts_with("rename") && arguments.contains(store);
    is_it.then(|| Call::Placing {
        from: path(arguments, 0),
        to: path(arguments, 1),
    })
}

/// The path that a call's arguments name: `5</a/b>`, or `5</a>, "b"`.
fn path(arguments: &str, number: usize) -> String {
    let folders = arguments.split('<').skip(1);
    let folders = folders.filter_map(|part| part.split('>').next());
    let folder = folders
        .clone()
        .nth(number)
        .or_else(|| folders.clone().last());
    let name = arguments.split('"').skip(1).step_by(2).nth(number);
    match (folder, name) {
        (_, Some(path)) if path.starts_with('/') => path.to_owned(),
        // Nothing but a descriptor; what is written is no name, and not shown.
        (Some(folder), None | Some("")) => folder.to_owned(),
        (Some(folder), Some(name)) => format!("{folder}/{name}"),
        (None, _) => panic!("{arguments}"),
    }
}

/// The check itself: that it sees what is out of order.
#[test]
fn disorder_is_seen() {
    const TEMPORARY: &str = "/s_store/journal/.session-import-1.tmp";
    let write = || vec![Call::Write(TEMPORARY.into())];
    let flush = |path: &str, began| {
        vec![Call::Fsync {
            path: path.into(),
            began,
        }]
    };
    let put = |from: &str, to: &str| {
        let (from, to) = (from.to_owned(), to.to_owned());
        vec![
            Call::Placing {
                from,
                to: to.clone(),
            },
            Call::Placed(to),
        ]
    };
    let place = || put(TEMPORARY, "/s_store/journal/a.jsonl");
    let entry = || {
        put(
            "/s_store/kv/migration_items/.session-import-2.tmp",
            "/s_store/kv/migration_items/e.json",
        )
    };
    let end = |began| vec![Call::Syncfs { began }];
    let checked = |calls: &[Vec<Call>]| check(&calls.concat());
    let folder = |began| flush("/s_store/journal", began);
    let file = |began| flush(TEMPORARY, began);
    assert_eq!(
        checked(&[write(), file(1), place(), folder(4), entry(), end(7)]),
        Ok((1, 0))
    );
    // Not flushed, or before the last write; its name not flushed, or before
    // it was there, or after the entry; the entry's name never.
    let wrong = [
        vec![write(), place(), folder(3), entry(), end(6)],
        vec![
            write(),
            file(1),
            write(),
            place(),
            folder(5),
            entry(),
            end(8),
        ],
        vec![
            write(),
            write(),
            file(1),
            place(),
            folder(5),
            entry(),
            end(8),
        ],
        vec![write(), file(1), place(), entry(), end(6)],
        vec![write(), file(1), place(), folder(3), entry(), end(7)],
        vec![write(), file(1), place(), entry(), folder(6), end(7)],
        vec![write(), file(1), place(), folder(4), entry()],
    ];
    for calls in wrong {
        assert!(checked(&calls).is_err(), "{calls:#?}");
    }
}
