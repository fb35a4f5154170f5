//! What is to be examined: an entry with what its source is now, or a source
//! without an entry.

use std::collections::HashMap;
use std::io;

use super::examine::{Acceptance, Examined, Examiner};
use super::judge::Relation;
use super::lockstep::Lockstep;
use super::store::{Whole, key_file};
use crate::error::{Error, Result};
use crate::model::check::Check;
use crate::model::key::{SessionKey, Sha256};
use crate::model::message::Discard;
use crate::model::plural::count;
use crate::model::remedy::Remedy;
use crate::model::session::Kind;
use crate::ops::compare::describe;
use crate::plan::Item;
use crate::report::Finding;
use crate::source::openhuman::lineage;
use crate::store::layout::Namespace;
use crate::store::name::StoreName;
use crate::store::record::Entry;

/// One session to examine.
pub(super) enum Task<'a> {
    /// An entry by its ledger key, and what its source is now.
    Entry(Sha256, &'a Entry, Option<&'a Item>),
    /// A source without an entry.
    Source(&'a Item),
}

impl<'a> Task<'a> {
    /// A source, with its entry if it has one.
    pub(super) fn of_item(item: &'a Item, entries: &HashMap<Sha256, Entry>) -> Self {
        let Some(entry) = item.entry.as_deref() else {
            return Self::Source(item);
        };
        let own = item.ledger_key();
        let mut keys = std::iter::once(&own).chain(&item.replaces);
        let key = keys.find(|key| {
            let entry = entries.get(*key);
            entry.is_some_and(|entry| entry.session_key == item.session.key)
        });
        Self::Entry(key.copied().unwrap_or(own), entry, Some(item))
    }

    pub(super) fn has_entry(&self) -> bool {
        matches!(self, Self::Entry(..))
    }

