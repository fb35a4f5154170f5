//! What only the store still has: a source that is rewritten, emptied or gone,
//! or a store that is damaged, takes nothing along that was there before.

// Clippy takes only functions marked as tests for tests.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod support;

use std::fs;
use std::path::PathBuf;

use serde_json::Value;
use support::{HEADER, WRITTEN_AT, Workspace, message};

const STEM: &str = "1779000000_one";
const SOURCE: &str = "session_raw/1779000000_one.jsonl";
const NO_JSON: &str = r#"{"role":"assi"#;

fn user(text: &str) -> String {
    message("user", text)
}

fn partial(text: &str) -> String {
    let message: Value = serde_json::from_str(&message("assistant", text)).unwrap();
    let mut message = message;
    message["interrupted"] = true.into();
    message.to_string()
}

fn compaction(lines: &[String]) -> String {
    format!(
        r#"{{"kind":"compaction","replacement":[{}]}}"#,
        lines.join(",")
    )
}

fn transcript(workspace: &Workspace, lines: &[String]) {
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    workspace.transcript(STEM, &lines);
}

/// What the residue holds: why, and the line's text or the record.
#[track_caller]
fn residue(workspace: &Workspace) -> Vec<(String, String)> {
    let store = workspace.read_store();
    store.check(|_| true).unwrap();
    let texts = store.session(SOURCE).residue.into_iter().map(|value| {
        let why = value["why"].as_str().unwrap().to_owned();
        let text = match (&value["text"], &value["record"]["text"]) {
            (Value::String(text), _) | (_, Value::String(text)) => text.clone(),
            _ => value["record"]["content"].as_str().unwrap().to_owned(),
        };
        (why, text)
    });
    texts.collect()
}

fn of_why(workspace: &Workspace, why: &str) -> Vec<String> {
    let all = residue(workspace).into_iter();
    all.filter(|(found, _)| found == why)
        .map(|(_, text)| text)
        .collect()
}

#[track_caller]
fn contents(workspace: &Workspace) -> Vec<String> {
    let session = workspace.read_store().session(SOURCE);
    session.contents().into_iter().map(str::to_owned).collect()
}

fn stream(workspace: &Workspace, which: &str) -> PathBuf {
    let file = format!("journal/session.{STEM}.{which}.jsonl");
    workspace.store().join(file)
}

/// No command finds anything, and there is nothing left to do.
#[track_caller]
fn is_settled(workspace: &Workspace) {
    workspace.call("verify", &[]).code(0);
    let report = workspace.run(&["--json"]).code(0).json();
    assert_eq!(report["imported"], 0, "{report:#}");
}

#[test]
fn lines_that_a_rewritten_source_no_longer_has_stay() {
    let workspace = Workspace::new();
    let old = [
        user("a"),
        NO_JSON.to_owned(),
        partial("half of an answer"),
        user("b"),
        compaction(&[user("c")]),
        user("d"),
    ];
    transcript(&workspace, &old);
    workspace.run(&[]).code(0);
    let before: Vec<String> = residue(&workspace)
        .into_iter()
        .map(|(_, text)| text)
        .collect();
    assert_eq!(before.len(), 5, "{before:?}");

    // Rewritten whole, without any of them.
    transcript(&workspace, &[user("c"), user("d"), user("e")]);
    let report = workspace.run(&["--json", "--dry-run"]).code(0).json();
    let planned = report["items"][0]["warnings"].clone();
    assert!(
        planned.to_string().contains("5 lines that the store had"),
        "{planned}"
    );
    let report = workspace.run(&["--json"]).code(0).json();
    assert_eq!(report["items"][0]["warnings"], planned);
    assert_eq!(contents(&workspace), ["c", "d", "e"]);
    assert_eq!(of_why(&workspace, "dropped"), before);
    is_settled(&workspace);

    // They stay, and are not doubled, whatever makes further imports.
    workspace.mtime(SOURCE, WRITTEN_AT + 1);
    workspace.run(&[]).code(0);
    workspace.run(&["--force"]).code(0);
    workspace.run(&["--checksum"]).code(0);
    transcript(&workspace, &[user("c"), user("d"), user("e"), user("f")]);
    workspace.run(&[]).code(0);
    assert_eq!(of_why(&workspace, "dropped"), before);
    assert_eq!(contents(&workspace), ["c", "d", "e", "f"]);
    is_settled(&workspace);
    // And an undo does not take the only copy.
    workspace.call("undo", &[]);
    assert!(stream(&workspace, "residue").exists());
}

