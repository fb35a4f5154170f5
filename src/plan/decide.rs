//! Import it, skip it, or leave it to the application (`behaviour.md`, run).

use std::collections::HashSet;
use std::path::Path;

use super::cache::{Role, Stamp, StatCache};
use super::{Item, Reads};
use crate::error::Result;
use crate::fs::stat::Stat;
use crate::model::interrupt::Interrupt;
use crate::model::key::Sha256;
use crate::report::Action;
use crate::source::input::Input;
use crate::store::clock::Clock;
use crate::store::journal::sha256_of_file;
use crate::store::layout::{Layout, Namespace};
use crate::store::name::{StoreName, StreamName};
use crate::store::record::{Entry, RULES};

/// What is done about an item.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Decision {
    /// Not decided yet.
    Undecided,
    /// Nothing, for this reason.
    Skip(Action, &'static str),
    /// Its record, that of this entry, stays as it is; only its source has
    /// another path now.
    Move(Box<Entry>),
    /// Read it and write its record, for this reason.
    Import(&'static str),
}

impl Decision {
    /// Why, in words.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Undecided => "not selected",
            Self::Skip(_, reason) | Self::Import(reason) => reason,
            Self::Move(_) => "moved, same bytes",
        }
    }

    /// Whether it writes to the store.
    pub(crate) fn writes(&self) -> bool {
        matches!(self, Self::Import(_) | Self::Move(_))
    }
}

/// The options that bear on it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Wishes {
    pub(crate) force: bool,
    pub(crate) overwrite: bool,
    pub(crate) checksum: bool,
    pub(crate) salvage: bool,
}

/// A source as it was when its entry was written.
struct Known {
    size: u64,
    mtime_ms: u64,
    sha256: Option<Sha256>,
}

/// What there is to decide by.
pub(crate) struct Decide<'a> {
    pub(crate) workspace: &'a Path,
    pub(crate) layout: &'a Layout,
    pub(crate) clock: &'a Clock,
    pub(crate) cache: &'a StatCache,
    /// Streams and descriptors that are there, by one listing each.
    pub(crate) streams: &'a HashSet<StreamName>,
    pub(crate) descriptors: &'a HashSet<StoreName>,
    pub(crate) wishes: Wishes,
    /// There is no marker: the last import may have been cut off between a
    /// session's files and its entry.
    pub(crate) was_cut_off: bool,
}

