//! Batches of sessions, put in place in the one order that is safe at every step.
//!
//! `tinyagents-store.md`, Writing: temporary files of journals, residues and
//! descriptors; flush; rename; flush; then the entries the same way. An entry
//! is the commit point, so it is never durable before what it vouches for.

use std::sync::Arc;

use super::kv;
use super::layout::{Namespace, key_file_name};
use super::{Descriptor, Entry, StoreName, Writer, Written};
use crate::error::{Error, Result};
use crate::fs::{Dir, Stat, Temp};
use crate::model::diagnostic::{Code, Diagnostic};
use crate::model::key::Sha256;

/// What a session's stream must look like right before it is replaced: as it
/// did when that was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// There was none.
    Absent,
    /// There was this one.
    Same(Stat),
}

impl Expect {
    fn is_met(self, stream: Option<Stat>) -> bool {
        match (self, stream) {
            (Self::Absent, None) => true,
            (Self::Same(before), Some(now)) => before.same_content(&now),
            _ => false,
        }
    }
}

/// A session that is written and waits to be put in place.
#[derive(Debug)]
pub struct Prepared {
    /// The key of its entry.
    pub ledger_key: Sha256,
    /// The key of an entry that goes once the new one is in place: its source
    /// has moved here.
    pub old_key: Option<Sha256>,
    /// Its streams.
    pub written: Written,
    /// Its name in the store.
    pub name: StoreName,
    /// Its descriptor.
    pub descriptor: Descriptor,
    /// Its entry; hashes and stream are filled in here.
    pub entry: Entry,
    /// What its stream must look like.
    pub expect: Expect,
    /// By which the caller knows it.
    pub tag: usize,
}

/// A session that is in place, durably.
#[derive(Debug)]
pub struct Committed {
    /// The entry as it was written.
    pub entry: Box<Entry>,
    /// The stream as it lies there; `None` if somebody has removed it since.
    pub stream: Option<Stat>,
    /// Somebody wrote to the stream after it was put in place, so the entry
    /// says that the next run must look again.
    pub stream_written_on: bool,
    /// What could not be cleared away.
    pub diagnostics: Vec<Diagnostic>,
}

/// Why a session of a batch is not in place.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// The stream is not the one about which was decided, and was left alone;
    /// it must be decided anew.
    #[error("the stream was written to in the meantime")]
    StreamChanged,
    /// A file could not be written or put in place. Without its entry, what is
    /// in place already does not count, and the next import puts it right.
    #[error(transparent)]
    Failed(#[from] Error),
}

impl From<CommitError> for Error {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::Failed(error) => error,
            CommitError::StreamChanged => Self::Store {
                path: std::path::PathBuf::new(),
                message: error.to_string(),
            },
        }
    }
}

/// One item of a batch on its way, under the caller's tag.
pub(super) type Slot<T> = (usize, Result<T, CommitError>);

/// Written and not in place. Only what is still needed: a batch is a thousand
/// of these.
struct Ready {
    ledger_key: Sha256,
    old_key: Option<Sha256>,
    name: StoreName,
    entry: Box<Entry>,
    expect: Expect,
    journal: Temp,
    residue: Option<Temp>,
    descriptor: Temp,
}

/// In place and not vouched for.
struct Placed {
    ledger_key: Sha256,
    old_key: Option<Sha256>,
    name: StoreName,
    entry: Box<Entry>,
    /// The stream as it was put in place.
    written: Stat,
    /// The stream as it was found there later.
    stream: Option<Stat>,
    written_on: bool,
}

impl Writer {
    /// Puts a batch of sessions in place, durably, and says of each, under its
    /// tag, what became of it. One that fails takes none of the others along.
    pub fn commit(&self, batch: Vec<Prepared>) -> Vec<(usize, Result<Committed, CommitError>)> {
        let slots: Vec<_> = batch
            .into_iter()
            .map(|prepared| (prepared.tag, Ok(Box::new(prepared))))
            .collect();
        if slots.is_empty() {
            return Vec::new();
        }
        let sessions = match self.namespace(Namespace::Sessions) {
            Ok(dir) => dir,
            Err(error) => return fail_all(slots, &error),
        };
        let slots = each(slots, |prepared| ready(*prepared, &sessions));
        let slots = self.flush_each(slots, 3, Ready::flush);
        let slots = each(slots, |ready| self.place(ready));
        let slots = self.flush_folders(slots, &[&self.journal, &sessions], 3);
        let slots = each(slots, |placed| Ok(self.look_again(placed)));
        let slots = self.put_all(Namespace::Items, slots, |placed| {
            Ok((placed.ledger_key.to_string(), kv::to_bytes(&placed.entry)?))
        });
        self.clear_away(slots)
    }

