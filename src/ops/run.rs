//! `run`: imports what is new or changed (`behaviour.md`, run).
//!
//! ```text
//! discover → identify → decide → read → commit → report
//! ```
//!
//! A dry run goes the same way with no writer: it reads the same lines and
//! gives the same warnings, and writes nothing anywhere.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Mutex, RwLock};
use std::time::Duration;

use globset::{Glob, GlobSet, GlobSetBuilder};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::batch::Batches;
use super::import::{Importer, Outcome, report};
use super::workspace::{STORE, Surroundings};
use crate::error::{Error, Result};
use crate::model::diagnostic::{Code, Diagnostic};
pub use crate::model::interrupt::Interrupt;
use crate::model::key::{SessionKey, Sha256, SourcePath};
use crate::plan::cache::{CacheWriter, Role, StatCache};
use crate::plan::decide::{Decide, Decision, Wishes};
use crate::plan::identity::Identify;
use crate::plan::moved::Gone;
use crate::plan::{Item, Reads, history_item, items, keys};
use crate::report::{Action, ItemReport, RunReport, SCHEMA_VERSION};
use crate::source::openhuman::discover::{Discovery, Found, discover};
use crate::source::openhuman::lineage;
use crate::source::openhuman::run_ledger::RunLedger;
use crate::source::openhuman::subagents::Subagents;
use crate::store::clock::Clock;
use crate::store::name::{Names, StoreName};
use crate::store::record::{Entry, Failure, ImportRecord, Marker, RULES, Tool, VERSION};
use crate::store::{Store, Writer};

/// The sub-agents file, relative to the workspace.
pub(crate) const SUBAGENTS: &str = ".openhuman/subagent_sessions.json";

/// What to import and how; the field names are those of the design's RPC.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Options {
    /// The workspace; else it is sought as `behaviour.md` says.
    pub workspace: Option<PathBuf>,
    /// The store's root; else `tinyagents_store` in the workspace.
    pub store: Option<PathBuf>,
    /// Only plan.
    pub dry_run: bool,
    /// Globs on session keys; empty for all.
    pub only: Vec<String>,
    /// Import even what is done.
    pub force: bool,
    /// Replace streams that have gone another way.
    pub overwrite: bool,
    /// Compare content instead of size and mtime.
    pub checksum: bool,
    /// Take more than the application's reader would.
    pub salvage: bool,
    /// A rejected line makes the result unclean. Only the caller acts on it.
    pub strict: bool,
    /// Say more. Only the caller acts on it.
    pub verbose: bool,
    /// Threads; else one per core.
    pub jobs: Option<usize>,
    /// How long to wait for another import, in seconds.
    #[serde(with = "seconds")]
    pub retry_lock: Option<Duration>,
    /// Asks a running import to stop.
    #[serde(skip)]
    pub interrupt: Interrupt,
}

pub(crate) mod seconds {
    use super::{Deserialize, Duration};

    pub(crate) fn serialize<S: serde::Serializer>(
        duration: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match duration {
            Some(duration) => serializer.serialize_some(&duration.as_secs_f64()),
            None => serializer.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: serde::Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        let seconds = Option::<f64>::deserialize(deserializer)?;
        let duration = seconds.map(Duration::try_from_secs_f64).transpose();
        duration.map_err(serde::de::Error::custom)
    }
}

/// Told how an import goes on; every method may be left out.
pub trait Progress: Send {
    /// The plan is made: so many sessions and bytes are to be read.
    fn started(&mut self, _sessions: u64, _bytes: u64) {}
    /// So many bytes more were read.
    fn read(&mut self, _bytes: u64) {}
    /// An item is done.
    fn item(&mut self, _item: &ItemReport) {}
}

impl Progress for () {}

/// Imports a workspace.
///
/// # Errors
/// What keeps the import from being done at all: no workspace, a lock that
/// another import holds, a store that cannot be written, a bad glob. What
/// keeps single items from it is in the report.
pub fn run(options: &Options, progress: &mut impl Progress) -> Result<RunReport> {
    let surroundings = Surroundings::of_process();
    let only = globs(&options.only)?;
    let workspace = surroundings.workspace(options.workspace.as_deref())?;
    let root = match &options.store {
        Some(store) => store.clone(),
        None => workspace.join(STORE),
    };
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
        ahead: HashMap::new(),
    };
    match super::quick::look(options, &run.workspace, &run.store, &run.clock, &found) {
        Some(items) => {
            run.diagnostics.extend(found.diagnostics);
            run.total(items);
            run.report.already_done = true;
        }
        None => run.import(found, &Mutex::new(progress))?,
    }
    Ok(run.finish())
}

