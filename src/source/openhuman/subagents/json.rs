//! JSON that is handled as text, so that its digits stand and nothing is built
//! up in memory.

use std::borrow::Cow;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// Calls `each` with the members of an object, in order. `false` if it is no
/// object, or a key of it cannot be decoded.
pub(super) fn members<'r>(raw: &'r str, each: &mut dyn FnMut(String, &'r str)) -> bool {
    struct Members<'f, 'r>(&'f mut dyn FnMut(String, &'r str));

    impl<'r> Visitor<'r> for Members<'_, 'r> {
        type Value = ();

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'r>>(self, mut map: A) -> Result<(), A::Error> {
            while let Some((key, value)) = map.next_entry::<String, &RawValue>()? {
                (self.0)(key, value.get());
            }
            Ok(())
        }
    }

    let mut reader = serde_json::Deserializer::from_str(raw);
    reader.deserialize_map(Members(each)).is_ok()
}

/// Calls `each` with the elements of an array, in order, until it is told to
/// stop. `false` if it is no array.
pub(super) fn elements<'r>(raw: &'r str, each: &mut dyn FnMut(&'r str) -> bool) -> bool {
    struct Elements<'f, 'r>(&'f mut dyn FnMut(&'r str) -> bool);

    impl<'r> Visitor<'r> for Elements<'_, 'r> {
        type Value = ();

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an array")
        }

        fn visit_seq<A: SeqAccess<'r>>(self, mut array: A) -> Result<(), A::Error> {
            while let Some(element) = array.next_element::<&RawValue>()? {
                if !(self.0)(element.get()) {
                    return Err(A::Error::custom("stopped"));
                }
            }
            Ok(())
        }
    }

    let mut reader = serde_json::Deserializer::from_str(raw);
    reader.deserialize_seq(Elements(each)).is_ok()
}

/// Whether the strict reader accepts the value where nothing lies around it:
/// every string decodes, every number is in range, at most 127 levels
/// (`openhuman-workspace.md` §1.3). Nothing is built: a value of 16 bytes for
/// each `0,` would be the larger part of the memory.
pub(super) fn is_strict(raw: &str) -> bool {
    struct Strict;

    impl<'de> Deserialize<'de> for Strict {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            deserializer.deserialize_any(Self)
        }
    }

    impl<'de> Visitor<'de> for Strict {
        type Value = Self;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("any JSON")
        }

        fn visit_unit<E>(self) -> Result<Self, E> {
            Ok(self)
        }

        fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
            Ok(self)
        }

        fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
            Ok(self)
        }

        fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
            Ok(self)
        }

        fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
            Ok(self)
        }

        fn visit_str<E>(self, _: &str) -> Result<Self, E> {
            Ok(self)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<Self, A::Error> {
            while array.next_element::<Self>()?.is_some() {}
            Ok(self)
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self, A::Error> {
            while map.next_entry::<Self, Self>()?.is_some() {}
            Ok(self)
        }
    }

    serde_json::from_str::<Strict>(raw).is_ok()
}

/// Whether it is a string that decodes.
pub(super) fn is_string(raw: &str) -> bool {
    raw.starts_with('"') && is_strict(raw)
}

/// How many levels of arrays and objects the value has.
pub(super) fn depth(raw: &str) -> usize {
    let (mut level, mut deepest) = (0_usize, 0);
    for byte in Pieces(raw).filter_map(Piece::bare).flat_map(str::bytes) {
        match byte {
            b'[' | b'{' => level += 1,
            b']' | b'}' => level = level.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(level);
    }
    deepest
}

/// The value on one line: a journal's record is one, and the sub-agents file
/// is printed over many.
pub(super) fn compact(raw: &str) -> Cow<'_, str> {
    let is_space = |c| matches!(c, ' ' | '\n' | '\r' | '\t');
    if !Pieces(raw)
        .filter_map(Piece::bare)
        .any(|bare| bare.contains(is_space))
    {
        return Cow::Borrowed(raw);
    }
    let mut text = String::with_capacity(raw.len());
    for piece in Pieces(raw) {
        match piece {
            Piece::Text(string) => text.push_str(string),
            Piece::Bare(bare) => text.extend(bare.split(is_space)),
        }
    }
    Cow::Owned(text)
}

/// The value, or `{"json": text}` where it would not be the same as a value:
/// it nests deeper than this, the strict reader refuses it, or a number has
/// more digits than a double keeps.
pub(super) fn value_or_text(raw: &str, deepest: usize) -> Value {
    let value = (depth(raw) <= deepest && is_strict(raw) && !loses_digits(raw))
        .then(|| serde_json::from_str(raw).ok())
        .flatten();
    value.unwrap_or_else(|| json!({ "json": raw }))
}

/// Whether some number would not be told again with all of its digits.
fn loses_digits(raw: &str) -> bool {
    /// Every decimal of so many digits is another double.
    const KEPT: usize = 15;

    let of_a_number = |c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.' | 'e' | 'E');
    let bare = Pieces(raw).filter_map(Piece::bare);
    bare.flat_map(|bare| bare.split(|c| !of_a_number(c)))
        .any(|number| {
            let mantissa = number.split(['e', 'E']).next().unwrap_or(number);
            mantissa.bytes().filter(u8::is_ascii_digit).count() > KEPT
            && number.parse::<u64>().is_err()
            && number.parse::<i64>().is_err()
            // A double as it is printed: what it was written from.
            && !number.parse::<f64>().is_ok_and(|double| is_printed_as(double, number))
        })
}

