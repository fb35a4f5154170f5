//! What a run would find, as far as names, sizes and times tell: for `status`,
//! which opens no source and no stream.
//!
//! The rules are those of [`super::decide`]. Where they ask for a file's bytes,
//! the answer here is that a run would look at it.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use chrono::DateTime;

use super::cache::{Role, Stamp, StatCache};
use super::identity::{day_of, has_unix_time};
use super::survey::SUBAGENTS;
use crate::fs::stat::Stat;
use crate::model::key::{SessionKey, Sha256};
use crate::model::session::{Kind, Lines};
use crate::report::State;
use crate::source::openhuman::discover::{Found, Place};
use crate::store::clock::Clock;
use crate::store::layout::{Layout, Namespace};
use crate::store::name::{StoreName, StreamName};
use crate::store::record::{Entry, Failure, RULES};

/// What is needed of an entry: a hundred thousand are held at once.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) source: String,
    pub(crate) is_ours: bool,
    pub(crate) has_record: bool,
    pub(crate) is_damaged: bool,
    pub(crate) messages: u64,
    pub(crate) lines: Lines,
    /// The residue stream has what the source has no longer, perhaps among
    /// other lines.
    pub(crate) has_dropped: bool,
    pub(crate) rejected: u64,
    pub(crate) interrupted: u64,
    pub(crate) compactions: u64,
    kind: Option<Kind>,
    /// Size and mtime of the source.
    size: u64,
    mtime_ms: u64,
    /// The same of the source as it was accepted.
    accepted: Option<(u64, u64)>,
    name: Option<StoreName>,
    is_current: bool,
    is_unsettled: bool,
    imported_at_ms: i64,
}

impl Known {
    /// Takes it from an entry.
    pub(crate) fn of(entry: Entry) -> Self {
        let imported_at = DateTime::parse_from_rfc3339(&entry.imported_at);
        Self {
            is_ours: entry.is_ours(),
            has_record: entry.has_record(),
            is_damaged: entry.has_lost_its_hash(),
            messages: entry.messages,
            has_dropped: entry.residue_sha256.is_some()
                && entry.lines.is_some_and(|lines| lines.residue == 0),
            lines: entry.lines.unwrap_or_default(),
            rejected: entry.rejected.unwrap_or(0),
            interrupted: entry.interrupted.unwrap_or(0),
            compactions: entry.compactions.unwrap_or(0),
            kind: entry.kind,
            size: entry.size,
            mtime_ms: entry.mtime_ms,
            accepted: entry.accepted.as_ref().map(|a| (a.size, a.mtime_ms)),
            name: entry.store_name(),
            is_current: entry.rules.unwrap_or(0) >= RULES,
            is_unsettled: entry.unsettled == Some(true),
            imported_at_ms: imported_at.map_or(i64::MIN, |time| time.timestamp_millis()),
            source: entry.source,
        }
    }
}

/// All there is to tell by.
pub(crate) struct Glance<'a> {
    pub(crate) workspace: &'a Path,
    pub(crate) layout: &'a Layout,
    pub(crate) clock: &'a Clock,
    pub(crate) cache: &'a StatCache,
    pub(crate) entries: &'a HashMap<Sha256, Known>,
    /// Ledger keys of entries that cannot be read.
    pub(crate) damaged: &'a HashSet<Sha256>,
    pub(crate) failures: &'a HashMap<Sha256, Failure>,
    pub(crate) streams: &'a HashSet<StreamName>,
    pub(crate) descriptors: &'a HashSet<StoreName>,
    /// There is no marker: the last import may have been cut off.
    pub(crate) was_cut_off: bool,
}

/// A session, or what may be one.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) state: State,
    /// Why, in words.
    pub(crate) reason: String,
    pub(crate) source: String,
    /// Bytes of the source.
    pub(crate) bytes: u64,
}

/// The sub-agents file, as it lies there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Subagents {
    Absent,
    Since(i64),
}

