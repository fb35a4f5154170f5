//! A message line as a journal record: the four fields that the application's
//! reader returns (`openhuman-workspace.md` §1.6, §1.7), and all else beside them.

use std::borrow::Cow;

use serde_json::Value;

use super::line::{Flaw, MessageLine, known};
use super::values::{Part, ToolCall, Usage};
use crate::model::message::Message;
use crate::source::json;

/// Key under which a message's metadata holds its turn usage.
const TURN_USAGE: &str = "openhuman_turn_usage";

/// Levels of a journal record above `extra_metadata`: the line and its value.
const ABOVE_METADATA: usize = 2;

/// Levels above an unmapped value: line, value, `session_import`, `unmapped`.
pub(crate) const ABOVE_UNMAPPED: usize = 4;

/// Row version of typed rows.
const TYPED: u32 = 2;

/// Buffers that are used again from line to line.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    content: String,
    metadata: String,
    unmapped: String,
}

impl MessageLine<'_> {
    /// The message, or [`Flaw::TooDeep`] where it would make the strict reader
    /// refuse the whole stream.
    ///
    /// `set_aside` are fields that are kept but do not count (`--salvage`).
    pub(crate) fn to_message<'s>(
        &'s self,
        set_aside: &[(Cow<'_, str>, &str)],
        scratch: &'s mut Scratch,
    ) -> Result<Message<'s>, Flaw> {
        let Scratch {
            content,
            metadata,
            unmapped,
        } = scratch;
        let turn_usage = self.turn_usage();
        let metadata = self.metadata(turn_usage.as_ref(), metadata)?;
        let flat = (self.v == TYPED).then(|| self.flat_content()).flatten();
        self.push_unmapped(turn_usage.as_ref(), flat.as_ref(), set_aside, unmapped);
        Ok(Message {
            id: self.id.map(Cow::Borrowed),
            role: Cow::Borrowed(self.role),
            content: match flat {
                Some(flat) => {
                    *content = json::encode(&flat.text);
                    Cow::Borrowed(content)
                }
                None => Cow::Borrowed(self.content),
            },
            extra_metadata: metadata.map(Cow::Borrowed),
            unmapped: (unmapped.len() > "{}".len()).then_some(Cow::Borrowed(unmapped.as_str())),
            salvaged: None,
        })
    }

    /// Usage and origin of an answer: only an assistant's, and only whole (§1.6).
    fn turn_usage(&self) -> Option<TurnUsage<'_>> {
        let usage = TurnUsage {
            provider: self.provider?,
            model: self.model?,
            usage: self.usage.as_ref()?,
            ts: self.ts?,
            line: self,
        };
        json::is_string(self.role, "assistant").then_some(usage)
    }

    /// `extra_metadata` with the turn usage in it.
    fn metadata<'s>(
        &'s self,
        turn_usage: Option<&TurnUsage<'_>>,
        out: &'s mut String,
    ) -> Result<Option<&'s str>, Flaw> {
        let own_depth = || self.extra_metadata.map_or(Ok(0), json::scan);
        let Some(turn_usage) = turn_usage else {
            return too_deep(own_depth()?).map(|()| self.extra_metadata);
        };
        out.clear();
        out.push('{');
        let mut depth = turn_usage.depth()?;
        match self.extra_metadata.map(super::line::Fields::parse) {
            Some(Ok(fields)) => {
                // The one that is replaced may nest as deep as it likes.
                for (key, raw) in fields.0.iter().filter(|(key, _)| key != TURN_USAGE) {
                    depth = depth.max(1 + json::scan(raw)?);
                    json::push_key(out, key);
                    out.push_str(raw);
                }
            }
            Some(Err(_)) => {
                depth = depth.max(own_depth()? + 1);
                json::push_key(out, "value");
                out.push_str(self.extra_metadata.unwrap_or("null"));
            }
            None => {}
        }
        json::push_key(out, TURN_USAGE);
        turn_usage.push(out);
        out.push('}');
        too_deep(depth).map(|()| Some(out.as_str()))
    }

    /// The content of a typed row in the older, flat form (§1.7).
    fn flat_content(&self) -> Option<Flat> {
        let shape = self.shape?;
        if json::is_string(shape, "assistant_calls") {
            let calls = self.tool_calls.as_ref().filter(|calls| !calls.is_empty())?;
            let calls: Option<Vec<Value>> = calls.iter().map(ToolCall::to_value).collect();
            let content = json::decode(self.content)?;
            let envelope = serde_json::json!({ "content": content, "tool_calls": calls? });
            Some(Flat::holding_content(envelope.to_string()))
        } else if json::is_string(shape, "tool_result") {
            let call_id = json::decode(self.tool_call_id?)?;
            let content = json::decode(self.content)?;
            let envelope = serde_json::json!({ "content": content, "tool_call_id": call_id });
            Some(Flat::holding_content(envelope.to_string()))
        } else if json::is_string(shape, "user_parts") {
            let text = Part::flatten(self.parts.as_ref()?)?;
            Some(Flat {
                text,
                holds_content: false,
            })
        } else {
            None
        }
    }

    /// Every top-level key that did not make it into the four fields.
    fn push_unmapped(
        &self,
        turn_usage: Option<&TurnUsage<'_>>,
        flat: Option<&Flat>,
        set_aside: &[(Cow<'_, str>, &str)],
        out: &mut String,
    ) {
        let has_turn_usage = turn_usage.is_some();
        out.clear();
        out.push('{');
        for (key, raw) in &self.fields.0 {
            let keep = match (known(key), key.as_ref()) {
                (None, _) => true,
                (Some(_), _) if *raw == "null" => false,
                (_, "id" | "role" | "extra_metadata") => false,
                // The text of a row with parts is in the parts; should it
                // differ from them, it is here.
                (_, "content") => flat.is_some_and(|flat| !flat.holds_content),
                (_, "provider" | "model" | "ts" | "reasoning_content" | "iteration") => {
                    !has_turn_usage
                }
                (_, "usage") => {
                    !has_turn_usage || self.usage.as_ref().is_some_and(|usage| usage.has_unknown)
                }
                (_, "tool_calls") => {
                    let mut calls = self.tool_calls.iter().flatten();
                    !has_turn_usage || self.v == TYPED || calls.any(|call| call.has_unknown)
                }
                _ => true,
            };
            if keep {
                json::push_kept(out, key, raw, ABOVE_UNMAPPED);
            }
        }
        if let Some(turn_usage) = turn_usage {
            let replaced = self.extra_metadata.and_then(|raw| {
                let fields = super::line::Fields::parse(raw).ok()?;
                fields.last(TURN_USAGE)
            });
            // Another one than that which took its place.
            let is_another = |old: &&str| {
                let value = |raw: &str| serde_json::from_str::<Value>(raw).ok();
                let mut new = String::new();
                turn_usage.push(&mut new);
                value(old) != value(&new)
            };
            if let Some(replaced) = replaced.filter(is_another) {
                json::push_kept(out, TURN_USAGE, replaced, ABOVE_UNMAPPED);
            }
        }
        for (index, (key, raw)) in set_aside.iter().enumerate() {
            // One that is given twice is kept twice.
            let earlier = set_aside
                .iter()
                .take(index)
                .filter(|(other, _)| other == key);
            match earlier.count() {
                0 => json::push_kept(out, key, raw, ABOVE_UNMAPPED),
                count => {
                    let name = format!("{key}#{}", count + 1);
                    json::push_kept(out, &name, raw, ABOVE_UNMAPPED);
                }
            }
        }
        out.push('}');
    }
}

fn too_deep(depth: usize) -> Result<(), Flaw> {
    if depth + ABOVE_METADATA > json::MAX_DEPTH {
        return Err(Flaw::TooDeep);
    }
    Ok(())
}

/// A typed row's content in the older form.
struct Flat {
    text: String,
    /// The row's own `content` stands in it.
    holds_content: bool,
}

impl Flat {
    fn holding_content(text: String) -> Self {
        Self {
            text,
            holds_content: true,
        }
    }
}

/// The parts of a line that make a turn usage.
struct TurnUsage<'a> {
    provider: &'a str,
    model: &'a str,
    usage: &'a Usage,
    ts: &'a str,
    line: &'a MessageLine<'a>,
}

