//! What imports have left in a store, and whether it is still as they left it.
//!
//! The looking half of an undo; [`super::remove`] does the rest.

use std::collections::HashSet;

use chrono::DateTime;
use rayon::iter::{IntoParallelIterator as _, ParallelIterator as _};

use super::layout::Namespace;
use super::{Descriptor, Entry, Store, StoreName, StreamReader, kv};
use crate::error::{Error, Result};
use crate::fs::Stat;
use crate::model::diagnostic::{Code, Diagnostic};
use crate::model::key::{SessionKey, Sha256};

/// What an entry of ours vouches for, as far as taking it away needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vouched {
    /// The session's name in the store.
    pub name: StoreName,
    session_key: SessionKey,
    imported_at: String,
    journal: Sha256,
    descriptor: Option<Sha256>,
}

impl Vouched {
    /// `None` where there is no record: an accepted failure, an entry of the
    /// existing importer, or one that names no stream of messages.
    pub fn of(entry: &Entry) -> Option<Self> {
        Some(Self {
            name: entry.store_name()?,
            session_key: entry.session_key.clone(),
            imported_at: entry.imported_at.clone(),
            journal: entry.journal_sha256?,
            descriptor: entry.descriptor_sha256,
        })
    }

    fn is_stream(&self, hash: &Sha256) -> bool {
        self.journal == *hash
    }

    fn is_same_session(&self, found: &Unvouched) -> bool {
        self.session_key == found.descriptor.session_key
    }

    /// The descriptor as it was written; or one with another path in it, which
    /// a record that was moving has when it is cut off: it still names the
    /// import, which the application's does not.
    fn is_descriptor(&self, bytes: &[u8]) -> bool {
        if self.descriptor == Some(Sha256::of(bytes)) {
            return true;
        }
        let parsed = serde_json::from_slice::<Descriptor>(bytes);
        parsed.is_ok_and(|descriptor| {
            descriptor.session_key == self.session_key
                && descriptor.stream == self.name.messages().as_str()
                && descriptor.import.imported_at == self.imported_at
        })
    }
}

/// What lies in the store of one session, as it was when it was looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Traces {
    pub(super) stream: Option<Stat>,
    pub(super) residue: Option<Stat>,
    pub(super) descriptor: Option<Stat>,
    /// What is not as the import left it, in words.
    pub foreign: Option<&'static str>,
}

impl Traces {
    /// Size of all of it.
    pub fn bytes(&self) -> u64 {
        let all = [self.stream, self.residue, self.descriptor];
        all.iter().flatten().map(|stat| stat.size).sum()
    }
}

/// A session that an import put in place and did not get to vouch for.
#[derive(Debug)]
pub struct CutOff {
    /// What an entry would have vouched for.
    pub vouched: Vouched,
    /// Its key.
    pub session_key: SessionKey,
    /// Its source, as its descriptor names it.
    pub source: Option<String>,
    /// Messages in its stream.
    pub messages: u64,
}

/// A descriptor and its stream.
struct Unvouched {
    descriptor: Descriptor,
    descriptor_sha256: Sha256,
    /// `None` where there is no stream.
    journal: Option<Sha256>,
    messages: u64,
    /// All of the stream's records have the time of the import that the
    /// descriptor names: the application appends message by message.
    is_of_one_import: bool,
}

impl Store {
    /// Sessions that imports of ours put in place before they were cut off:
    /// `known` are the names that entries vouch for. Such a session's records
    /// have one time, and its descriptor, which is put in place before the
    /// stream, has the same. One without any message may also be what the
    /// application is just writing; that does not miss its old descriptor.
    ///
    /// # Errors
    /// A file or folder cannot be read.
    pub fn cut_off(&self, known: &HashSet<StoreName>) -> Result<Vec<CutOff>> {
        let names = self.descriptor_names()?.into_iter();
        let names: Vec<_> = names.filter(|name| !known.contains(name)).collect();
        let found = names.into_par_iter().map(|name| {
            let found = self.unvouched(&name)?;
            Ok(found.map(|found| (name, found)))
        });
        let found: Vec<_> = found.collect::<Result<_>>()?;
        let found = found.into_iter().flatten();
        let cut_off = found.map(|(name, found)| {
            let Descriptor {
                session_key,
                source,
                import,
                ..
            } = found.descriptor;
            CutOff {
                vouched: Vouched {
                    name,
                    session_key: session_key.clone(),
                    imported_at: import.imported_at,
                    journal: found.journal.unwrap_or_else(|| Sha256::of(&[])),
                    descriptor: Some(found.descriptor_sha256),
                },
                session_key,
                source: source.jsonl.or(source.md),
                messages: found.messages,
            }
        });
        Ok(cut_off.collect())
    }