#[test]
fn lines_that_are_still_in_the_source_are_not_dropped() {
    let workspace = Workspace::new();
    let torn = partial("an answer that goes on");
    let half = &torn[..torn.len() / 2];
    let whole = format!("{HEADER}\n{}\n{NO_JSON}\n{half}", user("a"));
    workspace.file(SOURCE, &whole);
    workspace.run(&[]).code(0);
    assert_eq!(residue(&workspace).len(), 2);
    // The last line is written to its end; a compaction replaces all before.
    let rest = &torn[torn.len() / 2..];
    workspace.append(SOURCE, format!("{rest}\n{}\n", compaction(&[user("b")])));
    workspace.run(&[]).code(0);
    assert_eq!(of_why(&workspace, "dropped"), Vec::<String>::new());
    assert_eq!(contents(&workspace), ["b"]);
    // One that was there twice, and once now.
    let twice = [user("a"), NO_JSON.to_owned(), NO_JSON.to_owned()];
    transcript(&workspace, &twice);
    workspace.run(&[]).code(0);
    transcript(&workspace, &twice[..2]);
    workspace.run(&[]).code(0);
    let gone = of_why(&workspace, "dropped");
    assert_eq!(
        gone.iter().filter(|line| *line == NO_JSON).count(),
        1,
        "{gone:?}"
    );
}

/// What the residue had already is not what the stream has: each counts once.
#[test]
fn of_equal_messages_none_is_lost() {
    let (b, half) = (user("ok"), partial("ok"));
    let half = half.replace("assistant", "user");
    let compaction = compaction(&[]);
    let same = |n: usize| vec![b.clone(); n];
    for (old, new, kept) in [
        (same(3), same(1), 2),
        (
            [same(1), vec![compaction.clone()], same(1)].concat(),
            same(1),
            2,
        ),
        (
            [same(1), vec![compaction.clone()], same(2)].concat(),
            [same(1), vec![compaction.clone()], same(1)].concat(),
            1,
        ),
        (
            [same(1), vec![half.clone()], same(2)].concat(),
            [same(1), vec![half.clone()]].concat(),
            2,
        ),
    ] {
        let workspace = Workspace::new();
        transcript(&workspace, &old);
        workspace.run(&[]).code(0);
        transcript(&workspace, &new);
        workspace.run(&[]).code(0);
        assert_eq!(
            of_why(&workspace, "dropped").len(),
            kept,
            "{old:?} to {new:?}"
        );
        is_settled(&workspace);
    }
}

/// The same words with less beside them are not the same.
#[test]
fn what_stood_beside_the_words_stays() {
    let rich = r#"{"id":"m1","role":"assistant","content":"hi","provider":"p","model":"m","usage":{"input":1,"output":2,"cached_input":0,"cost_usd":0.5},"ts":"t","reasoning_content":"my thoughts","x":1}"#;
    let plain = r#"{"role":"assistant","content":"hi"}"#;
    let workspace = Workspace::new();
    transcript(&workspace, &[user("a"), rich.to_owned()]);
    workspace.run(&[]).code(0);
    let before = workspace.read_store().session(SOURCE).messages[1].clone();
    transcript(&workspace, &[user("a"), plain.to_owned(), user("b")]);
    workspace.run(&[]).code(0);
    let residue = workspace.read_store().session(SOURCE).residue;
    assert_eq!(residue.len(), 1, "{residue:#?}");
    assert_eq!(residue[0]["record"], before);
    // With more beside them they are.
    let workspace = Workspace::new();
    transcript(&workspace, &[user("a"), plain.to_owned()]);
    workspace.run(&[]).code(0);
    transcript(&workspace, &[user("a"), rich.to_owned(), user("b")]);
    workspace.run(&[]).code(0);
    assert!(workspace.read_store().session(SOURCE).residue.is_empty());
    // On a way of its own, too: the one that fits is taken, not the first.
    let two = [user("z"), plain.to_owned(), rich.to_owned()];
    let workspace = Workspace::new();
    transcript(&workspace, &two);
    workspace.run(&[]).code(0);
    transcript(&workspace, &[rich.to_owned(), plain.to_owned(), user("z")]);
    workspace.run(&[]).code(0);
    assert!(workspace.read_store().session(SOURCE).residue.is_empty());
}

