//! Reading a stream exactly as strictly as the application does.
//!
//! Its `JsonlAppendStore` takes the file as UTF-8, skips lines of white space,
//! and parses each other line whole: one that it refuses makes it refuse the
//! stream. So every nested string is decoded here too, and every number read,
//! but nothing is built that is not asked for.

use std::borrow::Cow;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use sha2::Digest as _;

use super::kv::{self, Opened};
use crate::error::{Error, Result};
use crate::fs::Stat;
use crate::model::key::Sha256;

/// Size of a read from the disk.
const BUFFER: usize = 64 * 1024;

/// A line that the application's reader would refuse, and with it the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damaged {
    /// The line, from 1; 0 if it is the file as a whole.
    pub line: u64,
    /// Why, without any of its contents.
    pub reason: String,
}

impl Damaged {
    /// Whether the next record can be asked for: only this line is damaged.
    pub(crate) fn is_of_line(&self) -> bool {
        self.line > 0
    }
}

/// One record of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its number in the stream, as it says.
    pub offset: u64,
    /// When it was written, as it says.
    pub created_at_ms: u64,
    /// The message's id, if the value has one that is a string.
    pub id: Option<Cow<'a, str>>,
    /// The message's role, if the value has one that is a string.
    pub role: Option<Cow<'a, str>>,
    /// The message's content, if the value has one that is a string.
    pub content: Option<Cow<'a, str>>,
    line: &'a str,
}

impl<'a> Record<'a> {
    /// The whole line, perhaps with its newline.
    pub(crate) fn line(&self) -> &'a str {
        self.line
    }

    /// The JSON text of the whole value.
    pub fn value(&self) -> &'a str {
        #[derive(Deserialize)]
        struct Raw<'a> {
            #[serde(rename = "offset")]
            _offset: u64,
            #[serde(borrow)]
            value: &'a RawValue,
            #[serde(rename = "created_at_ms")]
            _created_at_ms: u64,
        }
        // The line was parsed before, so this one parses too.
        serde_json::from_str::<Raw<'a>>(self.line).map_or("null", |raw| raw.value.get())
    }
}

/// A stream, read from its beginning, one line in memory at a time.
#[derive(Debug)]
pub struct StreamReader {
    path: PathBuf,
    state: State,
    stat: Stat,
    /// Bytes read so far, and lines.
    position: u64,
    line: u64,
    buffer: Vec<u8>,
}

/// A place in a stream, to go back to.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Place {
    position: u64,
    line: u64,
}

#[derive(Debug)]
enum State {
    File(BufReader<File>),
    /// What lies there can only be reported, and replaced.
    NoFile(&'static str),
}

impl StreamReader {
    /// Opens a stream's file, never through a link. `None` if there is none.
    /// A link, or whatever else is no file, is a damaged stream.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open(path: &Path) -> Result<Option<Self>> {
        let (state, stat) = match kv::open(path)? {
            None => return Ok(None),
            Some(Opened::File(file)) => {
                let stat = Stat::of_file(&file).map_err(Error::store_io("read", path))?;
                (State::File(BufReader::with_capacity(BUFFER, file)), stat)
            }
            Some(Opened::NoFile(reason)) => {
                let stat = Stat::of(path, false).map_err(Error::store_io("read", path))?;
                let Some(stat) = stat else { return Ok(None) };
                (State::NoFile(reason), stat)
            }
        };
        Ok(Some(Self {
            path: path.to_owned(),
            state,
            stat,
            position: 0,
            line: 0,
            buffer: Vec::new(),
        }))
    }

    /// What the file looked like when it was opened.
    pub fn stat(&self) -> Stat {
        self.stat
    }

    /// Starts again with the first record.
    ///
    /// # Errors
    /// The operating system's.
    pub fn rewind(&mut self) -> Result<()> {
        self.go_back(Place::default())
    }

    /// Behind the record given last.
    pub(crate) fn place(&self) -> Place {
        Place {
            position: self.position,
            line: self.line,
        }
    }

    /// Goes on with the record behind a place.
    pub(crate) fn go_back(&mut self, place: Place) -> Result<()> {
        self.position = place.position;
        self.line = place.line;
        match &mut self.state {
            State::File(file) => {
                let place = file.seek(SeekFrom::Start(place.position));
                place.map_err(Error::store_io("read", &self.path))?;
                Ok(())
            }
            State::NoFile(_) => Ok(()),
        }
    }

