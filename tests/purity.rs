//! What a run may not touch, and a dry run still less.

// Clippy takes only functions marked as tests for tests.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::type_complexity)]

mod support;

use std::fs;

use serde_json::{Value, json};
use support::{Tree, Workspace, assert_schema, message};

/// Something of everything: each source, companions, older copies, failures,
/// residues, notes, and a run ledger whose newest rows are only in the log.
fn everything() -> Workspace {
    let workspace = Workspace::new();
    let text = |lines: &[&str]| {
        let all = [support::HEADER].iter().chain(lines);
        all.map(|line| format!("{line}\n")).collect::<String>()
    };
    let (user, assistant) = (message("user", "hello"), message("assistant", "hi"));
    workspace
        .transcript("1779000000_ok", &[&user, &assistant])
        .transcript("1779000000_ok__1779000100_scout", &[&user])
        .transcript("1779000001_torn", &[&user, r#"{"role":"assi"#])
        .file("session_raw/1779000002_bad.jsonl", "no json at all\n")
        .file("session_raw/01042026/main_0.jsonl", text(&[&user]))
        .file("session_raw/02042026/main_0.jsonl", text(&[&assistant]))
        .file("session_raw-work/1779000000_ok.jsonl", text(&[&user]))
        .file("session_raw/notes.txt", "mine\n")
        .file(
            "sessions/2026_04_01/helper_0.md",
            "<!-- session_transcript\nagent: helper\n-->\n\n<!--MSG role=\"user\"-->\nhi\n<!--/MSG-->\n",
        )
        .file(
            "sessions/2026_05_02/1779000000_ok.md",
            "# Session transcript — helper\n\n- Turns: 1\n\n---\n\n## [user]\n\nhello\n",
        )
        .file(
            ".openhuman/subagent_sessions.json",
            json!([{
                "subagentSessionId": "sub-1", "parentSession": "1779000000_ok", "agentId": "scout",
                "sandboxMode": "none", "taskKey": "t", "taskTitle": "T", "status": "closed",
                "reusable": false, "createdAt": "c", "updatedAt": "u", "lastUsedAt": "l",
                "workerThreadId": "thr-nowhere",
                "latestHistory": [{"role": "user", "content": "look"}],
            }])
            .to_string(),
        );
    ledger(&workspace);
    workspace
}

/// A database with a `-wal` that holds a row, as a running application leaves
/// it, and without an `-shm`.
fn ledger(workspace: &Workspace) {
    let elsewhere = tempfile::tempdir().unwrap();
    let live = elsewhere.path().join("sessions.db");
    let connection = rusqlite::Connection::open(&live).unwrap();
    connection
        .execute_batch(
            "PRAGMA journal_mode = WAL;
             CREATE TABLE agent_runs (id TEXT, parent_thread_id TEXT, worker_thread_id TEXT);
             PRAGMA wal_checkpoint(TRUNCATE);
             INSERT INTO agent_runs VALUES ('run-1', 'thr-1', NULL);",
        )
        .unwrap();
    for name in ["sessions.db", "sessions.db-wal"] {
        let bytes = fs::read(elsewhere.path().join(name)).unwrap();
        workspace.file(format!("session_db/{name}"), bytes);
    }
}

#[test]
fn a_dry_run_writes_nothing_at_all() {
    let workspace = everything();
    let temporary = workspace.home().join("tmp");
    fs::create_dir(&temporary).unwrap();
    let before = Tree::of(workspace.home());
    for arguments in [
        &["-n"][..],
        &["-n", "--json"],
        &["-n", "--force", "--salvage", "--overwrite", "--checksum"],
        &["-n", "--only", "main*", "-v"],
        &["-n", "--store", "elsewhere"],
    ] {
        let mut command = workspace.command();
        command
            .env("TMPDIR", &temporary)
            .args(["run", "-w"])
            .arg(workspace.root());
        support::Outcome::of(command.args(arguments));
        assert!(
            fs::read_dir(&temporary).unwrap().next().is_none(),
            "{arguments:?}"
        );
    }
    // The copy of the database comes and goes in the temporary folder.
    let places = ["tmp"];
    let after = Tree::of(workspace.home());
    before.without(&places).assert_same(&after.without(&places));

    // And beside a store that is there already, with work to do.
    workspace.run(&[]).code(3);
    workspace.append(
        "session_raw/1779000000_ok.jsonl",
        message("user", "more") + "\n",
    );
    let before = Tree::of(workspace.home());
    let mut command = workspace.command();
    command.env("TMPDIR", &temporary).args(["run", "-n", "-w"]);
    support::Outcome::of(command.arg(workspace.root())).code(3);
    let after = Tree::of(workspace.home());
    before.without(&places).assert_same(&after.without(&places));
}

#[test]
fn a_run_leaves_every_source_as_it_was() {
    let workspace = everything();
    let before = workspace.tree().without(&["tinyagents_store"]);
    let listing = before.paths("session_db");
    for arguments in [
        &[][..],
        &["--force", "--salvage"],
        &["--checksum"],
        &["--overwrite"],
        &["--only", "main*"],
    ] {
        workspace.run(arguments);
        let after = workspace.tree().without(&["tinyagents_store"]);
        before.assert_same(&after);
        assert_eq!(listing, after.paths("session_db"));
    }
    // The row that was never checkpointed was seen all the same.
    let store = workspace.read_store();
    let session = store.session("session_raw/1779000000_ok.jsonl");
    assert_eq!(session.descriptor["run_ids"], json!(["run-1"]));
}

/// `behaviour.md`: but for `action`, `dry_run` and `messages_written`, the
/// plan of a quiet workspace is the report of its run.
#[test]
fn the_plan_is_the_report() {
    let steps: [(&str, &[&str], fn(&Workspace)); 6] = [
        ("first", &[], |_| ()),
        ("nothing to do", &[], |_| ()),
        ("changed", &[], |workspace| {
            let more = message("user", "more") + "\n";
            workspace.append("session_raw/1779000000_ok.jsonl", more);
            workspace.mtime("session_raw/1779000000_ok.jsonl", support::WRITTEN_AT + 9);
        }),
        ("moved", &[], |workspace| {
            workspace.rename(
                "session_raw/01042026/main_0.jsonl",
                "session_raw/main_0.jsonl",
            );
        }),
        ("shorter", &[], |workspace| {
            workspace.transcript("1779000000_ok", &[&message("user", "hello")]);
        }),
        ("salvage", &["--salvage", "--force"], |_| ()),
    ];
    let workspace = everything();
    for (step, arguments, change) in steps {
        change(&workspace);
        let plan = workspace.run(&[arguments, &["-n", "--json"]].concat());
        let done = workspace.run(&[arguments, &["--json"]].concat());
        assert_eq!(plan.code, done.code, "{step}");
        let (mut plan, mut report) = (plan.json(), done.json());
        for document in [&plan, &report] {
            assert_schema("run", document);
        }
        assert_eq!(plan["messages_written"], 0, "{step}");
        assert_eq!(plan["dry_run"], true, "{step}");
        assert!(
            plan["items"]
                .as_array()
                .is_some_and(|items| !items.is_empty())
        );
        for document in [&mut plan, &mut report] {
            document["messages_written"] = Value::Null;
            document["dry_run"] = Value::Null;
            for item in document["items"].as_array_mut().unwrap() {
                if item["action"] == "would_import" {
                    item["action"] = json!("imported");
                }
            }
        }
        assert_eq!(plan, report, "{step}");
    }
}
