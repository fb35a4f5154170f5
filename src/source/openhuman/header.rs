//! A transcript's header line (`openhuman-workspace.md` §1.2).

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::line::{Fields, Flaw};
use crate::model::session::Header;
use crate::source::json;

/// In the reader's order, which is the order of the array form. Serde skips
/// unknown keys, whatever they hold.
#[derive(Deserialize)]
struct MetaFields {
    #[serde(default)]
    version: u32,
    agent: String,
    #[serde(default)]
    agent_id: Option<String>,
    #[serde(default)]
    agent_type: Option<String>,
    dispatcher: String,
    #[serde(default)]
    provider: Option<String>,
    #[serde(default)]
    model: Option<String>,
    created: String,
    updated: String,
    turn_count: u64,
    #[serde(default)]
    prefix_message_count: Option<u64>,
    input_tokens: u64,
    output_tokens: u64,
    cached_input_tokens: u64,
    charged_amount_usd: f64,
    #[serde(default)]
    thread_id: Option<String>,
    #[serde(default)]
    task_id: Option<String>,
    #[serde(default)]
    session_id: Option<String>,
    #[serde(default)]
    parent_session_id: Option<String>,
}

/// Keys of `_meta` that the descriptor or the item ledger entry has a place for.
const MAPPED: [&str; 17] = [
    "agent",
    "agent_id",
    "agent_type",
    "dispatcher",
    "provider",
    "model",
    "created",
    "updated",
    "turn_count",
    "input_tokens",
    "output_tokens",
    "cached_input_tokens",
    "charged_amount_usd",
    "thread_id",
    "task_id",
    "session_id",
    "parent_session_id",
];

/// Levels of an item ledger entry above an unmapped value.
const ABOVE_UNMAPPED: usize = 2;

/// A header, and what of it neither descriptor nor entry has a place for.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Meta {
    pub(crate) header: Header,
    pub(crate) unmapped: Map<String, Value>,
    /// Keys whose value is kept as text.
    pub(crate) as_text: Vec<String>,
}

impl Meta {
    /// Reads the first non-empty line: an object with `_meta`, or an array of
    /// just that (the reader is serde).
    pub(crate) fn parse_first(text: &str) -> Result<Self, Flaw> {
        if text.starts_with('[') {
            let values: Vec<&RawValue> =
                serde_json::from_str(text).map_err(|_| Flaw::NotAnObject)?;
            return match values.as_slice() {
                [meta] => Self::from_parts(meta.get(), &Fields::default()),
                _ => Err(Flaw::NotAnObject),
            };
        }
        Self::parse(&Fields::parse(text)?)
    }

    /// Reads a line that has been taken apart.
    pub(crate) fn parse(fields: &Fields<'_>) -> Result<Self, Flaw> {
        let meta = fields.only("_meta")?.ok_or(Flaw::Missing("_meta"))?;
        Self::from_parts(meta, fields)
    }

    fn from_parts(meta: &str, beside: &Fields<'_>) -> Result<Self, Flaw> {
        let fields: MetaFields = serde_json::from_str(meta).map_err(|_| wrong_field(meta))?;
        let mut this = Self {
            header: Header {
                version: fields.version,
                agent: fields.agent,
                agent_id: fields.agent_id,
                agent_type: fields.agent_type,
                dispatcher: fields.dispatcher,
                provider: fields.provider,
                model: fields.model,
                created: fields.created,
                updated: fields.updated,
                turn_count: fields.turn_count,
                prefix_message_count: fields.prefix_message_count,
                input_tokens: fields.input_tokens,
                output_tokens: fields.output_tokens,
                cached_input_tokens: fields.cached_input_tokens,
                charged_amount_usd: fields.charged_amount_usd,
                thread_id: fields.thread_id,
                task_id: fields.task_id,
                session_id: fields.session_id,
                parent_session_id: fields.parent_session_id,
            },
            ..Self::default()
        };
        match Fields::parse(meta) {
            Ok(fields) => this.keep(fields.0.iter().filter(|(key, _)| !MAPPED.contains(&&**key))),
            // The array form: only these two have no other place.
            Err(_) => {
                let version = Value::from(this.header.version);
                this.unmapped.insert("version".to_owned(), version);
                let prefix = this.header.prefix_message_count.map(Value::from);
                if let Some(prefix) = prefix {
                    this.unmapped
                        .insert("prefix_message_count".to_owned(), prefix);
                }
            }
        }
        this.keep(beside.0.iter().filter(|(key, _)| key != "_meta"));
        let thread_id = this.header.thread_id.as_ref();
        if let Some(blank) = thread_id.filter(|id| id.trim().is_empty()) {
            // The descriptor will have another one.
            let blank = Value::from(blank.clone());
            this.unmapped.insert("thread_id".to_owned(), blank);
        }
        Ok(this)
    }

    /// Keeps values that have no other place. A known key that is null is not
    /// kept, and of a repeated key every value is.
    pub(crate) fn keep<'f>(
        &mut self,
        fields: impl Iterator<Item = &'f (std::borrow::Cow<'f, str>, &'f str)>,
    ) {
        for (key, raw) in fields {
            if *raw == "null" && key == "prefix_message_count" {
                continue;
            }
            let (value, is_text) = json::kept_value(raw, ABOVE_UNMAPPED);
            let mut name = key.to_string();
            let mut copies = 1;
            while self.unmapped.contains_key(&name) {
                copies += 1;
                name = format!("{key}#{copies}");
            }
            if is_text {
                self.as_text.push(name.clone());
            }
            self.unmapped.insert(name, value);
        }
    }
}

