//! Reports whose input is too large to be a fixture.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod support;

use support::{HEADER, Workspace, message};

#[test]
fn one_record_of_48_megabytes_is_a_message_like_any_other() {
    let workspace = Workspace::new();
    let picture = "data:image/png;base64,".to_owned() + &"A".repeat(48 << 20);
    workspace
        .transcript(
            "1777400000_shot",
            &[
                HEADER,
                &message("user", "take a picture"),
                &message("tool", &picture),
                &message("assistant", "done"),
            ],
        )
        .transcript("1777400001_small", &[HEADER, &message("user", "after it")]);
    let report = workspace.run(&["--json"]).code(0).json();
    assert_eq!(report["messages_written"], 4);
    let store = workspace.read_store();
    let stored = store.session("session_raw/1777400000_shot.jsonl");
    assert_eq!(stored.contents()[1].len(), picture.len());
    assert_eq!(stored.contents()[2], "done");
}

#[test]
fn many_messages_and_many_files_are_in_after_one_run() {
    let workspace = Workspace::new();
    let lines: Vec<String> = (0..20_000)
        .map(|number| message("user", &format!("message number {number}")))
        .collect();
    let mut long = vec![HEADER];
    long.extend(lines.iter().map(String::as_str));
    workspace.transcript("1777500000_long", &long);
    for number in 0..500 {
        let stem = format!("{}_tiny", 1_777_600_000 + number);
        workspace.transcript(
            &stem,
            &[HEADER, &message("user", "q"), &message("assistant", "a")],
        );
    }
    let report = workspace.run(&["--json"]).code(0).json();
    assert_eq!(report["imported"], 501);
    assert_eq!(report["messages_written"], 21_000);
    let again = workspace.run(&["--json"]).code(0).json();
    assert_eq!(again["already_done"], true);
    assert_eq!(again["skipped"], 501);
    let store = workspace.read_store();
    let long = store.session("session_raw/1777500000_long.jsonl");
    assert_eq!(long.contents()[19_999], "message number 19999");
}
