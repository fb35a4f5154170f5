//! One writer at a time (`tinyagents-store.md`, Writing).
//!
//! The lock is the operating system's, on `.session-import.lock`: it ends with
//! its process, however that ends. The file's text says who holds it, and is
//! empty when nobody does; the file itself stays.

use std::fs::{File, TryLockError};
use std::io::{Read as _, Seek as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{SecondsFormat, Utc};

use super::kv::{self, Opened};
use super::layout::{LOCK, Layout};
use crate::error::{Error, Result};
use crate::fs::{Dir, Stat, fault};
use crate::model::interrupt::Interrupt;

/// How often a lock that somebody holds is tried again.
const PAUSE: Duration = Duration::from_millis(100);
/// More than any holder writes about itself.
const LONGEST_TEXT: u64 = 2000;

/// The right to write to a store, until dropped.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
    path: PathBuf,
    held: bool,
}

/// The right to read a store while nobody writes to it, until dropped.
#[derive(Debug)]
pub struct SharedLock {
    file: File,
}

impl Lock {
    /// Takes the lock, waiting for it as long as `retry` says.
    pub(super) fn take(root: &Arc<Dir>, patience: &Patience) -> Result<Self> {
        let path = root.path().join(LOCK);
        let file = patiently(patience, || {
            let refused = || Error::Store {
                path: path.clone(),
                message: "the lock must be a regular file; move away what lies there".into(),
            };
            let file = root.open_or_new(LOCK).map_err(|error| {
                let found = root.stat(LOCK).ok().flatten();
                match found.is_some_and(|stat| stat.in_the_way().is_some()) {
                    true => refused(),
                    false => Error::store_io("open", &path)(error),
                }
            })?;
            let stat = Stat::of_file(&file).map_err(Error::store_io("read", &path))?;
            if !stat.is_file() {
                return Err(refused());
            }
            try_lock(&path, file, File::try_lock)?
                .filter(|_| {
                    // Somebody may have removed the file between our opening
                    // and locking it; then the lock is on nothing.
                    let now = root.stat(LOCK).ok().flatten();
                    now.is_some_and(|now| (now.inode, now.device) == (stat.inode, stat.device))
                })
                .map_or_else(|| Err(locked(&path)), Ok)
        })?;
        let mut lock = Self {
            file,
            path,
            held: true,
        };
        // On a full disk nobody can be named, and an undo must still go on.
        let _ = lock.say(&holder());
        Ok(lock)
    }

    /// Gives the lock back and leaves its file empty.
    pub(super) fn release(mut self) -> Result<()> {
        self.let_go().map_err(Error::store_io("write", &self.path))
    }

    /// Given back by name: a process that is just being started by another
    /// thread of ours has the file open too, for a moment.
    fn let_go(&mut self) -> std::io::Result<()> {
        self.held = false;
        let emptied = self.say("");
        self.file.unlock().and(emptied)
    }

    fn say(&mut self, text: &str) -> std::io::Result<()> {
        fault::point("set_len")?;
        self.file.set_len(0)?;
        self.file.rewind()?;
        if text.is_empty() {
            return Ok(());
        }
        fault::write_all(&mut self.file, text.as_bytes())
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if self.held {
            // The next holder writes its own text anyway.
            let _ = self.let_go();
        }
    }
}

impl SharedLock {
    /// Takes the lock for reading. `None` where there is no lock to take: no
    /// store, no lock file, or no right to open it. Nothing is created.
    ///
    /// # Errors
    /// [`Error::Locked`] if an import holds it for longer than `retry`.
    pub fn take(layout: &Layout, patience: impl Into<Patience>) -> Result<Option<Self>> {
        let path = layout.lock_file();
        patiently(&patience.into(), || {
            let Ok(Some(Opened::File(file))) = kv::open(&path) else {
                return Ok(None);
            };
            match try_lock(&path, file, File::try_lock_shared)? {
                Some(file) => Ok(Some(Self { file })),
                None => Err(locked(&path)),
            }
        })
    }
}

