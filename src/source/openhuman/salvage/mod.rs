//! `--salvage`: every rule by which the import takes more than the
//! application's reader would (`openhuman-workspace.md` §1). No relaxed rule
//! is anywhere else, so that a plain import cannot use one by accident.

pub(crate) mod header;
pub(crate) mod line;
pub(crate) mod markdown;

/// What stands in for a header that is missing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Defaults {
    /// The agent, from the file's name.
    pub agent: String,
    /// The start, from the file's name: RFC 3339, or empty.
    pub created: String,
    /// The end, from the file's time: RFC 3339.
    pub updated: String,
}

/// The value of `session_import.salvaged`: where the message came from and by
/// which rule it was brought back.
pub(crate) fn mark(line: u64, rule: &str) -> String {
    serde_json::json!({ "line": line, "rule": rule }).to_string()
}
