//! What imports have left in a store, and whether it is still as they left it.
//!
//! The looking half of an undo; [`super::remove`] does the rest.

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

impl Store {
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
            traces.foreign = Some("stream");
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
        // As the draft writes it. A line that cannot be read is not one of ours.
        while let Ok(Some(record)) = residue.next() {
            if record
                .value()
                .starts_with(r#"{"line":null,"why":"dropped""#)
            {
                return Ok(true);
            }
        }
        Ok(false)
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
