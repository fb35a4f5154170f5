//! `--explain CODE`.

use std::io::{self, Write};

use anstyle::Style;
use session_import::model::diagnostic::{Code, Severity};

/// Writes what the code means and what to do.
pub(crate) fn write(code: Code, out: &mut dyn Write) -> io::Result<()> {
    let bold = Style::new().bold();
    let severity = match code.severity() {
        Severity::Info => "note",
        Severity::Warning => "warning",
        Severity::Error => "error",
    };
    writeln!(out, "{bold}{code}{bold:#} ({severity})\n")?;
    writeln!(out, "{}\n", code.summary())?;
    writeln!(out, "{}", code.explanation())
}
