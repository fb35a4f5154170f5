//! Opens the run ledger's database without touching it.
//!
//! SQLite creates or changes `-shm` and `-wal` beside a WAL database even when
//! it only reads, and with `immutable=1`, which keeps it from that, it does
//! not see what was never checkpointed. So a database that is whole in itself
//! is opened immutable, any other is copied and the copy opened
//! (`openhuman-workspace.md` §3).

use std::io;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use tempfile::TempDir;

use super::Limits;
use super::copy::copy;
use super::state::{ATTEMPTS, while_quiet};
use crate::source::openhuman::locate::Refused;

/// Why the run ledger could not be read, in our own words: SQLite's quote the
/// schema, and that may hold anything.
#[derive(Debug, thiserror::Error)]
pub(super) enum Trouble {
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error("{what} cannot be read: {error}")]
    Source { what: String, error: io::Error },
    #[error("{} is no regular file", .0)]
    Beside(String),
    #[error("it is no SQLite database, or an encrypted one")]
    NotADatabase,
    #[error("it is damaged")]
    Damaged,
    #[error("SQLite cannot use it ({})", .0)]
    Sqlite(String),
    #[error("it took longer than the time set for it")]
    TimedOut,
    #[error("it was being written each of the {ATTEMPTS} times that it was looked at")]
    Changing,
    #[error("its rollback journal belongs to a transaction over several databases")]
    SuperJournal,
    #[error("no copy of it can be made: {0}")]
    Copy(io::Error),
    #[error("no copy of it can be made: the folder for temporary files lies in the workspace")]
    TempInWorkspace,
    #[error("no copy of it can be made: it needs {needed} bytes, and there is room for {free}")]
    NoRoom { needed: u64, free: u64 },
}

impl From<rusqlite::Error> for Trouble {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => Self::NotADatabase,
            Some(ErrorCode::DatabaseCorrupt) => Self::Damaged,
            Some(ErrorCode::OperationInterrupted) => Self::TimedOut,
            Some(code) => Self::Sqlite(format!("{code:?}")),
            None => Self::Sqlite("unexpected value".to_owned()),
        }
    }
}

/// Asks the database `query`, in the state that it has with everything that
/// lies beside it.
pub(super) fn read<T>(
    database: &Path,
    workspace: &Path,
    limits: &Limits,
    query: &dyn Fn(&Connection) -> Result<T, Trouble>,
) -> Result<T, Trouble> {
    enum Taken<T> {
        Read(T),
        Copied(TempDir),
    }
    let deadline = Deadline::after(limits.time);
    let taken = while_quiet(database, &deadline, |state| {
        if state.is_whole() {
            let connection = open_immutable(database)?;
            ask(connection, &deadline, query).map(Taken::Read)
        } else {
            copy(database, state, workspace, limits, &deadline).map(Taken::Copied)
        }
    })?;
    match taken {
        Taken::Read(answer) => Ok(answer),
        // `folder` outlives the connection, and is removed whatever comes.
        Taken::Copied(folder) => ask(open_copy(folder.path())?, &deadline, query),
    }
}

/// Opens a database that nothing lies beside: no lock, no `-shm`, no look at
/// a journal.
fn open_immutable(database: &Path) -> Result<Connection, Trouble> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_URI
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Ok(Connection::open_with_flags(immutable_uri(database), flags)?)
}

/// Everything but plain characters is escaped: a `?` or `#` would end the
/// path, and a name need not be UTF-8.
fn immutable_uri(path: &Path) -> String {
    let mut uri = "file:".to_owned();
    for &byte in path.as_os_str().as_encoded_bytes() {
        if byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte) {
            uri.push(byte.into());
        } else {
            uri.push_str(&format!("%{byte:02X}"));
        }
    }
    uri + "?immutable=1"
}

/// Opens the private copy, where SQLite may play back what it has to.
fn open_copy(folder: &Path) -> Result<Connection, Trouble> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Ok(Connection::open_with_flags(
        folder.join(super::FILE),
        flags,
    )?)
}

/// Runs the query and ends it when the time is over: the answer to a database
/// made to be slow. SQLite looks for the interruption also while it parses a
/// schema or checks pages; it forgets one that comes between two statements,
/// so they are repeated.
fn ask<T>(
    connection: Connection,
    deadline: &Deadline,
    query: &dyn Fn(&Connection) -> Result<T, Trouble>,
) -> Result<T, Trouble> {
    deadline.check()?;
    let handle = connection.get_interrupt_handle();
    let (done, is_done) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let mut wait = deadline.left();
        let watch = move || {
            while is_done.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                handle.interrupt();
                wait = Duration::from_millis(10);
            }
        };
        let watcher = thread::Builder::new().spawn_scoped(scope, watch);
        watcher.map_err(Trouble::Copy)?;
        let outcome = protect(&connection).and_then(|()| query(&connection));
        drop(done);
        outcome
    })
}

/// Takes from the file's schema all power to do more than hold rows.
/// Extensions cannot be loaded: that is SQLite's default.
fn protect(connection: &Connection) -> Result<(), Trouble> {
    for (setting, value) in [
        (DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false),
        (DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true),
        // `"id"` is a column, or an error; never the text `id`.
        (DbConfig::SQLITE_DBCONFIG_DQS_DML, false),
        // The copy is thrown away: nothing is to be put in order there.
        (DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true),
    ] {
        connection.set_db_config(setting, value)?;
    }
    // In a copy, `quick_check` would evaluate the schema's CHECK expressions.
    connection.execute_batch(
        "PRAGMA query_only = ON; PRAGMA ignore_check_constraints = ON; \
         PRAGMA cell_size_check = ON; PRAGMA temp_store = MEMORY;",
    )?;
    Ok(())
}

/// When the time for the whole reading is over.
pub(super) struct Deadline {
    start: Instant,
    time: Duration,
}

impl Deadline {
    pub(super) fn after(time: Duration) -> Self {
        let start = Instant::now();
        Self { start, time }
    }

    fn left(&self) -> Duration {
        self.time.saturating_sub(self.start.elapsed())
    }

    pub(super) fn check(&self) -> Result<(), Trouble> {
        match self.left() {
            Duration::ZERO => Err(Trouble::TimedOut),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