/// A line that is mended is a message now, and not lost.
#[test]
fn a_line_that_becomes_a_message_by_salvage_is_not_dropped() {
    let workspace = Workspace::new();
    let nul = format!("\0\0{}", user("a"));
    transcript(&workspace, &[nul.clone(), user("b")]);
    workspace.run(&[]).code(0);
    workspace.run(&["--salvage"]).code(0);
    assert_eq!(contents(&workspace), ["a", "b"]);
    assert_eq!(residue(&workspace), [("malformed".to_owned(), nul)]);
}

#[test]
fn text_that_a_rewritten_markdown_no_longer_has_stays() {
    let workspace = Workspace::new();
    let source = "sessions/14052026/main_0.md";
    let said = |text: &str| format!("<!--MSG role=\"user\"-->\n{text}\n<!--/MSG-->\n");
    let header = "<!-- session_transcript agent: main dispatcher: native created: c updated: u turn_count: 1 input_tokens: 0 output_tokens: 0 cached_input_tokens: 0 -->";
    let text = |parts: &[&str]| format!("{header}\n{}", parts.join(""));
    workspace.file(source, text(&[&said("a"), "between\n", &said("b")]));
    workspace.run(&[]).code(0);
    let residue = || {
        let session = workspace.read_store().session(source);
        session.residue
    };
    let texts: Vec<Value> = residue()
        .iter()
        .map(|value| value["text"].clone())
        .collect();
    assert_eq!(texts, ["between"]);
    // More on the same lines: it is there still.
    workspace.file(
        source,
        text(&[&said("a"), "between and more\n", &said("b")]),
    );
    workspace.run(&[]).code(0);
    assert!(
        residue().iter().all(|value| value["why"] != "dropped"),
        "{:?}",
        residue()
    );
    workspace.file(source, text(&[&said("a"), &said("b")]));
    workspace.run(&[]).code(0);
    let texts: Vec<Value> = residue()
        .iter()
        .map(|value| value["record"]["text"].clone())
        .collect();
    assert_eq!(texts, ["between and more"]);
}

