//! What the fuzz targets check, and how they make new inputs of old ones.
//!
//! A check panics where the reader breaks the contract; the targets themselves
//! only call it. See README.md.

pub mod jsonl;
pub mod markdown_legacy;
pub mod markdown_rendered;
mod mutation;
mod naive;
pub mod stream;
pub mod subagents;
mod taken;
