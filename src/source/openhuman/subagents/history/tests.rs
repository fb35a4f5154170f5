use std::fs;

use super::*;
use crate::model::session::Lines;
use crate::source::openhuman::subagents::Subagents;

/// What went to the sink, in order.
#[derive(Default)]
struct Kept {
    messages: Vec<Message<'static>>,
    residue: Vec<(u64, Why, String, String)>,
    full_after: Option<usize>,
}

impl Sink for Kept {
    fn message(&mut self, message: &Message<'_>) -> Result<()> {
        if self.full_after == Some(self.messages.len()) {
            return Err(Error::Interrupted);
        }
        let own = |text: &Cow<'_, str>| Cow::Owned(text.to_string());
        self.messages.push(Message {
            id: message.id.as_ref().map(own),
            role: own(&message.role),
            content: own(&message.content),
            extra_metadata: message.extra_metadata.as_ref().map(own),
            unmapped: message.unmapped.as_ref().map(own),
            salvaged: message.salvaged.as_ref().map(own),
        });
        Ok(())
    }

    fn residue(&mut self, residue: &Residue<'_>) -> Result<()> {
        let error = residue.error.as_deref().unwrap_or_default().to_owned();
        let text = String::from_utf8(residue.text.to_vec()).unwrap();
        self.residue.push((residue.line, residue.why, error, text));
        Ok(())
    }

    fn restart(&mut self) -> Result<()> {
        panic!("there is no compaction in a history");
    }

    fn settle(&mut self) -> Result<()> {
        Ok(())
    }
}

struct Place(tempfile::TempDir);

impl Place {
    fn new(text: &str) -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        fs::create_dir(place.0.path().join(FOLDER)).unwrap();
        place.write(text);
        place
    }

    fn write(&self, text: &str) {
        fs::write(self.path(), text).unwrap();
    }

    fn path(&self) -> std::path::PathBuf {
        self.0.path().join(FOLDER).join(FILE)
    }

    fn first(&self) -> Subagent {
        let (subagents, warnings) = Subagents::read(self.0.path());
        assert!(warnings.is_empty(), "{warnings:?}");
        subagents.records[0].clone()
    }
}

/// Reads a history of these entries.
#[track_caller]
fn read(history: &str) -> (Reading, Kept) {
    let place = Place::new(&format!(
        "[{{\"subagentSessionId\": \"s\", \"latestHistory\": [{history}]}}]"
    ));
    let mut kept = Kept::default();
    let subagent = place.first();
    let reading = read_history(place.0.path(), &subagent, &mut kept).unwrap();
    assert!(reading.lines.add_up(), "{:?}", reading.lines);
    assert_eq!(reading.lines.total, subagent.history_len);
    assert_eq!(reading.lines.messages, kept.messages.len() as u64);
    assert_eq!(reading.lines.residue, kept.residue.len() as u64);
    (reading, kept)
}

/// How the journal's line would be read.
fn journal_accepts(message: &Message<'_>) -> bool {
    let member = |name, text: &Option<Cow<'_, str>>| {
        text.as_ref()
            .map_or(String::new(), |text| format!(",\"{name}\":{text}"))
    };
    let line = format!(
        "{{\"offset\":0,\"value\":{{\"role\":{},\"content\":{}{}{},\"session_import\":{{\"salvaged\":null{}}}}}}}",
        message.role,
        message.content,
        member("id", &message.id),
        member("extra_metadata", &message.extra_metadata),
        member("unmapped", &message.unmapped),
    );
    !line.contains('\n') && serde_json::from_str::<serde_json::Value>(&line).is_ok()
}

