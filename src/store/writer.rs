//! The one that writes to a store.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use super::hashing::Buffers;
use super::layout::{FORMAT_KEY, JOURNAL, KV, MARKER_KEY, key_file_name};
use super::lock::{Lock, Patience};
use super::{
    Clock, Draft, Entry, Failure, ImportRecord, Marker, Namespace, Store, StoreName, commit, kv,
};
use crate::error::{Error, Result};
use crate::fs::{Dir, Flusher, Owner, Temp, atomic, sync};
use crate::model::diagnostic::{Code, Diagnostic};
use crate::model::key::Sha256;

/// The right to write to a store, and all that is needed for it. Dropped, it
/// gives the lock back.
#[derive(Debug)]
pub struct Writer {
    store: Store,
    clock: Clock,
    lock: Lock,
    pub(super) root: Arc<Dir>,
    pub(super) journal: Arc<Dir>,
    pub(super) kv: Arc<Dir>,
    namespaces: Mutex<BTreeMap<Namespace, Arc<Dir>>>,
    pub(super) flusher: Flusher,
    buffers: Buffers,
}

impl Writer {
    /// Opens the store for writing, and makes it, if need be. Nothing is
    /// written, not even a lock, to a store of a higher format or of another
    /// workspace. What is to be told is given with the writer.
    ///
    /// # Errors
    /// [`Error::Locked`] if somebody else has it for longer than there is patience;
    /// [`Error::Store`] if it may not be written; what the operating system
    /// refused.
    pub fn open(
        root: &Path,
        workspace: &Path,
        clock: Clock,
        patience: impl Into<Patience>,
    ) -> Result<(Self, Vec<Diagnostic>)> {
        let store = Store::at(root);
        store.claim(workspace)?;
        let (root, parents) = Dir::open_root(root, Owner::of_workspace(workspace)?)?;
        let lock = Lock::take(&root, &patience.into())?;
        // Whoever had the lock before may have changed what was seen above.
        let claim = store.claim(workspace)?;
        let flusher = Flusher::new(&root);
        let (journal, _) = root.child_or_new(JOURNAL)?;
        let (kv, is_new) = root.child_or_new(KV)?;
        if is_new {
            sync::flush_folder(&root)?;
        }
        for parent in &parents {
            sync::flush_folder_at(parent)?;
        }
        let writer = Self {
            store,
            clock,
            lock,
            root: Arc::clone(&root),
            journal,
            kv,
            namespaces: Mutex::default(),
            flusher,
            buffers: Buffers::default(),
        };
        let mut diagnostics = claim.diagnostics;
        diagnostics.extend(writer.clear_leftovers(&root)?);
        diagnostics.extend(writer.finish_undo(workspace)?);
        if claim.is_new {
            writer.put(Namespace::Meta, FORMAT_KEY, &kv::to_bytes(&claim.format)?)?;
        }
        Ok((writer, diagnostics))
    }

    /// The read side.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The time of this import.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Begins to write a session's streams.
    ///
    /// # Errors
    /// No file can be created.
    pub fn draft(&self, name: &StoreName) -> Result<Draft> {
        Draft::new(&self.journal, &self.buffers, name, self.clock.ms())
    }