impl Drop for SharedLock {
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

/// How long to wait for somebody else's lock, and who may end the wait.
#[derive(Debug, Clone, Default)]
pub struct Patience {
    /// Not at all, or this long.
    pub retry: Option<Duration>,
    /// Ends the wait when it is set.
    pub interrupt: Interrupt,
}

impl From<Option<Duration>> for Patience {
    fn from(retry: Option<Duration>) -> Self {
        Self {
            retry,
            interrupt: Interrupt::default(),
        }
    }
}

/// Tries again, while somebody else holds the lock, until the time is over.
fn patiently<T>(patience: &Patience, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    let end = patience
        .retry
        .and_then(|retry| Instant::now().checked_add(retry));
    loop {
        match attempt() {
            Err(Error::Locked { .. }) if patience.interrupt.is_set() => {
                return Err(Error::Interrupted);
            }
            Err(Error::Locked { .. }) if end.is_some_and(|end| Instant::now() < end) => {
                std::thread::sleep(PAUSE);
            }
            other => return other,
        }
    }
}

/// `None` if somebody else holds it.
fn try_lock(
    path: &Path,
    file: File,
    how: impl FnOnce(&File) -> Result<(), TryLockError>,
) -> Result<Option<File>> {
    fault::point("lock").map_err(Error::store_io("lock", path))?;
    match how(&file) {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(Error::store_io("lock", path)(error)),
    }
}

fn locked(path: &Path) -> Error {
    let mut text = String::new();
    if let Ok(Some(Opened::File(file))) = kv::open(path) {
        // What is not UTF-8 was not written by us, and names nobody.
        let _ = file.take(LONGEST_TEXT).read_to_string(&mut text);
    }
    // The text goes to a terminal.
    let text: String = text.trim().chars().map(printable).collect();
    Error::Locked {
        path: path.to_owned(),
        holder: if text.is_empty() {
            "a process that gives no name, perhaps a command that reads the store".into()
        } else {
            text
        },
    }
}

fn printable(c: char) -> char {
    let bidirectional =
        matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if c.is_control() || bidirectional {
        '?'
    } else {
        c
    }
}

/// This process, in words.
fn holder() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = match host.trim() {
        "" => String::new(),
        host => format!(" on {host}"),
    };
    let now = Utc::now().to_rfc3339_opts(SecondsFormat::Secs, true);
    let command: Vec<_> = std::env::args_os()
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect();
    format!(
        "process {}{host} since {now}: {}\n",
        std::process::id(),
        command.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use super::super::testing::Place;
    use super::super::{Store, Writer, testing};
    use super::*;

    fn text(store: &Store) -> String {
        std::fs::read_to_string(store.layout().lock_file()).unwrap()
    }

    fn try_open(place: &Place, retry: Option<Duration>) -> Result<Writer> {
        let workspace = place.workspace.path();
        Writer::open(&place.root(), workspace, testing::clock(), retry).map(|(writer, _)| writer)
    }

    #[test]
    fn a_second_writer_is_told_who_holds_the_lock() {
        let place = Place::new();
        let writer = place.writer();
        let Err(Error::Locked { path, holder }) = try_open(&place, None) else {
            panic!("two writers");
        };
        assert_eq!(path, place.store().layout().lock_file());
        let this = format!("process {}", std::process::id());
        assert!(holder.starts_with(&this), "{holder}");
        assert_eq!(holder.trim(), text(writer.store()).trim());
        writer.finish().unwrap();
        assert_eq!(text(&place.store()), "");
        drop(try_open(&place, None).unwrap());
        assert_eq!(text(&place.store()), "", "also where an import ends early");
    }

    #[test]
    fn waiting_ends_with_the_other_or_with_the_time() {
        let place = Place::new();
        let writer = place.writer();
        let start = Instant::now();
        let short = Some(Duration::from_millis(150));
        assert!(matches!(try_open(&place, short), Err(Error::Locked { .. })));
        assert!(start.elapsed() >= Duration::from_millis(150));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(200));
                drop(writer);
            });
            try_open(&place, Some(Duration::from_secs(60))).unwrap();
        });
    }

    #[test]
    fn readers_share_the_lock_and_create_nothing() {
        let place = Place::new();
        let store = place.store();
        assert!(SharedLock::take(store.layout(), None).unwrap().is_none());
        assert!(!store.exists());
        let writer = place.writer();
        let locked = SharedLock::take(store.layout(), None);
        assert!(matches!(locked, Err(Error::Locked { .. })));
        drop(writer);
        let one = SharedLock::take(store.layout(), None).unwrap();
        let two = SharedLock::take(store.layout(), None).unwrap();
        assert!(one.is_some() && two.is_some());
        let Err(Error::Locked { holder, .. }) = try_open(&place, None) else {
            panic!("a writer beside readers");
        };
        assert!(holder.contains("reads the store"), "{holder}");
    }

    #[test]
    fn what_a_lock_says_is_safe_to_print() {
        let place = Place::new();
        let writer = place.writer();
        std::fs::write(writer.store().layout().lock_file(), "a\x1b[31m\u{202e}b\n").unwrap();
        let Err(Error::Locked { holder, .. }) = try_open(&place, None) else {
            panic!("two writers");
        };
        assert_eq!(holder, "a?[31m?b");
    }

    #[test]
    fn a_link_at_the_locks_place_is_replaced() {
        let place = Place::new();
        drop(place.writer());
        let (lock, other) = (
            place.store().layout().lock_file(),
            place.workspace.path().join("x"),
        );
        std::fs::write(&other, "text").unwrap();
        std::fs::remove_file(&lock).unwrap();
        std::os::unix::fs::symlink(&other, &lock).unwrap();
        drop(place.writer());
        assert!(Stat::of(&lock, false).unwrap().unwrap().is_file());
        assert_eq!(std::fs::read_to_string(other).unwrap(), "text");
    }

    #[test]
    fn a_folder_at_the_locks_place_is_an_error() {
        let place = Place::new();
        std::fs::create_dir_all(place.store().layout().lock_file()).unwrap();
        assert!(try_open(&place, None).is_err());
    }
}
