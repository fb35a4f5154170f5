//! Sources that lie elsewhere than when they were imported: from a date folder
//! into the flat one, say. They take their keys along (`openhuman-workspace.md` §6).

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::Path;

use super::fingerprint::Fingerprint;
use super::identity::{Cluster, Identify};
use super::keys::Moved;
use crate::model::key::Sha256;
use crate::model::session::Kind;
use crate::source::openhuman::Format;
use crate::source::openhuman::discover::Found;
use crate::store::Store;
use crate::store::journal::StreamReader;
use crate::store::record::Entry;

/// Entries whose source is not there any more, by the stem it had.
pub(crate) struct Gone<'e> {
    by_stem: HashMap<String, Vec<(Sha256, &'e Entry)>>,
}

impl<'e> Gone<'e> {
    /// Finds them. A source that only cannot be looked at is not gone.
    pub(crate) fn new(
        workspace: &Path,
        files: &[Found],
        entries: &'e HashMap<Sha256, Entry>,
    ) -> Self {
        if entries.is_empty() {
            // A first import does not hash every path for nothing.
            return Self {
                by_stem: HashMap::new(),
            };
        }
        let there: HashSet<Sha256> = files.iter().map(|file| file.path.ledger_key()).collect();
        let mut by_stem: HashMap<String, Vec<_>> = HashMap::new();
        for (key, entry) in entries {
            if there.contains(key) || entry.kind == Some(Kind::SubagentHistory) {
                continue;
            }
            let looked_at = workspace.join(&entry.source).symlink_metadata();
            let is_gone = looked_at.is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
            let stem = Path::new(&entry.source).file_stem();
            if let (true, Some(stem)) = (is_gone, stem.and_then(|stem| stem.to_str())) {
                by_stem
                    .entry(stem.to_owned())
                    .or_default()
                    .push((*key, entry));
            }
        }
        for entries in by_stem.values_mut() {
            entries.sort_by(|a, b| a.1.source.cmp(&b.1.source));
        }
        Self { by_stem }
    }

    /// The entry under which a file was imported before it moved: same stem,
    /// and the same bytes, or its messages are the first of the file's.
    pub(crate) fn moved(
        &self,
        cluster: &Cluster,
        identify: &Identify<'_>,
        store: &Store,
    ) -> Option<Moved> {
        let candidates = self.by_stem.get(&*cluster.file.stem)?;
        let hash = identify.hash(&cluster.file).ok();
        let same = candidates
            .iter()
            .find(|(_, entry)| hash.is_some() && entry.sha256 == hash);
        let grown = || {
            candidates
                .iter()
                // A Markdown view holds less than the record of a JSONL that is gone.
                .filter(|(_, entry)| {
                    cluster.format == Format::Jsonl || entry.kind == Some(Kind::Markdown)
                })
                .find(|(_, entry)| is_first_of(entry, cluster, identify, store))
        };
        let (key, entry) = same.or_else(grown)?;
        Some(Moved {
            entry: *key,
            key: entry.session_key.clone(),
        })
    }
}

/// Whether the record's messages are the first of the file's.
fn is_first_of(entry: &Entry, cluster: &Cluster, identify: &Identify<'_>, store: &Store) -> bool {
    let Some(name) = entry.store_name() else {
        return false;
    };
    let stream = store.layout().stream_file(&name.messages());
    let Some(stored) = fingerprint_of_stream(&stream) else {
        return false;
    };
    // A record without a message is the beginning of anything, and so of nothing.
    if stored.count() == 0 {
        return false;
    }
    let marks = [stored.count()];
    let file = identify.fingerprint_of(cluster, &marks).ok().flatten();
    file.is_some_and(|file| file.first(stored.count()) == Some(stored.whole()))
}

fn fingerprint_of_stream(stream: &Path) -> Option<Fingerprint> {
    let mut reader = StreamReader::open(stream).ok()??;
    let mut print = Fingerprint::default();
    while let Some(record) = reader.next().ok()? {
        print.add_values(record.role.as_deref()?, record.content.as_deref()?);
    }
    Some(print)
}
