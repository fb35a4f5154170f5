//! Streams: how a session's are written, how any is read back.
//!
//! `tinyagents-store.md`, Journals. A [`Draft`] takes what a source gives and
//! writes it as it comes, each text as it stood in the source; nothing is held
//! but a buffer per file.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use super::hashing::{Buffers, HashedFile, Mark};
use super::name::StoreName;
use super::stream;
pub use super::stream::{Record, StreamReader, sha256_of_file};
use crate::error::{Error, Result};
use crate::fs::{Dir, Temp};
use crate::model::diagnostic::Code;
use crate::model::key::Sha256;
use crate::model::message::{Json, Message, Residue, Sink, Why};

/// A session's messages and residue while they are written. Dropped, it leaves
/// nothing behind.
#[derive(Debug)]
pub struct Draft {
    dir: Arc<Dir>,
    buffers: Buffers,
    /// `},"created_at_ms":MS}` and a newline: the end of every line.
    end: String,
    journal: Stream,
    /// Made when the first residue comes: most sessions have none.
    residue: Option<Stream>,
    settled: Settled,
}

/// One stream being written.
#[derive(Debug)]
struct Stream {
    temp: Temp,
    file: HashedFile,
    /// The file that it is to become, for messages.
    path: PathBuf,
    records: u64,
}

/// How much of the residue stands before the last compaction.
#[derive(Debug, Default)]
struct Settled {
    mark: Mark,
    records: u64,
}

/// A session's streams, written whole but not yet in place. Dropped, it leaves
/// nothing behind.
#[derive(Debug)]
pub struct Written {
    pub(super) journal: Temp,
    pub(super) residue: Option<Temp>,
    /// Messages in the journal.
    pub messages: u64,
    /// Records in the residue stream.
    pub residue_records: u64,
    /// The journal's bytes.
    pub journal_sha256: Sha256,
    /// The residue stream's bytes, if there is one.
    pub residue_sha256: Option<Sha256>,
    /// Length of both together.
    pub bytes: u64,
}

impl Draft {
    pub(super) fn new(
        dir: &Arc<Dir>,
        buffers: &Buffers,
        name: &StoreName,
        created_at_ms: u64,
    ) -> Result<Self> {
        let path = dir.path().join(name.messages().file_name());
        Ok(Self {
            dir: Arc::clone(dir),
            buffers: buffers.clone(),
            end: format!("}},\"created_at_ms\":{created_at_ms}}}\n"),
            journal: Stream::new(dir, buffers, path)?,
            residue: None,
            settled: Settled::default(),
        })
    }

    /// Messages so far.
    pub fn messages(&self) -> u64 {
        self.journal.records
    }

    /// Keeps a message that the source no longer holds: `record` is the JSON
    /// text of the old stream's value; where that nests too deep to lie in
    /// another one, its text is kept. Comes after all of the source's lines.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn dropped(&mut self, record: &str) -> Result<()> {
        if !stream::accepts_inside(record) {
            let error = format!("{}: kept as text", Code::TooDeep);
            return self.dropped_line(record.as_bytes(), &error);
        }
        self.residue_record(|file| {
            write!(
                file,
                r#""line":null,"why":"{}","record":"#,
                Why::Dropped.as_str()
            )?;
            json(file, record)
        })
    }

    /// Keeps a line of an old stream that is no record, as it stood.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn dropped_line(&mut self, line: &[u8], error: &str) -> Result<()> {
        self.residue_record(|file| {
            write!(file, r#""line":null,"why":"{}""#, Why::Dropped.as_str())?;
            text_members(file, Some(error), line)
        })
    }

    /// Keeps a record of an old residue stream as it is: `value` is its JSON
    /// text, an object.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn kept(&mut self, value: &str) -> Result<()> {
        let members = value.trim().strip_prefix('{');
        let members = members.and_then(|members| members.strip_suffix('}'));
        self.residue_record(|file| json(file, members.unwrap_or_default()))
    }

    /// Writes what is left.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn finish(self) -> Result<Written> {
        let messages = self.journal.records;
        let (journal, journal_sha256, mut bytes) = self.journal.finish()?;
        let mut written = Written {
            journal,
            residue: None,
            messages,
            residue_records: 0,
            journal_sha256,
            residue_sha256: None,
            bytes,
        };
        // A compaction may have taken back all that there was.
        if let Some(residue) = self.residue.filter(|residue| residue.records > 0) {
            written.residue_records = residue.records;
            let (temp, sha256, more) = residue.finish()?;
            bytes += more;
            written.residue = Some(temp);
            written.residue_sha256 = Some(sha256);
        }
        written.bytes = bytes;
        Ok(written)
    }

    fn residue_record(
        &mut self,
        value: impl FnOnce(&mut HashedFile) -> io::Result<()>,
    ) -> Result<()> {
        let residue = match &mut self.residue {
            Some(residue) => residue,
            none => {
                let path = self.journal.path.clone();
                none.insert(Stream::new(&self.dir, &self.buffers, path)?)
            }
        };
        residue.record(&self.end, value)
    }
}

