//! The stat cache: what every file was when it was last seen, so that an
//! unchanged one need not be opened to know it (`tinyagents-store.md`).
//!
//! It may be deleted at any time. Nothing is believed of a file whose size,
//! times, inode or device are not the same.
//!
//! One JSON value per line: a head, then a row per file in the order in which
//! [`discover`](crate::source::openhuman::discover) gives them. That order
//! lets a run in which nothing has changed compare row by row, without
//! building anything ([`Quick`]).

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::fs::read_regular;
use crate::fs::stat::Stat;
use crate::model::key::{SessionKey, SourcePath};
use crate::source::openhuman::Format;
use crate::source::openhuman::discover::{Found, Place};
use crate::store::layout::{Layout, MARKER_KEY, Namespace};
use crate::store::record::RULES;

/// Version of the cache's own format.
const VERSION: u32 = 3;

/// What a file was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Role {
    /// A session's source.
    Source {
        /// The session's key.
        key: SessionKey,
        /// What it was read as.
        format: Format,
        /// The stream, as it was when it was found ahead of the source.
        ahead: Option<Stamp>,
        /// A failure of it was accepted.
        accepted: bool,
    },
    /// An older copy of the session with this key.
    OlderCopy {
        /// The session's key.
        of: SessionKey,
    },
    /// A view of the session with this key.
    Companion {
        /// The session's key.
        of: SessionKey,
    },
    /// Not a transcript.
    NoTranscript,
}

/// A [`Stat`] as it is written: size, mtime, ctime (both in nanoseconds since
/// the epoch), inode, device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stamp(u64, i64, i64, u64, u64);

impl From<Stat> for Stamp {
    fn from(stat: Stat) -> Self {
        Self(
            stat.size,
            stat.mtime_ns,
            stat.ctime_ns,
            stat.inode,
            stat.device,
        )
    }
}

/// One file. A tuple, not a struct: a cache of a hundred thousand files is
/// read at every run.
#[derive(Serialize, Deserialize)]
struct Row<'a>(
    #[serde(borrow)] Cow<'a, str>,
    Stamp,
    /// `s`ource, `a`ccepted source, `o`lder copy, `c`ompanion, `n`o transcript.
    char,
    /// The session's key, where there is one.
    #[serde(borrow)]
    Cow<'a, str>,
    Option<Format>,
    Option<Stamp>,
);

impl<'a> Row<'a> {
    fn new(path: &'a str, stamp: Stamp, role: &'a Role) -> Self {
        let (letter, key, format, ahead) = match role {
            Role::Source {
                key,
                format,
                ahead,
                accepted,
            } => {
                let letter = if *accepted { 'a' } else { 's' };
                (letter, key.as_str(), Some(*format), *ahead)
            }
            Role::OlderCopy { of } => ('o', of.as_str(), None, None),
            Role::Companion { of } => ('c', of.as_str(), None, None),
            Role::NoTranscript => ('n', "", None, None),
        };
        Self(path.into(), stamp, letter, key.into(), format, ahead)
    }

    fn role(&self) -> Option<Role> {
        let key = SessionKey::new(&*self.3);
        Some(match self.2 {
            's' | 'a' => Role::Source {
                key,
                format: self.4?,
                ahead: self.5,
                accepted: self.2 == 'a',
            },
            'o' => Role::OlderCopy { of: key },
            'c' => Role::Companion { of: key },
            _ => Role::NoTranscript,
        })
    }
}

/// The first line: by what the cache as a whole is known to hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Head {
    version: u32,
    rules: u32,
    /// After a run that left everything done: the store's folders and marker
    /// as they were then. A file that was made, replaced or removed there
    /// since changes its folder's times.
    done: Option<Done>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Done {
    folders: Vec<Option<Stamp>>,
    /// The sub-agents file.
    subagents: Option<Stamp>,
    told: Told,
}

/// What a run that left everything done has to tell again, if nothing changes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Told {
    /// Items that are not files: the ids of sub-agents with a history.
    pub(crate) histories: Vec<String>,
    /// Lines of all sources that the application cannot read.
    pub(crate) rejected: u64,
}

