//! What both Markdown readers share: the encoding, and the sum of lines.
//!
//! # How the lines of a Markdown file add up
//!
//! A JSONL record is a line; a Markdown message spans several, and may share
//! its first and last with something else. So here the unit is the *block*,
//! and the lines are those that a block touches (`tinyagents-store.md`,
//! Journals: messages and residue together account for every line):
//!
//! - **headers**: the legacy header comment; title and list of the rendered view;
//! - **messages**: from opening to closing tag; from the `---` of the rendered
//!   view to the newline behind the content;
//! - **residue**: text outside of all blocks, from its first to its last line
//!   that is not blank (blank lines in between are part of it); messages that
//!   the reader drops. What `--salvage` brings back stays in the residue, and
//!   so its lines count here, not as messages;
//! - **blank**: lines that no block touches. They hold white space only.
//!
//! A line that several blocks touch belongs to the first one; `total` is the
//! number of lines of the file, and a final newline starts none. So every line
//! is counted once, and [`Lines::add_up`] holds for every file. Blocks overlap
//! where the header comment stands inside a message, or a message's tag ends
//! an unclosed header: the text is then told twice, its lines once.
//!
//! [`Lines::add_up`]: crate::model::session::Lines::add_up

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use memchr::{memchr_iter, memmem};
use serde_json::{Map, Value};

use super::salvage;
use super::salvage::markdown::{NOT_UTF8, text as decode};
use crate::error::{Error, Result};
use crate::model::diagnostic::{Code, Diagnostic};
use crate::model::message::{Json, Message, Residue, Sink, Why};
use crate::model::session::Reading;

/// UTF-8's byte order mark.
const MARK: &[u8] = b"\xEF\xBB\xBF";

/// A file without its byte order mark.
#[derive(Debug, Clone, Copy)]
pub(super) struct Text<'a> {
    /// What follows the mark.
    pub(super) bytes: &'a [u8],
    /// Whether there was one.
    pub(super) marked: bool,
    /// Line of the first byte that is not UTF-8.
    pub(super) not_utf8: Option<u64>,
}

impl<'a> Text<'a> {
    /// Looks at a file's encoding.
    ///
    /// # Errors
    /// [`Code::ForeignEncoding`] for UTF-16 and UTF-32, which no salvage reads.
    pub(super) fn new(bytes: &'a [u8]) -> Result<Self> {
        if let Some(encoding) = foreign_encoding(bytes) {
            return Err(Error::source(
                Code::ForeignEncoding,
                format!("the file is {encoding}, by its byte order mark; only UTF-8 is read"),
            ));
        }
        let (bytes, marked) = without_mark(bytes);
        let not_utf8 = std::str::from_utf8(bytes).err().map(|error| {
            let valid = part(bytes, 0..error.valid_up_to());
            memchr_iter(b'\n', valid).count() as u64 + 1
        });
        Ok(Self {
            bytes,
            marked,
            not_utf8,
        })
    }

    /// Decides whether the file can be taken in spite of what is `wrong` with
    /// it: only under salvage, and only if that gives a message at all. True
    /// where salvage had to.
    ///
    /// # Errors
    /// [`Code::BadMarkdown`], with what is wrong.
    pub(super) fn accept(
        &self,
        wrong: Option<&str>,
        salvage: bool,
        messages: impl FnOnce() -> usize,
    ) -> Result<bool> {
        let not_utf8 = self
            .not_utf8
            .map(|line| format!("it is not UTF-8 from line {line} on"));
        let wrong: Vec<&str> = wrong.into_iter().chain(not_utf8.as_deref()).collect();
        if wrong.is_empty() {
            return Ok(false);
        }
        let messages = messages() as u64;
        if salvage && messages > 0 {
            return Ok(true);
        }
        Err(Error::Source {
            code: Code::BadMarkdown,
            message: format!("not a Markdown transcript: {}", wrong.join("; ")),
            salvageable: if salvage { 0 } else { messages },
        })
    }
}

