//! A session's source held against the stream that the store has of it, while
//! the source is read (`behaviour.md`, The live application).
//!
//! Neither is held in memory. Only from the first message on that differs are
//! digests kept, to find the messages that the source no longer has.
//!
//! Words, role and content, decide how the two stand. What may be thrown away
//! they do not decide: a record that has more beside them than the source gives
//! is not in the source.

mod messages;

use std::borrow::Cow;
use std::collections::HashSet;
use std::path::Path;

use self::messages::{Beside, Messages, has_more, known_by, words};
use crate::error::Result;
use crate::model::key::Sha256;
use crate::model::message::{Message, Residue, Sink};
use crate::plan::fingerprint::value_of;
use crate::store::journal::{self, Record, StreamReader};
use crate::store::stream::Damaged;

/// How the store's messages stand to the source's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Relation {
    /// The store's are the source's, or the first of them.
    StoreIsFirst,
    /// The source's are the first of the store's.
    StoreIsAhead,
    /// Neither.
    Diverged,
    /// The strict reader refuses the stream.
    Damaged(String),
}

/// Something in the store's stream that the source does not have.
#[derive(Debug)]
pub(crate) enum Gone<'a> {
    /// A record's value.
    Record(&'a str),
    /// A line, from 1, that is no record; so nobody can say what it was.
    Damaged(u64, &'a [u8]),
}

/// Compares while the source's messages come in.
pub(crate) struct Compare {
    stream: StreamReader,
    /// Messages in which both agree, from the first on.
    agreed: u64,
    state: State,
    /// Numbers, from 1, of agreeing messages whose records have more beside
    /// the words than the source gives.
    poorer: Vec<u64>,
    /// The source's messages from the first on that differs.
    differing: Messages,
    /// Messages that are in the source still, but none of its messages, each
    /// with the line of the source that it is in.
    set_aside: Vec<(u64, Sha256, Beside)>,
    /// A damaged line that is what the source gives there: the beginning of
    /// it, or as long as it and much alike.
    known: Option<u64>,
    /// Lines of the source that are residue, and the digests of their texts.
    residue: Vec<(u64, Sha256)>,
    settled: usize,
    /// When the stream's records were written, as far as they were read.
    times: Times,
}

/// The times of a stream's records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Times {
    None,
    One(u64),
    Several,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Agreeing,
    StoreEnded,
    Diverged,
    Damaged(String),
}

impl Compare {
    /// Opens a stream to compare with; `None` where there is none.
    pub(crate) fn open(stream: &Path) -> Result<Option<Self>> {
        let stream = StreamReader::open(stream)?;
        Ok(stream.map(|stream| Self {
            stream,
            agreed: 0,
            state: State::Agreeing,
            poorer: Vec::new(),
            differing: Messages::default(),
            set_aside: Vec::new(),
            known: None,
            residue: Vec::new(),
            settled: 0,
            times: Times::None,
        }))
    }

    /// The time at which all of the stream's records were written, in
    /// milliseconds since 1970, if that is one and the stream was read to its
    /// end. An import has one time; the application appends message by message.
    pub(crate) fn time(&self) -> Option<u64> {
        match (&self.state, self.times) {
            (State::Agreeing | State::StoreEnded, Times::One(ms)) => Some(ms),
            _ => None,
        }
    }

    /// The lines of the source that are residue, and the digests of their texts.
    pub(crate) fn take_residue(&mut self) -> Vec<(u64, Sha256)> {
        std::mem::take(&mut self.residue)
    }

    /// How the two stand, now that the source is read.
    pub(crate) fn relation(&mut self) -> Relation {
        if self.state == State::Agreeing {
            match self.stream.next() {
                Ok(None) => self.state = State::StoreEnded,
                Ok(Some(_)) => return self.rest_is_sound(Relation::StoreIsAhead),
                Err(damaged) => self.state = State::Damaged(describe(&damaged)),
            }
        }
        match &self.state {
            State::Agreeing | State::StoreEnded => Relation::StoreIsFirst,
            State::Diverged => self.rest_is_sound(Relation::Diverged),
            State::Damaged(reason) => Relation::Damaged(reason.clone()),
        }
    }

    /// The strict reader reads a stream to its end or refuses it whole.
    fn rest_is_sound(&mut self, relation: Relation) -> Relation {
        loop {
            match self.stream.next() {
                Ok(None) => return relation,
                Ok(Some(_)) => {}
                Err(damaged) => return Relation::Damaged(describe(&damaged)),
            }
        }
    }

