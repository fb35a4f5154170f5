//! A header from what is left of one.

use super::Defaults;
use crate::source::json;
use crate::source::openhuman::header::{Meta, usable};
use crate::source::openhuman::line::Fields;

/// Each usable field of a line's `_meta`, the defaults for the others; `None`
/// where the line has no `_meta` object. What is not usable is kept unmapped.
pub(crate) fn from_line(bytes: &[u8], defaults: &Defaults) -> Option<Meta> {
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
    let text = match json::scan(text) {
        Ok(_) => text.to_owned(),
        Err(_) => json::mend_surrogates(text),
    };
    let beside = Fields::parse(&text).ok()?;
    let fields = Fields::parse(beside.last("_meta")?).ok()?;
    let mut object = whole_but_for(defaults, &fields);
    let mut left_out = Vec::new();
    for (key, raw) in &fields.0 {
        let is_last = fields
            .last(key)
            .is_some_and(|last| std::ptr::eq(last, *raw));
        if is_last && usable(key, raw).is_some() {
            json::push_key(&mut object, key);
            object.push_str(raw);
        } else {
            left_out.push((key.clone(), *raw));
        }
    }
    object.push('}');
    let mut meta = Meta::parse_first(&format!("{{\"_meta\":{object}}}")).ok()?;
    meta.keep(left_out.iter());
    meta.keep(beside.0.iter().filter(|(key, _)| key != "_meta"));
    Some(meta)
}

/// A header of defaults alone.
pub(crate) fn from_defaults(defaults: &Defaults) -> Meta {
    let mut object = whole_but_for(defaults, &Fields::default());
    object.push('}');
    Meta::parse_first(&format!("{{\"_meta\":{object}}}")).unwrap_or_default()
}

/// The start of an object with a default for each required field that the
/// fields have no usable value of.
fn whole_but_for(defaults: &Defaults, fields: &Fields<'_>) -> String {
    let zero = || "0".to_owned();
    let all = [
        ("agent", json::encode(&defaults.agent)),
        ("dispatcher", json::encode("native")),
        ("created", json::encode(&defaults.created)),
        ("updated", json::encode(&defaults.updated)),
        ("turn_count", zero()),
        ("input_tokens", zero()),
        ("output_tokens", zero()),
        ("cached_input_tokens", zero()),
        ("charged_amount_usd", zero()),
    ];
    let mut object = String::from("{");
    for (key, default) in all {
        let has = fields
            .last(key)
            .is_some_and(|raw| usable(key, raw).is_some());
        if !has {
            json::push_key(&mut object, key);
            object.push_str(&default);
        }
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    fn defaults() -> Defaults {
        Defaults {
            agent: "helper".into(),
            created: "c".into(),
            updated: "u".into(),
        }
    }

    #[test]
    fn usable_fields_are_taken_and_the_others_kept() {
        let line =
            br#"{"_meta":{"agent":"a","turn_count":3.0,"input_tokens":7,"thread_id":12345}}"#;
        let meta = from_line(line, &defaults()).unwrap();
        assert_eq!(meta.header.agent, "a");
        assert_eq!((meta.header.turn_count, meta.header.input_tokens), (0, 7));
        assert_eq!(meta.header.updated, "u");
        assert_eq!(meta.header.thread_id, None);
        assert_eq!(meta.unmapped["turn_count"], 3.0);
        assert_eq!(meta.unmapped["thread_id"], 12345);
    }

    #[test]
    fn a_line_without_meta_gives_none() {
        assert!(from_line(br#"{"role":"user"}"#, &defaults()).is_none());
        assert!(from_line(b"no json", &defaults()).is_none());
        assert_eq!(from_defaults(&defaults()).header.dispatcher, "native");
    }
}
