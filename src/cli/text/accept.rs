//! The result of `accept`, for people.

use std::io::{self, Write};

use session_import::report::AcceptReport;

use super::style::{HEADING, ODD, Styled};
use super::{count, next};
use crate::cli::args::Common;
use crate::cli::names::visible;

/// Writes the whole text.
pub(crate) fn write(report: &AcceptReport, common: &Common, out: &mut dyn Write) -> io::Result<()> {
    for diagnostic in report.diagnostics.iter().filter(|d| d.is_warning()) {
        let code = Styled(ODD, diagnostic.code);
        writeln!(out, "{code}  {}\n", visible(&diagnostic.message))?;
    }
    let settled = count(report.accepted, "failed session");
    let heading = Styled(HEADING, "Accepted");
    writeln!(
        out,
        "{heading}: {settled}, for the reason: {}\n",
        visible(&report.reason)
    )?;
    for item in &report.items {
        writeln!(out, "  {}  {}", item.code, visible(&item.source))?;
        let note = match (item.keeps_record, &item.sha256) {
            (true, _) => "what an earlier import took from it stays in the store",
            (false, Some(_)) => continue,
            (false, None) => "it cannot be read: once it can be, it is tried again",
        };
        writeln!(out, "      {note}")?;
    }
    let left = match report.still_failed {
        0 => "No other session has failed.".to_owned(),
        left => format!("Still failed: {}.", count(left, "session")),
    };
    writeln!(out, "\n{left} A source that changes is tried again.")?;
    let command = ["session-import".to_owned(), "run".to_owned()];
    let command: Vec<_> = command.into_iter().chain(next::place(common)).collect();
    let command = Styled(HEADING, command.join(" "));
    writeln!(out, "\nNext, to complete the import:\n  {command}")
}
