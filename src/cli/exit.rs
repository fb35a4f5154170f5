//! Exit codes that scripts can rely on (`behaviour.md`, Exit codes).

use std::process::ExitCode;

use session_import::Error;
use session_import::report::RunReport;

use super::signals::Signal;

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// All done, or nothing to do.
    Done,
    /// Could not run.
    CouldNotRun,
    /// Wrong usage.
    Usage,
    /// Ran, but not everything is right.
    Incomplete,
    /// There is no workspace.
    NoWorkspace,
    /// Another import holds the lock.
    Locked,
    /// Stopped by this signal.
    Interrupted(Signal),
}

/// The codes for `--help` and the manual page.
pub(crate) const TABLE: &[(&str, &str)] = &[
    ("0", "all done, or nothing to do"),
    ("1", "could not run: the store is not writable, …"),
    ("2", "wrong usage"),
    (
        "3",
        "ran, but not everything is right; the report names what",
    ),
    ("10", "no workspace"),
    ("11", "another import holds the lock"),
    ("129, 130, 143", "interrupted; what was done is kept"),
];

impl Exit {
    /// The number that the process ends with.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::CouldNotRun => 1,
            Self::Usage => 2,
            Self::Incomplete => 3,
            Self::NoWorkspace => 10,
            Self::Locked => 11,
            Self::Interrupted(signal) => 128 + signal.number(),
        }
    }

    /// What a finished run means. A signal outweighs the rest: whoever sent it
    /// must see that the run did not go to its end.
    pub(crate) fn of_run(report: &RunReport, strict: bool, signal: Option<Signal>) -> Self {
        match signal {
            Some(signal) => Self::Interrupted(signal),
            None if !report.is_clean() => Self::Incomplete,
            None if strict && report.rejected > 0 => Self::Incomplete,
            None => Self::Done,
        }
    }

    /// What the finished result of another command means.
    pub(crate) fn of_result(is_clean: bool, signal: Option<Signal>) -> Self {
        match signal {
            Some(signal) => Self::Interrupted(signal),
            None if is_clean => Self::Done,
            None => Self::Incomplete,
        }
    }

    /// What an error means that ended the whole command. An interruption without
    /// any signal counts as Ctrl-C.
    pub(crate) fn of_error(error: &Error, signal: Option<Signal>) -> Self {
        match (error, signal) {
            (_, Some(signal)) => Self::Interrupted(signal),
            (Error::Interrupted, None) => Self::Interrupted(Signal::Interrupt),
            (Error::NoWorkspace { .. }, None) => Self::NoWorkspace,
            (Error::Locked { .. }, None) => Self::Locked,
            (Error::Usage(_), None) => Self::Usage,
            (_, None) => Self::CouldNotRun,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rejected_line_counts_only_when_strict() {
        let report = RunReport {
            rejected: 1,
            ..RunReport::default()
        };
        assert_eq!(Exit::of_run(&report, false, None), Exit::Done);
        assert_eq!(Exit::of_run(&report, true, None), Exit::Incomplete);
    }

    #[test]
    fn a_signal_outweighs_a_failure() {
        let report = RunReport {
            failed: 1,
            ..RunReport::default()
        };
        assert_eq!(Exit::of_run(&report, false, None).code(), 3);
        let signal = Some(Signal::Terminate);
        assert_eq!(Exit::of_run(&report, false, signal).code(), 143);
    }

    #[test]
    fn every_code_is_in_the_table() {
        let words: Vec<_> = TABLE
            .iter()
            .flat_map(|(codes, _)| codes.split(", "))
            .collect();
        let all = [
            Exit::Done,
            Exit::CouldNotRun,
            Exit::Usage,
            Exit::Incomplete,
            Exit::NoWorkspace,
            Exit::Locked,
            Exit::Interrupted(Signal::Hangup),
            Exit::Interrupted(Signal::Interrupt),
            Exit::Interrupted(Signal::Terminate),
        ];
        for exit in all {
            assert!(
                words.contains(&exit.code().to_string().as_str()),
                "{exit:?}"
            );
        }
        assert_eq!(words.len(), all.len());
    }
}
