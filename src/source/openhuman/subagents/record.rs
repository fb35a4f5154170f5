//! One record of the sub-agents file, read as tolerantly as lineage allows.

use serde_json::Map;

use super::Subagent;
use super::json;
use crate::model::key::Sha256;

/// Largest record, beside its history, that is kept in memory. The
/// application's have less than a thousand bytes.
const LARGEST: usize = 1 << 20;

/// A descriptor or an entry lies around the values that describe a sub-agent,
/// and the strict reader takes 127 levels in all.
const DEEPEST: usize = 120;

/// A record that is left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LeftOut {
    /// Its id, where it has one.
    pub(super) id: Option<String>,
    pub(super) why: String,
    /// Messages of its history, which are left out with it.
    pub(super) messages: u64,
}

/// A record that can be used.
#[derive(Debug)]
pub(super) struct Parsed {
    pub(super) subagent: Subagent,
    /// Bytes of its text beside the history.
    pub(super) around: u64,
    /// What is odd about it.
    pub(super) odd: Option<&'static str>,
}

/// The fields that are read, as they stand.
#[derive(Default)]
struct Fields<'r> {
    id: Option<&'r str>,
    parent_session: Option<&'r str>,
    parent_thread_id: Option<&'r str>,
    worker_thread_id: Option<&'r str>,
    agent_id: Option<&'r str>,
    created_at: Option<&'r str>,
    updated_at: Option<&'r str>,
    model: Option<&'r str>,
    current_task_id: Option<&'r str>,
    task_key: Option<&'r str>,
    history: Option<&'r str>,
}

/// Reads a record.
pub(super) fn parse(raw: &str) -> Result<Parsed, LeftOut> {
    let left_out = |why: String| LeftOut {
        id: None,
        why,
        messages: 0,
    };
    let (fields, twice) = fields(raw).ok_or_else(|| left_out("it is no object".to_owned()))?;
    let (history_len, odd) = match fields.history {
        None | Some("null") => (0, None),
        Some(history) => match length(history) {
            Some(length) => (length, None),
            None => (
                0,
                Some("its latestHistory is no array and was not looked at"),
            ),
        },
    };
    let id = text(fields.id).ok().flatten().filter(|id| !id.is_empty());
    let left_out = |why: String| LeftOut {
        id: id.clone(),
        why,
        messages: history_len,
    };
    if let Some(twice) = twice {
        return Err(left_out(format!("it has {twice} twice")));
    }
    let wrong = |name: &str| left_out(format!("its {name} is neither text nor null"));
    let parent_session = text(fields.parent_session).map_err(|_| wrong("parentSession"))?;
    let parent_thread_id = text(fields.parent_thread_id).map_err(|_| wrong("parentThreadId"))?;
    let worker_thread_id = text(fields.worker_thread_id).map_err(|_| wrong("workerThreadId"))?;
    let around = raw.len().saturating_sub(fields.history.map_or(0, str::len));
    if around > LARGEST {
        let why = format!("it has more than {LARGEST} bytes beside its history");
        return Err(left_out(why));
    }
    let Some(id) = id.clone() else {
        return Err(left_out("its subagentSessionId is no text".to_owned()));
    };
    let lenient = |field| text(field).unwrap_or_default();
    let subagent = Subagent {
        id,
        parent_session,
        parent_thread_id,
        worker_thread_id,
        agent_id: lenient(fields.agent_id),
        created_at: lenient(fields.created_at),
        updated_at: lenient(fields.updated_at),
        model: lenient(fields.model),
        task_id: lenient(fields.current_task_id),
        about: about(raw),
        history_len,
        sha256: Sha256::of(raw.as_bytes()),
        bytes: raw.len() as u64,
        at: 0,
    };
    Ok(Parsed {
        subagent,
        around: around as u64,
        odd,
    })
}

/// The `latestHistory` of a record, as it stands.
pub(super) fn history(raw: &str) -> Option<&str> {
    fields(raw).and_then(|(fields, _)| fields.history)
}

/// The fields, and one that is there twice.
fn fields(raw: &str) -> Option<(Fields<'_>, Option<String>)> {
    let mut fields = Fields::default();
    let mut twice = None;
    let is_object = json::members(raw, &mut |key, value| {
        let field = match key.as_str() {
            "subagentSessionId" => &mut fields.id,
            "parentSession" => &mut fields.parent_session,
            "parentThreadId" => &mut fields.parent_thread_id,
            "workerThreadId" => &mut fields.worker_thread_id,
            "agentId" => &mut fields.agent_id,
            "createdAt" => &mut fields.created_at,
            "updatedAt" => &mut fields.updated_at,
            "model" => &mut fields.model,
            "currentTaskId" => &mut fields.current_task_id,
            "taskKey" => &mut fields.task_key,
            "latestHistory" => &mut fields.history,
            _ => return,
        };
        if field.replace(value).is_some() {
            twice = Some(key);
        }
    });
    is_object.then_some((fields, twice))
}

/// The whole record but for its history, which is a session's business.
fn about(raw: &str) -> serde_json::Value {
    let mut about = Map::new();
    json::members(raw, &mut |key, value| {
        if key != "latestHistory" {
            about.insert(key, json::value_or_text(value, DEEPEST));
        }
    });
    about.into()
}

fn length(history: &str) -> Option<u64> {
    let mut length = 0;
    json::elements(history, &mut |_| {
        length += 1;
        true
    })
    .then_some(length)
}