    /// The next record; `None` at the end.
    ///
    /// # Errors
    /// The application would refuse the stream here.
    #[expect(
        clippy::should_implement_trait,
        reason = "a record borrows from its reader"
    )]
    pub fn next(&mut self) -> Result<Option<Record<'_>>, Damaged> {
        while self.read_line()? {
            if !is_blank(&self.buffer) {
                return self.parse().map(Some);
            }
        }
        Ok(None)
    }

    /// An error where a file could not be read to its end, so that it is not
    /// known what it holds; something that is no file holds nothing.
    pub(crate) fn check(&self, damaged: Damaged) -> Result<()> {
        match &self.state {
            State::NoFile(_) => Ok(()),
            State::File(_) => {
                let error = io::Error::other(damaged.reason);
                Err(Error::store_io("read", &self.path)(error))
            }
        }
    }

    /// The line read last, also one that is no record, without its newline.
    pub(crate) fn raw(&self) -> &[u8] {
        let line = self.buffer.as_slice();
        line.strip_suffix(b"\n").unwrap_or(line)
    }

    /// `false` at the end.
    fn read_line(&mut self) -> Result<bool, Damaged> {
        let line = self.line + 1;
        let read = match &mut self.state {
            State::NoFile(reason) => {
                return Err(Damaged {
                    line: 0,
                    reason: (*reason).to_owned(),
                });
            }
            State::File(file) => {
                self.buffer.clear();
                file.read_until(b'\n', &mut self.buffer)
            }
        };
        // Not this line's damage: whoever goes on would never get behind it.
        let read = read.map_err(|error| Damaged {
            line: 0,
            reason: format!("line {line} cannot be read: {error}"),
        })?;
        self.line = line;
        self.position += read as u64;
        Ok(read > 0)
    }

    fn parse(&self) -> Result<Record<'_>, Damaged> {
        let damaged = |reason: String| Damaged {
            line: self.line,
            reason,
        };
        let line = std::str::from_utf8(&self.buffer)
            .map_err(|error| damaged(format!("not UTF-8 from byte {} on", error.valid_up_to())))?;
        let parsed: Line<'_> = serde_json::from_str(line)
            .map_err(|error| damaged(format!("no record (wrong at byte {})", error.column())))?;
        Ok(Record {
            offset: parsed.offset,
            created_at_ms: parsed.created_at_ms,
            id: parsed.value.id,
            role: parsed.value.role,
            content: parsed.value.content,
            line,
        })
    }
}

/// White space as Unicode knows it, which is what the application skips.
fn is_blank(line: &[u8]) -> bool {
    // Nearly every line starts with a brace.
    line.first() != Some(&b'{')
        && std::str::from_utf8(line).is_ok_and(|line| line.trim().is_empty())
}

/// The hash and size of a file of the store, which is never followed where it
/// is a link. `None` if there is none. What is no regular file gets a hash that
/// no file of ours has, so that it fits no entry.
///
/// # Errors
/// It cannot be read.
pub fn sha256_of_file(path: &Path) -> Result<Option<(Sha256, u64)>> {
    let mut file = match kv::open(path)? {
        None => return Ok(None),
        Some(Opened::NoFile(reason)) => return Ok(Some((Sha256::of(reason.as_bytes()), 0))),
        Some(Opened::File(file)) => file,
    };
    let mut hasher = sha2::Sha256::new();
    let mut buffer = vec![0; BUFFER];
    let mut size = 0;
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(Some((Sha256::from_digest(hasher), size))),
            Ok(read) => {
                hasher.update(buffer.get(..read).unwrap_or_default());
                size += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::store_io("read", path)(error)),
        }
    }
}

/// Whether the application reads a record whose value has this one, a JSON
/// text, as a member: there it lies two levels deeper.
pub(super) fn accepts_inside(value: &str) -> bool {
    serde_json::from_str::<Strict>(&format!("[[{value}]]")).is_ok()
}

/// A line, with the application's field names and types.
#[derive(Deserialize)]
struct Line<'a> {
    offset: u64,
    #[serde(borrow)]
    value: Value<'a>,
    created_at_ms: u64,
}

/// A record's value: three texts are kept, all else is only checked.
#[derive(Default)]
struct Value<'a> {
    id: Option<Cow<'a, str>>,
    role: Option<Cow<'a, str>>,
    content: Option<Cow<'a, str>>,
}

/// Any JSON that becomes a value; the text, if it is one.
struct Text<'a>(Option<Cow<'a, str>>);

