//! The programs, on stores that they make themselves.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use conformance::live::{Mode, Writer, Written, message};
use serde_json::{Value, json};
use tempfile::TempDir;

const CHECK_STORE: &str = env!("CARGO_BIN_EXE_check-store");

/// A workspace after one turn in each session, by the application alone.
fn workspace(mode: Mode) -> (TempDir, Written) {
    let dir = TempDir::new().unwrap();
    let writer = Writer::new(dir.path(), mode).unwrap();
    let written = writer.work(std::time::Duration::ZERO, None).unwrap();
    (dir, written)
}

fn run(program: &str, arguments: &[&Path]) -> Output {
    Command::new(program).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn journals(store: &Path) -> Vec<(String, Vec<u8>)> {
    let mut journals: Vec<_> = fs::read_dir(store.join("journal"))
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            (name, fs::read(entry.path()).unwrap())
        })
        .collect();
    journals.sort();
    journals
}

#[test]
fn check_store_passes_what_the_application_wrote() {
    for mode in [Mode::Gen4, Mode::Gen5] {
        let (dir, _) = workspace(mode);
        let store = dir.path().join("tinyagents_store");
        let before = journals(&store);

        let output = run(CHECK_STORE, &[Path::new("--append"), &store, &store]);

        assert!(output.status.success(), "{}", text(&output.stderr));
        let counts = "4 streams, 8 records, 4 keys, 4 descriptors, 4 appended";
        for version in ["1.5.0", "2.1.1"] {
            let line = format!("{}: tinyagents {version}: {counts}", store.display());
            assert!(text(&output.stdout).contains(&line));
        }
        let total = "total: tinyagents 2.1.1: 8 streams, 16 records";
        assert!(text(&output.stdout).contains(total));
        assert_eq!(journals(&store), before, "the appends were to a copy");
    }
}

#[test]
fn check_store_names_the_file_and_the_reason() {
    let (dir, _) = workspace(Mode::Gen5);
    let store = dir.path().join("tinyagents_store");
    let stream = store.join("journal/session.1778700002_planner.messages.jsonl");
    let second = fs::read_to_string(&stream)
        .unwrap()
        .lines()
        .nth(1)
        .unwrap()
        .to_owned();
    fs::write(&stream, format!("{second}\n")).unwrap();

    for arguments in [vec![&*store], vec![Path::new("--append"), &store]] {
        let output = run(CHECK_STORE, &arguments);

        assert_eq!(output.status.code(), Some(1));
        let line = format!(
            "FAILED {}: tinyagents 1.5.0: record 0 has offset 1",
            stream.display()
        );
        assert!(
            text(&output.stderr).contains(&line),
            "{}",
            text(&output.stderr)
        );
    }
}

#[test]
fn check_store_without_a_store_fails() {
    let dir = TempDir::new().unwrap();
    assert_eq!(run(CHECK_STORE, &[dir.path()]).status.code(), Some(1));
    assert_eq!(run(CHECK_STORE, &[]).status.code(), Some(2));
}

#[test]
fn the_transcript_and_the_mirror_tell_the_same() {
    for mode in [Mode::Gen4, Mode::Gen5] {
        let (dir, written) = workspace(mode);
        assert_eq!(written.messages.len(), 4);
        for (stem, count) in written.messages {
            let path = dir.path().join(format!("session_raw/{stem}.jsonl"));
            let lines: Vec<Value> = fs::read_to_string(path)
                .unwrap()
                .lines()
                .map(|line| serde_json::from_str(line).unwrap())
                .collect();
            assert!(lines[0]["_meta"]["agent"].is_string());
            let messages: Vec<&Value> = lines
                .iter()
                .filter(|line| line.get("role").is_some())
                .collect();
            assert_eq!(messages.len(), count);
            for (number, line) in messages.iter().enumerate() {
                let message = message(&stem, number);
                for field in ["id", "role", "content"] {
                    assert_eq!(line[field], message[field]);
                }
                let turn = &message["extra_metadata"]["openhuman_turn_usage"];
                assert_eq!(line["usage"], turn["usage"]);
            }
            // Generation 5 says again what it has counted.
            let headers = lines.len() - count;
            assert_eq!(headers, if mode == Mode::Gen5 { 2 } else { 1 });
        }
    }
}

#[test]
fn append_loop_appends_every_message() {
    let (dir, _) = workspace(Mode::Gen5);
    let source = dir.path().join("session_raw/1778700002_planner.jsonl");
    let store = dir.path().join("other");

    let output = run(env!("CARGO_BIN_EXE_append-loop"), &[&source, &store]);

    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["messages"], 2);
    let (name, bytes) = journals(&store).remove(0);
    assert_eq!(name, "session.1778700002_planner.messages.jsonl");
    let record: Value = serde_json::from_str(text(&bytes).lines().nth(1).unwrap()).unwrap();
    assert_eq!(record["offset"], 1);
    let content = &message("1778700002_planner", 1)["content"];
    assert_eq!(
        record["value"],
        json!({ "role": "assistant", "content": content })
    );
}
