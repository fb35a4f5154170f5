//! Every rule that is more lenient than the application's reader, and nothing
//! else: what `--salvage` may do is what stands in this folder
//! (`openhuman-workspace.md` §1, "What the importer does beyond the reader").

pub mod markdown;

/// What a transcript's header says where it has none: agent and start are
/// those of the stem, the end is the file's mtime.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Defaults {
    /// Name of the agent.
    pub agent: String,
    /// RFC 3339.
    pub created: String,
    /// RFC 3339.
    pub updated: String,
}

/// The value of `session_import.salvaged`: where the message came from and by
/// which rule it was brought back.
pub(crate) fn mark(line: u64, rule: &str) -> String {
    serde_json::json!({ "line": line, "rule": rule }).to_string()
}
