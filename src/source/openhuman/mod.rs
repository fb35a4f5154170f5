//! The OpenHuman workspace: transcripts in every generation of their format,
//! the run ledger, the sub-agents file.

mod locate;
pub mod run_ledger;
pub mod subagents;
