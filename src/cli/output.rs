//! The result on stdout.
//!
//! A reader that has gone away (`| head`) is no failure: what was to be done
//! has been done, and the exit code says how. A full disk is one, since the
//! result that was asked for is nowhere.

use std::io::{self, BufWriter, IsTerminal as _, Write};

use anstream::{AutoStream, ColorChoice};
use serde::Serialize;

use super::args::When;
use super::exit::Exit;

/// Where a result goes.
pub(crate) struct Output {
    color: ColorChoice,
}

impl Output {
    /// stdout, with colour as the command line and the terminal want it.
    pub(crate) fn new(color: When) -> Self {
        let color = match color {
            When::Auto => AutoStream::choice(&io::stdout()),
            When::Always => ColorChoice::AlwaysAnsi,
            When::Never => ColorChoice::Never,
        };
        Self { color }
    }

    /// Columns of the terminal, if stdout is one.
    pub(crate) fn width(&self) -> Option<usize> {
        let stdout = io::stdout();
        if !stdout.is_terminal() {
            return None;
        }
        terminal_size::terminal_size_of(stdout).map(|(width, _)| width.0.into())
    }

    /// Writes text, which may hold styles. Returns how the command then ends.
    pub(crate) fn text(
        &self,
        exit: Exit,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Exit {
        let stream = AutoStream::new(io::stdout().lock(), self.color);
        let mut stream = BufWriter::new(stream);
        delivered(exit, write(&mut stream).and_then(|()| stream.flush()))
    }

    /// Writes one JSON document. Returns how the command then ends.
    pub(crate) fn json(&self, exit: Exit, document: &impl Serialize) -> Exit {
        let mut stdout = BufWriter::new(io::stdout().lock());
        let written = serde_json::to_writer_pretty(&mut stdout, document)
            .map_err(io::Error::from)
            .and_then(|()| writeln!(stdout))
            .and_then(|()| stdout.flush());
        delivered(exit, written)
    }
}

fn delivered(exit: Exit, written: io::Result<()>) -> Exit {
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            tracing::error!("cannot write the result to stdout: {error}");
            if exit == Exit::Done {
                Exit::CouldNotRun
            } else {
                exit
            }
        }
        _ => exit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_reader_that_has_gone_is_no_failure() {
        let gone = || Err(io::ErrorKind::BrokenPipe.into());
        let full = || Err(io::ErrorKind::StorageFull.into());
        assert_eq!(delivered(Exit::Done, gone()), Exit::Done);
        assert_eq!(delivered(Exit::Incomplete, gone()), Exit::Incomplete);
        assert_eq!(delivered(Exit::Done, full()), Exit::CouldNotRun);
        assert_eq!(delivered(Exit::Incomplete, full()), Exit::Incomplete);
    }
}
