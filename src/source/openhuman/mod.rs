//! The OpenHuman workspace: transcripts in every generation of their format,
//! the run ledger, the sub-agents file.
