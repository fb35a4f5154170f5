//! The plan of a dry run, as a table: one row for each session that would be
//! imported or would fail.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{self, Write};

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, Width};
use indicatif::HumanCount;
use session_import::model::diagnostic::{Code, Severity};
use session_import::report::{Action, ItemReport, RunReport};

use crate::cli::names::{columns, shortened, visible};

/// What may be done to a cell to make it narrower.
#[derive(Clone, Copy)]
enum Fit {
    /// Its middle may be left out.
    Name,
    /// It may be broken between words.
    Words,
    /// Nothing.
    Whole,
}

const COLUMNS: [(&str, Fit); 6] = [
    ("SESSION", Fit::Name),
    ("STREAM", Fit::Name),
    ("THREAD", Fit::Name),
    ("MESSAGES", Fit::Whole),
    ("DIALECT", Fit::Name),
    ("WARNINGS", Fit::Words),
];
const STREAM: usize = 1;
const MESSAGES: usize = 3;
/// Between two columns.
const GAP: u16 = 2;
/// No name is made narrower than this.
const LEAST: usize = 12;
/// Nor left wider than this, terminal or not: a header can hold anything, and
/// one long name would push every row apart. The JSON has them whole.
const MOST: usize = 80;

type Row = [String; COLUMNS.len()];
type Widths = [usize; COLUMNS.len()];

/// Writes the table; nothing if there is nothing to plan.
pub(super) fn table(
    report: &RunReport,
    available: Option<usize>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let planned = |item: &&ItemReport| matches!(item.action, Action::WouldImport | Action::Failed);
    let rows: Vec<_> = report.items.iter().filter(planned).map(row).collect();
    if rows.is_empty() {
        return Ok(());
    }
    let widths = widths(&rows, available);
    let mut table = Table::new();
    table.load_preset(NOTHING);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(COLUMNS.map(|(title, _)| title));
    for row in &rows {
        let cells = row.iter().zip(COLUMNS).zip(widths);
        table.add_row(cells.map(|((cell, (_, fit)), width)| match fit {
            Fit::Name => shortened(cell, width),
            Fit::Words | Fit::Whole => cell.into(),
        }));
    }
    for (column, width) in table.column_iter_mut().zip(widths) {
        let width = u16::try_from(width).unwrap_or(u16::MAX).saturating_add(GAP);
        column.set_padding((0, GAP));
        column.set_constraint(ColumnConstraint::Absolute(Width::Fixed(width)));
    }
    if let Some(messages) = table.column_mut(MESSAGES) {
        messages.set_cell_alignment(CellAlignment::Right);
    }
    for line in table.lines() {
        writeln!(out, "{}", line.trim_end())?;
    }
    writeln!(out)
}

fn row(item: &ItemReport) -> Row {
    let known = |name: &Option<String>| match name {
        Some(name) => visible(name).into_owned(),
        None => "-".to_owned(),
    };
    [
        visible(&item.session_key).into_owned(),
        known(&item.stream),
        known(&item.thread_id),
        HumanCount(item.messages).to_string(),
        known(&item.dialect),
        warnings(item),
    ]
}

/// The codes, worst first, each once and with its number.
fn warnings(item: &ItemReport) -> String {
    let mut found: BTreeMap<(Reverse<Severity>, Code), u64> = BTreeMap::new();
    for diagnostic in item.diagnostics.iter().filter(|d| d.is_warning()) {
        let rank = (Reverse(diagnostic.severity), diagnostic.code);
        *found.entry(rank).or_default() += diagnostic.occurrences();
    }
    let told = found.iter().map(|((_, code), number)| match number {
        1 => code.to_string(),
        _ => format!("{code} ×{}", HumanCount(*number)),
    });
    let told = told.collect::<Vec<_>>().join(", ");
    match item.action {
        Action::Failed => format!("FAILS: {told}"),
        _ => told,
    }
}

/// As wide as the cells need; where the terminal has not that much, the stream
/// gives way first, since the session's key tells it, and then the widest.
fn widths(rows: &[Row], available: Option<usize>) -> Widths {
    let mut widths = COLUMNS.map(|(title, _)| columns(title));
    let mut least = widths;
    for row in rows {
        let limits = widths.iter_mut().zip(least.iter_mut());
        for ((cell, (_, fit)), (width, least)) in row.iter().zip(COLUMNS).zip(limits) {
            let whole = columns(cell);
            let (most, narrowest) = match fit {
                Fit::Name => (whole.min(MOST), whole.min(LEAST)),
                Fit::Words => (whole, cell.split(' ').map(columns).max().unwrap_or(0)),
                Fit::Whole => (whole, whole),
            };
            *width = most.max(*width);
            *least = narrowest.max(*least);
        }
    }
    let needed: usize = widths.iter().map(|width| width + usize::from(GAP)).sum();
    for _ in available.unwrap_or(needed)..needed {
        let columns = widths.iter_mut().zip(least).enumerate();
        let wide = columns.filter(|(_, (width, least))| **width > *least);
        match wide.max_by_key(|(index, (width, _))| (*index == STREAM, **width)) {
            Some((_, (width, _))) => *width -= 1,
            None => break,
        }
    }
    widths
}