/// Its source can give it again, so nothing is kept beside.
#[test]
fn a_damaged_line_of_ours_is_written_again() {
    for which in ["messages", "residue"] {
        let workspace = Workspace::new();
        transcript(&workspace, &[user("a"), user("b"), NO_JSON.to_owned()]);
        workspace.run(&[]).code(0);
        let path = stream(&workspace, which);
        let whole = fs::read(&path).unwrap();
        let mut damaged = whole.clone();
        damaged[3] = 0xff;
        fs::write(&path, damaged).unwrap();
        workspace.run(&["--checksum"]).code(0);
        let strip = |bytes: &[u8]| {
            let text = String::from_utf8(bytes.to_vec()).unwrap();
            let lines = text
                .lines()
                .map(|line| line.split("\"created_at_ms\"").next().unwrap());
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        let now = strip(&fs::read(&path).unwrap());
        assert!(now.starts_with(&strip(&whole)), "{which}");
        // Of a residue line nobody can tell whether it is the source's.
        assert_eq!(
            now.len() - strip(&whole).len(),
            usize::from(which == "residue")
        );
        is_settled(&workspace);
    }
}

/// Nobody knows what a line was that cannot be read: it may be the only copy.
#[test]
fn a_damaged_line_that_no_source_gives_stays_as_it_is() {
    let workspace = Workspace::new();
    transcript(&workspace, &[user("a"), user("b"), user("c")]);
    workspace.run(&[]).code(0);
    // The application went on in the stream; then the disk failed.
    let path = stream(&workspace, "messages");
    let later = |offset, text| {
        format!(
            "{{\"offset\":{offset},\"value\":{},\"created_at_ms\":1777709500000}}\n",
            user(text)
        )
    };
    let mut bytes = fs::read(&path).unwrap();
    bytes.extend(later(3, "d").replace("offset", "off\u{0}et").as_bytes());
    bytes.extend(later(4, "e").as_bytes());
    fs::write(&path, &bytes).unwrap();
    workspace.call("verify", &[]).code(3);

    workspace.run(&["--checksum"]).code(0);
    assert_eq!(contents(&workspace), ["a", "b", "c"]);
    let kept = of_why(&workspace, "dropped");
    assert_eq!(kept.len(), 2, "{kept:?}");
    assert!(kept[0].contains("off\u{0}et"), "{kept:?}");
    assert_eq!(kept[1], "e");
    is_settled(&workspace);

    // The same for the residue, which holds both now.
    let path = stream(&workspace, "residue");
    let mut bytes = fs::read(&path).unwrap();
    let second = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    bytes[second + 3] = 0xff;
    fs::write(&path, &bytes).unwrap();
    let line = bytes[second..].strip_suffix(b"\n").unwrap();
    workspace.run(&["--checksum"]).code(0);
    let values = workspace.read_store().session(SOURCE).residue;
    assert_eq!(values.len(), 2, "{values:#?}");
    use base64::Engine as _;
    let base64 = base64::engine::general_purpose::STANDARD.encode(line);
    assert_eq!(values[1]["base64"], Value::String(base64), "{values:#?}");
    is_settled(&workspace);
}

#[test]
fn an_emptied_transcript_is_not_replaced_by_its_markdown() {
    let workspace = Workspace::new();
    transcript(&workspace, &[user("a"), NO_JSON.to_owned(), user("b")]);
    let view = "sessions/14052026/1779000000_one.md";
    workspace.file(
        view,
        "# Session transcript — main\n\n---\n\n## [user]\n\na\n",
    );
    workspace.run(&[]).code(0);
    let before = fs::read(stream(&workspace, "messages")).unwrap();
    workspace.file(SOURCE, "");
    for arguments in [&[][..], &["--salvage"], &["--salvage", "--force"]] {
        let outcome = workspace.run(arguments);
        outcome.code(3).says("says less than the store's record");
        assert_eq!(fs::read(stream(&workspace, "messages")).unwrap(), before);
        assert_eq!(residue(&workspace).len(), 1);
    }
    // Where the view was all that there ever was, it counts.
    let workspace = Workspace::new();
    workspace.file(SOURCE, "");
    workspace.file(
        view,
        "# Session transcript — main\n\n---\n\n## [user]\n\na\n",
    );
    workspace.run(&[]).code(3);
    workspace.run(&["--salvage"]).code(0);
    assert_eq!(contents(&workspace), ["a"]);
    workspace.file(
        view,
        "# Session transcript — main\n\n---\n\n## [user]\n\na\n\n---\n\n## [user]\n\nb\n",
    );
    workspace.run(&["--force"]).code(0);
    assert_eq!(contents(&workspace), ["a", "b"]);
}

/// The session that the JSONL gave stays as it is when only its view is left.
#[test]
fn a_transcript_that_is_gone_keeps_its_record_beside_its_markdown() {
    let workspace = Workspace::new();
    transcript(&workspace, &[user("a"), NO_JSON.to_owned(), user("b")]);
    let view = "sessions/14052026/1779000000_one.md";
    workspace.file(
        view,
        "# Session transcript — main\n\n---\n\n## [user]\n\na\n",
    );
    workspace.run(&[]).code(0);
    let before = [
        stream(&workspace, "messages"),
        stream(&workspace, "residue"),
    ]
    .map(|path| fs::read(path).unwrap());
    workspace.remove(SOURCE);
    workspace.run(&[]);
    workspace.run(&["--force"]);
    let after = [
        stream(&workspace, "messages"),
        stream(&workspace, "residue"),
    ]
    .map(|path| fs::read(path).unwrap());
    assert_eq!(before, after);
}

/// A run that was killed behind the residue's place: the next one sees it.
#[test]
fn a_residue_that_is_newer_than_its_entry_is_looked_at() {
    let workspace = Workspace::new();
    transcript(&workspace, &[user("a"), NO_JSON.to_owned()]);
    workspace.run(&[]).code(0);
    let path = stream(&workspace, "residue");
    let old = fs::read(&path).unwrap();
    transcript(&workspace, &[user("a"), NO_JSON.to_owned(), "{".to_owned()]);
    workspace.run(&[]).code(0);
    let new = fs::read(&path).unwrap();
    // Back in time, but for the residue.
    fs::remove_dir_all(workspace.store()).unwrap();
    transcript(&workspace, &[user("a"), NO_JSON.to_owned()]);
    workspace.run(&[]).code(0);
    assert_eq!(fs::read(&path).unwrap().len(), old.len());
    fs::write(&path, new).unwrap();
    let marker = workspace
        .store()
        .join("kv/migrations/session_import_v1.json");
    fs::remove_file(marker).unwrap();
    workspace.run(&[]).code(0);
    assert_eq!(of_why(&workspace, "malformed"), [NO_JSON]);
    assert_eq!(of_why(&workspace, "dropped"), ["{"]);
    is_settled(&workspace);
}

// --------------------------------------------------------------------------
// undo

/// A workspace with an import of `a`, a line that is none, and `b`.
fn imported() -> Workspace {
    let workspace = Workspace::new();
    transcript(&workspace, &[user("a"), NO_JSON.to_owned(), user("b")]);
    workspace.run(&[]).code(0);
    workspace
}

#[test]
fn undo_keeps_what_a_source_no_longer_gives() {
    let header = HEADER.replace("\"turn_count\":1", "\"turn_count\":7");
    let lines = |lines: &[&str]| format!("{}\n", lines.join("\n"));
    let (a, b) = (&*user("a"), &*user("b"));
    for (what, now, is_kept) in [
        ("as it was", lines(&[HEADER, a, NO_JSON, b]), false),
        ("appended to", lines(&[HEADER, a, NO_JSON, b, a]), false),
        ("rewritten", lines(&[&header, NO_JSON, a, b, b]), false),
        ("a message less", lines(&[HEADER, a, NO_JSON]), true),
        ("a line less", lines(&[HEADER, a, b]), true),
        ("another", lines(&[HEADER, b]), true),
        ("emptied", String::new(), true),
        ("no transcript", "hello\n".to_owned(), true),
    ] {
        let workspace = imported();
        workspace.file(SOURCE, now);
        let before = fs::read(stream(&workspace, "messages")).unwrap();
        let planned = workspace.call("undo", &["--dry-run", "--json"]).json();
        let report = workspace.call("undo", &["--json"]).code(0).json();
        let item = &report["items"][0];
        if is_kept {
            assert_eq!(item["action"], "kept", "{what}: {report:#}");
            assert_eq!(item["diagnostics"][0]["code"], "only-copy", "{what}");
            assert_eq!(planned["items"], report["items"], "{what}");
            assert_eq!(fs::read(stream(&workspace, "messages")).unwrap(), before);
            workspace.call("undo", &["--overwrite"]).code(0);
        } else {
            assert_eq!(item["action"], "removed", "{what}: {report:#}");
        }
        assert!(!stream(&workspace, "messages").exists(), "{what}");
    }
}

#[test]
fn undo_takes_an_acceptance_back_and_keeps_the_only_copy() {
    let workspace = imported();
    workspace.file(SOURCE, "");
    workspace.run(&[]).code(3);
    workspace
        .call("accept", &[SOURCE, "--reason", "lost"])
        .code(0);
    workspace.run(&[]).code(0);
    let outcome = workspace.call("undo", &[]);
    outcome.says("its failure is accepted no longer");
    assert_eq!(contents(&workspace), ["a", "b"]);
    workspace.run(&[]).code(3);
}

#[test]
fn undo_keeps_a_history_that_changed() {
    let workspace = Workspace::new();
    let file = ".openhuman/subagent_sessions.json";
    let source = format!("{file}#s1");
    let text = |history: &[&str]| {
        let history: Vec<Value> = history
            .iter()
            .map(|text| serde_json::from_str(&user(text)).unwrap())
            .collect();
        let record = serde_json::json!({
            "subagentSessionId": "s1", "parentSession": "p", "parentThreadId": "t",
            "workerThreadId": "w", "agentId": "scout", "displayName": null, "toolkit": null,
            "model": "m", "sandboxMode": "none", "actionRoot": null, "taskKey": "k",
            "taskTitle": "T", "currentTaskId": null, "status": "idle", "reusable": true,
            "latestHistory": history, "latestError": null, "createdAt": "2026-05-06T08:00:00Z",
            "updatedAt": "2026-05-06T08:00:00Z", "lastUsedAt": "2026-05-06T08:00:00Z",
        });
        Value::from(vec![record]).to_string()
    };
    workspace.file(file, text(&["a", "b"]));
    workspace.run(&[]).code(0);
    assert_eq!(
        workspace.read_store().session(&source).contents(),
        ["a", "b"]
    );
    workspace.file(file, text(&["b"]));
    let report = workspace.call("undo", &["--json"]).code(0).json();
    assert_eq!(report["items"][0]["action"], "kept", "{report:#}");
    workspace.file(file, text(&["a", "b", "c"]));
    let report = workspace.call("undo", &["--json"]).code(0).json();
    assert_eq!(report["items"][0]["action"], "removed", "{report:#}");
}

/// An undo that was killed is finished by the next command; what was no loss
/// then may be one now.
#[test]
fn a_cut_off_undo_keeps_what_has_become_the_only_copy() {
    for command in ["run", "undo"] {
        let workspace = imported();
        let kv = workspace.store().join("kv");
        fs::create_dir(kv.join("session_import.undo")).unwrap();
        for entry in fs::read_dir(kv.join("migration_items")).unwrap() {
            let entry = entry.unwrap();
            let to = kv.join("session_import.undo").join(entry.file_name());
            fs::rename(entry.path(), to).unwrap();
        }
        // Which an undo removes first.
        fs::remove_file(kv.join("migrations/session_import_v1.json")).unwrap();
        workspace.remove(SOURCE);
        // Something to do, or a run opens nothing for writing.
        workspace.transcript("1779000001_two", &[&user("c")]);
        workspace.call(command, &[]);
        assert_eq!(contents(&workspace), ["a", "b"], "{command}");
        assert_eq!(residue(&workspace).len(), 1, "{command}");
    }
}

/// What only the run ledger knew, and the store by now.
#[test]
fn run_ids_stay_when_the_run_ledger_cannot_be_read() {
    let workspace = imported();
    let path = workspace.path("session_db/sessions.db");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let database = rusqlite::Connection::open(&path).unwrap();
    database
        .execute_batch(
            "CREATE TABLE agent_runs (id TEXT, kind TEXT, parent_run_id TEXT, parent_thread_id TEXT,
               worker_thread_id TEXT, agent_id TEXT, status TEXT);
             INSERT INTO agent_runs (id, parent_thread_id) VALUES ('r1', 'thr-1'), ('r2', 'thr-1');",
        )
        .unwrap();
    drop(database);
    let run_ids = || workspace.read_store().session(SOURCE).descriptor["run_ids"].clone();
    workspace.run(&["--force"]).code(0);
    assert_eq!(run_ids(), serde_json::json!(["r1", "r2"]));
    workspace.file("session_db/sessions.db", "no database");
    workspace
        .run(&["--force"])
        .code(0)
        .says("run-ledger-unusable");
    assert_eq!(run_ids(), serde_json::json!(["r1", "r2"]));
    workspace.remove("session_db/sessions.db");
    workspace.run(&["--force"]).code(0);
    assert_eq!(run_ids(), serde_json::json!([]));
}

