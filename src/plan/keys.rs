//! Session keys: given once, kept for ever (`openhuman-workspace.md` §6).

use std::collections::{BTreeSet, HashMap};

use super::identity::Cluster;
use crate::model::diagnostic::{Code, Diagnostic};
use crate::model::key::{SessionKey, Sha256};
use crate::source::openhuman::discover::Found;

/// Keys that item ledger entries have given to sources, by ledger key.
pub(crate) type Given = HashMap<Sha256, SessionKey>;

/// A key that entries have given, and the ledger keys of those that give way.
type Owned = (SessionKey, Vec<Sha256>);

/// A cluster with its key.
#[derive(Debug)]
pub(crate) struct Keyed {
    pub(crate) key: SessionKey,
    /// Boxed: a plan goes through several lists, and only one of them is to be
    /// large at a time.
    pub(crate) cluster: Box<Cluster>,
    /// Ledger keys of entries that this session's next entry replaces: its
    /// source was another file then.
    pub(crate) replaces: Vec<Sha256>,
}

/// A file that lay under another path when it was imported.
#[derive(Debug)]
pub(crate) struct Moved {
    /// Ledger key of the entry whose source is gone.
    pub(crate) entry: Sha256,
    /// The key that moves along.
    pub(crate) key: SessionKey,
}

/// Gives every cluster its key. `moved` says of a cluster without an entry
/// whether its file was imported under another path, now gone.
#[expect(clippy::vec_box, reason = "see Keyed::cluster")]
pub(crate) fn assign(
    clusters: Vec<Box<Cluster>>,
    given: &Given,
    mut moved: impl FnMut(&Cluster) -> Option<Moved>,
) -> Vec<Keyed> {
    // A key that an entry has given is nobody else's, also while its source
    // is gone: the record may be the only copy left.
    let mut taken: BTreeSet<SessionKey> = given.values().cloned().collect();
    let mut used: BTreeSet<SessionKey> = BTreeSet::new();
    let mut settled: Vec<(Option<Owned>, Box<Cluster>)> = Vec::new();
    for cluster in clusters {
        let own = of_entries(&cluster, given).filter(|(key, _)| !used.contains(key));
        let own = own.or_else(|| {
            let moved = moved(&cluster)?;
            (!used.contains(&moved.key)).then(|| (moved.key, vec![moved.entry]))
        });
        if let Some((key, _)) = &own {
            used.insert(key.clone());
        }
        settled.push((own, cluster));
    }
    // Plain stems first, so that a suffixed key never takes one away.
    let mut seen_stem = BTreeSet::new();
    let mut is_plain = Vec::new();
    for (own, cluster) in &settled {
        let stem = SessionKey::new(cluster.file.stem.clone());
        let is_first = seen_stem.insert(stem.clone());
        let plain = own.is_none() && is_first && !taken.contains(&stem);
        if plain {
            taken.insert(stem);
        }
        is_plain.push(plain);
    }
    let all = settled.into_iter().zip(is_plain);
    all.map(|((own, mut cluster), is_plain)| {
        let (key, replaces) = own.unwrap_or_else(|| {
            let stem = SessionKey::new(cluster.file.stem.clone());
            let key = if is_plain {
                stem
            } else {
                suffixed(&cluster.file, &taken)
            };
            (key, Vec::new())
        });
        taken.insert(key.clone());
        if *key.shared() != cluster.file.stem {
            let message = format!(
                "another session has the stem {} as its key; this one is {key}",
                cluster.file.stem
            );
            cluster
                .diagnostics
                .push(Diagnostic::new(Code::SameStem, message));
        }
        Keyed {
            key,
            cluster,
            replaces,
        }
    })
    .collect()
}

/// The key by the cluster's own entries: that of the file that is imported,
/// else that of the first older copy that has one. Entries of other files
/// with that key give way to the new one.
fn of_entries(cluster: &Cluster, given: &Given) -> Option<Owned> {
    let entries = cluster.files().filter_map(|file| {
        let entry = file.path.ledger_key();
        given.get(&entry).map(|key| (entry, key))
    });
    let entries: Vec<_> = entries.collect();
    let (_, key) = entries.first()?;
    let own = cluster.file.path.ledger_key();
    let replaces = entries
        .iter()
        .filter(|(entry, other)| *entry != own && other == key)
        .map(|(entry, _)| *entry);
    Some(((*key).clone(), replaces.collect()))
}

/// `{stem}.{folder}`, then `-md` for Markdown, then `-{hash of the path}`.
fn suffixed(file: &Found, taken: &BTreeSet<SessionKey>) -> SessionKey {
    let base = format!("{}.{}", file.stem, file.place.suffix());
    let mut key = SessionKey::new(base.clone());
    if taken.contains(&key) && file.place.is_markdown() {
        key = SessionKey::new(format!("{base}-md"));
    }
    if taken.contains(&key) {
        let hash = file.path.ledger_key().short(8);
        key = SessionKey::new(format!("{base}-{hash}"));
    }
    key
}
