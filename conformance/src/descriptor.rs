//! A session's descriptor, with the application's nullability.
//!
//! The application's decoder insists on every field, so this one does too: a
//! field may be `null` only where its type is an `Option`, and may never be
//! missing. Unknown fields are let through, as the application lets them.

use serde::{Deserialize, Deserializer, Serialize};

/// The value under `sessions/{store name of the session key}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the design document's fields, in its order")]
pub struct Descriptor {
    pub session_key: String,
    #[serde(deserialize_with = "present")]
    pub parent_session_key: Option<String>,
    pub thread_id: String,
    pub thread_id_synthesized: bool,
    #[serde(deserialize_with = "present")]
    pub task_id: Option<String>,
    pub run_ids: Vec<String>,
    pub stream: String,
    pub dispatcher: String,
    pub agent_name: String,
    #[serde(deserialize_with = "present")]
    pub agent_id: Option<String>,
    #[serde(deserialize_with = "present")]
    pub agent_type: Option<String>,
    #[serde(deserialize_with = "present")]
    pub provider: Option<String>,
    #[serde(deserialize_with = "present")]
    pub model: Option<String>,
    pub created: String,
    pub updated: String,
    pub turn_count: u64,
    pub usage: Usage,
    pub source: Source,
    pub import: Import,
}

/// What the session has used, in tokens and US dollars.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "see `Descriptor`")]
pub struct Usage {
    pub input: u64,
    pub output: u64,
    pub cached_input: u64,
    pub cost_usd: f64,
}

/// The files that the session was read from, relative to the workspace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "see `Descriptor`")]
pub struct Source {
    #[serde(deserialize_with = "present")]
    pub jsonl: Option<String>,
    #[serde(deserialize_with = "present")]
    pub md: Option<String>,
}

/// When and how the session came into the store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "see `Descriptor`")]
pub struct Import {
    pub version: u32,
    pub imported_at: String,
    pub warnings: u64,
}

/// Left to itself, serde reads a missing field as `None`. Naming a function
/// takes that away: the field must be there, `null` or not.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Option::deserialize(deserializer)
}
