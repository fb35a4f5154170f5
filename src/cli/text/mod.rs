//! The result of a run, for people: what is not imported and why, then the
//! warnings, worst first, then totals, then the next command to type
//! (`behaviour.md`, run). A dry run's plan goes before all that.

pub(crate) mod accept;
mod groups;
mod next;
mod plan;
pub(crate) mod status;
mod style;
pub(crate) mod undo;
pub(crate) mod verify;

use std::io::{self, Write};

use indicatif::{BinaryBytes, HumanCount};
use session_import::model::diagnostic::{Code, Diagnostic, Severity};
use session_import::model::plural::plural;
use session_import::report::{Action, ItemReport, RunReport};

use self::groups::Group;
pub(crate) use self::next::Invocation;
use self::style::{BAD, HEADING, ODD, Styled};
use super::names::visible;

/// What the text depends on besides the report.
pub(crate) struct Context<'a> {
    /// Columns of the terminal; without one, nothing is shortened.
    pub(crate) width: Option<usize>,
    /// Also what is only good to know.
    pub(crate) verbose: bool,
    /// `--strict` was given.
    pub(crate) strict: bool,
    /// The command line, for the next one.
    pub(crate) invocation: &'a Invocation,
}

/// Writes the whole text.
pub(crate) fn run(
    report: &RunReport,
    context: &Context<'_>,
    out: &mut dyn Write,
) -> io::Result<()> {
    if report.dry_run {
        plan::table(report, context.width, out)?;
    }
    not_imported(report, out)?;
    warnings(report, out)?;
    if context.verbose {
        notes(report, out)?;
    }
    totals(report, context, out)?;
    next::write(report, context, out)
}

/// Whether this says why something is not imported.
fn is_reason(item: Option<&ItemReport>, diagnostic: &Diagnostic) -> bool {
    match item {
        Some(item) => item.action == Action::Failed && diagnostic.severity == Severity::Error,
        None => diagnostic.code == Code::UnreadableFolder,
    }
}

fn not_imported(report: &RunReport, out: &mut dyn Write) -> io::Result<()> {
    if report.failed == 0 && report.unreadable == 0 {
        return Ok(());
    }
    let mut what = Vec::new();
    if report.failed > 0 {
        let (failed, scanned) = (HumanCount(report.failed), HumanCount(report.scanned));
        let sessions = plural(report.scanned, "session");
        what.push(format!("{failed} of {scanned} {sessions}"));
    }
    if report.unreadable > 0 {
        what.push(format!(
            "{} that cannot be read",
            count(report.unreadable, "folder")
        ));
    }
    let heading = if report.dry_run {
        "Would not be imported"
    } else {
        "Not imported"
    };
    writeln!(out, "{}: {}", Styled(BAD, heading), what.join(", and "))?;
    for group in groups::by_code(report, is_reason) {
        write!(
            out,
            "\n  {}  {}\n",
            Styled(HEADING, group.code),
            group.code.summary()
        )?;
        // One signal leaves thousands, each for the same reason.
        if group.code == Code::Interrupted {
            writeln!(
                out,
                "    {} not reached",
                count(group.occurrences, "session")
            )?;
        } else {
            group
                .places
                .iter()
                .try_for_each(|place| writeln!(out, "    {place}"))?;
        }
    }
    for item in groups::failed_without_reason(report) {
        writeln!(
            out,
            "\n  {}: {}",
            visible(&item.source),
            visible(&item.reason)
        )?;
    }
    writeln!(out)
}

fn warnings(report: &RunReport, out: &mut dyn Write) -> io::Result<()> {
    let groups = groups::by_code(report, |item, diagnostic| {
        diagnostic.is_warning() && !is_reason(item, diagnostic)
    });
    grouped_warnings(&groups, out)
}

/// Warnings of a command about no single session, as those of a run.
fn general(diagnostics: &[Diagnostic], out: &mut dyn Write) -> io::Result<()> {
    let groups = groups::general(diagnostics, Diagnostic::is_warning);
    grouped_warnings(&groups, out)
}

