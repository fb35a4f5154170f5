//! Whether the sources still give what the store has of them: what is the only
//! copy of something is nobody's to remove.

use std::collections::{HashMap, HashSet};
use std::sync::RwLock;

use rayon::prelude::*;

use super::Undo;
use super::session::Session;
use crate::error::Result;
use crate::model::key::Sha256;
use crate::ops::import::Importer;
use crate::ops::verify::take_along;
use crate::plan::Item;
use crate::plan::cache::StatCache;
use crate::plan::decide::Wishes;
use crate::plan::survey::Survey;
use crate::source::openhuman::discover::discover;
use crate::source::openhuman::run_ledger::RunLedger;
use crate::source::openhuman::subagents::Subagents;
use crate::store::Clock;
use crate::store::holds::begins_as_imported;
use crate::store::journal::sha256_of_file;
use crate::store::name::StreamName;
use crate::store::record::Entry;

impl Undo<'_> {
    /// Notes of each session whether its source still gives all of it. One
    /// that is as it was imported, or was only appended to, is not parsed.
    pub(super) fn note_only_copies(&self, sessions: &mut [Session]) -> Result<()> {
        let entries: HashMap<Sha256, Entry> = self.store.entries()?.by_key.into_iter().collect();
        let is_doubtful = |session: &&mut Session| {
            let has_record = !session.vouched.is_empty() && session.theirs.is_none();
            let mut of_it = session.keys.iter().filter_map(|key| entries.get(key));
            has_record
                && !session.is_gone
                && !of_it.any(|entry| {
                    self.has_residue_of(entry) && begins_as_imported(&self.workspace, entry)
                })
        };
        let mut doubtful: Vec<&mut Session> = sessions.par_iter_mut().filter(is_doubtful).collect();
        if doubtful.is_empty() {
            return Ok(());
        }
        let (subagents, _) = Subagents::read(&self.workspace);
        let items = self.items(&entries, &subagents)?;
        let of_key: HashMap<Sha256, &Item> = items
            .iter()
            .flat_map(|item| {
                let keys = item.replaces.iter().copied().chain([item.ledger_key()]);
                keys.map(move |key| (key, item))
            })
            .collect();
        self.with_importer(&subagents, |importer| {
            doubtful.par_iter_mut().for_each(|session| {
                let name = session.vouched.first().map(|one| one.name.clone());
                let source = session.source_key();
                let mut keys = session.keys.iter().chain(&source);
                let item = keys.find_map(|key| of_key.get(key));
                session.is_only_copy = match (item, name) {
                    // What cannot be read gives nothing.
                    (Some(item), Some(name)) => importer.is_only_copy(item, &name).unwrap_or(true),
                    _ => true,
                };
            });
        })
    }

    /// Residue streams that belong to none of these sessions, and of which no
    /// source gives all: an import that was cut off leaves one whose source
    /// does.
    pub(super) fn orphans(&self, sessions: &[Session]) -> Result<Vec<StreamName>> {
        let vouched = sessions.iter().flat_map(|session| &session.vouched);
        let known: HashSet<StreamName> = vouched.map(|one| one.name.residue()).collect();
        let streams = self.store.stream_names()?.into_iter();
        let is_orphan =
            |stream: &StreamName| stream.of_residue().is_some() && !known.contains(stream);
        let mut orphans: Vec<StreamName> = streams.filter(is_orphan).collect();
        if orphans.is_empty() {
            return Ok(orphans);
        }
        orphans.sort();
        let entries: HashMap<Sha256, Entry> = self.store.entries()?.by_key.into_iter().collect();
        let (subagents, _) = Subagents::read(&self.workspace);
        let items = self.items(&entries, &subagents)?;
        self.with_importer(&subagents, |importer| {
            orphans.retain(|stream| {
                let name = stream.of_residue();
                let item = items
                    .iter()
                    .find(|item| item.name.is_some() && item.name == name);
                match (item, name) {
                    (Some(item), Some(name)) => importer.is_only_copy(item, &name).unwrap_or(true),
                    _ => true,
                }
            });
        })?;
        Ok(orphans)
    }

    fn with_importer(&self, subagents: &Subagents, act: impl FnOnce(&Importer<'_>)) -> Result<()> {
        act(&Importer {
            workspace: &self.workspace,
            store: &self.store,
            writer: None,
            clock: &Clock::from_env()?,
            wishes: Wishes::default(),
            ledger: &RunLedger::default(),
            subagents,
            threads: &RwLock::default(),
            interrupt: &self.options.interrupt,
            progress: &|_| (),
        });
        Ok(())
    }

    /// Whether a session's residue is the one that its entry vouches for.
    fn has_residue_of(&self, entry: &Entry) -> bool {
        let path = entry.store_name().map(|name| name.residue());
        let path = path.map(|stream| self.store.layout().stream_file(&stream));
        let found = path.map(|path| sha256_of_file(&path));
        let hash = |found: Option<(Sha256, u64)>| found.map(|(hash, _)| hash);
        matches!(found, Some(Ok(found)) if hash(found) == entry.residue_sha256)
    }

    fn items(&self, entries: &HashMap<Sha256, Entry>, subagents: &Subagents) -> Result<Vec<Item>> {
        let survey = Survey {
            workspace: &self.workspace,
            store: &self.store,
            entries,
            cache: &StatCache::default(),
            interrupt: &self.options.interrupt,
        };
        let (mut items, _) = survey.items(discover(&self.workspace).files)?;
        // Also of those that have a transcript by now: what matters here is
        // whether the history gives what it gave.
        let mut histories = survey.histories(subagents, [], &items)?;
        items.append(&mut histories);
        items.iter_mut().for_each(|item| take_along(item, entries));
        Ok(items)
    }
}
