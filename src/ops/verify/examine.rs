//! One item ledger entry: its record and its source are read again, and what
//! of them disagrees is told.
//!
//! `run --checksum` asks the same, so what `verify` finds of an item it mends.

use std::time::Duration;

use super::judge::{Held, Judge, Relation};
use super::lockstep::{Given, Lockstep};
use crate::error::{Error, Result};
use crate::fs::stat::Stat;
use crate::model::check::Check;
use crate::model::diagnostic::Code;
use crate::model::key::Sha256;
use crate::ops::import::{Importer, Source};
use crate::plan::{Item, Reads};
use crate::report::Finding;
use crate::source::input::Input;
use crate::source::openhuman::lineage;
use crate::store::journal::sha256_of_file;
use crate::store::layout::Namespace;
use crate::store::name::StoreName;
use crate::store::record::{Entry, RULES};
use crate::store::{Layout, kv};

/// How often a session that is being written to is read.
const READINGS: u32 = 3;

/// Examines entries.
pub(crate) struct Examiner<'a> {
    /// Reads sources, as for a dry run.
    pub(crate) importer: &'a Importer<'a>,
    /// How many differing messages of a session are told with their contents.
    pub(crate) shown: usize,
    /// Whether the run ledger could be read: without it nothing is said of runs.
    pub(crate) knows_runs: bool,
    /// Whether the sub-agents file could be read, or is not there.
    pub(crate) knows_subagents: bool,
}

/// What an examination gave.
#[derive(Default)]
pub(crate) struct Examined {
    pub(crate) found: Vec<Finding>,
    /// The session's thread, if its source was read.
    pub(crate) thread_id: Option<String>,
    pub(super) given: Given,
    /// The record was held against its source.
    pub(crate) is_compared: bool,
    /// How a stream stands to a source without an entry.
    pub(super) relation: Option<Relation>,
    /// No entry, and none is due: the application goes on in the store.
    pub(super) is_left_alone: bool,
}

/// How the source stands to the entry.
pub(super) enum State {
    /// Its bytes are those that were imported.
    Same(Source),
    /// It was read, and other bytes, or other rules, gave the record.
    Other(Source),
    /// It gives nothing to hold the record against.
    Unread,
    /// There is none.
    Gone,
}

/// How an accepted failure stands to the source as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Acceptance {
    /// None was accepted, or nobody knows.
    None,
    /// It is of these very bytes.
    OfThis,
    /// The source has changed since.
    OfOther,
}

