//! The result of `status`, for people and as Markdown: what there is, what the
//! next run would do and why, and the command to type.

use std::borrow::Cow;
use std::io::{self, Write};

use indicatif::{BinaryBytes, HumanCount};
use session_import::model::diagnostic::Code;
use session_import::report::{MarkerStatus, NextStep, State, StatusReport};

use super::style::{HEADING, Styled};
use super::{count, next};
use crate::cli::args::Common;
use crate::cli::names::{columns, visible};

/// Writes the whole text.
pub(crate) fn write(report: &StatusReport, common: &Common, out: &mut dyn Write) -> io::Result<()> {
    super::general(&report.diagnostics, out)?;
    let facts = facts(report);
    let widest = facts.iter().map(|(name, _)| columns(name)).max();
    let widest = widest.unwrap_or(0);
    for (name, fact) in &facts {
        let gap = " ".repeat(widest.saturating_sub(columns(name)));
        writeln!(out, "{}{gap}  {}", Styled(HEADING, name), visible(fact))?;
    }
    writeln!(out)?;
    if report.next.is_empty() {
        writeln!(out, "No session was found.")?;
    } else {
        writeln!(out, "{}", Styled(HEADING, "What the next run would do"))?;
    }
    for step in &report.next {
        writeln!(out, "\n  {}", sentence(step))?;
        let more = step.sessions.saturating_sub(step.examples.len() as u64);
        for example in &step.examples {
            writeln!(out, "    {}", visible(example))?;
        }
        if more > 0 {
            writeln!(out, "    and {} more", HumanCount(more))?;
        }
    }
    match next_command(report, common) {
        Some((why, command)) => writeln!(out, "\nNext, {why}:\n  {}", Styled(HEADING, command)),
        None => Ok(()),
    }
}

/// Writes the same as Markdown, for a report or an issue.
pub(crate) fn markdown(report: &StatusReport, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "# session-import status\n")?;
    writeln!(out, "| | |\n| --- | --- |")?;
    for (name, fact) in facts(report) {
        writeln!(out, "| {name} | {} |", cell(&fact))?;
    }
    writeln!(out, "\n## What the next run would do\n")?;
    writeln!(out, "| sessions | state | why | bytes | for example |")?;
    writeln!(out, "| ---: | --- | --- | ---: | --- |")?;
    for step in &report.next {
        let examples = step.examples.iter().map(|example| cell(example));
        let (state, _) = words(step.state);
        writeln!(
            out,
            "| {} | {state} | {} | {} | {} |",
            step.sessions,
            cell(&step.reason),
            step.bytes,
            examples.collect::<Vec<_>>().join("<br>"),
        )?;
    }
    let warnings: Vec<_> = report
        .diagnostics
        .iter()
        .filter(|d| d.is_warning())
        .collect();
    if !warnings.is_empty() {
        writeln!(out, "\n## Warnings\n")?;
    }
    for warning in warnings {
        writeln!(out, "- `{}`: {}", warning.code, cell(&warning.message))?;
    }
    Ok(())
}

/// What may stand in a cell of a table, read as it stands.
fn cell(text: &str) -> String {
    let mut safe = String::new();
    for c in visible(text).chars() {
        if "\\`*_{}[]<>#|~&".contains(c) {
            safe.push('\\');
        }
        safe.push(c);
    }
    safe
}

fn facts(report: &StatusReport) -> Vec<(&'static str, Cow<'_, str>)> {
    let mut facts: Vec<(&str, Cow<'_, str>)> = vec![
        ("Workspace", report.workspace.as_str().into()),
        (
            "Store",
            match report.store_exists {
                true => report.store.as_str().into(),
                false => format!("{}, not there yet", report.store).into(),
            },
        ),
        ("Import", marker(report.marker.as_ref()).into()),
        ("Sessions", states(report).into()),
    ];
    if report.unreadable > 0 {
        let folders = count(report.unreadable, "folder");
        facts.push((
            "Unreadable",
            format!("{folders}, with sessions nobody knows of").into(),
        ));
    }
    if report.sessions > 0 {
        let sessions = count(report.sessions, "session");
        let messages = count(report.messages, "message");
        facts.push((
            "In the store",
            format!("{sessions}, {messages} as imported").into(),
        ));
        facts.push(("Kept beside them", residue(report).into()));
    }
    let bytes = &report.bytes;
    let sizes = format!(
        "{} in sources, {} of them to read; {} in the store's streams",
        BinaryBytes(bytes.sources),
        BinaryBytes(bytes.to_read),
        BinaryBytes(bytes.streams),
    );
    facts.push(("Bytes", sizes.into()));
    facts
}

