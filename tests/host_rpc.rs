//! `examples/host_rpc.rs`, as a client of the host sees it.

// Clippy takes only functions marked as tests for tests.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod support;

#[allow(dead_code, unreachable_pub, reason = "`main` is the example's own")]
#[path = "../examples/host_rpc.rs"]
mod host_rpc;

use serde_json::{Value, json};
use support::{Workspace, assert_schema, message};

const METHOD: &str = "openhuman.session_import_run";

/// What the host answers to these lines.
#[track_caller]
fn ask(lines: &[String]) -> Vec<Value> {
    let mut output = Vec::new();
    host_rpc::serve(lines.join("\n").as_bytes(), &mut output).unwrap();
    let output = String::from_utf8(output).unwrap();
    let answers = output.lines().map(serde_json::from_str);
    answers.collect::<Result<_, _>>().unwrap()
}

fn request(id: u32, parameters: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "method": METHOD, "params": parameters}).to_string()
}

fn two() -> Workspace {
    let workspace = Workspace::new();
    workspace
        .transcript("1779000000_one", &[&message("user", "hello")])
        .transcript("1779000001_two", &[&message("user", "hi")]);
    workspace
}

#[test]
fn a_host_plans_imports_and_finds_nothing_more_to_do() {
    let workspace = two();
    let root = workspace.root();
    let answers = ask(&[
        request(1, &json!({"workspace": root, "dry_run": true})),
        request(
            2,
            &json!({"workspace": root, "only": ["*_one"], "verbose": true}),
        ),
        request(3, &json!({"workspace": root})),
        String::new(),
        request(4, &json!({"workspace": root})),
        request(5, &json!({"workspace": root, "force": true})),
        // The design's RPC gives one pattern, not a list of them.
        request(
            6,
            &json!({"workspace": root, "force": true, "only": "*_one"}),
        ),
    ]);
    let numbers: Vec<_> = answers
        .iter()
        .map(|answer| {
            let report = &answer["result"];
            assert_schema("run", report);
            (
                answer["id"].as_u64().unwrap(),
                report["dry_run"].as_bool().unwrap(),
                report["imported"].as_u64().unwrap(),
                report["skipped"].as_u64().unwrap(),
                report["messages_written"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        numbers,
        [
            (1, true, 2, 0, 0),
            (2, false, 1, 0, 1),
            (3, false, 1, 1, 1),
            (4, false, 0, 2, 0),
            (5, false, 2, 0, 2),
            (6, false, 1, 0, 1),
        ]
    );
    assert_eq!(answers[0]["seen"], 2);
    assert_eq!(answers[3]["result"]["already_done"], true);
    // The same report as the program's.
    let program = workspace.run(&["--json", "--force"]).code(0).json();
    assert_eq!(answers[4]["result"], program);
}

#[test]
fn a_failed_session_is_a_result_and_what_cannot_be_done_an_error() {
    let workspace = two();
    workspace.file("session_raw/1779000002_bad.jsonl", "no json at all\n");
    let root = workspace.root();
    let answers = ask(&[
        request(1, &json!({"workspace": root})),
        request(2, &json!({"workspace": root.join("none")})),
        request(3, &json!({"workspace": root, "only": ["["]})),
        request(4, &json!({"workspace": root, "only": 1})),
        json!({"jsonrpc": "2.0", "id": "five", "method": "openhuman.other"}).to_string(),
        json!({"jsonrpc": "2.0", "id": 6}).to_string(),
        "no json".to_owned(),
    ]);
    assert_eq!(answers[0]["result"]["failed"], 1);
    let errors: Vec<_> = answers[1..]
        .iter()
        .map(|answer| {
            assert!(answer.get("result").is_none(), "{answer}");
            assert!(answer["error"]["message"].is_string(), "{answer}");
            answer["error"]["code"].as_i64().unwrap()
        })
        .collect();
    assert_eq!(errors, [-32000, -32000, -32602, -32601, -32600, -32700]);
    assert_eq!(answers[4]["id"], "five");
    assert_eq!(answers[6]["id"], Value::Null);
    let why = answers[1]["error"]["message"].as_str().unwrap();
    assert!(why.contains(root.join("none").to_str().unwrap()), "{why}");
}
