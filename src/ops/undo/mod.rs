//! `undo`: takes an import back (`behaviour.md`, Commands).
//!
//! By the item ledger alone, and only what is still as an import left it. What
//! somebody would miss is kept and named: what the application has written on
//! in, what took the place of a record that was not ours, and what may be the
//! only copy. [`crate::store::remove`] says in which order the rest goes.

mod only_copy;
mod session;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use self::session::{Noted, Session, note_gone};
use super::options::{Only, seconds};
use super::workspace::{STORE, Surroundings};
use crate::error::Result;
use crate::model::diagnostic::{Code, Diagnostic};
use crate::model::interrupt::Interrupt;
use crate::model::key::Sha256;
use crate::report::{SCHEMA_VERSION, UndoAction, UndoItem, UndoReport};
use crate::store::name::StoreName;
use crate::store::record::Marker;
use crate::store::remove::Removal;
use crate::store::traces::Traces;
use crate::store::{Clock, CommitError, SharedLock, Store, Writer};

/// Sessions that are looked at and removed together: so many that flushing is
/// not what takes the time. Each is looked at again right before it goes.
const BATCH: usize = 4096;

/// What to take back.
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
    /// Remove also what the application has written on in, and what may be
    /// the only copy.
    pub overwrite: bool,
    /// How long to wait for another import, in seconds.
    #[serde(with = "seconds")]
    pub retry_lock: Option<Duration>,
    /// Asks a running undo to stop.
    #[serde(skip)]
    pub interrupt: Interrupt,
}

/// Takes an import back.
///
/// # Errors
/// What keeps it from being done at all: no workspace, a lock that an import
/// holds, a store that cannot be read or written, a bad glob. What keeps
/// single sessions from it is in the report.
pub fn undo(options: &Options) -> Result<UndoReport> {
    let surroundings = Surroundings::of_process();
    let only = Only::new(&options.only)?;
    let workspace = surroundings.workspace(options.workspace.as_deref())?;
    let root = options.store.clone();
    let root = root.unwrap_or_else(|| workspace.join(STORE));
    let store = Store::at(&root);
    let mut undo = Undo {
        options,
        only,
        report: UndoReport {
            schema_version: SCHEMA_VERSION,
            dry_run: options.dry_run,
            workspace: workspace.display().to_string(),
            store: root.display().to_string(),
            ..UndoReport::default()
        },
        workspace,
        store,
        diagnostics: Vec::new(),
    };
    undo.all()?;
    Ok(undo.finish())
}

/// What is to be done about a session.
enum Verdict {
    Remove(Option<(StoreName, Traces)>),
    /// Only take off what `accept` has added to the existing importer's entry.
    GiveBack,
    Keep(Diagnostic, u64),
    Fail(Diagnostic),
}

struct Undo<'a> {
    options: &'a Options,
    only: Only,
    report: UndoReport,
    workspace: PathBuf,
    store: Store,
    diagnostics: Vec<Diagnostic>,
}

