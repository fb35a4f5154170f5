//! Making files durable, one by one or the whole file system at once.
//!
//! `tinyagents-store.md`, Writing: `syncfs` for a large batch on Linux 5.8 or
//! later, else `fsync` of files and folders.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use super::{Dir, fault};
use crate::error::{Error, Result};

/// From this many files on, one `syncfs` is cheaper than flushing each file.
const LARGE: usize = 16;

/// Flushes what was written to one store.
#[derive(Debug)]
pub struct Flusher {
    /// Opened before anything is written: an error of writing is reported to
    /// those who had the file system open at the time.
    root: Arc<Dir>,
    whole: bool,
    turns: Mutex<Turns>,
    ended: Condvar,
}

/// Flushes of the whole file system, by number. Batches that are committed
/// beside each other wait for one together.
#[derive(Debug, Default)]
struct Turns {
    begun: u64,
    is_running: bool,
    /// The last one that failed.
    failed: u64,
}

impl Flusher {
    /// For the store at this root.
    pub fn new(root: &Arc<Dir>) -> Self {
        Self {
            root: Arc::clone(root),
            whole: can_flush_whole(root),
            turns: Mutex::default(),
            ended: Condvar::new(),
        }
    }

    /// For a batch of `changes` files or names: makes everything durable at
    /// once, where that is cheaper and possible. `false` if it was not done,
    /// and each file and folder must be flushed by itself: also where it
    /// failed, so that one item's trouble does not become that of all.
    pub fn whole(&self, changes: usize) -> bool {
        self.whole && changes >= LARGE && self.take_turn()
    }

    /// Waits for the next flush that begins after now, or makes it.
    fn take_turn(&self) -> bool {
        let lock = || self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        let mut turns = lock();
        // One that is running may have passed by what is to be flushed.
        let mine = turns.begun + 1;
        while turns.is_running && turns.begun <= mine {
            turns = self
                .ended
                .wait(turns)
                .unwrap_or_else(PoisonError::into_inner);
        }
        if turns.begun < mine {
            turns.begun = mine;
            turns.is_running = true;
            drop(turns);
            let flushed = fault::point("syncfs").and_then(|()| syncfs(&self.root));
            turns = lock();
            turns.is_running = false;
            if flushed.is_err() {
                turns.failed = mine;
            }
            self.ended.notify_all();
        }
        turns.failed < mine
    }

    /// Makes `changes` renames and removals in these folders durable.
    ///
    /// # Errors
    /// The disk is broken.
    pub fn folders(&self, folders: &[&Dir], changes: usize) -> Result<()> {
        if changes == 0 || self.whole(changes) {
            return Ok(());
        }
        folders.iter().try_for_each(|dir| flush_folder(dir))
    }
}

/// Makes renames, removals and new files in one folder durable.
///
/// # Errors
/// The disk is broken.
pub fn flush_folder(dir: &Dir) -> Result<()> {
    fault::point("fsync")
        .and_then(|()| dir.handle().sync_all())
        .map_err(Error::store_io("flush", dir.path()))
}

/// The same for a folder that is not open.
///
/// # Errors
/// It cannot be opened, or the disk is broken.
pub fn flush_folder_at(path: &Path) -> Result<()> {
    fault::point("fsync")
        .and_then(|()| std::fs::File::open(path)?.sync_all())
        .map_err(Error::store_io("flush", path))
}

#[cfg(target_os = "linux")]
fn syncfs(dir: &Dir) -> std::io::Result<()> {
    Ok(rustix::fs::syncfs(dir.handle())?)
}

#[cfg(not(target_os = "linux"))]
fn syncfs(_: &Dir) -> std::io::Result<()> {
    Err(std::io::ErrorKind::Unsupported.into())
}

/// Before 5.8 `syncfs` did not report what it could not write; a file system
/// in user space may not pass it on at all.
#[cfg(target_os = "linux")]
fn can_flush_whole(root: &Dir) -> bool {
    const FUSE: u64 = 0x6573_5546;
    let kind = rustix::fs::fstatfs(root.handle()).map(|stat| stat.f_type as u64);
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease");
    kind.is_ok_and(|kind| kind != FUSE) && release.is_ok_and(|release| is_since_5_8(&release))
}

#[cfg(not(target_os = "linux"))]
fn can_flush_whole(_: &Dir) -> bool {
    false
}

#[cfg(any(target_os = "linux", test))]
fn is_since_5_8(release: &str) -> bool {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|number| number.parse::<u32>().ok());
    let mut next = || numbers.next().flatten();
    match (next(), next()) {
        (Some(major), Some(minor)) => (major, minor) >= (5, 8),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_beside_each_other_wait_for_a_flush_together() {
        let dir = tempfile::tempdir().unwrap();
        let (root, _) = Dir::open_root(dir.path(), None).unwrap();
        let flusher = Flusher::new(&root);
        if !flusher.whole(LARGE) {
            return; // No such file system, or no such system.
        }
        assert!(!flusher.whole(LARGE - 1), "each file by itself");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..20).for_each(|_| assert!(flusher.whole(LARGE))));
            }
        });
        let turns = flusher.turns.into_inner().unwrap();
        assert!(turns.begun <= 81 && !turns.is_running && turns.failed == 0);
    }

    #[test]
    fn kernels_since_5_8_report_errors_of_syncfs() {
        for (release, expected) in [
            ("5.8.0", true),
            ("5.7.19-generic", false),
            ("6.18.44-fc", true),
            ("4.19.0", false),
            ("10.0", true),
            ("", false),
            ("linux", false),
        ] {
            assert_eq!(is_since_5_8(release), expected, "{release}");
        }
    }
}
