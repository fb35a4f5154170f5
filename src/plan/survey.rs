//! What there is, before anything is decided: files, sub-agent records and
//! item ledger entries → items with keys and names. `run` decides about them,
//! `verify` examines them.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use super::cache::StatCache;
use super::identity::Identify;
use super::moved::Gone;
use super::{Item, history_item, items, keys};
use crate::error::Result;
use crate::model::interrupt::Interrupt;
use crate::model::key::{SessionKey, Sha256, SourcePath};
use crate::source::openhuman::discover::Found;
use crate::source::openhuman::subagents::Subagents;
use crate::store::Store;
use crate::store::name::{Names, StoreName};
use crate::store::record::Entry;

/// The sub-agents file, relative to the workspace.
pub(crate) const SUBAGENTS: &str = ".openhuman/subagent_sessions.json";

/// What items are made from.
pub(crate) struct Survey<'a> {
    pub(crate) workspace: &'a Path,
    pub(crate) store: &'a Store,
    pub(crate) entries: &'a HashMap<Sha256, Entry>,
    /// What is known of files; an empty one if they are to be looked at anew.
    pub(crate) cache: &'a StatCache,
    pub(crate) interrupt: &'a Interrupt,
}

/// A name that an entry has given, ordered by who comes first.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Given {
    is_foreign: bool,
    key: SessionKey,
    name: StoreName,
}

impl Given {
    /// `None` where the entry names no stream of messages.
    pub(crate) fn of(entry: &Entry) -> Option<Self> {
        Some(Self {
            is_foreign: !entry.is_ours(),
            key: entry.session_key.clone(),
            name: entry.store_name()?,
        })
    }
}

/// Reserves the names that entries have given, and says which sessions keep
/// theirs. The existing importer gave one name to several sessions: ours come
/// first; of the others, the one whose descriptor lies there.
pub(crate) fn reserve(
    mut given: Vec<Given>,
    store: &Store,
) -> Result<(Names, HashMap<SessionKey, StoreName>)> {
    let mut names = Names::default();
    let mut named = HashMap::new();
    let has_foreign = given.iter().any(|given| given.is_foreign);
    let occupants = has_foreign.then(|| store.occupants()).transpose()?;
    given.sort();
    for Given {
        is_foreign,
        key,
        name,
    } in given
    {
        let owner = occupants.as_ref().and_then(|all| all.of(&name));
        let is_anothers = owner.is_some_and(|owner| owner != key);
        if !(is_foreign && is_anothers) && names.reserve(&name, &key) {
            named.insert(key, name);
        }
    }
    Ok((names, named))
}

impl Survey<'_> {
    /// The items of all files, and the files that are no transcripts.
    pub(crate) fn items(&self, files: Vec<Found>) -> Result<(Vec<Item>, Vec<Found>)> {
        let identify = Identify {
            workspace: self.workspace,
            cache: self.cache,
            interrupt: self.interrupt,
        };
        let given: keys::Given = self
            .entries
            .iter()
            .map(|(key, entry)| (*key, entry.session_key.clone()))
            .collect();
        let gone = Gone::new(self.workspace, &files, self.entries);
        let (clusters, others) = identify.clusters(files)?;
        let keyed = keys::assign(clusters, &given, |cluster| {
            gone.moved(cluster, &identify, self.store)
        });
        let mut items = items(keyed, |key| self.entries.get(key).cloned());
        self.name(&mut items)?;
        Ok((items, others))
    }

    /// The items of sub-agents whose transcript is nowhere
    /// (`openhuman-workspace.md` §4): of all `threads`, none is theirs.
    pub(crate) fn histories<'t>(
        &self,
        subagents: &Subagents,
        threads: impl IntoIterator<Item = &'t str>,
        items: &[Item],
    ) -> Result<Vec<Item>> {
        let with_history = subagents
            .records
            .iter()
            .filter(|record| record.history_len > 0);
        let transcripts: HashSet<&str> = threads.into_iter().collect();
        let keys: HashSet<&SessionKey> = items.iter().map(|item| &item.session.key).collect();
        let mut seen = HashSet::new();
        let file = SourcePath::file(SUBAGENTS);
        let mut histories = Vec::new();
        for record in with_history {
            let thread = record.worker_thread_id.as_deref();
            let has_transcript = thread.is_some_and(|thread| transcripts.contains(thread));
            if has_transcript || !seen.insert(&record.id) {
                continue;
            }
            let parent = record.parent_session.as_deref().map(SessionKey::new);
            let parent = parent.filter(|key| keys.contains(key));
            let key = SourcePath::record(SUBAGENTS, record.id.clone()).ledger_key();
            let entry = self.entries.get(&key).cloned();
            histories.push(history_item(record.clone(), &file, parent, entry));
        }
        self.name(&mut histories)?;
        Ok(histories)
    }

    /// Names are given once and stay; new ones avoid all that are taken.
    fn name(&self, items: &mut [Item]) -> Result<()> {
        let given = self.entries.values().filter_map(Given::of).collect();
        let (mut names, named) = reserve(given, self.store)?;
        let new = items
            .iter()
            .filter(|item| !named.contains_key(&item.session.key));
        let new: Vec<_> = new.map(|item| item.session.key.clone()).collect();
        let assigned = if new.is_empty() {
            Default::default()
        } else {
            let occupants = self.store.occupants()?;
            names.assign(new, &|name| occupants.of(name))
        };
        for item in items {
            match assigned.get(&item.session.key) {
                Some((name, diagnostics)) => {
                    item.name = Some(name.clone());
                    item.diagnostics.extend(diagnostics.iter().cloned());
                }
                None => item.name = named.get(&item.session.key).cloned(),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_sessions_with_one_name_the_descriptors_keeps_it() {
        let folder = tempfile::tempdir().unwrap();
        let sessions = folder.path().join("kv/sessions");
        std::fs::create_dir_all(&sessions).unwrap();
        std::fs::write(sessions.join("a_b.json"), r#"{"session_key": "a_b"}"#).unwrap();
        let given = |key: &str, is_foreign| Given {
            is_foreign,
            key: SessionKey::new(key),
            name: StoreName::parse("a_b").unwrap(),
        };
        let kept = |all: Vec<Given>| {
            let (_, named) = reserve(all, &Store::at(folder.path())).unwrap();
            let keys: Vec<String> = named.keys().map(ToString::to_string).collect();
            keys
        };
        assert_eq!(kept(vec![given("a b", true), given("a_b", true)]), ["a_b"]);
        // Ours come first, whatever lies there.
        assert_eq!(kept(vec![given("a_b", true), given("a b", false)]), ["a b"]);
    }
}
