//! The importer held against a second, naive reader: many generated
//! transcripts, whole, damaged and odd, imported and read back.
//!
//! `PARITY_FILES=50000 cargo test --release --test parity` for a long run.

// Clippy takes only functions marked as tests for tests.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod naive;
mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use naive::markdown::{LegacyMarkdown, RenderedMarkdown, read_legacy, read_rendered};
use naive::{NaiveError, NaiveTranscript, read_jsonl};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestError, TestRunner};
use serde_json::{Map, Value, json};
use session_import::ops::run::{Options, run};
use session_import::report::RunReport;
use support::store::{Session, Store};

/// Transcripts of one import: enough that flushing is not what takes the time.
const AT_ONCE: usize = 40;

/// A transcript and where it lies in the workspace.
#[derive(Debug, Clone)]
struct Source {
    path: String,
    bytes: Vec<u8>,
}

/// What the naive reader makes of a source.
enum Expected {
    Jsonl(Result<NaiveTranscript, NaiveError>),
    Legacy(Result<LegacyMarkdown, NaiveError>),
    Rendered(Result<RenderedMarkdown, NaiveError>),
    /// Not a transcript at all (`openhuman-workspace.md` §7).
    Nothing,
}

#[test]
fn what_is_imported_is_what_the_naive_reader_reads() {
    let wanted = std::env::var("PARITY_FILES").ok();
    let wanted: usize = wanted.map_or(280, |text| text.parse().unwrap());
    // No shrinking of whole workspaces: what differs is one file, which is cut
    // down line by line below.
    let mut runner = TestRunner::new(Config {
        cases: u32::try_from(wanted.div_ceil(AT_ONCE)).unwrap(),
        max_shrink_iters: 0,
        failure_persistence: None,
        ..Config::default()
    });
    let checked = std::cell::Cell::new(0);
    let result = runner.run(&vec(transcript(), AT_ONCE), |files| {
        let sources: Vec<Source> = (0..).zip(files).map(|(n, file)| placed(n, file)).collect();
        if let Err((wrong, what)) = compare(&sources) {
            let (source, what) = match wrong {
                Some(index) => cut_down(sources[index].clone(), what),
                None => return Err(TestCaseError::fail(what)),
            };
            let text = source.bytes.escape_ascii();
            return Err(TestCaseError::fail(format!(
                "{}: {what}\nb\"{text}\"",
                source.path
            )));
        }
        checked.set(checked.get() + sources.len());
        Ok(())
    });
    match result {
        Ok(()) => {}
        Err(TestError::Fail(what, _)) => panic!("{what}"),
        Err(error) => panic!("{error}"),
    }
    eprintln!(
        "{} transcripts are as the naive reader reads them",
        checked.get()
    );
}

/// What is true of every import, whatever lies in the workspace and whichever
/// of its files belong together.
#[test]
fn no_workspace_breaks_the_rules_of_the_store() {
    let wanted = std::env::var("PARITY_WORKSPACES").ok();
    let mut runner = TestRunner::new(Config {
        cases: wanted.map_or(40, |text| text.parse().unwrap()),
        max_shrink_iters: 300,
        failure_persistence: None,
        ..Config::default()
    });
    let result = runner.run(&naive::strategies::workspace(), |files| {
        let folder = folder();
        for (path, bytes) in &files {
            write(folder.path(), path, bytes);
        }
        let first = import(folder.path());
        let is = |what: bool, rule: &str| match what {
            true => Ok(()),
            false => Err(TestCaseError::fail(format!("{rule}: {first:#?}"))),
        };
        is(
            first.scanned == first.imported + first.skipped + first.failed,
            "the sum of items",
        )?;
        is(first.skipped == 0, "all is new")?;
        let root = folder.path().join("tinyagents_store");
        let store = Store::try_read(&root).map_err(TestCaseError::fail)?;
        store.check(|_| true).map_err(TestCaseError::fail)?;
        is(
            store.entries.len() as u64 == first.imported,
            "an entry for each item",
        )?;
        is(
            store.failures.len() as u64 == first.failed,
            "a failure for each that failed",
        )?;
        is(
            store.marker.is_some() == (first.failed == 0 && first.scanned > 0),
            "the marker",
        )?;
        // Two sessions never share anything.
        let keys: BTreeMap<&str, &str> = store
            .entries
            .values()
            .map(|entry| (text(&entry["stream"]), text(&entry["session_key"])))
            .collect();
        is(
            keys.len() == store.entries.len(),
            "a stream for each session",
        )?;
        let distinct: std::collections::BTreeSet<_> = keys.values().collect();
        is(distinct.len() == keys.len(), "a key for each session")?;
        is(
            store.descriptors.len() == keys.len(),
            "a descriptor for each session",
        )?;
        // And again: nothing is done twice, nothing is renamed.
        let before = Store::bytes(&root);
        let again = import(folder.path());
        is(
            again.imported == 0 && again.skipped == first.imported,
            "done is done",
        )?;
        is(again.failed == first.failed, "what failed fails again")?;
        let mut after = Store::bytes(&root);
        // The time of the last attempt is all that may change.
        after.retain(|path, _| !path.starts_with("kv/session_import.failed"));
        let same = after
            .iter()
            .all(|(path, bytes)| before.get(path) == Some(bytes));
        is(same, "a second run writes nothing")
    });
    match result {
        Ok(()) => {}
        Err(TestError::Fail(what, files)) => {
            let show = |(path, bytes): &(String, Vec<u8>)| {
                format!("{path}: b\"{}\"\n", bytes.escape_ascii())
            };
            panic!("{what}\n{}", files.iter().map(show).collect::<String>());
        }
        Err(error) => panic!("{error}"),
    }
}

