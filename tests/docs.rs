//! The documents that are made from the code are as the code is.
//!
//! `UPDATE_DOCS=1 cargo test --test docs` writes them anew.

// Clippy takes only functions marked as tests for tests.
#![allow(clippy::unwrap_used)]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use session_import::model::check::{Check, Weight};
use session_import::model::diagnostic::{Code, Severity};
use session_import::report::{AcceptReport, ErrorReport, RunReport};
use session_import::report::{StatusReport, UndoReport, VerifyReport};

#[test]
fn warnings_are_those_of_the_table() {
    let mut text = String::from(
        "# Warnings and errors\n\n\
         Made from `src/model/diagnostic.rs` and, for `verify`, from `src/model/check.rs`;\n\
         `session-import --explain CODE` says the same.\n\
         Codes are stable: they are only ever added. In a result the worst come first, in the\n\
         order of this page.\n",
    );
    let sections = [
        (
            Severity::Error,
            "Errors",
            "Something was not imported, or a command could not be done. The exit code is not 0.",
        ),
        (
            Severity::Warning,
            "Warnings",
            "Something was odd, or decided for the operator. The exit code stays 0.",
        ),
        (
            Severity::Info,
            "Notes",
            "Good to know; shown with `--verbose`, always in the JSON's `diagnostics`.",
        ),
    ];
    for (severity, title, what) in sections {
        writeln!(text, "\n## {title}\n\n{what}").unwrap();
        for code in Code::ALL.iter().filter(|code| code.severity() == severity) {
            let (summary, explanation) = (code.summary(), code.explanation());
            write!(text, "\n### `{code}`\n\n**{summary}** {explanation}\n").unwrap();
        }
    }
    let sections = [
        (
            Weight::Finding,
            "Findings of `verify`",
            "Something in the store is not what it should be. The exit code is 3.",
        ),
        (
            Weight::Notice,
            "Notices of `verify`",
            "Worth knowing. The exit code stays 0, and is 3 with `--strict`.",
        ),
    ];
    for (weight, title, what) in sections {
        writeln!(text, "\n## {title}\n\n{what}").unwrap();
        for code in Check::ALL.iter().filter(|code| code.severity() == weight) {
            let (summary, explanation) = (code.summary(), code.explanation());
            write!(text, "\n### `{code}`\n\n**{summary}** {explanation}\n").unwrap();
        }
    }
    compare("docs/warnings.md", &text);
}

#[test]
fn schemas_are_those_of_the_types() {
    schema("run", schemars::schema_for!(RunReport));
    schema("verify", schemars::schema_for!(VerifyReport));
    schema("undo", schemars::schema_for!(UndoReport));
    schema("status", schemars::schema_for!(StatusReport));
    schema("accept", schemars::schema_for!(AcceptReport));
    schema("error", schemars::schema_for!(ErrorReport));
}

#[test]
fn the_readme_has_the_exit_codes() {
    let output = assert_cmd::cargo::cargo_bin_cmd!("session-import")
        .arg("--help")
        .output()
        .unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let (_, table) = help.split_once("Exit codes:\n").unwrap();
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    for row in table.lines().filter(|line| !line.trim().is_empty()) {
        let (codes, meaning) = row.trim().split_once("  ").unwrap();
        let row = format!("| {codes} | {} |", meaning.trim());
        assert!(readme.contains(&row), "README.md has no row '{row}'");
    }
}

fn schema(name: &str, schema: schemars::Schema) {
    let text = serde_json::to_string_pretty(&schema).unwrap();
    compare(&format!("docs/schema/{name}.json"), &format!("{text}\n"));
}

#[track_caller]
fn compare(path: &str, expected: &str) {
    let file = root().join(path);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, expected).unwrap();
    }
    let found = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        found == expected,
        "{path} is not what the code says; `UPDATE_DOCS=1 cargo test --test docs` writes it"
    );
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