#[test]
fn a_history_is_a_session() {
    let place = Place::new(
        r#"[{"subagentSessionId":"other"},
            {"subagentSessionId":"s","agentId":"scout","workerThreadId":"t","model":"m","taskKey":"k",
             "createdAt":"c","updatedAt":"u","latestHistory":[
               {"role": "user", "content": "only here \u00e9"},
               {"id": "2", "role": "assistant", "content": "<tool_call>", "extra_metadata": {
                 "n": 1.10
               }, "provider": null, "more": [ 123456789012345678901234567890 ]}]}]"#,
    );
    let (subagents, _) = Subagents::read(place.0.path());
    let mut kept = Kept::default();
    let reading = read_history(place.0.path(), &subagents.records[1], &mut kept).unwrap();

    let some = |text: &str| Some(text.to_owned());
    let expected = Header {
        agent: "scout".to_owned(),
        agent_id: some("scout"),
        agent_type: some("subagent"),
        dispatcher: "native".to_owned(),
        model: some("m"),
        created: "c".to_owned(),
        updated: "u".to_owned(),
        thread_id: some("t"),
        task_id: None,
        ..Header::default()
    };
    assert_eq!(reading.header, expected);
    let lines = Lines {
        total: 2,
        messages: 2,
        ..Lines::default()
    };
    assert_eq!(
        (reading.lines, reading.messages, reading.generation),
        (lines, 2, 0)
    );
    assert!(reading.tool_call_markup && reading.rejected == 0);
    assert!(reading.diagnostics.has(Code::SubagentHistory));

    let first = Message {
        role: r#""user""#.into(),
        content: r#""only here \u00e9""#.into(),
        ..Message::default()
    };
    let second = Message {
        id: Some(r#""2""#.into()),
        role: r#""assistant""#.into(),
        content: r#""<tool_call>""#.into(),
        extra_metadata: Some(r#"{"n":1.10}"#.into()),
        unmapped: Some(r#"{"provider":null,"more":[123456789012345678901234567890]}"#.into()),
        salvaged: None,
    };
    assert_eq!(kept.messages, [first, second]);
    assert!(kept.messages.iter().all(journal_accepts));
}

#[test]
fn what_the_record_does_not_say_is_left_blank() {
    let (reading, _) = read("");
    let header = reading.header;
    assert_eq!((header.agent.as_str(), header.agent_id), ("unknown", None));
    assert_eq!(
        (header.created, header.updated),
        (String::new(), String::new())
    );
    assert_eq!(reading.lines, Lines::default());
}

#[test]
fn entries_that_are_no_messages_are_residue() {
    let entries = [
        "7",
        r#"["user", "x"]"#,
        r#"{"content":"x"}"#,
        r#"{"role":7,"content":"x"}"#,
        r#"{"role":"user"}"#,
        r#"{"role":"user","content":null}"#,
        r#"{"role":"user","content":"\ud800"}"#,
        r#"{"role":"user","content":"x","content":"y"}"#,
        "{\"role\":\"user\",\n\"\\ud800\":1,\"content\":\"x\"}",
    ];
    let (reading, kept) = read(&entries.join(", "));
    assert_eq!(reading.rejected, entries.len() as u64);
    assert_eq!(
        reading.diagnostics.lines_of(Code::MalformedLine),
        entries.len() as u64
    );
    let texts: Vec<_> = kept
        .residue
        .iter()
        .map(|(_, _, _, text)| text.as_str())
        .collect();
    assert_eq!(texts, entries);
    let lines: Vec<_> = kept.residue.iter().map(|(line, ..)| *line).collect();
    assert_eq!(lines, [1, 2, 3, 4, 5, 6, 7, 8, 9]);
    assert!(kept.residue.iter().all(|(_, why, error, _)| {
        *why == Why::Malformed && error.starts_with("malformed-line: ")
    }));
}

#[test]
fn nothing_nests_deeper_than_the_journal_can_be_read() {
    let nested = |levels| "[".repeat(levels) + &"]".repeat(levels);
    let entry = |key, levels| {
        format!(
            r#"{{"role":"user","content":"x","{key}":{}}}"#,
            nested(levels)
        )
    };

    let (_, kept) = read(&entry("extra_metadata", 125));
    assert!(journal_accepts(&kept.messages[0]));
    let (reading, kept) = read(&entry("extra_metadata", 126));
    assert_eq!((kept.residue[0].1, reading.rejected), (Why::TooDeep, 0));
    assert_eq!(reading.diagnostics.lines_of(Code::TooDeep), 1);

    let (reading, kept) = read(&entry("other", 123));
    assert!(journal_accepts(&kept.messages[0]) && !reading.diagnostics.has(Code::ValueAsText));
    let (reading, kept) = read(&entry("other", 124));
    assert!(journal_accepts(&kept.messages[0]) && reading.diagnostics.has(Code::ValueAsText));
    let expected = format!(r#"{{"other":{{"json":"{}"}}}}"#, nested(124));
    assert_eq!(
        kept.messages[0].unmapped.as_deref(),
        Some(expected.as_str())
    );
}

#[test]
fn values_that_the_strict_reader_refuses_are_kept_as_text() {
    let (reading, kept) = read(
        r#"{"role":"user","content":"x","id":7,"extra_metadata":{"n": 1e400},"a":"\ud800","a":1},
           {"role":"user","content":"x","id":null,"extra_metadata":null}"#,
    );
    assert_eq!(reading.diagnostics.lines_of(Code::ValueAsText), 1);
    let [first, second] = kept.messages.try_into().unwrap();
    let expected =
        r#"{"a":{"json":"\"\\ud800\""},"a":1,"id":7,"extra_metadata":{"json":"{\"n\": 1e400}"}}"#;
    assert_eq!(first.unmapped.as_deref(), Some(expected));
    assert_eq!((&first.id, &first.extra_metadata), (&None, &None));
    assert!(journal_accepts(&first));
    assert_eq!(
        (second.id, second.extra_metadata, second.unmapped),
        (None, None, None)
    );
}

#[test]
fn a_record_that_is_not_the_same_any_more_is_not_read() {
    let text = r#"[{"subagentSessionId":"s","latestHistory":[{"role":"user","content":"x"}]}]"#;
    let place = Place::new(text);
    let subagent = place.first();
    let code = |place: &Place| {
        let mut kept = Kept::default();
        let outcome = read_history(place.0.path(), &subagent, &mut kept);
        assert!(kept.messages.is_empty());
        outcome.unwrap_err().code()
    };
    for changed in [
        text.replace("\"x\"", "\"y\""),
        "[]".to_owned(),
        "[{".to_owned(),
        "{}".to_owned(),
    ] {
        place.write(&changed);
        assert_eq!(code(&place), Code::ChangedWhileRead, "{changed}");
    }
    fs::remove_file(place.path()).unwrap();
    assert_eq!(code(&place), Code::Vanished);

    // Another record before it, or trouble behind it, is none of its business.
    place.write(
        &text
            .replace("[{\"sub", "[{\"new\":1},\n{\"sub")
            .replace("}]}]", "}]},{"),
    );
    let mut kept = Kept::default();
    read_history(place.0.path(), &subagent, &mut kept).unwrap();
    assert_eq!(kept.messages.len(), 1);
}

#[test]
fn trouble_of_the_sink_ends_the_reading() {
    let entry = r#"{"role":"user","content":"x"}"#;
    let place = Place::new(&format!(
        r#"[{{"subagentSessionId":"s","latestHistory":[{entry},{entry},{entry}]}}]"#
    ));
    let mut kept = Kept {
        full_after: Some(1),
        ..Kept::default()
    };
    let outcome = read_history(place.0.path(), &place.first(), &mut kept);
    assert!(matches!(outcome, Err(Error::Interrupted)));
    assert_eq!(kept.messages.len(), 1);
}
