//! The OpenHuman workspace: transcripts in every generation of their format,
//! the run ledger, the sub-agents file.

pub(crate) mod header;
pub(crate) mod line;
pub(crate) mod record;
pub(crate) mod replay;
pub(crate) mod salvage;
pub(crate) mod values;
