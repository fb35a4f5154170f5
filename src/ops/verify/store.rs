//! What belongs to no single entry: the marker, failures, what nothing vouches
//! for, and files that an import left lying.

use std::collections::{BTreeSet, HashMap, HashSet};

use chrono::DateTime;
use serde_json::Value;

use crate::error::Result;
use crate::model::check::Check;
use crate::model::key::{SessionKey, Sha256};
use crate::model::plural::count;
use crate::model::remedy::Remedy;
use crate::ops::options::Only;
use crate::plan::Item;
use crate::report::Finding;
use crate::store::layout::{JOURNAL, KV, MARKER_KEY, Namespace, key_file_name};
use crate::store::name::{StoreName, StreamName};
use crate::store::record::{Entry, Failure, Marker, RULES};
use crate::store::{Damaged, Store, kv};

/// How many sessions are named where the marker counts more than there are.
const NAMED: usize = 3;

/// A store's records that are no session's.
pub(super) struct Whole {
    pub(super) entries: HashMap<Sha256, Entry>,
    damaged: HashMap<Sha256, String>,
    failures: HashMap<Sha256, Failure>,
    damaged_failures: Vec<Damaged>,
    marker: Option<Result<Marker, Damaged>>,
    marker_bytes: Vec<u8>,
    lacks_format: bool,
    /// Names of sessions that an import of ours put in place, without an entry.
    cut_off: HashSet<StoreName>,
    /// Sessions without an entry that an import would leave to the application.
    pub(super) left_alone: u64,
}

impl Whole {
    pub(super) fn read(store: &Store, is_format_missing: bool) -> Result<Self> {
        let entries = store.entries()?;
        let failures = store.failures()?;
        let marker = store.layout().key_file(Namespace::Markers, MARKER_KEY);
        let names = entries.by_key.values().filter_map(Entry::store_name);
        let cut_off = store.cut_off(&names.collect())?;
        let key = |damaged: &Damaged| damaged.key.parse().ok();
        let damaged = entries.damaged.into_iter();
        Ok(Self {
            damaged: damaged
                .filter_map(|damaged| Some((key(&damaged)?, damaged.reason)))
                .collect(),
            entries: entries.by_key.into_iter().collect(),
            failures: failures.by_key.into_iter().collect(),
            damaged_failures: failures.damaged,
            marker: kv::get(store.layout(), Namespace::Markers, MARKER_KEY)?,
            marker_bytes: match kv::read(&marker)? {
                Some(Ok(bytes)) => bytes,
                _ => Vec::new(),
            },
            lacks_format: is_format_missing && store.exists(),
            cut_off: cut_off.into_iter().map(|it| it.vouched.name).collect(),
            left_alone: 0,
        })
    }

    /// Why the entry of a source cannot be read.
    pub(super) fn damaged_entry(&self, key: &Sha256) -> Option<&str> {
        self.damaged.get(key).map(String::as_str)
    }

    /// Whether the last import of a source failed.
    pub(super) fn has_failed(&self, key: &Sha256) -> bool {
        self.failures.contains_key(key)
    }

    /// The marker, if it is one that counts.
    fn our_marker(&self) -> Option<&Marker> {
        let marker = self.marker.as_ref()?.as_ref().ok()?;
        marker.is_ours().then_some(marker)
    }

    /// Whether a record without an entry is an import's, not the application's.
    pub(super) fn is_of_import(&self, name: &StoreName) -> bool {
        self.cut_off.contains(name)
    }

    /// Whether something at this time, in milliseconds since 1970, came after
    /// the import that the marker is of.
    pub(super) fn is_newer_than_marker(&self, ms: i64) -> bool {
        let time = |marker: &Marker| DateTime::parse_from_rfc3339(&marker.imported_at).ok();
        let marker = self.our_marker().and_then(time);
        marker.is_some_and(|time| ms > time.timestamp_millis())
    }