#[test]
fn an_undo_that_removes_nothing_leaves_the_marker() {
    let workspace = imported();
    workspace.file(SOURCE, "");
    workspace.call("undo", &[]);
    assert!(workspace.read_store().marker.is_some());
    workspace.call("undo", &["--overwrite"]).code(0);
    assert!(!workspace.store().join("kv").exists());
}

/// A record that the store alone has, beside a line that is damaged.
#[test]
fn undo_keeps_a_damaged_residue_and_one_that_is_nobodys() {
    for damage in [0, 1] {
        let workspace = imported();
        transcript(&workspace, &[user("a"), NO_JSON.to_owned()]);
        workspace.run(&[]).code(0);
        assert_eq!(of_why(&workspace, "dropped"), ["b"]);
        let path = stream(&workspace, "residue");
        let mut bytes = fs::read(&path).unwrap();
        let second = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        bytes[second * damage] = b'X';
        fs::write(&path, &bytes).unwrap();
        workspace.call("undo", &[]).code(0);
        assert_eq!(fs::read(&path).unwrap(), bytes, "line {damage}");
    }
    // Nobody's: neither entry nor descriptor is left, nor a source that has it.
    let workspace = imported();
    transcript(&workspace, &[user("a"), NO_JSON.to_owned()]);
    workspace.run(&[]).code(0);
    let kv = workspace.store().join("kv");
    for namespace in ["migration_items", "sessions"] {
        fs::remove_dir_all(kv.join(namespace)).unwrap();
    }
    for arguments in [&["--dry-run"][..], &[]] {
        let outcome = workspace.call("undo", arguments);
        outcome.says("belongs to no session of an import");
        assert!(stream(&workspace, "residue").exists());
    }
    workspace.run(&["--checksum"]).code(0);
    assert_eq!(of_why(&workspace, "dropped"), ["b"]);
}

