//! Items read side by side: parents before their children, since a child is
//! checked against its parent's thread, and the largest first.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::{Mutex, RwLock};

use rayon::prelude::*;

use super::batch::Batches;
use super::import::{Importer, Outcome, report};
use super::options::Progress;
use super::run::Run;
use crate::error::{Error, Result};
use crate::model::diagnostic::Code;
use crate::model::key::SessionKey;
use crate::model::message::Discard;
use crate::model::plural::count;
use crate::plan::decide::Decision;
use crate::plan::{Item, Reads};
use crate::report::{Action, ItemReport};
use crate::source::input::Input;
use crate::source::openhuman::run_ledger::RunLedger;
use crate::source::openhuman::subagents::Subagents;
use crate::source::openhuman::{self, lineage};

/// A progress that many threads tell.
pub(super) type Shared<'p, P> = Mutex<&'p mut P>;

/// What is known beside the items, and of those that were read.
pub(super) struct Known {
    pub(super) ledger: RunLedger,
    pub(super) subagents: Subagents,
    /// The thread of each session, as far as it was asked for or read.
    pub(super) threads: RwLock<HashMap<SessionKey, String>>,
}

impl Known {
    /// The thread of a session.
    fn thread(&self, key: &SessionKey) -> Option<String> {
        let threads = self.threads.read().ok()?;
        threads.get(key).cloned()
    }
}

/// What became of the items so far.
#[derive(Default)]
pub(super) struct Done {
    pub(super) reports: Vec<ItemReport>,
    /// Items that failed, by index.
    pub(super) failures: Vec<(usize, Code, String)>,
}

impl Done {
    /// How many sessions were written.
    pub(super) fn imported(&self) -> usize {
        let all = self.reports.iter();
        all.filter(|item| item.action == Action::Imported).count()
    }

    /// What ends an import on its way, with what is true of it all the same.
    pub(super) fn stays(&self, error: Error, root: &Path) -> Error {
        match (self.imported(), error) {
            (0, error) | (_, error @ Error::Interrupted) => error,
            (number, error) => {
                let verb = if number == 1 { "was" } else { "were" };
                let sessions = count(number as u64, "session");
                let message = format!(
                    "{error}; {sessions} {verb} imported before and stay; run again \
                     once that is repaired"
                );
                let path = root.to_owned();
                Error::Store { path, message }
            }
        }
    }

    /// Adds items that needed nothing.
    pub(super) fn skip(&mut self, items: &[Item], indices: &[usize], known: &Known) {
        let skipped_items = indices.iter().filter_map(|index| items.get(*index));
        self.reports
            .extend(skipped_items.map(|item| skipped(item, known)));
    }
}

