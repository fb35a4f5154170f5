//! What is said is so: `verify` finds nothing in a store that is as it was
//! written, names a command only where that helps, and `status` says what the
//! next run does.

// Clippy takes only functions marked as tests for tests.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod support;

use std::collections::BTreeSet;
use std::fs;

use rayon::prelude::*;
use serde_json::{Value, json};
use session_import::model::key::Sha256;
use support::{HEADER, WRITTEN_AT, Workspace, assert_schema, message};

const A: &str = "1777709000_a";
const B: &str = "1777709001_b";
const SOURCE: &str = "session_raw/1777709000_a.jsonl";
const STREAM: &str = "tinyagents_store/journal/session.1777709000_a.messages.jsonl";
const RESIDUE: &str = "tinyagents_store/journal/session.1777709000_a.residue.jsonl";
const DESCRIPTOR: &str = "tinyagents_store/kv/sessions/1777709000_a.json";
const MARKER: &str = "tinyagents_store/kv/migrations/session_import_v1.json";
const ITEMS: &str = "tinyagents_store/kv/migration_items";
const SUBAGENTS: &str = ".openhuman/subagent_sessions.json";

/// A session of these contents, all the user's.
fn session(workspace: &Workspace, stem: &str, contents: &[&str]) {
    let lines: Vec<String> = contents.iter().map(|text| message("user", text)).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    workspace.transcript(stem, &lines);
}

/// Two sessions, imported.
fn imported() -> Workspace {
    let workspace = Workspace::new();
    session(&workspace, A, &["one", "two"]);
    session(&workspace, B, &["other"]);
    workspace
        .append(SOURCE, "no JSON\n")
        .mtime(SOURCE, WRITTEN_AT);
    workspace.run(&[]).code(0);
    workspace
}

fn entry() -> String {
    format!("{ITEMS}/{}.json", Sha256::of(SOURCE.as_bytes()))
}

/// Writes a file of the store anew, in its place.
#[track_caller]
fn put(workspace: &Workspace, file: &str, bytes: impl AsRef<[u8]>) {
    fs::write(workspace.path(file), bytes).unwrap();
}

#[track_caller]
fn replace(workspace: &Workspace, file: &str, from: &str, to: &str) {
    let text = workspace.read(file);
    assert!(text.contains(from), "no '{from}' in {file}:\n{text}");
    put(workspace, file, text.replacen(from, to, 1));
}

#[track_caller]
fn verify(workspace: &Workspace) -> Value {
    let report = workspace.call("verify", &["--json"]).json();
    assert_schema("verify", &report);
    report
}

fn codes<'r>(report: &'r Value, list: &str) -> Vec<&'r str> {
    let all = report[list].as_array().unwrap().iter();
    all.map(|one| one["code"].as_str().unwrap()).collect()
}

/// Insists that nothing is wrong, and on these notices.
#[track_caller]
fn notes(workspace: &Workspace, expected: &[&str]) {
    let report = verify(workspace);
    assert_eq!(codes(&report, "findings"), [""; 0], "{report:#}");
    assert_eq!(codes(&report, "notices"), expected, "{report:#}");
}

#[track_caller]
fn status(workspace: &Workspace) -> Value {
    let report = workspace.call("status", &["--json"]).code(0).json();
    assert_schema("status", &report);
    report
}

/// How many of a state there are.
fn number(report: &Value, state: &str) -> u64 {
    report["states"][state].as_u64().unwrap()
}

// A store that is as it was written.

#[test]
fn residue_that_a_source_gave_later_is_not_missing() {
    let workspace = Workspace::new();
    session(&workspace, A, &["one", "two"]);
    workspace.run(&[]).code(0);
    // What is gone lies in the residue from now on.
    session(&workspace, A, &["one"]);
    workspace.mtime(SOURCE, WRITTEN_AT + 60);
    workspace.run(&[]).code(0);
    notes(&workspace, &[]);
    let partial = r#"{"role":"user","content":"z","interrupted":true}"#;
    workspace.append(SOURCE, format!("{partial}\n"));
    notes(&workspace, &["source-changed"]);
    workspace.append(SOURCE, "no JSON\n");
    notes(&workspace, &["source-changed"]);
    workspace.run(&[]).code(0);
    notes(&workspace, &[]);
}

