//! The command line: what it accepts, and the library's options that it makes
//! of that. The manual page and the completions come from these types too.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser as _};
use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use session_import::ops::verify::VerifyOptions;
use session_import::ops::{self, run::Options};

use super::explain::Explained;
use super::{duration, exit};

/// Moves an AI assistant's old conversations into a TinyAgents store.
///
/// Sources are only read, never changed. A run may be interrupted at any
/// moment, and repeated at any time: only what is new or changed is imported.
#[derive(Debug, Parser)]
#[command(
    name = "session-import",
    version,
    arg_required_else_help = true,
    after_long_help = exit_codes()
)]
pub(crate) struct Arguments {
    /// Print the manual page, or the completions for a shell.
    #[arg(long, value_name = "WHAT", value_enum)]
    pub(crate) generate: Option<Generate>,

    /// Explain a warning or an error.
    #[arg(long, value_name = "CODE", value_parser = code(), hide_possible_values = true)]
    pub(crate) explain: Option<Explained>,

    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    #[command(flatten)]
    pub(crate) common: Common,
}

/// What every command takes, before or behind its name.
#[derive(Debug, Args)]
#[command(next_help_heading = "Common options")]
pub(crate) struct Common {
    /// The workspace [default: $OPENHUMAN_WORKSPACE, else the active user's].
    #[arg(short, long, global = true, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,

    /// The store [default: tinyagents_store/ in the workspace].
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) store: Option<PathBuf>,

    /// Say more on stderr; twice for every step.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,

    /// Only errors on stderr, and no progress.
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,

    /// Colour in text output.
    #[arg(long, global = true, value_name = "WHEN", value_enum, default_value_t)]
    pub(crate) color: When,

    /// Progress on stderr: a bar on a terminal, a line now and then elsewhere.
    #[arg(long, global = true, value_name = "WHEN", value_enum, default_value_t)]
    pub(crate) progress: When,
}

/// Whether to use what only suits a terminal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum When {
    /// On a terminal.
    #[default]
    Auto,
    /// Everywhere.
    Always,
    /// Nowhere.
    Never,
}

/// What `--generate` prints.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Generate {
    /// The manual page.
    Man,
    /// Completions for bash.
    CompleteBash,
    /// Completions for zsh.
    CompleteZsh,
    /// Completions for fish.
    CompleteFish,
    /// Completions for PowerShell.
    CompletePowershell,
}

impl Generate {
    /// The shell that the completions are for; none for the manual page.
    pub(crate) fn shell(self) -> Option<Shell> {
        match self {
            Self::Man => None,
            Self::CompleteBash => Some(Shell::Bash),
            Self::CompleteZsh => Some(Shell::Zsh),
            Self::CompleteFish => Some(Shell::Fish),
            Self::CompletePowershell => Some(Shell::PowerShell),
        }
    }
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Import what is new or changed.
    Run(Run),
    /// Say what is in the store, and what a run would do.
    Status(Status),
    /// Read sources and store again, and compare.
    Verify(Verify),
    /// Take an import back.
    Undo(Undo),
    /// Settle failed sessions that nobody can help.
    Accept(Accept),
}

/// The two forms that every report has.
#[derive(Debug, Args)]
pub(crate) struct ReportForm {
    /// The form of the result.
    #[arg(long, value_enum, default_value_t, overrides_with = "json")]
    format: Format,

    /// Short for --format json.
    #[arg(long, overrides_with = "format")]
    json: bool,
}

impl ReportForm {
    /// The form asked for.
    pub(crate) fn format(&self) -> Format {
        if self.json { Format::Json } else { self.format }
    }
}

/// How a result is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Text,
    /// One JSON document.
    Json,
}

/// Which sessions a command is about.
#[derive(Debug, Args)]
pub(crate) struct Selection {
    /// Only sessions whose key matches; may be repeated.
    #[arg(long, value_name = "GLOB")]
    pub(crate) only: Vec<String>,
}

