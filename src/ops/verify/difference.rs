//! What differs between two records or two values, in words; contents only
//! where they were asked for (`--diff`).

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::model::message::Residue;
use crate::model::plural::count;
use crate::report::Difference;

/// Longest part of a content that is shown, in characters.
const SHOWN: usize = 600;

/// How much of it stands before the first character that differs.
const BEFORE: usize = 60;

/// A field that differs, with what either side has.
pub(super) struct Field {
    pub(super) name: String,
    pub(super) store: Option<Value>,
    pub(super) given: Option<Value>,
}

/// The fields in which two objects differ. "Equal" is: equal as values parsed
/// by `serde_json` with `float_roundtrip` (`openhuman-workspace.md` §1.8).
pub(super) fn fields(store: &Map<String, Value>, given: &Map<String, Value>) -> Vec<Field> {
    let only_store = store.keys().filter(|key| !given.contains_key(*key));
    let names = given.keys().chain(only_store);
    let differing = names.filter(|name| store.get(*name) != given.get(*name));
    let fields = differing.map(|name| Field {
        name: name.clone(),
        store: store.get(name).cloned(),
        given: given.get(name).cloned(),
    });
    fields.collect()
}

/// The fields in which two JSON texts of records differ. `store` was parsed
/// strictly before, and `given` is ours, so both are objects but for a store's
/// record that is something else altogether.
pub(super) fn of_texts(store: &str, given: &str) -> Vec<Field> {
    let object = |text: &str| match serde_json::from_str(text) {
        Ok(Value::Object(object)) => object,
        Ok(other) => Map::from_iter([("value".to_owned(), other)]),
        Err(_) => Map::new(),
    };
    fields(&object(store), &object(given))
}

/// The fields in which a residue record differs from the line it should hold.
/// The words in `error` are another version's, perhaps: they do not count.
pub(super) fn of_residue(store: &str, given: &Residue<'_>) -> Vec<Field> {
    #[derive(Deserialize, Default)]
    struct Stored {
        line: Option<u64>,
        why: Option<String>,
        text: Option<String>,
        base64: Option<String>,
    }
    let stored: Stored = serde_json::from_str(store).unwrap_or_default();
    let field = |name: &str, store: Option<Value>, given: Value| {
        let field = Field {
            name: name.to_owned(),
            store,
            given: Some(given),
        };
        (field.store != field.given).then_some(field)
    };
    let text = match std::str::from_utf8(given.text) {
        Ok(text) => field("text", stored.text.map(Value::from), text.into()),
        Err(_) => {
            use base64::Engine as _;
            let text = base64::engine::general_purpose::STANDARD.encode(given.text);
            field("base64", stored.base64.map(Value::from), text.into())
        }
    };
    let all = [
        field("line", stored.line.map(Value::from), given.line.into()),
        field(
            "why",
            stored.why.map(Value::from),
            given.why.as_str().into(),
        ),
        text,
    ];
    all.into_iter().flatten().collect()
}

