//! What only the store still has of a session. Whatever takes the place of its
//! record, that stays, in the residue (`tinyagents-store.md`, Journals).

use std::borrow::Cow;
use std::cell::LazyCell;
use std::collections::{HashMap, HashSet};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, SecondsFormat};
use memchr::memmem;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::Importer;
use crate::error::Result;
use crate::model::diagnostic::{Code, Diagnostic};
use crate::model::key::Sha256;
use crate::model::message::{Message, Residue, Sink, Why};
use crate::model::session::Kind;
use crate::ops::compare::{Compare, Gone};
use crate::plan::{Item, Reads};
use crate::source::input::Input;
use crate::source::openhuman::{Format, MAX_MARKDOWN};
use crate::store::Draft;
use crate::store::journal::{StreamReader, sha256_of_file};
use crate::store::name::StoreName;
use crate::store::record::Entry;

/// What lies in the residue and is in the source no longer.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Dropped {
    messages: u64,
    lines: u64,
}

impl Dropped {
    pub(super) fn warning(self) -> Option<Diagnostic> {
        let several = |count: u64, what: &str| match count {
            0 => None,
            1 => Some(format!("1 {what}")),
            _ => Some(format!("{count} {what}s")),
        };
        let messages = several(self.messages, "message");
        let parts = [messages, several(self.lines, "line")];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        let verb = match self.messages + self.lines {
            0 => return None,
            1 => "is",
            _ => "are",
        };
        let message = format!(
            "{} that the store had and the source has not {verb} in the residue stream",
            parts.join(" and ")
        );
        Some(Diagnostic::new(Code::DroppedMessages, message))
    }
}

/// A residue record's value.
#[derive(Deserialize)]
struct Held<'a> {
    line: Option<u64>,
    #[serde(borrow)]
    why: Cow<'a, str>,
    text: Option<Cow<'a, str>>,
    base64: Option<Cow<'a, str>>,
    record: Option<&'a RawValue>,
}

impl Held<'_> {
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

    /// What a message or line is known by that an import has moved already.
    fn moved(&self) -> Option<Sha256> {
        match self.record {
            Some(record) => Some(Sha256::of(record.get().as_bytes())),
            None => self.text().map(|text| Sha256::of(&text)),
        }
    }
}

/// A line of the source that the old residue holds.
struct OldLine {
    digest: Sha256,
    length: usize,
    is_there: bool,
}