impl Sink for Draft {
    fn message(&mut self, message: &Message<'_>) -> Result<()> {
        self.journal
            .record(&self.end, |file| message_members(file, message))
    }

    fn residue(&mut self, residue: &Residue<'_>) -> Result<()> {
        self.residue_record(|file| residue_members(file, residue))
    }

    fn restart(&mut self) -> Result<()> {
        self.journal.cut(&Mark::default(), 0)?;
        match &mut self.residue {
            Some(residue) => residue.cut(&self.settled.mark, self.settled.records),
            None => Ok(()),
        }
    }

    fn settle(&mut self) -> Result<()> {
        if let Some(residue) = &mut self.residue {
            self.settled = Settled {
                mark: residue.file.mark(),
                records: residue.records,
            };
        }
        Ok(())
    }
}

impl Stream {
    fn new(dir: &Arc<Dir>, buffers: &Buffers, path: PathBuf) -> Result<Self> {
        let (temp, file) = Temp::new(dir)?;
        Ok(Self {
            temp,
            file: HashedFile::new(file, buffers),
            path,
            records: 0,
        })
    }

    /// Writes one record; `value` writes what stands between the braces.
    #[inline]
    fn record(
        &mut self,
        end: &str,
        value: impl FnOnce(&mut HashedFile) -> io::Result<()>,
    ) -> Result<()> {
        let file = &mut self.file;
        write!(file, r#"{{"offset":{},"value":{{"#, self.records)
            .and_then(|()| value(file))
            .and_then(|()| file.write_all(end.as_bytes()))
            .map_err(Error::store_io("write", &self.path))?;
        self.records += 1;
        Ok(())
    }

    fn cut(&mut self, mark: &Mark, records: u64) -> Result<()> {
        self.records = records;
        self.file
            .cut(mark)
            .map_err(Error::store_io("write", &self.path))
    }

    fn finish(self) -> Result<(Temp, Sha256, u64)> {
        let (sha256, bytes) = self
            .file
            .finish()
            .map_err(Error::store_io("write", &self.path))?;
        Ok((self.temp, sha256, bytes))
    }
}

/// A record's line up to the value of `created_at_ms`: what `verify` compares
/// a line with. `members` writes what stands between the value's braces.
pub(crate) fn line_start(
    line: &mut Vec<u8>,
    offset: u64,
    members: impl FnOnce(&mut Vec<u8>) -> io::Result<()>,
) -> io::Result<()> {
    line.clear();
    write!(line, r#"{{"offset":{offset},"value":{{"#)?;
    members(line)?;
    line.write_all(b"},\"created_at_ms\":")
}

/// The members of a message's value.
#[inline]
pub(crate) fn message_members<W: Write>(file: &mut W, message: &Message<'_>) -> io::Result<()> {
    if let Some(id) = &message.id {
        member(file, "\"id\":", id)?;
        file.write_all(b",")?;
    }
    member(file, "\"role\":", &message.role)?;
    member(file, ",\"content\":", &message.content)?;
    if let Some(extra) = &message.extra_metadata {
        member(file, ",\"extra_metadata\":", extra)?;
    }
    match (&message.unmapped, &message.salvaged) {
        (None, None) => return Ok(()),
        (Some(unmapped), None) => {
            member(file, ",\"session_import\":{\"unmapped\":", unmapped)?;
        }
        (None, Some(salvaged)) => {
            member(file, ",\"session_import\":{\"salvaged\":", salvaged)?;
        }
        (Some(unmapped), Some(salvaged)) => {
            member(file, ",\"session_import\":{\"unmapped\":", unmapped)?;
            member(file, ",\"salvaged\":", salvaged)?;
        }
    }
    file.write_all(b"}")
}

/// The members of a residue record's value.
#[inline]
pub(crate) fn residue_members<W: Write>(file: &mut W, residue: &Residue<'_>) -> io::Result<()> {
    write!(
        file,
        r#""line":{},"why":"{}""#,
        residue.line,
        residue.why.as_str()
    )?;
    text_members(file, residue.error.as_deref(), residue.text)
}

/// A line as it stood, and what is wrong with it.
fn text_members<W: Write>(file: &mut W, error: Option<&str>, text: &[u8]) -> io::Result<()> {
    if let Some(error) = error {
        file.write_all(b",\"error\":")?;
        serde_json::to_writer(&mut *file, error)?;
    }
    if let Ok(text) = std::str::from_utf8(text) {
        file.write_all(b",\"text\":")?;
        serde_json::to_writer(file, text)?;
        return Ok(());
    }
    file.write_all(b",\"base64\":\"")?;
    let engine = &base64::engine::general_purpose::STANDARD;
    let mut encoder = base64::write::EncoderWriter::new(&mut *file, engine);
    encoder.write_all(text)?;
    encoder.finish()?;
    drop(encoder);
    file.write_all(b"\"")
}

#[inline]
fn member<W: Write>(file: &mut W, name: &str, value: &Json<'_>) -> io::Result<()> {
    file.write_all(name.as_bytes())?;
    json(file, value)
}

/// Writes a JSON text as it stands. A newline can only be white space between
/// two tokens of it, but would end the record: it becomes a space.
#[inline]
fn json<W: Write>(file: &mut W, text: &str) -> io::Result<()> {
    let mut rest = text.as_bytes();
    while let Some(end) = memchr::memchr(b'\n', rest) {
        let (line, newline_on) = rest.split_at(end);
        file.write_all(line)?;
        file.write_all(b" ")?;
        rest = newline_on.get(1..).unwrap_or_default();
    }
    file.write_all(rest)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::{Place, message, name, residue};
    use super::*;

    /// What the draft's temporary files hold.
    fn texts(written: &Written) -> (String, Option<String>) {
        let read = |temp: &Temp| std::fs::read_to_string(temp.path()).unwrap();
        (read(&written.journal), written.residue.as_ref().map(read))
    }

    fn written(steps: impl FnOnce(&mut Draft) -> Result<()>) -> (Written, String, Option<String>) {
        let place = Place::new();
        let writer = place.writer();
        let mut draft = writer.draft(&name("1_a")).unwrap();
        steps(&mut draft).unwrap();
        let written = draft.finish().unwrap();
        let (journal, residue) = texts(&written);
        assert_eq!(written.journal_sha256, Sha256::of(journal.as_bytes()));
        let of_residue = residue.as_ref().map(|text| Sha256::of(text.as_bytes()));
        assert_eq!(written.residue_sha256, of_residue);
        let length = journal.len() + residue.as_ref().map_or(0, String::len);
        assert_eq!(written.bytes, length as u64);
        (written, journal, residue)
    }

    #[test]
    fn a_message_is_written_as_it_stood() {
        let full = Message {
            id: Some(r#""i\u0031""#.into()),
            role: "\"user\"".into(),
            content: r#""a\/b""#.into(),
            extra_metadata: Some("{\"n\":1.0,\n \"big\":12345678901234567890123}".into()),
            unmapped: Some("{\"x\":[]}".into()),
            salvaged: Some("{\"line\":3}".into()),
        };
        let salvaged = Message {
            salvaged: Some("{}".into()),
            ..message("\"u\"", "\"\"")
        };
        let (written, journal, residue) = written(|draft| {
            draft.message(&full)?;
            draft.message(&salvaged)?;
            draft.message(&message("\"u\"", "\"\""))
        });
        assert_eq!(
            journal,
            concat!(
                r#"{"offset":0,"value":{"id":"i\u0031","role":"user","content":"a\/b","#,
                r#""extra_metadata":{"n":1.0,  "big":12345678901234567890123},"#,
                r#""session_import":{"unmapped":{"x":[]},"salvaged":{"line":3}}},"#,
                r#""created_at_ms":1767225600000}"#,
                "\n",
                r#"{"offset":1,"value":{"role":"u","content":"","session_import":{"salvaged":{}}},"#,
                r#""created_at_ms":1767225600000}"#,
                "\n",
                r#"{"offset":2,"value":{"role":"u","content":""},"created_at_ms":1767225600000}"#,
                "\n",
            )
        );
        assert_eq!(residue, None);
        assert_eq!((written.messages, written.residue_records), (3, 0));
    }

    #[test]
    fn residue_keeps_text_and_bytes() {
        let (written, journal, text) = written(|draft| {
            draft.residue(&residue(2, Why::Header, "{\"_meta\":\t\"é\"} ".as_bytes()))?;
            draft.residue(&Residue {
                error: Some("code: \"words\"".into()),
                ..residue(3, Why::Malformed, b"\xff\x00")
            })?;
            draft.dropped("{\"role\":\"user\",\n\"content\":\"x\"}")
        });
        assert_eq!(
            journal, "",
            "a session without messages has an empty stream"
        );
        assert_eq!(written.residue_records, 3);
        assert_eq!(
            text.unwrap(),
            concat!(
                r#"{"offset":0,"value":{"line":2,"why":"header","text":"{\"_meta\":\t\"é\"} "},"#,
                r#""created_at_ms":1767225600000}"#,
                "\n",
                r#"{"offset":1,"value":{"line":3,"why":"malformed","error":"code: \"words\"","#,
                r#""base64":"/wA="},"created_at_ms":1767225600000}"#,
                "\n",
                r#"{"offset":2,"value":{"line":null,"why":"dropped","#,
                r#""record":{"role":"user", "content":"x"}},"created_at_ms":1767225600000}"#,
                "\n",
            )
        );
    }

    #[test]
    fn a_compaction_that_takes_back_all_residue_leaves_no_stream() {
        let (written, _, residue) = written(|draft| {
            draft.message(&message("\"u\"", "\"\""))?;
            draft.residue(&residue(1, Why::Interrupted, b"{}"))?;
            draft.restart()
        });
        assert_eq!(residue, None);
        assert_eq!((written.messages, written.residue_records), (0, 0));
    }

    #[test]
    fn a_draft_that_is_dropped_leaves_nothing_behind() {
        let place = Place::new();
        let writer = place.writer();
        let mut draft = writer.draft(&name("1_a")).unwrap();
        draft.residue(&residue(1, Why::Malformed, b"x")).unwrap();
        assert_eq!(writer.store().leftovers().unwrap().len(), 2);
        drop(draft);
        assert!(writer.store().leftovers().unwrap().is_empty());
        drop(writer.draft(&name("1_a")).unwrap().finish().unwrap());
        assert!(writer.store().leftovers().unwrap().is_empty());
    }

    #[derive(Debug, Clone)]
    enum Step {
        Message(String, String),
        Residue(Vec<u8>),
        Settle,
        Restart,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => any::<(String, String)>().prop_map(|(role, content)| Step::Message(role, content)),
            1 => (0..300_000_usize).prop_map(|length| Step::Message("long".into(), "é".repeat(length / 2))),
            3 => any::<Vec<u8>>().prop_map(Step::Residue),
            1 => Just(Step::Settle),
            1 => Just(Step::Restart),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        /// What is written is read back, whatever is taken back in between.
        #[test]
        fn what_a_draft_writes_the_reader_reads(steps in proptest::collection::vec(step(), 0..40)) {
            let (mut messages, mut texts, mut settled) = (Vec::new(), Vec::new(), 0);
            let place = Place::new();
            let writer = place.writer();
            let mut draft = writer.draft(&name("1_a")).unwrap();
            for (line, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Message(role, content) => {
                        let json = |text: &str| serde_json::to_string(text).unwrap();
                        draft.message(&message(&json(&role), &json(&content))).unwrap();
                        messages.push((role, content));
                    }
                    Step::Residue(text) => {
                        draft.residue(&residue(line as u64, Why::Malformed, &text)).unwrap();
                        texts.push(text);
                    }
                    Step::Settle => {
                        draft.settle().unwrap();
                        settled = texts.len();
                    }
                    Step::Restart => {
                        draft.restart().unwrap();
                        messages.clear();
                        texts.truncate(settled);
                    }
                }
            }
            let written = draft.finish().unwrap();
            prop_assert_eq!(written.messages, messages.len() as u64);
            prop_assert_eq!(written.residue_records, texts.len() as u64);

            let path = written.journal.path();
            let (hash, _) = sha256_of_file(&path).unwrap().unwrap();
            prop_assert_eq!(hash, written.journal_sha256);
            let mut reader = StreamReader::open(&path).unwrap().unwrap();
            for _ in 0..2 {
                for (offset, (role, content)) in messages.iter().enumerate() {
                    let record = reader.next().unwrap().unwrap();
                    prop_assert_eq!(record.offset, offset as u64);
                    prop_assert_eq!(record.created_at_ms, 1_767_225_600_000);
                    prop_assert_eq!(record.role.as_deref(), Some(role.as_str()));
                    prop_assert_eq!(record.content.as_deref(), Some(content.as_str()));
                    prop_assert_eq!(record.id, None);
                }
                prop_assert_eq!(reader.next().unwrap(), None);
                reader.rewind().unwrap();
            }

            prop_assert_eq!(written.residue.is_some(), !texts.is_empty());
            let Some(residue) = &written.residue else { return Ok(()) };
            let (hash, _) = sha256_of_file(&residue.path()).unwrap().unwrap();
            prop_assert_eq!(Some(hash), written.residue_sha256);
            let mut reader = StreamReader::open(&residue.path()).unwrap().unwrap();
            for text in &texts {
                let record = reader.next().unwrap().unwrap();
                let value: serde_json::Value = serde_json::from_str(record.value()).unwrap();
                let back = match value["text"].as_str() {
                    Some(text) => text.as_bytes().to_vec(),
                    None => {
                        use base64::Engine as _;
                        let base64 = value["base64"].as_str().unwrap();
                        base64::engine::general_purpose::STANDARD.decode(base64).unwrap()
                    }
                };
                prop_assert_eq!(&back, text);
            }
            prop_assert_eq!(reader.next().unwrap(), None);
        }
    }
}
