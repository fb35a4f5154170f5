//! A session that may be undone, by its item ledger entries.

use std::collections::HashSet;
use std::path::Path;

use crate::model::diagnostic::Diagnostic;
use crate::model::key::{SessionKey, Sha256, SourcePath};
use crate::plan::survey::SUBAGENTS;
use crate::report::{UndoAction, UndoItem};
use crate::source::openhuman::discover::discover;
use crate::source::openhuman::subagents::Subagents;
use crate::store::name::StoreName;
use crate::store::record::Entry;
use crate::store::traces::{CutOff, Vouched};

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
    /// Its source does not give all of it any more.
    pub(super) is_only_copy: bool,
    /// The existing importer's entry, with what `accept` added to it taken off.
    pub(super) theirs: Option<Box<Entry>>,
    /// Its entry, with what `accept` added taken off, if that is all that may go.
    pub(super) unaccepted: Option<Box<Entry>>,
    /// Its entries: two where a source that moved was cut off in between.
    pub(super) keys: Vec<Sha256>,
    /// What they vouch for; none where only a failure was accepted.
    pub(super) vouched: Vec<Vouched>,
}

/// An entry, whosever it is.
pub(super) struct Noted {
    /// The name that it vouches for or has given.
    pub(super) name: Option<StoreName>,
    /// The session, if there is anything of it to undo.
    pub(super) session: Option<Session>,
}

impl Noted {
    pub(super) fn of(key: Sha256, entry: Entry) -> Self {
        let is_ours = entry.is_ours();
        let is_wanted = is_ours || entry.accepted.is_some();
        Self {
            name: entry.store_name(),
            session: is_wanted.then(|| Session::of(key, entry)),
        }
    }
}

impl Session {
    pub(super) fn of(key: Sha256, mut entry: Entry) -> Self {
        let is_ours = entry.is_ours();
        let was_accepted = entry.accepted.take().is_some();
        Self {
            unaccepted: (is_ours && was_accepted).then(|| Box::new(entry.clone())),
            theirs: (!is_ours).then(|| Box::new(entry.clone())),
            vouched: Vouched::of(&entry).into_iter().collect(),
            is_unusable: entry.has_record() && entry.store_name().is_none(),
            session_key: entry.session_key,
            source: entry.source,
            messages: entry.messages,
            is_replacement: entry.replaced.is_some(),
            is_gone: false,
            is_only_copy: false,
            keys: vec![key],
        }
    }

    /// One that no entry names yet.
    pub(super) fn cut_off(found: CutOff) -> Self {
        let key = found.session_key.as_str();
        let id = key.strip_prefix("subagent-").unwrap_or(key);
        // Without a file it comes from the sub-agents file.
        let source = found.source.unwrap_or_else(|| format!("{SUBAGENTS}#{id}"));
        Self {
            session_key: found.session_key,
            source,
            messages: found.messages,
            is_replacement: false,
            is_unusable: false,
            is_gone: false,
            is_only_copy: false,
            theirs: None,
            unaccepted: None,
            keys: Vec::new(),
            vouched: vec![found.vouched],
        }
    }

    /// The id of the sub-agent whose history it is, if it is one.
    pub(super) fn history(&self) -> Option<&str> {
        self.source.strip_prefix(SUBAGENTS)?.strip_prefix('#')
    }

    /// The key of its entry, if it had one.
    pub(super) fn source_key(&self) -> Option<Sha256> {
        let path = match self.history() {
            Some(id) => SourcePath::record(SUBAGENTS, id),
            None => SourcePath::file(&self.source),
        };
        self.keys.is_empty().then(|| path.ledger_key())
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

/// Notes whose source is not there any more. One that only cannot be
/// looked at is not gone.
pub(super) fn note_gone(workspace: &Path, sessions: &mut [Session]) {
    if sessions.is_empty() {
        return;
    }
    let found = discover(workspace).files;
    let mut there: HashSet<Sha256> = found.iter().map(|f| f.path.ledger_key()).collect();
    let has_history = sessions.iter().any(|session| session.history().is_some());
    let mut is_unknown = false;
    if has_history {
        let (subagents, trouble) = Subagents::read(workspace);
        is_unknown = !trouble.is_empty() && workspace.join(SUBAGENTS).exists();
        let with_history = subagents.records.into_iter().filter(|r| r.history_len > 0);
        there.extend(with_history.map(|r| SourcePath::record(SUBAGENTS, r.id).ledger_key()));
    }
    for session in sessions {
        let source = session.source_key();
        let mut keys = session.keys.iter().chain(&source);
        if keys.any(|key| there.contains(key)) {
            continue;
        }
        session.is_gone = match session.history() {
            Some(_) => !is_unknown,
            None => is_gone(&workspace.join(&session.source)),
        };
    }
}

fn is_gone(path: &Path) -> bool {
    let looked_at = path.symlink_metadata();
    looked_at.is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
}