    /// What there is to say about it all; of failures alone, if only some
    /// sessions were asked for (`behaviour.md`, run: `--only` neither looks at
    /// nor writes the marker).
    pub(super) fn judge(
        &self,
        store: &Store,
        entries: &HashMap<Sha256, Entry>,
        items: &[&Item],
        only: &Only,
    ) -> Result<Vec<Finding>> {
        let mut found: Vec<Finding> = self.failures(only).collect();
        if !only.is_all() {
            return Ok(found);
        }
        let sources: HashSet<Sha256> = items.iter().map(|item| item.ledger_key()).collect();
        let lost = self
            .damaged
            .iter()
            .filter(|(key, _)| !sources.contains(*key));
        found.extend(lost.map(|(key, reason)| {
            let message =
                format!("an item ledger entry cannot be read, and no source is its: {reason}");
            let key = key.to_string();
            let finding = of_key(Check::EntryDamaged, Namespace::Items, &key, message);
            match store.is_in_the_way(Namespace::Items, &key) {
                true => finding,
                false => finding.helped_by(Remedy::CopyOrRemove),
            }
        }));
        found.extend(self.damaged_failures.iter().map(|damaged| {
            let message = format!(
                "the record of a failed item cannot be read: {}",
                damaged.reason
            );
            of_key(
                Check::FailureDamaged,
                Namespace::Failed,
                &damaged.key,
                message,
            )
        }));
        let strangers = Strangers::of(store, self, entries, items)?;
        found.extend(self.marker(store, entries, items, strangers.complete));
        if items.is_empty() {
            // Without a session a run writes nothing, and these vouch for none.
            let of_run = found.iter_mut().filter(|finding| is_of_run(finding.code));
            of_run.for_each(|finding| finding.remedy = Some(Remedy::Remove));
        }
        found.extend(strangers.found);
        found.extend(files(store)?);
        if self.lacks_format {
            let message = "the store does not say of what format it is";
            found.push(Finding::new(Check::NoFormat, message));
        }
        Ok(found)
    }

    fn failures(&self, only: &Only) -> impl Iterator<Item = Finding> {
        let chosen = self
            .failures
            .values()
            .filter(move |failure| only.has(&failure.session_key));
        chosen.map(|failure| Finding {
            session_key: Some(failure.session_key.to_string()),
            source: Some(failure.source.clone()),
            ..Finding::new(
                Check::FailedItem,
                format!("{}: {}", failure.code, failure.message),
            )
        })
    }

    /// The marker against the ledger. `strangers` are records without an entry
    /// and without a source: the application may go on in a session whose
    /// source is gone.
    fn marker(
        &self,
        store: &Store,
        entries: &HashMap<Sha256, Entry>,
        items: &[&Item],
        strangers: u64,
    ) -> Option<Finding> {
        let of_marker =
            |code, message: String| Some(of_key(code, Namespace::Markers, MARKER_KEY, message));
        if let Some(Err(damaged)) = &self.marker {
            let message = format!("the marker cannot be read: {}", damaged.reason);
            return of_marker(Check::MarkerDamaged, message);
        }
        let Some(marker) = self.our_marker() else {
            let is_begun = store.exists() && !(entries.is_empty() && self.failures.is_empty());
            let message = "there is no marker of a completed import".to_owned();
            return is_begun.then(|| Finding::new(Check::NoMarker, message));
        };
        let failed = self.failures.len();
        if failed > 0 {
            let failed = count(failed as u64, "failed item");
            let message = format!("there is a marker, and {failed}");
            return of_marker(Check::MarkerWithFailures, message);
        }
        let Marker {
            scanned,
            imported,
            skipped,
            failed,
            ..
        } = marker;
        if !marker.adds_up() {
            let message = format!(
                "the marker counts {}, {imported} imported, {skipped} skipped, \
                 {failed} failed",
                count(*scanned, "session")
            );
            return of_marker(Check::MarkerCounts, message);
        }
        if !marker.is_sound(&self.marker_bytes) {
            let message = "the marker does not have the bytes that are written".to_owned();
            return of_marker(Check::MarkerDamaged, message);
        }
        // A damaged one was there, and is told by itself.
        let is_ours = |entry: &&Entry| entry.is_ours() || entry.tool.is_some();
        let ours = entries.values().filter(is_ours).count() + self.damaged.len();
        let vouched = ours as u64 + self.left_alone + strangers;
        if *scanned > vouched {
            let verb = if vouched == 1 { "is" } else { "are" };
            let counted = count(*scanned, "session");
            let mut message =
                format!("the marker counts {counted}, and {vouched} {verb} vouched for");
            let missing: BTreeSet<&SessionKey> = items
                .iter()
                .filter(|item| item.entry.is_none())
                .map(|item| &item.session.key)
                .collect();
            if !missing.is_empty() {
                let named: Vec<_> = missing.iter().take(NAMED).map(|key| key.as_str()).collect();
                let more = if missing.len() > NAMED { ", …" } else { "" };
                message += &format!("; without an entry: {}{more}", named.join(", "));
            }
            return of_marker(Check::MarkerCounts, message);
        }
        if marker.rules != Some(RULES) {
            let message = "the last complete import went by other reading rules";
            return Some(Finding::new(Check::OtherRules, message));
        }
        None
    }
}

/// Streams and descriptors that no entry vouches for.
struct Strangers {
    found: Vec<Finding>,
    /// How many are whole records.
    complete: u64,
}

