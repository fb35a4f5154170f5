//! The run ledger, `session_db/sessions.db`: which runs belong to a thread
//! (`openhuman-workspace.md` §3).
//!
//! `open` gets at the database without touching it or anything beside it
//! (`state` says whether it kept still, `copy` copies it where it must be),
//! `rows` asks it for `agent_runs`, and this file answers lineage's questions. Whatever is wrong with the ledger is a warning: no session ever
//! fails for it.

mod copy;
mod open;
mod rows;
mod state;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::locate::locate;
use crate::model::diagnostic::{Code, Diagnostic};
use crate::model::plural::count;
use rows::Rows;

const FOLDER: &str = "session_db";
const FILE: &str = "sessions.db";

/// The `agent_runs` of a workspace, by thread. Empty where there is no usable
/// run ledger.
#[derive(Debug, Clone, Default)]
pub struct RunLedger {
    /// Run id → `parent_run_id`.
    runs: HashMap<String, Option<String>>,
    /// Thread id → ids of its runs.
    by_thread: HashMap<String, Vec<String>>,
    /// `worker_thread_id` → the `parent_thread_id`s beside it.
    parents: HashMap<String, Vec<String>>,
    /// There is a database, and it could not be read.
    is_unreadable: bool,
}

/// What a reading of the run ledger may use.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Time for all of it, copies and queries: 30 seconds by the contract.
    pub time: Duration,
    /// Folder under which a private one is made for a copy. It is refused if
    /// it lies in the workspace; that it does not lie in the store either is
    /// for the caller to see to, who knows where that is.
    pub temp_dir: PathBuf,
    /// About how many bytes of memory runs may take up: half a gigabyte, or
    /// three quarters of a million runs. Those beyond it are not read.
    pub memory: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            time: Duration::from_secs(30),
            temp_dir: std::env::temp_dir(),
            memory: 512 << 20,
        }
    }
}

impl RunLedger {
    /// Reads `session_db/sessions.db`. Never fails: what cannot be used is a
    /// warning. No database is an empty ledger, without one.
    pub fn read(workspace: &Path) -> (Self, Vec<Diagnostic>) {
        Self::read_within(workspace, &Limits::default())
    }

    /// The same within other limits.
    pub fn read_within(workspace: &Path, limits: &Limits) -> (Self, Vec<Diagnostic>) {
        let rows = match locate(workspace, FOLDER, FILE) {
            Ok(None) => return Self::default().without_trouble(),
            Ok(Some(database)) => open::read(&database, workspace, limits, &|connection| {
                rows::read(connection, limits.memory)
            }),
            Err(refused) => Err(refused.into()),
        };
        match rows {
            Ok(rows) => {
                let warnings = warnings(&rows);
                (Self::of(rows), warnings)
            }
            Err(trouble) => {
                let message = format!(
                    "{FOLDER}/{FILE}: {trouble}; sessions have no run ids but those that the \
                     store knows already, and their lineage was not checked against it"
                );
                let warning = Diagnostic::new(Code::RunLedgerUnusable, message);
                let unreadable = Self {
                    is_unreadable: true,
                    ..Self::default()
                };
                (unreadable, vec![warning])
            }
        }
    }

    /// Whether there is a database that could not be read, so that what it says
    /// of a session is not known.
    pub fn is_unreadable(&self) -> bool {
        self.is_unreadable
    }

    /// Ids of all runs whose `parent_thread_id` or `worker_thread_id` is this
    /// thread, sorted, without repeats (`openhuman-workspace.md` §5).
    pub fn run_ids(&self, thread_id: &str) -> &[String] {
        self.by_thread.get(thread_id).map_or(&[], Vec::as_slice)
    }

    /// Every `parent_thread_id` of a row whose `worker_thread_id` is this
    /// thread, sorted, without repeats.
    pub fn parent_threads(&self, worker_thread_id: &str) -> &[String] {
        let parents = self.parents.get(worker_thread_id);
        parents.map_or(&[], Vec::as_slice)
    }

    /// The run at the top of `parent_run_id`s; the last one reached where they
    /// run in a circle or name a run that is not there. `None` for an unknown run.
    pub fn root_run_id<'a>(&'a self, run_id: &'a str) -> Option<&'a str> {
        let (mut root, mut parent) = self.runs.get_key_value(run_id)?;
        let mut seen = HashSet::from([root]);
        while let Some((next, above)) = parent
            .as_ref()
            .and_then(|parent| self.runs.get_key_value(parent))
            .filter(|(next, _)| seen.insert(next))
        {
            (root, parent) = (next, above);
        }
        Some(root)
    }

    /// Whether there is no run at all.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Number of runs.
    pub fn runs(&self) -> usize {
        self.runs.len()
    }

    fn without_trouble(self) -> (Self, Vec<Diagnostic>) {
        (self, Vec::new())
    }

    fn of(rows: Rows) -> Self {
        let mut ledger = Self::default();
        for run in rows.runs {
            let threads = [&run.parent_thread_id, &run.worker_thread_id];
            for thread in threads.into_iter().flatten() {
                add(&mut ledger.by_thread, thread, &run.id);
            }
            if let [Some(parent), Some(worker)] = threads {
                add(&mut ledger.parents, worker, parent);
            }
            // Where two rows have one id, the first says whose child it is.
            ledger.runs.entry(run.id).or_insert(run.parent_run_id);
        }
        let lists = ledger.by_thread.values_mut();
        for list in lists.chain(ledger.parents.values_mut()) {
            list.sort_unstable();
            list.dedup();
        }
        ledger
    }
}

fn add(lists: &mut HashMap<String, Vec<String>>, key: &str, value: &str) {
    match lists.get_mut(key) {
        Some(list) => list.push(value.to_owned()),
        // Most lists have one entry; `Vec` would make room for four.
        None => drop(lists.insert(key.to_owned(), vec![value.to_owned()])),
    }
}

fn warnings(rows: &Rows) -> Vec<Diagnostic> {
    let mut found = rows.notes.clone();
    if rows.unusable > 0 {
        let rows_out = count(rows.unusable, "row");
        let verb = if rows.unusable == 1 { "was" } else { "were" };
        found.push(format!(
            "{rows_out} of agent_runs {verb} left out: id must be text, \
             parent_thread_id and worker_thread_id text or null, none longer than {} bytes",
            rows::LONGEST_ID
        ));
    }
    found
        .into_iter()
        .map(|note| Diagnostic::new(Code::RunLedgerPartial, format!("{FOLDER}/{FILE}: {note}")))
        .collect()
}

#[cfg(test)]
mod tests;
