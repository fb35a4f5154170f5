//! The program's manners: usage, exit codes, what goes where.

mod support;

use std::io::pipe;
use std::process::{Command, Stdio};

use session_import::model::check::Check;
use session_import::model::diagnostic::Code;
use support::{Outcome, Workspace, call};

#[test]
fn documented_calls() {
    trycmd::TestCases::new().case("tests/cmd/*.trycmd");
}

#[test]
fn help_and_version_go_to_stdout() {
    for arguments in [["--help"], ["--version"], ["help"]] {
        let outcome = call(&arguments).code(0);
        assert!(!outcome.stdout.is_empty() && outcome.stderr.is_empty());
    }
}

#[test]
fn wrong_usage_is_2_and_says_nothing_on_stdout() {
    let lines = [
        "",
        "-w somewhere",
        "--no-such-flag",
        "no-such-command",
        "--generate no-such-thing",
        "--explain no-such-code",
        "run --no-such-flag",
        "run --retry-lock soon",
        "run --jobs 0",
        "run --format yaml",
        "run -q -v",
    ];
    for line in lines {
        let outcome = call(&line.split_whitespace().collect::<Vec<_>>());
        assert_eq!(outcome.code, 2, "{line}\n{}", outcome.stderr);
        assert_eq!(outcome.stdout, "", "{line}");
        assert!(!outcome.stderr.is_empty(), "{line}");
    }
}

#[test]
fn a_missing_workspace_is_10_and_is_not_made() {
    let workspace = Workspace::new();
    let missing = workspace.path("none");
    let outcome = Outcome::of(workspace.command().args(["run", "-w"]).arg(&missing)).code(10);
    assert_eq!(outcome.stdout, "");
    let outcome = outcome.logs(missing.to_str().unwrap());
    assert!(
        outcome
            .stderr
            .lines()
            .all(|line| line.starts_with("[session-import] "))
    );
    assert!(!missing.exists());
}

#[test]
fn a_command_that_cannot_be_done_still_writes_one_document() {
    let workspace = Workspace::new();
    let missing = workspace.path("none");
    let outcome = Outcome::of(
        workspace
            .command()
            .args(["run", "--json", "-w"])
            .arg(missing),
    )
    .code(10);
    let document = outcome.json();
    assert_eq!(document["error"]["code"], "no-workspace");
    assert_eq!(document["error"]["exit_code"], 10);
    support::assert_schema("error", &document);
}

#[test]
fn every_code_is_explained() {
    for code in Code::ALL {
        call(&["--explain", code.as_str()])
            .code(0)
            .says(code.explanation());
    }
    for check in Check::ALL {
        call(&["--explain", check.as_str()])
            .code(0)
            .says(check.explanation());
    }
}

#[test]
fn a_wrong_code_is_met_with_the_nearest() {
    call(&["--explain", "no-headr"]).code(2).logs("'no-header'");
}

#[test]
fn everything_is_generated() {
    for shell in ["bash", "zsh", "fish", "powershell"] {
        call(&["--generate", &format!("complete-{shell}")])
            .code(0)
            .says("dry-run");
    }
    let page = call(&["--generate", "man"])
        .code(0)
        .says(".SH \"EXIT STATUS\"");
    for flag in ["workspace", r"dry\-run", r"retry\-lock", "explain"] {
        assert!(page.stdout.contains(&format!(r"\-\-{flag}")), "{flag}");
    }
}

#[test]
fn colour_is_for_terminals() {
    let plain = call(&["--explain", "no-header"]).code(0);
    assert!(!plain.stdout.contains('\u{1b}'));
    let asked_for = call(&["--color", "always", "--explain", "no-header"]).code(0);
    assert!(asked_for.stdout.contains('\u{1b}'));
}

#[test]
fn a_reader_that_has_gone_is_no_failure() {
    for arguments in [
        ["--help"].as_slice(),
        &["--explain", "no-header"],
        &["--generate", "man"],
    ] {
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        let output = program().args(arguments).stdout(writer).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        assert!(
            output.stderr.is_empty(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

#[test]
fn a_log_that_nobody_reads_changes_nothing() {
    let (reader, writer) = pipe().unwrap();
    drop(reader);
    let none = Workspace::new().path("none");
    let mut program = program();
    program.args(["run", "--json", "-v", "-w"]).arg(none);
    let output = program
        .stderr(writer)
        .stdout(Stdio::piped())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(10));
    assert!(serde_json::from_slice::<serde_json::Value>(&output.stdout).is_ok());
}

#[cfg(target_os = "linux")]
#[test]
fn a_result_that_cannot_be_written_is_a_failure() {
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let output = program()
        .args(["--explain", "no-header"])
        .stdout(full)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(
        log.starts_with("[session-import] error: cannot write the result"),
        "{log}"
    );
}

fn program() -> Command {
    Command::new(assert_cmd::cargo::cargo_bin!("session-import"))
}
