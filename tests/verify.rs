//! `verify`: what it finds, and that `run --checksum` mends it.

// Clippy takes only functions marked as tests for tests.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod support;

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use session_import::Error;
use session_import::model::interrupt::Interrupt;
use session_import::model::key::Sha256;
use session_import::ops::run::{Options, run};
use session_import::ops::verify::{VerifyOptions, verify};
use support::{HEADER, Outcome, WRITTEN_AT, Workspace};

/// A session without any oddity.
const PLAIN: &str = "1777709000_plain";
/// One with residue of several kinds.
const ODD: &str = "1777709001_odd";
/// One that was compacted.
const COMPACTED: &str = "1777709002_compacted";

/// Three sessions, imported, and each whole.
fn imported() -> Workspace {
    let workspace = Workspace::new();
    workspace
        .transcript(
            PLAIN,
            &[
                r#"{"role":"user","content":"one question"}"#,
                r#"{"role":"assistant","content":"one answer","model":"m-1"}"#,
                r#"{"role":"user","content":"another question"}"#,
            ],
        )
        .transcript(
            ODD,
            &[
                r#"{"role":"user","content":"hello"}"#,
                "no JSON at all",
                r#"{"role":"assistant","content":"half","interrupted":true}"#,
                "",
                r#"{"role":"assistant","content":"whole"}"#,
                HEADER,
            ],
        )
        .transcript(
            COMPACTED,
            &[
                r#"{"role":"user","content":"long ago"}"#,
                "broken before",
                r#"{"kind":"compaction","replacement":[{"role":"user","content":"in short"}]}"#,
                "broken behind",
                r#"{"role":"assistant","content":"since then"}"#,
            ],
        );
    workspace.run(&[]).code(0);
    workspace
}

fn stream(stem: &str) -> String {
    format!("tinyagents_store/journal/session.{stem}.messages.jsonl")
}

fn residue(stem: &str) -> String {
    format!("tinyagents_store/journal/session.{stem}.residue.jsonl")
}

fn descriptor(stem: &str) -> String {
    format!("tinyagents_store/kv/sessions/{stem}.json")
}

fn source(stem: &str) -> String {
    format!("session_raw/{stem}.jsonl")
}

fn entry(stem: &str) -> String {
    entry_of(&source(stem))
}

fn entry_of(source: &str) -> String {
    let key = Sha256::of(source.as_bytes());
    format!("tinyagents_store/kv/migration_items/{key}.json")
}

const MARKER: &str = "tinyagents_store/kv/migrations/session_import_v1.json";

