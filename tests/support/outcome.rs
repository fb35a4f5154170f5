//! What one call of the program did.

use assert_cmd::Command;
use serde_json::Value;

/// How it ended and what it said.
pub struct Outcome {
    /// The exit code; -1 where a signal ended it.
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Outcome {
    /// Runs it to its end.
    #[track_caller]
    pub fn of(command: &mut Command) -> Self {
        let output = command.output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap_or_else(|error| panic!("{error}"));
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }

    /// Insists on an exit code.
    #[track_caller]
    pub fn code(self, expected: i32) -> Self {
        let Self {
            code,
            stdout,
            stderr,
        } = &self;
        assert_eq!(*code, expected, "\nstdout:\n{stdout}\nstderr:\n{stderr}");
        self
    }

    /// Insists on a part of stdout.
    #[track_caller]
    pub fn says(self, part: &str) -> Self {
        assert!(
            self.stdout.contains(part),
            "no '{part}' in stdout:\n{}",
            self.stdout
        );
        self
    }

    /// Insists on a part of stderr.
    #[track_caller]
    pub fn logs(self, part: &str) -> Self {
        assert!(
            self.stderr.contains(part),
            "no '{part}' in stderr:\n{}",
            self.stderr
        );
        self
    }

    /// stdout as the one JSON document that it must be.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| {
            let Self { stdout, stderr, .. } = self;
            panic!("stdout is not one JSON document: {error}\nstdout:\n{stdout}\nstderr:\n{stderr}")
        })
    }
}
