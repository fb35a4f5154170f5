//! The commands, one verb each.

pub mod run;
