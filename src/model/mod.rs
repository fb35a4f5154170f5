//! What everything else talks about: keys, sessions, messages, diagnostics.
//!
//! Nothing in here does I/O, and nothing in here knows a format or a store.

pub mod check;
mod codes;
pub mod diagnostic;
pub mod interrupt;
pub mod key;
pub mod message;
pub mod plural;
pub mod remedy;
pub mod session;