/// Inputs on which the two readers once disagreed.
#[test]
fn once_they_disagreed() {
    let header = support::HEADER;
    let nested = |levels| "[".repeat(levels) + &"]".repeat(levels);
    let turn = r#""provider":"p","model":"m","ts":"t","usage":{"input":1,"output":2,"cached_input":0,"cost_usd":0.1}"#;
    let cases = [
        // The turn usage replaces what is too deep, so the message is not.
        format!(
            r#"{header}
{{"role":"assistant","content":"a",{turn},"extra_metadata":{{"openhuman_turn_usage":{}}}}}
"#,
            nested(125)
        ),
    ];
    let cases = cases.map(|text| ("session_raw/1777700000_helper.jsonl", text));
    // Cut off in the middle of its list.
    let cut = "# Session transcript — helper\n- Tokens: 40 in / 12 out / 8 cached".to_owned();
    let cut = ("sessions/2026_04_01/1777700000_helper.md", cut);
    for (path, text) in cases.into_iter().chain([cut]) {
        let source = Source {
            path: path.to_owned(),
            bytes: text.into_bytes(),
        };
        if let Err((_, what)) = compare(std::slice::from_ref(&source)) {
            panic!("{what}\n{}", source.bytes.escape_ascii());
        }
    }
}

#[derive(Debug, Clone)]
enum File {
    Jsonl(Vec<u8>),
    Markdown(Vec<u8>),
}

fn transcript() -> impl Strategy<Value = File> {
    use naive::strategies as any;
    prop_oneof![
        6 => any::transcript().prop_map(File::Jsonl),
        2 => any::clean_transcript().prop_map(File::Jsonl),
        2 => any::legacy_markdown().prop_map(File::Markdown),
        2 => any::rendered_markdown().prop_map(File::Markdown),
    ]
}

/// Each under a stem of its own, so that no file is another's copy.
fn placed(number: u32, file: File) -> Source {
    let stem = format!("{}_helper", 1_777_700_000 + number);
    match file {
        File::Jsonl(bytes) => {
            let folder = ["session_raw", "session_raw/01042026", "session_raw-work"];
            let folder = folder[number as usize % 3];
            let path = format!("{folder}/{stem}.jsonl");
            Source { path, bytes }
        }
        File::Markdown(bytes) => {
            let path = format!("sessions/2026_04_01/{stem}.md");
            Source { path, bytes }
        }
    }
}

fn folder() -> tempfile::TempDir {
    // A file system in memory, where there is one: flushes cost nothing there.
    let memory = Path::new("/dev/shm");
    match tempfile::tempdir_in(memory) {
        Ok(folder) => folder,
        Err(_) => tempfile::tempdir().unwrap(),
    }
}

