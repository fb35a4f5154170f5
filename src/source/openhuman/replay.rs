//! A transcript as the application's reader replays it: header first, then
//! messages, with partial answers left out and compactions in force
//! (`openhuman-workspace.md` §1.3). Every line goes somewhere: to the sink as
//! a message or as residue, or into the counts as header or blank.
//!
//! One pass, one line in memory. When a compaction comes, what it replaced is
//! residue after all: the sink forgets its messages, and that stretch of the
//! file is read once more. No byte is read more than twice.

use memchr::memmem::Finder;

use super::header::Meta;
use super::line::{Flaw, MessageLine, Record, classify};
use super::record::Scratch;
use super::salvage::{self, Defaults};
use crate::error::{Error, Result};
use crate::model::diagnostic::{Code, Diagnostic};
use crate::model::key::Sha256;
use crate::model::message::{Residue, Sink, Why};
use crate::model::session::Reading;
use crate::source::input::{Input, Position};

pub(crate) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Reads a JSONL transcript into a sink. With `salvage` set, takes more than
/// the application's reader would.
///
/// # Errors
/// The file is empty, has no valid header, is in a foreign encoding, cannot
/// be read; or what the sink could not do.
pub(crate) fn read(
    input: &Input<'_>,
    salvage: Option<&Defaults>,
    sink: &mut dyn Sink,
) -> Result<(Reading, Sha256)> {
    let mut replay = Replay {
        input,
        salvage,
        sink,
        reading: Reading::default(),
        meta: None,
        first_header: None,
        seen_first: false,
        stretch: Stretch::default(),
        scratch: Scratch::default(),
        has_typed_rows: false,
        markup: Finder::new(b"<tool_call"),
    };
    let mut lines = input.lines();
    let mut line = Vec::new();
    while let Some(position) = lines.next(&mut line)? {
        replay.line(position, &line, lines.offset())?;
    }
    let reading = replay.finish()?;
    Ok((reading, lines.into_sha256()))
}

/// The part of the file that the next compaction would replace.
#[derive(Debug, Default, Clone, Copy)]
struct Stretch {
    offset: u64,
    lines_before: u64,
    /// It begins with the compaction before, whose line is residue already.
    begins_with_compaction: bool,
    /// Lines of it that are messages now.
    message_lines: u64,
}

struct Replay<'a> {
    input: &'a Input<'a>,
    salvage: Option<&'a Defaults>,
    sink: &'a mut dyn Sink,
    reading: Reading,
    /// The counting header.
    meta: Option<Meta>,
    first_header: Option<String>,
    seen_first: bool,
    stretch: Stretch,
    scratch: Scratch,
    has_typed_rows: bool,
    /// Looks for tool calls as markup; made once, not for each message.
    markup: Finder<'static>,
}