impl Done {
    /// What it is now.
    fn now(layout: &Layout, subagents: &Path, told: Told) -> Self {
        let folders = [
            layout.journal_dir(),
            layout.namespace_dir(Namespace::Sessions),
            layout.namespace_dir(Namespace::Items),
            layout.namespace_dir(Namespace::Failed),
            layout.key_file(Namespace::Markers, MARKER_KEY),
        ];
        Self {
            folders: folders.iter().map(|path| stamp(path)).collect(),
            subagents: stamp(subagents),
            told,
        }
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    Stat::of(path, true).ok().flatten().map(Stamp::from)
}

/// The cache in memory.
#[derive(Debug, Default)]
pub(crate) struct StatCache {
    rows: HashMap<String, (Stamp, Role)>,
    done: Option<Done>,
}

impl StatCache {
    /// Reads the cache; a missing or damaged one is an empty one.
    pub(crate) fn load(path: &Path) -> Self {
        let text = read_regular(path).unwrap_or_default();
        let mut lines = text.lines();
        let Some(head) = lines.next().and_then(head) else {
            return Self::default();
        };
        let rows = lines.map_while(|line| {
            let row: Row<'_> = serde_json::from_str(line).ok()?;
            Some((row.0.to_string(), (row.1, row.role()?)))
        });
        Self {
            rows: rows.collect(),
            done: head.done,
        }
    }

    /// The sub-agents whose histories are sessions, if the last run left
    /// everything done and their file is as it was then.
    pub(crate) fn histories(&self, subagents: &Path) -> Option<&[String]> {
        let done = self.done.as_ref()?;
        (done.subagents == stamp(subagents)).then_some(&*done.told.histories)
    }

    /// What a file was, if it is still as it was then.
    pub(crate) fn role(&self, path: &SourcePath, stat: Option<Stat>) -> Option<&Role> {
        if self.rows.is_empty() {
            return None;
        }
        let (stamp, role) = self.rows.get(&path.to_string())?;
        (*stamp == Stamp::from(stat?)).then_some(role)
    }
}

fn head(line: &str) -> Option<Head> {
    let head: Head = serde_json::from_str(line).ok()?;
    (head.version == VERSION && head.rules == RULES).then_some(head)
}

/// The cache while it is written. It borrows what it is written from: at the
/// end of an import of many sessions there is no need to hold them twice.
pub(crate) struct CacheWriter<'a> {
    rows: Vec<(&'a Place, &'a SourcePath, Stamp, Role)>,
}

impl<'a> CacheWriter<'a> {
    /// With nothing in it.
    pub(crate) fn new() -> Self {
        Self { rows: Vec::new() }
    }

    /// Notes what a file is.
    pub(crate) fn note(&mut self, file: &'a Found, role: Role) {
        self.note_path(&file.place, &file.path, file.stat, role);
    }

    /// The same of a file by its parts.
    pub(crate) fn note_path(
        &mut self,
        place: &'a Place,
        path: &'a SourcePath,
        stat: Option<Stat>,
        role: Role,
    ) {
        self.rows
            .extend(stat.map(|stat| (place, path, stat.into(), role)));
    }

    /// The bytes of the cache's file. `done`, with where the sub-agents file
    /// is, says that every item is in the store.
    pub(crate) fn into_bytes(mut self, layout: &Layout, done: Option<(Told, &Path)>) -> Vec<u8> {
        let done = done.map(|(told, subagents)| Done::now(layout, subagents, told));
        let head = Head {
            version: VERSION,
            rules: RULES,
            done,
        };
        let mut bytes = Vec::new();
        push_line(&mut bytes, &head);
        // As `Found::order` has it.
        self.rows.sort_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)));
        let mut text = String::new();
        for (_, path, stamp, role) in &self.rows {
            text.clear();
            path.push_to(&mut text);
            push_line(&mut bytes, &Row::new(&text, *stamp, role));
        }
        bytes
    }
}

fn push_line(bytes: &mut Vec<u8>, value: &impl Serialize) {
    let before = bytes.len();
    match serde_json::to_writer(&mut *bytes, value) {
        Ok(()) => bytes.push(b'\n'),
        Err(_) => bytes.truncate(before),
    }
}