fn grouped_warnings(groups: &[Group<'_>], out: &mut dyn Write) -> io::Result<()> {
    if groups.is_empty() {
        return Ok(());
    }
    writeln!(out, "{}", Styled(ODD, "Warnings"))?;
    for group in groups {
        heading(group, out)?;
        if let Some(place) = group.places.first() {
            let example = if group.occurrences > 1 {
                "for example "
            } else {
                ""
            };
            writeln!(out, "    {example}{place}")?;
        }
    }
    writeln!(out)
}

fn notes(report: &RunReport, out: &mut dyn Write) -> io::Result<()> {
    let groups = groups::by_code(report, |_, diagnostic| !diagnostic.is_warning());
    if groups.is_empty() {
        return Ok(());
    }
    writeln!(out, "{}", Styled(HEADING, "Notes"))?;
    for group in &groups {
        heading(group, out)?;
        group
            .places
            .iter()
            .try_for_each(|place| writeln!(out, "    {place}"))?;
    }
    writeln!(out)
}

fn heading(group: &Group<'_>, out: &mut dyn Write) -> io::Result<()> {
    let times = HumanCount(group.occurrences);
    let code = Styled(HEADING, group.code);
    write!(out, "\n  {times} × {code}  {}\n", group.code.summary())
}

fn totals(report: &RunReport, context: &Context<'_>, out: &mut dyn Write) -> io::Result<()> {
    if report.scanned == 0 {
        return nothing_found(report, out);
    }
    if report.already_done {
        let all = count(report.scanned, "session");
        writeln!(out, "Nothing to do: {all}, none of them new or changed.")?;
    } else {
        let (imported, failed) = match report.dry_run {
            true => ("would be imported", "would fail"),
            false => ("imported", "failed"),
        };
        writeln!(
            out,
            "{}: {} {imported}, {} skipped{}, {} {failed}.",
            Styled(HEADING, count(report.scanned, "session")),
            HumanCount(report.imported),
            HumanCount(report.skipped),
            unusual_skips(report),
            HumanCount(report.failed),
        )?;
    }
    written(report, out)?;
    rejected(report, context, out)?;
    writeln!(out, "Store: {}", visible(&report.store))
}

fn nothing_found(report: &RunReport, out: &mut dyn Write) -> io::Result<()> {
    let told = report
        .diagnostics
        .iter()
        .find(|d| d.code == Code::NothingFound);
    match told {
        Some(told) => writeln!(out, "Nothing to import: {}", visible(&told.message)),
        None => writeln!(out, "Nothing to import in {}", visible(&report.workspace)),
    }
}

/// Skipped for another reason than that nothing changed.
fn unusual_skips(report: &RunReport) -> String {
    let of = |action| {
        report
            .items
            .iter()
            .filter(|item| item.action == action)
            .count()
    };
    let kinds = [
        (of(Action::SkippedStoreAhead), "further on in the store"),
        (of(Action::SkippedAccepted), "accepted"),
    ];
    let told: Vec<_> = kinds
        .iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, what)| format!("{number} {what}"))
        .collect();
    match told.is_empty() {
        true => String::new(),
        false => format!(" ({})", told.join(", ")),
    }
}

fn written(report: &RunReport, out: &mut dyn Write) -> io::Result<()> {
    if !report.dry_run {
        return match report.already_done {
            true => Ok(()),
            false => writeln!(
                out,
                "{} written.",
                count(report.messages_written, "message")
            ),
        };
    }
    let planned = report
        .items
        .iter()
        .filter(|item| item.action == Action::WouldImport);
    let messages = planned.map(|item| item.messages).sum();
    writeln!(
        out,
        "Nothing was written. A run would write {}, about {}.",
        count(messages, "message"),
        BinaryBytes(report.bytes),
    )
}

fn rejected(report: &RunReport, context: &Context<'_>, out: &mut dyn Write) -> io::Result<()> {
    if report.rejected > 0 {
        let lines = count(report.rejected, "line");
        let strict = match context.strict {
            true => " With --strict, that makes the exit code 3.",
            false => "",
        };
        writeln!(
            out,
            "{lines} that the application cannot read, kept beside the messages.{strict}"
        )?;
    }
    let back: Vec<_> = [
        (report.salvageable.lines, "line"),
        (report.salvageable.sessions, "failed session"),
    ]
    .into_iter()
    .filter(|(number, _)| *number > 0)
    .map(|(number, what)| count(number, what))
    .collect();
    match back.is_empty() {
        true => Ok(()),
        false => writeln!(out, "--salvage would bring back {}.", back.join(" and ")),
    }
}

/// `1 line`, `2,000 lines`.
fn count(number: u64, what: &str) -> String {
    format!("{} {}", HumanCount(number), plural(number, what))
}

#[cfg(test)]
mod tests;
