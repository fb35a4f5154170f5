//! The only rename, flush and stat of the store.
//!
//! Everything that changes a file of the store goes through here: [`dir`]
//! opens folders without following links, [`atomic`] makes files that appear
//! whole or not at all, [`sync`] makes them durable, [`stat`] says what a file
//! looked like, [`open`] opens nothing but regular files, and [`fault`] makes each of these steps fail in tests.

pub mod atomic;
pub mod dir;
pub mod fault;
pub mod open;
pub mod stat;
pub mod sync;

pub use atomic::Temp;
pub use dir::{Dir, Owner};
pub use open::{open_regular, read_regular};
pub use stat::Stat;
pub use sync::Flusher;