    fn item(&self) -> Option<&'a Item> {
        match self {
            Self::Entry(_, _, item) => *item,
            Self::Source(item) => Some(item),
        }
    }

    pub(super) fn session_key(&self) -> &SessionKey {
        match self {
            Self::Entry(_, entry, _) => &entry.session_key,
            Self::Source(item) => &item.session.key,
        }
    }

    pub(super) fn source(&self) -> String {
        match self {
            Self::Entry(_, _, Some(item)) | Self::Source(item) => item.session.source.to_string(),
            Self::Entry(_, entry, None) => entry.source.clone(),
        }
    }

    /// Examines it.
    pub(super) fn examine(
        &self,
        examiner: &Examiner<'_>,
        collisions: &HashMap<Sha256, Finding>,
        whole: &Whole,
    ) -> Result<Examined> {
        match self {
            Self::Entry(key, entry, item) => match collisions.get(key) {
                Some(collision) => Ok(Examined {
                    found: vec![collision.clone()],
                    ..self.thread(examiner)?
                }),
                None => self.entry(examiner, key, entry, *item),
            },
            Self::Source(item) => match collisions.get(&item.ledger_key()) {
                Some(collision) => Ok(Examined {
                    found: vec![collision.clone()],
                    ..self.thread(examiner)?
                }),
                None => self.unimported(examiner, item, whole),
            },
        }
    }

    /// Only the session's thread.
    pub(super) fn thread(&self, examiner: &Examiner<'_>) -> Result<Examined> {
        let item = self
            .item()
            .and_then(|item| Some((item, item.name.as_ref()?)));
        let Some((item, name)) = item else {
            return Ok(Examined::default());
        };
        match examiner.importer.read_source(item, &mut Discard) {
            Ok(source) => {
                let header = source.reading.header.thread_id.as_deref();
                Ok(Examined {
                    thread_id: Some(lineage::thread_id(header, name.as_str()).0),
                    ..Examined::default()
                })
            }
            Err(reject) => match reject.error {
                Error::Interrupted => Err(Error::Interrupted),
                _ => Ok(Examined::default()),
            },
        }
    }

    fn entry(
        &self,
        examiner: &Examiner<'_>,
        key: &Sha256,
        entry: &Entry,
        item: Option<&Item>,
    ) -> Result<Examined> {
        let mut found = Vec::new();
        if let Some(accepted) = &entry.accepted {
            let message = format!("settled on {}: {}", accepted.at, accepted.reason);
            found.push(Finding::new(Check::AcceptedItem, message));
            if examiner.acceptance(entry, item)? == Acceptance::OfOther {
                let message = "the source changed since it was settled";
                found.push(Finding::new(Check::SourceChanged, message));
            }
        }
        if !entry.is_ours() {
            let examined = self.thread(examiner)?;
            found.push(if entry.has_lost_its_hash() {
                let message = "its item ledger entry is ours and has no journal_sha256";
                let mut finding = Finding::new(Check::EntryDiffers, message);
                finding.file = Some(key_file(Namespace::Items, &key.to_string()));
                finding.helped_by(match (item, &examined.thread_id) {
                    (Some(_), Some(_)) => Remedy::Checksum,
                    (Some(_), None) => Remedy::MendSource,
                    (None, _) => Remedy::CopyOrRemove,
                })
            } else {
                let message = "the application's earlier importer wrote its record";
                Finding::new(Check::OlderImporter, message)
            });
            return Ok(Examined { found, ..examined });
        }
        if item.is_none() {
            found.push(without_item(examiner, entry));
        }
        if item.is_none() && !is_key_of(key, entry) {
            let message = "its item ledger entry is not that of the source it names";
            let finding = Finding::new(Check::EntryDiffers, message);
            found.push(finding.helped_by(Remedy::CopyOfStore));
        }
        let mut examined = match entry.journal_sha256 {
            Some(_) => examiner.examine(key, entry, item)?,
            // Settled before anything of it was imported.
            None => Examined::default(),
        };
        // One word about what was accepted: the reason, and what it covers.
        let is_of_acceptance = |finding: &&mut Finding| finding.code == Check::AcceptedItem;
        let covered = examined.found.iter_mut().find(is_of_acceptance);
        let reason = found
            .iter()
            .position(|finding| finding.code == Check::AcceptedItem);
        if let (Some(covered), Some(at)) = (covered, reason) {
            let reason = found.remove(at).message;
            covered.message = format!("{reason}; {}", covered.message);
        }
        examined.found.extend(found);
        Ok(examined)
    }

    /// A source that has no entry.
    fn unimported(&self, examiner: &Examiner<'_>, item: &Item, whole: &Whole) -> Result<Examined> {
        if let Some(reason) = whole.damaged_entry(&item.ledger_key()) {
            let message = format!("its item ledger entry cannot be read: {reason}");
            let mut finding = Finding::new(Check::EntryDamaged, message);
            finding.file = Some(key_file(Namespace::Items, &item.ledger_key().to_string()));
            let examined = match &item.name {
                Some(name) => beside(examiner, item, name, whole)?,
                None => Examined::default(),
            };
            if examiner
                .importer
                .store
                .is_in_the_way(Namespace::Items, &item.ledger_key().to_string())
            {
                finding.remedy = Some(Remedy::MoveAway);
            } else if examined.thread_id.is_none() {
                finding.remedy = Some(Remedy::MendSource);
            } else if matches!(
                examined.relation,
                Some(Relation::Ahead | Relation::Diverged)
            ) {
                // To an import that knows of no entry it is the application's.
                finding.remedy = Some(Remedy::Overwrite);
            }
            return Ok(Examined {
                found: vec![finding],
                ..examined
            });
        }
        let mut examined = match &item.name {
            Some(name) => beside(examiner, item, name, whole)?,
            None => Examined::default(),
        };
        let is_told = !examined.found.is_empty() || whole.has_failed(&item.ledger_key());
        if !is_told {
            examined
                .found
                .push(Finding::new(Check::NotImported, "it is not imported"));
        }
        Ok(examined)
    }
}

