//! Whatever becomes of a source, what the store had of it stays: generated
//! transcripts, rewritten in every way between two imports.
//!
//! `REWRITTEN_FILES=20000 cargo test --release --test rewritten` for a long run.

// Clippy takes only functions marked as tests for tests.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod naive;
mod support;

use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use naive::strategies;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, TestError, TestRunner};
use serde_json::Value;
use session_import::ops::run::{Options, run};
use session_import::ops::verify::{VerifyOptions, verify};
use support::store::{Session, Store};

/// Transcripts of one import.
const AT_ONCE: usize = 20;

/// How a source is rewritten.
#[derive(Debug, Clone)]
enum Rewriting {
    /// Another one in its place.
    Other(Vec<u8>),
    /// More behind it.
    Grown(Vec<u8>),
    /// Its first bytes.
    Cut(Index),
    /// Without the lines whose bit is not set.
    Thinned(u64),
}

fn rewriting(text: fn() -> BoxedStrategy<Vec<u8>>) -> impl Strategy<Value = Rewriting> {
    prop_oneof![
        text().prop_map(Rewriting::Other),
        text().prop_map(Rewriting::Grown),
        any::<Index>().prop_map(Rewriting::Cut),
        any::<u64>().prop_map(Rewriting::Thinned),
    ]
}

fn rewritten(bytes: &[u8], how: &Rewriting) -> Vec<u8> {
    match how {
        Rewriting::Other(other) => other.clone(),
        Rewriting::Grown(more) => [bytes, more].concat(),
        Rewriting::Cut(index) => bytes[..index.index(bytes.len() + 1)].to_vec(),
        Rewriting::Thinned(bits) => {
            let lines = bytes.split_inclusive(|byte| *byte == b'\n').enumerate();
            // The first line stays: it is the header.
            let left = lines.filter(|(n, _)| *n == 0 || bits >> (n % 64) & 1 == 1);
            left.flat_map(|(_, line)| line).copied().collect()
        }
    }
}

/// A source over time.
#[derive(Debug, Clone)]
struct Source {
    is_markdown: bool,
    versions: Vec<Vec<u8>>,
}

fn source() -> impl Strategy<Value = Source> {
    let of = |is_markdown, text: fn() -> BoxedStrategy<Vec<u8>>| {
        let changes = proptest::collection::vec(rewriting(text), 1..4);
        (text(), changes).prop_map(move |(first, changes)| {
            let mut versions = vec![first];
            for change in changes {
                let next = rewritten(versions.last().unwrap(), &change);
                versions.push(next);
            }
            Source {
                is_markdown,
                versions,
            }
        })
    };
    prop_oneof![
        4 => of(false, strategies::transcript),
        2 => of(false, strategies::clean_transcript),
        1 => of(true, strategies::legacy_markdown),
        1 => of(true, strategies::rendered_markdown),
    ]
}

#[test]
fn whatever_becomes_of_a_source_nothing_of_it_goes() {
    let wanted = std::env::var("REWRITTEN_FILES").ok();
    let wanted: usize = wanted.map_or(200, |text| text.parse().unwrap());
    let mut runner = TestRunner::new(Config {
        cases: u32::try_from(wanted.div_ceil(AT_ONCE)).unwrap(),
        max_shrink_iters: 200,
        failure_persistence: None,
        ..Config::default()
    });
    let held = std::cell::Cell::new(0_usize);
    let sources = proptest::collection::vec(source(), 1..=AT_ONCE);
    let result = runner.run(&(sources, any::<bool>()), |(sources, salvage)| {
        let found = over_time(&sources, salvage).map_err(TestCaseError::fail)?;
        held.set(held.get() + found);
        Ok(())
    });
    match result {
        Ok(()) => {}
        Err(TestError::Fail(what, (sources, _))) => {
            let texts = sources.iter().flat_map(|source| &source.versions);
            let texts: Vec<_> = texts.map(|text| text.escape_ascii().to_string()).collect();
            panic!("{what}\n{texts:#?}");
        }
        Err(error) => panic!("{error}"),
    }
    // The generators make enough that has to be kept.
    assert!(held.get() > wanted, "{} messages and lines", held.get());
}

fn path(number: usize, source: &Source) -> String {
    let stem = format!("{}_helper", 1_777_700_000 + number);
    match source.is_markdown {
        false => format!("session_raw/{stem}.jsonl"),
        true => format!("sessions/2026_04_01/{stem}.md"),
    }
}

