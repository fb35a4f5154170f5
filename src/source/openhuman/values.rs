//! The structured values of a message line: usage, tool calls, parts.
//!
//! The application's reader is serde, so a usage or a tool call may also be an
//! array of its values in order (`openhuman-workspace.md` §1.4).

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// Token counts and cost of one answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Usage {
    pub(crate) input: u64,
    pub(crate) output: u64,
    pub(crate) cached_input: u64,
    pub(crate) context_window: u64,
    pub(crate) cost_usd: f64,
    /// It holds keys that the reader does not know.
    pub(crate) has_unknown: bool,
}

/// In the reader's order, which is the order of the array form.
#[derive(Deserialize)]
struct UsageFields {
    input: u64,
    output: u64,
    cached_input: u64,
    #[serde(default)]
    context_window: u64,
    cost_usd: f64,
}

/// The same, without room for anything else.
#[derive(Deserialize)]
#[serde(remote = "UsageFields", deny_unknown_fields)]
struct UsageFieldsOnly {
    input: u64,
    output: u64,
    cached_input: u64,
    #[serde(default)]
    context_window: u64,
    cost_usd: f64,
}

impl Usage {
    /// `None` where the type is wrong; `Some(None)` for `null`.
    pub(crate) fn parse(raw: &str) -> Option<Option<Self>> {
        let mut text = serde_json::Deserializer::from_str(raw);
        // Nearly all have the known keys alone, and are parsed once.
        let (fields, has_unknown) = match UsageFieldsOnly::deserialize(&mut text) {
            Ok(fields) => (Some(fields), false),
            Err(_) => (serde_json::from_str(raw).ok()?, true),
        };
        Some(fields.map(|fields: UsageFields| Self {
            input: fields.input,
            output: fields.output,
            cached_input: fields.cached_input,
            context_window: fields.context_window,
            cost_usd: fields.cost_usd,
            has_unknown,
        }))
    }

    /// Appends it as the turn usage has it (`openhuman-workspace.md` §1.6).
    pub(crate) fn push(&self, out: &mut String) {
        let Self {
            input,
            output,
            cached_input,
            context_window,
            cost_usd,
            ..
        } = self;
        let counts = [
            ("{\"input\":", input),
            (",\"output\":", output),
            (",\"cached_input\":", cached_input),
            (",\"context_window\":", context_window),
        ];
        let mut digits = itoa::Buffer::new();
        for (key, count) in counts {
            out.push_str(key);
            out.push_str(digits.format(*count));
        }
        out.push_str(",\"cost_usd\":");
        // Through `Value`, so that a whole number of dollars stays a double.
        out.push_str(&Value::from(*cost_usd).to_string());
        out.push('}');
    }
}

/// One native tool call; JSON texts as they stood.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ToolCall<'a> {
    pub(crate) id: &'a str,
    pub(crate) name: &'a str,
    /// JSON in a string; not looked into.
    pub(crate) arguments: &'a str,
    /// Any JSON but `null`.
    pub(crate) extra_content: Option<&'a str>,
    /// It holds keys that the reader does not know.
    pub(crate) has_unknown: bool,
}

/// In the reader's order, which is the order of the array form.
#[derive(Deserialize)]
struct ToolCallFields<'a> {
    #[serde(borrow)]
    id: &'a RawValue,
    #[serde(borrow)]
    name: &'a RawValue,
    #[serde(borrow)]
    arguments: &'a RawValue,
    #[serde(borrow, default)]
    extra_content: Option<&'a RawValue>,
}

/// The same, without room for anything else.
#[derive(Deserialize)]
#[serde(remote = "ToolCallFields", deny_unknown_fields)]
struct ToolCallFieldsOnly<'a> {
    #[serde(borrow)]
    id: &'a RawValue,
    #[serde(borrow)]
    name: &'a RawValue,
    #[serde(borrow)]
    arguments: &'a RawValue,
    #[serde(borrow, default)]
    extra_content: Option<&'a RawValue>,
}

impl<'a> ToolCall<'a> {
    /// `None` where a type is wrong; `Some(None)` for `null`.
    pub(crate) fn parse_all(raw: &'a str) -> Option<Option<Vec<Self>>> {
        let calls: Option<Vec<&'a RawValue>> = serde_json::from_str(raw).ok()?;
        let Some(calls) = calls else {
            return Some(None);
        };
        let calls = calls.into_iter().map(|call| Self::parse(call.get()));
        calls.collect::<Option<Vec<_>>>().map(Some)
    }

    fn parse(raw: &'a str) -> Option<Self> {
        let mut text = serde_json::Deserializer::from_str(raw);
        let (fields, has_unknown) = match ToolCallFieldsOnly::deserialize(&mut text) {
            Ok(fields) => (fields, false),
            Err(_) => (serde_json::from_str(raw).ok()?, true),
        };
        let string = |value: &'a RawValue| value.get().starts_with('"').then_some(value.get());
        Some(Self {
            id: string(fields.id)?,
            name: string(fields.name)?,
            arguments: string(fields.arguments)?,
            extra_content: fields
                .extra_content
                .map(RawValue::get)
                .filter(|raw| *raw != "null"),
            has_unknown,
        })
    }