impl Run<'_> {
    /// Threads of sessions that are not read now, where somebody asks for them:
    /// a child whose parent is not, or a sub-agent that may have a transcript.
    /// From the descriptor; from the source where there is none, as lineage is
    /// that of the whole workspace, whatever `--only` says.
    pub(super) fn learn_threads(&self, items: &[Item], to_write: &[usize], known: &Known) {
        let written: HashSet<usize> = to_write.iter().copied().collect();
        let records = &known.subagents.records;
        let has_history = records.iter().any(|record| record.history_len > 0);
        let parents: HashSet<&SessionKey> = to_write
            .iter()
            .filter_map(|index| items.get(*index)?.session.parent.as_ref())
            .collect();
        let asked = items.par_iter().enumerate().filter(|(index, item)| {
            !written.contains(index) && (has_history || parents.contains(&item.session.key))
        });
        let learnt: Vec<_> = asked
            .filter_map(|(_, item)| Some((item.session.key.clone(), self.thread_of(item)?)))
            .collect();
        if let Ok(mut threads) = known.threads.write() {
            threads.extend(learnt);
        }
    }

    fn thread_of(&self, item: &Item) -> Option<String> {
        let name = item.name.as_ref()?;
        if let Some(descriptor) = self.store.descriptor(name).ok().flatten() {
            return Some(descriptor.thread_id);
        }
        let Reads::File(format) = &item.reads else {
            return None;
        };
        let path = self.workspace.join(item.session.source.relative());
        let input = Input::open(&path, &self.options.interrupt, &|_| ()).ok()?;
        let (reading, _) = openhuman::read(*format, &input, None, &mut Discard).ok()?;
        let thread = reading.header.thread_id.as_deref();
        Some(lineage::thread_id(thread, name.as_str()).0)
    }

    /// Reads one wave of items and commits them, batch by batch.
    pub(super) fn wave<P: Progress>(
        &self,
        items: &[Item],
        wave: &[usize],
        known: &Known,
        progress: &Shared<'_, P>,
    ) -> Result<Vec<(usize, Outcome)>> {
        let tell = |bytes| {
            if let Ok(mut progress) = progress.lock() {
                progress.read(bytes);
            }
        };
        let importer = Importer {
            workspace: &self.workspace,
            store: &self.store,
            writer: self.writer.as_ref(),
            clock: &self.clock,
            wishes: self.options.wishes(),
            ledger: &known.ledger,
            subagents: &known.subagents,
            threads: &known.threads,
            interrupt: &self.options.interrupt,
            progress: &tell,
        };
        let batches = Batches::new(self.writer.as_ref());
        wave.par_iter().for_each(|index| {
            let Some(item) = items.get(*index) else {
                return;
            };
            let outcome = if self.options.interrupt.is_set() {
                let message = "the import was interrupted before this session".to_owned();
                importer.failed(item, Code::Interrupted, message, 0)
            } else {
                batches.import(&importer, item)
            };
            if let Ok(mut progress) = progress.lock() {
                progress.item(&outcome.report);
            }
            batches.push(*index, outcome);
        });
        batches.finish(&importer, items)
    }

    /// Takes note of what became of a wave.
    pub(super) fn note(
        &mut self,
        outcomes: Vec<(usize, Outcome)>,
        items: &[Item],
        known: &Known,
        done: &mut Done,
    ) {
        for (index, outcome) in outcomes {
            let Some(item) = items.get(index) else {
                continue;
            };
            self.report.rejected += outcome.rejected;
            if outcome.report.action == Action::Failed {
                self.report.salvageable.sessions += u64::from(outcome.salvageable > 0);
            } else {
                self.report.salvageable.lines += outcome.salvageable;
            }
            if let Some((code, message)) = outcome.failure {
                done.failures.push((index, code, message));
            }
            if let Some(ahead) = outcome.ahead {
                self.ahead.insert(item.session.key.clone(), ahead);
            }
            let thread = outcome.report.thread_id.clone();
            if let (Some(thread), Ok(mut threads)) = (thread, known.threads.write()) {
                threads.insert(item.session.key.clone(), thread);
            }
            done.reports.push(outcome.report);
        }
    }
}

/// The report of an item that needed nothing.
fn skipped(item: &Item, known: &Known) -> ItemReport {
    let action = match item.decision {
        Decision::Skip(action, _) => action,
        _ => Action::SkippedUnchanged,
    };
    let mut report = report(item, action, item.diagnostics.clone());
    let name = item.name.as_ref();
    report.stream = name.map(|name| name.messages().as_str().to_owned());
    if let Some(entry) = &item.entry {
        report.messages = entry.messages;
        report.lines = entry.lines.unwrap_or_default();
    }
    report.thread_id = known.thread(&item.session.key);
    report
}

/// Parents before children, the largest first: the last thread to finish then
/// has little left to do.
pub(super) fn waves(items: &[Item], to_write: &[usize]) -> Vec<Vec<usize>> {
    let mut waves: Vec<Vec<usize>> = Vec::new();
    for index in to_write {
        let Some(item) = items.get(*index) else {
            continue;
        };
        let depth = lineage::depth(&item.session.stem);
        if waves.len() <= depth {
            waves.resize_with(depth + 1, Vec::new);
        }
        if let Some(wave) = waves.get_mut(depth) {
            wave.push(*index);
        }
    }
    for wave in &mut waves {
        wave.sort_by_key(|index| std::cmp::Reverse(items.get(*index).map_or(0, Item::bytes)));
    }
    waves
}
