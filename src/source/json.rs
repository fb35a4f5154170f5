//! Judging JSON text without building values from it.
//!
//! `serde_json`'s `RawValue` skips a value by syntax alone. The strict reader
//! (a parse into `serde_json::Value`) refuses three things more: half of a
//! surrogate pair, a number out of range, and nesting deeper than 127
//! (`openhuman-workspace.md` §1.3). [`scan`] finds those in one pass over the
//! text, so that a value can go to the store as it stood.

use serde_json::Value;

/// Deepest nesting that the strict reader takes.
pub(crate) const MAX_DEPTH: usize = 127;

/// What makes the strict reader refuse a value that is JSON by its syntax.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// An escaped half of a surrogate pair.
    LoneSurrogate,
    /// A number beyond the range of a double.
    NumberOutOfRange,
}

/// The nesting depth of a value that is valid by syntax: 0 for a scalar.
pub(crate) fn scan(raw: &str) -> Result<usize, Unfit> {
    let mut rest = raw.as_bytes();
    let (mut depth, mut deepest) = (0_usize, 0_usize);
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        match byte {
            b'"' => rest = skip_string(rest)?,
            b'{' | b'[' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'-' | b'0'..=b'9' => {
                let length = 1 + tail.iter().take_while(|b| is_number(**b)).count();
                let (number, after) = raw
                    .as_bytes()
                    .split_at(raw.len() - tail.len() - 1)
                    .1
                    .split_at(length);
                rest = after;
                check_range(number)?;
            }
            _ => {}
        }
    }
    Ok(deepest)
}

fn is_number(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-')
}

/// Only an exponent or some three hundred digits can leave a double's range.
fn check_range(number: &[u8]) -> Result<(), Unfit> {
    let may_overflow = number.len() > 300 || memchr::memchr2(b'e', b'E', number).is_some();
    let finite = || {
        std::str::from_utf8(number)
            .ok()
            .and_then(|text| text.parse::<f64>().ok())
            .is_some_and(f64::is_finite)
    };
    if may_overflow && !finite() {
        return Err(Unfit::NumberOutOfRange);
    }
    Ok(())
}

/// Skips the rest of a string whose opening quote is behind us.
fn skip_string(mut rest: &[u8]) -> Result<&[u8], Unfit> {
    loop {
        let Some(at) = memchr::memchr2(b'"', b'\\', rest) else {
            return Ok(&[]);
        };
        let (found, tail) = rest.split_at(at).1.split_first().unwrap_or((&b'"', &[]));
        if *found == b'"' {
            return Ok(tail);
        }
        rest = match tail {
            [b'u', hex @ ..] => after_unicode_escape(hex)?,
            [_, after @ ..] => after,
            [] => &[],
        };
    }
}

/// `rest` starts with the four digits of a `\u` escape.
fn after_unicode_escape(rest: &[u8]) -> Result<&[u8], Unfit> {
    match (code_unit(rest), rest.get(4..)) {
        (Some(0xD800..=0xDBFF), Some([b'\\', b'u', low @ ..])) => match code_unit(low) {
            Some(0xDC00..=0xDFFF) => Ok(low.get(4..).unwrap_or_default()),
            _ => Err(Unfit::LoneSurrogate),
        },
        (Some(0xD800..=0xDFFF), _) => Err(Unfit::LoneSurrogate),
        (_, after) => Ok(after.unwrap_or_default()),
    }
}

fn code_unit(digits: &[u8]) -> Option<u16> {
    let mut digits = digits.get(..4)?.iter();
    digits.try_fold(0, |unit, digit| {
        let digit = char::from(*digit).to_digit(16)?;
        Some(unit << 4 | digit as u16)
    })
}

/// A JSON string's text with each lone surrogate escape replaced by U+FFFD,
/// as `String::from_utf8_lossy` would (`--salvage`).
pub(crate) fn mend_surrogates(raw: &str) -> String {
    let mut mended = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(at) = memchr::memchr(b'\\', rest.as_bytes()) {
        let (before, escape) = rest.split_at(at);
        mended.push_str(before);
        let length = escape_length(escape);
        let (escape, after) = match escape.get(..length) {
            Some(whole) => (whole, escape.get(length..).unwrap_or_default()),
            None => (escape, ""),
        };
        let is_lone = escape.starts_with("\\u") && length == 6 && {
            let unit = escape.as_bytes().get(2..).and_then(code_unit);
            matches!(unit, Some(0xD800..=0xDFFF))
        };
        mended.push_str(if is_lone { "\\ufffd" } else { escape });
        rest = after;
    }
    mended.push_str(rest);
    mended
}

/// Bytes of the escape at the start of `text`; a whole surrogate pair is one.
fn escape_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let unit = |from: usize| bytes.get(from..).and_then(code_unit);
    match bytes {
        [b'\\', b'u', ..] => match (unit(2), bytes.get(6..8), unit(8)) {
            (Some(0xD800..=0xDBFF), Some(b"\\u"), Some(0xDC00..=0xDFFF)) => 12,
            _ => 6,
        },
        _ => 2,
    }
}

/// A JSON string's value, where the text is one.
pub(crate) fn decode(raw: &str) -> Option<String> {
    serde_json::from_str(raw).ok()
}

