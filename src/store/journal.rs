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
pub use super::stream::{Record, StreamReader, sha256_of_file};
use crate::error::{Error, Result};
use crate::fs::{Dir, Temp};
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
    /// text of the old stream's value. Comes after all of the source's lines.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn dropped(&mut self, record: &str) -> Result<()> {
        self.residue_record(|file| {
            write!(
                file,
                r#""line":null,"why":"{}","record":"#,
                Why::Dropped.as_str()
            )?;
            json(file, record)
        })
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
    if let Some(error) = &residue.error {
        file.write_all(b",\"error\":")?;
        serde_json::to_writer(&mut *file, error.as_ref())?;
    }
    if let Ok(text) = std::str::from_utf8(residue.text) {
        file.write_all(b",\"text\":")?;
        serde_json::to_writer(file, text)?;
        return Ok(());
    }
    file.write_all(b",\"base64\":\"")?;
    let engine = &base64::engine::general_purpose::STANDARD;
    let mut encoder = base64::write::EncoderWriter::new(&mut *file, engine);
    encoder.write_all(residue.text)?;
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
