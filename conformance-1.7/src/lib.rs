//! The checks of `../conformance` with `tinyagents` 1.7.1; see there.

#[macro_use]
#[path = "../../conformance/src/adapter.rs"]
mod adapter;
#[path = "../../conformance/src/check.rs"]
mod check;
#[path = "../../conformance/src/command.rs"]
pub mod command;
#[path = "../../conformance/src/copy.rs"]
mod copy;
#[path = "../../conformance/src/descriptor.rs"]
pub mod descriptor;

pub use adapter::{Opened, Version};
pub use check::{Counts, Failure, Outcome, check_store};
pub use copy::copy_store;

adapter!(
    /// Remembers the next offset of a stream in memory: one that starts to
    /// count wrongly goes on wrongly.
    V1_7, tinyagents_1_7, "1.7.1"
);

/// The version that this crate holds.
pub const VERSIONS: &[Version] = &[V1_7::VERSION];
