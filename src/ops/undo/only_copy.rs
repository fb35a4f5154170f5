//! Whether the sources still give what the store has of them: what is the only
//! copy of something is nobody's to remove.

use std::collections::HashMap;
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
                && !of_it.any(|entry| begins_as_imported(&self.workspace, entry))
        };
        let mut doubtful: Vec<&mut Session> = sessions.par_iter_mut().filter(is_doubtful).collect();
        if doubtful.is_empty() {
            return Ok(());
        }
        let (subagents, _) = Subagents::read(&self.workspace);
        let items = self.items(&entries, &subagents)?;
        let importer = Importer {
            workspace: &self.workspace,
            store: &self.store,
            writer: None,
            clock: &Clock::from_env()?,
            wishes: Wishes::default(),
            ledger: &RunLedger::default(),
            subagents: &subagents,
            threads: &RwLock::default(),
            interrupt: &self.options.interrupt,
            progress: &|_| (),
        };
        let of_key: HashMap<Sha256, &Item> = items
            .iter()
            .flat_map(|item| {
                let keys = item.replaces.iter().copied().chain([item.ledger_key()]);
                keys.map(move |key| (key, item))
            })
            .collect();
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
        Ok(())
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