    /// `None` where there is no descriptor, or one that is no import's.
    fn unvouched(&self, name: &StoreName) -> Result<Option<Unvouched>> {
        let descriptor = self.layout().key_file(Namespace::Sessions, name.as_str());
        let Some(Ok(bytes)) = kv::read(&descriptor)? else {
            return Ok(None);
        };
        let descriptor_sha256 = Sha256::of(&bytes);
        let Ok(descriptor) = serde_json::from_slice::<Descriptor>(&bytes) else {
            return Ok(None);
        };
        let stream = name.messages();
        let time = DateTime::parse_from_rfc3339(&descriptor.import.imported_at);
        let (Ok(time), true) = (time, descriptor.stream == stream.as_str()) else {
            return Ok(None);
        };
        let path = self.layout().stream_file(&stream);
        let mut found = Unvouched {
            descriptor,
            descriptor_sha256,
            journal: None,
            messages: 0,
            is_of_one_import: false,
        };
        let Some(mut reader) = StreamReader::open(&path)? else {
            return Ok(Some(found));
        };
        let time = u64::try_from(time.timestamp_millis()).unwrap_or(0);
        found.is_of_one_import = loop {
            match reader.next() {
                Ok(Some(record)) if record.created_at_ms == time => found.messages += 1,
                Ok(None) => break found.messages > 0,
                // Another's, or damaged.
                Ok(Some(_)) | Err(_) => return Ok(None),
            }
        };
        found.journal = super::journal::sha256_of_file(&path)?.map(|(hash, _)| hash);
        Ok(Some(found))
    }

    /// Looks at a session's files. `vouched` are all entries that name them:
    /// a record that was moving when it was cut off has two. What is missing
    /// is as the import left it: there is nothing to lose.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn traces(&self, name: &StoreName, vouched: &[Vouched]) -> Result<Traces> {
        let stream = self.layout().stream_file(&name.messages());
        let residue = self.layout().stream_file(&name.residue());
        let descriptor = self.layout().key_file(Namespace::Sessions, name.as_str());
        let stat = |path| Stat::of(path, false).map_err(Error::store_io("read", path));
        // What they look like is taken before their bytes are, so that whatever
        // is written meanwhile shows.
        let mut traces = Traces {
            stream: stat(&stream)?,
            residue: stat(&residue)?,
            descriptor: stat(&descriptor)?,
            foreign: None,
        };
        if let Some((hash, _)) = super::journal::sha256_of_file(&stream)?
            && !vouched.iter().any(|one| one.is_stream(&hash))
        {
            // Or that of a later import, which did not get to its entry.
            let is_later = self.unvouched(name)?.is_some_and(|found| {
                found.is_of_one_import && vouched.iter().any(|one| one.is_same_session(&found))
            });
            if !is_later {
                traces.foreign = Some("stream");
            }
            return Ok(traces);
        }
        let is_ours = match kv::read(&descriptor)? {
            None => true,
            Some(Err(_)) => false,
            Some(Ok(bytes)) => vouched.iter().any(|one| one.is_descriptor(&bytes)),
        };
        if !is_ours {
            traces.foreign = Some("descriptor");
        }
        Ok(traces)
    }

    /// Whether the residue stream holds messages that the source no longer has.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn has_dropped(&self, name: &StoreName) -> Result<bool> {
        let residue = self.layout().stream_file(&name.residue());
        let Some(mut residue) = StreamReader::open(&residue)? else {
            return Ok(false);
        };
        loop {
            match residue.next() {
                // As the draft writes it.
                Ok(Some(record)) => {
                    let dropped = r#"{"line":null,"why":"dropped""#;
                    if record.value().starts_with(dropped) {
                        return Ok(true);
                    }
                }
                Ok(None) => return Ok(false),
                // Nobody can tell what it is.
                Err(_) => return Ok(true),
            }
        }
    }

    /// Entries that an undo was about to remove when it was cut off.
    ///
    /// # Errors
    /// As [`Store::entries`].
    pub fn being_undone(&self) -> Result<super::Entries> {
        self.records(Namespace::Undo, |_, entry| entry)
    }

    /// What is to be told of an undo that was cut off, where nothing is written.
    pub(crate) fn unfinished_undo(&self) -> Option<Diagnostic> {
        let keys = kv::list(self.layout(), Namespace::Undo).ok()?;
        let message = "an undo was cut off; a run finishes it first, so the plan is made from \
                       what will not be there";
        (!keys.is_empty()).then(|| Diagnostic::new(Code::UndoUnfinished, message))
    }

    /// Whether there is anything here that only an import of ours leaves,
    /// entries and the lock's file aside.
    pub fn has_traces(&self) -> bool {
        let is_there = |namespace| self.layout().namespace_dir(namespace).exists();
        self.layout().stat_cache_file().exists()
            || OWN.into_iter().any(is_there)
            || self.marker().is_ok_and(|m| m.is_some_and(|m| m.is_ours()))
            // The last step of an undo, which may have been cut off.
            || (self.layout().lock_file().exists() && self.has_empty_folder())
    }

    fn has_empty_folder(&self) -> bool {
        let namespaces = Namespace::ALL.map(|namespace| self.layout().namespace_dir(namespace));
        let folders = [self.layout().journal_dir(), self.layout().kv_dir()];
        let mut folders = folders.into_iter().chain(namespaces);
        folders.any(|folder| {
            let listed = std::fs::read_dir(folder);
            listed.is_ok_and(|mut listed| listed.next().is_none())
        })
    }
}

/// Namespaces that nobody else has.
const OWN: [Namespace; 4] = [
    Namespace::Failed,
    Namespace::Imports,
    Namespace::Meta,
    Namespace::Undo,
];
