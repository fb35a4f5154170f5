//! The sub-agents file, `.openhuman/subagent_sessions.json`
//! (`openhuman-workspace.md` §4).
//!
//! It says whose child a sub-agent is, and may hold the only copy of its
//! messages. `stream` takes it apart record by record, `record` reads one,
//! `history` gives its messages to a sink.

mod history;
mod json;
mod record;
mod stream;

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::SystemTime;

use crate::model::diagnostic::{Code, Diagnostic};
use crate::model::key::Sha256;
use crate::model::plural::count;

pub use history::read_history;
use record::Parsed;

const FOLDER: &str = ".openhuman";
const FILE: &str = "subagent_sessions.json";

/// How many bytes of records, beside their histories, are kept in memory:
/// those of some seventy thousand sub-agents. A file may be made of more.
const KEPT: u64 = 64 << 20;

/// What a record takes up beside its text, so that small ones count as well.
const OVERHEAD: u64 = 256;

/// How many records are named before they are only counted, as for lines
/// (`behaviour.md`, run).
const NAMED: usize = 20;

/// What the file says of one sub-agent.
#[derive(Debug, Clone, PartialEq)]
pub struct Subagent {
    /// `subagentSessionId`.
    pub id: String,
    /// `parentSession`: the parent's session key.
    pub parent_session: Option<String>,
    /// `parentThreadId`.
    pub parent_thread_id: Option<String>,
    /// `workerThreadId`: the sub-agent's own thread.
    pub worker_thread_id: Option<String>,
    /// `agentId`.
    pub agent_id: Option<String>,
    /// `createdAt`, as it stood.
    pub created_at: Option<String>,
    /// `updatedAt`, as it stood.
    pub updated_at: Option<String>,
    /// `model`.
    pub model: Option<String>,
    /// `currentTaskId`.
    pub task_id: Option<String>,
    /// The record without its `latestHistory`: what describes the sub-agent
    /// in the item ledger entry of its session.
    pub about: serde_json::Value,
    /// Entries of `latestHistory`.
    pub history_len: u64,
    /// Of the record's text, as it stood.
    pub sha256: Sha256,
    /// Length of that text.
    pub bytes: u64,
    /// Where it began in the file.
    pub at: u64,
}

/// All usable records of the file, in its order.
#[derive(Debug, Clone, Default)]
pub struct Subagents {
    /// One per sub-agent.
    pub records: Vec<Subagent>,
    /// When the file was last written.
    pub mtime: Option<SystemTime>,
    by_worker_thread: HashMap<String, usize>,
}

impl Subagents {
    /// Reads the file. Never fails: what cannot be used is a warning. No file
    /// is no record, without one.
    pub fn read(workspace: &Path) -> (Self, Vec<Diagnostic>) {
        Self::read_within(workspace, stream::LARGEST_RECORD, KEPT)
    }

    fn read_within(workspace: &Path, largest: u64, kept: u64) -> (Self, Vec<Diagnostic>) {
        let mut reading = Reading {
            room: kept,
            ..Reading::default()
        };
        let outcome = stream::open(workspace).and_then(|file| {
            let Some(file) = file else {
                return Ok(());
            };
            let metadata = file.metadata();
            reading.subagents.mtime = metadata.and_then(|metadata| metadata.modified()).ok();
            stream::records(file, largest, &mut |number, at, raw| {
                reading.add(number, at, raw);
                ControlFlow::Continue(())
            })
        });
        match outcome {
            Ok(()) => reading.finish(),
            // What is missing from a cut file might speak against what is left of it.
            Err(unusable) => {
                let nothing = format!("{unusable}; nothing of it was used");
                (Self::default(), vec![warning(&nothing)])
            }
        }
    }

    /// The record of the sub-agent whose thread this is; the first, if there
    /// are several.
    pub fn by_worker_thread(&self, thread: &str) -> Option<&Subagent> {
        self.records.get(*self.by_worker_thread.get(thread)?)
    }
}

/// A reading in progress.
#[derive(Default)]
struct Reading {
    subagents: Subagents,
    by_id: HashMap<String, usize>,
    /// Bytes of records that may still be kept.
    room: u64,
    warnings: Vec<Diagnostic>,
    /// Records that were left out without being named, and their messages.
    unnamed: (u64, u64),
}

impl Reading {
    fn add(&mut self, number: usize, at: u64, raw: &str) {
        let Parsed {
            mut subagent,
            around,
            odd,
        } = match record::parse(raw) {
            Ok(parsed) => parsed,
            Err(left) => {
                let id = left.id.as_deref();
                return self.leave_out(number, id, &left.why, left.messages);
            }
        };
        subagent.at = at;
        let messages = subagent.history_len;
        if let Some(&first) = self.by_id.get(&subagent.id) {
            let records = &self.subagents.records;
            let has_both = messages > 0 && records.get(first).is_some_and(|it| it.history_len > 0);
            let why = match has_both {
                true => "an earlier record has the same id, and a history of its own",
                false => "an earlier record has the same id",
            };
            return self.leave_out(number, Some(&subagent.id), why, messages);
        }
        let Some(room) = self.room.checked_sub(around + OVERHEAD) else {
            let why = "the records before it are as many as are kept";
            return self.leave_out(number, Some(&subagent.id), why, messages);
        };
        self.room = room;
        if let Some(odd) = odd {
            let name = name(number, Some(&subagent.id));
            self.warn(&format!("{name}: {odd}"), 0);
        }
        let index = self.subagents.records.len();
        if let Some(thread) = subagent.worker_thread_id.clone() {
            // Of several with one thread, the first counts.
            let by_thread = &mut self.subagents.by_worker_thread;
            by_thread.entry(thread).or_insert(index);
        }
        self.by_id.insert(subagent.id.clone(), index);
        self.subagents.records.push(subagent);
    }

    fn leave_out(&mut self, number: usize, id: Option<&str>, why: &str, messages: u64) {
        let with = match messages {
            0 => String::new(),
            messages => format!(" (messages in its history: {messages})"),
        };
        let name = name(number, id);
        self.warn(&format!("{name}: {why}; it was left out{with}"), messages);
    }

    fn warn(&mut self, message: &str, messages: u64) {
        if self.warnings.len() < NAMED {
            self.warnings.push(warning(message));
        } else {
            self.unnamed.0 += 1;
            self.unnamed.1 += messages;
        }
    }

    fn finish(mut self) -> (Subagents, Vec<Diagnostic>) {
        let (records, messages) = self.unnamed;
        if records > 0 {
            let records = count(records, "more record");
            let more = format!("and {records} (messages in their histories: {messages})");
            self.warnings.push(warning(&more));
        }
        (self.subagents, self.warnings)
    }
}

fn warning(message: &str) -> Diagnostic {
    Diagnostic::new(
        Code::SubagentsUnusable,
        format!("{FOLDER}/{FILE}: {message}"),
    )
}

/// A record by its number from 1 and its id, which may hold anything and be
/// of any length.
fn name(number: usize, id: Option<&str>) -> String {
    let Some(id) = id else {
        return format!("record {number}");
    };
    let id: String = id.chars().take(64).flat_map(char::escape_debug).collect();
    format!("record {number} ({id})")
}

#[cfg(test)]
mod tests;
