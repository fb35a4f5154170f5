//! The command `verify`.

use std::io::{self, IsTerminal as _};

use indicatif::MultiProgress;
use session_import::ops;

use super::args::{Common, Format, Verify};
use super::exit::Exit;
use super::output::Output;
use super::progress::Meter;
use super::run::failed;
use super::signals;
use super::text;

/// Compares, and says what was found.
pub(crate) fn main(verify: &Verify, common: &Common, output: &Output, bars: MultiProgress) -> Exit {
    let options = verify.options(common);
    let caught = signals::listen(options.interrupt.clone());
    let mut meter = Meter::new(common, io::stderr().is_terminal(), bars);
    let result = ops::verify::verify(&options, &mut meter);
    drop(meter);

    let signal = caught.signal();
    let format = verify.form.format();
    let report = match result {
        Ok(report) => report,
        Err(error) => return failed(&error, format, signal, output),
    };
    let is_clean = report.clean && (!verify.strict || report.notices.is_empty());
    let exit = Exit::of_result(is_clean, signal);
    if format == Format::Json {
        if !report.clean {
            tracing::error!("findings: {}", report.findings.len());
        }
        return output.json(exit, &report);
    }
    output.text(exit, |out| {
        text::verify::write(&report, verify, common, out)
    })
}