impl Importer<'_> {
    /// Moves what only the store had into the residue, behind what was moved
    /// there before: whatever is replaced, no message goes, and no line. Gives
    /// their number, those of earlier imports included; in a dry run they are
    /// only counted. `hash` is the source's.
    pub(super) fn move_dropped(
        &self,
        item: &Item,
        name: &StoreName,
        hash: Sha256,
        compare: Option<Compare>,
        mut draft: Option<&mut Draft>,
    ) -> Result<Dropped> {
        let unchanged = item.record().filter(|entry| entry.sha256 == Some(hash));
        let mut count = Dropped::default();
        let mut moved =
            self.keep_residue(item, name, unchanged, &mut count, draft.as_deref_mut())?;
        let Some(mut compare) = compare else {
            return Ok(count);
        };
        compare.relation();
        let stream = self.store.layout().stream_file(&name.messages());
        let is_ours = LazyCell::new(|| is_of_import(unchanged, &stream));
        compare.dropped(|gone| match gone {
            Gone::Record(record) => {
                if take(&mut moved, &Sha256::of(record.as_bytes())) {
                    return Ok(());
                }
                count.messages += 1;
                match &mut draft {
                    Some(draft) => draft.dropped(record),
                    None => Ok(()),
                }
            }
            Gone::Damaged(line, bytes) => {
                let is_in_source =
                    unchanged.is_some_and(|entry| line <= entry.messages) && *is_ours;
                if is_in_source || take(&mut moved, &Sha256::of(bytes)) {
                    return Ok(());
                }
                count.lines += 1;
                keep_damaged(&mut draft, line, "messages", bytes)
            }
        })?;
        Ok(count)
    }

    /// Takes over what is in the old residue and not in the source any more.
    /// Gives the digests of what an import that was cut off has moved there
    /// already: it may have put its residue in place beside the old stream, so
    /// that both have it.
    fn keep_residue(
        &self,
        item: &Item,
        name: &StoreName,
        unchanged: Option<&Entry>,
        count: &mut Dropped,
        mut draft: Option<&mut Draft>,
    ) -> Result<HashMap<Sha256, u64>> {
        let path = self.store.layout().stream_file(&name.residue());
        let mut moved = HashMap::new();
        let Some(mut old) = StreamReader::open(&path)? else {
            return Ok(moved);
        };
        let found = sha256_of_file(&path)?.map(|(hash, _)| hash);
        let is_as_left = item
            .record()
            .is_some_and(|entry| entry.residue_sha256 == found);
        // Where the Markdown was read instead, the hash is not that of what
        // was read.
        let unchanged = unchanged.filter(|entry| entry.salvaged != Some(true));
        let in_source = unchanged.is_some() && is_as_left;
        let mut old_lines = match in_source {
            true => Vec::new(),
            false => self.old_lines(item, &mut old)?,
        }
        .into_iter();
        old.rewind()?;
        let is_ours = LazyCell::new(|| is_of_import(unchanged, &path));
        loop {
            let value = match old.next() {
                Ok(Some(record)) => record.value(),
                Ok(None) => return Ok(moved),
                Err(damaged) if !damaged.is_of_line() => {
                    old.check(damaged)?;
                    return Ok(moved);
                }
                Err(damaged) => {
                    let is_in_source =
                        unchanged.is_some_and(|entry| gives_line(entry, damaged.line)) && *is_ours;
                    if !is_in_source {
                        count.lines += 1;
                        keep_damaged(&mut draft, damaged.line, "residue", old.raw())?;
                    }
                    continue;
                }
            };
            // An array would do for a struct, too.
            let is_object = value.starts_with('{');
            let held: Option<Held<'_>> = serde_json::from_str(value).ok();
            let is_ours = |held: &Held<'_>| held.line.is_some() || held.is_dropped();
            let Some(held) = held.filter(|held| is_object && is_ours(held)) else {
                count.lines += 1;
                if let Some(draft) = &mut draft {
                    draft.dropped(value)?;
                }
                continue;
            };
            if held.line.is_none() {
                match held.record.is_some_and(|record| is_message(record.get())) {
                    true => count.messages += 1,
                    false => count.lines += 1,
                }
                if let Some(digest) = held.moved().filter(|_| !is_as_left) {
                    *moved.entry(digest).or_default() += 1;
                }
                if let Some(draft) = &mut draft {
                    draft.kept(value)?;
                }
            } else if !in_source && old_lines.next().is_none_or(|line| !line.is_there) {
                count.lines += 1;
                if let Some(draft) = &mut draft {
                    draft.dropped(value)?;
                }
            }
        }
    }

    /// The old residue's lines, each looked for in the source.
    fn old_lines(&self, item: &Item, old: &mut StreamReader) -> Result<Vec<OldLine>> {
        let mut lines = Vec::new();
        let mut last = (0, Vec::new());
        each_line(old, |number, held| {
            let text = held.text().unwrap_or_default();
            last = (number, text.to_vec());
            lines.push(OldLine {
                digest: Sha256::of(&text),
                length: text.len(),
                is_there: false,
            });
        });
        if lines.is_empty() {
            return Ok(lines);
        }
        if let Reads::File(format) = &item.reads {
            let path = self.workspace.join(item.session.source.relative());
            let input = Input::open(&path, self.interrupt, &|_| ())?;
            match format {
                Format::Jsonl => look_in_lines(&input, &mut lines, last)?,
                _ => look_in_text(&input, old, &mut lines)?,
            }
        }
        // Not in the bytes that were looked at, but perhaps in what the reader
        // makes of them: a sub-agent's history, a Markdown view.
        if lines.iter().any(|line| !line.is_there) {
            let mut seen = Digests::default();
            let read = self.read_source(item, &mut seen);
            read.map_err(|reject| reject.error)?;
            let mut left = counted(seen.digests);
            for line in &mut lines {
                let is_there = take(&mut left, &line.digest);
                line.is_there |= is_there;
            }
        }
        Ok(lines)
    }
}

/// Whether the source of an entry, as it was then, gives a line of the residue:
/// those come first. In Markdown one record may be several lines.
fn gives_line(entry: &Entry, line: u64) -> bool {
    let lines = entry.lines.unwrap_or_default();
    entry.kind != Some(Kind::Markdown) && line <= lines.residue
}