/// A field that is text, null or not there.
fn text(field: Option<&str>) -> serde_json::Result<Option<String>> {
    field.map_or(Ok(None), serde_json::from_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const FULL: &str = r#"{"subagentSessionId": "sub-1", "parentSession": "1_orch",
        "parentThreadId": "t-main", "workerThreadId": "t-w", "agentId": "scout", "displayName": null,
        "model": "m", "taskKey": "key", "taskTitle": "T", "currentTaskId": null,
        "status": "hibernating", "reusable": true, "latestHistory": [{"role":"user"}, 1, "x"],
        "createdAt": "c", "updatedAt": "u", "new": {"n": 12345678901234567890123}}"#;

    fn left_out(raw: &str) -> (Option<String>, String, u64) {
        let left = parse(raw).unwrap_err();
        (left.id, left.why, left.messages)
    }

    #[test]
    fn a_record_is_read_whole() {
        let Parsed {
            subagent,
            odd,
            around,
        } = parse(FULL).unwrap();
        assert_eq!(
            around,
            FULL.len() as u64 - r#"[{"role":"user"}, 1, "x"]"#.len() as u64
        );
        assert_eq!(odd, None);
        let some = |text: &str| Some(text.to_owned());
        let expected = Subagent {
            id: "sub-1".to_owned(),
            parent_session: some("1_orch"),
            parent_thread_id: some("t-main"),
            worker_thread_id: some("t-w"),
            agent_id: some("scout"),
            created_at: some("c"),
            updated_at: some("u"),
            model: some("m"),
            task_id: None,
            about: json!({
                "subagentSessionId": "sub-1", "parentSession": "1_orch",
                "parentThreadId": "t-main", "workerThreadId": "t-w", "agentId": "scout",
                "displayName": null, "model": "m", "taskKey": "key", "taskTitle": "T",
                "currentTaskId": null, "status": "hibernating", "reusable": true,
                "createdAt": "c", "updatedAt": "u",
                "new": {"json": r#"{"n": 12345678901234567890123}"#},
            }),
            history_len: 3,
            sha256: Sha256::of(FULL.as_bytes()),
            bytes: FULL.len() as u64,
            at: 0,
        };
        assert_eq!(subagent, expected);
    }

    #[test]
    fn the_task_is_the_current_one() {
        let raw = r#"{"subagentSessionId":"s","taskKey":"key","currentTaskId":"now"}"#;
        assert_eq!(parse(raw).unwrap().subagent.task_id.as_deref(), Some("now"));
    }

    #[test]
    fn what_is_no_part_of_lineage_may_be_anything() {
        let raw = r#"{"subagentSessionId":"s","agentId":7,"model":[],"createdAt":1,"updatedAt":{},
                      "currentTaskId":1,"taskKey":true,"status":null,"latestHistory":null}"#;
        let Parsed { subagent, odd, .. } = parse(raw).unwrap();
        assert_eq!(
            (subagent.agent_id, subagent.model, subagent.task_id),
            (None, None, None)
        );
        assert_eq!((subagent.history_len, odd), (0, None));
        assert_eq!(subagent.about["agentId"], 7);
    }

    #[test]
    fn a_record_without_usable_ids_is_left_out() {
        for (raw, id, why, messages) in [
            ("7", None, "it is no object", 0),
            ("{}", None, "its subagentSessionId is no text", 0),
            (
                r#"{"subagentSessionId":"","latestHistory":[1]}"#,
                None,
                "its subagentSessionId is no text",
                1,
            ),
            (
                r#"{"subagentSessionId":7}"#,
                None,
                "its subagentSessionId is no text",
                0,
            ),
            (
                r#"{"subagentSessionId":"\ud800"}"#,
                None,
                "its subagentSessionId is no text",
                0,
            ),
            (
                r#"{"subagentSessionId":"s","workerThreadId":7,"latestHistory":[1,2]}"#,
                Some("s"),
                "its workerThreadId is neither text nor null",
                2,
            ),
            (
                r#"{"subagentSessionId":"s","parentThreadId":[]}"#,
                Some("s"),
                "its parentThreadId is neither text nor null",
                0,
            ),
            (
                r#"{"subagentSessionId":"s","parentSession":false}"#,
                Some("s"),
                "its parentSession is neither text nor null",
                0,
            ),
            (
                r#"{"subagentSessionId":"s","agentId":"a","agentId":"b"}"#,
                Some("s"),
                "it has agentId twice",
                0,
            ),
        ] {
            let expected = (id.map(str::to_owned), why.to_owned(), messages);
            assert_eq!(left_out(raw), expected, "{raw}");
        }
    }

    #[test]
    fn a_history_that_is_no_array_is_odd() {
        let Parsed { subagent, odd, .. } =
            parse(r#"{"subagentSessionId":"s","latestHistory":{"a":1}}"#).unwrap();
        assert_eq!(subagent.history_len, 0);
        assert!(odd.unwrap().contains("latestHistory is no array"));
    }

    #[test]
    fn a_record_may_be_as_large_as_its_history_but_not_else() {
        let large = "x".repeat(LARGEST);
        let raw = format!(r#"{{"subagentSessionId":"s","latestHistory":["{large}"]}}"#);
        assert_eq!(parse(&raw).unwrap().subagent.history_len, 1);
        let raw = format!(r#"{{"subagentSessionId":"s","latestError":"{large}"}}"#);
        assert!(left_out(&raw).1.contains("bytes beside its history"));
    }

    #[test]
    fn what_would_not_be_read_back_is_described_as_text() {
        let deep = "[".repeat(121) + &"]".repeat(121);
        let raw = format!(r#"{{"subagentSessionId":"s","a":{deep},"b":"\ud800","c":1e400}}"#);
        let about = parse(&raw).unwrap().subagent.about;
        assert_eq!(about["a"], json!({ "json": deep }));
        assert_eq!(about["b"], json!({ "json": r#""\ud800""# }));
        assert_eq!(about["c"], json!({ "json": "1e400" }));
    }
}