/// Writes a file of the store anew, in place.
#[track_caller]
fn put(workspace: &Workspace, file: &str, bytes: impl AsRef<[u8]>) {
    let path = workspace.path(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

#[track_caller]
fn replace(workspace: &Workspace, file: &str, from: &str, to: &str) {
    let text = workspace.read(file);
    assert!(text.contains(from), "no '{from}' in {file}:\n{text}");
    put(workspace, file, text.replacen(from, to, 1));
}

#[track_caller]
fn edit(workspace: &Workspace, file: &str, change: impl FnOnce(&mut Value)) {
    let mut value = serde_json::from_str(&workspace.read(file)).unwrap();
    change(&mut value);
    put(workspace, file, serde_json::to_vec_pretty(&value).unwrap());
}

/// The hash of a file of the store.
fn hash(workspace: &Workspace, file: &str) -> Value {
    let bytes = fs::read(workspace.path(file)).unwrap();
    json!(Sha256::of(&bytes).to_string())
}

/// Makes an entry vouch for a file as it is now.
fn vouch(workspace: &Workspace, stem: &str, key: &str, file: &str) {
    let hash = hash(workspace, file);
    edit(workspace, &entry(stem), |entry| entry[key] = hash);
}

/// The codes of a list in the report.
fn codes(report: &Value, list: &str) -> Vec<String> {
    let all = report[list].as_array().unwrap();
    let codes = all.iter().map(|finding| finding["code"].as_str().unwrap());
    codes.map(str::to_owned).collect()
}

/// What `verify` says, which must have changed nothing at all.
#[track_caller]
fn report(workspace: &Workspace, arguments: &[&str], code: i32) -> Value {
    let before = workspace.tree();
    let all = [&["--json"], arguments].concat();
    let report = workspace.call("verify", &all).code(code).json();
    before.assert_same(&workspace.tree());
    support::assert_schema("verify", &report);
    report
}

/// Insists on a finding, and that a run mends it.
#[track_caller]
fn finds(code: &str, damage: impl FnOnce(&Workspace)) -> Value {
    let workspace = imported();
    damage(&workspace);
    let found = report(&workspace, &[], 3);
    assert_eq!(codes(&found, "findings"), [code], "{found:#}");
    assert_eq!(found["clean"], false);
    workspace.run(&["--checksum"]).code(0);
    let mended = report(&workspace, &[], 0);
    assert_eq!(mended["clean"], true, "{mended:#}");
    assert_eq!(codes(&mended, "notices"), [""; 0], "{mended:#}");
    assert_eq!(mended["checked"], 3);
    found["findings"][0].clone()
}

/// Insists on notices and on no finding.
#[track_caller]
fn notes(workspace: &Workspace, expected: &[&str]) -> Value {
    let found = report(workspace, &[], 0);
    assert_eq!(codes(&found, "findings"), [""; 0], "{found:#}");
    assert_eq!(codes(&found, "notices"), expected, "{found:#}");
    let strict = if expected.is_empty() { 0 } else { 3 };
    workspace.call("verify", &["--strict"]).code(strict);
    found
}

#[test]
fn a_fresh_import_is_clean() {
    let workspace = imported();
    let found = notes(&workspace, &[]);
    let numbers = ["sources", "entries", "checked", "messages", "residue"];
    let numbers = numbers.map(|name| found[name].as_u64().unwrap());
    assert_eq!(numbers, [3, 3, 3, 7, 7]);
    workspace
        .call("verify", &[])
        .code(0)
        .says("Nothing is wrong.");
}

#[test]
fn a_store_that_is_not_there_is_not_made() {
    let workspace = Workspace::new();
    workspace.transcript(PLAIN, &[r#"{"role":"user","content":"a"}"#]);
    notes(&workspace, &["not-imported"]);
    let empty = Workspace::new();
    notes(&empty, &[]);
}

// The stream of messages.

#[test]
fn a_changed_message_is_found() {
    let finding = finds("stream-changed", |workspace| {
        replace(workspace, &stream(PLAIN), "one answer", "one ansWer");
    });
    assert_eq!(finding["first_message"], 2);
    assert_eq!(finding["session_key"], PLAIN);
    assert_eq!(finding["source"], source(PLAIN));
    let message = finding["message"].as_str().unwrap();
    assert_eq!(
        message,
        "message 2 differs in content; 1 of 3 messages differ"
    );
}

#[test]
fn what_the_reader_drops_is_compared_too() {
    let finding = finds("stream-changed", |workspace| {
        replace(workspace, &stream(PLAIN), r#""m-1""#, r#""m-2""#);
    });
    let message = finding["message"].as_str().unwrap();
    assert!(
        message.contains("message 2 differs in session_import"),
        "{message}"
    );
}

#[test]
fn other_bytes_with_the_same_messages_are_found() {
    let finding = finds("stream-changed", |workspace| {
        replace(workspace, &stream(PLAIN), "one answer", r"one \u0061nswer");
    });
    assert_eq!(finding.get("first_message"), None);
}

#[test]
fn a_lost_message_is_found() {
    let finding = finds("stream-changed", |workspace| {
        let text = workspace.read(stream(PLAIN));
        let lines: Vec<_> = text.split_inclusive('\n').take(2).collect();
        put(workspace, &stream(PLAIN), lines.concat());
    });
    assert_eq!(finding["first_message"], 3);
    assert_eq!(finding["message"], "it holds 2 messages, the source 3");
}

#[test]
fn an_emptied_stream_is_found() {
    finds("stream-changed", |workspace| {
        put(workspace, &stream(PLAIN), "")
    });
}

#[test]
fn a_line_that_the_application_refuses_is_found() {
    let finding = finds("stream-refused", |workspace| {
        replace(
            workspace,
            &stream(PLAIN),
            r#""content":"one answer""#,
            r#""content":"one answer"#,
        );
    });
    assert!(finding["message"].as_str().unwrap().contains("line 2"));
    finds("stream-refused", |workspace| {
        let text = workspace.read(stream(PLAIN));
        put(workspace, &stream(PLAIN), &text[..text.len() - 9]);
    });
    finds("stream-refused", |workspace| {
        let mut bytes = fs::read(workspace.path(stream(PLAIN))).unwrap();
        bytes[40] = 0xff;
        put(workspace, &stream(PLAIN), bytes);
    });
}

#[test]
fn a_link_in_a_streams_place_is_found() {
    finds("stream-refused", |workspace| {
        workspace
            .rename(stream(PLAIN), "elsewhere")
            .link(stream(PLAIN), workspace.path("elsewhere"));
    });
}

#[test]
fn a_missing_stream_is_found() {
    finds("stream-missing", |workspace| {
        workspace.remove(stream(PLAIN));
    });
}

#[test]
fn a_gap_in_the_offsets_is_found() {
    let finding = finds("stream-gap", |workspace| {
        replace(
            workspace,
            &stream(PLAIN),
            r#"{"offset":1"#,
            r#"{"offset":2"#,
        );
    });
    assert_eq!(finding["first_message"], 2);
    // Vouched for, the gap is there all the same.
    finds("stream-gap", |workspace| {
        replace(
            workspace,
            &stream(PLAIN),
            r#"{"offset":2"#,
            r#"{"offset":3"#,
        );
        vouch(workspace, PLAIN, "journal_sha256", &stream(PLAIN));
    });
}

#[test]
fn swapped_streams_are_found() {
    let workspace = imported();
    let (one, other) = (stream(PLAIN), stream(ODD));
    workspace
        .rename(&one, "aside")
        .rename(&other, &one)
        .rename("aside", &other);
    let found = report(&workspace, &[], 3);
    assert_eq!(codes(&found, "findings"), ["stream-changed"; 2]);
    workspace.run(&["--checksum"]).code(0);
    notes(&workspace, &[]);
}

#[test]
fn a_stream_that_is_vouched_for_is_held_against_its_source() {
    let finding = finds("stream-differs", |workspace| {
        replace(workspace, &stream(PLAIN), "one answer", "one ansWer");
        vouch(workspace, PLAIN, "journal_sha256", &stream(PLAIN));
    });
    assert_eq!(finding["first_message"], 2);
    finds("stream-differs", |workspace| {
        replace(workspace, &stream(COMPACTED), "since then", "since When");
        vouch(workspace, COMPACTED, "journal_sha256", &stream(COMPACTED));
    });
}

// The residue.

#[test]
fn changed_residue_is_found() {
    let finding = finds("residue-changed", |workspace| {
        replace(workspace, &residue(ODD), "no JSON at all", "no JSON at aLl");
    });
    assert_eq!(finding["first_residue"], 1);
    assert_eq!(finding["message"], "residue record 1 differs in text");
    let finding = finds("residue-changed", |workspace| {
        replace(
            workspace,
            &residue(COMPACTED),
            "broken behind",
            "broken bEhind",
        );
    });
    assert_eq!(finding["first_residue"], 4);
}

#[test]
fn residue_before_a_compaction_is_compared() {
    let finding = finds("residue-changed", |workspace| {
        replace(
            workspace,
            &residue(COMPACTED),
            r#""why":"superseded""#,
            r#""why":"malformed""#,
        );
    });
    assert_eq!(finding["first_residue"], 1);
    assert_eq!(finding["message"], "residue record 1 differs in why");
}

#[test]
fn a_gap_in_the_residue_is_found() {
    let finding = finds("residue-changed", |workspace| {
        replace(workspace, &residue(ODD), r#"{"offset":1"#, r#"{"offset":7"#);
    });
    assert_eq!(finding["first_residue"], 2);
}

#[test]
fn cut_residue_is_found() {
    let finding = finds("residue-changed", |workspace| {
        let text = workspace.read(residue(ODD));
        let lines: Vec<_> = text.split_inclusive('\n').take(1).collect();
        put(workspace, &residue(ODD), lines.concat());
    });
    assert_eq!(finding["first_residue"], 2);
}

#[test]
fn damaged_residue_is_found() {
    finds("residue-refused", |workspace| {
        replace(workspace, &residue(ODD), r#"{"offset":1"#, r#"{"offset":x"#);
    });
}

#[test]
fn missing_residue_is_found() {
    finds("residue-missing", |workspace| {
        workspace.remove(residue(ODD));
    });
}

#[test]
fn residue_of_a_session_that_left_none_is_found() {
    finds("residue-extra", |workspace| {
        fs::copy(workspace.path(residue(ODD)), workspace.path(residue(PLAIN))).unwrap();
    });
}

#[test]
fn residue_that_is_vouched_for_is_held_against_its_source() {
    finds("residue-differs", |workspace| {
        replace(workspace, &residue(ODD), "no JSON at all", "no JSON at aLl");
        vouch(workspace, ODD, "residue_sha256", &residue(ODD));
    });
}

#[test]
fn residue_that_nothing_vouches_for_is_found_and_kept() {
    let workspace = imported();
    let orphan = residue("1777700000_gone");
    fs::copy(workspace.path(residue(ODD)), workspace.path(&orphan)).unwrap();
    let found = report(&workspace, &[], 3);
    assert_eq!(codes(&found, "findings"), ["residue-orphan"]);
    // It may be the only copy.
    workspace.run(&["--checksum"]).code(0);
    assert!(workspace.path(&orphan).exists());
    workspace
        .call("verify", &[])
        .code(3)
        .says("--explain residue-orphan");
}

#[test]
fn messages_that_only_the_residue_holds_survive_mending() {
    let workspace = imported();
    // The application rewrote the file, shorter.
    workspace.transcript(
        PLAIN,
        &[
            r#"{"role":"user","content":"one question"}"#,
            r#"{"role":"assistant","content":"one answer","model":"m-1"}"#,
        ],
    );
    workspace.run(&[]).code(0);
    notes(&workspace, &[]);
    let dropped = || workspace.read(residue(PLAIN)).contains("another question");
    assert!(dropped());
    let damage: [&dyn Fn(); 4] = [
        &|| replace(&workspace, &stream(PLAIN), "one answer", "one ansWer"),
        &|| {
            replace(
                &workspace,
                &stream(PLAIN),
                r#"{"offset":1"#,
                r#"{"offset":x"#,
            )
        },
        &|| workspace.remove(entry(PLAIN)).remove(MARKER).ignore(),
        &|| {
            let text = workspace.read(residue(PLAIN));
            put(&workspace, &residue(PLAIN), format!("garbage\n{text}"));
        },
    ];
    for (number, damage) in damage.iter().enumerate() {
        damage();
        workspace.run(&["--checksum"]).code(0);
        assert!(dropped(), "damage {number}");
        notes(&workspace, &[]);
    }
}

trait Ignore {
    fn ignore(&self) {}
}
impl Ignore for Workspace {}

// The descriptor.

#[test]
fn a_changed_descriptor_is_found() {
    let finding = finds("descriptor-changed", |workspace| {
        replace(
            workspace,
            &descriptor(PLAIN),
            r#""agent_name": "helper""#,
            r#""agent_name": "hElper""#,
        );
    });
    assert_eq!(finding["message"], "its descriptor differs in agent_name");
    let finding = finds("descriptor-changed", |workspace| {
        replace(workspace, &descriptor(PLAIN), "{", "{ ");
    });
    let message = "its descriptor's bytes are not those that were written";
    assert_eq!(finding["message"], message);
    assert_eq!(finding["file"], "kv/sessions/1777709000_plain.json");
}

#[test]
fn a_damaged_descriptor_is_found() {
    finds("descriptor-damaged", |workspace| {
        replace(workspace, &descriptor(PLAIN), "{", "");
    });
    finds("descriptor-damaged", |workspace| {
        replace(
            workspace,
            &descriptor(PLAIN),
            r#""agent_name""#,
            r#""agent_nAme""#,
        );
    });
    finds("descriptor-damaged", |workspace| {
        put(workspace, &descriptor(PLAIN), "")
    });
}

#[test]
fn a_missing_descriptor_is_found() {
    finds("descriptor-missing", |workspace| {
        workspace.remove(descriptor(PLAIN));
    });
}

#[test]
fn a_descriptor_that_is_vouched_for_is_held_against_its_source() {
    let finding = finds("descriptor-differs", |workspace| {
        edit(workspace, &descriptor(PLAIN), |it| {
            it["usage"]["input"] = json!(41)
        });
        vouch(workspace, PLAIN, "descriptor_sha256", &descriptor(PLAIN));
    });
    assert_eq!(finding["message"], "its descriptor differs in usage");
}

#[test]
fn a_record_that_is_gone_is_found() {
    finds("record-missing", |workspace| {
        workspace.remove(stream(PLAIN)).remove(descriptor(PLAIN));
    });
}

// The item ledger.

#[test]
fn a_damaged_entry_is_found() {
    finds("entry-damaged", |workspace| {
        replace(workspace, &entry(PLAIN), "{", "")
    });
    finds("entry-damaged", |workspace| {
        put(workspace, &entry(PLAIN), "")
    });
    finds("entry-damaged", |workspace| {
        replace(workspace, &entry(PLAIN), r#""messages""#, r#""mEssages""#);
    });
}

#[test]
fn a_missing_entry_is_found() {
    let finding = finds("marker-counts", |workspace| {
        workspace.remove(entry(PLAIN));
    });
    let message = finding["message"].as_str().unwrap();
    assert!(
        message.ends_with("without an entry: 1777709000_plain"),
        "{message}"
    );
}

#[test]
fn wrong_fields_of_an_entry_are_found() {
    let wrong: [(&str, Value); 16] = [
        ("messages", json!(4)),
        ("size", json!(1)),
        ("source", json!("session_raw/other.jsonl")),
        ("generation", json!(2)),
        ("compactions", json!(1)),
        ("interrupted", json!(1)),
        ("rejected", json!(2)),
        ("lossy", json!(true)),
        ("salvaged", json!(true)),
        ("profile", json!("work")),
        ("session_id", json!("x")),
        ("unmapped_meta", json!({"a": 1})),
        ("first_header", json!("x")),
        ("imported_at", json!("2020-01-01T00:00:00.000Z")),
        ("kind", json!("markdown")),
        ("tool", json!({"name": "another", "version": "1"})),
    ];
    for (key, value) in wrong {
        let finding = finds("entry-differs", |workspace| {
            edit(workspace, &entry(PLAIN), |entry| entry[key] = value.clone());
        });
        let message = finding["message"].as_str().unwrap();
        let is_named = message.ends_with(&format!("wrong in {key}"));
        assert!(is_named || key == "source", "{key}: {message}");
    }
}

#[test]
fn missing_fields_of_an_entry_are_found() {
    // Nothing reads these.
    for (from, to) in [("{", "{ "), ("\n}", ",\n  \"x\": 1\n}")] {
        finds("entry-differs", |workspace| {
            replace(workspace, &entry(PLAIN), from, to);
        });
    }
    for key in [
        "rules",
        "tool",
        "journal_sha256",
        "kind",
        "generation",
        "lines",
    ] {
        finds("entry-differs", |workspace| {
            edit(workspace, &entry(PLAIN), |entry| {
                entry.as_object_mut().unwrap().remove(key).unwrap();
            });
        });
    }
}

#[test]
fn a_sum_of_lines_that_is_off_is_found() {
    finds("lines-off", |workspace| {
        edit(workspace, &entry(ODD), |entry| {
            entry["lines"]["total"] = json!(8)
        });
    });
    finds("lines-off", |workspace| {
        edit(workspace, &entry(ODD), |entry| {
            entry["lines"]["residue"] = json!(2);
            entry["lines"]["blank"] = json!(2);
        });
    });
}

#[test]
fn hashes_of_an_entry_that_are_stale_are_found() {
    let stale = json!(Sha256::of(b"something else").to_string());
    let set = |key: &'static str| {
        let stale = stale.clone();
        move |workspace: &Workspace| {
            edit(workspace, &entry(ODD), |entry| entry[key] = stale);
        }
    };
    finds("stream-changed", set("journal_sha256"));
    finds("residue-changed", set("residue_sha256"));
    finds("descriptor-changed", set("descriptor_sha256"));
    finds("source-silent", set("sha256"));
    finds("residue-extra", |workspace| {
        edit(workspace, &entry(ODD), |entry| {
            entry
                .as_object_mut()
                .unwrap()
                .remove("residue_sha256")
                .unwrap();
        });
    });
    finds("residue-missing", |workspace| {
        edit(workspace, &entry(PLAIN), |entry| {
            entry["residue_sha256"] = stale.clone()
        });
    });
}

#[test]
fn a_source_changed_behind_its_time_is_found() {
    let finding = finds("source-silent", |workspace| {
        replace(workspace, &source(PLAIN), "one answer", "two answer");
        workspace.mtime(source(PLAIN), WRITTEN_AT);
    });
    assert_eq!(finding["session_key"], PLAIN);
}

#[test]
fn a_session_key_once_given_survives_damage() {
    let workspace = imported();
    edit(&workspace, &entry(PLAIN), |entry| {
        entry["session_key"] = json!("another")
    });
    let found = report(&workspace, &[], 3);
    assert_eq!(codes(&found, "findings"), ["entry-differs"]);
    workspace.run(&["--checksum"]).code(0);
    notes(&workspace, &[]);
    let entry: Value = serde_json::from_str(&workspace.read(entry(PLAIN))).unwrap();
    assert_eq!(entry["session_key"], PLAIN);
    assert_eq!(entry.get("replaced"), None);
}

#[test]
fn an_entry_that_names_another_stream_is_mended() {
    let workspace = imported();
    edit(&workspace, &entry(PLAIN), |entry| {
        entry["stream"] = json!("session.another.messages")
    });
    let found = report(&workspace, &[], 3);
    assert_eq!(codes(&found, "findings"), ["record-missing"]);
    workspace.run(&["--checksum"]).code(0);
    notes(&workspace, &[]);
    assert!(!workspace.path(stream("another")).exists());
    // One with residue too.
    edit(&workspace, &entry(ODD), |entry| {
        entry["stream"] = json!("session.another.messages");
    });
    let found = report(&workspace, &[], 3);
    assert_eq!(codes(&found, "findings"), ["record-missing"]);
    workspace.run(&["--checksum"]).code(0);
    notes(&workspace, &[]);
}

#[test]
fn two_entries_of_one_session_are_found() {
    let workspace = imported();
    let taken = json!(format!("session.{ODD}.messages"));
    edit(&workspace, &entry(PLAIN), |entry| entry["stream"] = taken);
    let found = report(&workspace, &[], 3);
    assert_eq!(codes(&found, "findings"), ["key-collision"]);
    assert_eq!(found["findings"][0]["session_key"], PLAIN);
    workspace.run(&["--checksum"]).code(0);
    notes(&workspace, &[]);

    edit(&workspace, &entry(PLAIN), |entry| {
        entry["session_key"] = json!(ODD)
    });
    let found = report(&workspace, &[], 3);
    assert_eq!(codes(&found, "findings"), ["key-collision"]);
    workspace.run(&["--checksum"]).code(0);
    notes(&workspace, &[]);
}

#[test]
fn the_old_entry_of_a_source_that_moved_goes() {
    // As if the import had been killed between the new entry and the old one.
    let workspace = imported();
    let old = entry_of("session_raw/02052026/1777709000_plain.jsonl");
    fs::copy(workspace.path(entry(PLAIN)), workspace.path(&old)).unwrap();
    edit(&workspace, &old, |entry| {
        entry["source"] = json!("session_raw/02052026/1777709000_plain.jsonl");
    });
    let found = report(&workspace, &[], 3);
    assert_eq!(codes(&found, "findings"), ["key-collision"]);
    workspace.run(&["--checksum"]).code(0);
    notes(&workspace, &[]);
    assert!(!workspace.path(&old).exists());
}

// The marker and the failures.

#[test]
fn a_marker_that_is_wrong_is_found() {
    finds("marker-counts", |workspace| {
        edit(workspace, MARKER, |marker| {
            marker["scanned"] = json!(4);
            marker["imported"] = json!(4);
        });
    });
    finds("marker-counts", |workspace| {
        edit(workspace, MARKER, |marker| marker["imported"] = json!(1));
    });
    finds("marker-counts", |workspace| {
        edit(workspace, MARKER, |marker| marker["failed"] = json!(1));
    });
    finds("marker-damaged", |workspace| put(workspace, MARKER, "{"));
    finds("marker-damaged", |workspace| put(workspace, MARKER, ""));
    finds("marker-damaged", |workspace| {
        replace(workspace, MARKER, "warnings", "warnIngs");
    });
}

#[test]
fn a_failure_beside_a_marker_is_found() {
    let failure = json!({
        "source": source(PLAIN), "session_key": PLAIN, "code": "unreadable",
        "message": "no", "size": 1, "mtime_ms": 1, "at": "2026-05-02T08:10:00.000Z"
    });
    let file = entry(PLAIN).replace("migration_items", "session_import.failed");
    let workspace = imported();
    put(&workspace, &file, failure.to_string());
    let found = report(&workspace, &[], 3);
    assert_eq!(codes(&found, "findings"), ["marker-with-failures"]);
    assert_eq!(codes(&found, "notices"), ["failed-item"]);
    workspace.run(&["--checksum"]).code(0);
    notes(&workspace, &[]);
    finds("failure-damaged", |workspace| put(workspace, &file, "{"));
}

#[test]
fn failed_items_are_notices() {
    let workspace = imported();
    workspace.file(source("1777709009_bad"), "no header\n");
    workspace.run(&[]).code(3);
    let found = notes(&workspace, &["no-marker", "failed-item"]);
    let message = found["notices"][1]["message"].as_str().unwrap();
    assert!(message.starts_with("no-header: "), "{message}");
    workspace
        .call("accept", &[&source("1777709009_bad"), "--reason", "a test"])
        .code(0);
    workspace.run(&[]).code(0);
    notes(&workspace, &["accepted-item"]);
    workspace.append(source("1777709009_bad"), "more\n");
    notes(&workspace, &["source-changed", "accepted-item"]);
}

// Sources since the import.

#[test]
fn changed_touched_and_new_sources_are_notices() {
    let workspace = imported();
    workspace.append(source(PLAIN), "{\"role\":\"user\",\"content\":\"more\"}\n");
    let found = notes(&workspace, &["source-changed"]);
    assert_eq!(found["checked"], 2);
    workspace.mtime(source(ODD), WRITTEN_AT + 60);
    let found = notes(&workspace, &["source-changed", "source-touched"]);
    assert_eq!(found["checked"], 2);
    workspace.transcript("1777709003_new", &[r#"{"role":"user","content":"a"}"#]);
    notes(
        &workspace,
        &["source-changed", "source-touched", "not-imported"],
    );
    workspace
        .call("verify", &[])
        .code(0)
        .says("Next, to import what is new or changed:");
    workspace.run(&[]).code(0);
    notes(&workspace, &[]);
}

#[test]
fn a_changed_sources_record_is_held_against_its_entry() {
    let workspace = imported();
    workspace.append(source(PLAIN), "{\"role\":\"user\",\"content\":\"more\"}\n");
    replace(&workspace, &stream(PLAIN), "one answer", "one ansWer");
    let found = report(&workspace, &[], 3);
    assert_eq!(codes(&found, "findings"), ["stream-diverged"]);
    assert_eq!(found["findings"][0]["first_message"], 2);
    workspace.run(&["--checksum"]).code(3);
    workspace.run(&["--overwrite"]).code(0);
    notes(&workspace, &[]);
    workspace
        .append(source(ODD), "\n")
        .mtime(source(ODD), WRITTEN_AT + 60);
    edit(&workspace, &entry(ODD), |entry| {
        entry["messages"] = json!(9)
    });
    let found = report(&workspace, &[], 3);
    assert_eq!(codes(&found, "findings"), ["entry-differs"]);
    workspace.run(&[]).code(0);
    notes(&workspace, &[]);
}

#[test]
fn a_source_that_is_gone_leaves_its_record() {
    let workspace = imported();
    workspace.remove(source(ODD));
    let found = notes(&workspace, &["source-gone"]);
    assert_eq!(found["checked"], 2);
    assert_eq!(found["notices"][0]["source"], source(ODD));
    replace(&workspace, &stream(ODD), "whole", "wHole");
    let found = report(&workspace, &[], 3);
    assert_eq!(codes(&found, "findings"), ["stream-changed"]);
}

#[test]
fn a_source_that_moved_is_held_against_its_record() {
    let workspace = imported();
    workspace.rename(source(ODD), format!("session_raw/02052026/{ODD}.jsonl"));
    let found = notes(&workspace, &["source-moved"]);
    assert_eq!(found["checked"], 3);
    workspace.run(&[]).code(0);
    notes(&workspace, &[]);
}

#[test]
fn a_source_that_became_a_copy_of_another_is_a_notice() {
    let workspace = Workspace::new();
    workspace.transcript(PLAIN, &[r#"{"role":"user","content":"a"}"#]);
    let other = format!("session_raw-work/{PLAIN}.jsonl");
    workspace.file(
        &other,
        format!("{HEADER}\n{{\"role\":\"user\",\"content\":\"b\"}}\n"),
    );
    workspace.run(&[]).code(0);
    notes(&workspace, &[]);
    fs::copy(workspace.path(source(PLAIN)), workspace.path(&other)).unwrap();
    let found = report(&workspace, &[], 0);
    assert_eq!(codes(&found, "findings"), [""; 0], "{found:#}");
    assert!(
        codes(&found, "notices").contains(&"source-absorbed".to_owned()),
        "{found:#}"
    );
}

#[cfg(unix)]
#[test]
fn what_cannot_be_read_is_a_finding() {
    let workspace = imported();
    workspace
        .folder("session_raw-locked")
        .mode("session_raw-locked", 0);
    if fs::read_dir(workspace.path("session_raw-locked")).is_ok() {
        // Root reads everything.
        workspace.mode("session_raw-locked", 0o700);
        return;
    }
    let outcome = workspace.call("verify", &["--json"]);
    workspace.mode("session_raw-locked", 0o700);
    assert_eq!(
        codes(&outcome.code(3).json(), "findings"),
        ["source-unreadable"]
    );
}

// The application, and other importers.

/// A record as the application writes it.
fn of_application(offset: usize, role: &str, content: &str) -> String {
    let value = json!({"role": role, "content": content});
    format!(
        "{}\n",
        json!({"offset": offset, "value": value, "created_at_ms": 1_777_800_000_000_u64})
    )
}

/// The plain session as the application mirrors it, and these behind it.
fn mirror(workspace: &Workspace, behind: &[&str]) {
    let mut lines = vec![
        of_application(0, "user", "one question"),
        of_application(1, "assistant", "one answer"),
        of_application(2, "user", "another question"),
    ];
    for content in behind {
        lines.push(of_application(lines.len(), "assistant", content));
    }
    put(workspace, &stream(PLAIN), lines.concat());
    edit(workspace, &descriptor(PLAIN), |it| {
        it["turn_count"] = json!(2);
        it["import"]["imported_at"] = json!("2026-05-03T00:00:00.000Z");
    });
}

#[test]
fn a_session_that_the_application_goes_on_in_is_a_notice() {
    let workspace = imported();
    mirror(&workspace, &["one more", "and another"]);
    let found = notes(&workspace, &["written-on"]);
    let message = found["notices"][0]["message"].as_str().unwrap();
    assert_eq!(
        message,
        "it agrees with all 3 messages of the source, and has 2 more"
    );
    // The source follows.
    workspace.append(
        source(PLAIN),
        "{\"role\":\"assistant\",\"content\":\"one more\"}\n",
    );
    let found = notes(&workspace, &["source-changed", "written-on"]);
    let message = found["notices"][1]["message"].as_str().unwrap();
    assert_eq!(
        message,
        "it agrees with all 4 messages of the source, and has 1 more"
    );
    workspace.append(
        source(PLAIN),
        "{\"role\":\"assistant\",\"content\":\"and another\"}\n",
    );
    notes(&workspace, &["source-changed", "written-on"]);
    workspace.run(&[]).code(0);
    notes(&workspace, &[]);
}

#[test]
fn a_mirror_without_anything_new_is_damage() {
    finds("stream-changed", |workspace| {
        put(
            workspace,
            &stream(PLAIN),
            of_application(0, "user", "one question"),
        );
    });
}

#[test]
fn the_applications_own_records_are_notices() {
    let workspace = imported();
    let lines = [
        of_application(0, "user", "one question"),
        of_application(1, "assistant", "one answer"),
        of_application(2, "user", "another question"),
    ];
    put(&workspace, &stream("1777800000_live"), lines.concat());
    let found = notes(&workspace, &["unfinished-record"]);
    assert_eq!(
        found["notices"][0]["file"],
        "journal/session.1777800000_live.messages.jsonl"
    );
    let value = workspace.read(descriptor(PLAIN));
    let value = value.replace(PLAIN, "1777800000_live");
    put(&workspace, &descriptor("1777800000_live"), value);
    let found = notes(&workspace, &["application-record"]);
    assert_eq!(found["notices"][0]["session_key"], "1777800000_live");
    // With a source of its own it is compared with that.
    let message = r#"{"role":"user","content":"one question"}"#;
    workspace.transcript("1777800000_live", &[message]);
    let found = notes(&workspace, &["application-record"]);
    let message = found["notices"][0]["message"].as_str().unwrap();
    assert!(
        message.contains("all 1 message of the source, and has 2 more"),
        "{message}"
    );
    workspace.run(&[]).code(0);
    notes(&workspace, &["application-record"]);
}

#[test]
fn a_record_whose_entry_and_source_are_gone_is_a_notice() {
    let workspace = imported();
    workspace.remove(entry(PLAIN)).remove(source(PLAIN));
    let found = report(&workspace, &[], 3);
    assert_eq!(codes(&found, "findings"), ["marker-counts"]);
    assert_eq!(codes(&found, "notices"), ["unfinished-record"]);
    workspace.run(&["--checksum"]).code(0);
    notes(&workspace, &["unfinished-record"]);
}

#[test]
fn salvage_is_remembered_where_the_entry_is_damaged_or_gone() {
    let workspace = Workspace::new();
    workspace.transcript(
        PLAIN,
        &[
            r#"{"role":"user","content":"a"}"#,
            r#"{"role":"assistant","content":null}"#,
            r#"{"role":"user","content":"b"}"#,
        ],
    );
    workspace.run(&["--salvage"]).code(0);
    notes(&workspace, &[]);
    let salvaged = || workspace.read(stream(PLAIN)).contains("salvaged");
    assert!(salvaged());
    put(&workspace, &entry(PLAIN), "{");
    let found = report(&workspace, &[], 3);
    assert_eq!(codes(&found, "findings"), ["entry-damaged"]);
    workspace.run(&["--checksum"]).code(0);
    notes(&workspace, &[]);
    workspace.remove(entry(PLAIN));
    let found = report(&workspace, &[], 3);
    assert_eq!(codes(&found, "findings"), ["marker-counts"]);
    workspace.run(&["--checksum"]).code(0);
    notes(&workspace, &[]);
    put(&workspace, &entry(PLAIN), "{");
    // A file that is damaged in place is nothing that a cache notices.
    workspace.remove("tinyagents_store/.session-import.stat");
    workspace.run(&[]).code(0);
    notes(&workspace, &[]);
    assert!(salvaged());
}

#[test]
fn entries_of_the_earlier_importer_are_notices() {
    let workspace = imported();
    edit(&workspace, &entry(PLAIN), |entry| {
        let keys = [
            "version",
            "session_key",
            "source",
            "size",
            "mtime_ms",
            "stream",
            "messages",
            "imported_at",
        ];
        entry
            .as_object_mut()
            .unwrap()
            .retain(|key, _| keys.contains(&key.as_str()));
    });
    workspace.remove(MARKER);
    notes(&workspace, &["no-marker", "older-importer"]);
    workspace.run(&[]).code(0);
    notes(&workspace, &[]);
}

#[test]
fn entries_by_other_rules_are_held_against_themselves() {
    let workspace = imported();
    edit(&workspace, &entry(PLAIN), |entry| entry["rules"] = json!(0));
    let found = notes(&workspace, &["other-rules"]);
    assert_eq!(found["checked"], 2);
    replace(
        &workspace,
        &stream(PLAIN),
        r#"{"offset":1"#,
        r#"{"offset":x"#,
    );
    let found = report(&workspace, &[], 3);
    assert_eq!(codes(&found, "findings"), ["stream-refused"]);
}

#[test]
fn an_unsettled_session_is_a_notice() {
    let workspace = imported();
    edit(&workspace, &entry(PLAIN), |entry| {
        entry["unsettled"] = json!(true)
    });
    notes(&workspace, &["unsettled"]);
    // An entry is never changed in place, and so the cache need not notice.
    workspace.remove("tinyagents_store/.session-import.stat");
    workspace.run(&[]).code(0);
    notes(&workspace, &[]);
}

#[test]
fn a_parent_that_came_later_is_a_notice() {
    let workspace = Workspace::new();
    let message = r#"{"role":"user","content":"a"}"#;
    workspace.transcript("1777709000_a__1777709001_b", &[message]);
    workspace.run(&[]).code(0);
    notes(&workspace, &[]);
    workspace.transcript("1777709000_a", &[message]);
    workspace.run(&[]).code(0);
    let found = notes(&workspace, &["lineage-outdated"]);
    let message = found["notices"][0]["message"].as_str().unwrap();
    assert_eq!(message, "what is known of its parent changed since");
    workspace.run(&["--force"]).code(0);
    notes(&workspace, &[]);
}

#[test]
fn sub_agents_histories_are_verified() {
    let workspace = imported();
    let record = |content: &str| {
        json!([{
            "subagentSessionId": "s1", "parentSession": PLAIN, "workerThreadId": "w1",
            "agentId": "coder", "sandboxMode": "none", "taskKey": "k", "status": "closed",
            "reusable": false, "createdAt": "2026-05-02T08:00:00Z",
            "updatedAt": "2026-05-02T08:00:00Z", "lastUsedAt": "2026-05-02T08:00:00Z",
            "latestHistory": [{"role": "user", "content": content}, {"bad": 1}],
        }])
    };
    let file = ".openhuman/subagent_sessions.json";
    workspace.file(file, record("do it").to_string());
    workspace.run(&[]).code(0);
    let found = notes(&workspace, &[]);
    assert_eq!(found["checked"], 4);
    replace(&workspace, &stream("subagent-s1"), "do it", "do iT");
    let found = report(&workspace, &[], 3);
    assert_eq!(codes(&found, "findings"), ["stream-changed"]);
    workspace.run(&["--checksum"]).code(0);
    notes(&workspace, &[]);
    workspace.file(file, record("do more").to_string());
    notes(&workspace, &["source-changed"]);
    workspace.file(file, "[]");
    notes(&workspace, &["source-gone"]);
}

// The store.

#[test]
fn a_leftover_file_is_a_notice() {
    let workspace = imported();
    let folder = "tinyagents_store/journal";
    put(
        &workspace,
        &format!("{folder}/.session-import-abc123.tmp"),
        "x",
    );
    let found = notes(&workspace, &["leftover-file"]);
    assert_eq!(
        found["notices"][0]["file"],
        "journal/.session-import-abc123.tmp"
    );
    workspace.run(&["--checksum"]).code(0);
    notes(&workspace, &[]);
}

#[test]
fn a_store_without_its_format_is_a_notice() {
    let workspace = imported();
    workspace.remove("tinyagents_store/kv/session_import.meta/format.json");
    notes(&workspace, &["no-format"]);
    workspace.run(&["--checksum"]).code(0);
    notes(&workspace, &[]);
}

#[test]
fn the_report_of_an_import_that_is_damaged_is_a_notice() {
    let workspace = imported();
    let folder = workspace.path("tinyagents_store/kv/session_import.imports");
    let file = fs::read_dir(folder)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    fs::write(file, "{").unwrap();
    notes(&workspace, &["import-report-damaged"]);
}

#[test]
fn a_running_import_is_waited_for() {
    let workspace = imported();
    let lock = workspace.hold_lock();
    let outcome = workspace.call("verify", &["--json"]).code(11);
    assert_eq!(outcome.json()["error"]["code"], "locked");
    workspace
        .call("verify", &["--retry-lock", "200ms"])
        .code(11);
    drop(lock);
    workspace.call("verify", &[]).code(0);
}

#[test]
fn a_stop_ends_it() {
    let workspace = imported();
    let interrupt = Interrupt::default();
    interrupt.stop();
    let options = VerifyOptions {
        workspace: Some(workspace.root()),
        interrupt,
        ..VerifyOptions::default()
    };
    assert!(matches!(verify(&options, &mut ()), Err(Error::Interrupted)));
}

#[test]
fn another_workspaces_store_is_refused() {
    let workspace = imported();
    let other = Workspace::new();
    let store: PathBuf = other.home().join("store");
    let store = store.to_str().unwrap();
    workspace.run(&["--store", store]).code(0);
    notes_of(&workspace, &["--store", store]);
    other.call("verify", &["--store", store]).code(1);
}

#[track_caller]
fn notes_of(workspace: &Workspace, arguments: &[&str]) {
    let found = report(workspace, arguments, 0);
    assert_eq!(codes(&found, "findings"), [""; 0], "{found:#}");
    assert_eq!(codes(&found, "notices"), [""; 0], "{found:#}");
}

#[test]
fn only_what_is_meant_is_looked_at() {
    let workspace = imported();
    replace(&workspace, &stream(PLAIN), "one answer", "one ansWer");
    workspace.remove(MARKER);
    let found = report(&workspace, &["--only", "*_odd", "--only", "*_compacted"], 0);
    let numbers = ["sources", "entries", "checked"].map(|name| found[name].as_u64().unwrap());
    assert_eq!(numbers, [2, 2, 2]);
    assert_eq!(codes(&found, "notices"), [""; 0]);
    let found = report(&workspace, &["--only", "*_plain"], 3);
    assert_eq!(codes(&found, "findings"), ["stream-changed"]);
    workspace.call("verify", &["--only", "[", "--json"]).code(2);
    workspace
        .call("verify", &["--only", "*_plain"])
        .code(3)
        .says("--only '*_plain' --checksum");
}

/// Damage of every kind at any place, always the same: nothing that `run
/// --checksum` leaves is a finding, and whatever is no finding is harmless.
#[test]
fn damage_anywhere_is_found_and_mended() {
    let workspace = imported();
    let whole = workspace.tree().contents();
    let files = whole.paths("tinyagents_store/");
    let files: Vec<PathBuf> = files.iter().map(|file| workspace.path(file)).collect();
    let is_record = |file: &&PathBuf| {
        let path = file.to_str().unwrap();
        // The format record decides whose the store is, so that is refused;
        // reports of imports are history.
        let is_other = path.contains("/.session-import") || path.contains("/session_import.");
        file.is_file() && !is_other
    };
    let files: Vec<&PathBuf> = files.iter().filter(is_record).collect();
    let verified = || {
        let options = VerifyOptions {
            workspace: Some(workspace.root()),
            ..VerifyOptions::default()
        };
        verify(&options, &mut ()).unwrap()
    };
    let mend = Options {
        workspace: Some(workspace.root()),
        checksum: true,
        ..Options::default()
    };
    let mut number = 88_172_645_463_325_252_u64;
    let mut below = |limit: usize| {
        number ^= number << 13;
        number ^= number >> 7;
        number ^= number << 17;
        usize::try_from(number % u64::try_from(limit).unwrap()).unwrap()
    };
    for round in 0..200 {
        let file = files[below(files.len())];
        let before = fs::read(file).unwrap();
        let mut bytes = before.clone();
        let at = below(bytes.len());
        match below(5) {
            0 => bytes[at] ^= 1 << below(8),
            1 => bytes[at] = u8::try_from(below(256)).unwrap(),
            2 => bytes.truncate(at),
            3 => drop(bytes.remove(at)),
            _ => bytes.insert(at, bytes[at]),
        }
        if bytes == before {
            continue;
        }
        fs::write(file, &bytes).unwrap();
        let found = verified();
        let about = format!("round {round}, byte {at} of {}: {found:#?}", file.display());
        // A source's time that is wrong is a notice.
        let is_told = found.findings.len() == 1 || !found.notices.is_empty();
        assert!(
            is_told || is_same_but_for_history(&before, &bytes),
            "{about}"
        );
        run(&mend, &mut ()).unwrap();
        let mended = verified();
        assert!(mended.clean, "{about}\n{mended:#?}");
    }
}

/// Whether two records differ only in what nobody can tell any more.
fn is_same_but_for_history(before: &[u8], after: &[u8]) -> bool {
    let parsed = |bytes: &[u8]| {
        let mut value: Value = serde_json::from_slice(bytes).ok()?;
        let record = value.as_object_mut()?;
        record.get_mut("tool")?.as_object_mut()?.remove("version");
        if record.contains_key("scanned") {
            for key in ["imported_at", "messages_written", "warnings"] {
                record.remove(key);
            }
        }
        Some(value)
    };
    parsed(after).is_some_and(|after| parsed(before) == Some(after))
}

// What is shown.

#[test]
fn contents_are_shown_only_with_diff() {
    let workspace = imported();
    replace(
        &workspace,
        &stream(PLAIN),
        "one answer",
        "one \\u001b[31mlie",
    );
    replace(
        &workspace,
        &residue(ODD),
        "no JSON at all",
        "no JSON at aLl",
    );
    let plain = workspace.call("verify", &[]).code(3);
    assert!(
        !plain.stdout.contains("lie") && !plain.stdout.contains("JSON"),
        "{}",
        plain.stdout
    );
    let plain = workspace.call("verify", &["--json"]).code(3);
    assert!(!plain.stdout.contains("lie") && !plain.stdout.contains("at aLl"));
    let diff = workspace.call("verify", &["--diff"]).code(3);
    let diff = diff
        .says("message 2, content: 12 characters in the store, 10 from the source")
        .says(r"store   one \u{1b}[31mlie")
        .says("source  one answer")
        .says("residue record 1, text: 14 characters each, different from character 13 on");
    assert!(!diff.stdout.contains('\u{1b}'));
    let found = report(&workspace, &["--diff"], 3);
    let difference = &found["findings"][0]["differences"][0];
    assert_eq!(difference["place"], "message 2");
    assert_eq!(difference["store"], "one \u{1b}[31mlie");
    assert_eq!(difference["given"], "one answer");
}

#[test]
fn the_text_has_findings_then_notices_then_totals() {
    let workspace = imported();
    replace(&workspace, &stream(PLAIN), "one answer", "one ansWer");
    workspace.mtime(source(ODD), WRITTEN_AT + 60);
    workspace.mtime(source(COMPACTED), WRITTEN_AT + 60);
    let outcome: Outcome = workspace.call("verify", &[]).code(3);
    let (root, store) = (workspace.root(), workspace.store());
    let expected = format!(
        "\
Not as it should be: 1 finding

  stream-changed  A stream was changed since it was imported, and not by writing on.
    session_raw/1777709000_plain.jsonl: message 2 differs in content; 1 of 3 messages differ

Notices

  2 × source-touched  A source has another time than when it was imported, but the same bytes.
    for example session_raw/1777709001_odd.jsonl: the source's time is another one, its bytes are the same

3 sources: 3 in the store, 3 of them held against their sources.
7 messages and 7 other lines were compared.
Store: {store}

Next, to mend the store:
  session-import run -w {root} --checksum
",
        store = store.display(),
        root = root.display(),
    );
    assert_eq!(outcome.stdout, expected);
}
