//! The residue that a session has in the store: what its records hold, and
//! which of its lines the source still has.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use memchr::memmem;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::Importer;
use crate::error::Result;
use crate::model::key::Sha256;
use crate::model::message::{Message, Residue, Sink, Why};
use crate::plan::{Item, Reads};
use crate::source::input::Input;
use crate::source::openhuman::replay::BYTE_ORDER_MARK;
use crate::source::openhuman::{Format, MAX_MARKDOWN};
use crate::store::journal::StreamReader;

/// A residue record's value.
#[derive(Deserialize)]
pub(super) struct Held<'a> {
    pub(super) line: Option<u64>,
    #[serde(borrow)]
    why: Cow<'a, str>,
    text: Option<Cow<'a, str>>,
    base64: Option<Cow<'a, str>>,
    pub(super) record: Option<&'a RawValue>,
}

impl<'a> Held<'a> {
    /// A record's value, if it is what a draft writes.
    pub(super) fn parse(value: &'a str) -> Option<Self> {
        // An array would do for a struct, too.
        let is_object = value.starts_with('{');
        let held: Self = serde_json::from_str(value).ok()?;
        // A line without its text is none that could be looked for.
        let is_line = held.line.is_some() && held.text().is_some();
        (is_object && (is_line || held.is_dropped())).then_some(held)
    }

    fn is_dropped(&self) -> bool {
        self.line.is_none() && self.why == Why::Dropped.as_str()
    }

    /// The line as it stood in the source.
    fn text(&self) -> Option<Cow<'_, [u8]>> {
        match (&self.text, &self.base64) {
            (Some(text), _) => Some(Cow::Borrowed(text.as_bytes())),
            (None, Some(base64)) => Some(Cow::Owned(STANDARD.decode(base64.as_bytes()).ok()?)),
            (None, None) => None,
        }
    }

    /// Whether the line holds a message, which is none of the session's.
    fn was_message(&self) -> bool {
        let whys = [Why::Superseded, Why::Interrupted];
        whys.iter().any(|why| why.as_str() == self.why)
    }

    /// What a message or line is known by that an import has moved already.
    pub(super) fn moved(&self) -> Option<Sha256> {
        match self.record {
            Some(record) => Some(Sha256::of(record.get().as_bytes())),
            None => self.text().map(|text| Sha256::of(&text)),
        }
    }
}

/// A line of the source that the old residue holds.
pub(super) struct OldLine {
    digest: Sha256,
    length: usize,
    pub(super) is_there: bool,
    /// The line of the source that it is now, where those are known.
    pub(super) now: Option<u64>,
    /// It was a message: one that is a message now is what the stream has.
    was_message: bool,
}

impl Importer<'_> {
    /// The old residue's lines, each looked for in the source. `new` are those
    /// that it gives now, if they are known.
    pub(super) fn old_lines(
        &self,
        item: &Item,
        old: &mut StreamReader,
        new: Option<Vec<(u64, Sha256)>>,
    ) -> Result<Vec<OldLine>> {
        let mut lines = Vec::new();
        let mut last = (0, Vec::new());
        each_line(old, |number, held| {
            let text = held.text().unwrap_or_default();
            last = (number, text.to_vec());
            lines.push(OldLine {
                digest: Sha256::of(&text),
                length: text.len(),
                is_there: false,
                now: None,
                was_message: held.was_message(),
            });
        });
        if lines.is_empty() {
            return Ok(lines);
        }
        let new = match new {
            Some(new) => new,
            None => {
                let mut seen = Digests::default();
                let read = self.read_source(item, &mut seen);
                read.map_err(|reject| reject.error)?;
                seen.lines
            }
        };
        look_in_residue(new, &mut lines);
        // What is no residue any more may have become a message, or a header.
        if let Reads::File(format) = &item.reads
            && lines.iter().any(|line| !line.is_there)
        {
            let path = self.workspace.join(item.session.source.relative());
            let input = Input::open(&path, self.interrupt, &|_| ())?;
            match format {
                Format::Jsonl => look_in_lines(&input, &mut lines, last)?,
                _ => look_in_text(&input, old, &mut lines)?,
            }
        }
        Ok(lines)
    }
}