    /// Appends it as the turn usage has it.
    pub(crate) fn push(&self, out: &mut String) {
        let texts = [
            "{\"id\":",
            self.id,
            ",\"name\":",
            self.name,
            ",\"arguments\":",
            self.arguments,
        ];
        texts.into_iter().for_each(|text| out.push_str(text));
        if let Some(extra) = self.extra_content {
            out.push_str(",\"extra_content\":");
            out.push_str(extra);
        }
        out.push('}');
    }

    /// As a value, for the older flat form of a typed row.
    pub(crate) fn to_value(&self) -> Option<Value> {
        let mut text = String::new();
        self.push(&mut text);
        serde_json::from_str(&text).ok()
    }
}

/// Where a medium lies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum MediaSource {
    Path { path: String },
    Url { url: String },
}

/// One part of a typed user row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Part {
    Text {
        text: String,
    },
    Image {
        url: String,
    },
    Audio {
        source: MediaSource,
        mime_type: String,
    },
    Video {
        source: MediaSource,
        mime_type: String,
    },
    Document {
        source: MediaSource,
        mime_type: String,
    },
}

impl Part {
    /// All parts, or none: one that does not fit makes the field absent.
    ///
    /// Through a `Value`, as the reader does it: of a repeated key the last counts.
    pub(crate) fn parse_all(raw: &str) -> Option<Vec<Self>> {
        let value: Value = serde_json::from_str(raw).ok()?;
        serde_json::from_value(value).ok()
    }

    /// The older, flat text of these parts (`openhuman-workspace.md` §1.7).
    pub(crate) fn flatten(parts: &[Self]) -> Option<String> {
        let mut flat = String::new();
        for part in parts {
            match part {
                Self::Text { text } => flat.push_str(text),
                Self::Image { url } => {
                    flat.push_str("[OH_IMAGE:");
                    flat.push_str(url);
                    flat.push(']');
                }
                Self::Audio { .. } | Self::Video { .. } | Self::Document { .. } => {
                    let parts = serde_json::to_value(parts).ok()?;
                    let envelope = serde_json::json!({ "_tinyagents_media_parts": parts });
                    return Some(envelope.to_string());
                }
            }
        }
        Some(flat)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_may_be_an_array_in_order() {
        let usage = Usage::parse("[1,2,3,4,5]").unwrap().unwrap();
        assert_eq!((usage.context_window, usage.cost_usd), (4, 5.0));
        assert!(Usage::parse("[1,2,3,4]").is_none());
        assert!(!usage.has_unknown);
    }

    #[test]
    fn usage_keeps_to_its_types() {
        assert_eq!(Usage::parse("null"), Some(None));
        for bad in [
            r#"{"input":1,"output":2,"cached_input":3}"#,
            r#"{"input":1,"output":2,"cached_input":3,"cost_usd":1,"context_window":null}"#,
            r#"{"input":1.0,"output":2,"cached_input":3,"cost_usd":1}"#,
            r#"{"input":-0,"output":2,"cached_input":3,"cost_usd":1}"#,
            r#"{"input":1,"input":1,"output":2,"cached_input":3,"cost_usd":1}"#,
        ] {
            assert_eq!(Usage::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_whole_number_of_dollars_stays_a_double() {
        let usage = Usage::parse(r#"{"input":1,"output":2,"cached_input":3,"cost_usd":7,"x":0}"#);
        let usage = usage.unwrap().unwrap();
        assert!(usage.has_unknown);
        let mut text = String::new();
        usage.push(&mut text);
        assert!(text.ends_with("\"cost_usd\":7.0}"), "{text}");
    }

    #[test]
    fn tool_calls_keep_their_texts() {
        let calls = ToolCall::parse_all(
            r#"[["a","b","{}"],{"id":"c","name":"d","arguments":"e","extra_content":{"n":1.50}}]"#,
        );
        let calls = calls.unwrap().unwrap();
        let mut text = String::new();
        calls[1].push(&mut text);
        assert_eq!(
            text,
            r#"{"id":"c","name":"d","arguments":"e","extra_content":{"n":1.50}}"#
        );
        assert!(ToolCall::parse_all(r#"[{"id":1,"name":"d","arguments":"e"}]"#).is_none());
        assert_eq!(ToolCall::parse_all("null"), Some(None));
    }

    #[test]
    fn parts_fit_as_a_whole_or_not_at_all() {
        assert!(Part::parse_all(r#"[{"type":"text","text":"a"},{"type":"hologram"}]"#).is_none());
        let parts =
            Part::parse_all(r#"[{"type":"text","text":"a","x":1},{"type":"image","url":"u"}]"#);
        assert_eq!(Part::flatten(&parts.unwrap()).unwrap(), "a[OH_IMAGE:u]");
    }
}
