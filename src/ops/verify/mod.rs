//! `verify`: reads sources and store again and compares (issue "Trust";
//! `behaviour.md`, Commands). It never writes, not even a lock.
//!
//! ```text
//! discover → identify → read against the record → judge → report
//! ```
//!
//! `task` says what is to be examined, `lockstep` holds a source against its
//! record while it is read, `examine` does that for one entry, `judge` and
//! `fields` say what follows, `remedy` what helps, `difference` how two records differ, and `store`
//! and `collisions` look at what belongs to no single entry.

mod collisions;
mod difference;
pub(crate) mod examine;
mod fields;
mod judge;
mod lockstep;
mod remedy;
mod store;
mod task;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Mutex, RwLock};
use std::time::Duration;

use rayon::prelude::*;

use self::collisions::collisions;
use self::examine::{Examined, Examiner};
use self::store::Whole;
use self::task::Task;
use super::import::Importer;
use super::options::{Only, Progress};
use super::workspace::{Surroundings, store_root};
use crate::error::{Error, Result};
use crate::model::check::{Check, Weight};
use crate::model::diagnostic::Diagnostic;
use crate::model::interrupt::Interrupt;
use crate::model::key::{SessionKey, Sha256};
use crate::plan::Item;
use crate::plan::cache::StatCache;
use crate::plan::decide::Wishes;
use crate::plan::survey::Survey;
use crate::report::{Finding, SCHEMA_VERSION, VerifyReport};
use crate::source::openhuman::discover::discover;
use crate::source::openhuman::run_ledger::RunLedger;
use crate::source::openhuman::subagents::Subagents;
use crate::store::clock::Clock;
use crate::store::record::Entry;
use crate::store::{SharedLock, Store};

/// How many differing messages and residue records of a session are shown.
const SHOWN: usize = 3;

/// What to verify, and how.
#[derive(Debug, Clone, Default)]
pub struct VerifyOptions {
    /// The workspace; else it is sought as `behaviour.md` says.
    pub workspace: Option<PathBuf>,
    /// The store's root; else `tinyagents_store` in the workspace.
    pub store: Option<PathBuf>,
    /// Globs on session keys; empty for all, and for what belongs to none.
    pub only: Vec<String>,
    /// Tell what differs, contents included.
    pub diff: bool,
    /// Threads; else one per core.
    pub jobs: Option<usize>,
    /// How long to wait for an import to end.
    pub retry_lock: Option<Duration>,
    /// Asks a running command to stop.
    pub interrupt: Interrupt,
}

/// Verifies a store against its workspace.
///
/// # Errors
/// What keeps it from being done at all: no workspace, an import that is
/// running, a store that cannot be read or belongs to another workspace, a bad
/// glob, a request to stop. What is wrong with the store is in the report.
pub fn verify(options: &VerifyOptions, progress: &mut impl Progress) -> Result<VerifyReport> {
    let surroundings = Surroundings::of_process();
    let only = Only::new(&options.only)?;
    let workspace = surroundings.workspace(options.workspace.as_deref())?;
    let root = store_root(options.store.as_deref(), &workspace)?;
    let store = Store::at(&root);
    // Held to the end: an import in between would look like damage.
    let _lock = SharedLock::take(store.layout(), options.retry_lock)?;
    let mut diagnostics: Vec<Diagnostic> = surroundings.storage_warning().into_iter().collect();
    let claim = store.claim(&workspace)?;
    let (is_format_missing, more) = (claim.is_new, claim.diagnostics);
    diagnostics.extend(more);
    diagnostics.extend(store.unfinished_undo());
    let (subagents, trouble) = Subagents::read(&workspace);
    // Nothing of a damaged file is used.
    let knows_subagents = trouble.is_empty() || subagents.mtime.is_some();
    diagnostics.extend(trouble);
    let (ledger, trouble) = RunLedger::read(&workspace);
    let knows_runs = trouble.is_empty();
    diagnostics.extend(trouble);

    let whole = Whole::read(&store, is_format_missing)?;
    let progress = Mutex::new(progress);
    let tell = |bytes| {
        if let Ok(mut progress) = progress.lock() {
            progress.read(bytes);
        }
    };
    let importer = Importer {
        workspace: &workspace,
        store: &store,
        writer: None,
        clock: &Clock::from_env()?,
        wishes: Wishes::default(),
        ledger: &ledger,
        subagents: &subagents,
        threads: &RwLock::new(HashMap::new()),
        interrupt: &options.interrupt,
        progress: &tell,
    };
    let examiner = Examiner {
        importer: &importer,
        shown: if options.diff { SHOWN } else { 0 },
        knows_runs,
        knows_subagents,
    };
    let mut verify = Verify {
        only,
        whole,
        examiner: &examiner,
        report: VerifyReport {
            schema_version: SCHEMA_VERSION,
            workspace: workspace.display().to_string(),
            store: root.display().to_string(),
            ..VerifyReport::default()
        },
        threads: Vec::new(),
        unmatched: Vec::new(),
    };
    let threads = options.jobs.unwrap_or(0);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    let pool =
        pool.map_err(|error| Error::Usage(format!("cannot start {threads} threads: {error}")))?;
    pool.install(|| verify.all(&progress))?;
    Ok(verify.finish(diagnostics))
}

type Shared<'p, P> = Mutex<&'p mut P>;

struct Verify<'a> {
    only: Only,
    whole: Whole,
    examiner: &'a Examiner<'a>,
    report: VerifyReport,
    /// Threads of the sources that were read.
    threads: Vec<String>,
    /// Patterns that fit no session.
    unmatched: Vec<Diagnostic>,
}

