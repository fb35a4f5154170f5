//! From files and item ledger entries to items: what is a session, what is
//! its key, and is there anything to do about it.
//!
//! A plan comes from names, `stat`, the stat cache and item ledger entries;
//! files are opened only where those cannot tell.

pub(crate) mod cache;
pub(crate) mod decide;
pub(crate) mod fingerprint;
pub(crate) mod glance;
pub(crate) mod held_back;
pub(crate) mod identity;
pub(crate) mod keys;
pub(crate) mod moved;
pub(crate) mod survey;

use std::collections::HashSet;

use crate::fs::stat::Stat;
use crate::model::diagnostic::{Code, Diagnostic};
use crate::model::key::{SessionKey, Sha256, SourcePath, parent_stem};
use crate::model::session::{Kind, Session};
use crate::source::openhuman::Format;
use crate::source::openhuman::discover::{Found, Place};
use crate::source::openhuman::lineage::Stems;
use crate::source::openhuman::subagents::Subagent;
use crate::store::name::StoreName;
use crate::store::record::Entry;
use decide::Decision;
use keys::Keyed;

/// What an item is read from.
#[derive(Debug, Clone)]
pub(crate) enum Reads {
    /// A transcript.
    File(Format),
    /// A sub-agent's history.
    History(Box<Subagent>),
}

/// A session and a decision: one line of the plan.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) session: Session,
    pub(crate) reads: Reads,
    /// Where its file lies.
    pub(crate) place: Place,
    /// Its file as it was found.
    pub(crate) stat: Option<Stat>,
    /// Older copies of it.
    pub(crate) older: Vec<Found>,
    /// All Markdown views of it.
    pub(crate) companions: Vec<Found>,
    /// Its item ledger entry, if there is one.
    pub(crate) entry: Option<Box<Entry>>,
    /// The entry of the path that its source had before, if it moved.
    pub(crate) moved_from: Option<Box<Entry>>,
    /// Ledger keys of entries that its next entry replaces.
    pub(crate) replaces: Vec<Sha256>,
    pub(crate) decision: Decision,
    /// Its name in the store.
    pub(crate) name: Option<StoreName>,
    /// What was found about it so far.
    pub(crate) diagnostics: Vec<Diagnostic>,
}

impl Item {
    /// The entry that vouches for its record: its own, or that of the path it
    /// had before.
    pub(crate) fn record(&self) -> Option<&Entry> {
        self.entry.as_deref().or(self.moved_from.as_deref())
    }

    /// Bytes to read.
    pub(crate) fn bytes(&self) -> u64 {
        match &self.reads {
            Reads::File(_) => self.stat.map_or(0, |stat| stat.size),
            Reads::History(subagent) => subagent.bytes,
        }
    }

    /// The key of its item ledger entry.
    pub(crate) fn ledger_key(&self) -> Sha256 {
        self.session.source.ledger_key()
    }
}

/// Turns keyed clusters into items that are not decided yet.
pub(crate) fn items(
    keyed: Vec<Keyed>,
    mut entry: impl FnMut(&Sha256) -> Option<Entry>,
) -> Vec<Item> {
    // Only those that somebody may have as a parent: mostly they are few.
    let parents = keyed
        .iter()
        .filter_map(|of| parent_stem(&of.cluster.file.stem));
    let parents: HashSet<String> = parents.map(str::to_owned).collect();
    let mut stems = Stems::default();
    for Keyed { key, cluster, .. } in &keyed {
        for file in cluster.files().filter(|file| parents.contains(&*file.stem)) {
            stems.add(&file.stem, file.place.clone(), key.clone());
        }
    }
    let items = keyed.into_iter().map(|keyed| {
        let Keyed {
            key,
            cluster,
            replaces,
        } = keyed;
        let place = cluster.file.place.clone();
        let parent = stems.parent(&cluster.file.stem, &place);
        let (parent_stem, parent) = parent.map_or((None, None), |(stem, key)| (Some(stem), key));
        let source = cluster.file.path.clone();
        let mut diagnostics = cluster.diagnostics;
        diagnostics.extend(cluster.companions.iter().map(|view| {
            let message = format!("{} is this session's Markdown companion", view.path);
            Diagnostic::new(Code::Companion, message)
        }));
        let moved_from = replaces.first().and_then(&mut entry);
        let own = entry(&source.ledger_key()).filter(|entry| entry.session_key == key);
        let session = Session {
            key,
            stem: cluster.file.stem.clone(),
            kind: kind(&place),
            profile: match &place {
                Place::Profile(id) => Some(id.to_string()),
                _ => None,
            },
            // The newest view: earlier days' hold less of the session.
            companion: cluster.companions.last().map(|file| file.path.clone()),
            parent,
            parent_stem,
            source,
        };
        Item {
            reads: Reads::File(cluster.format),
            place,
            stat: cluster.file.stat,
            older: cluster.older,
            companions: cluster.companions,
            entry: own.map(Box::new),
            replaces,
            decision: Decision::Undecided,
            name: None,
            diagnostics,
            moved_from: moved_from.map(Box::new),
            session,
        }
    });
    items.collect()
}

/// The item of a sub-agent whose only messages are in its record.
pub(crate) fn history_item(
    subagent: Subagent,
    file: &SourcePath,
    parent: Option<SessionKey>,
    entry: Option<Entry>,
) -> Item {
    let key = SessionKey::new(format!("subagent-{}", subagent.id));
    let mut diagnostics = Vec::new();
    if let (Some(named), None) = (&subagent.parent_session, &parent) {
        let message = format!("the parent session {named} is not in the workspace");
        diagnostics.push(Diagnostic::new(Code::ParentMissing, message));
    }
    Item {
        session: Session {
            stem: key.shared().clone(),
            key,
            kind: Kind::SubagentHistory,
            source: SourcePath::record(file.relative(), subagent.id.clone()),
            profile: None,
            companion: None,
            parent,
            // Its parent comes from the record, so there is nothing to check
            // it against.
            parent_stem: None,
        },
        reads: Reads::History(Box::new(subagent)),
        place: Place::Flat,
        stat: None,
        older: Vec::new(),
        companions: Vec::new(),
        entry: entry.map(Box::new),
        replaces: Vec::new(),
        decision: Decision::Undecided,
        name: None,
        diagnostics,
        moved_from: None,
    }
}

/// The kind of a file by where it lies.
pub(crate) fn kind(place: &Place) -> Kind {
    match place {
        Place::Flat | Place::Profile(_) => Kind::Jsonl,
        Place::Date(_) => Kind::JsonlLegacyDir,
        Place::Markdown(_) | Place::LooseMarkdown(_) => Kind::Markdown,
    }
}
