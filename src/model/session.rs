//! A session, and what reading it gives.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::diagnostic::Diagnostics;
use super::key::{SessionKey, SourcePath};

/// What kind of source a session is read from.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A transcript in `session_raw/` or in a profile's folder.
    Jsonl,
    /// A transcript in a date folder, `session_raw/{DDMMYYYY}/`.
    JsonlLegacyDir,
    /// A Markdown transcript, legacy or rendered.
    Markdown,
    /// A sub-agent whose only messages are in `subagent_sessions.json`.
    SubagentHistory,
}

impl Kind {
    /// The word used in JSON and in tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Jsonl => "jsonl",
            Self::JsonlLegacyDir => "jsonl_legacy_dir",
            Self::Markdown => "markdown",
            Self::SubagentHistory => "subagent_history",
        }
    }
}

/// One conversation, found but not yet read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// Its name in the store's eyes.
    pub key: SessionKey,
    /// The transcript's stem: the key, but for a suffix where a stem is used twice.
    pub stem: Arc<str>,
    /// How it is read.
    pub kind: Kind,
    /// The file (or record) it is read from.
    pub source: SourcePath,
    /// The profile whose folder it lies in.
    pub profile: Option<String>,
    /// Its Markdown companion, if there is one; never read as a transcript.
    pub companion: Option<SourcePath>,
    /// The parent's session key, if that is among the sessions.
    pub parent: Option<SessionKey>,
    /// The parent's stem, whether it exists or not.
    pub parent_stem: Option<String>,
}

/// What a transcript's header says (`openhuman-workspace.md` §1.2).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Header {
    /// Schema version, 0 where there is none.
    pub version: u32,
    /// Name of the agent.
    pub agent: String,
    /// Registry id of the agent.
    pub agent_id: Option<String>,
    /// `root`, `subagent`, …
    pub agent_type: Option<String>,
    /// `native`, `xml`, …
    pub dispatcher: String,
    /// Provider of the latest answer.
    pub provider: Option<String>,
    /// Model of the latest answer.
    pub model: Option<String>,
    /// RFC 3339, as it stood.
    pub created: String,
    /// RFC 3339, as it stood.
    pub updated: String,
    /// Number of turns.
    pub turn_count: u64,
    /// Messages of the stable prefix.
    pub prefix_message_count: Option<u64>,
    /// Tokens in.
    pub input_tokens: u64,
    /// Tokens out.
    pub output_tokens: u64,
    /// Tokens in that came from the cache.
    pub cached_input_tokens: u64,
    /// US dollars.
    pub charged_amount_usd: f64,
    /// The thread, as it stood: it may be blank.
    pub thread_id: Option<String>,
    /// The sub-agent's task.
    pub task_id: Option<String>,
    /// The application's own id of the session.
    pub session_id: Option<String>,
    /// The same of its parent.
    pub parent_session_id: Option<String>,
}

/// Lines of a source by what became of them. The sum of the other four is
/// `total`, always: it is how an import proves that nothing was lost.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct Lines {
    /// All lines; a final newline does not start another one.
    pub total: u64,
    /// The first header: the only line that is neither message nor residue.
    pub headers: u64,
    /// Lines that became messages.
    pub messages: u64,
    /// Lines that lie in the residue stream.
    pub residue: u64,
    /// Lines of white space only.
    pub blank: u64,
}

impl Lines {
    /// Whether every line is accounted for.
    pub fn add_up(&self) -> bool {
        self.total == self.headers + self.messages + self.residue + self.blank
    }
}

/// What reading a session gave, beside what went to the sink.
#[derive(Debug, Clone, Default)]
pub struct Reading {
    /// The counting header: the last valid one.
    pub header: Header,
    /// Messages, those of a compaction record included.
    pub messages: u64,
    /// Lines by what became of them.
    pub lines: Lines,
    /// Generation of the format, 1 to 6 (`openhuman-workspace.md` §1); 0 for no transcript.
    pub generation: u8,
    /// Compactions replayed.
    pub compactions: u64,
    /// Partial answers left out.
    pub interrupted: u64,
    /// Lines that the application's reader skips.
    pub rejected: u64,
    /// Rejected lines (or, for a failed file, messages) that `--salvage` would bring back.
    pub salvageable: u64,
    /// Read from the rendered view: text is kept, structure was guessed.
    pub lossy: bool,
    /// Some of it was brought back by `--salvage`.
    pub salvaged: bool,
    /// Keys of the header that neither descriptor nor entry has a place for:
    /// a JSON object.
    pub unmapped_meta: Option<serde_json::Map<String, serde_json::Value>>,
    /// The text of the first header line, where a later one counts: it is the
    /// one line that the residue does not hold.
    pub first_header: Option<String>,
    /// Some content holds `<tool_call>` markup.
    pub tool_call_markup: bool,
    /// What was found on the way.
    pub diagnostics: Diagnostics,
}
