//! The stat cache: what every file was when it was last seen, so that an
//! unchanged one need not be opened to know it (`tinyagents-store.md`).
//!
//! It may be deleted at any time. Nothing is believed of a file whose size,
//! times, inode or device are not the same.

use std::collections::HashMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::fs::stat::Stat;
use crate::model::key::SourcePath;
use crate::source::openhuman::Format;

/// First line of the file: another version is not read.
const HEAD: &str = "session-import stat cache 1";

/// What a file was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub(crate) enum Role {
    /// A session's source.
    Source {
        /// The session's key.
        key: String,
        /// What it was read as.
        format: Format,
        /// The stream, as it was when it was found ahead of the source.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ahead: Option<Stamp>,
    },
    /// An older copy of the session with this key.
    OlderCopy {
        /// The session's key.
        of: String,
    },
    /// A view of the session with this key.
    Companion {
        /// The session's key.
        of: String,
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
        Self(stat.size, stat.mtime_ns, stat.ctime_ns, stat.inode, stat.device)
    }
}

#[derive(Serialize, Deserialize)]
struct Row {
    path: String,
    stat: Stamp,
    #[serde(flatten)]
    role: Role,
}

/// The cache in memory.
#[derive(Debug, Default)]
pub(crate) struct StatCache {
    rows: HashMap<String, (Stamp, Role)>,
}

impl StatCache {
    /// Reads the cache; a missing or damaged one is an empty one.
    pub(crate) fn load(path: &Path) -> Self {
        let Ok(text) = std::fs::read_to_string(path) else {
            return Self::default();
        };
        let mut lines = text.lines();
        if lines.next() != Some(HEAD) {
            return Self::default();
        }
        let rows = lines.map(serde_json::from_str::<Row>);
        let rows = rows.map_while(Result::ok);
        Self {
            rows: rows.map(|row| (row.path, (row.stat, row.role))).collect(),
        }
    }

    /// What a file was, if it is still as it was then.
    pub(crate) fn role(&self, path: &SourcePath, stat: Option<Stat>) -> Option<&Role> {
        let (stamp, role) = self.rows.get(&path.to_string())?;
        (*stamp == Stamp::from(stat?)).then_some(role)
    }

    /// Forgets all, to be filled with what is there now.
    pub(crate) fn start_anew(&mut self) {
        self.rows.clear();
    }

    /// Notes what a file is.
    pub(crate) fn note(&mut self, path: &SourcePath, stat: Option<Stat>, role: Role) {
        if let Some(stat) = stat {
            self.rows.insert(path.to_string(), (stat.into(), role));
        }
    }

    /// The cache as the bytes of its file, in order of paths.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut rows: Vec<_> = self.rows.iter().collect();
        rows.sort_by_key(|(path, _)| path.as_str());
        let mut bytes = format!("{HEAD}\n").into_bytes();
        for (path, (stat, role)) in rows {
            let row = Row {
                path: path.clone(),
                stat: *stat,
                role: role.clone(),
            };
            if let Ok(mut line) = serde_json::to_vec(&row) {
                line.push(b'\n');
                bytes.append(&mut line);
            }
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_changed_in_any_way_is_not_known() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a");
        std::fs::write(&file, "a").unwrap();
        let stat = Stat::of(&file, true).unwrap();
        let path = SourcePath::file("session_raw/a\n.jsonl");
        let mut cache = StatCache::default();
        cache.note(&path, stat, Role::OlderCopy { of: "k".into() });
        let cache_file = folder.path().join("cache");
        std::fs::write(&cache_file, cache.to_bytes()).unwrap();
        let cache = StatCache::load(&cache_file);
        assert!(cache.role(&path, stat).is_some());
        let touched = stat.map(|mut stat| {
            stat.ctime_ns += 1;
            stat
        });
        assert!(cache.role(&path, touched).is_none());
        std::fs::write(&cache_file, "something else").unwrap();
        assert!(StatCache::load(&cache_file).role(&path, stat).is_none());
    }
}
