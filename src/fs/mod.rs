//! The only rename, flush and stat of the store.
pub mod stat;
