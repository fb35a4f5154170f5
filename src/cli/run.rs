//! The command `run`.

use std::io::{self, IsTerminal as _};

use indicatif::MultiProgress;
use session_import::Error;
use session_import::model::diagnostic::Code;
use session_import::model::plural::count;
use session_import::ops;
use session_import::report::{ErrorReport, RunReport};

use super::args::{Common, Format, Run};
use super::exit::Exit;
use super::output::Output;
use super::progress::Meter;
use super::signals::{self, Signal};
use super::text::{self, Context, Invocation};

/// Imports, and says what became of it.
pub(crate) fn main(run: &Run, common: &Common, output: &Output, bars: MultiProgress) -> Exit {
    let options = run.options(common);
    let caught = signals::listen(options.interrupt.clone());
    let mut meter = Meter::new(common, io::stderr().is_terminal(), bars);
    let result = ops::run::run(&options, &mut meter);
    drop(meter);

    let signal = caught.signal();
    match result {
        Ok(report) => finished(&report, run, common, signal, output),
        Err(error) => failed(&error, run.form.format(), signal, output),
    }
}

fn finished(
    report: &RunReport,
    run: &Run,
    common: &Common,
    signal: Option<Signal>,
    output: &Output,
) -> Exit {
    let exit = Exit::of_run(report, run.strict, signal);
    if run.form.format() == Format::Json {
        if exit == Exit::Incomplete {
            tracing::error!(
                "not everything is right: {} of {} failed, {} unreadable, {} rejected; the report \
                 names each",
                report.failed,
                count(report.scanned, "session"),
                count(report.unreadable, "folder"),
                count(report.rejected, "line")
            );
        }
        return output.json(exit, report);
    }
    let context = Context {
        width: output.width(),
        verbose: common.verbose > 0,
        strict: run.strict,
        invocation: &Invocation::new(common, run),
    };
    output.text(exit, |out| text::run(report, &context, out))
}

/// The command as a whole could not be done.
pub(super) fn failed(
    error: &Error,
    format: Format,
    signal: Option<Signal>,
    output: &Output,
) -> Exit {
    let exit = Exit::of_error(error, signal);
    tracing::error!("{error}");
    if format == Format::Json {
        let report = ErrorReport::new(code(error), error.to_string(), exit.code());
        return output.json(exit, &report);
    }
    exit
}

/// An item's I/O error is about its source; what ends a command may be about
/// any file, and the message names it.
fn code(error: &Error) -> Code {
    match error {
        Error::Io { .. } => Code::System,
        other => other.code(),
    }
}
