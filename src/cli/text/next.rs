//! The next command to type.

use std::borrow::Cow;
use std::io::{self, Write};

use session_import::model::diagnostic::Code;
use session_import::report::{ItemReport, RunReport};

use super::style::{HEADING, Styled};
use super::{Context, groups};
use crate::cli::args::{Common, Run};
use crate::cli::names::visible;

/// The parts of a command line that its successor repeats.
#[derive(Debug, Default)]
pub(crate) struct Invocation {
    place: Vec<String>,
    selection: Vec<String>,
    switches: Vec<&'static str>,
}

impl Invocation {
    /// Takes them from the parsed command line.
    pub(crate) fn new(common: &Common, run: &Run) -> Self {
        let place = place(common);
        let globs = run.selection.only.iter();
        let selection = globs.flat_map(|glob| ["--only".to_owned(), quoted(glob)]);
        let switches = [
            (run.force, "--force"),
            (run.overwrite, "--overwrite"),
            (run.checksum, "--checksum"),
            (run.salvage, "--salvage"),
            (run.strict, "--strict"),
        ];
        Self {
            place,
            selection: selection.collect(),
            switches: switches
                .iter()
                .filter(|(given, _)| *given)
                .map(|(_, name)| *name)
                .collect(),
        }
    }

    fn has(&self, switch: &str) -> bool {
        self.switches.contains(&switch)
    }

    /// The same once more, but writing.
    fn again(&self) -> String {
        self.run(&self.switches)
    }

    /// The same with `--salvage`.
    fn salvaging(&self) -> String {
        self.run(&["--salvage"])
    }

    fn run(&self, switches: &[&str]) -> String {
        let words = self.place.iter().chain(&self.selection).map(String::as_str);
        let words = ["session-import", "run"].into_iter().chain(words);
        words
            .chain(switches.iter().copied())
            .collect::<Vec<_>>()
            .join(" ")
    }
}

/// Writes it, with why one would type it.
pub(super) fn write(
    report: &RunReport,
    context: &Context<'_>,
    out: &mut dyn Write,
) -> io::Result<()> {
    match choose(report, context.invocation) {
        Some((why, command)) => writeln!(out, "\nNext, {why}:\n  {}", Styled(HEADING, command)),
        None => Ok(()),
    }
}

fn choose(report: &RunReport, line: &Invocation) -> Option<(&'static str, String)> {
    let salvageable = report.salvageable.lines > 0 || report.salvageable.sessions > 0;
    let was_cut_off =
        |item: &ItemReport| item.diagnostics.iter().any(|d| d.code == Code::Interrupted);
    if report.items.iter().any(was_cut_off) {
        (!report.dry_run).then(|| ("to go on from here", line.again()))
    } else if report.dry_run && report.imported > 0 {
        Some(("to import", line.again()))
    } else if salvageable && !line.has("--salvage") {
        Some(("to bring back what can be brought back", line.salvaging()))
    } else if let Some(code) = worst(report) {
        Some((
            "to see what to do",
            format!("session-import --explain {code}"),
        ))
    } else {
        None
    }
}

/// What is most worth looking up.
fn worst(report: &RunReport) -> Option<Code> {
    let reasons = groups::by_code(report, super::is_reason);
    let others = groups::by_code(report, |_, diagnostic| diagnostic.is_warning());
    reasons.iter().chain(&others).map(|group| group.code).next()
}

/// The arguments that say where workspace and store are.
pub(super) fn place(common: &Common) -> Vec<String> {
    let mut place = Vec::new();
    for (name, path) in [("-w", &common.workspace), ("--store", &common.store)] {
        if let Some(path) = path {
            place.extend([name.to_owned(), quoted(&path.to_string_lossy())]);
        }
    }
    place
}

/// A word for a POSIX shell.
pub(super) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:@%+=,".contains(c);
    let shown: Cow<'_, str> = visible(word);
    if !shown.is_empty() && shown.chars().all(plain) {
        return shown.into_owned();
    }
    format!("'{}'", shown.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn words_survive_a_shell() {
        assert_eq!(quoted("/home/me/ws-1"), "/home/me/ws-1");
        assert_eq!(quoted("my workspace"), "'my workspace'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted("*_main"), "'*_main'");
        assert_eq!(quoted(""), "''");
    }
}
