//! The command line's half of the program, and the only place that knows a
//! terminal.
//!
//! A command is one variant of [`args::Command`], one arm in [`main`], and one
//! module like [`run`] that calls the library and writes what it returns.

mod accept;
mod args;
mod duration;
mod exit;
mod explain;
mod generate;
mod log;
mod names;
mod output;
mod progress;
mod run;
mod signals;
mod status;
mod text;
mod undo;
mod verify;

use std::io::{self, Write as _};

use clap::Parser as _;

use self::args::{Arguments, Command};
use self::exit::Exit;
use self::names::visible;
use self::output::Output;

/// The command line, or how the program ends without a usable one.
pub(crate) fn arguments() -> Result<Arguments, Exit> {
    Arguments::try_parse().map_err(|error| {
        if !error.use_stderr() {
            error.exit();
        }
        // It quotes the arguments, and those may come from names of files.
        for line in error.render().to_string().lines() {
            let _ = writeln!(io::stderr(), "{}", visible(line));
        }
        Exit::Usage
    })
}

/// Does what the command line says.
pub(crate) fn main(arguments: &Arguments) -> Exit {
    let common = &arguments.common;
    let output = Output::new(common.color);
    let bars = log::start(common);
    if let Some(what) = arguments.generate {
        return output.text(Exit::Done, |out| generate::write(what, out));
    }
    if let Some(code) = arguments.explain {
        return output.text(Exit::Done, |out| explain::write(code, out));
    }
    match &arguments.command {
        Some(Command::Run(run)) => run::main(run, common, &output, bars),
        Some(Command::Status(status)) => status::main(status, common, &output),
        Some(Command::Verify(verify)) => verify::main(verify, common, &output, bars),
        Some(Command::Undo(undo)) => undo::main(undo, common, &output),
        Some(Command::Accept(accept)) => accept::main(accept, common, &output),
        None => args::no_command(),
    }
}
