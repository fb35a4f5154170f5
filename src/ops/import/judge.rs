//! What the store has of a session, held against what was read: replace it,
//! keep it, or refuse (`behaviour.md`, The live application).

use std::collections::HashMap;

use chrono::{DateTime, SecondsFormat};

use super::Importer;
use crate::error::Result;
use crate::model::diagnostic::{Code, Diagnostic};
use crate::model::key::Sha256;
use crate::ops::compare::{Compare, Relation};
use crate::plan::Item;
use crate::plan::decide::Wishes;
use crate::store::Draft;
use crate::store::journal::{StreamReader, sha256_of_file};
use crate::store::name::StoreName;
use crate::store::record::{Descriptor, Entry};

/// What is to be done about what the store already has.
pub(super) enum Verdict {
    /// Put ours in its place; what was there, if it was not ours.
    Replace {
        replaced: Option<serde_json::Value>,
        note: Option<Diagnostic>,
    },
    /// The store is ahead.
    Keep,
    /// Neither: fail.
    Refuse(Code, String),
}

impl Importer<'_> {
    /// Holds what the store has of the session against what was read.
    pub(super) fn judge(
        &self,
        item: &Item,
        name: &StoreName,
        hash: Sha256,
        compare: Option<&mut Compare>,
    ) -> Result<Verdict> {
        let Wishes {
            force,
            overwrite,
            checksum,
            ..
        } = self.wishes;
        let plain = Verdict::Replace {
            replaced: None,
            note: None,
        };
        let Some(compare) = compare else {
            return Ok(plain);
        };
        let entry = item.record();
        let ours = entry.filter(|entry| entry.has_record());
        let stream = self.store.layout().stream_file(&name.messages());
        let stream_hash = sha256_of_file(&stream)?;
        let is_as_left =
            ours.is_some_and(|entry| entry.journal_sha256 == stream_hash.map(|(hash, _)| hash));
        if is_as_left {
            return Ok(Verdict::Replace {
                replaced: None,
                note: None,
            });
        }
        let mends = force || checksum || overwrite;
        let stays_damaged = |what: &str| {
            let message = format!("{what}; `run --checksum` writes it again from the source");
            Verdict::Refuse(Code::StoreDamaged, message)
        };
        let mended = |what: &str| Verdict::Replace {
            replaced: None,
            note: Some(Diagnostic::new(
                Code::Mended,
                format!("{what}; written again"),
            )),
        };
        let relation = compare.relation();
        let is_of_earlier_importer = entry.is_some_and(|entry| !entry.is_ours())
            && self.descriptor_of(name).is_some_and(|descriptor| {
                Some(&descriptor.import.imported_at) == entry.map(|entry| &entry.imported_at)
            });
        if is_of_earlier_importer {
            return Ok(self.take_over(name, "the earlier importer's"));
        }
        let is_source_unchanged = ours.is_some_and(|entry| entry.sha256 == Some(hash));
        Ok(match relation {
            Relation::Damaged(reason) => {
                let what = format!("the store's stream is damaged ({reason})");
                if mends {
                    mended(&what)
                } else {
                    stays_damaged(&what)
                }
            }
            Relation::StoreIsAhead if !overwrite => Verdict::Keep,
            Relation::StoreIsFirst if self.was_cut_off(name, entry, compare) => plain,
            // Nothing is lost by replacing it.
            Relation::StoreIsFirst if is_source_unchanged => {
                mended("the store's stream is not what the item ledger says")
            }
            Relation::StoreIsFirst if ours.is_some() => plain,
            Relation::StoreIsFirst => self.take_over(name, "the application's"),
            Relation::Diverged if is_source_unchanged && !overwrite => {
                let what = "the store's stream differs from the source, which is unchanged";
                if mends {
                    mended(what)
                } else {
                    stays_damaged(what)
                }
            }
            Relation::Diverged if !overwrite => {
                let message = "the store's stream has gone another way than the source; both are \
                               kept; `run --overwrite` replaces the stream";
                Verdict::Refuse(Code::StoreDiverged, message.to_owned())
            }
            Relation::StoreIsAhead | Relation::Diverged => {
                self.take_over(name, "the application's")
            }
        })
    }

    /// Whether the stream is of an import that was cut off between a session's
    /// files and its entry: its records have one time, and the descriptor,
    /// which is put in place before it, has the same. So it is nobody else's,
    /// and to replace it needs no word.
    fn was_cut_off(&self, name: &StoreName, entry: Option<&Entry>, compare: &Compare) -> bool {
        let time = compare.time().and_then(|ms| {
            let time = DateTime::from_timestamp_millis(i64::try_from(ms).ok()?)?;
            Some(time.to_rfc3339_opts(SecondsFormat::Millis, true))
        });
        let (Some(time), Some(descriptor)) = (time, self.descriptor_of(name)) else {
            return false;
        };
        entry.is_none_or(Entry::is_ours) && descriptor.import.imported_at == time
    }

    /// Replaces a record that was not ours, and says so in the entry.
    fn take_over(&self, name: &StoreName, whose: &str) -> Verdict {
        let descriptor = self.descriptor_of(name);
        let replaced = serde_json::json!({
            "record": whose,
            "imported_at": descriptor.map(|descriptor| descriptor.import.imported_at),
            "messages": self.count(name),
        });
        let message = format!("{whose} record of this session was replaced");
        Verdict::Replace {
            replaced: Some(replaced),
            note: Some(Diagnostic::new(Code::RecordReplaced, message)),
        }
    }

    /// Messages in the session's stream, up to the first damaged line.
    fn count(&self, name: &StoreName) -> u64 {
        let stream = self.store.layout().stream_file(&name.messages());
        let Ok(Some(mut stream)) = StreamReader::open(&stream) else {
            return 0;
        };
        let mut count = 0;
        while let Ok(Some(_)) = stream.next() {
            count += 1;
        }
        count
    }

    pub(super) fn descriptor_of(&self, name: &StoreName) -> Option<Descriptor> {
        self.store.descriptor(name).ok().flatten()
    }

    /// Moves what only the store had into the residue, behind what was moved
    /// there before: whatever is replaced, no message goes. Gives their number,
    /// those of earlier imports included; in a dry run they are only counted.
    pub(super) fn move_dropped(
        &self,
        item: &Item,
        name: &StoreName,
        compare: Option<Compare>,
        mut draft: Option<&mut Draft>,
    ) -> Result<u64> {
        let residue = self.store.layout().stream_file(&name.residue());
        let hash = sha256_of_file(&residue)?.map(|(hash, _)| hash);
        let mut old = match hash {
            Some(_) => StreamReader::open(&residue)?,
            None => None,
        };
        // An import that was cut off may have put its residue in place beside
        // the old stream: what it moved is in both then.
        let left = item.record().map(|entry| entry.residue_sha256);
        let is_as_left = left == Some(hash);
        let mut moved: HashMap<Sha256, u64> = HashMap::new();
        let mut count = 0;
        if let Some(old) = &mut old {
            loop {
                match old.next() {
                    Ok(Some(record)) => {
                        let Some(record) = dropped_record(record.value()) else {
                            continue;
                        };
                        count += 1;
                        if !is_as_left {
                            *moved.entry(Sha256::of(record.as_bytes())).or_default() += 1;
                        }
                        if let Some(draft) = &mut draft {
                            draft.dropped(record)?;
                        }
                    }
                    // A line that is damaged takes no other one along.
                    Err(damaged) if damaged.line > 0 => {}
                    Ok(None) | Err(_) => break,
                }
            }
        }
        if let Some(mut compare) = compare {
            compare.relation();
            compare.dropped(|record| {
                let before = moved.get_mut(&Sha256::of(record.as_bytes()));
                if let Some(before) = before.filter(|before| **before > 0) {
                    *before -= 1;
                    return Ok(());
                }
                count += 1;
                match &mut draft {
                    Some(draft) => draft.dropped(record),
                    None => Ok(()),
                }
            })?;
        }
        Ok(count)
    }
}

/// The record inside of a residue record that holds a dropped message.
fn dropped_record(value: &str) -> Option<&str> {
    #[derive(serde::Deserialize)]
    struct Dropped<'a> {
        why: std::borrow::Cow<'a, str>,
        #[serde(borrow)]
        record: &'a serde_json::value::RawValue,
    }
    let dropped: Dropped<'_> = serde_json::from_str(value).ok()?;
    (dropped.why == "dropped").then(|| dropped.record.get())
}

pub(super) fn dropped_warning(count: u64) -> Diagnostic {
    let (plural, verb) = if count == 1 { ("", "is") } else { ("s", "are") };
    let message = format!(
        "{count} message{plural} that the store had and the source has not \
         {verb} in the residue stream"
    );
    Diagnostic::new(Code::DroppedMessages, message)
}
