//! Opening what may be anything: nothing but regular files is ever read.
//!
//! Whoever opens a pipe waits for its other end, and what a device does when
//! it is read nobody knows.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;

/// Opens a regular file for reading; links are followed.
///
/// # Errors
/// The operating system's, or that it is no regular file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    // Looked at first: to open a device may already do something. It may be
    // another file by the time it is open, so that is looked at again.
    if !path.metadata()?.is_file() {
        return Err(no_file());
    }
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(no_file()),
    }
}

/// The text of a regular file.
///
/// # Errors
/// As [`open_regular`], or it is not UTF-8.
pub fn read_regular(path: &Path) -> io::Result<String> {
    io::read_to_string(open_regular(path)?)
}

fn no_file() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "this is not a regular file")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_file_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let (pipe, link) = (folder.path().join("pipe"), folder.path().join("link"));
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
        std::os::unix::fs::symlink(&pipe, &link).unwrap();
        for path in [pipe.as_path(), &link, folder.path(), Path::new("/dev/null")] {
            let error = open_regular(path).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{path:?}");
        }
        let file = folder.path().join("file");
        std::fs::write(&file, "text").unwrap();
        assert_eq!(read_regular(&file).unwrap(), "text");
    }
}
