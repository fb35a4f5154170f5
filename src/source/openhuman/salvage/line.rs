//! Whole records from a line that the application's reader skips.

use std::borrow::Cow;

use serde_json::Value;
use serde_json::value::RawValue;

use crate::source::json::{self, Unfit};
use crate::source::openhuman::header::Meta;
use crate::source::openhuman::line::{self, Fields, Flaw, MessageLine, known};

/// One message that was brought back: fields of which each has a type that
/// the reader takes, and those that had to be left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Salvaged {
    fields: Vec<(String, String)>,
    left_out: Vec<(String, String)>,
    rules: Vec<&'static str>,
}

impl Salvaged {
    /// The message line that the fields make.
    pub(crate) fn line(&self) -> Result<MessageLine<'_>, Flaw> {
        MessageLine::new(Fields(borrowed(&self.fields)))
    }

    /// Fields that are kept but do not count.
    pub(crate) fn left_out(&self) -> Vec<(Cow<'_, str>, &str)> {
        borrowed(&self.left_out)
    }

    /// The rules that brought it back, joined by `+`.
    pub(crate) fn rule(&self) -> String {
        self.rules.join("+")
    }
}

fn borrowed(fields: &[(String, String)]) -> Vec<(Cow<'_, str>, &str)> {
    let fields = fields.iter();
    fields
        .map(|(key, raw)| (Cow::Borrowed(key.as_str()), raw.as_str()))
        .collect()
}

/// A whole record that can be brought back from a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Record {
    /// A message.
    Message(Salvaged),
    /// The text of a header or a compaction that the reader would take if it
    /// stood on a line of its own.
    Other(String),
}

/// Every whole record that can be brought back from a line, in order.
pub(crate) fn records(bytes: &[u8]) -> Vec<Record> {
    let mut rules = Vec::new();
    let text = String::from_utf8_lossy(bytes);
    if let Cow::Owned(_) = text {
        rules.push("not-utf8");
    }
    let text = text.trim();
    let without_nul = text.trim_matches('\0');
    if without_nul.len() < text.len() {
        rules.push("nul-bytes");
    }
    let (records, is_torn) = whole_records(without_nul);
    if records.len() > 1 || is_torn {
        rules.push(if is_torn {
            "torn-record"
        } else {
            "several-records"
        });
    }
    let records = records.into_iter();
    records
        .filter_map(|text| {
            let is_whole = match line::classify(text) {
                Ok(line::Record::Header(fields)) => Meta::parse(&fields).is_ok(),
                Ok(line::Record::Compaction(_)) => true,
                _ => false,
            };
            if is_whole {
                return Some(Record::Other(text.to_owned()));
            }
            message(text, &rules).map(Record::Message)
        })
        .collect()
}

/// How often a record may begin and turn out torn before the rest of the line
/// is given up: a hostile line must not cost the square of its length.
const MAX_TORN: usize = 64;

/// The whole objects on a line, and whether there was anything else.
fn whole_records(text: &str) -> (Vec<&str>, bool) {
    let (mut records, mut is_torn, mut torn) = (Vec::new(), false, 0);
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == '\0');
        if rest.is_empty() {
            return (records, is_torn);
        }
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<&RawValue>();
        if let Some(Ok(value)) = values.next() {
            let end = values.byte_offset();
            if value.get().starts_with('{') {
                records.push(value.get());
            } else {
                is_torn = true;
            }
            rest = rest.get(end..).unwrap_or_default();
            continue;
        }
        is_torn = true;
        torn += 1;
        match next_record(rest) {
            Some(next) if torn <= MAX_TORN => rest = next,
            _ => return (records, is_torn),
        }
    }
}

/// Where a torn record's successor begins.
fn next_record(text: &str) -> Option<&str> {
    let behind = text.get(text.char_indices().nth(1)?.0..)?;
    let starts = ["{\"role\"", "{\"id\""].into_iter();
    let at = starts.filter_map(|start| behind.find(start)).min()?;
    behind.get(at..)
}

