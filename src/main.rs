//! The command `session-import`: a thin program on the library of that name.
//!
//! Everything that knows a terminal lies in [`cli`]; the work is done by
//! `session_import::ops`.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    let exit = cli::arguments().map(|arguments| cli::main(&arguments));
    exit.unwrap_or_else(|exit| exit).into()
}