impl Undo<'_> {
    fn all(&mut self) -> Result<()> {
        if !self.store.exists() {
            self.report.undone_whole = true;
            return Ok(());
        }
        // Refuses what a run would refuse, before anything is written.
        self.store.claim(&self.workspace)?;
        let has_entries = || -> Result<bool> {
            let ours = self.store.map_entries(|_, entry| entry.is_ours())?;
            Ok(ours.by_key.values().any(|is_ours| *is_ours))
        };
        if !self.store.has_traces() && !has_entries()? {
            self.report.undone_whole = true;
            return Ok(());
        }
        if self.options.dry_run {
            let _lock = SharedLock::take(self.store.layout(), self.options.retry_lock)?;
            self.diagnostics.extend(self.store.unfinished_undo());
            return self.sessions(None);
        }
        let (writer, diagnostics) = Writer::open(
            self.store.layout().root(),
            &self.workspace,
            Clock::from_env()?,
            self.options.retry_lock,
        )?;
        self.diagnostics.extend(diagnostics);
        self.sessions(Some(&writer))?;
        if let Err(error) = writer.finish() {
            tracing::debug!("the lock file could not be emptied: {error}");
        }
        Ok(())
    }

    fn sessions(&mut self, writer: Option<&Writer>) -> Result<()> {
        let (mut sessions, others_stay) = self.plan()?;
        note_gone(&self.workspace, &mut sessions);
        let mut orphans = Vec::new();
        if !self.options.overwrite {
            self.note_only_copies(&mut sessions)?;
            if self.only.is_all() {
                orphans = self.orphans(&sessions)?;
            }
        }
        self.diagnostics.extend(orphans.iter().map(|stream| {
            let message = format!(
                "journal/{} belongs to no session of an import, and may be the only copy of what \
                 it holds; kept",
                stream.file_name()
            );
            Diagnostic::new(Code::OnlyCopy, message)
        }));
        let failures = self.store.failures()?.by_key;
        let failures: Vec<Sha256> = failures
            .into_iter()
            .filter(|(_, failure)| self.only.has(&failure.session_key))
            .map(|(key, _)| key)
            .collect();
        let is_whole = self.only.is_all();
        let mut items = Vec::with_capacity(sessions.len());
        for batch in sessions.chunks(BATCH) {
            items.extend(self.batch(batch, writer)?);
        }
        items.sort_by(|a, b| (&a.session_key, &a.source).cmp(&(&b.session_key, &b.source)));
        self.total(items);
        let is_interrupted = self.options.interrupt.is_set();
        if !is_interrupted {
            self.report.failures_forgotten = failures.len() as u64;
        }
        let all_went = self.report.kept + self.report.failed == 0 && orphans.is_empty();
        let nothing_stays = all_went && !others_stay;
        self.report.undone_whole = is_whole && nothing_stays && !is_interrupted;
        let Some(writer) = writer.filter(|_| !is_interrupted) else {
            return Ok(());
        };
        let rest = writer.remove_failures(&failures).and_then(|()| {
            if self.report.undone_whole {
                self.remove_marker(writer)?;
                writer.remove_rest()
            } else {
                writer.remove_undo_folder()
            }
        });
        if let Err(error) = rest {
            self.report.undone_whole = false;
            let message = format!("{error}; run `undo` again");
            self.diagnostics
                .push(Diagnostic::new(Code::StoreWrite, message));
        }
        Ok(())
    }

    /// All sessions of ours that are wanted, and whether there are entries of
    /// which nobody can tell whose they are.
    fn plan(&mut self) -> Result<(Vec<Session>, bool)> {
        let entries = self
            .store
            .map_entries(|key, entry| Noted::of(*key, entry))?;
        let mut noted: Vec<Noted> = entries.by_key.into_values().collect();
        if self.options.dry_run {
            let being_undone = self.store.being_undone()?.by_key.into_iter();
            noted.extend(being_undone.map(|(key, entry)| Noted::of(key, entry)));
        }
        for damaged in &entries.damaged {
            let message = format!(
                "item ledger entry {} cannot be used ({}); it was left alone",
                damaged.key, damaged.reason
            );
            let diagnostic = Diagnostic::new(Code::EntryUnusable, message);
            self.diagnostics.push(diagnostic);
        }
        let cut_off = match entries.damaged.is_empty() {
            true => self.cut_off(&noted)?,
            // What seems to be in nobody's entry may be in one of those.
            false => Vec::new(),
        };
        let sessions = noted.into_iter().filter_map(|noted| noted.session);
        let all: Vec<Session> = sessions.chain(cut_off).collect();
        let failures = self.store.failures()?.by_key;
        let failures = failures.values().map(|failure| &failure.session_key);
        let known = all.iter().map(|s| &s.session_key).chain(failures);
        self.diagnostics.extend(self.only.unmatched(known));
        let wanted = all.into_iter().filter(|s| self.only.has(&s.session_key));
        let mut by_name: BTreeMap<StoreName, Session> = BTreeMap::new();
        let mut sessions = Vec::new();
        for session in wanted {
            let Some(name) = session.vouched.first().map(|one| one.name.clone()) else {
                sessions.push(session);
                continue;
            };
            match by_name.remove(&name) {
                Some(mut other) => {
                    other.join(session);
                    by_name.insert(name, other);
                }
                None => {
                    by_name.insert(name, session);
                }
            }
        }
        sessions.extend(by_name.into_values());
        Ok((sessions, !entries.damaged.is_empty()))
    }

    /// Sessions that were put in place by an import that was cut off before it
    /// could vouch for them.
    fn cut_off(&self, noted: &[Noted]) -> Result<Vec<Session>> {
        let names = noted.iter().filter_map(|noted| noted.name.clone());
        let cut_off = self.store.cut_off(&names.collect())?;
        let mut cut_off: Vec<_> = cut_off.into_iter().map(Session::cut_off).collect();
        note_gone(&self.workspace, &mut cut_off);
        // Without a message and without a source it is no import's.
        cut_off.retain(|session| session.messages > 0 || !session.is_gone);
        Ok(cut_off)
    }

    /// Another tool's marker is not ours to take away.
    fn remove_marker(&self, writer: &Writer) -> Result<()> {
        let is_ours = self.store.marker()?.is_some_and(|m: Marker| m.is_ours());
        if is_ours {
            writer.remove_marker()?;
        }
        Ok(())
    }

    /// Looks at some sessions, and removes those that may go.
    fn batch(&self, sessions: &[Session], writer: Option<&Writer>) -> Result<Vec<UndoItem>> {
        let verdicts: Vec<Verdict> = sessions.par_iter().map(|s| self.judge(s)).collect();
        let mut both = sessions.iter().zip(&verdicts);
        let touches = both.any(|(session, verdict)| match verdict {
            Verdict::Remove(_) | Verdict::GiveBack => true,
            Verdict::Keep(..) => session.unaccepted.is_some(),
            Verdict::Fail(_) => false,
        });
        if let Some(writer) = writer.filter(|_| touches) {
            // Before anything that it vouches for is touched.
            self.remove_marker(writer)?;
        }
        let mut removals = Vec::new();
        let mut items = Vec::with_capacity(sessions.len());
        for (session, verdict) in sessions.iter().zip(verdicts) {
            let item = match verdict {
                Verdict::Keep(why, bytes) => {
                    let why = take_back(session, writer, why);
                    session.item(UndoAction::Kept, Some(why), bytes)
                }
                Verdict::Fail(why) => session.item(UndoAction::Failed, Some(why), 0),
                Verdict::GiveBack => give_back(session, writer),
                Verdict::Remove(record) => {
                    let bytes = record.as_ref().map_or(0, |(_, traces)| traces.bytes());
                    removals.push(Removal {
                        keys: session.keys.clone(),
                        record,
                        tag: items.len(),
                    });
                    session.item(UndoAction::WouldRemove, None, bytes)
                }
            };
            items.push(item);
        }
        let Some(writer) = writer else {
            return Ok(items);
        };
        for (tag, result) in writer.remove_sessions(removals) {
            let (Some(session), Some(item)) = (sessions.get(tag), items.get_mut(tag)) else {
                continue;
            };
            *item = match result {
                Ok(()) => {
                    tracing::info!("removed {}", session.source);
                    session.item(UndoAction::Removed, None, item.bytes)
                }
                Err(CommitError::StreamChanged) => {
                    let message = "the application was writing it; kept";
                    let why = Diagnostic::new(Code::WrittenOnSince, message);
                    session.item(UndoAction::Kept, Some(why), item.bytes)
                }
                Err(CommitError::Failed(error)) => {
                    let why = Diagnostic::new(Code::StoreWrite, error.to_string());
                    session.item(UndoAction::Failed, Some(why), item.bytes)
                }
            };
        }
        Ok(items)
    }

    fn judge(&self, session: &Session) -> Verdict {
        if self.options.interrupt.is_set() {
            let message = "the undo was interrupted before this session";
            return Verdict::Fail(Diagnostic::new(Code::Interrupted, message));
        }
        if session.theirs.is_some() {
            return Verdict::GiveBack;
        }
        if session.is_unusable {
            let message = "its item ledger entry names no stream of messages; kept";
            return Verdict::Keep(Diagnostic::new(Code::EntryUnusable, message), 0);
        }
        let Some(name) = session.vouched.first().map(|one| &one.name) else {
            return Verdict::Remove(None);
        };
        match self.judge_record(session, name) {
            Ok(verdict) => verdict,
            Err(error) => Verdict::Fail(Diagnostic::new(error.code(), error.to_string())),
        }
    }

    fn judge_record(&self, session: &Session, name: &StoreName) -> Result<Verdict> {
        let traces = self.store.traces(name, &session.vouched)?;
        let keep = |code, message: &str| {
            let why = Diagnostic::new(code, format!("{message}; kept"));
            Ok(Verdict::Keep(why, traces.bytes()))
        };
        if session.is_replacement {
            // `--overwrite` is about what the application has added, not about
            // what it would be left without.
            let message = "the import had replaced a record that was not its own, and that one \
                           cannot be brought back";
            return keep(Code::NotBroughtBack, message);
        }
        if self.options.overwrite {
            return Ok(self.remove(session, name, traces));
        }
        if let Some(what) = traces.foreign {
            let message = format!("its {what} is not as the import left it");
            return keep(Code::WrittenOnSince, &message);
        }
        if session.is_gone {
            return keep(Code::OnlyCopy, "its source is gone");
        }
        if session.is_only_copy {
            let message = "its source no longer gives all that the store has of it";
            return keep(Code::OnlyCopy, message);
        }
        if self.store.has_dropped(name)? {
            let message = "its residue holds messages that the source no longer has";
            return keep(Code::OnlyCopy, message);
        }
        Ok(self.remove(session, name, traces))
    }

    /// Unless something else lies where one of its files should: found only on
    /// the way, it would leave half of the session.
    fn remove(&self, session: &Session, name: &StoreName, traces: Traces) -> Verdict {
        let mut keys = session.keys.iter();
        match keys.try_for_each(|key| self.store.check_places(name, key)) {
            Ok(()) => Verdict::Remove(Some((name.clone(), traces))),
            Err(error) => Verdict::Fail(Diagnostic::new(Code::StoreWrite, error.to_string())),
        }
    }

    fn total(&mut self, items: Vec<UndoItem>) {
        let report = &mut self.report;
        for item in &items {
            match item.action {
                UndoAction::Removed | UndoAction::WouldRemove => {
                    report.removed += 1;
                    report.messages += item.messages;
                    report.bytes += item.bytes;
                }
                UndoAction::Kept => report.kept += 1,
                UndoAction::Failed => report.failed += 1,
            }
        }
        report.scanned = items.len() as u64;
        report.items = items;
    }

    fn finish(mut self) -> UndoReport {
        let warnings = self.diagnostics.iter().filter(|d| d.is_warning());
        self.report.warnings = warnings.map(Diagnostic::sentence).collect();
        self.report.diagnostics = self.diagnostics;
        self.report
    }
}

/// Takes off what `accept` has added to the entry of a record that is kept,
/// and says so.
fn take_back(session: &Session, writer: Option<&Writer>, mut why: Diagnostic) -> Diagnostic {
    let Some(entry) = &session.unaccepted else {
        return why;
    };
    let mut keys = session.keys.iter();
    let done = match writer {
        Some(writer) => keys.try_for_each(|key| writer.put_entry(key, entry)),
        None => Ok(()),
    };
    why.message += &match done {
        Ok(()) => "; its failure is accepted no longer".to_owned(),
        Err(error) => format!("; its failure stays accepted: {error}"),
    };
    why
}

/// Takes off what `accept` has added.
fn give_back(session: &Session, writer: Option<&Writer>) -> UndoItem {
    let (Some(writer), Some(entry)) = (writer, &session.theirs) else {
        return session.item(UndoAction::WouldRemove, None, 0);
    };
    let mut keys = session.keys.iter();
    match keys.try_for_each(|key| writer.put_entry(key, entry)) {
        Ok(()) => session.item(UndoAction::Removed, None, 0),
        Err(error) => {
            let why = Diagnostic::new(Code::StoreWrite, error.to_string());
            session.item(UndoAction::Failed, Some(why), 0)
        }
    }
}