impl TurnUsage<'_> {
    /// Depth of the metadata that holds it: metadata, turn usage, usage; or
    /// metadata, turn usage, array, call, and what the call brings along.
    fn depth(&self) -> Result<usize, Flaw> {
        let mut depth = 3;
        for call in self.line.tool_calls.iter().flatten() {
            let extra = call.extra_content.map_or(Ok(0), json::scan)?;
            depth = depth.max(4 + extra);
        }
        Ok(depth)
    }

    fn push(&self, out: &mut String) {
        let texts = ["{\"provider\":", self.provider, ",\"model\":", self.model];
        texts.into_iter().for_each(|text| out.push_str(text));
        out.push_str(",\"usage\":");
        self.usage.push(out);
        out.push_str(",\"ts\":");
        out.push_str(self.ts);
        if let Some(reasoning) = self.line.reasoning_content {
            out.push_str(",\"reasoning_content\":");
            out.push_str(reasoning);
        }
        out.push_str(",\"tool_calls\":[");
        for (index, call) in self.line.tool_calls.iter().flatten().enumerate() {
            if index > 0 {
                out.push(',');
            }
            call.push(out);
        }
        out.push_str("],\"iteration\":");
        let iteration = self.line.iteration.unwrap_or_default();
        out.push_str(itoa::Buffer::new().format(iteration));
        out.push('}');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::openhuman::line::{Record, classify};

    /// `{content, extra_metadata, unmapped}` of a line.
    fn message(text: &str) -> Value {
        let Ok(Record::Message(line)) = classify(text) else {
            panic!("no message: {text}");
        };
        let mut scratch = Scratch::default();
        let message = line.to_message(&[], &mut scratch).unwrap();
        let value = |text: Option<&str>| {
            text.map_or(Value::Null, |text| serde_json::from_str(text).unwrap())
        };
        serde_json::json!({
            "content": value(Some(&message.content)),
            "extra": value(message.extra_metadata.as_deref()),
            "unmapped": value(message.unmapped.as_deref()),
        })
    }

    const USAGE: &str = r#""usage":{"input":1,"output":2,"cached_input":3,"cost_usd":1}"#;

    #[test]
    fn an_answer_of_generation_three_keeps_its_usage_unmapped() {
        let line = format!(r#"{{"role":"assistant","content":"a","model":"m","ts":"t",{USAGE}}}"#);
        let got = message(&line);
        assert_eq!(got["extra"], Value::Null);
        assert_eq!(got["unmapped"]["model"], "m");
        assert_eq!(got["unmapped"]["usage"]["cost_usd"], 1);
    }

    #[test]
    fn a_whole_answer_has_its_turn_usage() {
        let line = format!(
            r#"{{"role":"assistant","content":"a","provider":"p","model":"m","ts":"t",{USAGE},
            "extra_metadata":{{"a":1,"openhuman_turn_usage":"old"}},"request_id":"r"}}"#
        );
        let got = message(&line);
        assert_eq!(
            got["extra"],
            serde_json::json!({"a": 1, "openhuman_turn_usage": {
                "provider": "p", "model": "m", "ts": "t", "tool_calls": [], "iteration": 0,
                "usage": {"input": 1, "output": 2, "cached_input": 3, "context_window": 0, "cost_usd": 1.0},
            }})
        );
        assert_eq!(
            got["unmapped"],
            serde_json::json!({"request_id": "r", "openhuman_turn_usage": "old"})
        );
    }

    #[test]
    fn metadata_that_is_no_object_is_wrapped() {
        let line = format!(
            r#"{{"role":"assistant","content":"a","provider":"p","model":"m","ts":"t",{USAGE},"extra_metadata":[1]}}"#
        );
        assert_eq!(message(&line)["extra"]["value"], serde_json::json!([1]));
        let user = r#"{"role":"user","content":"a","extra_metadata":[1]}"#;
        assert_eq!(message(user)["extra"], serde_json::json!([1]));
    }

    #[test]
    fn the_text_of_a_row_with_parts_is_not_lost() {
        let line = r#"{"role":"user","content":"alt","v":2,"shape":"user_parts","parts":[{"type":"text","text":"b"}]}"#;
        let got = message(line);
        assert_eq!(got["content"], "b");
        assert_eq!(got["unmapped"]["content"], "alt");
    }

    #[test]
    fn a_typed_row_without_what_its_shape_needs_keeps_its_content() {
        for rest in [
            r#""shape":"assistant_calls","tool_calls":[]"#,
            r#""shape":"tool_result""#,
            r#""shape":"user_parts","parts":[{"type":"x"}]"#,
            r#""shape":"hologram""#,
        ] {
            let line = format!(r#"{{"role":"user","content":"a","v":2,{rest}}}"#);
            assert_eq!(message(&line)["content"], "a", "{rest}");
        }
    }

    #[test]
    fn too_deep_is_told_from_just_deep_enough() {
        let nested = |levels| "[".repeat(levels) + &"]".repeat(levels);
        let line = |levels| {
            format!(
                r#"{{"role":"u","content":"","extra_metadata":{}}}"#,
                nested(levels)
            )
        };
        let check = |text: &str| {
            let Ok(Record::Message(line)) = classify(text) else {
                panic!("no message");
            };
            line.to_message(&[], &mut Scratch::default()).map(|_| ())
        };
        assert_eq!(check(&line(125)), Ok(()));
        assert_eq!(check(&line(126)), Err(Flaw::TooDeep));
    }

    #[test]
    fn a_turn_usage_that_is_replaced_may_nest_deep() {
        let deep = "[".repeat(124) + &"]".repeat(124);
        let line = format!(
            r#"{{"role":"assistant","content":"a","provider":"p","model":"m","ts":"t",{USAGE},"extra_metadata":{{"openhuman_turn_usage":{deep}}}}}"#
        );
        let got = message(&line);
        assert_eq!(got["extra"]["openhuman_turn_usage"]["ts"], "t");
        assert_eq!(got["unmapped"]["openhuman_turn_usage"]["json"], deep);
    }

    #[test]
    fn an_unmapped_value_that_nests_too_deep_is_kept_as_text() {
        let nested = |levels| "[".repeat(levels) + &"]".repeat(levels);
        let line = |levels| format!(r#"{{"role":"u","content":"","x":{}}}"#, nested(levels));
        assert!(message(&line(123))["unmapped"]["x"].is_array());
        assert_eq!(message(&line(124))["unmapped"]["x"]["json"], nested(124));
    }
}
