//! temp stub
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
/// x
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /** s */
    pub size: u64,
    /** s */
    pub mtime_ns: i64,
    /** s */
    pub ctime_ns: i64,
    /** s */
    pub inode: u64,
    /** s */
    pub device: u64,
}
impl Stat {
    /// x
    pub fn of_file(f: &File) -> io::Result<Self> {
        Ok(Self::from_metadata(&f.metadata()?))
    }
    /// x
    pub fn from_metadata(m: &Metadata) -> Self {
        Self {
            size: m.len(),
            mtime_ns: m.mtime() * 1_000_000_000 + m.mtime_nsec(),
            ctime_ns: m.ctime() * 1_000_000_000 + m.ctime_nsec(),
            inode: m.ino(),
            device: m.dev(),
        }
    }
    /// x
    pub fn of(p: &Path, follow: bool) -> io::Result<Option<Self>> {
        let r = if follow {
            std::fs::metadata(p)
        } else {
            std::fs::symlink_metadata(p)
        };
        match r {
            Ok(m) => Ok(Some(Self::from_metadata(&m))),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }
}