/// Whether a stream is as the import of this entry wrote it, but for lines
/// that cannot be read: the application gives each record a time of its own.
fn is_of_import(entry: Option<&Entry>, path: &Path) -> bool {
    let (Some(entry), Ok(Some(mut stream))) = (entry, StreamReader::open(path)) else {
        return false;
    };
    loop {
        match stream.next() {
            Ok(Some(record)) => {
                let ms = i64::try_from(record.created_at_ms).unwrap_or(i64::MAX);
                let time = DateTime::from_timestamp_millis(ms);
                let time = time.map(|time| time.to_rfc3339_opts(SecondsFormat::Millis, true));
                if time.as_ref() != Some(&entry.imported_at) {
                    return false;
                }
            }
            Ok(None) => return true,
            Err(damaged) if damaged.is_of_line() => {}
            Err(_) => return false,
        }
    }
}

/// Keeps a line of the store that nobody can read.
fn keep_damaged(
    draft: &mut Option<&mut Draft>,
    line: u64,
    stream: &str,
    bytes: &[u8],
) -> Result<()> {
    let code = Code::StoreDamaged;
    let error = format!("{code}: line {line} of the {stream} stream was no record");
    match draft {
        Some(draft) => draft.dropped_line(bytes, &error),
        None => Ok(()),
    }
}

/// Whether a dropped record is a message's, and not a line's.
fn is_message(record: &str) -> bool {
    #[derive(Deserialize)]
    struct Line<'a> {
        #[serde(borrow)]
        why: Option<&'a RawValue>,
        role: Option<&'a RawValue>,
    }
    let line = serde_json::from_str::<Line<'_>>(record);
    line.map_or(true, |line| line.why.is_none() || line.role.is_some())
}

/// The residue's records that are lines of the source.
fn each_line(old: &mut StreamReader, mut each: impl FnMut(u64, &Held<'_>)) {
    loop {
        match old.next() {
            Ok(Some(record)) => {
                let held: Option<Held<'_>> = serde_json::from_str(record.value()).ok();
                if let Some(held) = held
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
    let lengths: HashSet<usize> = old.iter().map(|line| line.length).collect();
    let mut sought: HashMap<Sha256, Vec<usize>> = HashMap::new();
    // The first of several is taken first.
    for (index, line) in old.iter().enumerate().rev() {
        sought.entry(line.digest).or_default().push(index);
    }
    let mut left = old.len();
    let mut lines = input.lines_again(0, 0);
    let mut line = Vec::new();
    while left > 0
        && let Some(position) = lines.next(&mut line)?
    {
        let same = lengths.contains(&line.len());
        let same = same.then(|| sought.get_mut(&Sha256::of(&line))?.pop());
        let is_last = position.number == last.0 && line.starts_with(&last.1);
        let begun = || is_last.then_some(old.len() - 1);
        let found = same.flatten().or_else(begun);
        if let Some(found) = found.and_then(|index| old.get_mut(index))
            && !found.is_there
        {
            found.is_there = true;
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
            line.is_there = memmem::find(&bytes, &text).is_some();
        }
    });
    Ok(())
}

fn counted(digests: Vec<Sha256>) -> HashMap<Sha256, u64> {
    let mut counts = HashMap::new();
    for digest in digests {
        *counts.entry(digest).or_default() += 1;
    }
    counts
}

fn take(counts: &mut HashMap<Sha256, u64>, digest: &Sha256) -> bool {
    match counts.get_mut(digest) {
        Some(count) if *count > 0 => {
            *count -= 1;
            true
        }
        _ => false,
    }
}

/// Digests of the residue that a source gives.
#[derive(Debug, Default)]
struct Digests {
    digests: Vec<Sha256>,
    settled: usize,
}

impl Sink for Digests {
    fn message(&mut self, _: &Message<'_>) -> Result<()> {
        Ok(())
    }

    fn residue(&mut self, residue: &Residue<'_>) -> Result<()> {
        self.digests.push(Sha256::of(residue.text));
        Ok(())
    }

    fn restart(&mut self) -> Result<()> {
        self.digests.truncate(self.settled);
        Ok(())
    }

    fn settle(&mut self) -> Result<()> {
        self.settled = self.digests.len();
        Ok(())
    }
}
