//! One line of a transcript: what kind of record it is, and whether the
//! application's reader accepts it (`openhuman-workspace.md` §1.3, §1.4).
//!
//! Nothing is built that is not needed: a line is taken apart into keys and
//! the texts of their values, and those texts go to the store as they stand.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::values::{Part, ToolCall, Usage};
use crate::source::json::{self, Unfit};

/// Why the application's reader skips a line. Words of ours only: a parser's
/// message may quote contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// Not UTF-8.
    NotUtf8,
    /// Not JSON; the column (in bytes, from 1) where it ceases to be.
    NotJson { column: usize },
    /// JSON that ends before it is complete.
    Incomplete,
    /// JSON, but no object.
    NotAnObject,
    /// Something in it that the strict reader refuses.
    Unfit(Unfit),
    /// Nested deeper than the strict reader takes.
    TooDeep,
    /// A required field is missing.
    Missing(&'static str),
    /// A field has a wrong type or is out of range.
    Wrong(&'static str),
    /// A field is there twice.
    Twice(&'static str),
    /// An entry of a compaction's replacement (from 1) is no message line.
    Entry(usize, Box<Flaw>),
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotUtf8 => f.write_str("not-utf8: a byte of it is not UTF-8"),
            Self::NotJson { column } => write!(f, "not-json: no JSON from column {column} on"),
            Self::Incomplete => f.write_str("incomplete: the JSON has no end"),
            Self::NotAnObject => f.write_str("not-an-object: a record is a JSON object"),
            Self::Unfit(Unfit::LoneSurrogate) => {
                f.write_str("lone-surrogate: it holds an escaped half of a surrogate pair")
            }
            Self::Unfit(Unfit::NumberOutOfRange) => {
                f.write_str("number-out-of-range: it holds a number beyond a double's range")
            }
            Self::TooDeep => f.write_str("nested-too-deep: it nests deeper than 127 levels"),
            Self::Missing(field) => write!(f, "missing-field: `{field}` is required"),
            Self::Wrong(field) => {
                write!(
                    f,
                    "wrong-type: `{field}` has a wrong type or is out of range"
                )
            }
            Self::Twice(field) => write!(f, "field-twice: `{field}` is given twice"),
            Self::Entry(number, flaw) => write!(f, "bad-replacement: entry {number}: {flaw}"),
        }
    }
}

impl From<Unfit> for Flaw {
    fn from(unfit: Unfit) -> Self {
        Self::Unfit(unfit)
    }
}

/// A top-level key and the text of its value.
pub(crate) type Field<'a> = (Cow<'a, str>, &'a str);

/// An object taken apart, in order, repeated keys included.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fields<'a>(pub(crate) Vec<Field<'a>>);

impl<'a> Fields<'a> {
    /// Takes apart one object; its values are JSON by syntax, not yet strict.
    pub(crate) fn parse(text: &'a str) -> Result<Self, Flaw> {
        match serde_json::from_str(text) {
            Ok(fields) => Ok(fields),
            Err(error) if error.is_eof() => Err(Flaw::Incomplete),
            Err(error) if error.is_data() => Err(Flaw::NotAnObject),
            // A key with half a surrogate pair is the one thing of valid
            // syntax that is a syntax error to the parser here.
            Err(_) if serde_json::from_str::<&RawValue>(text).is_ok() => {
                Err(Flaw::Unfit(Unfit::LoneSurrogate))
            }
            Err(error) => Err(Flaw::NotJson {
                column: error.column(),
            }),
        }
    }

    /// The last value of a key: what a parsed object would have.
    pub(crate) fn last(&self, key: &str) -> Option<&'a str> {
        let mut values = self.0.iter().rev();
        values.find(|(name, _)| name == key).map(|(_, raw)| *raw)
    }

    /// The one value of a key of the record's own.
    pub(crate) fn only(&self, key: &'static str) -> Result<Option<&'a str>, Flaw> {
        let mut values = self.0.iter().filter(|(name, _)| name == key);
        match (values.next(), values.next()) {
            (_, Some(_)) => Err(Flaw::Twice(key)),
            (first, None) => Ok(first.map(|(_, raw)| *raw)),
        }
    }

    /// Refuses what the strict parser refuses anywhere in the line.
    fn strict(&self) -> Result<(), Flaw> {
        for (_, raw) in &self.0 {
            // The line itself is the first level.
            if json::scan(raw)? + 1 > json::MAX_DEPTH {
                return Err(Flaw::TooDeep);
            }
        }
        Ok(())
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;

        impl<'de> Visitor<'de> for Collect {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::with_capacity(12);
                while let Some(Key(key)) = map.next_key()? {
                    let value: &'de RawValue = map.next_value()?;
                    fields.push((key, value.get()));
                }
                Ok(Fields(fields))
            }
        }

        deserializer.deserialize_map(Collect)
    }
}

