//! What `accept` prints.

use serde::{Deserialize, Serialize};

use crate::model::diagnostic::{Code, Diagnostic};

/// One failure that `accept` settled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct AcceptedItem {
    /// The session's key.
    pub session_key: String,
    /// Its source, relative to the workspace.
    pub source: String,
    /// Why it had failed.
    pub code: Code,
    /// The same in words.
    pub message: String,
    /// SHA-256 of the source's bytes; none where they cannot be read.
    pub sha256: Option<String>,
    /// An earlier import of the session is in the store, and stays.
    pub keeps_record: bool,
}

/// The result of `accept`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct AcceptReport {
    /// Version of this shape.
    pub schema_version: u32,
    /// The workspace.
    pub workspace: String,
    /// The store's root.
    pub store: String,
    /// Why nobody can help, in the operator's words.
    pub reason: String,
    /// Failures settled.
    pub accepted: u64,
    /// Failures that are left.
    pub still_failed: u64,
    /// Warnings about no single session, `code: sentence`.
    pub warnings: Vec<String>,
    /// The same with their parts.
    pub diagnostics: Vec<Diagnostic>,
    /// The sessions, by key.
    pub items: Vec<AcceptedItem>,
}