fn is_printed_as(double: f64, number: &str) -> bool {
    serde_json::to_string(&double).is_ok_and(|printed| printed == number)
}

/// JSON text as string literals and what lies between them.
struct Pieces<'r>(&'r str);

enum Piece<'r> {
    /// A string, with its quotes.
    Text(&'r str),
    /// Anything else, perhaps several values.
    Bare(&'r str),
}

impl<'r> Piece<'r> {
    fn bare(self) -> Option<&'r str> {
        match self {
            Self::Text(_) => None,
            Self::Bare(bare) => Some(bare),
        }
    }
}

impl<'r> Iterator for Pieces<'r> {
    type Item = Piece<'r>;

    fn next(&mut self) -> Option<Piece<'r>> {
        let is_text = self.0.starts_with('"');
        let end = match is_text {
            true => end_of_string(self.0),
            false => self.0.find('"').unwrap_or(self.0.len()),
        };
        let (piece, rest) = self.0.split_at_checked(end).filter(|_| end > 0)?;
        self.0 = rest;
        Some(match is_text {
            true => Piece::Text(piece),
            false => Piece::Bare(piece),
        })
    }
}

/// Where the string that stands at the start ends, behind its closing quote.
fn end_of_string(raw: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in raw.bytes().enumerate().skip(1) {
        match byte {
            b'"' if !escaped => return at + 1,
            b'\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    raw.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_counts_brackets_outside_of_strings() {
        for (raw, expected) in [
            ("1", 0),
            (r#""[[[\"[""#, 0),
            ("[]", 1),
            (r#"{"[":[{}]}"#, 3),
            (r#"[[],"\\",[[]]]"#, 3),
        ] {
            assert_eq!(depth(raw), expected, "{raw}");
        }
    }

    #[test]
    fn the_strict_reader_takes_127_levels() {
        let nested = |levels| "[".repeat(levels) + &"]".repeat(levels);
        assert!(is_strict(&nested(127)));
        assert!(!is_strict(&nested(128)));
        assert_eq!(depth(&nested(128)), 128);
    }

    #[test]
    fn strict_is_what_a_value_takes() {
        for raw in [
            "null",
            "-0",
            "1e308",
            "1e400",
            "-1e400",
            "123456789012345678901234567890",
            r#""\ud83d\ude00""#,
            r#""\ud800""#,
            r#"["\udc00"]"#,
            r#"{"\ud800":1}"#,
            r#"{"a":{"b":[true,false,1.5]}}"#,
            "[1,]",
            "",
        ] {
            assert_eq!(
                is_strict(raw),
                serde_json::from_str::<Value>(raw).is_ok(),
                "{raw}"
            );
        }
        assert!(is_string(r#""a""#) && !is_string("1") && !is_string(r#""\ud800""#));
    }

    #[test]
    fn compact_takes_white_space_between_tokens_only() {
        let raw = "{\n  \"a b\": [ 1.10,\r\n\t\"x\\\" \\\\\" , 123456789012345678901234567890 ]\n}";
        let expected = r#"{"a b":[1.10,"x\" \\",123456789012345678901234567890]}"#;
        assert_eq!(compact(raw), expected);
        assert!(matches!(compact(expected), Cow::Borrowed(_)));
    }

    #[test]
    fn values_that_would_change_are_kept_as_text() {
        for raw in [
            "123456789012345678901234567890",
            "[0.1234567890123456789]",
            "1e400",
            r#""\ud800""#,
            "[[[[]]]]",
        ] {
            assert_eq!(value_or_text(raw, 3), json!({ "json": raw }), "{raw}");
        }
        for raw in [
            "18446744073709551615",
            "-9223372036854775808",
            "0.30000000000000004",
            "1.50",
            "[[[]]]",
        ] {
            assert_eq!(
                value_or_text(raw, 3),
                serde_json::from_str::<Value>(raw).unwrap()
            );
        }
    }

    #[test]
    fn members_and_elements_come_in_order_as_they_stand() {
        let mut seen = Vec::new();
        assert!(members(r#"{ "a" : 1.0 , "a":[ ] }"#, &mut |key, raw| seen
            .push((key, raw))));
        assert_eq!(seen, [("a".to_owned(), "1.0"), ("a".to_owned(), "[ ]")]);
        assert!(!members("[]", &mut |_, _| {}));
        assert!(!members(r#"{"\ud800":1}"#, &mut |_, _| {}));

        let mut seen = Vec::new();
        let mut until = |raw| {
            seen.push(raw);
            raw != "2"
        };
        assert!(elements("[1, {}]", &mut until));
        assert!(!elements("[2, 3]", &mut until));
        assert!(!elements("{}", &mut until));
        assert_eq!(seen, ["1", "{}", "2"]);
    }
}
