//! `session-import`: see the library.
fn main() {}