/// Imports each version over the one before. Gives how many messages and lines
/// had to be in the store still.
fn over_time(sources: &[Source], salvage: bool) -> Result<usize, String> {
    let memory = Path::new("/dev/shm");
    let folder = tempfile::tempdir_in(memory)
        .or_else(|_| tempfile::tempdir())
        .unwrap();
    let longest = sources.iter().map(|source| source.versions.len()).max();
    let mut held = 0;
    let mut before: Option<Store> = None;
    for version in 0..longest.unwrap_or(0) {
        for (number, source) in sources.iter().enumerate() {
            if let Some(bytes) = source.versions.get(version) {
                let path = folder.path().join(path(number, source));
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(&path, bytes).unwrap();
                // A file that was written just now may be in the middle of being rewritten.
                let time = std::time::UNIX_EPOCH
                    + std::time::Duration::from_secs(1_780_000_000 + version as u64);
                let file = fs::File::options().write(true).open(path).unwrap();
                file.set_modified(time).unwrap();
            }
        }
        let options = Options {
            workspace: Some(folder.path().to_owned()),
            salvage: salvage && version % 2 == 1,
            ..Options::default()
        };
        run(&options, &mut ()).map_err(|error| error.to_string())?;
        let now = Store::try_read(&folder.path().join("tinyagents_store"))?;
        now.check(|_| true)?;
        let options = VerifyOptions {
            workspace: Some(folder.path().to_owned()),
            ..VerifyOptions::default()
        };
        let verified = verify(&options, &mut ()).map_err(|error| error.to_string())?;
        if !verified.clean {
            return Err(format!("{:#?}", verified.findings));
        }
        if let Some(before) = &before {
            for (number, source) in sources.iter().enumerate() {
                let path = path(number, source);
                let Some(old) = before.find(&path) else {
                    continue;
                };
                let new = now.find(&path).ok_or_else(|| format!("{path} is gone"))?;
                let bytes = source
                    .versions
                    .get(version)
                    .or(source.versions.last())
                    .unwrap();
                held += stays(&old, &new, bytes).map_err(|what| format!("{path}: {what}"))?;
            }
        }
        before = Some(now);
    }
    Ok(held)
}

/// Whether everything that a session had in the store is in it still, or in
/// its source.
fn stays(old: &Session, new: &Session, source: &[u8]) -> Result<usize, String> {
    // What cannot be imported leaves the earlier record as it was.
    if old.entry == new.entry {
        return Ok(0);
    }
    let mut messages = new.messages.clone();
    let mut records: Vec<Value> = Vec::new();
    let mut texts: Vec<Vec<u8>> = Vec::new();
    for value in &new.residue {
        match value["why"] == "dropped" {
            true => records.push(record(value)),
            false => texts.push(text(value)),
        }
    }
    // Each counts once, so what must be there word for word comes first.
    for value in &old.residue {
        let is_dropped = value["why"] == "dropped";
        let record = match is_dropped {
            true => record(value),
            false => value.clone(),
        };
        if take(&mut records, |new| *new == record)
            || (!is_dropped && take(&mut texts, |new| *new == text(value)))
        {
            continue;
        }
        if is_dropped || !contains(source, &text(value)) {
            return Err(format!("a line is lost: {value}"));
        }
    }
    let mut left: Vec<&Value> = old.messages.iter().collect();
    left.retain(|old| !take(&mut messages, |new| new == *old));
    left.retain(|old| !take(&mut records, |new| new == *old));
    left.retain(|old| !take(&mut messages, |new| covers(new, old)));
    left.retain(|old| !take(&mut records, |new| covers(new, old)));
    left.retain(|old| {
        let is_one = |text: &Vec<u8>| says(text, old) && !contains(text, b"compaction");
        !take(&mut texts, is_one) && !texts.iter().any(|text| says(text, old))
    });
    match left.first() {
        None => Ok(old.messages.len() + old.residue.len()),
        Some(message) => Err(format!("a message is lost: {message}")),
    }
}

/// Takes out the first that fits.
fn take<T>(all: &mut Vec<T>, fits: impl FnMut(&T) -> bool) -> bool {
    let at = all.iter().position(fits);
    at.map(|at| all.remove(at)).is_some()
}

/// Whether all that the old one has is in the new one.
fn covers(new: &Value, old: &Value) -> bool {
    match (new, old) {
        (Value::Object(new), Value::Object(old)) => old
            .iter()
            .all(|(key, old)| new.get(key).is_some_and(|new| covers(new, old))),
        _ => new == old,
    }
}

fn said(message: &Value) -> (Value, Value) {
    (message["role"].clone(), message["content"].clone())
}

/// What was dropped: too deep for a record inside of a record, it is a text.
fn record(value: &Value) -> Value {
    match &value["record"] {
        Value::Null => serde_json::from_slice(&text(value)).unwrap_or_default(),
        record => record.clone(),
    }
}

/// The line as it stood.
fn text(value: &Value) -> Vec<u8> {
    match (&value["text"], &value["base64"]) {
        (Value::String(text), _) => text.as_bytes().to_vec(),
        (_, Value::String(base64)) => STANDARD.decode(base64).unwrap(),
        _ => panic!("a line without its text: {value}"),
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    part.is_empty() || bytes.windows(part.len()).any(|window| window == part)
}

/// Whether a line of the source that is no message now says the same: replaced
/// by a compaction, or interrupted.
fn says(line: &[u8], message: &Value) -> bool {
    fn holds(value: &Value, message: &Value) -> bool {
        match value {
            Value::Array(values) => values.iter().any(|value| holds(value, message)),
            Value::Object(members) => {
                said(value) == said(message) || members.values().any(|value| holds(value, message))
            }
            _ => false,
        }
    }
    // A typed row says it only once it is read.
    let alone = [support::HEADER.as_bytes(), b"\n", line, b"\n"].concat();
    let read = naive::read_jsonl(&alone).map(|transcript| transcript.messages);
    let is_read = |one: &naive::NaiveMessage| {
        said(message) == (one.role.as_str().into(), one.content.as_str().into())
    };
    read.is_ok_and(|messages| messages.iter().any(is_read))
        || serde_json::from_slice(line).is_ok_and(|value| holds(&value, message))
}
