use std::fs;

use super::*;

fn workspace(text: impl AsRef<[u8]>) -> tempfile::TempDir {
    let workspace = tempfile::tempdir().unwrap();
    fs::create_dir(workspace.path().join(FOLDER)).unwrap();
    fs::write(workspace.path().join(FOLDER).join(FILE), text).unwrap();
    workspace
}

fn read(text: impl AsRef<[u8]>) -> (Subagents, Vec<String>) {
    let workspace = workspace(text);
    sentences(Subagents::read(workspace.path()))
}

fn sentences((subagents, warnings): (Subagents, Vec<Diagnostic>)) -> (Subagents, Vec<String>) {
    let file = "subagents-unusable: .openhuman/subagent_sessions.json: ";
    let words = |warning: Diagnostic| warning.sentence().strip_prefix(file).unwrap().to_owned();
    (subagents, warnings.into_iter().map(words).collect())
}

fn ids(subagents: &Subagents) -> Vec<&str> {
    subagents.records.iter().map(|it| it.id.as_str()).collect()
}

#[test]
fn no_file_is_no_record_without_a_warning() {
    let workspace = tempfile::tempdir().unwrap();
    let (subagents, warnings) = Subagents::read(workspace.path());
    assert!(subagents.records.is_empty() && warnings.is_empty());
    assert_eq!(subagents.mtime, None);
}

#[test]
fn records_are_found_by_their_thread() {
    let (subagents, warnings) = read(
        r#"[{"subagentSessionId":"a","workerThreadId":"t1"},
            {"subagentSessionId":"b","workerThreadId":"t2","status":"hibernating"},
            {"subagentSessionId":"c","workerThreadId":"t1"},
            {"subagentSessionId":"d"}]"#,
    );
    assert!(warnings.is_empty(), "{warnings:?}");
    assert_eq!(ids(&subagents), ["a", "b", "c", "d"]);
    let by_thread = |thread| subagents.by_worker_thread(thread).map(|it| it.id.as_str());
    assert_eq!(
        ["t1", "t2", "t3"].map(by_thread),
        [Some("a"), Some("b"), None]
    );
    assert!(subagents.mtime.is_some());
}

#[test]
fn a_byte_order_mark_is_skipped() {
    let (subagents, warnings) = read("\u{feff}[{\"subagentSessionId\":\"a\"}]");
    assert_eq!((ids(&subagents), warnings.len()), (vec!["a"], 0));
}

#[test]
fn of_a_file_that_is_not_whole_nothing_is_used() {
    let good = r#"{"subagentSessionId":"a","workerThreadId":"t"}"#;
    for (text, words) in [
        (
            format!("[{good},\n{{\"subagentSessionId\": \"b"),
            "it is cut off at line 2, column 24; nothing of it was used",
        ),
        (
            format!("{{\"sessions\": [{good}], \"version\": 2}}"),
            "it is no array of records; nothing of it was used",
        ),
        (
            format!("[{good}] SECRET"),
            "it is no JSON in UTF-8 at line 1, column 50; nothing of it was used",
        ),
        (
            String::new(),
            "it is cut off at line 1, column 0; nothing of it was used",
        ),
    ] {
        let (subagents, warnings) = read(&text);
        assert_eq!(warnings, [words], "{text}");
        assert!(subagents.records.is_empty() && subagents.by_worker_thread("t").is_none());
    }
}