/// Names the field that makes a header unusable, without quoting it.
fn wrong_field(meta: &str) -> Flaw {
    const REQUIRED: [&str; 9] = [
        "agent",
        "dispatcher",
        "created",
        "updated",
        "turn_count",
        "input_tokens",
        "output_tokens",
        "cached_input_tokens",
        "charged_amount_usd",
    ];
    let Ok(fields) = Fields::parse(meta) else {
        return Flaw::Wrong("_meta");
    };
    let of_header = MAPPED.iter().chain(&["version", "prefix_message_count"]);
    for field in of_header.copied() {
        if let Err(twice) = fields.only(field) {
            return twice;
        }
        match fields.last(field) {
            None if REQUIRED.contains(&field) => return Flaw::Missing(field),
            Some(raw) if usable(field, raw).is_none() => return Flaw::Wrong(field),
            _ => {}
        }
    }
    Flaw::Wrong("_meta")
}

/// Checks one field of `_meta` by itself, by putting it into a header that is
/// whole but for it; used to name what is wrong, and by `--salvage`.
pub(crate) fn usable(field: &str, raw: &str) -> Option<Header> {
    let mut object = String::from("{");
    let defaults = [
        ("agent", "\"\""),
        ("dispatcher", "\"\""),
        ("created", "\"\""),
        ("updated", "\"\""),
        ("turn_count", "0"),
        ("input_tokens", "0"),
        ("output_tokens", "0"),
        ("cached_input_tokens", "0"),
        ("charged_amount_usd", "0"),
    ];
    for (name, default) in defaults.into_iter().filter(|(name, _)| *name != field) {
        json::push_key(&mut object, name);
        object.push_str(default);
    }
    json::push_key(&mut object, field);
    object.push_str(raw);
    object.push('}');
    let meta = Meta::from_parts_unchecked(&object)?;
    Some(meta.header)
}

impl Meta {
    fn from_parts_unchecked(meta: &str) -> Option<Self> {
        serde_json::from_str::<MetaFields>(meta).ok()?;
        Self::from_parts(meta, &Fields::default()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = r#""agent":"a","dispatcher":"native","created":"c","updated":"u","turn_count":1,"input_tokens":2,"output_tokens":3,"cached_input_tokens":4,"charged_amount_usd":5"#;

    fn first(text: &str) -> Result<Meta, Flaw> {
        Meta::parse_first(text)
    }

    #[test]
    fn a_header_keeps_what_it_has_no_place_for() {
        let meta = first(&format!(
            r#"{{"_meta":{{{WHOLE},"cache_boundary":7,"version":1,"thread_id":"  "}},"beside":[1]}}"#
        ))
        .unwrap();
        assert_eq!(meta.header.agent, "a");
        let unmapped =
            serde_json::json!({"cache_boundary":7,"version":1,"thread_id":"  ","beside":[1]});
        assert_eq!(Value::Object(meta.unmapped), unmapped);
    }

    #[test]
    fn a_header_may_be_arrays() {
        let meta =
            first(r#"[[1,"a","id",null,"native",null,null,"c","u",1,null,2,3,4,5.5]]"#).unwrap();
        assert_eq!(meta.header.agent_id.as_deref(), Some("id"));
        assert_eq!(meta.header.charged_amount_usd, 5.5);
        assert!(first(r#"[[1,"a"]]"#).is_err());
        assert!(first(r#"[{},{}]"#).is_err());
    }

    #[test]
    fn the_field_at_fault_is_named() {
        let without = WHOLE.replace(r#""updated":"u","#, "");
        let flaw = first(&format!(r#"{{"_meta":{{{without}}}}}"#)).unwrap_err();
        assert_eq!(flaw, Flaw::Missing("updated"));
        let wrong = WHOLE.replace(r#""turn_count":1"#, r#""turn_count":1.0"#);
        let flaw = first(&format!(r#"{{"_meta":{{{wrong}}}}}"#)).unwrap_err();
        assert_eq!(flaw, Flaw::Wrong("turn_count"));
        let flaw = first(&format!(r#"{{"_meta":{{{WHOLE},"version":null}}}}"#)).unwrap_err();
        assert_eq!(flaw, Flaw::Wrong("version"));
        let flaw = first(&format!(r#"{{"_meta":{{{WHOLE},"agent":"b"}}}}"#)).unwrap_err();
        assert_eq!(flaw, Flaw::Twice("agent"));
        assert_eq!(
            first(r#"{"role":"user"}"#).unwrap_err(),
            Flaw::Missing("_meta")
        );
    }

    #[test]
    fn unknown_keys_of_the_first_header_need_not_be_strict() {
        let meta = first(&format!(r#"{{"_meta":{{{WHOLE},"x":"\ud83d"}}}}"#)).unwrap();
        assert_eq!(meta.unmapped["x"]["json"], r#""\ud83d""#);
        assert_eq!(meta.as_text, ["x"]);
    }
}
