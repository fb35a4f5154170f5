//! A session's source held against the stream that the store has of it, while
//! the source is read (`behaviour.md`, The live application).
//!
//! Neither is held in memory. Only from the first message on that differs are
//! digests kept, to find the messages that the source no longer has.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;

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

/// Messages by the digest of role and content, each with its id, if it has one.
#[derive(Debug, Default)]
struct Digests(HashMap<Sha256, Vec<Option<String>>>);

impl Digests {
    fn add(&mut self, message: &Message<'_>) {
        let digest = digest(&value_of(&message.role), &value_of(&message.content));
        let id = message.id.as_deref().map(|id| value_of(id).into_owned());
        self.0.entry(digest).or_default().push(id);
    }

    /// Takes out one that is the same: ids count where both have one.
    fn take(&mut self, digest: &Sha256, id: Option<&str>) -> bool {
        let Some(ids) = self.0.get_mut(digest) else {
            return false;
        };
        let fits = |other: &Option<String>| {
            id.is_none_or(|id| other.as_ref().is_none_or(|other| other == id))
        };
        match ids.iter().position(fits) {
            Some(at) => {
                ids.swap_remove(at);
                true
            }
            None => false,
        }
    }
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
    /// The source's messages from the first on that differs.
    differing: Digests,
    /// Messages that are in the source still, but none of its messages.
    set_aside: Digests,
    /// A damaged line that is the beginning of what the source gives there:
    /// somebody was stopped while it wrote it.
    begun: Option<u64>,
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
            differing: Digests::default(),
            set_aside: Digests::default(),
            begun: None,
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

    /// What the store's stream has and the source has not, in order.
    ///
    /// # Errors
    /// The stream cannot be read; what `each` could not do.
    pub(crate) fn dropped(mut self, mut each: impl FnMut(Gone<'_>) -> Result<()>) -> Result<()> {
        self.stream.rewind()?;
        let mut index = 0;
        loop {
            let record = match self.stream.next() {
                Ok(Some(record)) => record,
                Ok(None) => return Ok(()),
                // What is no file holds nothing; a disk that fails does.
                Err(damaged) if !damaged.is_of_line() => return self.stream.check(damaged),
                Err(damaged) => {
                    if self.begun != Some(damaged.line) {
                        each(Gone::Damaged(damaged.line, self.stream.raw()))?;
                    }
                    continue;
                }
            };
            index += 1;
            if index <= self.agreed {
                continue;
            }
            let digest = digest(
                record.role.as_deref().unwrap_or_default(),
                record.content.as_deref().unwrap_or_default(),
            );
            let id = record.id.as_deref();
            let sets = [&mut self.differing, &mut self.set_aside];
            let is_there = sets.into_iter().any(|set| set.take(&digest, id));
            if !is_there {
                each(Gone::Record(record.value()))?;
            }
        }
    }
}

pub(crate) fn describe(damaged: &Damaged) -> String {
    match damaged.line {
        0 => damaged.reason.clone(),
        line => format!("line {line}: {}", damaged.reason),
    }
}

fn digest(role: &str, content: &str) -> Sha256 {
    let length = role.len() as u64;
    let bytes = [&length.to_le_bytes(), role.as_bytes(), content.as_bytes()];
    Sha256::of(&bytes.concat())
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
                    let is_begun = is_line.is_ok() && line.starts_with(self.stream.raw());
                    self.begun = is_begun.then_some(damaged.line);
                }
            }
        }
        if matches!(self.state, State::Diverged | State::Damaged(_)) {
            self.differing.add(message);
        }
        Ok(())
    }

    fn residue(&mut self, _: &Residue<'_>) -> Result<()> {
        Ok(())
    }

    fn restart(&mut self) -> Result<()> {
        self.stream.rewind()?;
        self.agreed = 0;
        self.begun = None;
        self.times = Times::None;
        self.state = State::Agreeing;
        self.differing.0.clear();
        Ok(())
    }

    fn settle(&mut self) -> Result<()> {
        Ok(())
    }

    fn set_aside(&mut self, message: &Message<'_>) {
        self.set_aside.add(message);
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
        self.to.residue(residue)
    }

    fn restart(&mut self) -> Result<()> {
        if let Some(compare) = &mut self.compare {
            compare.restart()?;
        }
        self.to.restart()
    }

    fn settle(&mut self) -> Result<()> {
        self.to.settle()
    }

    fn set_aside(&mut self, message: &Message<'_>) {
        if let Some(compare) = &mut self.compare {
            compare.set_aside(message);
        }
    }
}
