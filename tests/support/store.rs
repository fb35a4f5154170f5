//! A store read back the way any other program would: file by file, with
//! nothing of the product but the names that `tinyagents-store.md` gives.

#![allow(clippy::indexing_slicing)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use session_import::model::key::Sha256;

/// What the store holds of one session.
#[derive(Debug, Clone, PartialEq)]
pub struct Session {
    /// The item ledger entry.
    pub entry: Value,
    /// The descriptor.
    pub descriptor: Value,
    /// Values of the stream of messages.
    pub messages: Vec<Value>,
    /// Values of the residue stream; empty where there is none.
    pub residue: Vec<Value>,
}

/// A whole store in memory. Everything in it was read strictly.
#[derive(Debug, Clone, PartialEq)]
pub struct Store {
    root: PathBuf,
    /// Item ledger entries by the source that they name.
    pub entries: BTreeMap<String, Value>,
    /// Failures by the source that they name.
    pub failures: BTreeMap<String, Value>,
    /// Descriptors by the name in the store.
    pub descriptors: BTreeMap<String, Value>,
    /// Streams, also residues, by their whole name.
    pub streams: BTreeMap<String, Vec<Value>>,
    /// The marker.
    pub marker: Option<Value>,
    /// Reports of imports by their keys.
    pub imports: BTreeMap<String, Value>,
}

impl Store {
    /// Reads it; a store that is not there is an empty one.
    ///
    /// # Panics
    /// Something in it is not as the application's readers insist.
    #[track_caller]
    pub fn read(root: &Path) -> Self {
        Self::try_read(root).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The same, where a test has more to say about what is wrong.
    pub fn try_read(root: &Path) -> Result<Self, String> {
        let mut streams = BTreeMap::new();
        for (name, path) in files(&root.join("journal"), ".jsonl") {
            streams.insert(name, stream(&path)?);
        }
        let by_source = |namespace| -> Result<BTreeMap<String, Value>, String> {
            let all = namespace_of(root, namespace)?;
            let named = all.into_iter().map(|(key, value)| {
                let source = value["source"].as_str().ok_or("no source")?.to_owned();
                // The key of a name that is not UTF-8 is that of its raw bytes.
                if !source.contains('%') && key != Sha256::of(source.as_bytes()).to_string() {
                    return Err(format!("{namespace}/{key} is not the key of {source}"));
                }
                Ok((source, value))
            });
            named.collect()
        };
        Ok(Self {
            root: root.to_owned(),
            entries: by_source("migration_items")?,
            failures: by_source("session_import.failed")?,
            descriptors: namespace_of(root, "sessions")?,
            streams,
            marker: namespace_of(root, "migrations")?.remove("session_import_v1"),
            imports: namespace_of(root, "session_import.imports")?,
        })
    }

    /// Everything of the session that was read from this source.
    #[track_caller]
    pub fn session(&self, source: &str) -> Session {
        self.find(source)
            .unwrap_or_else(|| panic!("no whole session of {source} in {:?}", self.entries.keys()))
    }

    /// The same, if it is there.
    pub fn find(&self, source: &str) -> Option<Session> {
        let entry = self.entries.get(source)?;
        let stream = entry["stream"].as_str()?;
        let name = stream.strip_prefix("session.")?.strip_suffix(".messages")?;
        Some(Session {
            entry: entry.clone(),
            descriptor: self.descriptors.get(name)?.clone(),
            messages: self.streams.get(stream)?.clone(),
            residue: self
                .streams
                .get(&format!("session.{name}.residue"))
                .cloned()
                .unwrap_or_default(),
        })
    }

    /// What no interruption may ever break: an entry of ours has its stream,
    /// its residue and its descriptor, as it says, and the sum of lines is
    /// right. Where an import may have been cut off, only entries that this
    /// one wrote are held to their hashes: `is_settled` tells which.
    pub fn check(&self, is_settled: impl Fn(&Value) -> bool) -> Result<(), String> {
        for (source, entry) in &self.entries {
            if entry.get("journal_sha256").is_none() || !is_settled(entry) {
                continue;
            }
            let session = self
                .find(source)
                .ok_or_else(|| format!("{source}: an entry without its stream or descriptor"))?;
            let stream = entry["stream"].as_str().unwrap_or_default();
            let name = stream
                .trim_start_matches("session.")
                .trim_end_matches(".messages");
            for (key, path) in [
                ("journal_sha256", format!("journal/{stream}.jsonl")),
                (
                    "residue_sha256",
                    format!("journal/session.{name}.residue.jsonl"),
                ),
                ("descriptor_sha256", format!("kv/sessions/{name}.json")),
            ] {
                let found = fs::read(self.root.join(&path)).ok();
                let found = found.map(|bytes| Sha256::of(&bytes).to_string());
                if found.as_deref() != entry.get(key).and_then(Value::as_str) {
                    return Err(format!(
                        "{source}: {path} is not what the entry's {key} says"
                    ));
                }
            }
            session
                .check()
                .map_err(|error| format!("{source}: {error}"))?;
        }
        Ok(())
    }

    /// Every file with its bytes but the lock, the cache and what a later
    /// import adds of itself: what two stores are compared by.
    pub fn bytes(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
        let files = walkdir::WalkDir::new(root).into_iter().flatten();
        let files = files.filter(|entry| !entry.file_type().is_dir());
        let named = files.map(|entry| {
            let relative = entry.path().strip_prefix(root).unwrap().to_owned();
            (relative, fs::read(entry.path()).unwrap_or_default())
        });
        let ours_alone = [".session-import.lock", ".session-import.stat"];
        named
            .filter(|(path, _)| !ours_alone.iter().any(|name| path.ends_with(name)))
            .collect()
    }
}

impl Session {
    /// Whether every line is accounted for, and the count is that of the stream.
    pub fn check(&self) -> Result<(), String> {
        let count = |value: &Value| value.as_u64().unwrap_or(u64::MAX);
        let lines = &self.entry["lines"];
        let [total, headers, messages, residue, blank] =
            ["total", "headers", "messages", "residue", "blank"].map(|key| count(&lines[key]));
        if total != headers + messages + residue + blank {
            return Err(format!("the sum of lines is off: {lines}"));
        }
        if count(&self.entry["messages"]) != self.messages.len() as u64 {
            return Err("the entry's number of messages is not the stream's".to_owned());
        }
        let of_source = self
            .residue
            .iter()
            .filter(|value| value["why"] != "dropped");
        let of_source = of_source.count() as u64;
        let is_markdown = self.entry["kind"] == "markdown";
        if !is_markdown && self.entry["kind"] != "subagent_history" && of_source != residue {
            return Err(format!("{of_source} residue records for {residue} lines"));
        }
        Ok(())
    }

