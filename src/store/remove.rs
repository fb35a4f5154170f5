//! Taking records out of a store, session by session.
//!
//! An entry must never vouch for a stream that is not there: the existing
//! importer, which shares the item ledger, would believe it and skip the
//! source. And a stream that nothing vouches for would look like the
//! application's own. So a session goes in four steps, each flushed before the
//! next:
//!
//! 1. its entry is moved, by a rename, from `migration_items` to
//!    `session_import.undo`, where it vouches for nothing and says what is
//!    being removed;
//! 2. descriptor, stream and residue are removed;
//! 3. the entry is.
//!
//! Nothing is written, so it also works where the disk is full. Cut off between
//! two steps, what is left in `session_import.undo` is finished by whoever
//! opens the store for writing next ([`Writer::finish_undo`]): a run and another
//! undo both find a store without half a session.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::layout::{FORMAT_KEY, JOURNAL, KV, Namespace, STAT_CACHE, key_file_name};
use super::{CommitError, Descriptor, Entry, Store, StoreName, StreamReader, Writer, commit, kv};
use crate::error::{Error, Result};
use crate::fs::{Dir, Stat, sync};
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
    stream: Option<Stat>,
    residue: Option<Stat>,
    descriptor: Option<Stat>,
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

/// A session that is to be removed.
#[derive(Debug)]
pub struct Removal {
    /// The keys of its entries.
    pub keys: Vec<Sha256>,
    /// Its files; none where a failure was accepted.
    pub record: Option<(StoreName, Traces)>,
    /// By which the caller knows it.
    pub tag: usize,
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

/// The folders that a session's files and entries lie in, where they exist.
struct Folders {
    undo: Arc<Dir>,
    items: Option<Arc<Dir>>,
    sessions: Option<Arc<Dir>>,
    failed: Option<Arc<Dir>>,
}

impl Writer {
    /// Removes sessions, durably, and says of each, under its tag, what became
    /// of it. [`CommitError::StreamChanged`]: the application has written to
    /// it since it was looked at, and nothing of it was removed.
    pub fn remove_sessions(&self, batch: Vec<Removal>) -> Vec<(usize, Result<(), CommitError>)> {
        let slots = batch.into_iter().map(|removal| (removal.tag, Ok(removal)));
        let slots = commit::each(slots.collect(), |removal| {
            self.check(&removal).map(|()| removal)
        });
        if commit::good(&slots) == 0 {
            return commit::each(slots, |_: Removal| Ok(()));
        }
        let folders = match self.folders() {
            Ok(folders) => folders,
            Err(error) => return commit::fail_all(slots, &error),
        };
        let Folders {
            undo,
            items,
            sessions,
            failed,
        } = &folders;
        let slots = commit::each(slots, |removal| {
            if let Some(items) = items {
                hand_over(items, undo, &removal.keys)?;
            }
            Ok(removal)
        });
        let slots = self.flush_present(slots, [Some(undo), items.as_ref()]);
        let slots = commit::each(slots, |removal| {
            self.remove_files(&removal, &folders).map(|()| removal)
        });
        let slots = self.flush_present(slots, [Some(&self.journal), sessions.as_ref()]);
        let slots = commit::each(slots, |removal: Removal| {
            for key in &removal.keys {
                let name = key_file_name(&key.to_string());
                unlink(failed.as_ref(), &name)?;
                unlink(Some(undo), &name)?;
            }
            Ok(())
        });
        self.flush_present(slots, [Some(undo), failed.as_ref()])
    }

    /// Finishes an undo that was cut off; of a session on which the
    /// application has written since, the entry comes back. What was done is
    /// in the result.
    pub(super) fn finish_undo(&self) -> Result<Vec<Diagnostic>> {
        let Some(undo) = self.existing(Namespace::Undo)? else {
            return Ok(Vec::new());
        };
        let entries = self.store().being_undone()?;
        let damaged = entries.damaged.iter();
        let mut back: Vec<Sha256> = damaged.filter_map(|d| d.key.parse().ok()).collect();
        let mut removals: Vec<Removal> = Vec::new();
        let mut remove = |keys, record| {
            let tag = removals.len();
            removals.push(Removal { keys, record, tag });
        };
        let mut by_name: BTreeMap<StoreName, (Vec<Sha256>, Vec<Vouched>)> = BTreeMap::new();
        for (key, entry) in entries.by_key {
            match Vouched::of(&entry) {
                Some(vouched) => {
                    let (keys, all) = by_name.entry(vouched.name.clone()).or_default();
                    keys.push(key);
                    all.push(vouched);
                }
                None => remove(vec![key], None),
            }
        }
        for (name, (mut keys, vouched)) in by_name {
            let traces = self.store().traces(&name, &vouched)?;
            match traces.foreign {
                Some(_) => back.append(&mut keys),
                None => remove(keys, Some((name, traces))),
            }
        }
        if !back.is_empty() {
            let items = self.namespace(Namespace::Items)?;
            hand_over(&undo, &items, &back)?;
            self.flusher.folders(&[&items, &undo], back.len())?;
        }
        let removed = removals.len();
        for (_, result) in self.remove_sessions(removals) {
            match result {
                // It was handed back.
                Err(CommitError::StreamChanged) | Ok(()) => {}
                Err(CommitError::Failed(error)) => return Err(error),
            }
        }
        self.remove_undo_folder()?;
        if removed + back.len() == 0 {
            return Ok(Vec::new());
        }
        let message = format!(
            "an undo was cut off; it was finished first (sessions removed: {removed}, \
             kept: {})",
            back.len()
        );
        Ok(vec![Diagnostic::new(Code::UndoUnfinished, message)])
    }

