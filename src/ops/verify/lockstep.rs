//! A source held against its record while it is read: the reader's messages
//! against the stream, its residue against the residue stream, one record in
//! memory of each.
//!
//! A record that is written as an import writes it is told from its bytes;
//! only another one is parsed and compared as a value.

use super::difference::{self, Field};
use crate::error::{Error, Result};
use crate::model::interrupt::Interrupt;
use crate::model::message::{Message, Residue, Sink, Why};
use crate::ops::compare::is_same;
use crate::report::Difference;
use crate::store::Layout;
use crate::store::journal::{self, Record, StreamReader};
use crate::store::name::StoreName;
use crate::store::stream::{Damaged, Place};

/// Fields of a message's record, and of a residue record, that may be named.
const KNOWN: [&str; 9] = [
    "id",
    "role",
    "content",
    "extra_metadata",
    "session_import",
    "line",
    "why",
    "text",
    "base64",
];

/// How many records are read between two looks at the interrupt.
const BETWEEN_LOOKS: u64 = 4096;

/// Both streams of a session.
pub(super) struct Lockstep {
    /// `None` where there is none.
    pub(super) messages: Option<Followed>,
    /// Likewise.
    pub(super) residue: Option<Followed>,
    /// What the source gave so far.
    pub(super) given: Given,
    settled: Settled,
    line: Vec<u8>,
}

/// Numbers of what the source gave.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Given {
    pub(super) messages: u64,
    pub(super) residue: u64,
}

#[derive(Default)]
struct Settled {
    residue: u64,
    state: Option<(Place, Seen)>,
}

/// A stream and how far it was followed.
pub(super) struct Followed {
    reader: StreamReader,
    pub(super) seen: Seen,
    /// How many differing records are kept to be shown.
    shown: usize,
}

/// What was seen of a stream.
#[derive(Debug, Clone, Default)]
pub(super) struct Seen {
    /// Records read.
    pub(super) records: u64,
    /// The line that the strict reader refuses.
    pub(super) refused: Option<Damaged>,
    /// Number, from 1, of the first record whose offset is not its index.
    pub(super) gap: Option<u64>,
    /// Number, from 1, of the first record that differs from what is given.
    pub(super) differs: Option<u64>,
    /// Names of the fields in which that one differs.
    pub(super) fields: String,
    /// How many records differ, of those that are on both sides.
    pub(super) differing: u64,
    /// Leading records that say the same: role, content, id where both have one.
    pub(super) agreed: u64,
    /// The stream ended before the source.
    pub(super) ended: bool,
    /// Records that hold messages which the source no longer has.
    pub(super) dropped: u64,
    /// Records behind the source's end that are no such ones.
    pub(super) behind: u64,
    pub(super) differences: Vec<Difference>,
}

impl Lockstep {
    /// Opens both streams of a session; up to `shown` differing records of
    /// each are kept.
    pub(super) fn open(layout: &Layout, name: &StoreName, shown: usize) -> Result<Self> {
        let open = |stream| {
            let reader = StreamReader::open(&layout.stream_file(&stream))?;
            Ok::<_, Error>(reader.map(|reader| Followed {
                reader,
                seen: Seen::default(),
                shown,
            }))
        };
        Ok(Self {
            messages: open(name.messages())?,
            residue: open(name.residue())?,
            given: Given::default(),
            settled: Settled::default(),
            line: Vec::new(),
        })
    }

    /// Reads what is left of both streams: what their source does not give.
    pub(super) fn finish(&mut self, interrupt: &Interrupt) -> Result<()> {
        for stream in [&mut self.messages, &mut self.residue]
            .into_iter()
            .flatten()
        {
            stream.rest(interrupt)?;
        }
        Ok(())
    }
}

