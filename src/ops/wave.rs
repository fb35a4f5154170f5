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
use crate::error::Error;
use crate::fs::stat::Stat;
use crate::model::diagnostic::Code;
use crate::model::key::SessionKey;
use crate::model::message::Discard;
use crate::model::plural::count;
use crate::plan::decide::Decision;
use crate::plan::{Item, Reads};
use crate::report::{Action, ItemReport, RunReport};
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
    /// The thread of each session, as far as somebody asks for it.
    pub(super) threads: RwLock<HashMap<SessionKey, String>>,
    /// Sessions whose children are checked against their thread.
    pub(super) parents: HashSet<SessionKey>,
    /// Some sub-agent may have a transcript: every session's thread is asked for.
    pub(super) has_history: bool,
}

impl Known {
    /// The thread of a session.
    fn thread(&self, key: &SessionKey) -> Option<String> {
        let threads = self.threads.read().ok()?;
        threads.get(key).cloned()
    }

    fn is_asked_for(&self, key: &SessionKey) -> bool {
        self.has_history || self.parents.contains(key)
    }
}

/// What became of the items so far. Of each only what is still needed.
#[derive(Default)]
pub(super) struct Done {
    /// [`Options::brief`](super::options::Options::brief)
    pub(super) is_brief: bool,
    /// The numbers of the report, and its items.
    pub(super) report: RunReport,
    /// Items that were imported, by index.
    pub(super) imported: Vec<usize>,
    /// Items that failed, by index.
    pub(super) failures: Vec<(usize, Code, String)>,
    /// Streams found ahead of their sources, as they were, by item.
    pub(super) ahead: HashMap<usize, Stat>,
    /// Warnings about items.
    pub(super) warnings: usize,
    /// The entry of some item says that the next run looks again.
    pub(super) is_unsettled: bool,
}

impl Done {
    /// What ends an import on its way, with what is true of it all the same.
    pub(super) fn stays(&self, error: Error, root: &Path) -> Error {
        match (self.imported.len(), error) {
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
        for item in indices.iter().filter_map(|index| items.get(*index)) {
            let action = match item.decision {
                Decision::Skip(action, _) => action,
                _ => Action::SkippedUnchanged,
            };
            // Its lines are as they were when they were read.
            let entry = item.entry.as_ref();
            self.report.rejected += entry.and_then(|entry| entry.rejected).unwrap_or(0);
            self.skip_one(action, !item.diagnostics.is_empty(), || {
                skipped(item, action, known)
            });
        }
    }

    /// Adds one, whose report is made only if it is kept.
    pub(super) fn skip_one(
        &mut self,
        action: Action,
        has_diagnostics: bool,
        report: impl FnOnce() -> ItemReport,
    ) {
        let is_plain = action == Action::SkippedUnchanged && !has_diagnostics;
        if self.is_brief && is_plain {
            self.report.scanned += 1;
            self.report.skipped += 1;
        } else {
            self.count(report());
        }
    }

    /// Takes note of what became of an item that was read.
    pub(super) fn take(&mut self, index: usize, outcome: Outcome) {
        let report = &mut self.report;
        report.rejected += outcome.rejected;
        if outcome.report.action == Action::Failed {
            report.salvageable.sessions += u64::from(outcome.salvageable > 0);
        } else {
            report.salvageable.lines += outcome.salvageable;
        }
        if outcome.report.action == Action::Imported {
            self.imported.push(index);
        }
        if let Some((code, message)) = outcome.failure {
            self.failures.push((index, code, message));
        }
        if let Some(ahead) = outcome.ahead {
            self.ahead.insert(index, ahead);
        }
        self.count(outcome.report);
    }

    fn count(&mut self, item: ItemReport) {
        let report = &mut self.report;
        report.scanned += 1;
        match item.action {
            Action::Imported => {
                report.imported += 1;
                report.messages_written += item.messages;
            }
            Action::WouldImport => report.imported += 1,
            Action::Failed => report.failed += 1,
            _ => report.skipped += 1,
        }
        self.warnings += item.warnings.len();
        let unsettled = [Code::ImportedWhileChanging, Code::StreamWrittenOn];
        let mut codes = item.diagnostics.iter().map(|found| found.code);
        self.is_unsettled |= codes.any(|code| unsettled.contains(&code));
        let is_plain = matches!(item.action, Action::Imported | Action::SkippedUnchanged);
        if !(self.is_brief && is_plain && item.diagnostics.is_empty()) {
            report.items.push(item);
        }
    }

    /// Threads finish in any order; what is told and written does not.
    pub(super) fn sort(&mut self) {
        let items = &mut self.report.items;
        items.sort_by(|a, b| (&a.session_key, &a.source).cmp(&(&b.session_key, &b.source)));
        self.failures.sort_by_key(|(index, ..)| *index);
    }
}

impl Run<'_> {
    /// Threads of sessions that are not read now, where somebody asks for them:
    /// a child whose parent is not, or a sub-agent that may have a transcript.
    /// From the descriptor; from the source where there is none, as lineage is
    /// that of the whole workspace, whatever `--only` says.
    pub(super) fn learn_threads(&self, items: &[Item], to_write: &[usize], known: &Known) {
        let written: HashSet<usize> = to_write.iter().copied().collect();
        let parents: HashSet<&SessionKey> = to_write
            .iter()
            .filter_map(|index| items.get(*index)?.session.parent.as_ref())
            .collect();
        let asked = items.par_iter().enumerate().filter(|(index, item)| {
            !written.contains(index) && (known.has_history || parents.contains(&item.session.key))
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
        done: &Mutex<Done>,
        progress: &Shared<'_, P>,
    ) {
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
        let settled = |index: usize, outcome: Outcome| {
            let key = items.get(index).map(|item| &item.session.key);
            let key = key.filter(|key| known.is_asked_for(key));
            if let (Some(key), Some(thread)) = (key, &outcome.report.thread_id)
                && let Ok(mut threads) = known.threads.write()
            {
                threads.insert(key.clone(), thread.clone());
            }
            if let Ok(mut done) = done.lock() {
                done.take(index, outcome);
            }
        };
        let batches = Batches::new(self.writer.as_ref(), &settled);
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
        batches.finish(&importer, items);
    }
}

/// The report of an item that needed nothing.
fn skipped(item: &Item, action: Action, known: &Known) -> ItemReport {
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
