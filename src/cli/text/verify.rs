//! The result of `verify`, for people: the findings, then the notices by what
//! they say, then totals, then the next command to type.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use indicatif::HumanCount;
use session_import::model::check::Check;
use session_import::model::remedy::Remedy;
use session_import::report::{Difference, Finding, VerifyReport};

use super::style::{BAD, HEADING, ODD, Styled};
use super::{count, next};
use crate::cli::args::{Common, Verify};
use crate::cli::names::visible;

type Groups<'a> = BTreeMap<Check, Vec<&'a Finding>>;

/// Writes the whole text.
pub(crate) fn write(
    report: &VerifyReport,
    verify: &Verify,
    common: &Common,
    out: &mut dyn Write,
) -> io::Result<()> {
    findings(report, out)?;
    notices(report, common.verbose > 0, out)?;
    super::general(&report.diagnostics, out)?;
    totals(report, out)?;
    match next_command(report, verify, common) {
        Some((why, command)) => writeln!(out, "\nNext, {why}:\n  {}", Styled(HEADING, command)),
        None => Ok(()),
    }
}

fn grouped(all: &[Finding]) -> Groups<'_> {
    let mut groups = Groups::new();
    for finding in all {
        groups.entry(finding.code).or_default().push(finding);
    }
    groups
}

fn findings(report: &VerifyReport, out: &mut dyn Write) -> io::Result<()> {
    if report.findings.is_empty() {
        return Ok(());
    }
    let number = count(report.findings.len() as u64, "finding");
    writeln!(out, "{}: {number}", Styled(BAD, "Not as it should be"))?;
    for (code, group) in grouped(&report.findings) {
        write!(out, "\n  {}  {}\n", Styled(HEADING, code), code.summary())?;
        for finding in &group {
            place("", finding, out)?;
            finding
                .differences
                .iter()
                .try_for_each(|difference| shown(difference, out))?;
        }
        let helps: BTreeSet<Remedy> = group.iter().filter_map(|found| found.remedy).collect();
        // A run is the next command.
        for remedy in helps.iter().filter(|remedy| **remedy != Remedy::Checksum) {
            writeln!(out, "      what helps: {}", remedy.words())?;
        }
    }
    writeln!(out)
}

fn notices(report: &VerifyReport, all: bool, out: &mut dyn Write) -> io::Result<()> {
    if report.notices.is_empty() {
        return Ok(());
    }
    writeln!(out, "{}", Styled(ODD, "Notices"))?;
    for (code, group) in grouped(&report.notices) {
        let times = HumanCount(group.len() as u64);
        write!(
            out,
            "\n  {times} × {}  {}\n",
            Styled(HEADING, code),
            code.summary()
        )?;
        let told = if all { group.len() } else { 1 };
        let example = if group.len() > told {
            "for example "
        } else {
            ""
        };
        for finding in group.into_iter().take(told) {
            place(example, finding, out)?;
        }
    }
    writeln!(out)
}

fn place(before: &str, finding: &Finding, out: &mut dyn Write) -> io::Result<()> {
    let Finding {
        source,
        session_key,
        file,
        message,
        ..
    } = finding;
    let about = source.as_ref().or(session_key.as_ref()).or(file.as_ref());
    match about {
        Some(about) => writeln!(out, "    {before}{}: {}", visible(about), visible(message)),
        None => writeln!(out, "    {before}{}", visible(message)),
    }
}

fn shown(difference: &Difference, out: &mut dyn Write) -> io::Result<()> {
    let Difference {
        place,
        field,
        words,
        store,
        given,
    } = difference;
    writeln!(out, "      {}, {}: {words}", visible(place), visible(field))?;
    for (whose, text) in [("store ", store), ("source", given)] {
        if let Some(text) = text {
            writeln!(out, "        {whose}  {}", visible(text))?;
        }
    }
    Ok(())
}

fn totals(report: &VerifyReport, out: &mut dyn Write) -> io::Result<()> {
    let VerifyReport {
        sources,
        entries,
        checked,
        messages,
        residue,
        store,
        ..
    } = report;
    let number = |number: u64, what: &str| count(number, what);
    writeln!(
        out,
        "{}: {} in the store, {} of them held against their sources.",
        Styled(HEADING, number(*sources, "source")),
        HumanCount(*entries),
        HumanCount(*checked),
    )?;
    let lines = number(*residue, "other line");
    writeln!(
        out,
        "{} and {lines} were compared.",
        number(*messages, "message")
    )?;
    if report.clean {
        writeln!(out, "{}", all_well(report))?;
    }
    writeln!(out, "Store: {}", visible(store))
}

/// What it means that there is no finding: of what is not in the store, nothing
/// can be wrong.
fn all_well(report: &VerifyReport) -> String {
    let missing = [Check::NotImported, Check::FailedItem];
    let mut notices = report.notices.iter();
    let is_missing = notices.any(|notice| missing.contains(&notice.code));
    match (report.sources, report.entries) {
        (0, 0) => "There was nothing to verify.".to_owned(),
        (_, 0) if is_missing => "Nothing was verified: nothing of it is in the store.".to_owned(),
        _ if is_missing => "What is in the store is right; not everything is in it.".to_owned(),
        _ => "Nothing is wrong.".to_owned(),
    }
}

/// What is most worth typing now.
fn next_command(
    report: &VerifyReport,
    verify: &Verify,
    common: &Common,
) -> Option<(&'static str, String)> {
    let run = |switch: &str| {
        let mut words = vec!["session-import".to_owned(), "run".to_owned()];
        words.extend(next::place(common));
        let globs = verify.selection.only.iter();
        words.extend(globs.flat_map(|glob| ["--only".to_owned(), next::quoted(glob)]));
        words.push(switch.to_owned());
        words.join(" ").trim_end().to_owned()
    };
    let remedies = || report.findings.iter().map(|finding| finding.remedy);
    let is_mended = |remedy: Option<Remedy>| remedy == Some(Remedy::Checksum);
    if remedies().any(is_mended) {
        let why = match remedies().all(is_mended) {
            true => "to mend the store",
            false => "to mend what a run can mend",
        };
        return Some((why, run("--checksum")));
    }
    let explain = |code: Check| {
        let explain = format!("session-import --explain {code}");
        Some(("to see what to do", explain))
    };
    if let Some(finding) = report.findings.first() {
        return explain(finding.code);
    }
    // What failed fails again, as far as anybody knows.
    let failed = report.notices.iter();
    let failed = failed.filter(|notice| notice.code == Check::FailedItem);
    let failed: BTreeSet<_> = failed.map(|notice| &notice.session_key).collect();
    let mut wanted = report.notices.iter().filter(|notice| {
        let is_failed = match notice.code {
            Check::NoMarker => !failed.is_empty(),
            _ => failed.contains(&notice.session_key),
        };
        wants_run(notice.code) && !is_failed
    });
    match wanted.next() {
        Some(_) => Some(("to import what is new or changed", run(""))),
        None if failed.is_empty() => None,
        None => explain(Check::FailedItem),
    }
}

/// Whether a run changes anything about it.
fn wants_run(code: Check) -> bool {
    matches!(
        code,
        Check::NotImported
            | Check::SourceChanged
            | Check::SourceTouched
            | Check::SourceMoved
            | Check::Unsettled
            | Check::OlderImporter
            | Check::NoMarker
            | Check::NoFormat
            | Check::LeftoverFile
    )
}
