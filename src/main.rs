//! The command `session-import`: a thin program on the library of that name.
//!
//! Everything that knows a terminal lies in [`cli`]; the work is done by
//! `session_import::ops`.

mod cli;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    cli::main(&cli::Arguments::parse()).into()
}