/// A key, borrowed unless it holds an escape.
struct Key<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Key<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl<'de> Visitor<'de> for Text {
            type Value = Key<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Key(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Key(Cow::Owned(text.to_owned())))
            }
        }

        deserializer.deserialize_str(Text)
    }
}

/// What a line that is not the first header is.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all are messages, and a box would be an allocation per line"
)]
pub(crate) enum Record<'a> {
    /// A refreshed header.
    Header(Fields<'a>),
    /// A compaction: the messages that replace all so far.
    Compaction(Vec<MessageLine<'a>>),
    /// A declaration of tools.
    Tools,
    /// A message, or a partial one.
    Message(MessageLine<'a>),
}

/// Tells what a line is, or why the reader skips it. `text` is trimmed.
pub(crate) fn classify(text: &str) -> Result<Record<'_>, Flaw> {
    let fields = Fields::parse(text)?;
    fields.strict()?;
    if fields.last("_meta").is_some() {
        fields.only("_meta")?;
        return Ok(Record::Header(fields));
    }
    let kind = fields.last("kind").unwrap_or_default();
    if json::is_string(kind, "compaction") {
        return compaction(&fields).map(Record::Compaction);
    }
    if json::is_string(kind, "tools") {
        fields.only("kind")?;
        fields.only("tools")?.ok_or(Flaw::Missing("tools"))?;
        optional_string("ts", fields.only("ts")?)?;
        return Ok(Record::Tools);
    }
    MessageLine::new(fields).map(Record::Message)
}

fn compaction<'a>(fields: &Fields<'a>) -> Result<Vec<MessageLine<'a>>, Flaw> {
    fields.only("kind")?;
    optional_string("ts", fields.only("ts")?)?;
    optional_string("request_id", fields.only("request_id")?)?;
    let replacement = fields.only("replacement")?;
    let replacement = replacement.ok_or(Flaw::Missing("replacement"))?;
    let entries: Vec<&RawValue> =
        serde_json::from_str(replacement).map_err(|_| Flaw::Wrong("replacement"))?;
    let entries = entries.iter().enumerate();
    entries
        .map(|(index, entry)| {
            Fields::parse(entry.get())
                .and_then(MessageLine::new)
                .map_err(|flaw| Flaw::Entry(index + 1, Box::new(flaw)))
        })
        .collect()
}

fn optional_string<'a>(field: &'static str, raw: Option<&'a str>) -> Result<Option<&'a str>, Flaw> {
    match raw {
        None | Some("null") => Ok(None),
        Some(text) if text.starts_with('"') => Ok(Some(text)),
        Some(_) => Err(Flaw::Wrong(field)),
    }
}

/// A message line whose fields have the types that the reader asks for.
#[derive(Debug, Clone, Default)]
pub(crate) struct MessageLine<'a> {
    /// All top-level keys.
    pub(crate) fields: Fields<'a>,
    pub(crate) id: Option<&'a str>,
    pub(crate) role: &'a str,
    pub(crate) content: &'a str,
    /// Any JSON but `null`.
    pub(crate) extra_metadata: Option<&'a str>,
    pub(crate) provider: Option<&'a str>,
    pub(crate) model: Option<&'a str>,
    pub(crate) usage: Option<Usage>,
    pub(crate) reasoning_content: Option<&'a str>,
    pub(crate) tool_calls: Option<Vec<ToolCall<'a>>>,
    pub(crate) iteration: Option<u32>,
    pub(crate) ts: Option<&'a str>,
    pub(crate) interrupted: bool,
    pub(crate) v: u32,
    pub(crate) shape: Option<&'a str>,
    pub(crate) tool_call_id: Option<&'a str>,
    pub(crate) parts: Option<Vec<Part>>,
}

/// The keys of a message line that the reader knows, in its own order.
pub(crate) const MESSAGE_FIELDS: [&str; 21] = [
    "role",
    "content",
    "id",
    "provider",
    "model",
    "reasoning_content",
    "ts",
    "request_id",
    "failure_detail",
    "shape",
    "tool_call_id",
    "extra_metadata",
    "usage",
    "tool_calls",
    "iteration",
    "interrupted",
    "failure",
    "v",
    "cache_breakpoints",
    "parts",
    "background",
];

/// The reader's own name of a key, if it knows it.
pub(crate) fn known(key: &str) -> Option<(usize, &'static str)> {
    let mut known = MESSAGE_FIELDS.iter().copied().enumerate();
    known.find(|(_, name)| *name == key)
}

impl<'a> MessageLine<'a> {
    /// Checks every known field (`openhuman-workspace.md` §1.4).
    pub(crate) fn new(fields: Fields<'a>) -> Result<Self, Flaw> {
        let mut line = Self::default();
        let mut seen = 0_u32;
        for (key, raw) in &fields.0 {
            let Some((index, name)) = known(key) else {
                continue;
            };
            if seen & (1 << index) != 0 {
                return Err(Flaw::Twice(name));
            }
            seen |= 1 << index;
            line.set(name, raw).ok_or(Flaw::Wrong(name))?;
        }
        for (index, required) in ["role", "content"].into_iter().enumerate() {
            if seen & (1 << index) == 0 {
                return Err(Flaw::Missing(required));
            }
        }
        line.fields = fields;
        Ok(line)
    }