/// Import what is new or changed.
#[derive(Debug, Args)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) form: ReportForm,

    #[command(flatten)]
    pub(crate) selection: Selection,

    /// Read everything and show the plan, but write nothing.
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,

    /// Import also what is done.
    #[arg(long)]
    pub(crate) force: bool,

    /// Replace streams that have gone another way than their source.
    #[arg(long)]
    pub(crate) overwrite: bool,

    /// Compare content instead of size and time, in sources and store.
    #[arg(short, long)]
    pub(crate) checksum: bool,

    /// Bring back what can be saved of damaged sources.
    #[arg(long)]
    pub(crate) salvage: bool,

    /// Exit with 3 if any line was rejected.
    #[arg(long)]
    pub(crate) strict: bool,

    /// Threads that read [default: one for each processor].
    #[arg(short, long, value_name = "N")]
    pub(crate) jobs: Option<NonZeroUsize>,

    /// Wait for another import to end, this long: 30s, 5m, or seconds.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) retry_lock: Option<Duration>,
}

impl Run {
    /// The library's options for this command line.
    pub(crate) fn options(&self, common: &Common) -> Options {
        Options {
            workspace: common.workspace.clone(),
            store: common.store.clone(),
            dry_run: self.dry_run,
            only: self.selection.only.clone(),
            force: self.force,
            overwrite: self.overwrite,
            checksum: self.checksum,
            salvage: self.salvage,
            strict: self.strict,
            verbose: common.verbose > 0,
            brief: self.form.format() != Format::Json,
            jobs: self.jobs.map(NonZeroUsize::get),
            retry_lock: self.retry_lock,
            ..Options::default()
        }
    }
}

/// Say what is in the store, and what a run would do.
///
/// By names, sizes and times alone: no transcript is opened, and nothing is
/// written.
#[derive(Debug, Args)]
pub(crate) struct Status {
    /// The form of the result.
    #[arg(long, value_enum, default_value_t, overrides_with = "json")]
    format: StatusFormat,

    /// Short for --format json.
    #[arg(long, overrides_with = "format")]
    json: bool,

    /// Wait for a running import to end, this long: 30s, 5m, or seconds.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) retry_lock: Option<Duration>,
}

/// How a status is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum StatusFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON document.
    Json,
    /// For a report or an issue.
    Markdown,
}

impl Status {
    /// The form asked for.
    pub(crate) fn format(&self) -> StatusFormat {
        if self.json {
            StatusFormat::Json
        } else {
            self.format
        }
    }

    /// The library's options for this command line.
    pub(crate) fn options(&self, common: &Common) -> ops::status::Options {
        ops::status::Options {
            workspace: common.workspace.clone(),
            store: common.store.clone(),
            retry_lock: self.retry_lock,
        }
    }
}

/// Take an import back.
///
/// Removes what imports have written, session by session, and leaves what the
/// application has gone on with, what took the place of a record that was not
/// the import's own, and what may be the only copy left. Sources are not
/// touched.
#[derive(Debug, Args)]
pub(crate) struct Undo {
    #[command(flatten)]
    pub(crate) form: ReportForm,

    #[command(flatten)]
    pub(crate) selection: Selection,

    /// Show what would be removed, but write nothing.
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,

    /// Remove also what the application has written on in, and the only copies.
    #[arg(long)]
    pub(crate) overwrite: bool,

    /// Wait for an import to end, this long: 30s, 5m, or seconds.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) retry_lock: Option<Duration>,
}

impl Undo {
    /// The library's options for this command line.
    pub(crate) fn options(&self, common: &Common) -> ops::undo::Options {
        ops::undo::Options {
            workspace: common.workspace.clone(),
            store: common.store.clone(),
            dry_run: self.dry_run,
            only: self.selection.only.clone(),
            overwrite: self.overwrite,
            retry_lock: self.retry_lock,
            ..Default::default()
        }
    }
}