/// Looks for lines among those that are residue now, each of which counts once.
fn look_in_residue(new: Vec<(u64, Sha256)>, old: &mut [OldLine]) {
    let mut by_digest: HashMap<Sha256, Vec<u64>> = HashMap::new();
    for (line, digest) in new.into_iter().rev() {
        by_digest.entry(digest).or_default().push(line);
    }
    for line in old {
        line.now = by_digest.get_mut(&line.digest).and_then(Vec::pop);
        line.is_there = line.now.is_some();
    }
}

/// The residue's records that are lines of the source.
fn each_line(old: &mut StreamReader, mut each: impl FnMut(u64, &Held<'_>)) {
    loop {
        match old.next() {
            Ok(Some(record)) => {
                if let Some(held) = Held::parse(record.value())
                    && let Some(number) = held.line
                {
                    each(number, &held);
                }
            }
            Err(damaged) if damaged.is_of_line() => {}
            Ok(None) | Err(_) => return,
        }
    }
}

/// Looks for lines among those of a source, each of which counts once. The
/// last one may have been cut off while it was written, and be whole now.
fn look_in_lines(input: &Input<'_>, old: &mut [OldLine], last: (u64, Vec<u8>)) -> Result<()> {
    // What was a message was whole.
    let may_go_on = |index: &usize| old.get(*index).is_some_and(|line| !line.was_message);
    let last_index = old.len().checked_sub(1).filter(may_go_on);
    let lengths: HashSet<usize> = old.iter().map(|line| line.length).collect();
    let mut sought: HashMap<Sha256, Vec<usize>> = HashMap::new();
    // Those that were found are taken first: they are among these lines, too.
    for found in [false, true] {
        for (index, line) in old.iter().enumerate().rev() {
            if line.is_there == found && !line.was_message {
                sought.entry(line.digest).or_default().push(index);
            }
        }
    }
    let is_sought = |line: &&OldLine| !line.is_there && !line.was_message;
    let mut left = old.iter().filter(is_sought).count();
    let mut lines = input.lines_again(0, 0);
    let mut line = Vec::new();
    while left > 0
        && let Some(position) = lines.next(&mut line)?
    {
        // As the reader has it.
        if position.number == 1 && line.starts_with(BYTE_ORDER_MARK) {
            line.drain(..BYTE_ORDER_MARK.len());
        }
        let same = lengths.contains(&line.len());
        let same = same.then(|| sought.get_mut(&Sha256::of(&line))?.pop());
        let is_last = position.number == last.0 && line.starts_with(&last.1);
        let begun = || last_index.filter(|_| is_last);
        let found = same.flatten().or_else(begun);
        if let Some(found) = found.and_then(|index| old.get_mut(index))
            && !found.is_there
        {
            found.is_there = true;
            found.now = Some(position.number);
            left -= 1;
        }
    }
    Ok(())
}

/// Looks for texts, of several lines perhaps, in a Markdown source.
fn look_in_text(input: &Input<'_>, old: &mut StreamReader, lines: &mut [OldLine]) -> Result<()> {
    let (bytes, _) = input.whole(MAX_MARKDOWN)?;
    old.rewind()?;
    let mut lines = lines.iter_mut();
    each_line(old, |_, held| {
        if let Some(line) = lines.next() {
            let text = held.text().unwrap_or_default();
            line.is_there |= memmem::find(&bytes, &text).is_some();
        }
    });
    Ok(())
}

/// The residue that a source gives, by digest.
#[derive(Debug, Default)]
struct Digests {
    lines: Vec<(u64, Sha256)>,
    settled: usize,
}

impl Sink for Digests {
    fn message(&mut self, _: &Message<'_>) -> Result<()> {
        Ok(())
    }

    fn residue(&mut self, residue: &Residue<'_>) -> Result<()> {
        self.lines.push((residue.line, Sha256::of(residue.text)));
        Ok(())
    }

    fn restart(&mut self) -> Result<()> {
        self.lines.truncate(self.settled);
        Ok(())
    }

    fn settle(&mut self) -> Result<()> {
        self.settled = self.lines.len();
        Ok(())
    }
}