impl Glance<'_> {
    /// The sessions, and the number of files that are none.
    pub(crate) fn sessions(&self, files: &[Found]) -> (Vec<Seen>, u64) {
        let mut by_stem: HashMap<&str, Vec<&Found>> = HashMap::new();
        for file in files {
            by_stem.entry(&file.stem).or_default().push(file);
        }
        let there: HashSet<Sha256> = files.iter().map(|file| file.path.ledger_key()).collect();
        let gone = self.entries.iter().filter(|(key, _)| !there.contains(key));
        let mut seen: Vec<Seen> = gone.map(|(_, known)| self.without_file(known)).collect();
        let gone = seen.iter().filter(|seen| seen.state == State::SourceGone);
        let gone = gone.filter_map(|seen| Path::new(&seen.source).file_stem()?.to_str());
        let gone: HashSet<String> = gone.map(str::to_owned).collect();
        let mut others = 0;
        for file in files {
            let of_stem = by_stem.get(&*file.stem).map_or(&[][..], Vec::as_slice);
            match self.file(file, of_stem, &gone) {
                Some(found) => seen.push(found),
                None => others += 1,
            }
        }
        seen.extend(self.new_histories());
        seen.sort_by(|a, b| a.source.cmp(&b.source));
        (seen, others)
    }

    /// `None` if it is no session.
    fn file(&self, file: &Found, of_stem: &[&Found], gone: &HashSet<String>) -> Option<Seen> {
        let key = file.path.ledger_key();
        let mut role = self.cache.role(&file.path, file.stat);
        match role {
            Some(Role::NoTranscript) => return None,
            Some(Role::OlderCopy { of } | Role::Companion { of }) => {
                if self.is_remembered(of, of_stem) {
                    return None;
                }
                role = None;
            }
            Some(Role::Source { .. }) | None => {}
        }
        let source = file.path.to_string();
        let known = self.entries.get(&key);
        let (mut state, mut reason) = match known {
            Some(known) => self.imported(file, &key, known, role),
            None if self.damaged.contains(&key) => (State::Outdated, ENTRY_DAMAGED),
            None => self.without_entry(file, of_stem, gone, role)?,
        };
        if let Some(failure) = self.failures.get(&key)
            && !matches!(state, State::UpToDate | State::Accepted | State::Ahead)
        {
            let is_same = file.stat.is_none_or(|stat| {
                self.is_at(&stat, failure.size, self.clock.cap_mtime(failure.mtime_ms))
            });
            if is_same {
                (state, reason) = (State::Failed, failure.code.as_str());
            } else {
                (state, reason) = (State::Changed, "changed since it failed");
            }
        }
        Some(Seen {
            state,
            reason: reason.to_owned(),
            source,
            bytes: file.stat.map_or(0, |stat| stat.size),
        })
    }

    /// Whether a run takes from the cache what belongs to the session with
    /// this key: the files of the stem are all as they were, and it is there.
    fn is_remembered(&self, of: &SessionKey, of_stem: &[&Found]) -> bool {
        let roles = || {
            let all = of_stem.iter();
            all.map(|file| self.cache.role(&file.path, file.stat))
        };
        let is_it =
            |role: Option<&Role>| matches!(role, Some(Role::Source { key, .. }) if key == of);
        roles().all(|role| role.is_some()) && roles().any(is_it)
    }

    /// In the order of [`super::decide::Decide::decide`].
    fn imported(
        &self,
        file: &Found,
        key: &Sha256,
        known: &Known,
        role: Option<&Role>,
    ) -> (State, &'static str) {
        if self.is_ahead(known.name.as_ref(), role) {
            return AHEAD;
        }
        let Some(stat) = file.stat else {
            return (State::ToLookAt, "it cannot be looked at");
        };
        const SAME: (State, &str) = (
            State::ToLookAt,
            "size and time are the same; its bytes are compared",
        );
        if let Some((size, mtime_ms)) = known.accepted {
            match (self.is_at(&stat, size, mtime_ms), role) {
                (true, Some(_)) => return (State::Accepted, "accepted"),
                (true, None) => return SAME,
                (false, _) if !known.has_record => {
                    return (State::Changed, "changed since it was accepted");
                }
                (false, _) => {}
            }
        }
        if !known.is_ours {
            return (State::EarlierImporter, "imported by the earlier importer");
        }
        if !known.is_current {
            return (State::Outdated, "imported by older rules");
        }
        if known.is_unsettled {
            return (State::Outdated, "was being written when last read");
        }
        if !self.is_at(&stat, known.size, known.mtime_ms) {
            return (State::Changed, "its size or time changed");
        }
        if !self.has_record(known) {
            return (State::Outdated, "record incomplete");
        }
        if role.is_none() {
            return SAME;
        }
        if self.was_cut_off && self.is_newer_than_entry(key, known) {
            return (
                State::ToLookAt,
                "its record was written after its entry; the record is compared",
            );
        }
        (State::UpToDate, "unchanged")
    }

    /// `None` for what its name says to be the view of a transcript.
    fn without_entry(
        &self,
        file: &Found,
        of_stem: &[&Found],
        gone: &HashSet<String>,
        role: Option<&Role>,
    ) -> Option<(State, &'static str)> {
        // Without an entry it has no name yet; the plain one is the usual one.
        let name = StoreName::parse(&file.stem);
        if self.is_ahead(name.as_ref(), role) {
            return Some(AHEAD);
        }
        if gone.contains(&*file.stem) {
            return Some((State::ToLookAt, "it may have been moved"));
        }
        let is_markdown = file.place.is_markdown();
        if is_markdown && role.is_none() {
            let has_transcript = of_stem.iter().any(|other| !other.place.is_markdown());
            if has_transcript && has_unix_time(&file.stem) && is_in_folder_of_views(&file.place) {
                return None;
            }
            return Some(match has_transcript {
                // Numbered stems start anew each day, and older folders have
                // transcripts.
                true => (State::ToLookAt, "it may be the view of a transcript"),
                false => (State::ToLookAt, "Markdown may be a transcript or not"),
            });
        }
        let rivals = of_stem
            .iter()
            .filter(|other| other.place.is_markdown() == is_markdown);
        if role.is_none() && rivals.count() > 1 {
            return Some((State::ToLookAt, "it may be an older copy of another"));
        }
        Some((State::New, "new"))
    }

    /// An entry whose source is no file that was found.
    fn without_file(&self, known: &Known) -> Seen {
        let (state, reason) = match known.kind {
            Some(Kind::SubagentHistory) => self.history(known),
            _ => {
                let path = self.workspace.join(&known.source);
                let looked_at = path.symlink_metadata();
                match looked_at {
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => GONE,
                    _ => (State::ToLookAt, "it lies where no transcript is looked for"),
                }
            }
        };
        Seen {
            state,
            reason: reason.to_owned(),
            source: known.source.clone(),
            bytes: known.size,
        }
    }

    /// A record of the sub-agents file; what is in the file is not looked at.
    fn history(&self, known: &Known) -> (State, &'static str) {
        let is_since = match (self.subagents(), self.histories()) {
            (Subagents::Absent, _) => return GONE,
            // The last run has read the file as it is.
            (_, Some(histories)) => {
                let id = known.source.split_once('#').map(|(_, id)| id);
                if !id.is_some_and(|id| histories.iter().any(|history| history == id)) {
                    return NO_HISTORY;
                }
                false
            }
            (Subagents::Since(mtime_ms), None) => mtime_ms > known.imported_at_ms,
        };
        let is_accepted = known.accepted.is_some();
        match (is_accepted, known.is_ours, is_since) {
            (_, _, true) => (State::ToLookAt, "the sub-agents file was written since"),
            (true, ..) => (State::Accepted, "accepted"),
            (_, false, _) => (State::EarlierImporter, "imported by the earlier importer"),
            _ if !known.is_current => (State::Outdated, "imported by older rules"),
            _ if !self.has_record(known) => (State::Outdated, "record incomplete"),
            _ => (State::UpToDate, "unchanged"),
        }
    }

    /// The sub-agents file itself, where no record of it is known.
    fn new_histories(&self) -> Option<Seen> {
        let is_history = |known: &Known| known.kind == Some(Kind::SubagentHistory);
        let path = self.workspace.join(SUBAGENTS);
        let last = self
            .entries
            .values()
            .map(|known| known.imported_at_ms)
            .max();
        let Subagents::Since(mtime_ms) = self.subagents() else {
            return None;
        };
        let is_read = self.histories().is_some();
        let is_known = is_read || (!self.was_cut_off && last.is_some_and(|last| mtime_ms <= last));
        (!is_known && !self.entries.values().any(is_history)).then(|| Seen {
            state: State::ToLookAt,
            reason: "it may hold sessions of sub-agents".to_owned(),
            source: SUBAGENTS.to_owned(),
            bytes: path.metadata().map_or(0, |metadata| metadata.len()),
        })
    }

    /// The sub-agents that the last run found, if it saw their file as it is.
    fn histories(&self) -> Option<&[String]> {
        self.cache.histories(&self.workspace.join(SUBAGENTS))
    }

    fn subagents(&self) -> Subagents {
        let stat = Stat::of(&self.workspace.join(SUBAGENTS), true);
        stat.ok().flatten().map_or(Subagents::Absent, |stat| {
            Subagents::Since(stat.mtime_ns / 1_000_000)
        })
    }

    fn is_ahead(&self, name: Option<&StoreName>, role: Option<&Role>) -> bool {
        let Some(Role::Source {
            ahead: Some(ahead), ..
        }) = role
        else {
            return false;
        };
        let stream = name.map(|name| self.layout.stream_file(&name.messages()));
        let stat = stream.and_then(|stream| Stat::of(&stream, false).ok().flatten());
        stat.map(Stamp::from) == Some(*ahead)
    }

    fn is_at(&self, stat: &Stat, size: u64, mtime_ms: u64) -> bool {
        stat.size == size && self.clock.cap_mtime(stat.mtime_ms()) == mtime_ms
    }

    fn has_record(&self, known: &Known) -> bool {
        known.name.as_ref().is_some_and(|name| {
            self.streams.contains(&name.messages()) && self.descriptors.contains(name)
        })
    }

    fn is_newer_than_entry(&self, key: &Sha256, known: &Known) -> bool {
        let changed = |path: &Path| {
            let stat = Stat::of(path, false).ok().flatten();
            stat.map_or(i64::MAX, |stat| stat.ctime_ns)
        };
        let Some(name) = &known.name else {
            return true;
        };
        let entry = self.layout.key_file(Namespace::Items, &key.to_string());
        let entry = changed(&entry);
        changed(&self.layout.stream_file(&name.messages())) > entry
            || changed(&self.layout.key_file(Namespace::Sessions, name.as_str())) > entry
    }
}

/// Whether the application puts only views of transcripts there.
fn is_in_folder_of_views(place: &Place) -> bool {
    let is_newer = matches!(place, Place::Markdown(name) if name.contains('_'));
    is_newer && day_of(place).is_some()
}

const ENTRY_DAMAGED: &str =
    "its item ledger entry is damaged; as long as nothing else changes, only --checksum sees it";
const NO_HISTORY: (State, &str) = (
    State::SourceGone,
    "the sub-agents file has no history of it to read, or a transcript has it; the record stays",
);
const AHEAD: (State, &str) = (State::Ahead, "the application goes on in the store");
const GONE: (State, &str) = (State::SourceGone, "its source is gone; the record stays");