    /// Roles and contents.
    pub fn texts(&self) -> Vec<(&str, &str)> {
        fn text(value: &Value) -> &str {
            value.as_str().unwrap_or_default()
        }
        let all = self.messages.iter();
        all.map(|value| (text(&value["role"]), text(&value["content"])))
            .collect()
    }

    /// Contents alone.
    pub fn contents(&self) -> Vec<&str> {
        self.texts()
            .into_iter()
            .map(|(_, content)| content)
            .collect()
    }
}

/// Names of the files in a folder, without this ending, and where they lie.
/// Temporary files are nobody's.
fn files(folder: &Path, ending: &str) -> BTreeMap<String, PathBuf> {
    let Ok(all) = fs::read_dir(folder) else {
        return BTreeMap::new();
    };
    all.filter_map(|entry| {
        let path = entry.ok()?.path();
        let name = path.file_name()?.to_str()?;
        let name = name
            .strip_suffix(ending)
            .filter(|_| !name.starts_with('.'))?;
        Some((name.to_owned(), path.clone()))
    })
    .collect()
}

fn namespace_of(root: &Path, namespace: &str) -> Result<BTreeMap<String, Value>, String> {
    let mut values = BTreeMap::new();
    for (key, path) in files(&root.join("kv").join(namespace), ".json") {
        let bytes = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let value = serde_json::from_slice(&bytes)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        values.insert(key, value);
    }
    Ok(values)
}

/// A stream's values, as the application's strict reader takes it: one bad
/// line and it refuses the whole.
fn stream(path: &Path) -> Result<Vec<Value>, String> {
    let wrong = |what: String| format!("{}: {what}", path.display());
    let bytes = fs::read(path).map_err(|error| wrong(error.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|error| wrong(error.to_string()))?;
    if !text.is_empty() && !text.ends_with('\n') {
        return Err(wrong("the last line has no end".to_owned()));
    }
    let mut values = Vec::new();
    for (index, line) in text.split_terminator('\n').enumerate() {
        let record: Value = serde_json::from_str(line)
            .map_err(|error| wrong(format!("line {}: {error}", index + 1)))?;
        let Value::Object(mut record) = record else {
            return Err(wrong(format!("line {}: no object", index + 1)));
        };
        let is_next = record.get("offset").and_then(Value::as_u64) == Some(index as u64);
        let has_time = record.get("created_at_ms").is_some_and(Value::is_u64);
        if !is_next || !has_time || record.len() != 3 {
            return Err(wrong(format!("line {}: not a record", index + 1)));
        }
        let value = record.remove("value");
        values.push(value.ok_or_else(|| wrong(format!("line {}: no value", index + 1)))?);
    }
    Ok(values)
}
