//! Whether the database and what lies beside it stayed the same while it was
//! read or copied (`openhuman-workspace.md` §3).

use std::ffi::OsString;
use std::io::{self, ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime};

use super::open::{Deadline, Trouble};
use crate::fs::open_regular;

/// How often a database that changes under the reading is tried.
pub(super) const ATTEMPTS: u32 = 20;
/// The header of a `-wal`: its salts change whenever it is started anew.
const WAL_HEADER: u64 = 32;

/// Does `work` until nothing changed while it was done: what it gave before
/// that, errors included, may come from a database torn by its writer.
pub(super) fn while_quiet<T>(
    database: &Path,
    deadline: &Deadline,
    mut work: impl FnMut(&State) -> Result<T, Trouble>,
) -> Result<T, Trouble> {
    for attempt in 1..=ATTEMPTS {
        let before = State::of(database)?;
        let outcome = work(&before);
        if State::of(database)? == before {
            return outcome;
        }
        deadline.check()?;
        thread::sleep(Duration::from_millis(5) * attempt);
    }
    Err(Trouble::Changing)
}

/// The database and what lies beside it, as far as a change would show.
///
/// The contract asks for the `-wal`; the others are there because a writer
/// that keeps a rollback journal changes the database itself.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct State {
    database: Option<Stamp>,
    pub(super) wal: Option<Stamp>,
    wal_header: Vec<u8>,
    pub(super) journal: Option<Stamp>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    size: u64,
    modified: SystemTime,
}

impl State {
    pub(super) fn of(database: &Path) -> Result<Self, Trouble> {
        let wal = beside(database, "-wal");
        let state = Self {
            database: Stamp::of(database)?,
            wal_header: Vec::new(),
            wal: Stamp::of(&wal)?,
            journal: Stamp::of(&beside(database, "-journal"))?,
        };
        if !has_content(&state.wal) {
            return Ok(state);
        }
        let mut wal_header = Vec::new();
        match open_regular(&wal).and_then(|file| file.take(WAL_HEADER).read_to_end(&mut wal_header))
        {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(unreadable(&wal, error)),
            // Gone since: the state after will differ from this one.
            _ => Ok(Self {
                wal_header,
                ..state
            }),
        }
    }

    /// Whether the database file alone has every row.
    pub(super) fn is_whole(&self) -> bool {
        !has_content(&self.wal) && !has_content(&self.journal)
    }

    pub(super) fn bytes(&self) -> u64 {
        let parts = [&self.database, &self.wal, &self.journal];
        parts.into_iter().flatten().map(|stamp| stamp.size).sum()
    }
}

impl Stamp {
    fn of(path: &Path) -> Result<Option<Self>, Trouble> {
        let metadata = match path.symlink_metadata() {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unreadable(path, error)),
        };
        if !metadata.is_file() {
            return Err(Trouble::Beside(name(path)));
        }
        let modified = metadata.modified();
        Ok(Some(Self {
            size: metadata.len(),
            modified: modified.map_err(|error| unreadable(path, error))?,
        }))
    }
}

pub(super) fn has_content(stamp: &Option<Stamp>) -> bool {
    stamp.as_ref().is_some_and(|stamp| stamp.size > 0)
}

pub(super) fn beside(database: &Path, suffix: &str) -> PathBuf {
    let mut path = OsString::from(database);
    path.push(suffix);
    path.into()
}

fn name(path: &Path) -> String {
    path.file_name()
        .map(crate::model::key::readable)
        .unwrap_or_default()
}

pub(super) fn unreadable(path: &Path, error: io::Error) -> Trouble {
    let what = name(path);
    Trouble::Source { what, error }
}

#[cfg(test)]
mod tests;
