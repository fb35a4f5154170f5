//! One item: read its source into the store, or into nowhere in a dry run.
//!
//! Both go through the same lines, so a plan cannot drift from a run.

mod dropped;
mod judge;
mod reading;
mod record;
mod residue;

use std::collections::HashMap;
use std::path::Path;
use std::sync::RwLock;

use crate::error::{Error, Result};
use crate::fs::stat::Stat;
use crate::model::diagnostic::{Code, Diagnostic, Diagnostics};
use crate::model::interrupt::Interrupt;
use crate::model::key::SessionKey;
use crate::model::plural::count;
use crate::model::session::Reading;
use crate::plan::Item;
use crate::plan::decide::Wishes;
use crate::report::{Action, ItemReport};
use crate::source::openhuman::lineage::{self, cross_check};
use crate::source::openhuman::run_ledger::RunLedger;
use crate::source::openhuman::subagents::Subagents;
use crate::store::clock::Clock;
use crate::store::name::StoreName;
use crate::store::{Expect, Prepared, Store, Writer};
use judge::Verdict;
use reading::Read;
pub(crate) use reading::{Source, defaults};

/// All that importing an item needs.
pub(crate) struct Importer<'a> {
    pub(crate) workspace: &'a Path,
    pub(crate) store: &'a Store,
    /// `None` in a dry run.
    pub(crate) writer: Option<&'a Writer>,
    pub(crate) clock: &'a Clock,
    pub(crate) wishes: Wishes,
    pub(crate) ledger: &'a RunLedger,
    pub(crate) subagents: &'a Subagents,
    /// Threads of the sessions known so far; parents come before children.
    pub(crate) threads: &'a RwLock<HashMap<SessionKey, String>>,
    pub(crate) interrupt: &'a Interrupt,
    pub(crate) progress: &'a (dyn Fn(u64) + Sync),
}

/// What became of an item.
pub(crate) struct Outcome {
    pub(crate) report: ItemReport,
    /// Ready to be committed.
    pub(crate) prepared: Option<Box<Prepared>>,
    pub(crate) failure: Option<(Code, String)>,
    /// Lines (of an item that was read) and messages (of one that failed)
    /// that `--salvage` would bring back.
    pub(crate) salvageable: u64,
    pub(crate) rejected: u64,
    /// The stream as it was when it was found ahead of the source.
    pub(crate) ahead: Option<Stat>,
}