impl Followed {
    /// The next record against what is given: `differing` tells the fields in
    /// which they differ, `is_alike` whether they say the same.
    fn step(
        &mut self,
        line: &[u8],
        place: &str,
        differing: impl FnOnce(&Record<'_>) -> Vec<Field>,
        is_alike: impl FnOnce(&Record<'_>) -> bool,
    ) {
        let seen = &mut self.seen;
        if seen.ended || seen.refused.is_some() {
            return;
        }
        let record = match self.reader.next() {
            Ok(Some(record)) => record,
            Ok(None) => return seen.ended = true,
            Err(damaged) => return seen.refused = Some(damaged),
        };
        seen.note(&record);
        let is_written_alike = record.line().as_bytes().starts_with(line);
        let fields = match is_written_alike {
            true => Vec::new(),
            false => differing(&record),
        };
        let all_agreed = seen.agreed + 1 == seen.records;
        if all_agreed && (fields.is_empty() || is_alike(&record)) {
            seen.agreed += 1;
        }
        if fields.is_empty() {
            return;
        }
        // The source goes on where the stream holds what it once had.
        seen.dropped += u64::from(is_dropped(&record));
        seen.differing += 1;
        if seen.differs.is_none() {
            seen.differs = Some(seen.records);
            seen.fields = difference::names(&fields, &KNOWN);
        }
        if seen.differing <= self.shown as u64 {
            let place = format!("{place} {}", seen.records);
            let shown = fields.into_iter().map(|field| field.shown(place.clone()));
            seen.differences.extend(shown);
        }
    }

    fn rest(&mut self, interrupt: &Interrupt) -> Result<()> {
        let seen = &mut self.seen;
        while !seen.ended && seen.refused.is_none() {
            match self.reader.next() {
                Ok(Some(record)) => {
                    seen.note(&record);
                    match is_dropped(&record) {
                        true => seen.dropped += 1,
                        false => seen.behind += 1,
                    }
                }
                Ok(None) => break,
                Err(damaged) => seen.refused = Some(damaged),
            }
            if seen.records.is_multiple_of(BETWEEN_LOOKS) && interrupt.is_set() {
                return Err(Error::Interrupted);
            }
        }
        Ok(())
    }

    fn start_again(&mut self, state: Option<&(Place, Seen)>) -> Result<()> {
        match state {
            Some((place, seen)) => {
                self.seen = seen.clone();
                self.reader.go_back(*place)
            }
            None => {
                self.seen = Seen::default();
                self.reader.rewind()
            }
        }
    }
}

impl Seen {
    fn note(&mut self, record: &Record<'_>) {
        if record.offset != self.records && self.gap.is_none() {
            self.gap = Some(self.records + 1);
        }
        self.records += 1;
    }
}

fn is_dropped(record: &Record<'_>) -> bool {
    #[derive(serde::Deserialize)]
    struct Held {
        line: Option<u64>,
        why: String,
    }
    // Most records are messages, without any of this.
    record.role.is_none()
        && serde_json::from_str::<Held>(record.value())
            .is_ok_and(|held| held.line.is_none() && held.why == Why::Dropped.as_str())
}

impl Sink for Lockstep {
    fn message(&mut self, message: &Message<'_>) -> Result<()> {
        let offset = self.given.messages;
        self.given.messages += 1;
        if let Some(stream) = &mut self.messages {
            let members = |line: &mut Vec<u8>| journal::message_members(line, message);
            journal::line_start(&mut self.line, offset, members).map_err(unwritable)?;
            let line = &self.line;
            let differing =
                |record: &Record<'_>| difference::of_texts(record.value(), value_in(line));
            let is_alike = |record: &Record<'_>| is_same(record, message);
            stream.step(line, "message", differing, is_alike);
        }
        Ok(())
    }

    fn residue(&mut self, residue: &Residue<'_>) -> Result<()> {
        let offset = self.given.residue;
        self.given.residue += 1;
        if let Some(stream) = &mut self.residue {
            let members = |line: &mut Vec<u8>| journal::residue_members(line, residue);
            journal::line_start(&mut self.line, offset, members).map_err(unwritable)?;
            let differing = |record: &Record<'_>| difference::of_residue(record.value(), residue);
            stream.step(&self.line, "residue record", differing, |_| false);
        }
        Ok(())
    }

    fn restart(&mut self) -> Result<()> {
        self.given = Given {
            messages: 0,
            residue: self.settled.residue,
        };
        if let Some(stream) = &mut self.messages {
            stream.start_again(None)?;
        }
        match &mut self.residue {
            Some(stream) => stream.start_again(self.settled.state.as_ref()),
            None => Ok(()),
        }
    }

    fn settle(&mut self) -> Result<()> {
        self.settled.residue = self.given.residue;
        if let Some(stream) = &self.residue {
            self.settled.state = Some((stream.reader.place(), stream.seen.clone()));
        }
        Ok(())
    }
}

/// The value in the beginning of a line ([`journal::line_start`]).
fn value_in(line: &[u8]) -> &str {
    const BEFORE: &[u8] = b"\"value\":";
    const BEHIND: &[u8] = b",\"created_at_ms\":";
    let start = memchr::memmem::find(line, BEFORE).map(|at| at + BEFORE.len());
    let value = start.and_then(|start| line.get(start..)?.strip_suffix(BEHIND));
    value
        .and_then(|value| std::str::from_utf8(value).ok())
        .unwrap_or("null")
}

/// Writing to memory does not fail, but for a value that is no JSON.
fn unwritable(error: std::io::Error) -> Error {
    Error::Usage(format!(
        "a message of the source cannot be compared: {error}"
    ))
}
