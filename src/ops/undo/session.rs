//! A session that may be undone, by its item ledger entries.

use crate::model::diagnostic::Diagnostic;
use crate::model::key::{SessionKey, Sha256};
use crate::report::{UndoAction, UndoItem};
use crate::store::record::Entry;
use crate::store::traces::Vouched;

/// A session that imports of ours brought.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) session_key: SessionKey,
    pub(super) source: String,
    pub(super) messages: u64,
    pub(super) is_replacement: bool,
    /// Its entry names no stream of messages, so nobody knows what it
    /// vouches for.
    pub(super) is_unusable: bool,
    pub(super) is_gone: bool,
    /// The existing importer's entry, with what `accept` added to it taken off.
    pub(super) theirs: Option<Box<Entry>>,
    /// Its entries: two where a source that moved was cut off in between.
    pub(super) keys: Vec<Sha256>,
    /// What they vouch for; none where only a failure was accepted.
    pub(super) vouched: Vec<Vouched>,
}

impl Session {
    pub(super) fn of(key: Sha256, mut entry: Entry) -> Self {
        let is_ours = entry.is_ours();
        entry.accepted = None;
        Self {
            theirs: (!is_ours).then(|| Box::new(entry.clone())),
            vouched: Vouched::of(&entry).into_iter().collect(),
            is_unusable: entry.has_record() && entry.store_name().is_none(),
            session_key: entry.session_key,
            source: entry.source,
            messages: entry.messages,
            is_replacement: entry.replaced.is_some(),
            is_gone: false,
            keys: vec![key],
        }
    }

    /// Takes over what another entry says of the same files.
    pub(super) fn join(&mut self, other: Self) {
        self.is_replacement |= other.is_replacement;
        self.keys.extend(other.keys);
        self.vouched.extend(other.vouched);
    }

    pub(super) fn item(&self, action: UndoAction, why: Option<Diagnostic>, bytes: u64) -> UndoItem {
        let stream = self.vouched.first().map(|one| one.name.messages());
        UndoItem {
            session_key: self.session_key.to_string(),
            source: self.source.clone(),
            action,
            // Of an accepted failure nothing was imported.
            messages: stream.as_ref().map_or(0, |_| self.messages),
            stream: stream.map(|stream| stream.as_str().to_owned()),
            bytes,
            warnings: why.iter().map(Diagnostic::sentence).collect(),
            diagnostics: why.into_iter().collect(),
        }
    }
}
