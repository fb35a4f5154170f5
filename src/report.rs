//! The serde types of everything that is printed as JSON.
//!
//! Their schemas lie in `docs/schema/`, generated from these types and
//! checked against them by the tests.

mod accept;
mod status;
mod undo;

use serde::{Deserialize, Serialize};

use crate::model::check::{Check, Weight};
use crate::model::diagnostic::{Code, Diagnostic};
use crate::model::remedy::Remedy;
use crate::model::session::{Kind, Lines};

pub use accept::{AcceptReport, AcceptedItem};
pub use status::{
    MarkerStatus, NextStep, State, StateCounts, StatusBytes, StatusLines, StatusReport,
};
pub use undo::{UndoAction, UndoItem, UndoReport};

/// Version of the JSON outputs; raised when a field changes its meaning or goes.
pub const SCHEMA_VERSION: u32 = 1;

/// What was done about an item.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Written to the store.
    Imported,
    /// What a dry run says instead.
    WouldImport,
    /// In the store already, source unchanged.
    SkippedUnchanged,
    /// The application has gone on with this session in the store.
    SkippedStoreAhead,
    /// A failure that was settled by `accept`.
    SkippedAccepted,
    /// Not imported; the store's earlier record, if any, is as it was.
    Failed,
}

impl Action {
    /// The word used in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Imported => "imported",
            Self::WouldImport => "would_import",
            Self::SkippedUnchanged => "skipped_unchanged",
            Self::SkippedStoreAhead => "skipped_store_ahead",
            Self::SkippedAccepted => "skipped_accepted",
            Self::Failed => "failed",
        }
    }
}

/// One session of the plan or of the result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ItemReport {
    /// The session's key.
    pub session_key: String,
    /// Its source, relative to the workspace.
    pub source: String,
    /// What kind of source that is.
    pub kind: Kind,
    /// What was done.
    pub action: Action,
    /// Why: `new`, `source changed`, `--force`, …
    pub reason: String,
    /// The journal's stream, where it is known.
    pub stream: Option<String>,
    /// The session's thread, where it is known.
    pub thread_id: Option<String>,
    /// How tool calls are written: `native`, `xml`, or the dispatcher's name.
    pub dialect: Option<String>,
    /// Number of messages.
    pub messages: u64,
    /// The source's lines by what became of them.
    pub lines: Lines,
    /// `code: sentence` for each diagnostic that is a warning or worse.
    pub warnings: Vec<String>,
    /// The same with their parts, and those that are only good to know.
    pub diagnostics: Vec<Diagnostic>,
}

/// What `--salvage` would bring back.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct Salvageable {
    /// Lines that would become messages.
    pub lines: u64,
    /// Failed sessions that would be imported.
    pub sessions: u64,
}

/// The result of `run`, and the plan of a dry run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RunReport {
    /// Version of this shape.
    pub schema_version: u32,
    /// Nothing was written.
    pub dry_run: bool,
    /// A clean marker, and nothing new or changed.
    pub already_done: bool,
    /// The workspace.
    pub workspace: String,
    /// The store's root.
    pub store: String,
    /// Items: always `imported + skipped + failed`.
    pub scanned: u64,
    /// Items imported (in a dry run: that would be).
    pub imported: u64,
    /// Items that needed nothing.
    pub skipped: u64,
    /// Items that could not be imported.
    pub failed: u64,
    /// Source folders that could not be listed.
    pub unreadable: u64,
    /// Lines that the application's reader skips, over all items read.
    pub rejected: u64,
    /// Messages written; 0 in a dry run.
    pub messages_written: u64,
    /// Bytes of the sources to be imported, and so about what the store grows by.
    pub bytes: u64,
    /// What `--salvage` would bring back.
    pub salvageable: Salvageable,
    /// Warnings about no single item, `code: sentence`.
    pub warnings: Vec<String>,
    /// The same with their parts, and those that are only good to know.
    pub diagnostics: Vec<Diagnostic>,
    /// The items, by session key.
    pub items: Vec<ItemReport>,
}

impl RunReport {
    /// Whether everything is as it should be: what exit code 0 promises.
    pub fn is_clean(&self) -> bool {
        let failed_marker = crate::model::diagnostic::Code::MarkerNotWritten;
        self.failed == 0
            && self.unreadable == 0
            && !self.diagnostics.iter().any(|d| d.code == failed_marker)
    }
}

/// What stands in place of a report where a command could not be done at all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ErrorReport {
    /// Version of this shape.
    pub schema_version: u32,
    /// What ended the command.
    pub error: FatalError,
}

/// An error that ended a whole command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct FatalError {
    /// The stable code.
    pub code: Code,
    /// What was found, and what to do.
    pub message: String,
    /// The process's exit code.
    pub exit_code: u8,
}

impl ErrorReport {
    /// The report of this error.
    pub fn new(code: Code, message: impl Into<String>, exit_code: u8) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            error: FatalError {
                code,
                message: message.into(),
                exit_code,
            },
        }
    }
}

/// The result of `verify`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct VerifyReport {
    /// Version of this shape.
    pub schema_version: u32,
    /// The workspace.
    pub workspace: String,
    /// The store's root.
    pub store: String,
    /// There is no finding.
    pub clean: bool,
    /// Sources that are sessions.
    pub sources: u64,
    /// Item ledger entries.
    pub entries: u64,
    /// Entries whose record was held against its source, message by message.
    /// The others have a notice or a finding that says why not.
    pub checked: u64,
    /// Messages that were read of their sources.
    pub messages: u64,
    /// Lines of sources that are no messages.
    pub residue: u64,
    /// What is not as it should be, by session.
    pub findings: Vec<Finding>,
    /// What is worth knowing, by session.
    pub notices: Vec<Finding>,
    /// Warnings about the workspace itself, `code: sentence`.
    pub warnings: Vec<String>,
    /// The same with their parts, and those that are only good to know.
    pub diagnostics: Vec<Diagnostic>,
}

/// One thing that `verify` found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Finding {
    /// The stable code.
    pub code: Check,
    /// How much it weighs.
    pub severity: Weight,
    /// The session's key, where it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_key: Option<String>,
    /// The session's source, relative to the workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The file that it is about, relative to the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Number of the first differing message, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_message: Option<u64>,
    /// Number of the first differing record of the residue stream, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_residue: Option<u64>,
    /// What was found; never any message's content.
    pub message: String,
    /// What puts a finding right; notices need nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<Remedy>,
    /// With `--diff`: what differs. Holds contents.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<Difference>,
}

/// One thing that differs between a source and its record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Difference {
    /// Where: `message 3`, `residue record 2`, `descriptor`, `entry`.
    pub place: String,
    /// The field.
    pub field: String,
    /// How the two differ, in words.
    pub words: String,
    /// What the store has, as JSON, perhaps a part of it; absent where it has nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<String>,
    /// What the source gives, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given: Option<String>,
}

impl Finding {
    /// The same with what puts it right.
    pub(crate) fn helped_by(self, remedy: Remedy) -> Self {
        Self {
            remedy: Some(remedy),
            ..self
        }
    }

    /// One about nothing in particular yet.
    pub fn new(code: Check, message: impl Into<String>) -> Self {
        Self {
            code,
            severity: code.severity(),
            session_key: None,
            source: None,
            file: None,
            first_message: None,
            first_residue: None,
            message: message.into(),
            remedy: None,
            differences: Vec::new(),
        }
    }
}
