//! What `status` prints.

use serde::{Deserialize, Serialize};

use crate::model::diagnostic::Diagnostic;

/// How a session's source stands to the store, as far as names, sizes and
/// times tell; the most urgent first.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// The last run could not import it; the next one tries again.
    Failed,
    /// Not in the store yet.
    New,
    /// In the store, but its source has changed since.
    Changed,
    /// In the store, but to be written anew: incomplete, by older rules, or
    /// read while it was being written.
    Outdated,
    /// The earlier importer's, to be imported anew.
    EarlierImporter,
    /// Only its bytes can tell; the next run looks at them.
    ToLookAt,
    /// In the store, source unchanged.
    UpToDate,
    /// The application has gone on with it in the store.
    Ahead,
    /// A failure that was settled by `accept`.
    Accepted,
    /// In the store, and its source is gone.
    SourceGone,
}

impl State {
    /// Whether a run would read its source.
    pub fn is_work(self) -> bool {
        self <= Self::ToLookAt
    }
}

/// Sessions by state.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct StateCounts {
    /// [`State::Failed`]
    pub failed: u64,
    /// [`State::New`]
    pub new: u64,
    /// [`State::Changed`]
    pub changed: u64,
    /// [`State::Outdated`]
    pub outdated: u64,
    /// [`State::EarlierImporter`]
    pub earlier_importer: u64,
    /// [`State::ToLookAt`]
    pub to_look_at: u64,
    /// [`State::UpToDate`]
    pub up_to_date: u64,
    /// [`State::Ahead`]
    pub ahead: u64,
    /// [`State::Accepted`]
    pub accepted: u64,
    /// [`State::SourceGone`]
    pub source_gone: u64,
}

impl StateCounts {
    /// Counts one more.
    pub(crate) fn add(&mut self, state: State) {
        let count = match state {
            State::Failed => &mut self.failed,
            State::New => &mut self.new,
            State::Changed => &mut self.changed,
            State::Outdated => &mut self.outdated,
            State::EarlierImporter => &mut self.earlier_importer,
            State::ToLookAt => &mut self.to_look_at,
            State::UpToDate => &mut self.up_to_date,
            State::Ahead => &mut self.ahead,
            State::Accepted => &mut self.accepted,
            State::SourceGone => &mut self.source_gone,
        };
        *count += 1;
    }
}

/// The marker of a completed import.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct MarkerStatus {
    /// This tool wrote it; another one's does not count.
    pub is_ours: bool,
    /// It is ours, and by the reading rules of this version.
    pub is_clean: bool,
    /// When.
    pub imported_at: String,
    /// Who wrote it, with the version.
    pub tool: Option<String>,
}

/// Lines of all sources in the store, and those that are no messages by why.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct StatusLines {
    /// All lines.
    pub total: u64,
    /// Lines that lie in residue streams. What a source had once, and has no
    /// longer, lies there as well, and is not counted.
    pub residue: u64,
    /// The application's reader skips them.
    pub rejected: u64,
    /// Answers that were cut off.
    pub interrupted: u64,
    /// Compaction records.
    pub compactions: u64,
    /// Replaced messages, later headers, declarations of tools.
    pub other: u64,
}

/// Sizes in bytes.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct StatusBytes {
    /// Of all sources.
    pub sources: u64,
    /// Of the sources that a run would read.
    pub to_read: u64,
    /// Of the store's streams, the application's own included.
    pub streams: u64,
}

/// Sessions with which the next run would do the same, for the same reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct NextStep {
    /// Their state.
    pub state: State,
    /// Why, in words; of failures, the code.
    pub reason: String,
    /// How many.
    pub sessions: u64,
    /// Bytes of their sources.
    pub bytes: u64,
    /// The first sources, in order.
    pub examples: Vec<String>,
}

/// The result of `status`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct StatusReport {
    /// Version of this shape.
    pub schema_version: u32,
    /// The workspace.
    pub workspace: String,
    /// The store's root.
    pub store: String,
    /// Whether there is a store.
    pub store_exists: bool,
    /// This tool's version.
    pub tool_version: String,
    /// The marker, if there is one.
    pub marker: Option<MarkerStatus>,
    /// A run would change nothing, and read no source.
    pub nothing_to_do: bool,
    /// Sessions with a source, in the store, or both: the sum of `states`.
    pub scanned: u64,
    /// The same by state.
    pub states: StateCounts,
    /// Files that are no sessions of their own: views, older copies, notes.
    pub other_files: u64,
    /// Source folders that could not be listed.
    pub unreadable: u64,
    /// Sessions that imports have brought into the store.
    pub sessions: u64,
    /// Their messages, as they were imported; what the application has written
    /// on in the store is not counted.
    pub messages: u64,
    /// Their sources' lines.
    pub lines: StatusLines,
    /// There is more beside them than `lines` counts: what sources had once.
    /// A residue stream is not opened, so among other lines it is not seen.
    pub dropped: bool,
    /// Sizes.
    pub bytes: StatusBytes,
    /// What the next run would do, by state and reason, the most urgent first.
    pub next: Vec<NextStep>,
    /// Warnings, `code: sentence`.
    pub warnings: Vec<String>,
    /// The same with their parts, and those that are only good to know.
    pub diagnostics: Vec<Diagnostic>,
}