impl Verify<'_> {
    fn all<P: Progress>(&mut self, progress: &Shared<'_, P>) -> Result<()> {
        let importer = self.examiner.importer;
        let found = discover(importer.workspace);
        for diagnostic in found.unreadable {
            self.add(Finding::new(Check::SourceUnreadable, diagnostic.message));
        }
        let entries = std::mem::take(&mut self.whole.entries);
        let cache = StatCache::default();
        let survey = Survey {
            workspace: importer.workspace,
            store: importer.store,
            entries: &entries,
            cache: &cache,
            interrupt: importer.interrupt,
        };
        let (mut items, _) = survey.items(found.files)?;
        items.iter_mut().for_each(|item| take_along(item, &entries));
        let collisions = collisions(importer.store, &entries, &items)?;
        let tasks: Vec<_> = items
            .iter()
            .map(|item| Task::of_item(item, &entries))
            .collect();
        let alone = entries
            .len()
            .saturating_sub(tasks.iter().filter(|task| task.has_entry()).count());
        if let Ok(mut progress) = progress.lock() {
            let bytes = items.iter().map(Item::bytes).sum();
            progress.started((tasks.len() + alone) as u64, bytes);
        }
        self.examine(&tasks, &collisions, progress)?;

        // A sub-agent is a session of its own where no transcript has its
        // thread, so the transcripts come first.
        let threads = std::mem::take(&mut self.threads);
        let known = threads.iter().map(String::as_str);
        let histories = survey.histories(importer.subagents, known, &items)?;
        let all = || items.iter().chain(&histories);
        let met: HashSet<Sha256> = all()
            .flat_map(|item| item.replaces.iter().copied().chain([item.ledger_key()]))
            .collect();
        let alone = entries.iter().filter(|(key, _)| !met.contains(*key));
        let alone = alone.map(|(key, entry)| Task::Entry(*key, entry, None));
        let tasks = histories.iter().map(|item| Task::of_item(item, &entries));
        let tasks: Vec<_> = tasks.chain(alone).collect();
        self.examine(&tasks, &collisions, progress)?;

        let is_selected = |key: &&SessionKey| self.only.has(key);
        self.report.sources = all()
            .map(|item| &item.session.key)
            .filter(is_selected)
            .count() as u64;
        let keys = || entries.values().map(|entry| &entry.session_key);
        self.report.entries = keys().filter(is_selected).count() as u64;
        let known = all().map(|item| &item.session.key).chain(keys());
        self.unmatched = self.only.unmatched(known);
        let items: Vec<&Item> = all().collect();
        let found = self
            .whole
            .judge(importer.store, &entries, &items, &self.only)?;
        found.into_iter().for_each(|finding| self.add(finding));
        Ok(())
    }

    fn examine<P: Progress>(
        &mut self,
        tasks: &[Task<'_>],
        collisions: &HashMap<Sha256, Finding>,
        progress: &Shared<'_, P>,
    ) -> Result<()> {
        let subagents = self.examiner.importer.subagents;
        // Of what is not chosen, the threads matter all the same.
        let wants_threads = subagents
            .records
            .iter()
            .any(|record| record.history_len > 0);
        let (only, whole, examiner) = (&self.only, &self.whole, self.examiner);
        let examined: Vec<(&Task<'_>, Examined)> = tasks
            .par_iter()
            .filter_map(|task| {
                let is_chosen = only.has(task.session_key());
                let examined = if examiner.importer.interrupt.is_set() {
                    Err(Error::Interrupted)
                } else if is_chosen {
                    task.examine(examiner, collisions, whole)
                } else if wants_threads {
                    task.thread(examiner)
                } else {
                    return None;
                };
                if let (true, Ok(mut progress)) = (is_chosen, progress.lock()) {
                    progress.verified(task.session_key().as_str());
                }
                Some(examined.map(|examined| (task, examined)))
            })
            .collect::<Result<_>>()?;
        for (task, examined) in examined {
            self.threads.extend(examined.thread_id);
            self.report.checked += u64::from(examined.is_compared);
            self.report.messages += examined.given.messages;
            self.report.residue += examined.given.residue;
            self.whole.left_alone += u64::from(examined.is_left_alone);
            for mut finding in examined.found {
                finding.session_key = Some(task.session_key().to_string());
                finding.source = Some(task.source());
                self.add(finding);
            }
        }
        Ok(())
    }

    fn add(&mut self, mut finding: Finding) {
        if finding.severity == Weight::Finding && finding.remedy.is_none() {
            let store = self.examiner.importer.store;
            finding.remedy = Some(remedy::usual(store, &finding));
        }
        match finding.severity {
            Weight::Finding => self.report.findings.push(finding),
            Weight::Notice => self.report.notices.push(finding),
        }
    }

    fn finish(mut self, mut diagnostics: Vec<Diagnostic>) -> VerifyReport {
        diagnostics.append(&mut self.unmatched);
        let mut report = self.report;
        for list in [&mut report.findings, &mut report.notices] {
            list.sort_by(|a, b| {
                let place = |finding: &Finding| {
                    let Finding {
                        session_key,
                        source,
                        code,
                        file,
                        ..
                    } = finding;
                    (session_key.clone(), source.clone(), *code, file.clone())
                };
                place(a).cmp(&place(b))
            });
        }
        report.clean = report.findings.is_empty();
        let warnings = diagnostics
            .iter()
            .filter(|diagnostic| diagnostic.is_warning());
        report.warnings = warnings.map(Diagnostic::sentence).collect();
        report.diagnostics = diagnostics;
        report
    }
}

/// A source that has moved is held against the record that it will take along.
pub(super) fn take_along(item: &mut Item, entries: &HashMap<Sha256, Entry>) {
    if item.entry.is_none() {
        let before = item.replaces.iter().find_map(|key| entries.get(key));
        item.entry = before.cloned().map(Box::new);
    }
}