/// A line that ran into another one, or what nothing is known of.
#[test]
fn a_damaged_line_that_may_hold_more_stays() {
    let workspace = Workspace::new();
    transcript(&workspace, &[user("one"), user("two")]);
    let later = r#"{"offset":2,"value":{"role":"user","content":"only here"},"created_at_ms":5}"#;
    let cut = r#"{"offset":0,"value":{"role":"user","content":"only here"#;
    for is_joined in [true, false] {
        workspace.run(&["--force"]).code(0);
        let path = stream(&workspace, "messages");
        let text = fs::read_to_string(&path).unwrap();
        let text = match is_joined {
            true => format!("{}{later}\n", text.trim_end()),
            false => cut.to_owned(),
        };
        fs::write(&path, text).unwrap();
        workspace
            .run(&["--checksum"])
            .code(0)
            .says("dropped-messages");
        assert_eq!(contents(&workspace), ["one", "two"]);
        let kept = of_why(&workspace, "dropped");
        assert!(kept.last().unwrap().contains("only here"), "{kept:?}");
    }
    // In the residue: the end of a line that holds a dropped one behind it.
    let workspace = Workspace::new();
    transcript(&workspace, &[user("a"), user("only"), NO_JSON.to_owned()]);
    workspace.run(&[]).code(0);
    transcript(&workspace, &[user("a"), NO_JSON.to_owned()]);
    workspace.run(&[]).code(0);
    let path = stream(&workspace, "residue");
    let text = fs::read_to_string(&path)
        .unwrap()
        .replacen('\n', "\u{b}", 1);
    fs::write(&path, text).unwrap();
    workspace
        .run(&["--checksum"])
        .code(0)
        .says("dropped-messages");
    let kept = of_why(&workspace, "dropped").concat();
    assert!(kept.contains("only"), "{kept}");
}