/// What a line is to the replay.
enum Judged<'l> {
    Blank,
    Header(Meta),
    Compaction(Vec<MessageLine<'l>>),
    Tools,
    Interrupted(MessageLine<'l>),
    Message(MessageLine<'l>),
    Malformed(Flaw),
}

fn judge(bytes: &[u8]) -> Judged<'_> {
    // A good part of a plain pass was the standard library's check, which is
    // slow for text that is not ASCII.
    let Ok(text) = simdutf8::basic::from_utf8(bytes) else {
        return Judged::Malformed(Flaw::NotUtf8);
    };
    let text = text.trim();
    if text.is_empty() {
        return Judged::Blank;
    }
    match classify(text) {
        Ok(Record::Header(fields)) => match Meta::parse(&fields) {
            Ok(meta) => Judged::Header(meta),
            Err(flaw) => Judged::Malformed(flaw),
        },
        Ok(Record::Compaction(entries)) => Judged::Compaction(entries),
        Ok(Record::Tools) => Judged::Tools,
        Ok(Record::Message(line)) if line.interrupted => Judged::Interrupted(line),
        Ok(Record::Message(line)) => Judged::Message(line),
        Err(flaw) => Judged::Malformed(flaw),
    }
}

impl Replay<'_> {
    /// Takes the next line; `end` is the offset behind it.
    fn line(&mut self, position: Position, bytes: &[u8], end: u64) -> Result<()> {
        self.reading.lines.total += 1;
        let bytes = match bytes.strip_prefix(BYTE_ORDER_MARK) {
            Some(rest) if position.number == 1 => {
                let message = "the file starts with a byte order mark, which was skipped";
                self.warn(Code::ByteOrderMark, 1, message);
                rest
            }
            _ => bytes,
        };
        if !self.seen_first && !is_blank(bytes) {
            self.seen_first = true;
            self.stretch.offset = position.offset;
            self.stretch.lines_before = position.number - 1;
            if self.first_line(position.number, bytes)? {
                self.stretch.offset = end;
                self.stretch.lines_before = position.number;
                return Ok(());
            }
        }
        match judge(bytes) {
            Judged::Blank => self.reading.lines.blank += 1,
            Judged::Header(meta) => {
                if self.meta.is_none() {
                    self.reading.salvaged = true;
                    let message = "the first line is no header; this line is the first one";
                    self.warn(Code::SalvagedHeader, position.number, message);
                }
                self.meta = Some(meta);
                self.residue(position.number, Why::Header, None, bytes)?;
            }
            Judged::Tools => self.residue(position.number, Why::Tools, None, bytes)?,
            Judged::Interrupted(line) => {
                self.reading.interrupted += 1;
                if let Ok(message) = line.to_message(&[], &mut self.scratch) {
                    self.sink.set_aside(position.number, &message);
                }
                self.residue(position.number, Why::Interrupted, None, bytes)?;
            }
            Judged::Compaction(entries) => self.compaction(position, bytes, &entries)?,
            Judged::Message(line) => self.message(position.number, bytes, &line)?,
            Judged::Malformed(flaw) => self.malformed(position, bytes, &flaw)?,
        }
        Ok(())
    }

    /// The first line that is not blank must be the header. `false` where it
    /// is none and `--salvage` reads it like any other.
    fn first_line(&mut self, number: u64, bytes: &[u8]) -> Result<bool> {
        if let Some(encoding) = foreign_encoding(bytes) {
            let message = format!("the file is {encoding}, not UTF-8; convert it and run again");
            return Err(Error::source(Code::ForeignEncoding, message));
        }
        let parsed = match std::str::from_utf8(bytes) {
            Ok(text) => Meta::parse_first(text.trim()),
            Err(_) => Err(Flaw::NotUtf8),
        };
        let flaw = match parsed {
            Ok(meta) => {
                self.first_header = Some(String::from_utf8_lossy(bytes).trim().to_owned());
                self.meta = Some(meta);
                self.reading.lines.headers = 1;
                return Ok(true);
            }
            Err(flaw) => flaw,
        };
        let Some(defaults) = self.salvage else {
            let message = format!("line {number} is no valid `_meta` header ({flaw})");
            return Err(Error::source(Code::NoHeader, message));
        };
        match salvage::header::from_line(bytes, defaults) {
            Some(meta) => {
                self.salvaged_header(number, meta, "its usable fields were taken");
                self.residue(number, Why::Header, Some(&flaw), bytes)?;
                // It stands before the stretch that a compaction tells again.
                self.sink.settle()?;
                Ok(true)
            }
            None => Ok(false),
        }
    }

    fn salvaged_header(&mut self, number: u64, meta: Meta, how: &str) {
        self.meta = Some(meta);
        self.reading.salvaged = true;
        let message = format!("the header is missing or wrong; {how}");
        self.warn(Code::SalvagedHeader, number, &message);
    }

    fn message(&mut self, number: u64, bytes: &[u8], line: &MessageLine<'_>) -> Result<()> {
        match line.to_message(&[], &mut self.scratch) {
            Ok(message) => {
                self.reading.messages += 1;
                self.reading.lines.messages += 1;
                self.stretch.message_lines += 1;
                self.has_typed_rows |= line.v > 0;
                self.reading.tool_call_markup |=
                    self.markup.find(message.content.as_bytes()).is_some();
                self.sink.message(&message)
            }
            Err(flaw) => {
                self.reading.rejected += 1;
                let message = "the message nests too deep for a journal; kept in the residue";
                self.warn(Code::TooDeep, number, message);
                self.residue(number, Why::TooDeep, Some(&flaw), bytes)
            }
        }
    }

    /// A compaction replaces all messages so far by its own.
    fn compaction(
        &mut self,
        position: Position,
        bytes: &[u8],
        entries: &[MessageLine<'_>],
    ) -> Result<()> {
        self.replace_all(position.number)?;
        self.residue(position.number, Why::Compaction, None, bytes)?;
        self.sink.settle()?;
        self.begin_stretch(position);
        for entry in entries {
            match entry.to_message(&[], &mut self.scratch) {
                Ok(message) => {
                    self.reading.messages += 1;
                    self.has_typed_rows |= entry.v > 0;
                    self.sink.message(&message)?;
                }
                Err(_) => {
                    self.reading.rejected += 1;
                    let message = "a message of the compaction nests too deep for a journal; \
                                   it is kept in the compaction's line in the residue";
                    self.warn(Code::TooDeep, position.number, message);
                }
            }
        }
        Ok(())
    }

    /// All messages before the compaction on this line become residue.
    fn replace_all(&mut self, number: u64) -> Result<()> {
        self.sink.restart()?;
        self.tell_stretch_again(number)?;
        let lines = &mut self.reading.lines;
        lines.residue += self.stretch.message_lines;
        lines.messages -= self.stretch.message_lines;
        self.reading.messages = 0;
        self.reading.compactions += 1;
        Ok(())
    }

    /// The next compaction replaces what comes from this one's line on.
    fn begin_stretch(&mut self, position: Position) {
        self.stretch = Stretch {
            offset: position.offset,
            lines_before: position.number - 1,
            begins_with_compaction: true,
            message_lines: 0,
        };
    }

    /// Gives the stretch before a compaction again, as residue.
    fn tell_stretch_again(&mut self, compaction: u64) -> Result<()> {
        let stretch = self.stretch;
        let mut lines = self.input.lines_again(stretch.offset, stretch.lines_before);
        let mut line = Vec::new();
        let mut is_first = stretch.begins_with_compaction;
        while let Some(position) = lines.next(&mut line)? {
            if position.number >= compaction {
                break;
            }
            let bytes = match line.strip_prefix(BYTE_ORDER_MARK) {
                Some(rest) if position.number == 1 => rest,
                _ => &line,
            };
            let judged = judge(bytes);
            if std::mem::take(&mut is_first) {
                if let Judged::Compaction(entries) = &judged {
                    for entry in entries {
                        if let Ok(message) = entry.to_message(&[], &mut self.scratch) {
                            self.sink.set_aside(position.number, &message);
                        }
                    }
                }
                continue;
            }
            let (why, flaw) = match judged {
                Judged::Blank | Judged::Compaction(_) => continue,
                Judged::Header(_) => (Why::Header, None),
                Judged::Tools => (Why::Tools, None),
                Judged::Interrupted(_) => (Why::Interrupted, None),
                Judged::Malformed(flaw) => (Why::Malformed, Some(flaw)),
                Judged::Message(message) => {
                    // One that nests too deep is replaced like any other.
                    if let Ok(message) = message.to_message(&[], &mut self.scratch) {
                        self.sink.set_aside(position.number, &message);
                    }
                    (Why::Superseded, None)
                }
            };
            self.sink.residue(&Residue {
                line: position.number,
                why,
                error: flaw.map(|flaw| flaw.to_string().into()),
                text: bytes,
            })?;
        }
        Ok(())
    }

    fn malformed(&mut self, position: Position, bytes: &[u8], flaw: &Flaw) -> Result<()> {
        let number = position.number;
        if let Some(defaults) = self.salvage
            && self.meta.is_none()
            && let Some(meta) = salvage::header::from_line(bytes, defaults)
        {
            self.salvaged_header(number, meta, "its usable fields were taken");
            return self.residue(number, Why::Header, Some(flaw), bytes);
        }
        self.reading.rejected += 1;
        let records = salvage::line::records(bytes);
        if self.salvage.is_some() {
            if self.salvaged_records(position, bytes, flaw, &records)? {
                return Ok(());
            }
        } else {
            let would_help = records.iter().any(|record| self.would_help(record));
            self.reading.salvageable += u64::from(would_help);
            self.residue(number, Why::Malformed, Some(flaw), bytes)?;
        }
        let is_torn = !position.is_whole && matches!(flaw, Flaw::Incomplete | Flaw::NotUtf8);
        if is_torn {
            let message = "the last line is cut off; kept in the residue";
            self.warn(Code::TornLine, number, message);
        } else {
            let message =
                format!("no record that the reader accepts ({flaw}); kept in the residue");
            self.warn(Code::MalformedLine, number, &message);
        }
        Ok(())
    }

    /// Whether `--salvage` would take something from a record: a message may
    /// nest too deep for a journal after all.
    fn would_help(&mut self, record: &salvage::line::Record) -> bool {
        let salvage::line::Record::Message(one) = record else {
            return true;
        };
        one.line().is_ok_and(|line| {
            let message = line.to_message(&one.left_out(), &mut self.scratch);
            message.is_ok()
        })
    }

    /// Takes the whole records of a line that stays in the residue. `false` if
    /// there were none.
    fn salvaged_records(
        &mut self,
        position: Position,
        bytes: &[u8],
        flaw: &Flaw,
        records: &[salvage::line::Record],
    ) -> Result<bool> {
        use salvage::line::Record as Salvaged;
        let number = position.number;
        // What a compaction on this line replaces comes before the line itself.
        let of_compaction = |record: &Salvaged| match record {
            Salvaged::Other(text) => matches!(classify(text), Ok(Record::Compaction(_))),
            Salvaged::Message(_) => false,
        };
        let compaction = records.iter().rposition(of_compaction);
        if compaction.is_some() {
            self.replace_all(number)?;
        }
        self.residue(number, Why::Malformed, Some(flaw), bytes)?;
        if compaction.is_some() {
            self.sink.settle()?;
            self.begin_stretch(position);
        }
        let (mut messages, mut others, mut rule) = (0_u64, 0_u64, None);
        for record in records.iter().skip(compaction.unwrap_or(0)) {
            match record {
                Salvaged::Message(one) => {
                    if let (Ok(line), left_out) = (one.line(), one.left_out()) {
                        messages += self.salvaged_message(number, &line, &left_out, &one.rule())?;
                    }
                    rule = rule.or_else(|| Some(one.rule()));
                }
                Salvaged::Other(text) => match classify(text) {
                    Ok(Record::Header(fields)) => {
                        if let Ok(meta) = Meta::parse(&fields) {
                            self.meta = Some(meta);
                            others += 1;
                        }
                    }
                    Ok(Record::Compaction(entries)) => {
                        others += 1;
                        for entry in &entries {
                            messages +=
                                self.salvaged_message(number, entry, &[], "several-records")?;
                        }
                    }
                    _ => {}
                },
            }
        }
        if messages + others == 0 {
            return Ok(false);
        }
        self.reading.salvaged = true;
        let plural = if messages == 1 { "" } else { "s" };
        let rule = rule.unwrap_or_else(|| "several-records".to_owned());
        let and = match others {
            0 => String::new(),
            _ => format!(" and {others} other record(s)"),
        };
        let message = format!(
            "{messages} message{plural}{and} brought back ({rule}); the line is in the residue"
        );
        self.warn(Code::SalvagedLine, number, &message);
        Ok(true)
    }

    fn salvaged_message(
        &mut self,
        number: u64,
        line: &MessageLine<'_>,
        left_out: &[super::line::Field<'_>],
        rule: &str,
    ) -> Result<u64> {
        let Ok(mut message) = line.to_message(left_out, &mut self.scratch) else {
            return Ok(0);
        };
        message.salvaged = Some(salvage::mark(number, rule).into());
        self.reading.messages += 1;
        self.reading.tool_call_markup |= self.markup.find(message.content.as_bytes()).is_some();
        self.sink.message(&message)?;
        Ok(1)
    }

    fn residue(&mut self, line: u64, why: Why, flaw: Option<&Flaw>, text: &[u8]) -> Result<()> {
        self.reading.lines.residue += 1;
        self.sink.residue(&Residue {
            line,
            why,
            error: flaw.map(|flaw| flaw.to_string().into()),
            text,
        })
    }

    fn warn(&mut self, code: Code, line: u64, message: &str) {
        let diagnostic = Diagnostic::at(code, line, message);
        self.reading.diagnostics.push(diagnostic);
    }

    fn finish(mut self) -> Result<Reading> {
        if !self.seen_first {
            let message = match self.reading.lines.total {
                0 => "the file is empty",
                _ => "the file holds blank lines only",
            };
            return Err(Error::source(Code::EmptyFile, message));
        }
        let meta = match (self.meta.take(), self.salvage) {
            (Some(meta), _) => meta,
            (None, Some(defaults)) => {
                self.reading.salvaged = true;
                let message =
                    "there is no header; agent and times come from the file's name and time";
                self.reading
                    .diagnostics
                    .push(Diagnostic::new(Code::SalvagedHeader, message));
                salvage::header::from_defaults(defaults)
            }
            (None, None) => return Err(Error::source(Code::NoHeader, "there is no header")),
        };
        if self.reading.messages == 0 && self.reading.lines.headers == 0 {
            let message = "no header, and no message that could be brought back";
            return Err(Error::source(Code::NoHeader, message));
        }
        let first_counts = self.reading.lines.headers == 1
            && self
                .first_header
                .as_deref()
                .and_then(|text| Meta::parse_first(text).ok())
                .as_ref()
                == Some(&meta);
        let mut reading = self.reading;
        reading.first_header = self.first_header.filter(|_| !first_counts);
        for key in &meta.as_text {
            let message = format!("`{key}` of the header is kept as text");
            reading
                .diagnostics
                .push(Diagnostic::new(Code::ValueAsText, message));
        }
        reading.generation = generation(&meta, self.has_typed_rows);
        reading.unmapped_meta = Some(meta.unmapped).filter(|unmapped| !unmapped.is_empty());
        reading.header = meta.header;
        Ok(reading)
    }
}

/// The generation by what the header has; folders decide between 2 and 3,
/// and the caller knows those (`openhuman-workspace.md` §1).
fn generation(meta: &Meta, has_typed_rows: bool) -> u8 {
    let header = &meta.header;
    let has_any = |fields: &[&Option<String>]| fields.iter().any(|field| field.is_some());
    if has_typed_rows
        || header.prefix_message_count.is_some()
        || has_any(&[&header.session_id, &header.parent_session_id])
    {
        6
    } else if header.version >= 1 {
        5
    } else if has_any(&[
        &header.agent_id,
        &header.agent_type,
        &header.provider,
        &header.model,
        &header.task_id,
    ]) {
        4
    } else {
        3
    }
}

fn is_blank(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok_and(|text| text.trim().is_empty())
}

/// Names the encoding where the first bytes are those of another one.
fn foreign_encoding(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0xFF, 0xFE, 0, 0, ..] | [0, 0, 0xFE, 0xFF, ..] => Some("UTF-32"),
        [0xFF, 0xFE, ..] | [0xFE, 0xFF, ..] | [b'{', 0, b'"', 0, ..] | [0, b'{', 0, b'"', ..] => {
            Some("UTF-16")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::interrupt::Interrupt;
    use crate::model::message::Message;

    /// What a store would hold in the end.
    #[derive(Default)]
    struct Taken {
        contents: Vec<String>,
        residue: Vec<(u64, &'static str)>,
        settled: usize,
    }

    impl Sink for Taken {
        fn message(&mut self, message: &Message<'_>) -> Result<()> {
            self.contents.push(message.content.to_string());
            Ok(())
        }
        fn residue(&mut self, residue: &Residue<'_>) -> Result<()> {
            self.residue.push((residue.line, residue.why.as_str()));
            Ok(())
        }
        fn restart(&mut self) -> Result<()> {
            self.contents.clear();
            self.residue.truncate(self.settled);
            Ok(())
        }
        fn settle(&mut self) -> Result<()> {
            self.settled = self.residue.len();
            Ok(())
        }
    }

    fn read_text(text: &str, salvage: bool) -> (Reading, Taken) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, text).unwrap();
        let interrupt = Interrupt::default();
        let input = Input::open(&path, &interrupt, &|_| ()).unwrap();
        let defaults = salvage.then(Defaults::default);
        let mut taken = Taken::default();
        let (reading, _) = read(&input, defaults.as_ref(), &mut taken).unwrap();
        assert!(reading.lines.add_up());
        assert_eq!(reading.lines.residue, taken.residue.len() as u64);
        (reading, taken)
    }

    #[test]
    fn a_compaction_leaves_a_salvaged_header_in_the_residue() {
        let text = concat!(
            "{\"_meta\":{\"agent\":\"a\"}}\n",
            "{\"role\":\"user\",\"content\":\"old\"}\n",
            "{\"kind\":\"compaction\",\"replacement\":[{\"role\":\"user\",\"content\":\"new\"}]}\n",
        );
        let (_, taken) = read_text(text, true);
        assert_eq!(taken.contents, ["\"new\""]);
        let residue = [(1, "header"), (2, "superseded"), (3, "compaction")];
        assert_eq!(taken.residue, residue);
    }

    #[test]
    fn a_line_that_nests_too_deep_when_salvaged_is_not_salvageable() {
        let header = r#"{"_meta":[0,"a",null,null,"native",null,null,"","",0,null,0,0,0,0,null,null,null,null]}"#;
        let line = |levels: usize| {
            let deep = "[".repeat(levels) + &"]".repeat(levels);
            format!(
                r#"{{"role":"assistant","content":null,"provider":"p","model":"m","ts":"t","usage":[0,0,0,0,0],"tool_calls":[["a","b","c",{deep}]]}}"#
            )
        };
        for (levels, expected) in [(121, 1), (122, 0)] {
            let text = format!("{header}\n{}\n", line(levels));
            let (plain, _) = read_text(&text, false);
            let (_, salvaged) = read_text(&text, true);
            assert_eq!(plain.salvageable, expected, "{levels}");
            assert_eq!(salvaged.contents.len() as u64, expected, "{levels}");
        }
    }
}