impl Strangers {
    fn of(
        store: &Store,
        whole: &Whole,
        entries: &HashMap<Sha256, Entry>,
        items: &[&Item],
    ) -> Result<Self> {
        // An entry that was settled before anything was imported has a name,
        // and vouches for nothing.
        let is_record = |entry: &&Entry| entry.has_record() || !entry.is_ours();
        // The next command that writes removes what an undo did not get to.
        let being_undone = store.being_undone()?.by_key;
        let vouched: HashSet<StoreName> = entries
            .values()
            .chain(being_undone.values())
            .filter(is_record)
            .filter_map(Entry::store_name)
            .collect();
        let of_items: HashSet<&StoreName> =
            items.iter().filter_map(|item| item.name.as_ref()).collect();
        let is_known = |name: &StoreName| vouched.contains(name) || of_items.contains(name);
        let streams = store.stream_names()?;
        let descriptors = store.descriptor_names()?;
        let mut names: BTreeSet<StoreName> =
            streams.iter().filter_map(StreamName::of_messages).collect();
        names.extend(descriptors.iter().cloned());
        names.retain(|name| !is_known(name));
        let mut all = Self {
            found: Vec::new(),
            complete: 0,
        };
        for name in names {
            let stream = streams.contains(&name.messages());
            let descriptor = descriptors.contains(&name);
            all.add(store, whole, &name, stream, descriptor);
        }
        let residues = streams.iter().filter_map(StreamName::of_residue);
        let is_orphan = |name: &StoreName| !(is_known(name) || whole.is_of_import(name));
        let orphans: BTreeSet<_> = residues.filter(is_orphan).collect();
        all.found.extend(orphans.into_iter().map(|name| {
            let message = "no item ledger entry vouches for it, and no source is its";
            in_file(Check::ResidueOrphan, &name.residue(), message)
        }));
        Ok(all)
    }

    fn add(
        &mut self,
        store: &Store,
        whole: &Whole,
        name: &StoreName,
        has_stream: bool,
        has_descriptor: bool,
    ) {
        let descriptor = store.descriptor(name).ok().flatten();
        let key = descriptor.map(|descriptor| descriptor.session_key.to_string());
        let file = key_file(Namespace::Sessions, name.as_str());
        let finding = match (has_stream, has_descriptor) {
            (true, true) if whole.is_of_import(name) => {
                let message = "an import put it in place, and its entry is gone";
                in_file(Check::UnfinishedRecord, &name.messages(), message)
            }
            (true, true) => {
                self.complete += 1;
                let message = match &key {
                    Some(_) => "the application's own",
                    None => "the application's own; its descriptor cannot be read",
                };
                in_file(Check::ApplicationRecord, &name.messages(), message)
            }
            (true, false) => {
                let message = "a stream without a descriptor";
                in_file(Check::UnfinishedRecord, &name.messages(), message)
            }
            (false, _) => Finding {
                file: Some(file),
                ..Finding::new(Check::UnfinishedRecord, "a descriptor without a stream")
            },
        };
        self.found.push(Finding {
            session_key: key,
            ..finding
        });
    }
}

/// Files that an import left lying, and reports of imports.
fn files(store: &Store) -> Result<Vec<Finding>> {
    let layout = store.layout();
    let mut found = Vec::new();
    for path in store.leftovers()? {
        let file = path.strip_prefix(layout.root()).unwrap_or(&path);
        found.push(Finding {
            file: Some(file.display().to_string()),
            ..Finding::new(Check::LeftoverFile, "left by an import that was cut off")
        });
    }
    for key in kv::list(layout, Namespace::Imports)? {
        if let Some(Err(damaged)) = kv::get::<Value>(layout, Namespace::Imports, &key)? {
            let message = format!("the report of an import cannot be read: {}", damaged.reason);
            found.push(of_key(
                Check::ImportReportDamaged,
                Namespace::Imports,
                &key,
                message,
            ));
        }
    }
    Ok(found)
}

/// Whether it is about what the end of a run writes.
fn is_of_run(code: Check) -> bool {
    matches!(
        code,
        Check::FailureDamaged
            | Check::MarkerDamaged
            | Check::MarkerCounts
            | Check::MarkerWithFailures
    )
}

/// A key's file, relative to the store.
pub(super) fn key_file(namespace: Namespace, key: &str) -> String {
    format!("{KV}/{}/{}", namespace.as_str(), key_file_name(key))
}

fn of_key(code: Check, namespace: Namespace, key: &str, message: String) -> Finding {
    Finding {
        file: Some(key_file(namespace, key)),
        ..Finding::new(code, message)
    }
}

fn in_file(code: Check, stream: &StreamName, message: &str) -> Finding {
    Finding {
        file: Some(format!("{JOURNAL}/{}", stream.file_name())),
        ..Finding::new(code, message)
    }
}
