//! What only the store still has of a session. Whatever takes the place of its
//! record, that stays, in the residue (`tinyagents-store.md`, Journals).

use std::collections::{HashMap, HashSet};

use serde::Deserialize;
use serde_json::value::RawValue;

use super::Importer;
use super::residue::Held;
use crate::error::Result;
use crate::model::diagnostic::{Code, Diagnostic};
use crate::model::key::Sha256;
use crate::model::plural::count;
use crate::ops::compare::{Compare, Gone};
use crate::plan::Item;
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
    fn is_none(self) -> bool {
        self.messages + self.lines == 0
    }

    pub(super) fn warning(self) -> Option<Diagnostic> {
        let of = |number: u64, what: &str| (number > 0).then(|| count(number, what));
        let parts = [of(self.messages, "message"), of(self.lines, "line")];
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

/// A session that is read.
struct Session<'a> {
    item: &'a Item,
    name: &'a StoreName,
    /// Its entry, if the source is as it was then.
    unchanged: Option<&'a Entry>,
}

/// What was found in the old residue.
#[derive(Default)]
struct Kept {
    /// Digests of what an import that was cut off has moved there already: it
    /// may have put its residue in place beside the old stream, so that both
    /// have it.
    moved: HashMap<Sha256, u64>,
    /// The lines of the source that it has.
    known: HashSet<u64>,
}

impl Importer<'_> {
    /// Whether the store holds something of a session that its source does not
    /// give any more. The source is read.
    ///
    /// # Errors
    /// The source gives no session; source or store cannot be read.
    pub(crate) fn is_only_copy(&self, item: &Item, name: &StoreName) -> Result<bool> {
        let read = self.read_once(item, name).map_err(|reject| reject.error)?;
        let dropped = self.move_dropped(item, name, read.hash, read.compare, None)?;
        Ok(!dropped.is_none())
    }

    /// Moves what only the store had into the residue, behind what was moved
    /// there before: whatever is replaced, no message goes, and no line. Gives
    /// their number, those of earlier imports included; in a dry run they are
    /// only counted. `hash` is the source's.
    pub(super) fn move_dropped(
        &self,
        item: &Item,
        name: &StoreName,
        hash: Sha256,
        mut compare: Option<Compare>,
        mut draft: Option<&mut Draft>,
    ) -> Result<Dropped> {
        let unchanged = item.record().filter(|entry| entry.sha256 == Some(hash));
        let mut dropped = Dropped::default();
        let residue = compare.as_mut().map(Compare::take_residue);
        let session = Session {
            item,
            name,
            unchanged,
        };
        let Kept { mut moved, known } =
            self.keep_residue(&session, residue, &mut dropped, draft.as_deref_mut())?;
        let Some(mut compare) = compare else {
            return Ok(dropped);
        };
        compare.relation();
        compare.dropped(&known, |gone| match gone {
            Gone::Record(record) => {
                if take(&mut moved, &Sha256::of(record.as_bytes())) {
                    return Ok(());
                }
                dropped.messages += 1;
                match &mut draft {
                    Some(draft) => draft.dropped(record),
                    None => Ok(()),
                }
            }
            Gone::Damaged(line, bytes) => {
                if take(&mut moved, &Sha256::of(bytes)) {
                    return Ok(());
                }
                dropped.lines += 1;
                keep_damaged(&mut draft, line, "messages", bytes)
            }
        })?;
        Ok(dropped)
    }

    /// Takes over what is in the old residue and not in the source any more.
    fn keep_residue(
        &self,
        session: &Session<'_>,
        new: Option<Vec<(u64, Sha256)>>,
        dropped: &mut Dropped,
        mut draft: Option<&mut Draft>,
    ) -> Result<Kept> {
        let Session {
            item,
            name,
            unchanged,
        } = *session;
        let path = self.store.layout().stream_file(&name.residue());
        let mut kept = Kept::default();
        let Some(mut old) = StreamReader::open(&path)? else {
            return Ok(kept);
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
            false => self.old_lines(item, &mut old, new)?,
        }
        .into_iter();
        old.rewind()?;
        let mut is_whole = true;
        loop {
            let value = match old.next() {
                Ok(Some(record)) => record.value(),
                Ok(None) => {
                    if !is_whole {
                        kept.moved.clear();
                    }
                    return Ok(kept);
                }
                Err(damaged) if !damaged.is_of_line() => {
                    old.check(damaged)?;
                    return Ok(kept);
                }
                Err(damaged) => {
                    // So it is not an import's that was cut off.
                    is_whole = false;
                    dropped.lines += 1;
                    keep_damaged(&mut draft, damaged.line, "residue", old.raw())?;
                    continue;
                }
            };
            let Some(held) = Held::parse(value) else {
                dropped.lines += 1;
                if let Some(draft) = &mut draft {
                    draft.dropped(value)?;
                }
                continue;
            };
            if held.line.is_none() {
                match held.record.is_some_and(|record| is_message(record.get())) {
                    true => dropped.messages += 1,
                    false => dropped.lines += 1,
                }
                if let Some(digest) = held.moved().filter(|_| !is_as_left) {
                    *kept.moved.entry(digest).or_default() += 1;
                }
                if let Some(draft) = &mut draft {
                    draft.kept(value)?;
                }
                continue;
            }
            let (is_there, now) = match old_lines.next() {
                Some(line) => (line.is_there, line.now),
                None => (in_source, held.line),
            };
            if is_there {
                kept.known.extend(now);
                continue;
            }
            dropped.lines += 1;
            if let Some(draft) = &mut draft {
                draft.dropped(value)?;
            }
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

/// Takes one out, if there is one left.
fn take(counts: &mut HashMap<Sha256, u64>, digest: &Sha256) -> bool {
    match counts.get_mut(digest) {
        Some(count) if *count > 0 => {
            *count -= 1;
            true
        }
        _ => false,
    }
}
