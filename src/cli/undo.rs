//! The command `undo`.

use session_import::ops;

use super::args::{Common, Format, Undo};
use super::exit::Exit;
use super::output::Output;
use super::run::failed;
use super::signals;
use super::text;

/// Takes an import back, and says what became of it.
pub(crate) fn main(undo: &Undo, common: &Common, output: &Output) -> Exit {
    let options = undo.options(common);
    let caught = signals::listen(options.interrupt.clone());
    let result = ops::undo::undo(&options);
    let signal = caught.signal();
    let format = undo.form.format();
    let report = match result {
        Ok(report) => report,
        Err(error) => return failed(&error, format, signal, output),
    };
    let exit = Exit::of_result(report.is_clean(), signal);
    if format == Format::Json {
        return output.json(exit, &report);
    }
    output.text(exit, |out| text::undo::write(&report, undo, common, out))
}
