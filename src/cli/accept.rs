//! The command `accept`.

use session_import::ops;

use super::args::{Accept, Common, Format};
use super::exit::Exit;
use super::output::Output;
use super::run::failed;
use super::text;

/// Settles failures, and says which.
pub(crate) fn main(accept: &Accept, common: &Common, output: &Output) -> Exit {
    let format = accept.form.format();
    match ops::accept::accept(&accept.options(common)) {
        Ok(report) if format == Format::Json => output.json(Exit::Done, &report),
        Ok(report) => output.text(Exit::Done, |out| text::accept::write(&report, common, out)),
        Err(error) => failed(&error, format, None, output),
    }
}
