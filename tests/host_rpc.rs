//! The example of a host that puts the import behind its own RPC.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod support;

use serde_json::{Value, json};
use support::{HEADER, Workspace, message};

/// What the host answers to each request.
fn ask(requests: &[Value]) -> Vec<Value> {
    let lines: Vec<String> = requests.iter().map(Value::to_string).collect();
    // Through cargo, since a single test does not build the examples.
    let output = assert_cmd::Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--locked", "--example", "host_rpc"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .write_stdin(lines.join("\n"))
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let answers = text.lines().map(|line| serde_json::from_str(line).unwrap());
    answers.collect()
}

#[test]
fn a_host_plans_imports_and_hears_what_is_wrong() {
    let workspace = Workspace::new();
    workspace.transcript("1777708800_helper", &[HEADER, &message("user", "hello")]);
    let root = workspace.root();
    let method = "openhuman.session_import_run";
    let answers = ask(&[
        json!({"id": 1, "method": method, "params": {"workspace": root, "dry_run": true}}),
        json!({"id": 2, "method": method, "params": {"workspace": root, "only": ["1777*"], "verbose": true}}),
        json!({"id": 3, "method": method, "params": {"workspace": root.join("none")}}),
        json!({"id": 4, "method": "other"}),
    ]);
    assert_eq!(answers[0]["result"]["items"][0]["action"], "would_import");
    assert_eq!(answers[0]["result"]["messages_written"], 0);
    assert_eq!(answers[1]["result"]["messages_written"], 1);
    support::assert_schema("run", &answers[1]["result"]);
    assert!(
        answers[2]["error"]["message"]
            .as_str()
            .unwrap()
            .contains("none")
    );
    assert_eq!(answers[3]["error"]["code"], -32601);
    let stored = workspace
        .read_store()
        .session("session_raw/1777708800_helper.jsonl");
    assert_eq!(stored.contents(), ["hello"]);
}
