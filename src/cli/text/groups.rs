//! Diagnostics grouped by code.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;

use session_import::model::diagnostic::{Code, Diagnostic, Severity};
use session_import::report::{Action, ItemReport, RunReport};

use crate::cli::names::visible;

/// All diagnostics with one code.
pub(super) struct Group<'a> {
    pub(super) code: Code,
    /// How often it was given, counting what was only counted.
    pub(super) occurrences: u64,
    pub(super) places: Vec<Place<'a>>,
}

/// One diagnostic and what it is about.
pub(super) struct Place<'a> {
    item: Option<&'a ItemReport>,
    diagnostic: &'a Diagnostic,
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(item) = self.item {
            write!(f, "{}: ", visible(&item.source))?;
        }
        if let Some(line) = self.diagnostic.line {
            write!(f, "line {line}: ")?;
        }
        f.write_str(&visible(&self.diagnostic.message))
    }
}

/// The wanted diagnostics, worst first: by severity, then in the order of the
/// table of codes, which goes from what may be lost to what is only odd.
pub(super) fn by_code(
    report: &RunReport,
    wanted: impl Fn(Option<&ItemReport>, &Diagnostic) -> bool,
) -> Vec<Group<'_>> {
    let of_run = report
        .diagnostics
        .iter()
        .map(|diagnostic| (None, diagnostic));
    let of_items = report.items.iter().flat_map(|item| {
        let all = item.diagnostics.iter();
        all.map(move |diagnostic| (Some(item), diagnostic))
    });
    let all = of_run.chain(of_items);
    grouped(all.filter(|(item, diagnostic)| wanted(*item, diagnostic)))
}

/// The same of diagnostics about no single item.
pub(super) fn general(
    diagnostics: &[Diagnostic],
    wanted: impl Fn(&Diagnostic) -> bool,
) -> Vec<Group<'_>> {
    let wanted = diagnostics.iter().filter(|diagnostic| wanted(diagnostic));
    grouped(wanted.map(|diagnostic| (None, diagnostic)))
}

fn grouped<'a>(
    all: impl Iterator<Item = (Option<&'a ItemReport>, &'a Diagnostic)>,
) -> Vec<Group<'a>> {
    let mut groups: BTreeMap<(Reverse<Severity>, Code), Group<'_>> = BTreeMap::new();
    for (item, diagnostic) in all {
        let rank = (Reverse(diagnostic.severity), diagnostic.code);
        let group = groups.entry(rank).or_insert_with(|| Group {
            code: diagnostic.code,
            occurrences: 0,
            places: Vec::new(),
        });
        group.occurrences += diagnostic.occurrences();
        group.places.push(Place { item, diagnostic });
    }
    groups.into_values().collect()
}

/// Failed items that say in no diagnostic why.
pub(super) fn failed_without_reason(report: &RunReport) -> impl Iterator<Item = &ItemReport> {
    report.items.iter().filter(|item| {
        let mut diagnostics = item.diagnostics.iter();
        item.action == Action::Failed && !diagnostics.any(|d| d.severity == Severity::Error)
    })
}