    /// Puts the session's files in place, if its stream is still the one about
    /// which was decided.
    fn place(&self, ready: Ready) -> Result<Placed, CommitError> {
        let stream = ready.name.messages().file_name();
        let written = ready.journal.stat()?;
        let found = self.journal.stat(&stream);
        let found = found.map_err(Error::store_io("read", &self.journal.path().join(&stream)))?;
        if !ready.expect.is_met(found) {
            return Err(CommitError::StreamChanged);
        }
        // The residue first: it may hold messages that only the old stream has,
        // and of the two neither must be without them at any moment.
        let residue = ready.name.residue().file_name();
        let has_residue = ready.residue.is_some();
        if let Some(temp) = ready.residue {
            temp.place(&residue)?;
        }
        // The stream last: one without a descriptor is then never ours.
        ready
            .descriptor
            .place(&key_file_name(ready.name.as_str()))?;
        match ready.expect {
            Expect::Same(_) => ready.journal.place(&stream)?,
            // Here the file system itself sees to it that nothing is replaced
            // that the application has begun since.
            Expect::Absent if ready.journal.place_new(&stream)? => {}
            Expect::Absent => return Err(CommitError::StreamChanged),
        }
        if !has_residue {
            // Before the entry says that there is none.
            self.journal.unlink(&*residue).map_err(Error::store_io(
                "remove",
                &self.journal.path().join(&residue),
            ))?;
        }
        Ok(Placed {
            ledger_key: ready.ledger_key,
            old_key: ready.old_key,
            name: ready.name,
            entry: ready.entry,
            written,
            stream: None,
            written_on: false,
        })
    }

    /// Whether the stream is still what was put in place. The application
    /// takes no lock, so this narrows the window and cannot close it.
    fn look_again(&self, mut placed: Placed) -> Placed {
        let stream = placed.name.messages().file_name();
        placed.stream = self.journal.stat(&stream).ok().flatten();
        placed.written_on = !Expect::Same(placed.written).is_met(placed.stream);
        if placed.written_on {
            placed.entry.unsettled = Some(true);
        }
        placed
    }

    /// Removes what the new records make obsolete: the entry of a source that
    /// has moved, a failure. Only now, when the new ones are durable.
    fn clear_away(&self, slots: Vec<Slot<Placed>>) -> Vec<(usize, Result<Committed, CommitError>)> {
        let items = self.existing(Namespace::Items).ok().flatten();
        let failed = self.existing(Namespace::Failed).ok().flatten();
        let removed = std::sync::atomic::AtomicUsize::new(0);
        let remove = |dir: Option<&Arc<Dir>>, name: &str| -> Option<Diagnostic> {
            let dir = dir?;
            match dir.unlink(name) {
                Ok(true) => {
                    removed.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    None
                }
                Ok(false) => None,
                Err(error) => {
                    let path = dir.path().join(name);
                    let message = format!("{} could not be removed: {error}", path.display());
                    Some(Diagnostic::new(Code::Leftover, message))
                }
            }
        };
        let slots = each(slots, |placed| {
            let mut diagnostics = Vec::new();
            if let Some(old) = placed.old_key.filter(|old| *old != placed.ledger_key) {
                diagnostics.extend(remove(items.as_ref(), &key_file_name(&old.to_string())));
            }
            let failure = key_file_name(&placed.ledger_key.to_string());
            diagnostics.extend(remove(failed.as_ref(), &failure));
            Ok(Committed {
                entry: placed.entry,
                stream: placed.stream,
                stream_written_on: placed.written_on,
                diagnostics,
            })
        });
        let folders: Vec<&Dir> = [Some(&self.journal), items.as_ref(), failed.as_ref()]
            .into_iter()
            .flatten()
            .map(AsRef::as_ref)
            .collect();
        // What comes back after a power cut is cleared away by the next import.
        let _ = self.flusher.folders(&folders, removed.into_inner());
        slots
    }
}