impl Examiner<'_> {
    /// Examines the entry of ours under a ledger key. `item` is what its source is now, with this
    /// entry as its own, also where the source has moved.
    ///
    /// # Errors
    /// The store cannot be read; a stop was asked for.
    pub(crate) fn examine(
        &self,
        key: &Sha256,
        entry: &Entry,
        item: Option<&Item>,
    ) -> Result<Examined> {
        let Some(name) = entry.store_name() else {
            let message = "it names no stream of a session";
            let found = vec![Finding::new(Check::EntryDiffers, message)];
            return Ok(Examined {
                found,
                ..Examined::default()
            });
        };
        for _ in 0..READINGS {
            if let Some(examined) = self.once(key, entry, item, &name)? {
                return Ok(examined);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let message = "it is being written to; it was not compared";
        Ok(Examined {
            found: vec![Finding::new(Check::ChangedMeanwhile, message)],
            ..Examined::default()
        })
    }

    /// `None` if source or stream were written to meanwhile.
    fn once(
        &self,
        key: &Sha256,
        entry: &Entry,
        item: Option<&Item>,
        name: &StoreName,
    ) -> Result<Option<Examined>> {
        let layout = self.importer.store.layout();
        let stream = layout.stream_file(&name.messages());
        let stat = || Stat::of(&stream, false).map_err(Error::store_io("look at", &stream));
        let before = stat()?;
        let mut lockstep = Lockstep::open(layout, name, self.shown)?;
        let mut found = Vec::new();
        let is_settled = self.acceptance(entry, item)? == Acceptance::OfThis;
        let state = match item {
            None => State::Gone,
            Some(item) => match self.importer.read_source(item, &mut lockstep) {
                Ok(source) if source.has_changed => return Ok(None),
                Ok(source) => self.state(entry, item, source, &mut found),
                Err(reject) if reject.has_changed => return Ok(None),
                Err(reject) => self.rejected(entry, item, reject.error, &mut found)?,
            },
        };
        if is_settled {
            // What was accepted is told as such, with the reason.
            let told = [
                Check::SourceChanged,
                Check::SourceSilent,
                Check::SourceUnreadable,
            ];
            found.retain(|finding| !told.contains(&finding.code));
        }
        lockstep.finish(self.importer.interrupt)?;
        let held = Held::of(layout, name, key)?;
        if before != stat()? {
            return Ok(None);
        }
        let given = lockstep.given;
        let is_compared = matches!(state, State::Same(_));
        let thread_id = match &state {
            State::Same(source) | State::Other(source) => {
                let header = source.reading.header.thread_id.as_deref();
                Some(lineage::thread_id(header, name.as_str()).0)
            }
            State::Unread | State::Gone => None,
        };
        let judge = Judge {
            examiner: self,
            entry,
            item,
            name,
            state,
            lockstep,
            held,
            found,
            wrong: Vec::new(),
            is_moved: item.is_some_and(|item| has_moved(entry, item)),
            is_settled,
            is_ahead: false,
        };
        Ok(Some(Examined {
            found: judge.judge(),
            thread_id,
            given,
            is_compared,
            relation: None,
            is_left_alone: false,
        }))
    }

    /// How a source that was read stands to its entry.
    fn state(&self, entry: &Entry, item: &Item, source: Source, found: &mut Vec<Finding>) -> State {
        if entry.unsettled == Some(true) {
            let message = "source or stream were being written when it was imported; the next \
                           run reads it again";
            found.push(Finding::new(Check::Unsettled, message));
            return State::Other(source);
        }
        // An entry without this key is damaged, which is told elsewhere.
        if entry.rules.is_some_and(|rules| rules != RULES) {
            let rules = entry.rules.unwrap_or_default();
            let message = format!("its source was read by rules {rules}; these are {RULES}");
            found.push(Finding::new(Check::OtherRules, message));
            return State::Other(source);
        }
        let is_moved = has_moved(entry, item);
        if is_moved {
            let message = format!("{} lies at {} now", entry.source, item.session.source);
            found.push(Finding::new(Check::SourceMoved, message));
        }
        let time = source
            .stat
            .map(|stat| self.importer.clock.cap_mtime(stat.mtime_ms()));
        let is_same_time = time == Some(entry.mtime_ms);
        if entry.sha256 == Some(source.hash) {
            if time.is_some() && !is_same_time && !is_moved {
                let message = "the source's time is another one, its bytes are the same";
                found.push(Finding::new(Check::SourceTouched, message));
            }
            return State::Same(source);
        }
        let size = source.stat.map(|stat| stat.size);
        let finding = if is_same_time && size == Some(entry.size) && !is_moved {
            let message = "the source's bytes are not those of the item ledger entry, though size \
                           and time are";
            Finding::new(Check::SourceSilent, message)
        } else {
            Finding::new(
                Check::SourceChanged,
                "the source changed since it was imported",
            )
        };
        found.push(finding);
        State::Other(source)
    }

    /// A source that gives nothing now.
    fn rejected(
        &self,
        entry: &Entry,
        item: &Item,
        error: Error,
        found: &mut Vec<Finding>,
    ) -> Result<State> {
        match &error {
            Error::Interrupted | Error::Store { .. } | Error::StoreIo { .. } => return Err(error),
            _ => {}
        }
        let is_same = self.hash(item)? == entry.sha256;
        let finding = match error.code() {
            Code::Vanished => Finding::new(Check::SourceGone, "the source is gone"),
            Code::Unreadable => Finding::new(Check::SourceUnreadable, error.to_string()),
            _ if is_same => Finding::new(
                Check::SourceUnreadable,
                format!("the source did not change, and gives no session: {error}"),
            ),
            _ => Finding::new(
                Check::SourceChanged,
                format!("the source changed since it was imported, and gives no session: {error}"),
            ),
        };
        found.push(finding);
        Ok(match error.code() {
            Code::Vanished => State::Gone,
            _ => State::Unread,
        })
    }

    /// Whether a failure of an entry's source was accepted, and of which bytes.
    pub(super) fn acceptance(&self, entry: &Entry, item: Option<&Item>) -> Result<Acceptance> {
        let (Some(accepted), Some(item)) = (&entry.accepted, item) else {
            return Ok(Acceptance::None);
        };
        Ok(match self.hash(item)? {
            hash if hash == accepted.sha256 => Acceptance::OfThis,
            // It cannot be read now, so nobody knows.
            None => Acceptance::None,
            Some(_) => Acceptance::OfOther,
        })
    }

    /// The hash of an item's source; `None` if it cannot be read.
    pub(super) fn hash(&self, item: &Item) -> Result<Option<Sha256>> {
        if let Reads::History(subagent) = &item.reads {
            return Ok(Some(subagent.sha256));
        }
        let path = self.importer.workspace.join(item.session.source.relative());
        let hash =
            Input::open(&path, self.importer.interrupt, &|_| ()).and_then(|input| input.hash());
        match hash {
            Err(Error::Interrupted) => Err(Error::Interrupted),
            other => Ok(other.ok()),
        }
    }
}

/// Whether the source lay elsewhere when it was imported.
fn has_moved(entry: &Entry, item: &Item) -> bool {
    !item.replaces.is_empty() && entry.source != item.session.source.to_string()
}

impl Held {
    fn of(layout: &Layout, name: &StoreName, entry: &Sha256) -> Result<Self> {
        let hash = |stream| {
            let found = sha256_of_file(&layout.stream_file(&stream))?;
            Ok::<_, Error>(found.map(|(hash, _)| hash))
        };
        Ok(Self {
            journal: hash(name.messages())?,
            residue: hash(name.residue())?,
            descriptor: kv::read(&layout.key_file(Namespace::Sessions, name.as_str()))?,
            entry: kv::read(&layout.key_file(Namespace::Items, &entry.to_string()))?,
        })
    }
}
