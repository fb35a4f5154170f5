//! The check: everything in a store, read as the application would read it.

use std::{
    collections::BTreeSet,
    fmt, fs, io,
    io::{Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::{Opened, VERSIONS, Version, descriptor::Descriptor};

/// What was read, or written, without fault.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Stream files in `journal/`.
    pub streams: u64,
    /// Records in them.
    pub records: u64,
    /// Keys in all namespaces of `kv/`.
    pub keys: u64,
    /// Keys of the namespace `sessions`, decoded as descriptors.
    pub descriptors: u64,
    /// Records that were appended and read back.
    pub appended: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.streams += other.streams;
        self.records += other.records;
        self.keys += other.keys;
        self.descriptors += other.descriptors;
        self.appended += other.appended;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} streams, {} records, {} keys, {} descriptors, {} appended",
            self.streams, self.records, self.keys, self.descriptors, self.appended
        )
    }
}

/// Something in a store that the application would refuse or misread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The file, or the folder, at fault.
    pub path: PathBuf,
    /// What is wrong with it.
    pub reason: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.reason)
    }
}

/// What one version of `tinyagents` made of a store.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The version.
    pub version: &'static str,
    /// What it read and wrote without fault.
    pub counts: Counts,
    /// What it could not; empty when the store is good.
    pub failures: Vec<Failure>,
}

/// The message of a journal record, as the application decodes it.
#[derive(Deserialize)]
#[allow(dead_code, reason = "decoded for its types, not for its values")]
struct JournalMessage {
    id: Option<String>,
    role: String,
    content: String,
    extra_metadata: Option<Value>,
}

/// Reads the store under `root` with every version in [`VERSIONS`]; with
/// `append` each version then appends a record to every message stream, one
/// version after the other, and all of them read the whole store once more.
/// The counts are those of the store as it was given.
///
/// So **`append` changes the store**: hand it a copy
/// ([`copy_store`](crate::copy_store)).
///
/// # Errors
///
/// When a version cannot be opened at all. What is wrong with the store is in
/// the outcomes.
pub fn check_store(root: &Path, append: bool) -> io::Result<Vec<Outcome>> {
    let mut checks = VERSIONS
        .iter()
        .map(|version| Check::new(version, root))
        .collect::<io::Result<Vec<_>>>()?;
    for check in &mut checks {
        check.read_all();
    }
    // Appending to what cannot be read would only name the same fault twice.
    if append && checks.iter().all(|check| check.failures.is_empty()) {
        for check in &mut checks {
            check.append_all();
        }
        for check in &mut checks {
            let counts = check.counts;
            check.read_all();
            check.counts = counts;
        }
    }
    Ok(checks.into_iter().map(Check::into_outcome).collect())
}

struct Check<'a> {
    version: &'a Version,
    root: &'a Path,
    store: Box<dyn Opened>,
    counts: Counts,
    failures: Vec<Failure>,
}

impl<'a> Check<'a> {
    fn new(version: &'a Version, root: &'a Path) -> io::Result<Self> {
        Ok(Self {
            version,
            root,
            store: (version.open)(root)?,
            counts: Counts::default(),
            failures: Vec::new(),
        })
    }

    fn into_outcome(self) -> Outcome {
        Outcome {
            version: self.version.name,
            counts: self.counts,
            failures: self.failures,
        }
    }

    fn journal(&self) -> PathBuf {
        self.root.join("journal")
    }

    fn stream_path(&self, stream: &str) -> PathBuf {
        self.journal().join(format!("{stream}.jsonl"))
    }

    fn fail(&mut self, path: impl Into<PathBuf>, reason: impl Into<String>) {
        self.failures.push(Failure {
            path: path.into(),
            reason: reason.into(),
        });
    }

    fn read_all(&mut self) {
        // A path with a slip in it must not pass for an empty store.
        if !self.journal().is_dir() && !self.root.join("kv").is_dir() {
            return self.fail(self.root, "no store: neither journal/ nor kv/ is in it");
        }
        let streams = self.streams();
        for stream in &streams {
            self.read_stream(stream);
        }
        for namespace in self.names(&self.root.join("kv"), "") {
            self.read_namespace(&namespace, &streams);
        }
    }

    fn streams(&mut self) -> BTreeSet<String> {
        self.names(&self.journal(), ".jsonl")
    }

