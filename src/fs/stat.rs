//! What a file looked like: all by which a change is noticed.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Size, times and identity of a file or folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stat {
    /// Size in bytes.
    pub size: u64,
    /// Last change of the content, in nanoseconds since 1970.
    pub mtime_ns: i64,
    /// Last change of content or attributes, in nanoseconds since 1970.
    pub ctime_ns: i64,
    /// Number of the file on its device.
    pub inode: u64,
    /// The device it lies on.
    pub device: u64,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    File,
    Dir,
    Symlink,
    Other,
}

impl Stat {
    /// What lies at `path`; the link itself, if it is one, unless `follow`.
    /// `None` if nothing is there.
    ///
    /// # Errors
    /// The operating system's, but for "not found".
    pub fn of(path: &Path, follow: bool) -> io::Result<Option<Self>> {
        let metadata = if follow {
            path.metadata()
        } else {
            path.symlink_metadata()
        };
        match metadata {
            Ok(metadata) => Ok(Some(Self::from_metadata(&metadata))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The open file's.
    ///
    /// # Errors
    /// The operating system's.
    pub fn of_file(file: &File) -> io::Result<Self> {
        file.metadata()
            .map(|metadata| Self::from_metadata(&metadata))
    }

    /// From what the standard library says.
    pub fn from_metadata(metadata: &Metadata) -> Self {
        let kind = if metadata.is_file() {
            Kind::File
        } else if metadata.is_dir() {
            Kind::Dir
        } else if metadata.is_symlink() {
            Kind::Symlink
        } else {
            Kind::Other
        };
        Self {
            size: metadata.size(),
            mtime_ns: nanoseconds(metadata.mtime(), metadata.mtime_nsec()),
            ctime_ns: nanoseconds(metadata.ctime(), metadata.ctime_nsec()),
            inode: metadata.ino(),
            device: metadata.dev(),
            kind,
        }
    }

    /// The content's last change in milliseconds since 1970; 0 if before.
    pub fn mtime_ms(&self) -> u64 {
        u64::try_from(self.mtime_ns.div_euclid(1_000_000)).unwrap_or(0)
    }

    /// Whether it is the same file with the same content, as far as size,
    /// mtime and inode tell. The change time is left out: a rename changes it.
    pub fn same_content(&self, other: &Self) -> bool {
        (self.size, self.mtime_ns, self.inode, self.device)
            == (other.size, other.mtime_ns, other.inode, other.device)
    }

    /// A regular file.
    pub fn is_file(&self) -> bool {
        self.kind == Kind::File
    }

    /// A folder.
    pub fn is_dir(&self) -> bool {
        self.kind == Kind::Dir
    }

    /// In words, what is neither a file nor a link, and so in the way where a
    /// file is to be put.
    pub fn in_the_way(&self) -> Option<&'static str> {
        match self.kind {
            Kind::File | Kind::Symlink => None,
            Kind::Dir => Some("a folder"),
            Kind::Other => Some("a pipe, socket or device"),
        }
    }

    /// A symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.kind == Kind::Symlink
    }
}

/// How much room a file system has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Bytes that an unprivileged user may still write.
    pub free: u64,
    /// A file takes up whole blocks of so many bytes.
    block: u64,
}

impl Room {
    /// No block is taken to be larger than this. Network file systems give the
    /// size of a transfer in its place, and an import that would fit must not
    /// be refused.
    const LARGEST_BLOCK: u64 = 4096;
    /// Files of a session beside its stream: descriptor and item ledger entry.
    const BESIDE: u64 = 2;

    /// Where `path` lies or is to be created; `None` if the file system does
    /// not say.
    pub fn at(path: &Path) -> Option<Self> {
        let path = std::path::absolute(path).ok()?;
        let existing = path.ancestors().find(|path| path.exists())?;
        let stat = rustix::fs::statvfs(existing).ok()?;
        Some(Self {
            free: stat.f_bavail.checked_mul(stat.f_frsize)?,
            block: stat.f_frsize.clamp(1, Self::LARGEST_BLOCK),
        })
    }

    /// About what a session takes whose source has so many bytes.
    pub fn needed(&self, source: u64) -> u64 {
        let blocks = source.div_ceil(self.block) + Self::BESIDE;
        blocks.saturating_mul(self.block)
    }
}

/// Times beyond the years 1677 to 2262 are the nearest that there is.
fn nanoseconds(seconds: i64, nanoseconds: i64) -> i64 {
    seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, SystemTime};

    #[test]
    fn tells_files_folders_and_links_apart() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        let link = dir.path().join("link");
        std::fs::write(&file, b"abc").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();

        let stat = Stat::of(&file, false).unwrap().unwrap();
        assert!(stat.is_file());
        assert_eq!(stat.size, 3);
        assert!(Stat::of(dir.path(), false).unwrap().unwrap().is_dir());
        assert!(Stat::of(&link, false).unwrap().unwrap().is_symlink());
        assert_eq!(Stat::of(&link, true).unwrap(), Some(stat));
        assert_eq!(Stat::of(&dir.path().join("none"), true).unwrap(), None);
        assert_eq!(Stat::of_file(&File::open(&file).unwrap()).unwrap(), stat);
    }

    #[test]
    fn a_session_takes_up_whole_blocks() {
        let room = Room {
            free: 0,
            block: 4096,
        };
        assert_eq!(room.needed(0), 2 * 4096);
        assert_eq!(room.needed(1), 3 * 4096);
        assert_eq!(room.needed(4096), 3 * 4096);
        assert_eq!(room.needed(4097), 4 * 4096);
        let here = Room::at(Path::new("/nowhere/at/all")).unwrap();
        assert!((1..=Room::LARGEST_BLOCK).contains(&here.block));
    }

    #[test]
    fn an_mtime_before_1970_is_zero_milliseconds() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let file = File::create(&path).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH - Duration::from_millis(1500))
            .unwrap();
        let stat = Stat::of_file(&file).unwrap();
        assert!(stat.mtime_ns < 0);
        assert_eq!(stat.mtime_ms(), 0);
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_micros(1999))
            .unwrap();
        assert_eq!(Stat::of_file(&file).unwrap().mtime_ms(), 1);
    }
}