impl Ready {
    fn flush(&self) -> Result<()> {
        self.journal.flush()?;
        if let Some(residue) = &self.residue {
            residue.flush()?;
        }
        self.descriptor.flush()
    }
}

/// Writes the descriptor, and notes in the entry what it is to vouch for.
fn ready(prepared: Prepared, sessions: &Arc<Dir>) -> Result<Ready, CommitError> {
    let descriptor = kv::to_bytes(&prepared.descriptor)?;
    let (mut entry, written) = (Box::new(prepared.entry), prepared.written);
    entry.stream = prepared.name.messages().as_str().to_owned();
    entry.messages = written.messages;
    entry.journal_sha256 = Some(written.journal_sha256);
    entry.residue_sha256 = written.residue_sha256;
    entry.descriptor_sha256 = Some(Sha256::of(&descriptor));
    Ok(Ready {
        ledger_key: prepared.ledger_key,
        old_key: prepared.old_key,
        name: prepared.name,
        entry,
        expect: prepared.expect,
        journal: written.journal,
        residue: written.residue,
        descriptor: Temp::with(sessions, &descriptor)?,
    })
}

/// Items per thread, at least: less is not worth a thread.
const SHARE: usize = 32;

/// Takes each item a step further, a large batch on as many threads as the
/// import has. What a failed item had written so far is removed with it.
///
/// Not on the import's own threads: one that waits there for another takes up
/// the reading of a further session, and the batch would wait for its end.
pub(super) fn each<A: Send, B: Send>(
    slots: Vec<Slot<A>>,
    step: impl Fn(A) -> Result<B, CommitError> + Sync,
) -> Vec<Slot<B>> {
    let all = |slots: Vec<Slot<A>>| -> Vec<Slot<B>> {
        let steps = slots.into_iter();
        steps
            .map(|(tag, slot)| (tag, slot.and_then(&step)))
            .collect()
    };
    let threads = rayon::current_num_threads();
    let share = slots.len().div_ceil(threads).max(SHARE);
    if slots.len() <= share {
        return all(slots);
    }
    let mut slots = slots.into_iter();
    let shares = std::iter::from_fn(|| {
        let share: Vec<_> = slots.by_ref().take(share).collect();
        (!share.is_empty()).then_some(share)
    });
    std::thread::scope(|scope| {
        let threads: Vec<_> = shares.map(|share| scope.spawn(|| all(share))).collect();
        let done = threads.into_iter().map(|thread| match thread.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        done.flatten().collect()
    })
}

/// How many have not failed.
pub(super) fn good<T>(slots: &[Slot<T>]) -> usize {
    slots.iter().filter(|(_, slot)| slot.is_ok()).count()
}

/// What failed for all of them, but for those that had failed before.
pub(super) fn fail_all<A, B>(slots: Vec<Slot<A>>, error: &Error) -> Vec<Slot<B>> {
    let failed = |slot: Result<A, CommitError>| slot.err().unwrap_or_else(|| again(error).into());
    slots
        .into_iter()
        .map(|(tag, slot)| (tag, Err(failed(slot))))
        .collect()
}

/// The same error for another item.
fn again(error: &Error) -> Error {
    match error {
        Error::StoreIo {
            action,
            path,
            error,
        } => Error::StoreIo {
            action,
            path: path.clone(),
            error: match error.raw_os_error() {
                Some(number) => std::io::Error::from_raw_os_error(number),
                None => error.kind().into(),
            },
        },
        Error::Store { path, message } => Error::Store {
            path: path.clone(),
            message: message.clone(),
        },
        other => Error::Store {
            path: std::path::PathBuf::new(),
            message: other.to_string(),
        },
    }
}

#[cfg(test)]
#[path = "commit_tests.rs"]
mod tests;
