use std::path::PathBuf;

use session_import::model::session::{Kind, Lines};

use super::*;

fn item(key: &str, action: Action, diagnostics: &[Diagnostic]) -> ItemReport {
    ItemReport {
        session_key: key.to_owned(),
        source: format!("session_raw/{key}.jsonl"),
        kind: Kind::Jsonl,
        action,
        reason: "new".to_owned(),
        stream: Some(format!("session.{key}.messages")),
        thread_id: Some("thr-1".to_owned()),
        dialect: Some("native".to_owned()),
        messages: 2,
        lines: Lines::default(),
        warnings: Vec::new(),
        diagnostics: diagnostics.to_vec(),
    }
}

fn report(items: Vec<ItemReport>) -> RunReport {
    let number = |wanted: &[Action]| {
        items
            .iter()
            .filter(|item| wanted.contains(&item.action))
            .count() as u64
    };
    let imported = number(&[Action::Imported, Action::WouldImport]);
    let failed = number(&[Action::Failed]);
    RunReport {
        workspace: "/ws".to_owned(),
        store: "/ws/tinyagents_store".to_owned(),
        scanned: items.len() as u64,
        imported,
        failed,
        skipped: items.len() as u64 - imported - failed,
        messages_written: imported * 2,
        items,
        ..RunReport::default()
    }
}

fn bad() -> ItemReport {
    let reason = Diagnostic::at(Code::NoHeader, 1, "not a JSON object");
    item("2_bad", Action::Failed, &[reason])
}

fn odd(action: Action) -> ItemReport {
    let mut all = vec![Diagnostic::new(
        Code::ThreadIdSynthesized,
        "named `imported-1_odd`",
    )];
    all.push(Diagnostic::at(Code::MalformedLine, 7, "no JSON"));
    all.push(Diagnostic::new(
        Code::MalformedLine,
        "and 24 more lines; all of them are in the residue stream",
    ));
    item("1_odd", action, &all)
}

/// The text, with styles taken off, as where there is no terminal.
fn text(report: &RunReport, change: impl FnOnce(&mut Context<'_>)) -> String {
    let invocation = Invocation::default();
    let mut context = Context {
        width: None,
        verbose: false,
        strict: false,
        invocation: &invocation,
    };
    change(&mut context);
    let mut bytes = Vec::new();
    run(report, &context, &mut bytes).unwrap();
    anstream::adapter::strip_str(&String::from_utf8(bytes).unwrap()).to_string()
}

#[test]
fn what_is_missing_comes_first_and_the_next_command_last() {
    let mut report = report(vec![
        odd(Action::Imported),
        bad(),
        item("3_ok", Action::Imported, &[]),
    ]);
    report.rejected = 25;
    report.salvageable.lines = 3;
    report.salvageable.sessions = 1;
    assert_eq!(
        text(&report, |_| ()),
        "\
Not imported: 1 of 3 sessions

  no-header  The first line is no valid header.
    session_raw/2_bad.jsonl: line 1: not a JSON object

Warnings

  25 × malformed-line  The application's reader skips this line.
    for example session_raw/1_odd.jsonl: line 7: no JSON

  1 × thread-id-synthesized  The header names no thread.
    session_raw/1_odd.jsonl: named `imported-1_odd`

3 sessions: 2 imported, 0 skipped, 1 failed.
4 messages written.
25 lines that the application cannot read, kept beside the messages.
--salvage would bring back 3 lines and 1 failed session.
Store: /ws/tinyagents_store

Next, to bring back what can be brought back:
  session-import run --salvage
"
    );
}

#[test]
fn a_plan_is_a_table_of_what_would_be_done() {
    let done = item("0_done", Action::SkippedUnchanged, &[]);
    let mut report = report(vec![done, odd(Action::WouldImport), bad()]);
    report.dry_run = true;
    report.bytes = 2048;
    let text = text(&report, |_| ());
    let table: Vec<_> = text.lines().take(4).collect();
    assert_eq!(
        table,
        [
            "SESSION  STREAM                  THREAD  MESSAGES  DIALECT  WARNINGS",
            "1_odd    session.1_odd.messages  thr-1          2  native   malformed-line ×25, thread-id-synthesized",
            "2_bad    session.2_bad.messages  thr-1          2  native   FAILS: no-header",
            "",
        ]
    );
    assert!(
        text.contains("\nWould not be imported: 1 of 3 sessions\n"),
        "{text}"
    );
    assert!(
        text.contains("\n3 sessions: 1 would be imported, 1 skipped, 1 would fail.\n"),
        "{text}"
    );
    assert!(
        text.contains("\nNothing was written. A run would write 2 messages, about 2.00 KiB.\n"),
        "{text}"
    );
    assert!(
        text.ends_with("\nNext, to import:\n  session-import run\n"),
        "{text}"
    );
}

#[test]
fn a_table_fits_the_terminal() {
    let mut wide = item(
        &"1719800000_orchestrator".repeat(5),
        Action::WouldImport,
        &[],
    );
    wide.thread_id = Some("x".repeat(100_000));
    let mut report = report(vec![wide, odd(Action::WouldImport)]);
    report.dry_run = true;
    let fits = |width: usize| {
        let text = text(&report, |context| context.width = Some(width));
        let table = text.lines().take_while(|line| !line.is_empty());
        let widest = table.map(crate::cli::names::columns).max().unwrap();
        assert!(widest <= width, "{widest} > {width}\n{text}");
    };
    (90..300).for_each(fits);
    assert!(text(&report, |_| ()).len() < 10_000);
}

#[test]
fn names_cannot_act_on_the_terminal() {
    let evil = "1_\u{1b}[2J\u{202e}\nFAKE";
    let mut item = item(
        evil,
        Action::Failed,
        &[Diagnostic::new(Code::NoHeader, evil)],
    );
    item.thread_id = Some(evil.to_owned());
    let mut report = report(vec![item]);
    report.dry_run = true;
    report.store = evil.to_owned();
    let text = text(&report, |context| context.verbose = true);
    assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text}");
    assert!(!text.lines().any(|line| line.starts_with("FAKE")), "{text}");
}