fn marker(marker: Option<&MarkerStatus>) -> String {
    let Some(marker) = marker else {
        return "none is complete".to_owned();
    };
    let by = marker.tool.as_deref().unwrap_or("another tool");
    let at = &marker.imported_at;
    if at.is_empty() {
        return "its marker is damaged".to_owned();
    }
    match (marker.is_clean, marker.is_ours) {
        (true, _) => format!("complete on {at}, by {by}"),
        (false, true) => format!("complete on {at}, by {by}, whose reading rules are older"),
        (false, false) => format!("complete on {at}, by {by}; that does not count here"),
    }
}

fn states(report: &StatusReport) -> String {
    let states = &report.states;
    let counts = [
        (states.up_to_date, State::UpToDate),
        (states.new, State::New),
        (states.changed, State::Changed),
        (states.outdated, State::Outdated),
        (states.earlier_importer, State::EarlierImporter),
        (states.to_look_at, State::ToLookAt),
        (states.failed, State::Failed),
        (states.accepted, State::Accepted),
        (states.ahead, State::Ahead),
        (states.source_gone, State::SourceGone),
    ];
    let told = counts.iter().filter(|(number, _)| *number > 0);
    let told: Vec<_> = told
        .map(|(number, state)| format!("{} {}", HumanCount(*number), words(*state).0))
        .collect();
    match told.is_empty() {
        true => "none".to_owned(),
        false => told.join(", "),
    }
}

fn residue(report: &StatusReport) -> String {
    let lines = &report.lines;
    let kinds = [
        (lines.rejected, "that the application cannot read"),
        (lines.interrupted, "of interrupted answers"),
        (lines.compactions, "of compactions"),
        (lines.other, "of other kinds"),
    ];
    let told = kinds.iter().filter(|(number, _)| *number > 0);
    let told: Vec<_> = told
        .map(|(number, what)| format!("{} {what}", HumanCount(*number)))
        .collect();
    let all = format!("{} of their sources", count(lines.residue, "line"));
    let all = match told.is_empty() {
        true => all,
        false => format!("{all}: {}", told.join(", ")),
    };
    match report.dropped {
        true => format!("{all}; and what sources had once, not counted"),
        false => all,
    }
}

/// A state in words, and what a run does about it.
fn words(state: State) -> (&'static str, &'static str) {
    match state {
        State::Failed => ("failed", "try again"),
        State::New => ("new", "import"),
        State::Changed => ("changed", "import anew"),
        State::Outdated => ("outdated", "import anew"),
        State::EarlierImporter => ("of the earlier importer", "import anew"),
        State::ToLookAt => ("to be looked at", "look at"),
        State::UpToDate => ("up to date", "skip"),
        State::Ahead => ("further on in the store", "skip"),
        State::Accepted => ("accepted", "skip"),
        State::SourceGone => ("without a source", "leave"),
    }
}

fn sentence(step: &NextStep) -> String {
    let (_, verb) = words(step.state);
    let sessions = count(step.sessions, "session");
    let reason = visible(&step.reason);
    match step.state.is_work() {
        true => format!("{verb} {sessions} ({}): {reason}", BinaryBytes(step.bytes)),
        false => format!("{verb} {sessions}: {reason}"),
    }
}

fn next_command(report: &StatusReport, common: &Common) -> Option<(&'static str, String)> {
    let place = next::place(common);
    let line = |words: &[&str]| {
        let words = words.iter().map(|word| (*word).to_owned());
        let all = std::iter::once("session-import".to_owned()).chain(words);
        all.chain(place.iter().cloned())
            .collect::<Vec<_>>()
            .join(" ")
    };
    // A plain run sees a damaged entry only where something else has changed.
    let mut diagnostics = report.diagnostics.iter();
    let is_damaged = diagnostics.any(|d| d.code == Code::EntryUnusable);
    if is_damaged && report.states.outdated > 0 {
        return Some(("to mend and import", line(&["run", "--checksum"])));
    }
    let is_work = |step: &&NextStep| step.state.is_work();
    let mut work = report.next.iter().filter(is_work).peekable();
    if work.peek().is_none() {
        let is_open = !report.nothing_to_do && report.scanned > 0;
        return is_open.then(|| ("to complete the import", line(&["run"])));
    }
    if work.all(|step| step.state == State::Failed) {
        let code = report.next.first().map(|step| step.reason.as_str())?;
        return Some((
            "to see what to do",
            format!("session-import --explain {code}"),
        ));
    }
    match report.store_exists {
        true => Some(("to import", line(&["run"]))),
        false => Some(("to see the whole plan", line(&["run", "--dry-run"]))),
    }
}
