//! What `undo` prints.

use serde::{Deserialize, Serialize};

use crate::model::diagnostic::{Diagnostic, Severity};

/// What was done about a session by `undo`.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum UndoAction {
    /// Taken out of the store.
    Removed,
    /// What a dry run says instead.
    WouldRemove,
    /// Left as it was, by a rule that its diagnostics name.
    Kept,
    /// Could not be removed; the next `undo` goes on with it.
    Failed,
}

/// One session that `undo` looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct UndoItem {
    /// The session's key.
    pub session_key: String,
    /// Its source, relative to the workspace.
    pub source: String,
    /// What was done.
    pub action: UndoAction,
    /// The journal's stream; none where only a failure was accepted.
    pub stream: Option<String>,
    /// Messages that its item ledger entry names.
    pub messages: u64,
    /// Bytes of its files in the store.
    pub bytes: u64,
    /// `code: sentence` for each diagnostic that is a warning or worse.
    pub warnings: Vec<String>,
    /// The same with their parts.
    pub diagnostics: Vec<Diagnostic>,
}

/// The result of `undo`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct UndoReport {
    /// Version of this shape.
    pub schema_version: u32,
    /// Nothing was written.
    pub dry_run: bool,
    /// The workspace.
    pub workspace: String,
    /// The store's root.
    pub store: String,
    /// Nothing of any import is left (in a dry run: would be).
    pub undone_whole: bool,
    /// Sessions that imports had brought: always `removed + kept + failed`.
    pub scanned: u64,
    /// Sessions removed (in a dry run: that would be).
    pub removed: u64,
    /// Sessions left as they were.
    pub kept: u64,
    /// Sessions that could not be removed.
    pub failed: u64,
    /// Recorded failures that were forgotten (in a dry run: that would be).
    pub failures_forgotten: u64,
    /// Messages removed (in a dry run: that would be).
    pub messages: u64,
    /// Bytes removed (in a dry run: that would be).
    pub bytes: u64,
    /// Warnings about no single session, `code: sentence`.
    pub warnings: Vec<String>,
    /// The same with their parts.
    pub diagnostics: Vec<Diagnostic>,
    /// The sessions, by key.
    pub items: Vec<UndoItem>,
}

impl UndoReport {
    /// Whether all was done that was to be done: what is kept by a rule is no
    /// failure.
    pub fn is_clean(&self) -> bool {
        let is_error = |d: &Diagnostic| d.severity == Severity::Error;
        self.failed == 0 && !self.diagnostics.iter().any(is_error)
    }
}