    /// What the store's stream has and the source has not, in order. `known`
    /// are lines of the source that the store's residue has: what they say is
    /// not what the stream says.
    ///
    /// # Errors
    /// The stream cannot be read; what `each` could not do.
    pub(crate) fn dropped(
        mut self,
        known: &HashSet<u64>,
        mut each: impl FnMut(Gone<'_>) -> Result<()>,
    ) -> Result<()> {
        self.stream.rewind()?;
        for (line, words, beside) in self.set_aside {
            if !known.contains(&line) {
                self.differing.add(words, beside);
            }
        }
        let mut poorer = self.poorer.into_iter().peekable();
        let mut index = 0;
        loop {
            let record = match self.stream.next() {
                Ok(Some(record)) => record,
                Ok(None) => return Ok(()),
                // What is no file holds nothing; a disk that fails does.
                Err(damaged) if !damaged.is_of_line() => return self.stream.check(damaged),
                Err(damaged) => {
                    if self.known != Some(damaged.line) {
                        each(Gone::Damaged(damaged.line, self.stream.raw()))?;
                    }
                    continue;
                }
            };
            index += 1;
            let is_there = if index <= self.agreed {
                poorer.next_if_eq(&index).is_none()
            } else {
                let words = words(
                    record.role.as_deref().unwrap_or_default(),
                    record.content.as_deref().unwrap_or_default(),
                );
                self.differing.take(&words, &Beside::of(record.value()))
            };
            if !is_there {
                each(Gone::Record(record.value()))?;
            }
        }
    }
}

/// Whether a line that is no record is a record of ours, cut off or with some
/// bytes wrong: `start` is that record up to its time. Two lines that ran into
/// one are longer.
fn is_damaged(line: &[u8], start: &[u8]) -> bool {
    if start.starts_with(line) {
        return true;
    }
    // The time and a brace.
    let is_as_long = (start.len() + 2..start.len() + 22).contains(&line.len());
    let same = line.iter().zip(start).filter(|(a, b)| a == b).count();
    is_as_long && same * 2 > start.len()
}

pub(crate) fn describe(damaged: &Damaged) -> String {
    match damaged.line {
        0 => damaged.reason.clone(),
        line => format!("line {line}: {}", damaged.reason),
    }
}

/// Role, content, and id where both have one.
pub(crate) fn is_same(record: &Record<'_>, message: &Message<'_>) -> bool {
    let ids = (record.id.as_ref(), message.id.as_deref().map(value_of));
    let same_id = match ids {
        (Some(stored), Some(read)) => *stored == read,
        _ => true,
    };
    let same = |stored: &Option<Cow<'_, str>>, read: &str| {
        stored
            .as_deref()
            .is_some_and(|stored| stored == value_of(read))
    };
    same_id && same(&record.role, &message.role) && same(&record.content, &message.content)
}

impl Sink for Compare {
    fn message(&mut self, message: &Message<'_>) -> Result<()> {
        if self.state == State::Agreeing {
            match self.stream.next() {
                Ok(Some(record)) if is_same(&record, message) => {
                    self.agreed += 1;
                    if has_more(&record, message) {
                        self.poorer.push(self.agreed);
                    }
                    self.times = match self.times {
                        Times::None => Times::One(record.created_at_ms),
                        Times::One(ms) if ms == record.created_at_ms => Times::One(ms),
                        _ => Times::Several,
                    };
                    return Ok(());
                }
                Ok(Some(_)) => self.state = State::Diverged,
                Ok(None) => self.state = State::StoreEnded,
                Err(damaged) => {
                    self.state = State::Damaged(describe(&damaged));
                    let mut line = Vec::new();
                    let members = |line: &mut Vec<u8>| journal::message_members(line, message);
                    let is_line = journal::line_start(&mut line, self.agreed, members);
                    let is_known = is_line.is_ok() && is_damaged(self.stream.raw(), &line);
                    self.known = is_known.then_some(damaged.line);
                }
            }
        }
        if matches!(self.state, State::Diverged | State::Damaged(_)) {
            let (words, beside) = known_by(message);
            self.differing.add(words, beside);
        }
        Ok(())
    }

    fn residue(&mut self, residue: &Residue<'_>) -> Result<()> {
        self.residue.push((residue.line, Sha256::of(residue.text)));
        Ok(())
    }

    fn restart(&mut self) -> Result<()> {
        self.stream.rewind()?;
        self.agreed = 0;
        self.known = None;
        self.residue.truncate(self.settled);
        self.times = Times::None;
        self.state = State::Agreeing;
        self.poorer.clear();
        self.differing = Messages::default();
        Ok(())
    }

    fn settle(&mut self) -> Result<()> {
        self.settled = self.residue.len();
        Ok(())
    }

    fn set_aside(&mut self, line: u64, message: &Message<'_>) {
        let (words, beside) = known_by(message);
        self.set_aside.push((line, words, beside));
    }
}

/// Gives everything to a sink, and the messages to a comparison as well.
pub(crate) struct Tee<'a> {
    pub(crate) to: &'a mut dyn Sink,
    pub(crate) compare: Option<&'a mut Compare>,
}

impl Sink for Tee<'_> {
    fn message(&mut self, message: &Message<'_>) -> Result<()> {
        if let Some(compare) = &mut self.compare {
            compare.message(message)?;
        }
        self.to.message(message)
    }

    fn residue(&mut self, residue: &Residue<'_>) -> Result<()> {
        if let Some(compare) = &mut self.compare {
            compare.residue(residue)?;
        }
        self.to.residue(residue)
    }

    fn restart(&mut self) -> Result<()> {
        if let Some(compare) = &mut self.compare {
            compare.restart()?;
        }
        self.to.restart()
    }

    fn settle(&mut self) -> Result<()> {
        if let Some(compare) = &mut self.compare {
            compare.settle()?;
        }
        self.to.settle()
    }

    fn set_aside(&mut self, line: u64, message: &Message<'_>) {
        if let Some(compare) = &mut self.compare {
            compare.set_aside(line, message);
        }
    }
}