/// Any JSON that becomes a value.
struct Strict;

macro_rules! scalars {
    ($made:expr) => {
        fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
            Ok($made)
        }
        fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
            Ok($made)
        }
        fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
            Ok($made)
        }
        fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
            Ok($made)
        }
        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok($made)
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
            while seq.next_element::<Strict>()?.is_some() {}
            Ok($made)
        }
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("JSON")
        }
    };
}

fn check_map<'de, A: MapAccess<'de>>(mut map: A) -> Result<(), A::Error> {
    while map.next_entry::<Strict, Strict>()?.is_some() {}
    Ok(())
}

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Walk;
        impl<'de> Visitor<'de> for Walk {
            type Value = Strict;
            scalars!(Strict);
            fn visit_str<E>(self, _: &str) -> Result<Strict, E> {
                Ok(Strict)
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Strict, A::Error> {
                check_map(map).map(|()| Strict)
            }
        }
        deserializer.deserialize_any(Walk)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Walk<'a>(PhantomData<Text<'a>>);
        impl<'de: 'a, 'a> Visitor<'de> for Walk<'a> {
            type Value = Text<'a>;
            scalars!(Text(None));
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Text<'a>, E> {
                Ok(Text(Some(Cow::Borrowed(text))))
            }
            fn visit_str<E>(self, text: &str) -> Result<Text<'a>, E> {
                Ok(Text(Some(Cow::Owned(text.to_owned()))))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Text<'a>, A::Error> {
                check_map(map).map(|()| Text(None))
            }
        }
        deserializer.deserialize_any(Walk(PhantomData))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Value<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Walk<'a>(PhantomData<Value<'a>>);
        impl<'de: 'a, 'a> Visitor<'de> for Walk<'a> {
            type Value = Value<'a>;
            scalars!(Value::default());
            fn visit_str<E>(self, _: &str) -> Result<Value<'a>, E> {
                Ok(Value::default())
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value<'a>, A::Error> {
                let mut value = Value::default();
                // Of a key that is given twice the last one counts, as it does
                // in the application.
                while let Some(Text(key)) = map.next_key()? {
                    let Text(text) = map.next_value()?;
                    match key.as_deref() {
                        Some("id") => value.id = text,
                        Some("role") => value.role = text,
                        Some("content") => value.content = text,
                        _ => {}
                    }
                }
                Ok(value)
            }
        }
        deserializer.deserialize_any(Walk(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What the application's reader does, told as simply as can be.
    fn naive(bytes: &[u8]) -> Option<Vec<(u64, serde_json::Value, u64)>> {
        #[derive(Deserialize)]
        struct StoreRecord {
            offset: u64,
            value: serde_json::Value,
            created_at_ms: u64,
        }
        let text = std::str::from_utf8(bytes).ok()?;
        let lines = text.lines().filter(|line| !line.trim().is_empty());
        lines
            .map(|line| {
                let record: StoreRecord = serde_json::from_str(line).ok()?;
                Some((record.offset, record.value, record.created_at_ms))
            })
            .collect()
    }

    fn strict(bytes: &[u8]) -> Option<Vec<(u64, serde_json::Value, u64)>> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("stream");
        std::fs::write(&path, bytes).unwrap();
        let mut reader = StreamReader::open(&path).unwrap().unwrap();
        let mut records = Vec::new();
        while let Some(record) = reader.next().ok()? {
            let value: serde_json::Value = serde_json::from_str(record.value()).unwrap();
            let text = |key: &str| value.get(key).and_then(|text| text.as_str());
            assert_eq!(record.id.as_deref(), text("id"));
            assert_eq!(record.role.as_deref(), text("role"));
            assert_eq!(record.content.as_deref(), text("content"));
            records.push((record.offset, value, record.created_at_ms));
        }
        Some(records)
    }

    #[test]
    fn odd_lines_are_taken_and_refused_as_the_application_does() {
        let deep = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
        let with = |value: &str| format!(r#"{{"offset":0,"value":{value},"created_at_ms":1}}"#);
        for (line, is_taken) in [
            (String::new(), true),
            (" \t\u{a0}\r".into(), true),
            (with("{}"), true),
            (format!(" {} ", with("{}")), true),
            (format!("\u{a0}{}", with("{}")), false),
            (format!("\u{feff}{}", with("{}")), false),
            (format!("{} x", with("{}")), false),
            (with(r#"{"role":"a","role":"b"}"#), true),
            (with(r#"{"role":"a\u00e9","content":1}"#), true),
            (with(r#""\ud800""#), false),
            (with(r#"{"\ud800":1}"#), false),
            (with("\"a\tb\""), false),
            (with("1e400"), false),
            (with("[1e400]"), false),
            (with("01"), false),
            (with(&deep(126)), true),
            (with(&deep(127)), false),
            (with("null"), true),
            (r#"{"offset":0,"created_at_ms":1}"#.into(), false),
            (r#"{"offset":0,"value":1}"#.into(), false),
            (
                r#"{"offset":0,"value":1,"created_at_ms":1,"more":"\ud800"}"#.into(),
                true,
            ),
            (
                r#"{"offset":0,"offset":0,"value":1,"created_at_ms":1}"#.into(),
                false,
            ),
            (r#"{"offset":-1,"value":1,"created_at_ms":1}"#.into(), false),
            (
                r#"{"offset":0.0,"value":1,"created_at_ms":1}"#.into(),
                false,
            ),
            (
                r#"{"offset":"0","value":1,"created_at_ms":1}"#.into(),
                false,
            ),
            (
                r#"{"offset":18446744073709551616,"value":1,"created_at_ms":1}"#.into(),
                false,
            ),
            (r#"[0,{"role":"a"},1]"#.into(), true),
            (r#"[0,{"role":"a"},1,2]"#.into(), false),
        ] {
            let bytes = format!("{}\n{line}\n", with("7"));
            let expected = naive(bytes.as_bytes());
            assert_eq!(expected.is_some(), is_taken, "{line}");
            assert_eq!(strict(bytes.as_bytes()), expected, "{line}");
        }
        assert_eq!(
            strict(b"{\"offset\":0,\"value\":\"\xff\",\"created_at_ms\":1}"),
            None
        );
        assert_eq!(strict(b" \xff "), None);
    }

    #[test]
    fn damage_is_named_by_its_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("stream");
        std::fs::write(
            &path,
            "\n{\"offset\":0,\"value\":1,\"created_at_ms\":1}\n{\"secret",
        )
        .unwrap();
        let mut reader = StreamReader::open(&path).unwrap().unwrap();
        assert!(reader.next().unwrap().is_some());
        let damaged = reader.next().unwrap_err();
        assert_eq!(damaged.line, 3);
        assert!(!damaged.reason.contains("secret"));
    }

    #[test]
    fn a_link_is_damage_and_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        std::fs::write(&file, "{\"offset\":0,\"value\":1,\"created_at_ms\":1}\n").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let mut reader = StreamReader::open(&link).unwrap().unwrap();
        assert_eq!(reader.next().unwrap_err().line, 0);
        assert!(reader.stat().is_symlink());
        let (of_file, size) = sha256_of_file(&file).unwrap().unwrap();
        assert_eq!(size, 41);
        assert_ne!(sha256_of_file(&link).unwrap().unwrap().0, of_file);
        assert!(
            StreamReader::open(&dir.path().join("none"))
                .unwrap()
                .is_none()
        );
        assert_eq!(sha256_of_file(&dir.path().join("none")).unwrap(), None);
        assert!(
            StreamReader::open(dir.path())
                .unwrap()
                .unwrap()
                .next()
                .is_err()
        );
    }

    proptest! {
        #[test]
        fn takes_and_refuses_what_the_application_does(
            parts in proptest::collection::vec(
                prop_oneof![
                    Just("{\"offset\":0,\"value\":".to_owned()),
                    Just(",\"created_at_ms\":1}\n".to_owned()),
                    Just("{\"role\":\"user\",\"content\":\"x\",\"id\":\"1\"}".to_owned()),
                    Just("{\"content\":[1,{\"role\":2}],\"role\":\"\\u00e9\"}".to_owned()),
                    "[\\[\\]{},:\"0-9eE.+\\-]{1,3}",
                    "\"(\\\\u[dD][89abcdef][0-9a-f]{2}|[a-z\\\\\"/ ]|\\\\n){0,4}\"",
                    "(true|null|1e4..|-0|1\\.5)",
                    "[ \r\n\t\u{85}\u{2028}]",
                ],
                0..12,
            ),
        ) {
            let bytes = parts.concat().into_bytes();
            prop_assert_eq!(strict(&bytes), naive(&bytes), "{}", String::from_utf8_lossy(&bytes));
        }
    }
}