/// Whether a JSON string's value is this one; no decoding in the usual case.
pub(crate) fn is_string(raw: &str, value: &str) -> bool {
    let inner = raw
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    match inner {
        Some(inner) if !inner.contains('\\') => inner == value,
        Some(_) => decode(raw).is_some_and(|text| text == value),
        None => false,
    }
}

/// The JSON text of a string.
pub(crate) fn encode(text: &str) -> String {
    Value::from(text).to_string()
}

/// Appends `"key":`, with a comma before it unless the object just began.
pub(crate) fn push_key(object: &mut String, key: &str) {
    if !object.ends_with('{') {
        object.push(',');
    }
    if key.bytes().all(|b| b >= b' ' && b != b'"' && b != b'\\') {
        object.push('"');
        object.push_str(key);
        object.push('"');
    } else {
        object.push_str(&encode(key));
    }
    object.push(':');
}

/// The value as it stood where the strict reader takes it at that depth, else
/// `{"json": text}` (`openhuman-workspace.md` §1, unmapped).
pub(crate) fn push_kept(object: &mut String, key: &str, raw: &str, levels_above: usize) {
    push_key(object, key);
    match scan(raw) {
        Ok(depth) if depth + levels_above <= MAX_DEPTH => object.push_str(raw),
        _ => {
            object.push_str("{\"json\":");
            object.push_str(&encode(raw));
            object.push('}');
        }
    }
}

/// The same as a value for a key-value file, whose writer rounds numbers: one
/// with more digits than it keeps is kept as text. `true` where it is text.
pub(crate) fn kept_value(raw: &str, levels_above: usize) -> (Value, bool) {
    let fits = scan(raw).is_ok_and(|depth| depth + levels_above <= MAX_DEPTH);
    if fits
        && !has_long_integer(raw)
        && let Ok(value) = serde_json::from_str(raw)
    {
        return (value, false);
    }
    (serde_json::json!({ "json": raw }), true)
}

/// Whether some integer does not fit 64 bits and would be kept as a double.
fn has_long_integer(raw: &str) -> bool {
    let mut rest = raw.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        match byte {
            b'"' => rest = skip_string(rest).unwrap_or_default(),
            b'-' | b'0'..=b'9' => {
                let length = 1 + tail.iter().take_while(|b| is_number(**b)).count();
                let start = raw.len() - tail.len() - 1;
                let number = raw.get(start..start + length).unwrap_or_default();
                let is_integer = !number.contains(['.', 'e', 'E']);
                let exact = number.parse::<u64>().is_ok() || number.parse::<i64>().is_ok();
                if is_integer && !exact {
                    return true;
                }
                rest = raw.as_bytes().get(start + length..).unwrap_or_default();
            }
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Valid by syntax: what `RawValue` accepts.
    fn is_json(text: &str) -> bool {
        serde_json::from_str::<&serde_json::value::RawValue>(text).is_ok()
    }

    proptest! {
        /// `scan` agrees with the strict reader on everything of valid syntax.
        #[test]
        fn scan_agrees_with_serde_json(
            text in r#"[\[{]?"?(\\u[dD][89a-fA-F][0-9]{2}|\\u00e9|\\n|a|\\\\|"|,|:|1e40|0|-|\.){0,12}"?[\]}]?"#
        ) {
            if is_json(&text) {
                let strict = serde_json::from_str::<Value>(&text).is_ok();
                prop_assert_eq!(scan(&text).is_ok(), strict, "{}", text);
            }
        }

        #[test]
        fn numbers_agree_with_serde_json(text in r"-?(0|[1-9][0-9]{0,20})(\.[0-9]{1,5})?([eE][+-]?[0-9]{1,4})?") {
            let strict = serde_json::from_str::<Value>(&text).is_ok();
            prop_assert_eq!(scan(&text).is_ok(), strict, "{}", text);
        }

        #[test]
        fn mended_text_is_accepted(text in r"(\\u[dD][89a-fA-F][0-9]{2}|\\n|a|\\\\|\\u0041){0,12}") {
            let mended = mend_surrogates(&format!("\"{text}\""));
            prop_assert!(serde_json::from_str::<Value>(&mended).is_ok(), "{}", mended);
        }
    }

    #[test]
    fn depth_is_counted_like_the_strict_reader_does() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert_eq!(scan(&nested(MAX_DEPTH)), Ok(MAX_DEPTH));
        assert!(serde_json::from_str::<Value>(&nested(MAX_DEPTH)).is_ok());
        assert!(serde_json::from_str::<Value>(&nested(MAX_DEPTH + 1)).is_err());
        assert_eq!(scan(r#"{"[[[":"]"}"#), Ok(1));
    }

    #[test]
    fn a_value_is_kept_with_its_digits_or_as_text() {
        assert_eq!(
            kept_value("18446744073709551615", 2),
            (Value::from(u64::MAX), false)
        );
        assert!(kept_value("18446744073709551616", 2).1);
        assert!(kept_value(r#"{"a":[1,123456789012345678901234567890]}"#, 2).1);
        assert!(!kept_value(r#"{"a":"123456789012345678901234567890"}"#, 2).1);
    }

    #[test]
    fn role_is_compared_by_value() {
        assert!(is_string(r#""assistant""#, "assistant"));
        assert!(is_string(r#""\u0061ssistant""#, "assistant"));
        assert!(!is_string("5", "5"));
    }
}