/// The bytes behind UTF-8's byte order mark, and whether there was one.
pub(super) fn without_mark(bytes: &[u8]) -> (&[u8], bool) {
    match bytes.strip_prefix(MARK) {
        Some(rest) => (rest, true),
        None => (bytes, false),
    }
}

fn foreign_encoding(bytes: &[u8]) -> Option<&'static str> {
    // UTF-32 first: its little-endian mark begins with that of UTF-16.
    if bytes.starts_with(&[0xFF, 0xFE, 0, 0]) || bytes.starts_with(&[0, 0, 0xFE, 0xFF]) {
        Some("UTF-32")
    } else if bytes.starts_with(&[0xFF, 0xFE]) || bytes.starts_with(&[0xFE, 0xFF]) {
        Some("UTF-16")
    } else {
        None
    }
}

/// A part of the file; empty where the range is none.
pub(super) fn part(bytes: &[u8], range: Range<usize>) -> &[u8] {
    bytes.get(range).unwrap_or_default()
}

/// The line that starts at `from`, with its newline.
pub(super) fn line_at(bytes: &[u8], from: usize) -> Range<usize> {
    let rest = bytes.get(from..).unwrap_or_default();
    let length = memchr::memchr(b'\n', rest).map_or(rest.len(), |newline| newline + 1);
    from..from + length
}

/// Line numbers of rising offsets: every byte is looked at once.
#[derive(Debug, Default)]
struct Cursor {
    at: usize,
    newlines: u64,
}

impl Cursor {
    /// The number, from 1, of the line that holds the byte at `offset`.
    fn line(&mut self, bytes: &[u8], offset: usize) -> u64 {
        if offset > self.at {
            self.newlines += memchr_iter(b'\n', part(bytes, self.at..offset)).count() as u64;
            self.at = offset;
        }
        self.newlines + 1
    }
}

/// The blocks of one file on their way to the sink, and the sum of its lines.
///
/// Blocks come in the order of their starts; that is what makes one pass enough.
pub(super) struct Tally<'a, 's> {
    bytes: &'a [u8],
    may_be_invalid: bool,
    sink: &'s mut dyn Sink,
    /// What the file gave.
    pub(super) reading: Reading,
    starts: Cursor,
    ends: Cursor,
    /// Everything before this offset is in a block or white space.
    covered: usize,
    /// The last line that is counted.
    counted: u64,
}

/// The texts of a message.
#[derive(Debug)]
pub(super) struct Texts<'a> {
    pub(super) role: Cow<'a, str>,
    pub(super) content: Cow<'a, str>,
    /// Where the view says more about the message than its texts.
    pub(super) unmapped: Map<String, Value>,
}

impl<'a, 's> Tally<'a, 's> {
    pub(super) fn new(text: &Text<'a>, generation: u8, sink: &'s mut dyn Sink) -> Self {
        let mut reading = Reading {
            generation,
            ..Reading::default()
        };
        if text.marked {
            let message = "the file starts with a byte order mark, which was skipped";
            reading
                .diagnostics
                .push(Diagnostic::new(Code::ByteOrderMark, message));
        }
        Self {
            bytes: text.bytes,
            may_be_invalid: text.not_utf8.is_some(),
            sink,
            reading,
            starts: Cursor::default(),
            ends: Cursor::default(),
            covered: 0,
            counted: 0,
        }
    }

    /// The line of an offset that is not before any that was asked for earlier.
    pub(super) fn line(&mut self, offset: usize) -> u64 {
        self.starts.line(self.bytes, offset)
    }

    /// A warning at a line.
    pub(super) fn warn(&mut self, code: Code, line: u64, message: &str) {
        self.reading
            .diagnostics
            .push(Diagnostic::at(code, line, message));
    }