#[test]
fn temporary_files_beside_it_are_not_read() {
    let workspace = workspace("[]");
    let path = workspace
        .path()
        .join(FOLDER)
        .join("subagent_sessions.json.tmp-0f0e");
    fs::write(path, r#"[{"subagentSessionId":"a"}]"#).unwrap();
    assert!(Subagents::read(workspace.path()).0.records.is_empty());
}

#[test]
fn what_is_no_file_of_the_workspace_is_not_opened() {
    let (inside, outside) = (workspace("[]"), workspace("[]"));
    let path = inside.path().join(FOLDER).join(FILE);
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink(outside.path().join(FOLDER).join(FILE), &path).unwrap();
    let (_, warnings) = sentences(Subagents::read(inside.path()));
    assert_eq!(
        warnings,
        ["it is a link that leads outside of the workspace; nothing of it was used"]
    );

    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    let (_, warnings) = sentences(Subagents::read(inside.path()));
    assert_eq!(warnings, ["it is no regular file; nothing of it was used"]);
}

#[test]
fn a_record_that_is_left_out_is_named_and_the_others_count() {
    let (subagents, warnings) = read(
        r#"[{"subagentSessionId":"a","workerThreadId":7,"latestHistory":[{},{}]}, 7, {"status":"idle"},
            {"subagentSessionId":"\u001b[31m\u202e","parentSession":1}, {"subagentSessionId":"b"}]"#,
    );
    assert_eq!(ids(&subagents), ["b"]);
    assert_eq!(
        warnings,
        [
            "record 1 (a): its workerThreadId is neither text nor null; it was left out (messages in its history: 2)",
            "record 2: it is no object; it was left out",
            "record 3: its subagentSessionId is no text; it was left out",
            r"record 4 (\u{1b}[31m\u{202e}): its parentSession is neither text nor null; it was left out",
        ]
    );
}

#[test]
fn of_two_records_with_one_id_the_first_counts() {
    let history = r#""latestHistory":[{"role":"user","content":"x"}]"#;
    let (subagents, warnings) = read(format!(
        r#"[{{"subagentSessionId":"a","model":"first"}}, {{"subagentSessionId":"a",{history}}},
            {{"subagentSessionId":"b",{history}}}, {{"subagentSessionId":"b",{history}}},
            {{"subagentSessionId":"b"}}]"#
    ));
    assert_eq!(ids(&subagents), ["a", "b"]);
    assert_eq!(subagents.records[0].model.as_deref(), Some("first"));
    assert_eq!(
        warnings,
        [
            "record 2 (a): an earlier record has the same id; it was left out (messages in its history: 1)",
            "record 4 (b): an earlier record has the same id, and a history of its own; it was left out (messages in its history: 1)",
            "record 5 (b): an earlier record has the same id; it was left out",
        ]
    );
}

#[test]
fn an_odd_history_is_a_warning_and_the_record_stays() {
    let (subagents, warnings) = read(r#"[{"subagentSessionId":"a","latestHistory":"x"}]"#);
    assert_eq!(
        (ids(&subagents), subagents.records[0].history_len),
        (vec!["a"], 0)
    );
    assert_eq!(
        warnings,
        ["record 1 (a): its latestHistory is no array and was not looked at"]
    );
}

#[test]
fn warnings_do_not_grow_with_the_damage() {
    let (_, warnings) = read(format!("[{}7]", "7,".repeat(99_999)));
    assert_eq!(warnings.len(), 21);
    assert_eq!(
        warnings[20],
        "and 99980 more records (messages in their histories: 0)"
    );
}

#[test]
fn memory_does_not_grow_with_the_file() {
    let record = |n| {
        format!(
            r#"{{"subagentSessionId":"{n}","latestHistory":["{}"]}}"#,
            "x".repeat(200)
        )
    };
    let records: Vec<_> = (0..10).map(record).collect();
    let workspace = workspace(format!("[{}]", records.join(",")));
    let (subagents, warnings) = sentences(Subagents::read_within(workspace.path(), 1000, 1500));
    assert_eq!(ids(&subagents), ["0", "1", "2", "3", "4"]);
    assert_eq!(warnings.len(), 5);
    assert_eq!(
        warnings[0],
        "record 6 (5): the records before it are as many as are kept; it was left out (messages in its history: 1)"
    );
    let (subagents, warnings) = sentences(Subagents::read_within(workspace.path(), 200, 200));
    assert!(subagents.records.is_empty());
    assert_eq!(
        warnings,
        ["record 1 is larger than 200 bytes; nothing of it was used"]
    );
}