impl Importer<'_> {
    /// Reads an item and prepares its record.
    pub(crate) fn import(&self, item: &Item) -> Outcome {
        let Some(name) = &item.name else {
            return self.failed(
                item,
                Code::StoreWrite,
                "the session has no name".to_owned(),
                0,
            );
        };
        match self.read_and_judge(item, name) {
            Ok(outcome) => outcome,
            Err(error) => {
                let salvageable = match &error {
                    Error::Source { salvageable, .. } => *salvageable,
                    _ => 0,
                };
                self.failed(item, error.code(), error.to_string(), salvageable)
            }
        }
    }

    fn read_and_judge(&self, item: &Item, name: &StoreName) -> Result<Outcome> {
        let mut read = self.read_until_quiet(item, name)?;
        let mut diagnostics = Diagnostics::default();
        diagnostics.extend(item.diagnostics.iter().cloned());
        let replaced = match self.judge(item, name, read.hash, read.compare.as_mut())? {
            Verdict::Keep => return Ok(self.ahead(item, name, &read.reading, read.stream)),
            Verdict::Refuse(code, message) => return Ok(self.failed(item, code, message, 0)),
            Verdict::Replace { replaced, note } => {
                diagnostics.extend(note);
                replaced
            }
        };
        let compare = read.compare.take();
        let dropped = self.move_dropped(item, name, read.hash, compare, read.draft.as_mut())?;
        diagnostics.extend(dropped.warning());
        let (thread_id, is_synthesized) =
            lineage::thread_id(read.reading.header.thread_id.as_deref(), name.as_str());
        if is_synthesized {
            let message = format!("no thread is named; the session got {thread_id}");
            diagnostics.push(Diagnostic::new(Code::ThreadIdSynthesized, message));
        }
        diagnostics.extend(self.lineage(item, &thread_id));
        if read.has_changed {
            let message = "the source changed during each of three readings; imported as last read";
            diagnostics.push(Diagnostic::new(Code::ImportedWhileChanging, message));
        }
        diagnostics.append(std::mem::take(&mut read.reading.diagnostics));
        self.prepare(item, name, read, replaced, thread_id, diagnostics)
    }

    /// The record of a session that was read, ready to be put in place.
    fn prepare(
        &self,
        item: &Item,
        name: &StoreName,
        read: Read,
        replaced: Option<serde_json::Value>,
        thread_id: String,
        diagnostics: Diagnostics,
    ) -> Result<Outcome> {
        let reading = &read.reading;
        let diagnostics = diagnostics.into_vec();
        let warnings = diagnostics.iter().filter(|d| d.is_warning()).count() as u64;
        let prepared = match read.draft {
            Some(draft) => {
                let mut entry = self.entry(item, name, reading, read.hash, read.source);
                // Once said it stays: `undo` cannot bring back what was there before.
                let before = item.record().and_then(|entry| entry.replaced.clone());
                entry.replaced = replaced.or(before);
                entry.unsettled = read.has_changed.then_some(true);
                if entry.subagent.is_none() {
                    let record = self.subagents.by_worker_thread(&thread_id);
                    entry.subagent = record.map(|record| record.about.clone());
                }
                Some(Box::new(Prepared {
                    ledger_key: item.ledger_key(),
                    old_key: item.replaces.first().copied(),
                    written: draft.finish()?,
                    name: name.clone(),
                    descriptor: self.descriptor(item, name, reading, thread_id.clone(), warnings),
                    entry,
                    expect: read.stream.map_or(Expect::Absent, Expect::Same),
                    tag: 0,
                }))
            }
            None => None,
        };
        let action = match self.writer {
            Some(_) => Action::Imported,
            None => Action::WouldImport,
        };
        let mut report = report(item, action, diagnostics);
        report.stream = Some(name.messages().as_str().to_owned());
        report.thread_id = Some(thread_id);
        report.dialect = Some(dialect(reading).to_owned());
        report.messages = reading.messages;
        report.lines = reading.lines;
        Ok(Outcome {
            report,
            prepared,
            failure: None,
            salvageable: reading.salvageable,
            rejected: reading.rejected,
            ahead: None,
        })
    }

    fn lineage(&self, item: &Item, thread_id: &str) -> Vec<Diagnostic> {
        let parent_thread = item.session.parent.as_ref().and_then(|parent| {
            let threads = self.threads.read().ok()?;
            threads.get(parent).cloned()
        });
        cross_check(
            &item.session,
            thread_id,
            parent_thread.as_deref(),
            self.ledger,
            self.subagents,
        )
    }

    fn ahead(
        &self,
        item: &Item,
        name: &StoreName,
        reading: &Reading,
        stream: Option<Stat>,
    ) -> Outcome {
        let mut message =
            "the store holds all of the source's messages and more; left alone".to_owned();
        if reading.lines.residue > 0 {
            let lines = count(reading.lines.residue, "line");
            message += &format!(
                "; what is new in the source and no message is in the source only ({lines} in all)"
            );
        }
        let mut diagnostics = item.diagnostics.clone();
        diagnostics.push(Diagnostic::new(Code::StoreAhead, message));
        let mut report = report(item, Action::SkippedStoreAhead, diagnostics);
        report.stream = Some(name.messages().as_str().to_owned());
        report.messages = reading.messages;
        report.lines = reading.lines;
        let descriptor = self.descriptor_of(name);
        report.thread_id = descriptor.map(|descriptor| descriptor.thread_id);
        Outcome {
            report,
            prepared: None,
            failure: None,
            salvageable: 0,
            rejected: reading.rejected,
            ahead: stream,
        }
    }

    /// An item that could not be imported.
    pub(crate) fn failed(
        &self,
        item: &Item,
        code: Code,
        message: String,
        salvageable: u64,
    ) -> Outcome {
        let mut diagnostics = item.diagnostics.clone();
        diagnostics.push(Diagnostic::new(code, message.clone()));
        let mut report = report(item, Action::Failed, diagnostics);
        report.stream = item
            .name
            .as_ref()
            .map(|name| name.messages().as_str().to_owned());
        Outcome {
            report,
            prepared: None,
            failure: Some((code, message)),
            salvageable,
            rejected: 0,
            ahead: None,
        }
    }
}

/// The report of an item of which nothing more is known.
pub(crate) fn report(item: &Item, action: Action, diagnostics: Vec<Diagnostic>) -> ItemReport {
    let warnings = diagnostics.iter().filter(|d| d.is_warning());
    ItemReport {
        session_key: item.session.key.to_string(),
        source: item.session.source.to_string(),
        kind: item.session.kind,
        action,
        reason: item.decision.reason().to_owned(),
        stream: None,
        thread_id: None,
        dialect: None,
        messages: 0,
        lines: Default::default(),
        warnings: warnings.map(Diagnostic::sentence).collect(),
        diagnostics,
    }
}

/// How the session's tool calls are written (`openhuman-workspace.md` §1,
/// Tool calls): the application says `xml` for two notations, and only the
/// content tells whether there is markup.
fn dialect(reading: &Reading) -> &str {
    match reading.header.dispatcher.as_str() {
        "native" => "native",
        _ if reading.tool_call_markup => "xml",
        other => other,
    }
}