#[test]
fn a_transcript_of_the_second_generation_may_move() {
    let header = HEADER.replace(r#","thread_id":"thr-1""#, "");
    let text = format!("{header}\n{}\n", message("user", "hi"));
    let places = ["session_raw/02042026", "session_raw", "session_raw-work"];
    for from in places {
        for to in places.into_iter().filter(|to| *to != from) {
            let workspace = Workspace::new();
            workspace.file(format!("{from}/main_0.jsonl"), &text);
            workspace.run(&[]).code(0);
            workspace.rename(format!("{from}/main_0.jsonl"), format!("{to}/main_0.jsonl"));
            notes(&workspace, &["source-moved"]);
            workspace.run(&[]).code(0);
            notes(&workspace, &[]);
            workspace.run(&["--checksum"]).code(0);
            notes(&workspace, &[]);
        }
    }
}

#[test]
fn a_salvaged_file_without_a_header_may_be_touched_and_moved() {
    let workspace = Workspace::new();
    let (old, new) = (
        "session_raw/02042026/main_0.jsonl",
        "session_raw/main_0.jsonl",
    );
    workspace.file(old, format!("{}\n", message("user", "hi")));
    workspace.run(&["--salvage"]).code(0);
    notes(&workspace, &[]);
    workspace.mtime(old, WRITTEN_AT + 60);
    notes(&workspace, &["source-touched"]);
    workspace.rename(old, new).mtime(new, WRITTEN_AT + 120);
    notes(&workspace, &["source-moved"]);
    workspace.run(&[]).code(0);
    notes(&workspace, &[]);
}

// What was accepted.

/// The application goes another way, and so does the source.
fn diverged() -> Workspace {
    let workspace = imported();
    replace(&workspace, STREAM, "two", "app");
    replace(&workspace, DESCRIPTOR, "\"native\"", "\"other\"");
    workspace
        .append(SOURCE, format!("{}\n", message("user", "on")))
        .mtime(SOURCE, WRITTEN_AT + 60);
    workspace
}

#[test]
fn a_divergence_is_one_finding_and_once_accepted_a_notice() {
    let workspace = diverged();
    let report = verify(&workspace);
    assert_eq!(codes(&report, "findings"), ["stream-diverged"]);
    assert_eq!(report["findings"][0]["remedy"], "overwrite");
    workspace.run(&[]).code(3);
    workspace
        .call("accept", &[A, "--reason", "keep the app's"])
        .code(0);
    workspace.run(&[]).code(0);
    let report = verify(&workspace);
    notes(&workspace, &["accepted-item"]);
    let said = report["notices"][0]["message"].as_str().unwrap();
    assert!(
        said.contains("keep the app's") && said.contains("part after message 1"),
        "{said}"
    );
    // Other bytes are not what was accepted.
    workspace.append(SOURCE, format!("{}\n", message("user", "on")));
    let report = verify(&workspace);
    assert_eq!(codes(&report, "findings"), ["stream-diverged"]);
}

#[test]
fn a_broken_source_that_was_accepted_is_told_as_that_alone() {
    let workspace = imported();
    workspace
        .file(SOURCE, "no header\n")
        .mtime(SOURCE, WRITTEN_AT + 60);
    workspace.run(&[]).code(3);
    // It fails again, so no run is proposed.
    let said = workspace.call("verify", &[]).code(0);
    said.says("session-import --explain failed-item");
    workspace.call("accept", &[A, "--reason", "x"]).code(0);
    workspace.run(&[]).code(0);
    notes(&workspace, &["accepted-item"]);
}

// What helps.

type Change = (&'static str, fn(&Workspace));

/// Ways in which the store may be damaged.
const DAMAGES: &[Change] = &[
    ("stream", |w| replace(w, STREAM, "one", "oNe")),
    ("stream refused", |w| replace(w, STREAM, "{", "[")),
    ("no stream", |w| {
        w.remove(STREAM);
    }),
    ("a folder for the stream", |w| {
        w.remove(STREAM).folder(STREAM);
    }),
    ("residue", |w| replace(w, RESIDUE, "no JSON", "no XML")),
    ("residue refused", |w| replace(w, RESIDUE, "{", "[")),
    ("no residue", |w| {
        w.remove(RESIDUE);
    }),
    ("a folder for the residue", |w| {
        w.remove(RESIDUE).folder(RESIDUE);
    }),
    ("descriptor", |w| replace(w, DESCRIPTOR, "native", "natiXe")),
    ("descriptor damaged", |w| replace(w, DESCRIPTOR, "{", "[")),
    ("no descriptor", |w| {
        w.remove(DESCRIPTOR);
    }),
    ("no record", |w| {
        w.remove(STREAM).remove(DESCRIPTOR);
    }),
    ("entry damaged", |w| replace(w, &entry(), "{", "[")),
    ("a folder for the entry", |w| {
        w.remove(entry()).folder(entry());
    }),
    ("entry off", |w| {
        replace(w, &entry(), "\"messages\": 2", "\"messages\": 3")
    }),
    ("entry without a hash", |w| {
        replace(w, &entry(), "journal_sha256", "journal_sha")
    }),
    ("marker damaged", |w| replace(w, MARKER, "{", "[")),
    ("a folder for the marker", |w| {
        w.remove(MARKER).folder(MARKER);
    }),
    ("marker off", |w| {
        replace(w, MARKER, "\"scanned\": ", "\"scanned\": 1")
    }),
];

/// What may become of the source.
const SOURCES: &[Change] = &[
    ("there", |_| ()),
    ("touched", |w| {
        w.mtime(SOURCE, WRITTEN_AT + 60);
    }),
    ("grown", |w| {
        let more = format!("{}\n", message("user", "more"));
        w.append(SOURCE, more).mtime(SOURCE, WRITTEN_AT + 60);
    }),
    ("moved", |w| {
        w.rename(SOURCE, "session_raw-p/1777709000_a.jsonl");
    }),
    ("gone", |w| {
        w.remove(SOURCE);
    }),
    ("all gone", |w| {
        w.remove(SOURCE).remove(format!("session_raw/{B}.jsonl"));
    }),
    ("broken", |w| {
        w.file(SOURCE, "no header\n").mtime(SOURCE, WRITTEN_AT + 60);
    }),
    ("accepted", |w| {
        w.file(SOURCE, "no header\n").mtime(SOURCE, WRITTEN_AT + 60);
        w.run(&[]).code(3);
        w.call("accept", &[A, "--reason", "x"]).code(0);
        w.run(&[]).code(0);
    }),
    ("parted, accepted", |w| {
        let more = format!("{}\n", message("user", "more"));
        w.append(SOURCE, more).mtime(SOURCE, WRITTEN_AT + 60);
        replace(w, STREAM, "two", "app");
        w.run(&[]).code(3);
        w.call("accept", &[A, "--reason", "x"]).code(0);
        w.run(&[]).code(0);
    }),
    ("damaged, accepted", |w| {
        w.mtime(SOURCE, WRITTEN_AT + 60);
        replace(w, STREAM, "two", "tWo");
        w.run(&[]).code(3);
        w.call("accept", &[A, "--reason", "x"]).code(0);
        w.run(&[]).code(0);
    }),
    ("behind", |w| {
        let text = w.read(STREAM);
        let on = r#"{"offset":2,"value":{"role":"user","content":"on"},"created_at_ms":5}"#;
        put(w, STREAM, format!("{text}{on}\n"));
    }),
];

/// Findings that a remedy is named for.
fn helped(report: &Value, is_by_run: bool) -> BTreeSet<(String, String)> {
    let all = report["findings"].as_array().unwrap().iter();
    let all = all.filter(|finding| (finding["remedy"] == "checksum") == is_by_run);
    all.map(|finding| {
        (
            finding["code"].to_string(),
            finding["session_key"].to_string(),
        )
    })
    .collect()
}

#[test]
fn a_run_is_proposed_where_it_helps_and_only_there() {
    let all = DAMAGES.par_iter();
    let all = all.flat_map_iter(|damage| SOURCES.iter().map(move |source| (damage, source)));
    let wrong: Vec<String> = all
        .flat_map_iter(|((damage, apply), (source, become_of))| {
            let mut wrong = Vec::new();
            let workspace = imported();
            become_of(&workspace);
            apply(&workspace);
            let before = verify(&workspace);
            let proposed = helped(&before, true);
            let text = workspace.call("verify", &[]);
            let is_named = text.stdout.contains("--checksum\n");
            let run = workspace.run(&["--checksum"]);
            let after = verify(&workspace);
            let left: BTreeSet<_> = &helped(&after, true) | &helped(&after, false);
            let stays: Vec<_> = proposed.intersection(&left).collect();
            if !stays.is_empty() || is_named == proposed.is_empty() {
                wrong.push(format!(
                    "{damage}, {source}: in vain, rc {}: {stays:?}",
                    run.code
                ));
            }
            let gone = &helped(&before, false) - &left;
            if !gone.is_empty() {
                wrong.push(format!("{damage}, {source}: helped all the same: {gone:?}"));
            }
            wrong
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Does what the report says.
fn follow(workspace: &Workspace, report: &Value, source: &str) {
    let store = |finding: &Value| {
        let file = finding["file"].as_str().unwrap();
        workspace.store().join(file)
    };
    let mut findings = report["findings"].as_array().unwrap().clone();
    // What is in the way goes first, and the run comes last.
    findings.sort_by_key(|finding| finding["remedy"] == "checksum");
    for finding in &findings {
        match finding["remedy"].as_str().unwrap() {
            "checksum" => drop(workspace.run(&["--checksum"])),
            "overwrite" => drop(workspace.run(&["--checksum", "--overwrite"])),
            "force" => drop(workspace.run(&["--force", "--overwrite"])),
            "mend_source" => {
                workspace.file(SOURCE, source);
                workspace.run(&["--checksum"]);
            }
            "copy_of_store" => {
                let key = finding["session_key"].as_str().unwrap_or_default();
                workspace.call("undo", &["--only", key, "--overwrite"]);
            }
            "move_away" => drop(fs::remove_dir(store(finding))),
            "remove" | "copy_or_remove" => {
                let file = store(finding);
                fs::remove_file(&file)
                    .or_else(|_| fs::remove_dir(file))
                    .unwrap();
            }
            other => panic!("{other}"),
        }
    }
}

#[test]
fn what_is_said_to_help_helps() {
    let all = DAMAGES.par_iter();
    let all = all.flat_map_iter(|damage| SOURCES.iter().map(move |source| (damage, source)));
    let wrong: Vec<String> = all
        .filter_map(|((damage, apply), (source, become_of))| {
            let workspace = imported();
            let text = workspace.read(SOURCE);
            become_of(&workspace);
            apply(&workspace);
            let mut told = Vec::new();
            // Something in the way hides what is behind it.
            for _ in 0..3 {
                let report = verify(&workspace);
                if report["clean"] == true {
                    return None;
                }
                told.push(report["findings"].to_string());
                follow(&workspace, &report, &text);
            }
            let left = verify(&workspace);
            (left["clean"] != true).then(|| format!("{damage}, {source}: {told:#?}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_single_character_is_one() {
    let workspace = Workspace::new();
    session(&workspace, A, &["a"]);
    workspace.run(&[]).code(0);
    replace(&workspace, STREAM, "\"a\"", "\"b\"");
    let verify = workspace.call("verify", &["--diff"]).code(3);
    verify.says("1 character each, different from character 1 on");
}

// What the next run does.

/// Insists that a run imports what `status` said, no more and no less, and
/// that nothing is left to do then.
#[track_caller]
fn run_does_what_status_says(workspace: &Workspace, new: u64) {
    let before = status(workspace);
    let work = ["failed", "new", "changed", "outdated", "to_look_at"];
    let announced: u64 = work.iter().map(|state| number(&before, state)).sum();
    assert_eq!(announced, new, "{before:#}");
    let report = workspace.run(&["--json"]).code(0).json();
    assert_eq!(report["imported"], new, "{report:#}");
    let after = status(workspace);
    assert_eq!(after["nothing_to_do"], true, "{after:#}");
}

#[test]
fn status_misses_nothing_and_settles() {
    let all = DAMAGES.par_iter();
    let all = all.flat_map_iter(|damage| SOURCES.iter().map(move |source| (damage, source)));
    let wrong: Vec<String> = all
        .flat_map_iter(|((damage, apply), (source, become_of))| {
            let workspace = imported();
            become_of(&workspace);
            apply(&workspace);
            let mut wrong = Vec::new();
            for turn in 1..=2 {
                let work = [
                    "failed",
                    "new",
                    "changed",
                    "outdated",
                    "earlier_importer",
                    "to_look_at",
                ];
                let said = status(&workspace);
                let announced: u64 = work.iter().map(|state| number(&said, state)).sum();
                let text = workspace.call("status", &[]).stdout;
                let proposes_run = text.contains("session-import run") && !text.contains("--check");
                let run = workspace.run(&["--json"]);
                let (code, report) = (run.code, run.json());
                let done = report["imported"].as_u64().unwrap();
                let what =
                    format!("{damage}, {source}, {turn}: {announced} announced, {done} done");
                if announced < done || (done > 0 && said["nothing_to_do"] == true) {
                    wrong.push(format!("{what}: missed"));
                }
                if turn == 2 && proposes_run && done == 0 && code == 0 {
                    wrong.push(format!("{what}: in vain\n{text}"));
                }
            }
            wrong
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn an_older_copy_is_looked_at_once_its_source_is_gone() {
    let workspace = Workspace::new();
    session(&workspace, A, &["one", "two"]);
    let copy = format!("{HEADER}\n{}\n", message("user", "one"));
    workspace.file(format!("session_raw/02042026/{A}.jsonl"), copy);
    workspace.run(&[]).code(0);
    assert_eq!(status(&workspace)["scanned"], 1);
    workspace.remove(SOURCE);
    run_does_what_status_says(&workspace, 1);
}

#[test]
fn a_view_is_looked_at_once_its_transcript_is_gone() {
    let workspace = Workspace::new();
    session(&workspace, A, &["one"]);
    let view = "# Session transcript — helper\n\n- Dispatcher: native\n\n---\n\n## [user]\n\none\n";
    workspace.file(format!("sessions/2026_05_02/{A}.md"), view);
    workspace.run(&[]).code(0);
    assert_eq!(status(&workspace)["scanned"], 1);
    workspace.remove(SOURCE);
    run_does_what_status_says(&workspace, 1);
}

#[test]
fn legacy_markdown_beside_a_transcript_may_be_a_session() {
    let workspace = Workspace::new();
    session(&workspace, A, &["one"]);
    let markdown = "<!-- session_transcript\nagent: helper\n-->\n\
                    <!--MSG role=\"user\"-->\nsomething else\n<!--/MSG-->\n";
    workspace.file(format!("sessions/02052026/{A}.md"), markdown);
    run_does_what_status_says(&workspace, 2);
}

fn record(id: &str, contents: &[&str]) -> Value {
    let history: Vec<_> = contents
        .iter()
        .map(|text| json!({"role": "user", "content": text}))
        .collect();
    json!({
        "subagentSessionId": id, "parentSession": A, "agentId": "h", "sandboxMode": "w",
        "taskKey": "k", "taskTitle": "t", "status": "idle", "reusable": true,
        "createdAt": "2026-01-01T00:00:00Z", "updatedAt": "2026-01-01T00:00:00Z",
        "lastUsedAt": "2026-01-01T00:00:00Z", "workerThreadId": format!("worker-{id}"),
        "latestHistory": history,
    })
}

/// Written just now, as the application does it.
fn subagents(workspace: &Workspace, records: &[Value]) {
    let path = workspace.path(SUBAGENTS);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, json!(records).to_string()).unwrap();
}

fn with_subagents() -> Workspace {
    let workspace = Workspace::new();
    session(&workspace, A, &["one"]);
    subagents(
        &workspace,
        &[record("s1", &["a", "b"]), record("s2", &["c"])],
    );
    workspace.run(&[]).code(0);
    workspace
}

#[test]
fn a_sub_agents_record_that_is_gone_is_without_a_source() {
    let workspace = with_subagents();
    assert_eq!(number(&status(&workspace), "up_to_date"), 3);
    subagents(&workspace, &[record("s1", &["a", "b"])]);
    assert_eq!(number(&status(&workspace), "to_look_at"), 2);
    workspace.run(&[]).code(0);
    let settled = status(&workspace);
    assert_eq!(settled["nothing_to_do"], true, "{settled:#}");
    assert_eq!(number(&settled, "source_gone"), 1);
    assert_eq!(number(&settled, "up_to_date"), 2);
}

#[test]
fn a_sub_agents_file_that_cannot_be_read_is_not_gone() {
    let workspace = with_subagents();
    let text = workspace.read(SUBAGENTS);
    put(&workspace, SUBAGENTS, &text[..text.len() - 9]);
    let report = verify(&workspace);
    assert_eq!(codes(&report, "findings"), ["source-unreadable"; 2]);
    assert_eq!(report["findings"][0]["remedy"], "mend_source");
    workspace.remove(SUBAGENTS);
    notes(&workspace, &["source-gone"; 2]);
}

#[test]
fn a_dry_run_tells_of_sub_agents_what_the_run_does() {
    let workspace = with_subagents();
    let stream = "tinyagents_store/journal/session.subagent-s1.messages.jsonl";
    let on = r#"{"offset":2,"value":{"role":"user","content":"on"},"created_at_ms":5}"#;
    workspace
        .append(stream, format!("{on}\n"))
        .append(SOURCE, format!("{}\n", message("user", "more")));
    let report = |arguments: &[&str]| {
        let mut report = workspace.run(arguments).code(0).json();
        let actions: Vec<String> = report["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| {
                item["action"]
                    .as_str()
                    .unwrap()
                    .replace("would_import", "imported")
            })
            .collect();
        (actions, report["bytes"].take(), report["skipped"].take())
    };
    let plan = report(&["--json", "-n"]);
    assert_eq!(plan, report(&["--json"]));
}

#[test]
fn a_damaged_entry_has_one_answer_everywhere() {
    let workspace = imported();
    replace(&workspace, &entry(), "{", "[");
    // As long as no name, size or time is another, entries are not read.
    workspace.run(&[]).code(0).says("Nothing to do");
    let report = status(&workspace);
    assert_eq!(number(&report, "outdated"), 1);
    assert_eq!(report["nothing_to_do"], false);
    for command in ["status", "verify"] {
        let said = workspace.call(command, &[]);
        assert!(said.stdout.contains("--checksum"), "{}", said.stdout);
    }
    support::call(&["--explain", "entry-damaged"]).says("`run --checksum` imports it again");
    workspace.run(&["--checksum"]).code(0);
    notes(&workspace, &[]);
    assert_eq!(status(&workspace)["nothing_to_do"], true);
}

#[test]
fn a_touched_source_is_not_called_changed() {
    let workspace = imported();
    workspace.mtime(SOURCE, WRITTEN_AT + 60);
    let said = workspace.call("status", &[]).code(0);
    said.says("import anew 1 session")
        .says("its size or time changed");
    // The entry gets the new time, whatever made the run look.
    workspace.run(&["--checksum"]).code(0);
    workspace.run(&[]).code(0).says("Nothing to do");
    assert_eq!(status(&workspace)["nothing_to_do"], true);
    workspace.call("verify", &["--strict"]).code(0);
}

#[test]
fn counts_say_what_they_count() {
    let workspace = Workspace::new();
    session(&workspace, A, &["one", "two"]);
    workspace.run(&[]).code(0);
    let said = workspace
        .call("status", &[])
        .says("1 session, 2 messages as imported");
    said.says("0 lines of their sources\n");
    session(&workspace, A, &["one"]);
    workspace.mtime(SOURCE, WRITTEN_AT + 60);
    workspace.run(&[]).code(0);
    let said = workspace.call("status", &[]).code(0);
    said.says("0 lines of their sources; and what sources had once, not counted");
    assert_eq!(status(&workspace)["dropped"], true);
}

#[test]
fn a_source_that_was_just_cut_short_is_waited_for_with_true_words() {
    let workspace = imported();
    fs::write(workspace.path(SOURCE), format!("{HEADER}\n")).unwrap();
    let run = workspace.run(&[]).code(3).says("changed-while-read");
    let run = run.says("it was written to less than 2 seconds ago, and it gave 0 messages");
    assert!(
        !run.stdout.contains("the application was writing"),
        "{}",
        run.stdout
    );
    workspace.mtime(SOURCE, WRITTEN_AT + 60);
    workspace.run(&[]).code(0);
}

#[test]
fn warnings_of_every_command_have_a_heading() {
    let workspace = imported();
    for (command, arguments) in [
        ("run", &["--only", "none"][..]),
        ("verify", &["--only", "none"]),
        ("undo", &["--only", "none"]),
    ] {
        let said = workspace.call(command, arguments).code(0);
        let said = said.says("Warnings\n\n  1 × nothing-selected  ");
        said.says("\n    no session key fits --only none\n");
    }
    replace(&workspace, &entry(), "{", "[");
    let said = workspace.call("status", &[]).code(0);
    said.says("Warnings\n\n  1 × entry-unusable  ");
}
