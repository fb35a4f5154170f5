//! Reads imported stores back with the programs that they are written for.
//!
//! The judge of a store is not our own reader but the one that the live
//! application uses: `tinyagents`, in every version that is in the field. This
//! crate opens a store with the real thing, reads all of it, and writes on in
//! it as the application would ([`check_store`]); and it plays the application
//! beside a running import ([`live`]).
//!
//! ```text
//! adapter     one face for all versions of the crate (their traits differ)
//! descriptor  the application's decoder of a session's descriptor
//! check       the check itself, for every version
//! command     the program `check-store`
//! live        the application, as a writer beside the importer
//! ```

#[macro_use]
mod adapter;
mod check;
pub mod command;
mod copy;
pub mod descriptor;
pub mod live;

pub use adapter::{Opened, Version};
pub use check::{Counts, Failure, Outcome, check_store};
pub use copy::copy_store;

adapter!(
    /// The oldest version that must be able to read what we write.
    V1_5, tinyagents_1_5, "1.5.0"
);
adapter!(
    /// The newest version, and the one that the live application uses.
    V2, tinyagents_2, "2.1.1"
);

/// The versions that this crate holds, oldest first.
pub const VERSIONS: &[Version] = &[V1_5::VERSION, V2::VERSION];
