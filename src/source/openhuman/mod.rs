//! The OpenHuman workspace: transcripts in every generation of their format,
//! the run ledger, the sub-agents file.

mod markdown_blocks;
pub mod markdown_legacy;
pub mod markdown_rendered;
pub mod salvage;
