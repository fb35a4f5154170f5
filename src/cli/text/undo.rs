//! The result of `undo`, for people: what is still there and why, then totals,
//! then the next command to type.

use std::collections::BTreeMap;
use std::io::{self, Write};

use indicatif::{BinaryBytes, HumanCount};
use session_import::model::diagnostic::Code;
use session_import::report::{UndoAction, UndoItem, UndoReport};

use super::style::{BAD, HEADING, ODD, Styled};
use super::{count, next};
use crate::cli::args::{Common, Undo};
use crate::cli::names::visible;

/// Writes the whole text.
pub(crate) fn write(
    report: &UndoReport,
    undo: &Undo,
    common: &Common,
    out: &mut dyn Write,
) -> io::Result<()> {
    if report.dry_run {
        planned(report, out)?;
    }
    let failed = match report.dry_run {
        true => "Could not be looked at",
        false => "Not removed",
    };
    still_there(report, UndoAction::Failed, Styled(BAD, failed), out)?;
    still_there(report, UndoAction::Kept, Styled(ODD, "Kept"), out)?;
    super::general(&report.diagnostics, out)?;
    totals(report, out)?;
    match next_command(report, undo, common) {
        Some((why, command)) => writeln!(out, "\nNext, {why}:\n  {}", Styled(HEADING, command)),
        None => Ok(()),
    }
}

fn planned(report: &UndoReport, out: &mut dyn Write) -> io::Result<()> {
    let planned = report.items.iter();
    let planned: Vec<_> = planned
        .filter(|item| item.action == UndoAction::WouldRemove)
        .collect();
    if planned.is_empty() {
        return Ok(());
    }
    writeln!(out, "{}", Styled(HEADING, "Would be removed"))?;
    for item in planned {
        let key = visible(&item.session_key);
        let what = match item.stream {
            Some(_) => count(item.messages, "message"),
            None => "an accepted failure".to_owned(),
        };
        writeln!(out, "  {key}  {what}")?;
    }
    writeln!(out)
}

/// The sessions of which the same is to be said, by why.
fn still_there(
    report: &UndoReport,
    action: UndoAction,
    heading: Styled<&str>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut groups: BTreeMap<Code, Vec<(&UndoItem, &str)>> = BTreeMap::new();
    let mut number = 0;
    for item in report.items.iter().filter(|item| item.action == action) {
        number += 1;
        for diagnostic in &item.diagnostics {
            let group = groups.entry(diagnostic.code).or_default();
            group.push((item, &diagnostic.message));
        }
    }
    if number == 0 {
        return Ok(());
    }
    writeln!(out, "{heading}: {}", count(number, "session"))?;
    for (code, items) in groups {
        writeln!(out, "\n  {}  {}", Styled(HEADING, code), code.summary())?;
        // One signal leaves thousands, each for the same reason.
        if code == Code::Interrupted {
            let number = items.len() as u64;
            writeln!(out, "    {} not reached", count(number, "session"))?;
            continue;
        }
        for (item, message) in items {
            writeln!(
                out,
                "    {}: {}",
                visible(&item.session_key),
                visible(message)
            )?;
        }
    }
    writeln!(out)
}

fn totals(report: &UndoReport, out: &mut dyn Write) -> io::Result<()> {
    let store = visible(&report.store);
    if report.scanned == 0 && report.failures_forgotten == 0 {
        return writeln!(out, "Nothing to undo in {store}");
    }
    let (removed, forgotten) = match report.dry_run {
        true => ("would be removed", "would be forgotten"),
        false => ("removed", "forgotten"),
    };
    let (settled, sessions): (Vec<_>, Vec<_>) =
        report.items.iter().partition(|item| item.stream.is_none());
    if !sessions.is_empty() {
        let number = Styled(HEADING, count(sessions.len() as u64, "imported session"));
        writeln!(out, "{number}: {}.", outcomes(&sessions, removed))?;
        let messages = count(report.messages, "message");
        writeln!(out, "{messages}, {} {removed}.", BinaryBytes(report.bytes))?;
    }
    if !settled.is_empty() {
        // Nothing was ever imported of these.
        let number = Styled(HEADING, count(settled.len() as u64, "accepted failure"));
        let outcomes = outcomes(&settled, forgotten);
        writeln!(out, "{number}: {outcomes}. The next run tries again.")?;
    }
    if report.failures_forgotten > 0 {
        let failures = count(report.failures_forgotten, "recorded failure");
        writeln!(out, "{failures} {forgotten}.")?;
    }
    if report.dry_run {
        writeln!(out, "Nothing was written.")?;
    } else if report.undone_whole {
        writeln!(out, "Nothing of any import is left.")?;
    }
    writeln!(out, "Store: {store}")
}

/// `2 removed, 1 kept`.
fn outcomes(items: &[&UndoItem], gone: &str) -> String {
    let of = |action| items.iter().filter(|item| item.action == action).count() as u64;
    let number = of(UndoAction::Removed) + of(UndoAction::WouldRemove);
    let others = [
        (of(UndoAction::Kept), "kept"),
        (of(UndoAction::Failed), "not removed"),
    ];
    let others = others.into_iter().filter(|(number, _)| *number > 0);
    let all = [(number, gone)].into_iter().chain(others);
    let told: Vec<_> = all
        .map(|(number, what)| format!("{} {what}", HumanCount(number)))
        .collect();
    told.join(", ")
}

fn next_command(
    report: &UndoReport,
    undo: &Undo,
    common: &Common,
) -> Option<(&'static str, String)> {
    let again = |more: &[&str]| {
        let mut words = vec!["session-import".to_owned(), "undo".to_owned()];
        words.extend(next::place(common));
        for glob in &undo.selection.only {
            words.extend(["--only".to_owned(), next::quoted(glob)]);
        }
        words.extend(more.iter().map(|word| (*word).to_owned()));
        words.join(" ")
    };
    let overwrite: &[&str] = match undo.overwrite {
        true => &["--overwrite"],
        false => &[],
    };
    if report.failed > 0 {
        return Some(("to go on from here", again(overwrite)));
    }
    if report.dry_run && report.removed + report.failures_forgotten > 0 {
        return Some(("to do it", again(overwrite)));
    }
    let kept = report
        .items
        .iter()
        .filter(|item| item.action == UndoAction::Kept);
    let code = kept
        .flat_map(|item| &item.diagnostics)
        .map(|d| d.code)
        .min()?;
    Some((
        "to see what to do",
        format!("session-import --explain {code}"),
    ))
}
