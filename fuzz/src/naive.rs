//! The second, naive reader of the main package's tests.

#![allow(missing_docs, unreachable_pub, reason = "the tests' own")]

#[path = "../../tests/naive/mod.rs"]
mod reader;

pub(crate) use reader::*;
