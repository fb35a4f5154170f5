//! What `--checksum` adds to a run: whatever `verify` finds of the store, the
//! run puts right (`behaviour.md`, run).
//!
//! Items that look done are examined as `verify` does it. What belongs to no
//! item is looked at here.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::RwLock;

use memchr::memmem;
use rayon::prelude::*;

use super::import::Importer;
use super::run::Run;
use super::verify::examine::Examiner;
use crate::error::{Error, Result};
use crate::model::check::Weight;
use crate::model::diagnostic::{Code, Diagnostic};
use crate::model::key::{SessionKey, Sha256};
use crate::plan::Item;
use crate::plan::decide::{Decision, Wishes};
use crate::report::Action;
use crate::source::openhuman::run_ledger::RunLedger;
use crate::source::openhuman::subagents::Subagents;
use crate::store::journal::{StreamReader, sha256_of_file};
use crate::store::kv;
use crate::store::layout::{MARKER_KEY, Namespace};
use crate::store::record::{Descriptor, Entry, Marker};

/// Whether a stream has a message that was brought back.
fn holds_salvaged(stream: &Path) -> Result<bool> {
    let Some(mut stream) = StreamReader::open(stream)? else {
        return Ok(false);
    };
    // As a draft writes it; within a text the quotes would have escapes.
    while let Ok(Some(record)) = stream.next() {
        let line = record.line().as_bytes();
        if memmem::find(line, br#""session_import":{"#).is_some()
            && memmem::find(line, br#""salvaged":{"#).is_some()
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A descriptor as it lies there.
struct Named {
    session_key: SessionKey,
    stream: String,
}

impl Run<'_> {
    /// Entries whose session key or stream is wrong, told from the descriptor
    /// that they vouch for: it has both. They are written anew, so that keys
    /// once given stay (`openhuman-workspace.md` §6).
    pub(super) fn restore(&mut self, entries: &mut HashMap<Sha256, Entry>) -> Result<()> {
        let layout = self.store.layout();
        let names: Vec<_> = self.store.descriptor_names()?.into_iter().collect();
        let read = names.into_par_iter().map(|name| {
            let path = layout.key_file(Namespace::Sessions, name.as_str());
            let Some(Ok(bytes)) = kv::read(&path)? else {
                return Ok(None);
            };
            let descriptor: Option<Descriptor> = serde_json::from_slice(&bytes).ok();
            Ok(descriptor.map(|descriptor| {
                let named = Named {
                    session_key: descriptor.session_key,
                    stream: descriptor.stream,
                };
                (Sha256::of(&bytes), named)
            }))
        });
        let read: Vec<_> = read.collect::<Result<_>>()?;
        let descriptors: HashMap<Sha256, Named> = read.into_iter().flatten().collect();
        for entry in entries.values_mut() {
            let named = entry
                .descriptor_sha256
                .and_then(|hash| descriptors.get(&hash));
            let Some(named) = named else { continue };
            if (&named.session_key, &named.stream) == (&entry.session_key, &entry.stream) {
                continue;
            }
            entry.session_key = named.session_key.clone();
            entry.stream = named.stream.clone();
            entry.unsettled = Some(true);
            let message = format!(
                "the item ledger entry of {} had another session key or stream than its \
                 descriptor; written again",
                entry.source
            );
            self.diagnostics
                .push(Diagnostic::new(Code::Mended, message));
        }
        Ok(())
    }

    /// Sessions whose entry is damaged or gone, and that were salvaged: that
    /// was asked for once and is remembered until an undo, and a plain import
    /// would find fewer messages than the store has. Their records still tell.
    pub(super) fn remember_salvage(&self, entries: &mut HashMap<Sha256, Entry>) -> Result<()> {
        let known = entries.values().filter_map(Entry::store_name).collect();
        let layout = self.store.layout();
        for found in self.store.cut_off(&known)? {
            let (Some(source), name) = (found.source, found.vouched.name) else {
                continue;
            };
            let key = Sha256::of(source.as_bytes());
            let entry = layout.key_file(Namespace::Items, &key.to_string());
            let damaged = match kv::read(&entry)? {
                Some(Ok(bytes)) => bytes,
                _ => Vec::new(),
            };
            let says_so = memmem::find(&damaged, br#""salvage": true"#).is_some();
            let stream = layout.stream_file(&name.messages());
            if entries.contains_key(&key) || !(says_so || holds_salvaged(&stream)?) {
                continue;
            }
            let hash = |path| sha256_of_file(path).map(|found| found.map(|(hash, _)| hash));
            let mut entry = Entry::new(found.session_key, source, &name);
            entry.journal_sha256 = hash(&stream)?;
            entry.messages = found.messages;
            entry.salvage = Some(true);
            entry.unsettled = Some(true);
            entries.insert(key, entry);
        }
        Ok(())
    }

    /// Examines the items that look done.
    pub(super) fn doubt(&self, items: &mut [Item]) {
        let importer = Importer {
            workspace: &self.workspace,
            store: &self.store,
            writer: None,
            clock: &self.clock,
            wishes: Wishes::default(),
            ledger: &RunLedger::default(),
            subagents: &Subagents::default(),
            threads: &RwLock::default(),
            interrupt: &self.options.interrupt,
            progress: &|_| (),
        };
        let examiner = Examiner {
            importer: &importer,
            shown: 0,
            knows_runs: false,
            knows_subagents: false,
        };
        let looks_done = |item: &&mut Item| {
            let is_meant = self.only.has(&item.session.key);
            let is_done = match item.decision {
                Decision::Skip(action, _) => action == Action::SkippedUnchanged,
                // Its record stays, too, and goes with it.
                Decision::Move(_) => true,
                _ => false,
            };
            is_meant && is_done
        };
        items.par_iter_mut().filter(looks_done).for_each(|item| {
            let Some(entry) = item.record() else { return };
            let own = item.ledger_key();
            let key = match (&item.decision, item.replaces.first()) {
                (Decision::Move(_), Some(before)) => before,
                _ => &own,
            };
            let is_sound = match examiner.examine(key, entry, Some(item)) {
                Ok(examined) => {
                    let mut found = examined.found.iter();
                    found.all(|finding| finding.severity < Weight::Finding)
                }
                // Whoever asked to stop gets no marker either.
                Err(Error::Interrupted) => true,
                Err(_) => false,
            };
            if !is_sound {
                item.decision = Decision::Import("record is not what its source gives");
            }
        });
    }

    /// Removes entries that claim the session and the stream of an item's own
    /// entry: its source lay there before, and an import was cut off.
    pub(super) fn remove_twins(
        &self,
        items: &[Item],
        entries: &HashMap<Sha256, Entry>,
    ) -> Result<()> {
        let writer = self.writer.as_ref().filter(|_| self.is_whole());
        let Some(writer) = writer else {
            return Ok(());
        };
        let keys: HashSet<Sha256> = items.iter().map(Item::ledger_key).collect();
        let claim = |entry: &Entry| (entry.session_key.clone(), entry.stream.clone());
        let own = items
            .iter()
            .filter(|item| entries.contains_key(&item.ledger_key()));
        let claimed: HashSet<_> = own
            .filter_map(|item| item.entry.as_deref())
            .map(claim)
            .collect();
        for (key, entry) in entries {
            if !keys.contains(key) && claimed.contains(&claim(entry)) {
                writer.remove_item(key)?;
            }
        }
        Ok(())
    }

    /// Removes records of failures that nobody can read: every source was
    /// tried again.
    pub(super) fn remove_damaged_failures(&mut self) -> Result<()> {
        let Some(writer) = self.writer.as_ref().filter(|_| self.is_whole()) else {
            return Ok(());
        };
        for damaged in self.store.failures()?.damaged {
            if self.store.is_in_the_way(Namespace::Failed, &damaged.key) {
                let layout = self.store.layout();
                let path = layout.key_file(Namespace::Failed, &damaged.key);
                let message = format!(
                    "{} is not the record of a failure; move it away",
                    path.display()
                );
                self.diagnostics
                    .push(Diagnostic::new(Code::Leftover, message));
            } else if let Ok(key) = damaged.key.parse() {
                writer.remove_failure(&key)?;
            }
        }
        Ok(())
    }

    /// Whether the marker is as one is written, and counts what this run has
    /// counted.
    pub(super) fn is_marker_sound(&self, marker: &Marker) -> bool {
        let file = self.store.layout().key_file(Namespace::Markers, MARKER_KEY);
        let bytes = kv::read(&file).ok().flatten();
        let is_as_written =
            bytes.is_some_and(|bytes| bytes.is_ok_and(|bytes| marker.is_sound(&bytes)));
        is_as_written && marker.scanned == self.report.scanned
    }

    fn is_whole(&self) -> bool {
        self.only.is_all() && !self.options.interrupt.is_set()
    }
}
