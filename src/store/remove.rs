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
//! opens the store for writing next (`Writer::finish_undo`): a run and another
//! undo both find a store without half a session.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::holds::begins_as_imported;
use super::layout::{FORMAT_KEY, JOURNAL, KV, Namespace, STAT_CACHE, key_file_name};
use super::traces::{Traces, Vouched};
use super::{CommitError, StoreName, Writer, commit, kv};
use crate::error::{Error, Result};
use crate::fs::{Dir, Stat, sync};
use crate::model::diagnostic::{Code, Diagnostic};
use crate::model::key::Sha256;

/// A session that is to be removed.
#[derive(Debug)]
pub struct Removal {
    /// The keys of its entries; none where an import was cut off before it
    /// wrote one.
    pub keys: Vec<Sha256>,
    /// Its files; none where only a failure was accepted.
    pub record: Option<(StoreName, Traces)>,
    /// By which the caller knows it.
    pub tag: usize,
}

/// The folders that a session's files and entries lie in, where they exist.
struct Folders {
    undo: Arc<Dir>,
    items: Option<Arc<Dir>>,
    sessions: Option<Arc<Dir>>,
    failed: Option<Arc<Dir>>,
}

/// Entries of one session that an undo was about to remove.
#[derive(Default)]
struct Handed {
    keys: Vec<Sha256>,
    vouched: Vec<Vouched>,
    is_in_source: bool,
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
    /// application has written since, or whose source has changed since, the
    /// entry comes back: what was no loss then may be one now. What was done
    /// is in the result.
    pub(super) fn finish_undo(&self, workspace: &Path) -> Result<Vec<Diagnostic>> {
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
        let mut by_name: BTreeMap<StoreName, Handed> = BTreeMap::new();
        for (key, entry) in entries.by_key {
            match Vouched::of(&entry) {
                Some(vouched) => {
                    let handed = by_name.entry(vouched.name.clone()).or_default();
                    handed.keys.push(key);
                    handed.vouched.push(vouched);
                    handed.is_in_source |= begins_as_imported(workspace, &entry);
                }
                None => remove(vec![key], None),
            }
        }
        for (name, mut handed) in by_name {
            let traces = self.store().traces(&name, &handed.vouched)?;
            // Without its files there is nothing that an entry could vouch for.
            let has_files = traces.stream.is_some() || traces.residue.is_some();
            let is_only_copy = !handed.is_in_source && has_files;
            match traces.foreign.is_some() || is_only_copy {
                true => back.append(&mut handed.keys),
                false => remove(handed.keys, Some((name, traces))),
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
        // Residue is ours alone; an import that was cut off leaves some whose
        // session is not in place yet.
        for stream in self.store().stream_names()? {
            if stream.of_residue().is_some() {
                unlink(Some(&self.journal), &stream.file_name())?;
            }
        }
        sync::flush_folder(&self.journal)?;
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
        let Some((name, traces)) = &removal.record else {
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
        // The descriptor last: where no entry says whose it is, as with an
        // import that was cut off, that still does.
        unlink(Some(&self.journal), &name.messages().file_name())?;
        if traces.residue.is_some() {
            unlink(Some(&self.journal), &name.residue().file_name())?;
        }
        unlink(folders.sessions.as_ref(), &key_file_name(name.as_str()))?;
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