    /// What stands between the last block and `to`: residue, if it is not
    /// white space (`openhuman-workspace.md` §2).
    pub(super) fn outside(&mut self, to: usize) -> Result<()> {
        let mut found: Option<Range<usize>> = None;
        let mut at = self.covered;
        while at < to {
            let mut line = line_at(self.bytes, at);
            line.end = line.end.min(to);
            at = line.end;
            if !is_white(part(self.bytes, line.clone())) {
                let start = found.map_or(line.start, |found| found.start);
                found = Some(start..line.end);
            }
        }
        let Some(range) = found else { return Ok(()) };
        let line = self.line(range.start);
        self.warn(
            Code::TextOutside,
            line,
            "text outside of messages, which the reader ignores; kept in the residue",
        );
        self.rejected(range, "text-outside: text that is in no message")
    }

    /// The header, or one line of it. Its text is told by the header's fields
    /// and `unmapped_meta`; bytes that are not UTF-8 are not, so they stay.
    pub(super) fn header(&mut self, range: Range<usize>) -> Result<()> {
        if !self.is_damaged(&range) {
            self.reading.lines.headers += self.count(&range);
            return Ok(());
        }
        self.warn_of_header("bytes of the header that are not UTF-8 were replaced");
        self.residue(range, Why::Header, "not-utf8: bytes that are not UTF-8")
    }

    /// Says, once, that salvage had a part in the header.
    pub(super) fn warn_of_header(&mut self, message: &str) {
        self.reading.salvaged = true;
        if !self.reading.diagnostics.has(Code::SalvagedHeader) {
            let diagnostic = Diagnostic::new(Code::SalvagedHeader, message);
            self.reading.diagnostics.push(diagnostic);
        }
    }

    /// A message that the reader takes. Under salvage its bytes may not be
    /// UTF-8: then it is one that was brought back.
    pub(super) fn message(&mut self, range: Range<usize>, texts: Texts<'_>) -> Result<()> {
        if self.is_damaged(&range) {
            let what = "bytes that are not UTF-8 were replaced";
            let error = "not-utf8: bytes that are not UTF-8";
            return self.salvaged_message(range, texts, NOT_UTF8, what, error);
        }
        self.give(texts, None)?;
        self.reading.lines.messages += self.count(&range);
        Ok(())
    }

    /// A message that salvage brings back; its text stays in the residue.
    pub(super) fn salvaged_message(
        &mut self,
        range: Range<usize>,
        texts: Texts<'_>,
        rule: &str,
        what: &str,
        error: &'static str,
    ) -> Result<()> {
        let line = self.line(range.start);
        self.reading.salvaged = true;
        self.warn(Code::SalvagedLine, line, what);
        self.give(texts, Some(salvage::mark(line, rule)))?;
        self.rejected(range, error)
    }

    /// A block that the application's reader does not take.
    pub(super) fn rejected(&mut self, range: Range<usize>, error: &'static str) -> Result<()> {
        self.reading.rejected += 1;
        self.residue(range, Why::Malformed, error)
    }

    /// The rest of the file, and the sums.
    pub(super) fn finish(mut self) -> Result<Reading> {
        self.outside(self.bytes.len())?;
        let newlines = memchr_iter(b'\n', self.bytes).count() as u64;
        let unended = !self.bytes.is_empty() && !self.bytes.ends_with(b"\n");
        let lines = &mut self.reading.lines;
        lines.total = newlines + u64::from(unended);
        lines.blank += lines.total.saturating_sub(self.counted);
        Ok(self.reading)
    }

    fn residue(&mut self, range: Range<usize>, why: Why, error: &'static str) -> Result<()> {
        let line = self.line(range.start);
        let text = part(self.bytes, range.clone());
        self.sink.residue(&Residue {
            line,
            why,
            error: Some(Cow::Borrowed(error)),
            text: text.strip_suffix(b"\n").unwrap_or(text),
        })?;
        self.reading.lines.residue += self.count(&range);
        Ok(())
    }

