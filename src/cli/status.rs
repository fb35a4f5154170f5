//! The command `status`.

use session_import::ops;

use super::args::{Common, Format, Status, StatusFormat};
use super::exit::Exit;
use super::output::Output;
use super::run::failed;
use super::text;

/// Says how workspace and store stand to each other. Whatever there is to be
/// said, having looked is all that was asked for: the exit code is 0.
pub(crate) fn main(status: &Status, common: &Common, output: &Output) -> Exit {
    let format = status.format();
    let report = match ops::status::status(&status.options(common)) {
        Ok(report) => report,
        Err(error) => {
            let of_error = match format {
                StatusFormat::Json => Format::Json,
                StatusFormat::Text | StatusFormat::Markdown => Format::Text,
            };
            return failed(&error, of_error, None, output);
        }
    };
    match format {
        StatusFormat::Json => output.json(Exit::Done, &report),
        StatusFormat::Text => {
            output.text(Exit::Done, |out| text::status::write(&report, common, out))
        }
        StatusFormat::Markdown => {
            output.text(Exit::Done, |out| text::status::markdown(&report, out))
        }
    }
}