/// Cut off between the stream and the residue.
#[test]
fn a_cut_off_undo_keeps_a_residue_too() {
    let workspace = imported();
    let kv = workspace.store().join("kv");
    fs::rename(kv.join("migration_items"), kv.join("session_import.undo")).unwrap();
    fs::remove_file(kv.join("migrations/session_import_v1.json")).unwrap();
    fs::remove_file(stream(&workspace, "messages")).unwrap();
    transcript(&workspace, &[user("a"), user("b")]);
    workspace.run(&[]).code(0);
    assert_eq!(of_why(&workspace, "dropped"), [NO_JSON]);
}

/// A residue record that parses still, and has lost the name of its text.
#[test]
fn a_residue_record_without_its_text_stays() {
    let workspace = imported();
    let path = stream(&workspace, "residue");
    let text = fs::read_to_string(&path).unwrap();
    let damaged = text.replace("\"text\":", "\"tfxt\":");
    assert_ne!(text, damaged);
    fs::write(&path, damaged).unwrap();
    // Neither the line is there any more, nor is there none to look for.
    transcript(&workspace, &[user("a"), String::new(), user("b")]);
    workspace
        .run(&["--checksum"])
        .code(0)
        .says("dropped-messages");
    let residue = workspace.read_store().session(SOURCE).residue;
    assert_eq!(residue.len(), 1, "{residue:#?}");
    assert_eq!(residue[0]["record"]["tfxt"], NO_JSON);
}
