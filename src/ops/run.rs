//! `run`: imports what is new or changed (`behaviour.md`, run).
//!
//! ```text
//! discover → survey → decide → read → commit → settle
//! ```
//!
//! A dry run goes the same way with no writer: it reads the same lines and
//! gives the same warnings, and writes nothing anywhere.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, RwLock};

use rayon::prelude::*;

use super::import::Outcome;
use super::options::Only;
pub use super::options::{Options, Progress};
use super::wave::{Done, Known, Shared, waves};
use super::workspace::{Surroundings, store_root};
use crate::error::{Error, Result};
use crate::model::diagnostic::{Code, Diagnostic};
pub use crate::model::interrupt::Interrupt;
use crate::model::key::Sha256;
use crate::plan::Item;
use crate::plan::cache::StatCache;
use crate::plan::decide::Decide;
use crate::plan::held_back::hold_back;
use crate::plan::survey::{SUBAGENTS, Survey};
use crate::report::{RunReport, SCHEMA_VERSION};
use crate::source::openhuman::discover::{Discovery, Found, discover};
use crate::source::openhuman::run_ledger::RunLedger;
use crate::source::openhuman::subagents::Subagents;
use crate::store::clock::Clock;
use crate::store::lock::Patience;
use crate::store::record::Entry;
use crate::store::{Damaged, Namespace, Store, Writer};

/// Imports a workspace.
///
/// # Errors
/// What keeps the import from being done at all: no workspace, a lock that
/// another import holds, a store that cannot be written, a bad glob. What
/// keeps single items from it is in the report.
pub fn run(options: &Options, progress: &mut impl Progress) -> Result<RunReport> {
    let surroundings = Surroundings::of_process();
    let only = Only::new(&options.only)?;
    let workspace = surroundings.workspace(options.workspace.as_deref())?;
    let root = store_root(options.store.as_deref(), &workspace)?;
    let clock = Clock::from_env()?;
    let found = discover(&workspace);
    let mut run = Run {
        options,
        only,
        clock,
        report: RunReport {
            schema_version: SCHEMA_VERSION,
            dry_run: options.dry_run,
            workspace: workspace.display().to_string(),
            store: root.display().to_string(),
            unreadable: found.unreadable.len() as u64,
            ..RunReport::default()
        },
        workspace,
        store: Store::at(&root),
        writer: None,
        diagnostics: surroundings.storage_warning().into_iter().collect(),
    };
    match super::quick::look(options, &run.workspace, &run.store, &run.clock, &found) {
        Some(done) => {
            run.diagnostics.extend(found.diagnostics);
            run.total(done);
            run.report.already_done = true;
        }
        None => {
            // All of it, planning too: there are no more threads than were
            // asked for, and what planning has freed is used again for reading.
            let pool = run.pool()?;
            pool.install(|| run.import(found, &Mutex::new(progress)))?;
        }
    }
    Ok(run.finish())
}

/// An import on its way.
pub(super) struct Run<'a> {
    pub(super) options: &'a Options,
    pub(super) only: Only,
    pub(super) clock: Clock,
    pub(super) report: RunReport,
    pub(super) workspace: PathBuf,
    pub(super) store: Store,
    /// `None` in a dry run.
    pub(super) writer: Option<Writer>,
    pub(super) diagnostics: Vec<Diagnostic>,
}