    fn give(&mut self, texts: Texts<'_>, salvaged: Option<String>) -> Result<()> {
        let content = texts.content.as_bytes();
        self.reading.messages += 1;
        self.reading.tool_call_markup |= memmem::find(content, b"<tool_call>").is_some();
        self.warn_of_carriage_returns(&texts.role);
        self.warn_of_carriage_returns(&texts.content);
        let unmapped = (!texts.unmapped.is_empty())
            .then(|| Json::Owned(Value::Object(texts.unmapped).to_string()));
        self.sink.message(&Message {
            role: json_string(&texts.role),
            content: json_string(&texts.content),
            unmapped,
            salvaged: salvaged.map(Json::Owned),
            ..Message::default()
        })
    }

    /// Windows line ends only: a lone carriage return within a line is what
    /// progress bars leave in a tool's output, and says nothing of the file.
    fn warn_of_carriage_returns(&mut self, text: &str) {
        let found = text.ends_with('\r') || text.contains("\r\n");
        if found && !self.reading.diagnostics.has(Code::CarriageReturns) {
            let message = "texts have Windows line ends, and keep them";
            self.reading
                .diagnostics
                .push(Diagnostic::new(Code::CarriageReturns, message));
        }
    }

    fn is_damaged(&self, range: &Range<usize>) -> bool {
        self.may_be_invalid && std::str::from_utf8(part(self.bytes, range.clone())).is_err()
    }

    /// Counts the lines of a block that no earlier one touches.
    fn count(&mut self, range: &Range<usize>) -> u64 {
        if range.end <= self.covered {
            return 0;
        }
        let before = self.line(range.start) - 1;
        let last = self.ends.line(self.bytes, range.end - 1);
        self.reading.lines.blank += before.saturating_sub(self.counted);
        let lines = last.saturating_sub(before.max(self.counted));
        self.counted = self.counted.max(last);
        self.covered = range.end;
        lines
    }
}

fn json_string(text: &str) -> Json<'static> {
    Json::Owned(Value::from(text).to_string())
}

fn is_white(bytes: &[u8]) -> bool {
    decode(bytes).trim().is_empty()
}

/// Keys of a header that have no field, in the order they are met. Nothing is
/// overwritten: the n-th value of a key is kept as `key#n`.
#[derive(Debug, Default)]
pub(super) struct Unmapped {
    seen: HashMap<String, u64>,
    kept: Map<String, Value>,
}

impl Unmapped {
    /// Takes note of a key: the how many-th of its name this is, from 1.
    pub(super) fn meet(&mut self, key: &str) -> u64 {
        let count = self.seen.entry(key.to_owned()).or_default();
        *count += 1;
        *count
    }

    /// Keeps the `nth` value of a key.
    pub(super) fn keep(&mut self, key: &str, mut nth: u64, value: &str) {
        let mut name = match nth {
            1 => key.to_owned(),
            _ => format!("{key}#{nth}"),
        };
        // A file may itself have a key `a#2` beside two `a`.
        while self.kept.contains_key(&name) {
            nth = self.meet(key);
            name = format!("{key}#{nth}");
        }
        self.kept.insert(name, Value::from(value));
    }

    /// All that was kept.
    pub(super) fn finish(self) -> Option<Map<String, Value>> {
        (!self.kept.is_empty()).then_some(self.kept)
    }
}

/// What the tests of both readers share.
#[cfg(test)]
pub(super) mod testing {
    use super::*;

    /// One message as it came, its texts decoded.
    #[derive(Debug, Clone, PartialEq)]
    pub(crate) struct Told {
        pub(crate) role: String,
        pub(crate) content: String,
        pub(crate) unmapped: Option<Value>,
        pub(crate) salvaged: Option<Value>,
    }

    /// Takes everything.
    #[derive(Debug, Default)]
    pub(crate) struct Taken {
        pub(crate) messages: Vec<Told>,
        pub(crate) residue: Vec<(u64, String, Vec<u8>)>,
    }

    impl Taken {
        pub(crate) fn texts(&self) -> Vec<(&str, &str)> {
            let messages = self.messages.iter();
            messages
                .map(|told| (told.role.as_str(), told.content.as_str()))
                .collect()
        }