    /// The names in `dir` that end in `suffix`, without it. Names that start
    /// with a dot are not the application's: temporary files, locks, caches.
    fn names(&mut self, dir: &Path, suffix: &str) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        let entries = match fs::read_dir(dir) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return names,
            Err(e) => {
                self.fail(dir, e.to_string());
                return names;
            }
        };
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(e) => {
                    self.fail(dir, e.to_string());
                    continue;
                }
            };
            match entry.file_name().to_str() {
                Some(name) if name.starts_with('.') => {}
                Some(name) => names.extend(name.strip_suffix(suffix).map(str::to_owned)),
                None => self.fail(entry.path(), "the name is not UTF-8"),
            }
        }
        names
    }

    fn read_stream(&mut self, stream: &str) {
        match self.strict_stream(stream) {
            Ok(records) => {
                self.counts.streams += 1;
                self.counts.records += records;
            }
            Err(reason) => self.fail(self.stream_path(stream), reason),
        }
    }

    /// Reads a whole stream; the number of its records.
    fn strict_stream(&self, stream: &str) -> Result<u64, String> {
        let records = self.store.read_from(stream, 0)?;
        for (expected, (offset, value)) in (0..).zip(&records) {
            if *offset != expected {
                return Err(format!("record {expected} has offset {offset}"));
            }
            if is_messages(stream) {
                JournalMessage::deserialize(value)
                    .map_err(|e| format!("record {expected} is no message: {e}"))?;
            }
        }
        let count = records.len() as u64;
        let len = self.store.stream_len(stream)?;
        if len != count {
            return Err(format!("{count} records, but the next offset is {len}"));
        }
        if !ends_with_newline(&self.stream_path(stream)).map_err(|e| e.to_string())? {
            return Err("no newline at the end: an append would spoil the last record".into());
        }
        Ok(count)
    }

    fn read_namespace(&mut self, namespace: &str, streams: &BTreeSet<String>) {
        let dir = self.root.join("kv").join(namespace);
        let mut keys = match self.store.list(namespace) {
            Ok(keys) => keys,
            Err(reason) => return self.fail(dir, reason),
        };
        keys.sort();
        for key in keys {
            let path = dir.join(format!("{key}.json"));
            let value = match self.store.get(namespace, &key) {
                Ok(Some(value)) => value,
                Ok(None) => {
                    self.fail(path, "listed, but there is no value");
                    continue;
                }
                Err(reason) => {
                    self.fail(path, reason);
                    continue;
                }
            };
            self.counts.keys += 1;
            if namespace == "sessions" {
                match decode_descriptor(&value, streams) {
                    Ok(()) => self.counts.descriptors += 1,
                    Err(reason) => self.fail(path, reason),
                }
            }
        }
    }

    fn append_all(&mut self) {
        for stream in self.streams() {
            if !is_messages(&stream) {
                continue;
            }
            match self.append_one(&stream) {
                Ok(()) => self.counts.appended += 1,
                Err(reason) => self.fail(self.stream_path(&stream), reason),
            }
        }
    }

    /// Writes on in a stream as the application's next turn would, with a
    /// record that no import could have written.
    fn append_one(&self, stream: &str) -> Result<(), String> {
        let before = self.store.read_from(stream, 0)?;
        let expected = before.len() as u64;
        let value = json!({
            "role": "user",
            "content": format!("appended by tinyagents {}", self.version.name),
        });
        let offset = self.store.append(stream, value.clone())?;
        if offset != expected {
            return Err(format!("appended at offset {offset}, not {expected}"));
        }
        let tail = self.store.read_from(stream, expected)?;
        if tail != [(expected, value)] {
            return Err(format!(
                "read back from offset {expected}, the appended record is not alone"
            ));
        }
        let mut after = self.store.read_from(stream, 0)?;
        after.truncate(before.len());
        if after != before {
            return Err("an append changed the records before it".into());
        }
        Ok(())
    }
}

fn is_messages(stream: &str) -> bool {
    stream.ends_with(".messages")
}

fn decode_descriptor(value: &Value, streams: &BTreeSet<String>) -> Result<(), String> {
    let descriptor =
        Descriptor::deserialize(value).map_err(|e| format!("not a descriptor: {e}"))?;
    if !streams.contains(&descriptor.stream) {
        return Err(format!("its stream {:?} is not there", descriptor.stream));
    }
    Ok(())
}

/// Whether a file is empty or its last byte is a newline. The readers do not
/// mind, but the application appends whole lines and looks at no byte before.
fn ends_with_newline(path: &Path) -> io::Result<bool> {
    let mut file = fs::File::open(path)?;
    if file.metadata()?.len() == 0 {
        return Ok(true);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}