    /// Removes the marker, durably. `false` if there was none.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove_marker(&self) -> Result<bool> {
        if self.store.is_in_the_way(Namespace::Markers, MARKER_KEY) {
            // It vouches for nothing, and is nobody's to remove.
            return Ok(false);
        }
        self.remove(Namespace::Markers, MARKER_KEY)
    }

    /// Writes the marker, durably. All entries are, since each commit ends so.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn put_marker(&self, marker: &Marker) -> Result<()> {
        self.put(Namespace::Markers, MARKER_KEY, &kv::to_bytes(marker)?)
    }

    /// Writes one failure.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn put_failure(&self, key: &Sha256, failure: &Failure) -> Result<()> {
        self.put(Namespace::Failed, &key.to_string(), &kv::to_bytes(failure)?)
    }

    /// Writes failures, flushed together.
    pub fn put_failures(&self, failures: Vec<(Sha256, Failure)>) -> Vec<Result<()>> {
        let slots = failures
            .into_iter()
            .enumerate()
            .map(|(tag, failure)| (tag, Ok(failure)))
            .collect();
        let put = self.put_all(Namespace::Failed, slots, |(key, failure)| {
            Ok((key.to_string(), kv::to_bytes(failure)?))
        });
        put.into_iter()
            .map(|(_, result)| result.map(drop).map_err(Into::into))
            .collect()
    }

    /// Removes a failure. `false` if there was none.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove_failure(&self, key: &Sha256) -> Result<bool> {
        self.remove(Namespace::Failed, &key.to_string())
    }

    /// Writes an entry alone: its session's files are in place already, or it
    /// is an accepted failure that has none.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn put_entry(&self, key: &Sha256, entry: &Entry) -> Result<()> {
        self.put(Namespace::Items, &key.to_string(), &kv::to_bytes(entry)?)
    }

    /// Writes entries alone, flushed together.
    ///
    /// # Errors
    /// The first that could not be written; others may have been.
    pub fn put_entries(&self, entries: Vec<(Sha256, Entry)>) -> Result<()> {
        let slots = entries.into_iter().enumerate();
        let slots = slots.map(|(tag, entry)| (tag, Ok(entry))).collect();
        let put = self.put_all(Namespace::Items, slots, |(key, entry)| {
            Ok((key.to_string(), kv::to_bytes(entry)?))
        });
        put.into_iter()
            .try_for_each(|(_, result)| result.map(drop).map_err(Error::from))
    }

    /// Removes an entry. `false` if there was none.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove_item(&self, key: &Sha256) -> Result<bool> {
        self.remove(Namespace::Items, &key.to_string())
    }

    /// Keeps the report of this import, and gives the key that it got.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn put_import(&self, record: &ImportRecord) -> Result<String> {
        let bytes = serde_json::to_vec_pretty(record).map_err(kv::not_json)?;
        let taken = kv::list(self.store.layout(), Namespace::Imports)?;
        let stamp = self.clock.stamp();
        let keys = (1..=u64::MAX).map(|number| format!("{stamp}-{number}"));
        let free = keys
            .into_iter()
            .find(|key| taken.binary_search(key).is_err());
        let key = free.unwrap_or(stamp);
        self.put(Namespace::Imports, &key, &bytes)?;
        Ok(key)
    }

    /// Gives the lock back and leaves its file empty.
    ///
    /// # Errors
    /// The file cannot be emptied; the lock is free all the same.
    pub fn finish(self) -> Result<()> {
        self.lock.release()
    }

    /// Puts one value in place, durably.
    pub(super) fn put(&self, namespace: Namespace, key: &str, bytes: &[u8]) -> Result<()> {
        let dir = self.namespace(namespace)?;
        let temp = Temp::with(&dir, bytes)?;
        temp.flush()?;
        temp.place(&key_file_name(key))?;
        sync::flush_folder(&dir)
    }

    /// Removes one value, durably. `false` if there was none.
    fn remove(&self, namespace: Namespace, key: &str) -> Result<bool> {
        let Some(dir) = self.kv.child(namespace.as_str())? else {
            return Ok(false);
        };
        let name = key_file_name(key);
        let removed = dir
            .unlink(&*name)
            .map_err(Error::store_io("remove", &dir.path().join(&name)))?;
        if removed {
            sync::flush_folder(&dir)?;
        }
        Ok(removed)
    }

    /// The folder of a namespace, made durably when it is first needed.
    pub(super) fn namespace(&self, namespace: Namespace) -> Result<Arc<Dir>> {
        let mut known = self
            .namespaces
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(dir) = known.get(&namespace) {
            return Ok(Arc::clone(dir));
        }
        let (dir, is_new) = self.kv.child_or_new(namespace.as_str())?;
        if is_new {
            sync::flush_folder(&self.kv)?;
        }
        known.insert(namespace, Arc::clone(&dir));
        Ok(dir)
    }

    /// The folder of a namespace is going.
    pub(super) fn forget_namespace(&self, namespace: Namespace) {
        let mut known = self
            .namespaces
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        known.remove(&namespace);
    }

    /// The folder of a namespace, if there is one.
    pub(super) fn existing(&self, namespace: Namespace) -> Result<Option<Arc<Dir>>> {
        self.kv.child(namespace.as_str())
    }

    /// Removes the temporary files of an import that was killed. One that
    /// stays does no harm.
    fn clear_leftovers(&self, root: &Dir) -> Result<Vec<Diagnostic>> {
        let mut stayed = Vec::new();
        for path in self.store.leftovers()? {
            let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
                continue;
            };
            let removed = if folder == root.path() {
                root.unlink(name)
            } else if folder == self.journal.path() {
                self.journal.unlink(name)
            } else {
                let namespace = folder.file_name().and_then(|name| name.to_str());
                match namespace
                    .map(|name| self.kv.child(name))
                    .transpose()?
                    .flatten()
                {
                    Some(dir) => dir.unlink(name),
                    None => Ok(false),
                }
            };
            if let Err(error) = removed {
                let path = path.display();
                let message = format!("{path} could not be removed: {error}");
                stayed.push(Diagnostic::new(Code::Leftover, message));
            }
        }
        Ok(stayed)
    }

    /// Puts many values in place, flushed together. An error of one is that of
    /// no other.
    pub(super) fn put_all<T: Send>(
        &self,
        namespace: Namespace,
        slots: Vec<commit::Slot<T>>,
        render: impl Fn(&T) -> Result<(String, Vec<u8>)> + Sync,
    ) -> Vec<commit::Slot<T>> {
        let dir = match self.namespace(namespace) {
            Ok(dir) => dir,
            Err(error) => return commit::fail_all(slots, &error),
        };
        let slots = commit::each(slots, |value| {
            let (key, bytes) = render(&value)?;
            Ok((Temp::with(&dir, &bytes)?, key, value))
        });
        let slots = self.flush_each(slots, 1, |(temp, _, _)| temp.flush());
        let slots = commit::each(slots, |(temp, key, value)| {
            temp.place(&key_file_name(&key))?;
            Ok(value)
        });
        self.flush_folders(slots, &[&dir], 1)
    }

    /// Makes the temporary files of all slots durable, `files` for each.
    pub(super) fn flush_each<T: Send>(
        &self,
        slots: Vec<commit::Slot<T>>,
        files: usize,
        flush: impl Fn(&T) -> Result<()> + Sync,
    ) -> Vec<commit::Slot<T>> {
        if self.flusher.whole(commit::good(&slots) * files) {
            return slots;
        }
        commit::each(slots, |value| {
            flush(&value).map(|()| value).map_err(Into::into)
        })
    }

    /// Makes what was renamed or removed in these folders durable, `changes`
    /// for each slot; where that fails, it has failed for all of them.
    pub(super) fn flush_folders<T>(
        &self,
        slots: Vec<commit::Slot<T>>,
        folders: &[&Dir],
        changes: usize,
    ) -> Vec<commit::Slot<T>> {
        match self
            .flusher
            .folders(folders, commit::good(&slots) * changes)
        {
            Ok(()) => slots,
            Err(error) => commit::fail_all(slots, &error),
        }
    }
}

/// Whether a name is that of a temporary file of ours: for those who look at a
/// store from outside.
pub fn is_temp_name(name: &str) -> bool {
    atomic::is_temp_name(name)
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