/// A message from one whole object; `None` for what is no message.
fn message(record: &str, rules: &[&'static str]) -> Option<Salvaged> {
    let mut salvaged = Salvaged {
        rules: rules.to_vec(),
        ..Salvaged::default()
    };
    // Both may be in one record, and a scan tells only the first.
    let mended = json::mend_surrogates(record);
    if mended != record {
        salvaged.rules.push("lone-surrogate");
    }
    let record = mended;
    if json::scan(&record) == Err(Unfit::NumberOutOfRange) {
        salvaged.rules.push("number-out-of-range");
    }
    let fields = Fields::parse(&record).ok()?;
    let kind = fields.last("kind").unwrap_or_default();
    let is_message = fields.last("_meta").is_none()
        && !json::is_string(kind, "compaction")
        && !json::is_string(kind, "tools");
    if !is_message {
        return None;
    }
    salvaged.take_fields(&fields);
    salvaged.take_content(&fields);
    let line = salvaged.line().ok()?;
    if line.interrupted {
        return None;
    }
    Some(salvaged)
}

impl Salvaged {
    /// Takes the fields that the reader would take; `content` is for later.
    fn take_fields(&mut self, fields: &Fields<'_>) {
        for (key, raw) in &fields.0 {
            let field = (key.to_string(), (*raw).to_owned());
            let Some((_, name)) = known(key) else {
                self.fields.push(field);
                continue;
            };
            if name == "content" {
                continue;
            }
            let is_strict = json::scan(raw).is_ok_and(|depth| depth < json::MAX_DEPTH - 2);
            let has_type = is_strict && MessageLine::default().set(name, raw).is_some();
            let is_last = fields
                .last(key)
                .is_some_and(|last| std::ptr::eq(last, *raw));
            let is_twice = fields.only(name).is_err();
            // A role given twice counts as JSON has it, by the last; any other
            // field is left out, since the message stands without it.
            if has_type && (!is_twice || (name == "role" && is_last)) {
                self.fields.push(field);
            } else {
                self.left_out.push(field);
            }
            if is_twice {
                self.rule_once("field-twice");
            } else if !has_type {
                self.rule_once("wrong-type");
            }
        }
    }

    /// Makes a text of whatever the content is.
    fn take_content(&mut self, fields: &Fields<'_>) {
        let content = fields.last("content").unwrap_or("null");
        if fields.only("content").is_err() {
            self.rule_once("field-twice");
            let earlier = fields.0.iter().filter(|(key, _)| key == "content");
            let earlier = earlier.map(|(key, raw)| (key.to_string(), (*raw).to_owned()));
            self.left_out.extend(earlier);
            self.left_out.pop();
        }
        let text = if content.starts_with('"') && json::scan(content).is_ok() {
            content.to_owned()
        } else if content == "null" {
            self.rule_once("no-content");
            json::encode("")
        } else if let Some(text) = text_blocks(content) {
            self.rule_once("content-blocks");
            json::encode(&text)
        } else {
            self.rule_once("content-not-text");
            json::encode(content)
        };
        self.fields.push(("content".to_owned(), text));
    }

    fn rule_once(&mut self, rule: &'static str) {
        if !self.rules.contains(&rule) {
            self.rules.push(rule);
        }
    }
}

/// The texts of a list of text blocks, one after the other.
fn text_blocks(raw: &str) -> Option<String> {
    let blocks: Vec<Value> = serde_json::from_str(raw).ok()?;
    let texts = blocks.iter().map(|block| {
        let is_text = block.get("type").and_then(Value::as_str) == Some("text");
        let text = block.get("text").and_then(Value::as_str);
        text.filter(|_| is_text)
    });
    texts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(bytes: &[u8]) -> Vec<Salvaged> {
        let records = records(bytes).into_iter();
        records
            .filter_map(|record| match record {
                Record::Message(message) => Some(message),
                Record::Other(_) => None,
            })
            .collect()
    }

    fn contents(line: &str) -> Vec<(String, String)> {
        let all = messages(line.as_bytes());
        all.iter()
            .map(|salvaged| {
                let line = salvaged.line().unwrap();
                (json::decode(line.content).unwrap(), salvaged.rule())
            })
            .collect()
    }

    fn one(line: &str) -> (String, String) {
        let mut all = contents(line);
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }

    #[test]
    fn several_things_may_be_wrong_at_once() {
        let line = r#"{"role":"tool","x":-1e400,"content":"\uD800a","y":"\uDC00"}"#;
        let all = messages(line.as_bytes());
        let rule = "lone-surrogate+number-out-of-range";
        assert_eq!(contents(line), [("\u{fffd}a".to_owned(), rule.to_owned())]);
        for (_, raw) in all.iter().flat_map(|one| &one.fields) {
            assert_ne!(json::scan(raw), Err(Unfit::LoneSurrogate), "{raw}");
        }
    }

    #[test]
    fn several_records_on_one_line() {
        let got = contents(r#"{"role":"a","content":"1"}{"role":"b","content":"2"}"#);
        assert_eq!(got.len(), 2);
        let got = one(r#"{"role":"a","content":"I was sayi{"role":"b","content":"2"}"#);
        assert_eq!(got, ("2".into(), "torn-record".into()));
    }

    #[test]
    fn content_of_any_kind_becomes_text() {
        assert_eq!(one(r#"{"role":"a","content":null}"#).0, "");
        assert_eq!(one(r#"{"role":"a"}"#).0, "");
        assert_eq!(one(r#"{"role":"a","content":42}"#).0, "42");
        let blocks =
            r#"{"role":"a","content":[{"type":"text","text":"x"},{"type":"text","text":"y"}]}"#;
        assert_eq!(one(blocks).0, "xy");
        let other = r#"{"role":"a","content":[{"type":"image"}]}"#;
        assert_eq!(one(other).0, r#"[{"type":"image"}]"#);
        assert!(contents(r#"{"content":"who said this?"}"#).is_empty());
    }

    #[test]
    fn bytes_and_escapes_that_are_no_characters() {
        assert_eq!(
            one(r#"{"role":"a","content":"x \ud83d y"}"#).0,
            "x \u{fffd} y"
        );
        let got = messages(b"\0\0{\"role\":\"a\",\"content\":\"caf\xe9\"}\0");
        assert_eq!(got.len(), 1);
        assert_eq!(got[0].rule(), "not-utf8+nul-bytes");
    }

    #[test]
    fn a_field_of_a_wrong_type_is_left_out_and_the_message_stays() {
        let all =
            messages(br#"{"role":"a","content":"x","iteration":-1,"ts":"t","ts":"u","big":1e400}"#);
        let line = all[0].line().unwrap();
        assert_eq!((line.iteration, line.ts), (None, None));
        let left_out: Vec<_> = all[0]
            .left_out
            .iter()
            .map(|(key, _)| key.as_str())
            .collect();
        assert_eq!(left_out, ["iteration", "ts", "ts"]);
    }

    #[test]
    fn a_hostile_line_costs_no_square() {
        let line = "{\"role\":[".repeat(200_000);
        assert!(contents(&line).is_empty());
    }
}
