//! Moves an AI assistant's old conversations into a TinyAgents store.

pub mod error;
pub mod fs;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod model;
pub mod ops;
pub(crate) mod plan;
pub mod report;
pub mod source;
pub mod store;

pub use error::{Error, Result};