/// The patterns of `--only`; `None` without any.
pub(crate) fn globs(patterns: &[String]) -> Result<Option<GlobSet>> {
    if patterns.is_empty() {
        return Ok(None);
    }
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        let glob = Glob::new(pattern);
        set.add(glob.map_err(|error| Error::Usage(format!("--only: {error}")))?);
    }
    let set = set.build();
    set.map(Some)
        .map_err(|error| Error::Usage(format!("--only: {error}")))
}

struct Run<'a> {
    options: &'a Options,
    only: Option<GlobSet>,
    clock: Clock,
    report: RunReport,
    workspace: PathBuf,
    store: Store,
    writer: Option<Writer>,
    diagnostics: Vec<Diagnostic>,
    /// Streams found ahead of their sources, as they were.
    ahead: HashMap<SessionKey, crate::fs::stat::Stat>,
}

type Shared<'p, P> = Mutex<&'p mut P>;

impl Run<'_> {
    fn import<P: Progress>(&mut self, found: Discovery, progress: &Shared<'_, P>) -> Result<()> {
        let Discovery {
            files,
            unreadable,
            diagnostics,
            ..
        } = found;
        self.diagnostics.extend(unreadable);
        self.diagnostics.extend(diagnostics);
        let (subagents, trouble) = Subagents::read(&self.workspace);
        self.diagnostics.extend(trouble);
        let has_history = subagents.records.iter().any(|record| record.history_len > 0);
        if files.is_empty() && !has_history {
            if self.report.unreadable == 0 {
                self.diagnostics.push(nothing_found(&self.workspace));
            }
            return Ok(());
        }
        // Under the lock from here on, so that the plan is still true when it
        // is carried out.
        self.open_writer()?;
        let entries = self.entries()?;
        let cache_file = self.store.layout().stat_cache_file();
        let cache = match self.clock.is_fixed() {
            true => StatCache::default(),
            false => StatCache::load(&cache_file),
        };
        let (mut items, others) = self.plan(files, &entries, &cache)?;
        let threads = RwLock::new(HashMap::new());
        let is_selected = |key: &SessionKey| {
            let only = self.only.as_ref();
            only.is_none_or(|only| only.is_match(key.as_str()))
        };
        let selected: Vec<usize> = (0..items.len())
            .filter(|index| {
                let item = items.get(*index);
                item.is_some_and(|item| is_selected(&item.session.key))
            })
            .collect();
        let works = |item: &Item| item.decision.writes();
        let to_write: Vec<usize> = selected
            .iter()
            .copied()
            .filter(|index| items.get(*index).is_some_and(works))
            .collect();
        let bytes = to_write.iter().filter_map(|index| items.get(*index));
        self.report.bytes = bytes.map(Item::bytes).sum();
        let ledger = self.run_ledger(!to_write.is_empty() || has_history);
        if !to_write.is_empty() {
            self.before_the_first_write()?;
        }
        if let Ok(mut progress) = progress.lock() {
            progress.started(to_write.len() as u64, self.report.bytes);
        }
        let pool = self.pool()?;
        let mut reports = Vec::new();
        self.known_threads(&items, &to_write, &subagents, &threads);
        let mut failures = Vec::new();
        for wave in waves(&items, &to_write) {
            let done = pool.install(|| {
                self.wave(&items, &wave, &ledger, &subagents, &threads, progress)
            })?;
            self.note(done, &items, &threads, &mut reports, &mut failures);
        }
        let is_done = |index: &&usize| !items.get(**index).is_some_and(works);
        for index in selected.iter().filter(is_done) {
            if let Some(item) = items.get(*index) {
                reports.push(self.skipped(item, &threads));
            }
        }
        let first_history = items.len();
        self.add_histories(&subagents, &entries, &threads, &mut items, &cache);
        let histories: Vec<usize> = (first_history..items.len())
            .filter(|index| {
                let item = items.get(*index);
                item.is_some_and(|item| is_match(self.only.as_ref(), &item.session.key))
            })
            .collect();
        let (to_write_too, done_already): (Vec<usize>, Vec<usize>) = histories
            .into_iter()
            .partition(|index| items.get(*index).is_some_and(works));
        if !to_write_too.is_empty() && to_write.is_empty() {
            self.before_the_first_write()?;
        }
        let more = to_write_too.iter().filter_map(|index| items.get(*index));
        self.report.bytes += more.map(Item::bytes).sum::<u64>();
        let done = pool.install(|| {
            self.wave(&items, &to_write_too, &ledger, &subagents, &threads, progress)
        })?;
        self.note(done, &items, &threads, &mut reports, &mut failures);
        for index in done_already {
            if let Some(item) = items.get(index) {
                reports.push(self.skipped(item, &threads));
            }
        }
        self.total(reports);
        self.settle(&entries, &items, &failures)?;
        self.write_cache(items, others);
        Ok(())
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
            self.options.retry_lock,
        )?;
        self.diagnostics.extend(diagnostics);
        self.writer = Some(writer);
        Ok(())
    }

    fn entries(&mut self) -> Result<HashMap<Sha256, Entry>> {
        let entries = self.store.entries()?;
        for damaged in entries.damaged {
            let message = format!(
                "item ledger entry {} cannot be used ({}); its source is imported again",
                damaged.key, damaged.reason
            );
            self.diagnostics.push(Diagnostic::new(Code::Mended, message));
        }
        Ok(entries.by_key.into_iter().collect())
    }

    /// Files and entries → items with names and decisions.
    fn plan(
        &mut self,
        files: Vec<Found>,
        entries: &HashMap<Sha256, Entry>,
        cache: &StatCache,
    ) -> Result<(Vec<Item>, Vec<Found>)> {
        let identify = Identify {
            workspace: &self.workspace,
            cache,
            interrupt: &self.options.interrupt,
        };
        let given: keys::Given = entries
            .iter()
            .map(|(key, entry)| (*key, entry.session_key.clone()))
            .collect();
        let gone = Gone::new(&self.workspace, &files, entries);
        let (clusters, others) = identify.clusters(files)?;
        let keyed = keys::assign(clusters, &given, |cluster| {
            gone.moved(cluster, &identify, &self.store)
        });
        let mut items = items(keyed, |key| entries.get(key).cloned());
        self.name(&mut items, entries)?;
        self.decide(&mut items, entries, cache)?;
        Ok((items, others))
    }

    /// Names are given once and stay; new ones avoid all that are taken.
    fn name(&self, items: &mut [Item], entries: &HashMap<Sha256, Entry>) -> Result<()> {
        let mut names = Names::default();
        let mut named: HashMap<SessionKey, StoreName> = HashMap::new();
        for entry in entries.values() {
            if let Some(name) = entry.store_name() {
                names.reserve(&name, &entry.session_key);
                named.insert(entry.session_key.clone(), name);
            }
        }
        let new = items.iter().filter(|item| !named.contains_key(&item.session.key));
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

    fn decide(
        &self,
        items: &mut [Item],
        entries: &HashMap<Sha256, Entry>,
        cache: &StatCache,
    ) -> Result<()> {
        let marker = self.store.marker()?.filter(Marker::is_ours);
        let decide = Decide {
            workspace: &self.workspace,
            layout: self.store.layout(),
            clock: &self.clock,
            cache,
            streams: &self.store.stream_names()?,
            descriptors: &self.store.descriptor_names()?,
            wishes: self.wishes(),
            was_cut_off: marker.is_none(),
        };
        items.par_iter_mut().for_each(|item| {
            let before = item.replaces.first().and_then(|key| entries.get(key));
            item.decision = decide.decide(item, before);
        });
        Ok(())
    }

    fn wishes(&self) -> Wishes {
        Wishes {
            force: self.options.force,
            overwrite: self.options.overwrite,
            checksum: self.options.checksum,
            salvage: self.options.salvage,
        }
    }

    fn run_ledger(&mut self, is_needed: bool) -> RunLedger {
        if !is_needed {
            return RunLedger::default();
        }
        let (ledger, diagnostics) = RunLedger::read(&self.workspace);
        self.diagnostics.extend(diagnostics);
        ledger
    }

    /// The marker goes before anything that it vouches for is touched; and an
    /// import that cannot fit is not begun.
    fn before_the_first_write(&mut self) -> Result<()> {
        let root = self.store.layout().root().to_owned();
        match self.store.available_bytes() {
            Some(free) if free < self.report.bytes => {
                let needed = self.report.bytes;
                let message = format!(
                    "the import needs about {needed} bytes, and only {free} are free; \
                     nothing was written"
                );
                if !self.options.dry_run {
                    return Err(Error::Store { path: root, message });
                }
            }
            _ => {}
        }
        if let Some(writer) = &self.writer {
            if self.only.is_none() {
                writer.remove_marker()?;
            }
        }
        Ok(())
    }

    fn pool(&self) -> Result<rayon::ThreadPool> {
        let threads = self.options.jobs.unwrap_or(0);
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        pool.map_err(|error| Error::Usage(format!("cannot start {threads} threads: {error}")))
    }

    /// Threads of sessions that are not read now, where somebody asks for them:
    /// a child whose parent is done, or a sub-agent that may have a transcript.
    fn known_threads(
        &self,
        items: &[Item],
        to_write: &[usize],
        subagents: &Subagents,
        threads: &RwLock<HashMap<SessionKey, String>>,
    ) {
        let written: HashSet<usize> = to_write.iter().copied().collect();
        let has_history = subagents.records.iter().any(|record| record.history_len > 0);
        let parents: HashSet<&SessionKey> = to_write
            .iter()
            .filter_map(|index| items.get(*index)?.session.parent.as_ref())
            .collect();
        let asked = items.par_iter().enumerate().filter(|(index, item)| {
            !written.contains(index) && (has_history || parents.contains(&item.session.key))
        });
        let known: Vec<_> = asked
            .filter_map(|(_, item)| {
                let name = item.name.as_ref()?;
                let descriptor = self.store.descriptor(name).ok().flatten()?;
                Some((item.session.key.clone(), descriptor.thread_id))
            })
            .collect();
        if let Ok(mut threads) = threads.write() {
            threads.extend(known);
        }
    }

    /// Reads one wave of items and commits them, batch by batch.
    fn wave<P: Progress>(
        &self,
        items: &[Item],
        wave: &[usize],
        ledger: &RunLedger,
        subagents: &Subagents,
        threads: &RwLock<HashMap<SessionKey, String>>,
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
            wishes: self.wishes(),
            ledger,
            subagents,
            threads,
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

    fn note(
        &mut self,
        done: Vec<(usize, Outcome)>,
        items: &[Item],
        threads: &RwLock<HashMap<SessionKey, String>>,
        reports: &mut Vec<ItemReport>,
        failures: &mut Vec<(usize, Code, String)>,
    ) {
        for (index, outcome) in done {
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
                failures.push((index, code, message));
            }
            if let Some(ahead) = outcome.ahead {
                self.ahead.insert(item.session.key.clone(), ahead);
            }
            if let (Some(thread), Ok(mut threads)) = (&outcome.report.thread_id, threads.write()) {
                threads.insert(item.session.key.clone(), thread.clone());
            }
            reports.push(outcome.report);
        }
    }

    /// The report of an item that needed nothing.
    fn skipped(
        &self,
        item: &Item,
        threads: &RwLock<HashMap<SessionKey, String>>,
    ) -> ItemReport {
        let action = match item.decision {
            Decision::Skip(action, _) => action,
            _ => Action::SkippedUnchanged,
        };
        let diagnostics = item.diagnostics.clone();
        let mut report = report(item, action, diagnostics);
        report.stream = item.name.as_ref().map(|name| name.messages().as_str().to_owned());
        if let Some(entry) = &item.entry {
            report.messages = entry.messages;
            report.lines = entry.lines.unwrap_or_default();
        }
        if let Ok(threads) = threads.read() {
            report.thread_id = threads.get(&item.session.key).cloned();
        }
        report
    }

    /// Sub-agents whose transcript is nowhere (`openhuman-workspace.md` §4).
    fn add_histories(
        &self,
        subagents: &Subagents,
        entries: &HashMap<Sha256, Entry>,
        threads: &RwLock<HashMap<SessionKey, String>>,
        items: &mut Vec<Item>,
        cache: &StatCache,
    ) {
        let Ok(known) = threads.read() else {
            return;
        };
        let transcripts: HashSet<&String> = known.values().collect();
        let mut seen = HashSet::new();
        let file = SourcePath::file(SUBAGENTS);
        let mut histories = Vec::new();
        for record in subagents.records.iter().filter(|record| record.history_len > 0) {
            let thread = record.worker_thread_id.as_ref();
            let has_transcript = thread.is_some_and(|thread| transcripts.contains(thread));
            if has_transcript || !seen.insert(&record.id) {
                continue;
            }
            let parent = record.parent_session.as_deref().map(SessionKey::new);
            let parent = parent.filter(|key| items.iter().any(|item| item.session.key == *key));
            let key = SourcePath::record(SUBAGENTS, record.id.clone()).ledger_key();
            let entry = entries.get(&key).cloned();
            histories.push(history_item(record.clone(), &file, parent, entry));
        }
        drop(known);
        let named = self.name(&mut histories, entries);
        let decided = named.and_then(|()| self.decide(&mut histories, entries, cache));
        if decided.is_ok() {
            items.append(&mut histories);
        }
    }

    fn total(&mut self, mut reports: Vec<ItemReport>) {
        reports.sort_by(|a, b| (&a.session_key, &a.source).cmp(&(&b.session_key, &b.source)));
        let report = &mut self.report;
        for item in &reports {
            match item.action {
                Action::Imported => {
                    report.imported += 1;
                    report.messages_written += item.messages;
                }
                Action::WouldImport => report.imported += 1,
                Action::Failed => report.failed += 1,
                _ => report.skipped += 1,
            }
        }
        report.scanned = reports.len() as u64;
        report.items = reports;
    }

    /// Failures, the import's report, and at the very end the marker.
    fn settle(
        &mut self,
        entries: &HashMap<Sha256, Entry>,
        items: &[Item],
        failures: &[(usize, Code, String)],
    ) -> Result<()> {
        let marker = self.store.marker()?.filter(Marker::is_ours);
        let is_whole = self.only.is_none() && !self.options.interrupt.is_set();
        let report = &mut self.report;
        let is_clean = report.failed == 0 && report.unreadable == 0;
        let wrote = report.imported > 0;
        report.already_done = is_whole && is_clean && !wrote && marker.is_some();
        let Some(writer) = &self.writer else {
            return Ok(());
        };
        for (index, code, message) in failures {
            let Some(item) = items.get(*index).filter(|_| *code != Code::Interrupted) else {
                continue;
            };
            let failure = Failure {
                source: item.session.source.to_string(),
                session_key: item.session.key.clone(),
                code: *code,
                message: message.clone(),
                size: item.stat.map_or(0, |stat| stat.size),
                mtime_ms: self.clock.cap_mtime(item.stat.map_or(0, |stat| stat.mtime_ms())),
                at: self.clock.imported_at(),
            };
            writer.put_failure(&item.ledger_key(), &failure)?;
        }
        let imported = |item: &&Item| item.replaces.len() > 1 && item.decision.writes();
        for item in items.iter().filter(imported) {
            // The first went with the commit.
            for old in item.replaces.iter().skip(1) {
                writer.remove_item(old)?;
            }
        }
        if is_whole {
            self.forget_failures(writer, entries, items)?;
        }
        let imported_at = self.clock.imported_at();
        if wrote {
            let record = ImportRecord::of(&self.report, imported_at.clone());
            writer.put_import(&record)?;
        }
        if !is_clean && self.only.is_some() {
            writer.remove_marker()?;
        }
        let is_current = marker.as_ref().is_some_and(|marker| marker.rules == Some(RULES));
        if is_whole && is_clean && self.report.scanned > 0 && (wrote || !is_current) {
            let warnings = self.diagnostics.iter().filter(|d| d.is_warning()).count();
            let of_items = self.report.items.iter().map(|item| item.warnings.len());
            let marker = Marker {
                version: VERSION,
                imported_at,
                scanned: self.report.scanned,
                imported: self.report.imported,
                skipped: self.report.skipped,
                failed: 0,
                messages_written: self.report.messages_written,
                warnings: (warnings + of_items.sum::<usize>()) as u64,
                tool: Some(Tool::this()),
                rules: Some(RULES),
            };
            if let Err(error) = writer.put_marker(&marker) {
                let diagnostic = Diagnostic::new(Code::MarkerNotWritten, error.to_string());
                self.diagnostics.push(diagnostic);
            }
        }
        Ok(())
    }

    /// Failures of sources that are not there any more, or not failing.
    fn forget_failures(
        &self,
        writer: &Writer,
        _entries: &HashMap<Sha256, Entry>,
        items: &[Item],
    ) -> Result<()> {
        let known: HashSet<Sha256> = items.iter().map(Item::ledger_key).collect();
        for key in self.store.failures()?.by_key.keys() {
            if !known.contains(key) {
                writer.remove_failure(key)?;
            }
        }
        Ok(())
    }

    fn write_cache(&mut self, items: Vec<Item>, others: Vec<Found>) {
        let Some(writer) = self.writer.as_ref().filter(|_| !self.clock.is_fixed()) else {
            return;
        };
        let failed: HashSet<&str> = self
            .report
            .items
            .iter()
            .filter(|item| item.action == Action::Failed)
            .map(|item| item.source.as_str())
            .collect();
        let mut cache = CacheWriter::new();
        let mut histories = Vec::new();
        for item in items {
            let key = item.session.key.to_string();
            let format = match item.reads {
                Reads::File(format) => format,
                Reads::History(subagent) => {
                    histories.push(subagent.id);
                    continue;
                }
            };
            if failed.contains(item.session.source.to_string().as_str()) {
                continue;
            }
            for file in item.older {
                cache.note(file, Role::OlderCopy { of: key.clone() });
            }
            for file in item.companions {
                cache.note(file, Role::Companion { of: key.clone() });
            }
            let ahead = self.ahead.get(&item.session.key);
            let role = Role::Source {
                key,
                format,
                ahead: ahead.map(|stat| (*stat).into()),
            };
            let file = Found {
                path: item.session.source,
                stem: item.session.stem,
                place: item.place,
                stat: item.stat,
            };
            cache.note(file, role);
        }
        for file in others {
            cache.note(file, Role::NoTranscript);
        }
        let subagents = self.workspace.join(SUBAGENTS);
        let is_done = self.only.is_none() && self.report.is_clean() && self.store.marker().is_ok_and(|m| m.is_some_and(|m| m.is_ours()));
        let done = is_done.then_some((histories, subagents.as_path()));
        // Only a cache: an import does not fail over it.
        let bytes = cache.to_bytes(self.store.layout(), done);
        if let Err(error) = writer.put_stat_cache(&bytes) {
            tracing::debug!("the stat cache could not be written: {error}");
        }
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

/// Whether `--only` is about this session.
pub(crate) fn is_match(only: Option<&GlobSet>, key: &SessionKey) -> bool {
    only.is_none_or(|only| only.is_match(key.as_str()))
}

/// Parents before children, the largest first: the last thread to finish then
/// has little left to do.
fn waves(items: &[Item], to_write: &[usize]) -> Vec<Vec<usize>> {
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

fn nothing_found(workspace: &std::path::Path) -> Diagnostic {
    let message = format!(
        "no session was found in {}; looked in session_raw/, session_raw-*/, sessions/ and {}",
        workspace.display(),
        SUBAGENTS
    );
    Diagnostic::new(Code::NothingFound, message)
}
