//! A private copy of a database that cannot be read where it lies
//! (`openhuman-workspace.md` §3).

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use tempfile::TempDir;

use super::Limits;
use super::open::{Deadline, Trouble};
use super::state::{State, beside, has_content, unreadable};
use crate::fs::open_regular;
use crate::source::openhuman::locate::Refused;

/// What a rollback journal starts with, and ends with if it names a
/// super-journal.
const JOURNAL_MAGIC: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];

/// Copies the database and what it needs into a private folder.
///
/// A rollback journal that is not empty may have to be played back into the
/// database before that can be read, so it is copied like a `-wal`.
pub(super) fn copy(
    database: &Path,
    state: &State,
    workspace: &Path,
    limits: &Limits,
    deadline: &Deadline,
) -> Result<TempDir, Trouble> {
    let temp_dir = limits.temp_dir.canonicalize().map_err(Trouble::Copy)?;
    let workspace = workspace.canonicalize().map_err(Refused::Io)?;
    if temp_dir.starts_with(workspace) {
        return Err(Trouble::TempInWorkspace);
    }
    let needed = state.bytes();
    let room = rustix::fs::statvfs(&temp_dir).map_err(|error| Trouble::Copy(error.into()))?;
    let free = room.f_bavail.saturating_mul(room.f_frsize);
    if free < needed {
        return Err(Trouble::NoRoom { needed, free });
    }
    let folder = tempfile::Builder::new()
        .prefix("session-import-")
        .permissions(fs::Permissions::from_mode(0o700))
        .tempdir_in(temp_dir)
        .map_err(Trouble::Copy)?;
    let target = folder.path().join(super::FILE);
    copy_file(database, &target, deadline)?;
    for (suffix, stamp) in [("-wal", &state.wal), ("-journal", &state.journal)] {
        if has_content(stamp) {
            copy_file(
                &beside(database, suffix),
                &beside(&target, suffix),
                deadline,
            )?;
        }
    }
    if has_content(&state.journal) && names_super_journal(&beside(&target, "-journal"))? {
        return Err(Trouble::SuperJournal);
    }
    Ok(folder)
}

fn copy_file(from: &Path, to: &Path, deadline: &Deadline) -> Result<(), Trouble> {
    const PIECE: u64 = 16 << 20;
    let source = open_regular(from).map_err(|error| unreadable(from, error))?;
    let mut target = File::create(to).map_err(Trouble::Copy)?;
    loop {
        deadline.check()?;
        let mut piece = (&source).take(PIECE);
        if io::copy(&mut piece, &mut target).map_err(Trouble::Copy)? == 0 {
            return Ok(());
        }
    }
}

/// A journal may end with the path of a super-journal, and SQLite **deletes**
/// the file of that path after playing the journal back. It may be any file:
/// a transcript, something of the user's. The application has one database and
/// never writes such an end.
fn names_super_journal(journal: &Path) -> Result<bool, Trouble> {
    let end = || -> io::Result<Vec<u8>> {
        let mut end = Vec::new();
        let mut journal = File::open(journal)?;
        let size = journal.metadata()?.len();
        journal.seek(SeekFrom::Start(size.saturating_sub(8)))?;
        journal.read_to_end(&mut end)?;
        Ok(end)
    };
    Ok(end().map_err(Trouble::Copy)? == JOURNAL_MAGIC)
}

#[cfg(test)]
mod tests;