fn write(workspace: &Path, path: &str, bytes: &[u8]) {
    let path = workspace.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

fn import(workspace: &Path) -> RunReport {
    let options = Options {
        workspace: Some(workspace.to_owned()),
        ..Options::default()
    };
    run(&options, &mut ()).unwrap()
}

/// Imports the sources and compares each. Of what differs: which of them, if
/// it is one, and how.
fn compare(sources: &[Source]) -> Result<(), (Option<usize>, String)> {
    let folder = folder();
    fs::create_dir_all(folder.path().join("session_raw")).unwrap();
    for source in sources {
        write(folder.path(), &source.path, &source.bytes);
    }
    let report = import(folder.path());
    let store = Store::try_read(&folder.path().join("tinyagents_store"));
    let store = match store {
        Ok(store) => store,
        // Which one it is, is found by importing each alone.
        Err(error) if sources.len() == 1 => return Err((Some(0), error)),
        Err(error) => {
            for (index, source) in sources.iter().enumerate() {
                let alone = compare(std::slice::from_ref(source));
                alone.map_err(|(_, what)| (Some(index), what))?;
            }
            return Err((None, error));
        }
    };
    for (index, source) in sources.iter().enumerate() {
        of_source(source, &report, &store).map_err(|what| (Some(index), what))?;
    }
    store.check(|_| true).map_err(|what| (None, what))?;
    Ok(())
}

/// The source with as few lines as still differ.
fn cut_down(mut source: Source, mut what: String) -> (Source, String) {
    let mut size = source.bytes.len();
    loop {
        let lines: Vec<Vec<u8>> = source
            .bytes
            .split_inclusive(|byte| *byte == b'\n')
            .map(<[u8]>::to_vec)
            .collect();
        for skipped in 0..lines.len() {
            let mut fewer = lines.clone();
            fewer.remove(skipped);
            let fewer = Source {
                bytes: fewer.concat(),
                path: source.path.clone(),
            };
            if let Err((_, still)) = compare(std::slice::from_ref(&fewer)) {
                (source, what) = (fewer, still);
                break;
            }
        }
        if source.bytes.len() == size {
            return (source, what);
        }
        size = source.bytes.len();
    }
}

fn expected(source: &Source) -> Expected {
    let bytes = &source.bytes;
    if source.path.ends_with(".jsonl") {
        return Expected::Jsonl(read_jsonl(bytes));
    }
    let rendered = read_rendered(bytes);
    // Bytes that are not UTF-8 hide the title from the naive reader only.
    let title = "# Session transcript — ".as_bytes();
    let unmarked = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
    if unmarked.starts_with(title) {
        return Expected::Rendered(rendered);
    }
    let has = |part: &[u8]| bytes.windows(part.len()).any(|window| window == part);
    if has(b"<!-- session_transcript") || has(b"<!--MSG") {
        return Expected::Legacy(read_legacy(bytes));
    }
    Expected::Nothing
}

fn of_source(source: &Source, report: &RunReport, store: &Store) -> Result<(), String> {
    let item = report.items.iter().find(|item| item.source == source.path);
    let has_failed = store.failures.contains_key(&source.path);
    let session = store.find(&source.path);
    let verdict = |is_good: bool| match (is_good, item, has_failed, &session) {
        (true, Some(item), false, Some(_)) if item.action.as_str() == "imported" => Ok(()),
        (false, Some(item), true, None) if item.action.as_str() == "failed" => Ok(()),
        _ => Err(format!(
            "the naive reader reads it: {is_good}; the item: {item:#?}"
        )),
    };
    match (expected(source), &session) {
        (Expected::Nothing, _) => match item {
            None if !has_failed && session.is_none() => Ok(()),
            _ => Err(format!("no transcript, but {item:#?}")),
        },
        (Expected::Jsonl(read), session) => {
            verdict(read.is_ok())?;
            match (read, session) {
                (Ok(read), Some(session)) => jsonl(&read, session),
                _ => Ok(()),
            }
        }
        (Expected::Legacy(read), session) => {
            verdict(read.is_ok())?;
            match (read, session) {
                (Ok(read), Some(session)) => legacy(&read, session),
                _ => Ok(()),
            }
        }
        (Expected::Rendered(read), session) => {
            verdict(read.is_ok())?;
            match (read, session) {
                (Ok(read), Some(session)) => rendered(&read, session),
                _ => Ok(()),
            }
        }
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[track_caller]
fn same<T: PartialEq + std::fmt::Debug>(what: &str, naive: &T, found: &T) -> Result<(), String> {
    match naive == found {
        true => Ok(()),
        false => Err(format!(
            "{what} differ\n  naive {naive:?}\n  found {found:?}"
        )),
    }
}

fn jsonl(read: &NaiveTranscript, session: &Session) -> Result<(), String> {
    let expected: Vec<Value> = read
        .messages
        .iter()
        .zip(&read.unmapped)
        .map(|(message, unmapped)| {
            let mut record = Map::new();
            if let Some(id) = &message.id {
                record.insert("id".to_owned(), json!(id));
            }
            record.insert("role".to_owned(), json!(message.role));
            record.insert("content".to_owned(), json!(message.content));
            if let Some(extra) = &message.extra_metadata {
                record.insert("extra_metadata".to_owned(), extra.clone());
            }
            if let Some(unmapped) = unmapped {
                let ours = json!({"unmapped": unmapped});
                record.insert("session_import".to_owned(), ours);
            }
            Value::Object(record)
        })
        .collect();
    same("messages", &expected, &session.messages)?;
    let residue: Vec<(u64, String, Vec<u8>)> = session
        .residue
        .iter()
        .map(residue_line)
        .collect::<Result<_, _>>()?;
    same("residues", &read.residue, &residue)?;
    let lines = &read.lines;
    let lines = json!({
        "total": lines.total, "headers": lines.headers, "messages": lines.messages,
        "residue": lines.residue, "blank": lines.blank,
    });
    same("lines", &lines, &session.entry["lines"])?;
    let meta = &read.meta;
    let thread = meta["thread_id"]
        .as_str()
        .filter(|id| !id.trim().is_empty());
    let descriptor = &session.descriptor;
    let expected = json!({
        "agent_name": meta["agent"], "agent_id": meta.get("agent_id"),
        "agent_type": meta.get("agent_type"), "dispatcher": meta["dispatcher"],
        "provider": meta.get("provider"), "model": meta.get("model"),
        "created": meta["created"], "updated": meta["updated"],
        "turn_count": meta["turn_count"], "task_id": meta.get("task_id"),
        "usage": {
            "input": meta["input_tokens"], "output": meta["output_tokens"],
            "cached_input": meta["cached_input_tokens"], "cost_usd": meta["charged_amount_usd"],
        },
        "thread_id_synthesized": thread.is_none(),
    });
    for (key, expected) in expected.as_object().into_iter().flatten() {
        same(key, expected, &descriptor[key])?;
    }
    for key in ["session_id", "parent_session_id"] {
        same(key, &meta.get(key), &session.entry.get(key))?;
    }
    match thread {
        Some(thread) => same("threads", &thread, &text(&descriptor["thread_id"])),
        None => Ok(()),
    }
}

fn residue_line(value: &Value) -> Result<(u64, String, Vec<u8>), String> {
    let wrong = || format!("no residue record: {value}");
    let line = value["line"].as_u64().ok_or_else(wrong)?;
    let why = value["why"].as_str().ok_or_else(wrong)?.to_owned();
    let bytes = match (value["text"].as_str(), value["base64"].as_str()) {
        (Some(text), None) => text.as_bytes().to_vec(),
        (None, Some(base64)) => STANDARD.decode(base64).map_err(|_| wrong())?,
        _ => return Err(wrong()),
    };
    // What is UTF-8 stands as text.
    if value["base64"].is_string() && std::str::from_utf8(&bytes).is_ok() {
        return Err(wrong());
    }
    Ok((line, why, bytes))
}

fn legacy(read: &LegacyMarkdown, session: &Session) -> Result<(), String> {
    let naive: Vec<(&str, &str)> = read
        .messages
        .iter()
        .map(|(role, content)| (role.as_str(), content.as_str()))
        .collect();
    same("messages", &naive, &session.texts())?;
    let residue = session.residue.iter().map(|value| {
        let (line, _, bytes) = residue_line(value)?;
        let text = String::from_utf8(bytes).map_err(|error| error.to_string())?;
        Ok((line, text.trim().to_owned()))
    });
    let residue: Vec<(u64, String)> = residue.collect::<Result<_, String>>()?;
    same("residues", &read.residue, &residue)?;
    let descriptor = &session.descriptor;
    let expected = json!({
        "agent_name": read.agent, "dispatcher": read.dispatcher,
        "created": read.created, "updated": read.updated, "turn_count": read.turn_count,
        "usage": {
            "input": read.input_tokens, "output": read.output_tokens,
            "cached_input": read.cached_input_tokens, "cost_usd": read.charged_usd,
        },
        "thread_id_synthesized": read.thread_id.is_none(),
    });
    for (key, expected) in expected.as_object().into_iter().flatten() {
        same(key, expected, &descriptor[key])?;
    }
    Ok(())
}

fn rendered(read: &RenderedMarkdown, session: &Session) -> Result<(), String> {
    let naive: Vec<(&str, &str)> = read
        .messages
        .iter()
        .map(|message| (message.role.as_str(), message.content.as_str()))
        .collect();
    same("messages", &naive, &session.texts())?;
    same("lossy", &json!(true), &session.entry["lossy"])?;
    let descriptor = &session.descriptor;
    let (input, output, cached_input) = read.tokens.unwrap_or_default();
    let expected = json!({
        "agent_name": read.agent,
        "dispatcher": read.dispatcher.as_deref().unwrap_or("native"),
        "agent_id": read.agent_id, "agent_type": read.agent_type, "provider": read.provider,
        "model": read.model, "task_id": read.task, "turn_count": read.turns.unwrap_or(0),
        "updated": read.updated.as_deref().unwrap_or_default(),
        "usage": {
            "input": input, "output": output, "cached_input": cached_input,
            "cost_usd": read.charged_usd.unwrap_or(0.0),
        },
    });
    for (key, expected) in expected.as_object().into_iter().flatten() {
        same(key, expected, &descriptor[key])?;
    }
    Ok(())
}