impl Run<'_> {
    fn import<P: Progress>(&mut self, found: Discovery, progress: &Shared<'_, P>) -> Result<()> {
        self.diagnostics.extend(found.unreadable);
        self.diagnostics.extend(found.diagnostics);
        let (subagents, trouble) = Subagents::read(&self.workspace);
        self.diagnostics.extend(trouble);
        let mut records = subagents.records.iter();
        let has_history = records.any(|record| record.history_len > 0);
        if found.files.is_empty() && !has_history {
            if self.report.unreadable == 0 {
                self.diagnostics.push(self.nothing_found());
            }
            return Ok(());
        }
        // Under the lock from here on, so that the plan is still true when it
        // is carried out.
        self.open_writer()?;
        let entries = self.entries()?;
        let cache = match self.clock.is_fixed() {
            true => StatCache::default(),
            false => StatCache::load(&self.store.layout().stat_cache_file()),
        };
        let files = (found.files, found.unreadable_folders);
        self.work(files, subagents, &entries, &cache, progress)
    }

    /// Everything from the survey to the stat cache.
    fn work<P: Progress>(
        &mut self,
        (files, unreadable): (Vec<Found>, Vec<PathBuf>),
        subagents: Subagents,
        entries: &HashMap<Sha256, Entry>,
        cache: &StatCache,
        progress: &Shared<'_, P>,
    ) -> Result<()> {
        // Held aside, so that the survey does not keep the run borrowed.
        let (workspace, store) = (self.workspace.clone(), self.store.clone());
        let survey = Survey {
            workspace: &workspace,
            store: &store,
            entries,
            cache,
            interrupt: &self.options.interrupt,
        };
        let (mut items, others) = survey.items(files)?;
        for (item, waits) in hold_back(&mut items, &unreadable) {
            let is_meant = self.only.has(&item.session.key);
            self.diagnostics.extend(is_meant.then_some(waits));
        }
        // Asked once: the marker goes before the first write.
        let was_cut_off = !self.store.marker()?.is_some_and(|marker| marker.is_ours());
        self.decide(&mut items, cache, was_cut_off)?;
        let done = Mutex::new(Done {
            is_brief: self.options.brief,
            ..Done::default()
        });
        let known = (cache, was_cut_off);
        let read = self.read_all(&survey, &mut items, subagents, known, progress, &done);
        let done = done.into_inner().map_err(|_| panicked())?;
        read.map_err(|error| done.stays(error, store.layout().root()))?;
        let done = self.total(done);
        if let Err(error) = self.conclude(entries, &items, &done) {
            let message = format!("the end of the import could not be recorded: {error}");
            let diagnostic = Diagnostic::new(Code::MarkerNotWritten, message);
            self.diagnostics.push(diagnostic);
        }
        self.write_cache(cache, &items, &others, &done);
        Ok(())
    }

    /// Reads and commits all items, those included that turn up on the way.
    fn read_all<P: Progress>(
        &mut self,
        survey: &Survey<'_>,
        items: &mut Vec<Item>,
        subagents: Subagents,
        (cache, was_cut_off): (&StatCache, bool),
        progress: &Shared<'_, P>,
        done: &Mutex<Done>,
    ) -> Result<()> {
        let (to_write, to_skip) = self.selected(items, 0);
        if let Some(shortage) = self.begin(items, &to_write, progress)? {
            return Err(self.no_room(shortage));
        }
        let mut records = subagents.records.iter();
        let may_write = !to_write.is_empty() || records.any(|record| record.history_len > 0);
        let known = Known {
            ledger: if may_write {
                self.run_ledger()
            } else {
                RunLedger::default()
            },
            parents: (items.iter())
                .filter_map(|item| item.session.parent.clone())
                .collect(),
            has_history: subagents
                .records
                .iter()
                .any(|record| record.history_len > 0),
            subagents,
            threads: RwLock::default(),
        };
        self.learn_threads(items, &to_write, &known);
        for wave in waves(items, &to_write) {
            self.wave(items, &wave, &known, done, progress);
        }
        with(done, |done| done.skip(items, &to_skip, &known))?;

        // Which sub-agents have no transcript is known only now.
        let first = items.len();
        let mut histories = match known.threads.read() {
            Ok(threads) => {
                let threads = threads.values().map(String::as_str);
                survey.histories(&known.subagents, threads, items)?
            }
            Err(_) => Vec::new(),
        };
        self.decide(&mut histories, cache, was_cut_off)?;
        items.append(&mut histories);
        let (more, to_skip) = self.selected(items, first);
        let shortage = match more.is_empty() {
            true => None,
            false => self.begin(items, &more, progress)?,
        };
        match shortage {
            None => self.wave(items, &more, &known, done, progress),
            Some(shortage) if with(done, |done| done.imported.is_empty())? => {
                return Err(self.no_room(shortage));
            }
            // The import is on its way: what was written stays and is told.
            Some(shortage) => {
                let message = format!("{shortage}; run again once there is room");
                for index in more {
                    if let Some(item) = items.get(index) {
                        let outcome = Outcome::unwritten(item, message.clone());
                        with(done, |done| done.take(index, outcome))?;
                    }
                }
            }
        }
        with(done, |done| done.skip(items, &to_skip, &known))?;
        let keys = items.iter().map(|item| &item.session.key);
        self.diagnostics.extend(self.only.unmatched(keys));
        Ok(())
    }

    /// What comes after the last session. All of them are in the report
    /// already, and what fails here is told beside them.
    fn conclude(
        &mut self,
        entries: &HashMap<Sha256, Entry>,
        items: &[Item],
        done: &Done,
    ) -> Result<()> {
        self.remove_twins(items, entries)?;
        if self.options.checksum {
            self.remove_damaged_failures()?;
        }
        self.settle(entries, items, done)
    }

    fn open_writer(&mut self) -> Result<()> {
        if self.options.dry_run {
            // Refuses what a run would refuse.
            let claim = self.store.claim(&self.workspace)?;
            self.diagnostics.extend(claim.diagnostics);
            self.diagnostics.extend(self.store.unfinished_undo());
            return Ok(());
        }
        let (writer, diagnostics) = Writer::open(
            self.store.layout().root(),
            &self.workspace,
            self.clock,
            Patience {
                retry: self.options.retry_lock,
                interrupt: self.options.interrupt.clone(),
            },
        )?;
        self.diagnostics.extend(diagnostics);
        self.writer = Some(writer);
        Ok(())
    }

    fn entries(&mut self) -> Result<HashMap<Sha256, Entry>> {
        let entries = self.store.entries()?;
        let mut by_key: HashMap<Sha256, Entry> = entries.by_key.into_iter().collect();
        if self.options.checksum {
            self.restore(&mut by_key)?;
        }
        if self.options.checksum || !entries.damaged.is_empty() {
            self.remember_salvage(&mut by_key)?;
        }
        for Damaged { key, reason } in entries.damaged {
            let is_in_the_way = self.store.is_in_the_way(Namespace::Items, &key);
            let (code, what) = match is_in_the_way {
                true => (Code::EntryUnusable, "move it away and run again"),
                false => (Code::Mended, "its source is imported again"),
            };
            let message = format!("item ledger entry {key} cannot be used ({reason}); {what}");
            self.diagnostics.push(Diagnostic::new(code, message));
        }
        Ok(by_key)
    }

    fn decide(&self, items: &mut [Item], cache: &StatCache, was_cut_off: bool) -> Result<()> {
        let decide = Decide {
            workspace: &self.workspace,
            layout: self.store.layout(),
            clock: &self.clock,
            cache,
            streams: &self.store.stream_names()?,
            descriptors: &self.store.descriptor_names()?,
            wishes: self.options.wishes(),
            was_cut_off,
        };
        items.par_iter_mut().for_each(|item| {
            item.decision = decide.decide(item);
        });
        if self.options.checksum {
            self.doubt(items);
        }
        Ok(())
    }

    /// The items from one on that are meant: those to be written, and the others.
    fn selected(&self, items: &[Item], from: usize) -> (Vec<usize>, Vec<usize>) {
        let meant = items.iter().enumerate().skip(from);
        let meant = meant.filter(|(_, item)| self.only.has(&item.session.key));
        let (write, skip): (Vec<_>, Vec<_>) = meant.partition(|(_, item)| item.decision.writes());
        let index = |all: Vec<(usize, &Item)>| all.into_iter().map(|(index, _)| index).collect();
        (index(write), index(skip))
    }

    fn run_ledger(&mut self) -> RunLedger {
        let (ledger, diagnostics) = RunLedger::read(&self.workspace);
        self.diagnostics.extend(diagnostics);
        ledger
    }

    fn pool(&self) -> Result<rayon::ThreadPool> {
        let threads = self.options.jobs.unwrap_or(0);
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        pool.map_err(|error| Error::Usage(format!("cannot start {threads} threads: {error}")))
    }

    /// Puts into the report what became of the items.
    fn total(&mut self, mut done: Done) -> Done {
        done.sort();
        let of_items = std::mem::take(&mut done.report);
        let report = &mut self.report;
        report.scanned = of_items.scanned;
        report.imported = of_items.imported;
        report.skipped = of_items.skipped;
        report.failed = of_items.failed;
        report.rejected = of_items.rejected;
        report.messages_written = of_items.messages_written;
        report.salvageable = of_items.salvageable;
        report.items = of_items.items;
        done
    }

    fn nothing_found(&self) -> Diagnostic {
        let message = format!(
            "no session was found in {}; looked in session_raw/, session_raw-*/, sessions/ and {SUBAGENTS}",
            self.workspace.display(),
        );
        Diagnostic::new(Code::NothingFound, message)
    }

    fn finish(mut self) -> RunReport {
        if let Some(Err(error)) = self.writer.take().map(Writer::finish) {
            tracing::debug!("the lock file could not be emptied: {error}");
        }
        let warnings = self.diagnostics.iter().filter(|d| d.is_warning());
        self.report.warnings = warnings.map(Diagnostic::sentence).collect();
        self.report.diagnostics = self.diagnostics;
        self.report
    }
}

fn panicked() -> Error {
    Error::Usage("a thread of the import panicked".to_owned())
}

/// Does something with what threads share.
fn with<T, R>(shared: &Mutex<T>, act: impl FnOnce(&mut T) -> R) -> Result<R> {
    let mut shared = shared.lock().map_err(|_| panicked())?;
    Ok(act(&mut shared))
}