    /// Takes one field; `None` where its type is wrong.
    pub(crate) fn set(&mut self, name: &str, raw: &'a str) -> Option<()> {
        let string = || raw.starts_with('"').then_some(raw);
        let nullable = || match raw {
            "null" => Some(None),
            _ => string().map(Some),
        };
        match name {
            "role" => self.role = string()?,
            "content" => self.content = string()?,
            "id" => self.id = nullable()?,
            "provider" => self.provider = nullable()?,
            "model" => self.model = nullable()?,
            "reasoning_content" => self.reasoning_content = nullable()?,
            "ts" => self.ts = nullable()?,
            "shape" => self.shape = nullable()?,
            "tool_call_id" => self.tool_call_id = nullable()?,
            "request_id" | "failure_detail" => drop(nullable()?),
            "extra_metadata" => self.extra_metadata = (raw != "null").then_some(raw),
            "usage" => self.usage = Usage::parse(raw)?,
            "tool_calls" => self.tool_calls = ToolCall::parse_all(raw)?,
            "iteration" => self.iteration = serde_json::from_str(raw).ok()?,
            "interrupted" => self.interrupted = serde_json::from_str(raw).ok()?,
            "failure" => drop(serde_json::from_str::<bool>(raw).ok()?),
            "v" => self.v = serde_json::from_str(raw).ok()?,
            "cache_breakpoints" => drop(serde_json::from_str::<Vec<u64>>(raw).ok()?),
            // Lenient: what does not fit counts as absent.
            "parts" => self.parts = Part::parse_all(raw),
            _ => {}
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flaw(text: &str) -> Flaw {
        classify(text).map(|_| ()).unwrap_err()
    }

    #[test]
    fn a_meta_key_makes_a_header_before_all_else() {
        assert!(matches!(
            classify(r#"{"_meta":null,"kind":"tools","role":"user","content":""}"#),
            Ok(Record::Header(_))
        ));
        assert_eq!(flaw(r#"{"_meta":1,"_meta":2}"#), Flaw::Twice("_meta"));
    }

    #[test]
    fn the_last_kind_counts_but_a_record_has_its_fields_once() {
        assert!(matches!(
            classify(r#"{"kind":"compaction","kind":"x","role":"user","content":""}"#),
            Ok(Record::Message(_))
        ));
        assert_eq!(
            flaw(r#"{"kind":"x","kind":"tools","tools":1}"#),
            Flaw::Twice("kind")
        );
    }

    #[test]
    fn one_bad_entry_spoils_a_compaction() {
        let text =
            r#"{"kind":"compaction","replacement":[{"role":"a","content":"b"},{"role":"a"}]}"#;
        assert_eq!(
            flaw(text),
            Flaw::Entry(2, Box::new(Flaw::Missing("content")))
        );
    }

    #[test]
    fn the_whole_line_must_be_strict() {
        let bad = r#"{"role":"user","content":"a","x":[{"y":"\ud83d"}]}"#;
        assert_eq!(flaw(bad), Flaw::Unfit(Unfit::LoneSurrogate));
        let bad = r#"{"role":"user","content":"a","\udc00":1}"#;
        assert_eq!(flaw(bad), Flaw::Unfit(Unfit::LoneSurrogate));
        let bad = r#"{"role":"user","content":"a","x":1e400}"#;
        assert_eq!(flaw(bad), Flaw::Unfit(Unfit::NumberOutOfRange));
        let nested = |levels| "[".repeat(levels) + &"]".repeat(levels);
        let line = |levels| format!(r#"{{"role":"u","content":"","x":{}}}"#, nested(levels));
        assert!(classify(&line(126)).is_ok());
        assert_eq!(flaw(&line(127)), Flaw::TooDeep);
    }

    #[test]
    fn odd_integers_are_none() {
        for iteration in ["-0", "1.0", "1e0", "4294967296", "\"1\""] {
            let line = format!(r#"{{"role":"u","content":"","iteration":{iteration}}}"#);
            assert_eq!(flaw(&line), Flaw::Wrong("iteration"), "{iteration}");
        }
        assert_eq!(
            flaw(r#"{"role":"u","content":"","v":null}"#),
            Flaw::Wrong("v")
        );
        assert!(classify(r#"{"role":"u","content":"","iteration":null}"#).is_ok());
    }

    #[test]
    fn what_is_wrong_is_said_without_quoting_it() {
        assert_eq!(flaw("{\"role\":\"us"), Flaw::Incomplete);
        assert_eq!(flaw("[1]"), Flaw::NotAnObject);
        assert!(matches!(flaw("{]"), Flaw::NotJson { .. }));
        assert!(!Flaw::Wrong("content").to_string().contains("secret"));
    }
}