    /// Removes failures, durably.
    ///
    /// # Errors
    /// One cannot be removed.
    pub fn remove_failures<'k>(&self, keys: impl IntoIterator<Item = &'k Sha256>) -> Result<()> {
        let Some(failed) = self.existing(Namespace::Failed)? else {
            return Ok(());
        };
        let mut removed = 0;
        for key in keys {
            removed += usize::from(unlink(Some(&failed), &key_file_name(&key.to_string()))?);
        }
        self.flusher.folders(&[&failed], removed)
    }

    /// Removes all that imports leave beside sessions, and folders that are
    /// empty then: what is left is as if there had been no import. Only for a
    /// store without an entry of ours. The format record goes last: it says
    /// whose the rest is.
    ///
    /// # Errors
    /// Something cannot be removed.
    pub fn remove_rest(&self) -> Result<()> {
        if let Some(imports) = self.existing(Namespace::Imports)? {
            for key in kv::list(self.store().layout(), Namespace::Imports)? {
                unlink(Some(&imports), &key_file_name(&key))?;
            }
            sync::flush_folder(&imports)?;
        }
        unlink(Some(&self.root), STAT_CACHE)?;
        if let Some(meta) = self.existing(Namespace::Meta)? {
            unlink(Some(&meta), &key_file_name(FORMAT_KEY))?;
            sync::flush_folder(&meta)?;
        }
        self.remove_folders(&Namespace::ALL)?;
        for folder in [JOURNAL, KV] {
            let removed = self.root.remove_if_empty(folder);
            removed.map_err(Error::store_io("remove", &self.root.path().join(folder)))?;
        }
        sync::flush_folder(&self.root)
    }

    /// Removes the folder that entries pass through, if it is empty.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove_undo_folder(&self) -> Result<()> {
        self.remove_folders(&[Namespace::Undo])
    }

    /// Removes those of these namespaces' folders that are empty.
    fn remove_folders(&self, namespaces: &[Namespace]) -> Result<()> {
        for namespace in namespaces {
            self.forget_namespace(*namespace);
            let name = namespace.as_str();
            let removed = self.kv.remove_if_empty(name);
            removed.map_err(Error::store_io("remove", &self.kv.path().join(name)))?;
        }
        sync::flush_folder(&self.kv)
    }

    /// Whether a session's files are still those that were looked at. One that
    /// is gone since is no loss.
    fn check(&self, removal: &Removal) -> Result<(), CommitError> {
        let Some((name, traces)) = &removal.record else {
            return Ok(());
        };
        let layout = self.store().layout();
        let stream = layout.stream_file(&name.messages());
        let descriptor = layout.key_file(Namespace::Sessions, name.as_str());
        for (path, before) in [(stream, traces.stream), (descriptor, traces.descriptor)] {
            let now = Stat::of(&path, false).map_err(Error::store_io("read", &path))?;
            let is_same = now.is_none_or(|now| before.is_some_and(|b| b.same_content(&now)));
            if !is_same {
                return Err(CommitError::StreamChanged);
            }
        }
        Ok(())
    }

    fn remove_files(&self, removal: &Removal, folders: &Folders) -> Result<(), CommitError> {
        let Some((name, _)) = &removal.record else {
            return Ok(());
        };
        // Once more, now that they are about to go: the application takes no
        // lock. That narrows the window and cannot close it.
        if let Err(error) = self.check(removal) {
            // Nothing of it is gone, so its entry vouches for it again.
            let items = self.namespace(Namespace::Items)?;
            hand_over(&folders.undo, &items, &removal.keys)?;
            self.flusher
                .folders(&[&items, &folders.undo], removal.keys.len())?;
            return Err(error);
        }
        // The descriptor first: it names the stream.
        unlink(folders.sessions.as_ref(), &key_file_name(name.as_str()))?;
        unlink(Some(&self.journal), &name.messages().file_name())?;
        unlink(Some(&self.journal), &name.residue().file_name())?;
        Ok(())
    }

    fn folders(&self) -> Result<Folders> {
        Ok(Folders {
            undo: self.namespace(Namespace::Undo)?,
            items: self.existing(Namespace::Items)?,
            sessions: self.existing(Namespace::Sessions)?,
            failed: self.existing(Namespace::Failed)?,
        })
    }

    /// Makes what was moved or removed in these folders durable.
    fn flush_present<T>(
        &self,
        slots: Vec<commit::Slot<T>>,
        folders: [Option<&Arc<Dir>>; 2],
    ) -> Vec<commit::Slot<T>> {
        let folders: Vec<&Dir> = folders.into_iter().flatten().map(AsRef::as_ref).collect();
        self.flush_folders(slots, &folders, 2)
    }
}

/// Moves entries from one folder to the other. One that is not there has been
/// moved before.
fn hand_over(from: &Dir, to: &Dir, keys: &[Sha256]) -> Result<()> {
    for key in keys {
        let name = key_file_name(&key.to_string());
        let moved = from.hand_over(&name, to);
        moved.map_err(Error::store_io("move", &from.path().join(&name)))?;
    }
    Ok(())
}

/// Removes a file. `false` if there is none, or no folder.
fn unlink(dir: Option<&Arc<Dir>>, name: &str) -> Result<bool> {
    dir.map_or(Ok(false), |dir| {
        let removed = dir.unlink(name);
        removed.map_err(Error::store_io("remove", &dir.path().join(name)))
    })
}