        pub(crate) fn residue(&self) -> Vec<(u64, &str, &str)> {
            self.residue
                .iter()
                .map(|(line, error, text)| {
                    let code = error.split(':').next().unwrap();
                    (*line, code, std::str::from_utf8(text).unwrap())
                })
                .collect()
        }
    }

    impl Sink for Taken {
        fn message(&mut self, message: &Message<'_>) -> Result<()> {
            assert_eq!((&message.id, &message.extra_metadata), (&None, &None));
            self.messages.push(Told {
                role: serde_json::from_str(&message.role).unwrap(),
                content: serde_json::from_str(&message.content).unwrap(),
                unmapped: message
                    .unmapped
                    .as_deref()
                    .map(|json| serde_json::from_str(json).unwrap()),
                salvaged: message
                    .salvaged
                    .as_deref()
                    .map(|json| serde_json::from_str(json).unwrap()),
            });
            Ok(())
        }

        fn residue(&mut self, residue: &Residue<'_>) -> Result<()> {
            let error = residue.error.as_deref().unwrap().to_owned();
            assert!(matches!(residue.why, Why::Malformed | Why::Header));
            self.residue
                .push((residue.line, error, residue.text.to_owned()));
            Ok(())
        }

        fn restart(&mut self) -> Result<()> {
            panic!("Markdown has no compactions");
        }

        fn settle(&mut self) -> Result<()> {
            panic!("Markdown has no compactions");
        }
    }

    /// Checks what holds for every file, read in any way.
    pub(crate) fn check_sums(bytes: &[u8], reading: &Reading, taken: &Taken) {
        let bytes = without_mark(bytes).0;
        let lines = reading.lines;
        assert!(lines.add_up(), "{lines:?}");
        let text = String::from_utf8_lossy(bytes);
        let all: Vec<&str> = text.split_terminator('\n').collect();
        assert_eq!(lines.total, all.len() as u64);
        let white = all.iter().filter(|line| line.trim().is_empty()).count() as u64;
        assert!(lines.blank <= white, "{lines:?} but {white} white lines");
        assert_eq!(reading.messages, taken.messages.len() as u64);
        let held: usize = taken
            .residue
            .iter()
            .map(|(_, _, text)| text.split(|&b| b == b'\n').count())
            .sum();
        assert!(lines.residue <= held as u64);
        for (line, _, text) in &taken.residue {
            let first = String::from_utf8_lossy(text.split(|&b| b == b'\n').next().unwrap());
            assert!(all[*line as usize - 1].contains(&*first), "line {line}");
        }
    }

    /// A word that no other one is part of.
    fn word(number: usize) -> String {
        format!("w{number}é.")
    }

    /// Puts a [`word`] of its own in place of each `WORD`.
    pub(crate) fn number_words(text: &str) -> String {
        let mut parts = text.split("WORD");
        let mut numbered = parts.next().unwrap().to_owned();
        for (number, part) in parts.enumerate() {
            numbered.push_str(&word(number));
            numbered.push_str(part);
        }
        numbered
    }

    fn words(text: &str) -> impl Iterator<Item = String> {
        text.split('w')
            .filter_map(|rest| rest.split_once("é.")?.0.parse().ok())
            .map(word)
    }

    /// Checks that every [`word`] of the source is in a message, in the header or in the residue.
    pub(crate) fn nothing_is_lost(text: &str, reading: &Reading, taken: &Taken) {
        let told = format!("{taken:?}{:?}{:?}", reading.header, reading.unmapped_meta);
        let residue: Vec<_> = taken
            .residue
            .iter()
            .map(|(_, _, text)| String::from_utf8_lossy(text))
            .collect();
        for word in words(text) {
            let found = told.contains(&word) || residue.iter().any(|text| text.contains(&*word));
            assert!(found, "{word} of {text:?} is lost");
        }
    }