/// What a run finds when nothing has changed since a run that left everything
/// done: by `stat` alone, without opening a source or an entry.
pub(crate) struct Quick {
    /// Items that are files: index of the file, session key, and whether a
    /// failure was accepted.
    pub(crate) sources: Vec<(usize, String, bool)>,
    /// What is true of the others, and of all.
    pub(crate) told: Told,
}

impl Quick {
    /// `None` if anything at all has changed, or is not known to be the same.
    pub(crate) fn look(layout: &Layout, subagents: &Path, files: &[Found]) -> Option<Self> {
        let text = read_regular(&layout.stat_cache_file()).ok()?;
        let mut lines = text.lines();
        let done = head(lines.next()?)?.done?;
        if Done::now(layout, subagents, done.told.clone()) != done {
            return None;
        }
        let mut sources = Vec::with_capacity(files.len());
        let mut path = String::new();
        for (index, file) in files.iter().enumerate() {
            let row: Row<'_> = serde_json::from_str(lines.next()?).ok()?;
            path.clear();
            file.path.push_to(&mut path);
            let is_same = row.0 == path && row.1 == Stamp::from(file.stat?);
            if !is_same || row.5.is_some() {
                return None;
            }
            if matches!(row.2, 's' | 'a') {
                sources.push((index, row.3.into_owned(), row.2 == 'a'));
            }
        }
        lines.next().is_none().then_some(Self {
            sources,
            told: done.told,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(folder: &Path) -> Found {
        let file = folder.join("a.jsonl");
        std::fs::write(&file, "a").unwrap();
        Found {
            path: SourcePath::file("session_raw/a\n.jsonl"),
            stem: "a".into(),
            place: Place::Flat,
            stat: Stat::of(&file, true).unwrap(),
        }
    }

    fn source() -> Role {
        Role::Source {
            key: SessionKey::new("a"),
            format: Format::Jsonl,
            ahead: None,
            accepted: false,
        }
    }

    fn touched(file: &Found) -> Found {
        let mut file = file.clone();
        file.stat = file.stat.map(|mut stat| {
            stat.ctime_ns += 1;
            stat
        });
        file
    }

    #[test]
    fn a_file_that_changed_in_any_way_is_not_known() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::new(folder.path());
        let file = found(folder.path());
        let mut cache = CacheWriter::new();
        cache.note(
            &file,
            Role::OlderCopy {
                of: SessionKey::new("k"),
            },
        );
        std::fs::write(layout.stat_cache_file(), cache.into_bytes(&layout, None)).unwrap();
        let cache = StatCache::load(&layout.stat_cache_file());
        assert!(cache.role(&file.path, file.stat).is_some());
        assert!(cache.role(&file.path, touched(&file).stat).is_none());
        std::fs::write(layout.stat_cache_file(), "something else").unwrap();
        let cache = StatCache::load(&layout.stat_cache_file());
        assert!(cache.role(&file.path, file.stat).is_none());
    }

    #[test]
    fn nothing_has_changed_only_if_all_is_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::new(folder.path());
        std::fs::create_dir_all(layout.journal_dir()).unwrap();
        let file = found(folder.path());
        let mut cache = CacheWriter::new();
        cache.note(&file, source());
        let subagents = folder.path().join("subagents");
        let told = Told {
            histories: vec!["x".into()],
            rejected: 2,
        };
        let bytes = cache.into_bytes(&layout, Some((told.clone(), &subagents)));
        std::fs::write(layout.stat_cache_file(), bytes).unwrap();
        let look = |files: &[Found]| Quick::look(&layout, &subagents, files);
        let quick = look(std::slice::from_ref(&file)).unwrap();
        assert_eq!((quick.sources.len(), quick.told), (1, told));
        assert!(look(&[]).is_none());
        assert!(look(&[file.clone(), file.clone()]).is_none());
        assert!(look(&[touched(&file)]).is_none());
        std::fs::write(&subagents, "[]").unwrap();
        assert!(look(std::slice::from_ref(&file)).is_none());
        std::fs::remove_file(&subagents).unwrap();
        assert!(look(std::slice::from_ref(&file)).is_some());
        // A stream that is replaced, as the application does it.
        std::fs::write(layout.journal_dir().join("x.jsonl"), "").unwrap();
        assert!(look(std::slice::from_ref(&file)).is_none());
    }
}