impl Decide<'_> {
    /// Decides about one item.
    pub(crate) fn decide(&self, item: &Item) -> Decision {
        let Wishes {
            force,
            overwrite,
            checksum,
            ..
        } = self.wishes;
        if let Some(Role::Source {
            ahead: Some(ahead), ..
        }) = self.cache.role(&item.session.source, item.stat)
        {
            let stream = item.name.as_ref().and_then(|name| self.stream_stat(name));
            let is_as_it_was = stream.map(Stamp::from) == Some(*ahead);
            if is_as_it_was && !(force || overwrite || checksum) {
                let action = Action::SkippedStoreAhead;
                return Decision::Skip(action, "the application goes on in the store");
            }
        }
        let Some(entry) = item.record() else {
            return Decision::Import("new");
        };
        if let Some(accepted) = &entry.accepted {
            let known = Known {
                size: accepted.size,
                mtime_ms: accepted.mtime_ms,
                sha256: accepted.sha256,
            };
            if !force && self.is_unchanged(item, &known) {
                return Decision::Skip(Action::SkippedAccepted, "accepted");
            }
            // What was imported before may fit again.
            if !entry.has_record() {
                return Decision::Import("changed since it was accepted");
            }
        }
        if !entry.is_ours() {
            return Decision::Import("imported by the earlier importer");
        }
        if entry.rules.unwrap_or(0) < RULES {
            return Decision::Import("imported by older rules");
        }
        if force {
            return Decision::Import("--force");
        }
        if entry.unsettled == Some(true) {
            return Decision::Import("was being written when last read");
        }
        if self.wants_salvage(entry) {
            return Decision::Import("--salvage");
        }
        let known = Known {
            size: entry.size,
            mtime_ms: entry.mtime_ms,
            sha256: entry.sha256,
        };
        if !self.is_unchanged(item, &known) {
            return Decision::Import("source changed");
        }
        if !self.has_record(entry) {
            return Decision::Import("record incomplete");
        }
        let is_doubtful = checksum || (self.was_cut_off && self.is_newer_than_entry(item, entry));
        if is_doubtful && !self.record_is_sound(entry) {
            return Decision::Import("record is not what the item ledger says");
        }
        if item.entry.is_none() {
            return Decision::Move(Box::new(entry.clone()));
        }
        Decision::Skip(Action::SkippedUnchanged, "unchanged")
    }

    /// `--salvage` takes up what has malformed lines and was not asked for it yet.
    fn wants_salvage(&self, entry: &Entry) -> bool {
        self.wishes.salvage && entry.salvage != Some(true) && entry.rejected.unwrap_or(0) > 0
    }

    /// Whether the source is what the entry says. Where size and mtime are the
    /// same but inode and change time are not known to be, its bytes decide.
    fn is_unchanged(&self, item: &Item, known: &Known) -> bool {
        let stat = match &item.reads {
            Reads::History(subagent) => return Some(subagent.sha256) == known.sha256,
            Reads::File(_) => item.stat,
        };
        let Some(stat) = stat else {
            return false;
        };
        let is_moved = item.entry.is_none();
        let looks_same = stat.size == known.size
            && (is_moved || self.clock.cap_mtime(stat.mtime_ms()) == known.mtime_ms);
        // Read again also where its bytes may be the same: the entry gets the
        // new time, or each run would look at it anew.
        if !looks_same {
            return false;
        }
        let is_known = self.cache.role(&item.session.source, Some(stat)).is_some();
        if looks_same && is_known && !self.wishes.checksum && !is_moved {
            return true;
        }
        let path = self.workspace.join(item.session.source.relative());
        let bytes = hash_of_source(&path);
        bytes.ok() == known.sha256
    }

    fn has_record(&self, entry: &Entry) -> bool {
        entry.store_name().is_some_and(|name| {
            self.streams.contains(&name.messages()) && self.descriptors.contains(&name)
        })
    }

    /// Whether the stream or the descriptor was put in place after the entry
    /// that vouches for them: files of two imports, or the application's.
    fn is_newer_than_entry(&self, item: &Item, entry: &Entry) -> bool {
        let changed = |path: &Path| {
            let stat = Stat::of(path, false).ok().flatten();
            stat.map_or(i64::MAX, |stat| stat.ctime_ns)
        };
        let Some(name) = entry.store_name() else {
            return true;
        };
        let key = item.ledger_key().to_string();
        let entry = changed(&self.layout.key_file(Namespace::Items, &key));
        let residue = self.layout.stream_file(&name.residue());
        (residue.exists() && changed(&residue) > entry)
            || changed(&self.layout.stream_file(&name.messages())) > entry
            || changed(&self.layout.key_file(Namespace::Sessions, name.as_str())) > entry
    }

    /// Whether the record's files are what the entry says, byte for byte.
    fn record_is_sound(&self, entry: &Entry) -> bool {
        let Some(name) = entry.store_name() else {
            return false;
        };
        let hash = |path: &Path| sha256_of_file(path).ok().flatten().map(|(hash, _)| hash);
        let stream = self.layout.stream_file(&name.messages());
        let residue = self.layout.stream_file(&name.residue());
        let descriptor = self.layout.key_file(Namespace::Sessions, name.as_str());
        hash(&stream) == entry.journal_sha256
            && hash(&residue) == entry.residue_sha256
            && hash(&descriptor) == entry.descriptor_sha256
    }

    fn stream_stat(&self, name: &StoreName) -> Option<Stat> {
        let path = self.layout.stream_file(&name.messages());
        Stat::of(&path, false).ok().flatten()
    }
}

/// The hash of a source's bytes; links are followed, as in reading it.
fn hash_of_source(path: &Path) -> Result<Sha256> {
    Input::open(path, &Interrupt::default(), &|_| ())?.hash()
}