/// Names of fields for a sentence; keys of other programs are not named, since
/// they may hold anything.
pub(super) fn names(fields: &[Field], known: &[&str]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for field in fields {
        let is_known = known.contains(&field.name.as_str());
        let name = if is_known { &field.name } else { "another key" };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.join(", ")
}

impl Field {
    /// The difference, with contents.
    pub(super) fn shown(self, place: String) -> Difference {
        let Self { name, store, given } = self;
        let (words, at) = words(store.as_ref(), given.as_ref());
        Difference {
            place,
            field: name,
            words,
            store: store.map(|value| excerpt(&text_of(&value), at)),
            given: given.map(|value| excerpt(&text_of(&value), at)),
        }
    }
}

/// A string as it is, anything else as JSON.
fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// How two values differ, and at which character.
fn words(store: Option<&Value>, given: Option<&Value>) -> (String, usize) {
    let (store, given) = match (store, given) {
        (Some(store), Some(given)) => (store, given),
        (Some(_), None) => return ("only the store has it".to_owned(), 0),
        (None, _) => return ("the store does not have it".to_owned(), 0),
    };
    let kind = |value: &Value| match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    };
    if kind(store) != kind(given) {
        let words = format!("the store has {}, the source {}", kind(store), kind(given));
        return (words, 0);
    }
    let (store, given) = (text_of(store), text_of(given));
    let common = store.chars().zip(given.chars());
    let at = common.take_while(|(a, b)| a == b).count();
    let (of_store, of_given) = (store.chars().count(), given.chars().count());
    let words = match of_store == of_given {
        true => format!(
            "{} each, different from character {} on",
            count(of_store as u64, "character"),
            at + 1
        ),
        false => format!(
            "{} in the store, {of_given} from the source, different from character {} on",
            count(of_store as u64, "character"),
            at + 1
        ),
    };
    (words, at)
}

/// A part of a long text, around the character where it starts to differ.
fn excerpt(text: &str, at: usize) -> String {
    let all = text.chars().count();
    if all <= SHOWN {
        return text.to_owned();
    }
    let start = at.saturating_sub(BEFORE);
    let part: String = text.chars().skip(start).take(SHOWN).collect();
    let before = if start > 0 { "…" } else { "" };
    let behind = if start + SHOWN < all { "…" } else { "" };
    format!("{before}{part}{behind}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::message::Why;

    fn shown(store: &str, given: &str) -> Vec<Difference> {
        let fields = of_texts(store, given);
        fields
            .into_iter()
            .map(|field| field.shown("x".into()))
            .collect()
    }

    #[test]
    fn spelling_is_no_difference() {
        let store = r#"{"content":"caf\u00e9","n":1.50}"#;
        assert!(of_texts(store, r#"{ "n" : 1.5, "content":"café"}"#).is_empty());
        assert_eq!(of_texts(r#"{"n":1}"#, r#"{"n":1.0}"#).len(), 1);
    }

    #[test]
    fn differences_are_told_in_words() {
        let found = shown(r#"{"content":"abX"}"#, r#"{"content":"abYZ","id":"1"}"#);
        assert_eq!(
            found[0].words,
            "3 characters in the store, 4 from the source, different from character 3 on"
        );
        assert_eq!(found[0].given.as_deref(), Some("abYZ"));
        assert_eq!(found[1].words, "the store does not have it");
        assert_eq!(found[1].store, None);
        let found = shown(r#"{"content":[1]}"#, r#"{"content":"a"}"#);
        assert_eq!(found[0].words, "the store has a list, the source text");
        assert_eq!(found[0].store.as_deref(), Some("[1]"));
    }

    #[test]
    fn of_a_long_text_the_part_that_differs_is_shown() {
        let long = "ä".repeat(5000);
        let (store, given) = (format!("{long}X{long}"), format!("{long}Y{long}"));
        let field = Field {
            name: "content".into(),
            store: Some(store.into()),
            given: Some(given.into()),
        };
        let shown = field.shown("message 1".into()).store.unwrap();
        assert!(shown.contains('X') && shown.starts_with('…') && shown.ends_with('…'));
        assert!(shown.chars().count() <= SHOWN + 2);
    }

    #[test]
    fn another_versions_words_are_no_difference() {
        let given = Residue {
            line: 3,
            why: Why::Malformed,
            error: Some("new words".into()),
            text: b"a\xff",
        };
        let same = r#"{"line":3,"why":"malformed","error":"old words","base64":"Yf8="}"#;
        assert!(of_residue(same, &given).is_empty());
        let other = r#"{"line":4,"why":"header","text":"a"}"#;
        let names: Vec<_> = of_residue(other, &given)
            .into_iter()
            .map(|f| f.name)
            .collect();
        assert_eq!(names, ["line", "why", "base64"]);
    }
}