/// Why an entry's source is no session now.
fn without_item(examiner: &Examiner<'_>, entry: &Entry) -> Finding {
    let gone = || Finding::new(Check::SourceGone, "the source is gone");
    if entry.kind == Some(Kind::SubagentHistory) {
        let id = entry.source.split_once('#').map(|(_, id)| id);
        if !examiner.knows_subagents {
            let message = "the sub-agents file cannot be read";
            return Finding::new(Check::SourceUnreadable, message);
        }
        let records = &examiner.importer.subagents.records;
        return match records.iter().any(|record| Some(record.id.as_str()) == id) {
            true => {
                let message = "the sub-agent has a transcript, or no history, by now";
                Finding::new(Check::SourceAbsorbed, message)
            }
            false => gone(),
        };
    }
    let path = examiner.importer.workspace.join(&entry.source);
    match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => gone(),
        Err(error) => {
            let message = format!("the source cannot be looked at: {error}");
            Finding::new(Check::SourceUnreadable, message)
        }
        Ok(_) => {
            let message = "the source is an older copy, or a view, of another session by now";
            Finding::new(Check::SourceAbsorbed, message)
        }
    }
}

/// Whether an entry lies under the key of the source that it names. A path
/// that is not UTF-8 does not tell.
fn is_key_of(key: &Sha256, entry: &Entry) -> bool {
    *key == Sha256::of(entry.source.as_bytes()) || entry.source.contains('%')
}

/// A source without an entry, and what the store has under its name.
fn beside(
    examiner: &Examiner<'_>,
    item: &Item,
    name: &StoreName,
    whole: &Whole,
) -> Result<Examined> {
    let importer = examiner.importer;
    let layout = importer.store.layout();
    let mut lockstep = Lockstep::open(layout, name, examiner.shown)?;
    let source = match importer.read_source(item, &mut lockstep) {
        Ok(source) => source,
        Err(reject) => match reject.error {
            error @ (Error::Interrupted | Error::Store { .. } | Error::StoreIo { .. }) => {
                return Err(error);
            }
            error => {
                let message = format!("it is not imported, and gives no session: {error}");
                let found = match whole.has_failed(&item.ledger_key()) {
                    true => Vec::new(),
                    false => vec![Finding::new(Check::NotImported, message)],
                };
                return Ok(Examined {
                    found,
                    ..Examined::default()
                });
            }
        },
    };
    lockstep.finish(importer.interrupt)?;
    let header = source.reading.header.thread_id.as_deref();
    let mut examined = Examined {
        thread_id: Some(lineage::thread_id(header, name.as_str()).0),
        ..Examined::default()
    };
    let Some(stream) = lockstep.messages else {
        return Ok(examined);
    };
    let (seen, given) = (stream.seen, lockstep.given.messages);
    if let Some(damaged) = &seen.refused {
        let message = format!(
            "the application would refuse the stream: {}",
            describe(damaged)
        );
        examined
            .found
            .push(Finding::new(Check::StreamRefused, message));
        return Ok(examined);
    }
    let has_descriptor = layout.key_file(Namespace::Sessions, name.as_str()).exists();
    let is_of_import = whole.is_of_import(name);
    let relation = Relation::of(&seen, given);
    examined.relation = Some(relation);
    let agreed = seen.agreed;
    examined.found.push(match relation {
        Relation::Ahead if has_descriptor && !is_of_import => Finding::new(
            Check::ApplicationRecord,
            format!(
                "the application's own record agrees with all {} of the source, and has {} more",
                count(given, "message"),
                seen.records - given
            ),
        ),
        Relation::Ahead | Relation::First => {
            let message = format!(
                "it is not imported; a record that no entry vouches for agrees with {agreed} of \
                 its {}",
                count(given, "message")
            );
            Finding::new(Check::NotImported, message)
        }
        Relation::Diverged => {
            let message = format!(
                "it is not imported; a record that no entry vouches for goes another way after \
                 message {agreed}"
            );
            Finding::new(Check::NotImported, message)
        }
    });
    // An import leaves alone what is ahead, so the marker may count it.
    let changed_ms = item.stat.map_or(0, |stat| stat.ctime_ns / 1_000_000);
    let is_ahead = relation == Relation::Ahead && !is_of_import;
    examined.is_left_alone = is_ahead || whole.is_newer_than_marker(changed_ms);
    Ok(examined)
}