/// Settle failed sessions that nobody can help.
///
/// From then on `run` skips them and may call the import complete. A source
/// that changes is tried again. `undo` takes it back.
#[derive(Debug, Args)]
pub(crate) struct Accept {
    #[command(flatten)]
    pub(crate) form: ReportForm,

    /// Failed sessions: their files' paths, or their keys.
    #[arg(value_name = "SOURCE", required = true)]
    pub(crate) sources: Vec<PathBuf>,

    /// Why nobody can help; kept in the store.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,

    /// Wait for an import to end, this long: 30s, 5m, or seconds.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) retry_lock: Option<Duration>,
}

impl Accept {
    /// The library's options for this command line.
    pub(crate) fn options(&self, common: &Common) -> ops::accept::Options {
        ops::accept::Options {
            workspace: common.workspace.clone(),
            store: common.store.clone(),
            sources: self.sources.clone(),
            reason: self.reason.clone(),
            retry_lock: self.retry_lock,
        }
    }
}

/// Read sources and store again, and compare; never write.
///
/// Holds every message against its source, every file against the item ledger,
/// and the ledger against the marker. A finding makes the exit code 3,
/// and comes with what helps: `run --checksum`, where the source can give it.
#[derive(Debug, Args)]
pub(crate) struct Verify {
    #[command(flatten)]
    pub(crate) form: ReportForm,

    #[command(flatten)]
    pub(crate) selection: Selection,

    /// Show what differs, contents included.
    #[arg(long)]
    pub(crate) diff: bool,

    /// Exit with 3 if there is any notice.
    #[arg(long)]
    pub(crate) strict: bool,

    /// Threads that read [default: one for each processor].
    #[arg(short, long, value_name = "N")]
    pub(crate) jobs: Option<NonZeroUsize>,

    /// Wait for an import to end, this long: 30s, 5m, or seconds.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) retry_lock: Option<Duration>,
}

impl Verify {
    /// The library's options for this command line.
    pub(crate) fn options(&self, common: &Common) -> VerifyOptions {
        VerifyOptions {
            workspace: common.workspace.clone(),
            store: common.store.clone(),
            only: self.selection.only.clone(),
            diff: self.diff,
            jobs: self.jobs.map(NonZeroUsize::get),
            retry_lock: self.retry_lock,
            ..VerifyOptions::default()
        }
    }
}

/// Ends the program: no command was named.
pub(crate) fn no_command() -> ! {
    let missing = clap::error::ErrorKind::MissingSubcommand;
    let text = "no command; `session-import run` imports, `--help` names the others";
    Arguments::command().error(missing, text).exit()
}

/// Accepts the codes; clap then suggests the nearest for a wrong one, and the
/// completions offer them with what they are about.
fn code() -> impl clap::builder::TypedValueParser<Value = Explained> {
    let known = Explained::all().map(|code| PossibleValue::new(code.as_str()).help(code.summary()));
    PossibleValuesParser::new(known).try_map(|code| code.parse::<Explained>())
}

fn exit_codes() -> String {
    let rows = exit::TABLE
        .iter()
        .map(|(codes, meaning)| format!("  {codes:<15} {meaning}\n"));
    format!("Exit codes:\n{}", rows.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn common_arguments_stand_before_or_behind_the_command() {
        for line in ["session-import -w a run", "session-import run -w a"] {
            let arguments = Arguments::parse_from(line.split(' '));
            assert_eq!(arguments.common.workspace, Some(PathBuf::from("a")));
        }
    }

    #[test]
    fn the_last_format_counts() {
        let format = |line: &str| match Arguments::parse_from(line.split(' ')).command {
            Some(Command::Run(run)) => run.form.format(),
            _ => panic!("another command"),
        };
        assert_eq!(format("session-import run"), Format::Text);
        assert_eq!(format("session-import run --json"), Format::Json);
        assert_eq!(format("session-import run --format json"), Format::Json);
        assert_eq!(
            format("session-import run --json --format text"),
            Format::Text
        );
    }
}
