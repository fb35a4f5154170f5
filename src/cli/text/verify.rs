//! The result of `verify`, for people: the findings, then the notices by what
//! they say, then totals, then the next command to type.

use std::collections::BTreeMap;
use std::io::{self, Write};

use indicatif::HumanCount;
use session_import::model::check::Check;
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
    for diagnostic in report.diagnostics.iter().filter(|d| d.is_warning()) {
        let code = Styled(ODD, diagnostic.code);
        writeln!(out, "{code}  {}\n", visible(&diagnostic.message))?;
    }
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
        for finding in group {
            place("", finding, out)?;
            finding
                .differences
                .iter()
                .try_for_each(|difference| shown(difference, out))?;
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
    let codes = || report.findings.iter().map(|finding| finding.code);
    if codes().any(is_mended) {
        return Some(("to mend the store", run("--checksum")));
    }
    if let Some(code) = codes().next() {
        let explain = format!("session-import --explain {code}");
        return Some(("to see what to do", explain));
    }
    let wanted = report.notices.iter().any(|notice| wants_run(notice.code));
    wanted.then(|| ("to import what is new or changed", run("")))
}

/// Whether `run --checksum` puts it right.
fn is_mended(code: Check) -> bool {
    !matches!(
        code,
        Check::StreamDiverged | Check::ResidueOrphan | Check::SourceUnreadable
    )
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