    /// The codes of the warnings, with their lines.
    pub(crate) fn codes(reading: &Reading) -> Vec<(&'static str, Option<u64>)> {
        let all = reading.diagnostics.clone().into_vec();
        all.iter()
            .map(|diagnostic| (diagnostic.code.as_str(), diagnostic.line))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{Taken, codes};
    use super::*;

    fn tally<'a, 's>(bytes: &'a [u8], sink: &'s mut Taken) -> Tally<'a, 's> {
        Tally::new(&Text::new(bytes).unwrap(), 1, sink)
    }

    #[test]
    fn other_encodings_are_named() {
        for (bytes, name) in [
            (&b"\xFF\xFEa\0"[..], "UTF-16"),
            (b"\xFE\xFF\0a", "UTF-16"),
            (b"\xFF\xFE\0\0a\0\0\0", "UTF-32"),
            (b"\0\0\xFE\xFF\0\0\0a", "UTF-32"),
        ] {
            let error = Text::new(bytes).unwrap_err();
            assert_eq!(error.code(), Code::ForeignEncoding);
            assert!(error.to_string().contains(name), "{error}");
        }
    }

    #[test]
    fn the_mark_is_no_text() {
        let text = Text::new(b"\xEF\xBB\xBFa").unwrap();
        assert_eq!(
            (text.bytes, text.marked, text.not_utf8),
            (&b"a"[..], true, None)
        );
        assert_eq!(Text::new(b"a\n\nb\xFF").unwrap().not_utf8, Some(3));
    }

    #[test]
    fn text_outside_is_one_block_from_its_first_line_to_its_last() {
        let mut sink = Taken::default();
        let reading = tally(b"\n  a\n\nb \n \n", &mut sink).finish().unwrap();
        assert_eq!(sink.residue(), [(2, "text-outside", "  a\n\nb ")]);
        assert_eq!(
            (
                reading.lines.total,
                reading.lines.residue,
                reading.lines.blank
            ),
            (5, 3, 2)
        );
        assert_eq!(codes(&reading), [("text-outside", Some(2))]);
        assert_eq!(reading.rejected, 1);
    }

    #[test]
    fn unicode_white_space_is_no_text() {
        let mut sink = Taken::default();
        let reading = tally("\u{a0}\n\u{2028}\u{3000}\n".as_bytes(), &mut sink)
            .finish()
            .unwrap();
        assert!(sink.residue.is_empty());
        assert_eq!((reading.lines.total, reading.lines.blank), (2, 2));
    }

    #[test]
    fn a_shared_line_belongs_to_the_first_block() {
        let bytes = b"head text\n";
        let mut sink = Taken::default();
        let mut tally = tally(bytes, &mut sink);
        tally.header(0..4).unwrap();
        let reading = tally.finish().unwrap();
        assert_eq!(sink.residue(), [(1, "text-outside", " text")]);
        assert_eq!((reading.lines.headers, reading.lines.residue), (1, 0));
        assert!(reading.lines.add_up());
    }

    #[test]
    fn an_empty_file_has_no_lines() {
        let mut sink = Taken::default();
        let reading = tally(b"", &mut sink).finish().unwrap();
        assert_eq!(reading.lines, crate::model::session::Lines::default());
    }

    #[test]
    fn repeated_keys_are_numbered_and_never_overwritten() {
        let mut unmapped = Unmapped::default();
        for (key, value) in [
            ("a", "1"),
            ("a#2", "2"),
            ("a", "3"),
            ("a", "4"),
            ("a#2", "5"),
            ("b", "6"),
        ] {
            let nth = unmapped.meet(key);
            unmapped.keep(key, nth, value);
        }
        let kept = unmapped.finish().unwrap();
        assert_eq!(kept.len(), 6);
        let mut values: Vec<&str> = kept.values().map(|value| value.as_str().unwrap()).collect();
        values.sort_unstable();
        assert_eq!(values, ["1", "2", "3", "4", "5", "6"]);
        assert_eq!(
            (&kept["a"], &kept["a#2"], &kept["b"]),
            (&"1".into(), &"2".into(), &"6".into())
        );
        assert_eq!(Unmapped::default().finish(), None);
    }
}