#[test]
fn folders_that_cannot_be_read_are_not_forgotten() {
    let mut report = report(vec![item("1_ok", Action::Imported, &[])]);
    report.unreadable = 1;
    let sentence = "session_raw/01042026: permission denied";
    report.diagnostics = vec![Diagnostic::new(Code::UnreadableFolder, sentence)];
    let text = text(&report, |_| ());
    assert!(
        text.starts_with("Not imported: 1 folder that cannot be read\n"),
        "{text}"
    );
    assert!(text.contains(sentence));
    assert!(
        text.ends_with("session-import --explain unreadable-folder\n"),
        "{text}"
    );
}

#[test]
fn an_interrupted_run_counts_what_it_did_not_reach() {
    let rest = (0..500).map(|n| {
        let reason = Diagnostic::new(Code::Interrupted, "not reached");
        item(&format!("{n}_rest"), Action::Failed, &[reason])
    });
    let text = text(&report(rest.collect()), |_| ());
    assert!(text.contains("    500 sessions not reached\n"), "{text}");
    assert!(!text.contains("7_rest"), "{text}");
    assert!(
        text.ends_with("Next, to go on from here:\n  session-import run\n"),
        "{text}"
    );
}

#[test]
fn a_failure_without_a_reason_is_still_named() {
    let text = text(&report(vec![item("1_bad", Action::Failed, &[])]), |_| ());
    assert!(text.contains("session_raw/1_bad.jsonl"), "{text}");
}

#[test]
fn notes_are_for_a_verbose_run() {
    let note = Diagnostic::new(Code::NotASource, "session_raw/.DS_Store: hidden");
    let mut report = report(vec![item("1_ok", Action::Imported, &[])]);
    report.diagnostics = vec![note];
    assert!(!text(&report, |_| ()).contains(".DS_Store"));
    assert!(text(&report, |context| context.verbose = true).contains(".DS_Store"));
}

#[test]
fn nothing_to_do_is_said_in_a_line() {
    let mut report = report(vec![item("1_ok", Action::SkippedUnchanged, &[])]);
    report.already_done = true;
    assert_eq!(
        text(&report, |_| ()),
        "Nothing to do: 1 session, none of them new or changed.\nStore: /ws/tinyagents_store\n"
    );
}

#[test]
fn an_empty_workspace_says_where_it_looked() {
    let mut report = report(Vec::new());
    let told = "looked in /ws/session_raw and /ws/sessions";
    report.diagnostics = vec![Diagnostic::new(Code::NothingFound, told)];
    assert_eq!(
        text(&report, |_| ()),
        format!("Nothing to import: {told}\n")
    );
}

#[test]
fn the_next_command_repeats_the_place_and_the_choice() {
    let line = "session-import run -n -w my\u{a0}ws --store s --only *_main --checksum";
    let arguments = <super::super::Arguments as clap::Parser>::parse_from(line.split(' '));
    let Some(super::super::Command::Run(run)) = &arguments.command else {
        panic!("no run");
    };
    assert_eq!(
        arguments.common.workspace,
        Some(PathBuf::from("my\u{a0}ws"))
    );
    let invocation = Invocation::new(&arguments.common, run);
    let mut report = report(vec![item("1_main", Action::WouldImport, &[])]);
    report.dry_run = true;
    let context = Context {
        width: None,
        verbose: false,
        strict: false,
        invocation: &invocation,
    };
    let mut bytes = Vec::new();
    super::run(&report, &context, &mut bytes).unwrap();
    let text = anstream::adapter::strip_str(&String::from_utf8(bytes).unwrap()).to_string();
    let command = "session-import run -w 'my\u{a0}ws' --store s --only '*_main' --checksum";
    assert!(text.ends_with(&format!("{command}\n")), "{text}");
}
