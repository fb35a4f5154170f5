//! A source file while it is read: hashed on the way, line by line, and looked
//! at before and after.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};

use sha2::Digest as _;

use crate::error::{Error, Result};
use crate::fs::open_regular;
use crate::fs::stat::Stat;
use crate::model::diagnostic::Code;
use crate::model::interrupt::Interrupt;
use crate::model::key::Sha256;

/// Longest line that is read, in bytes: memory stays bounded whatever a file holds.
pub(crate) const MAX_LINE: usize = 1 << 30;

/// Bytes per read: large enough that the kernel's share is small, small
/// enough to stay in the processor's cache while it is hashed and parsed.
const BUFFER: usize = 128 * 1024;

/// The same for a file that seems to be shorter than this; it may grow.
const SMALLEST_BUFFER: usize = 4096;

/// An open source file. Reads go by position, so that a stretch can be read
/// again while the main pass goes on; the file is opened once, so that all of
/// them see the same one.
pub(crate) struct Input<'a> {
    file: File,
    path: PathBuf,
    before: Stat,
    interrupt: &'a Interrupt,
    progress: &'a (dyn Fn(u64) + Sync),
}

impl<'a> Input<'a> {
    /// Opens a source for reading.
    pub(crate) fn open(
        path: &Path,
        interrupt: &'a Interrupt,
        progress: &'a (dyn Fn(u64) + Sync),
    ) -> Result<Self> {
        let file = open_regular(path).map_err(|error| {
            if error.kind() == io::ErrorKind::NotFound {
                let message = format!("{} is not there any more", path.display());
                Error::source(Code::Vanished, message)
            } else {
                Error::io("open", path)(error)
            }
        })?;
        let before = Stat::of_file(&file).map_err(Error::io("look at", path))?;
        Ok(Self {
            file,
            path: path.to_owned(),
            before,
            interrupt,
            progress,
        })
    }

    /// The file as it was when it was opened.
    pub(crate) fn before(&self) -> Stat {
        self.before
    }

    /// Whether the file changed since it was opened, or another one has its name.
    pub(crate) fn has_changed(&self) -> bool {
        let open = Stat::of_file(&self.file).ok();
        let named = Stat::of(&self.path, true).ok().flatten();
        open != Some(self.before) || named != Some(self.before)
    }

    /// All lines, hashed on the way.
    pub(crate) fn lines(&self) -> Lines<'_> {
        self.lines_from(0, 0, Some(sha2::Sha256::new()))
    }

    /// The lines from one on that was read before: its offset, and the number
    /// of lines before it. Not hashed, not counted as progress.
    pub(crate) fn lines_again(&self, offset: u64, lines_before: u64) -> Lines<'_> {
        self.lines_from(offset, lines_before, None)
    }

    fn lines_from(&self, offset: u64, number: u64, hasher: Option<sha2::Sha256>) -> Lines<'_> {
        // A buffer is filled with zeros before it is first used: of the many
        // files that are small, only as much as they need.
        let rest = usize::try_from(self.before.size.saturating_sub(offset)).unwrap_or(BUFFER);
        let reader = PositionedReader {
            input: self,
            position: offset,
            hasher,
        };
        Lines {
            reader: BufReader::with_capacity(rest.clamp(SMALLEST_BUFFER, BUFFER), reader),
            number,
            offset,
        }
    }

    /// The hash of the file's bytes.
    pub(crate) fn hash(&self) -> Result<Sha256> {
        let mut lines = self.lines();
        let copied = io::copy(&mut lines.reader, &mut io::sink());
        copied.map_err(|error| self.error(error))?;
        Ok(lines.into_sha256())
    }

    /// The whole file, for formats that are not read by lines.
    pub(crate) fn whole(&self, limit: u64) -> Result<(Vec<u8>, Sha256)> {
        if self.before.size > limit {
            let message = format!(
                "{} is larger than {limit} bytes, the limit for its format",
                self.path.display()
            );
            return Err(Error::source(Code::LineTooLong, message));
        }
        let mut bytes = Vec::new();
        let mut lines = self.lines();
        let read = lines.reader.by_ref().take(limit).read_to_end(&mut bytes);
        read.map_err(|error| self.error(error))?;
        Ok((bytes, lines.into_sha256()))
    }

    fn error(&self, error: io::Error) -> Error {
        if self.interrupt.is_set() {
            return Error::Interrupted;
        }
        Error::io("read", &self.path)(error)
    }
}

/// Reads an [`Input`] from a position on.
struct PositionedReader<'a> {
    input: &'a Input<'a>,
    position: u64,
    hasher: Option<sha2::Sha256>,
}

impl Read for PositionedReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.input.interrupt.is_set() {
            // Not `Interrupted`: that kind is retried.
            return Err(io::Error::other("asked to stop"));
        }
        let length = read_at(&self.input.file, buffer, self.position)?;
        self.position += length as u64;
        if let Some(hasher) = &mut self.hasher {
            hasher.update(buffer.get(..length).unwrap_or_default());
            (self.input.progress)(length as u64);
        }
        Ok(length)
    }
}

#[cfg(unix)]
fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, buffer, offset)
}

#[cfg(windows)]
fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, buffer, offset)
}

/// Lines of an [`Input`], ended by `\n` and nothing else
/// (`openhuman-workspace.md` §1.1).
pub(crate) struct Lines<'a> {
    reader: BufReader<PositionedReader<'a>>,
    number: u64,
    offset: u64,
}

/// Where a line stands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Position {
    /// Number of the line, from 1.
    pub(crate) number: u64,
    /// Offset of its first byte.
    pub(crate) offset: u64,
    /// It ends with a newline: only the last line may not.
    pub(crate) is_whole: bool,
}

impl Lines<'_> {
    /// The next line, without its newline, into a buffer that is used again.
    pub(crate) fn next(&mut self, line: &mut Vec<u8>) -> Result<Option<Position>> {
        line.clear();
        let input = self.reader.get_ref().input;
        let limit = MAX_LINE as u64 + 1;
        let mut limited = self.reader.by_ref().take(limit);
        let length = limited.read_until(b'\n', line);
        let length = length.map_err(|error| input.error(error))? as u64;
        if length == 0 {
            return Ok(None);
        }
        let is_whole = line.last() == Some(&b'\n');
        if is_whole {
            line.pop();
        } else if length == limit {
            let message = format!(
                "line {} of {} is longer than {MAX_LINE} bytes",
                self.number + 1,
                input.path.display()
            );
            return Err(Error::source(Code::LineTooLong, message));
        }
        let position = Position {
            number: self.number + 1,
            offset: self.offset,
            is_whole,
        };
        self.number += 1;
        self.offset += length;
        Ok(Some(position))
    }

    /// Offset behind the line given last.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// The hash of all that was read.
    pub(crate) fn into_sha256(self) -> Sha256 {
        let hasher = self.reader.into_inner().hasher;
        Sha256::from_digest(hasher.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_at_newlines_only_and_the_whole_file_is_hashed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let bytes = "a\u{2028}b\r\n\n\u{85}last".as_bytes();
        std::fs::write(&path, bytes).unwrap();
        let interrupt = Interrupt::default();
        let input = Input::open(&path, &interrupt, &|_| ()).unwrap();
        let mut lines = input.lines();
        let (mut line, mut all) = (Vec::new(), Vec::new());
        while let Some(at) = lines.next(&mut line).unwrap() {
            all.push((at.number, at.offset, at.is_whole, line.clone()));
        }
        assert_eq!(all.len(), 3);
        assert_eq!(all[0].3, "a\u{2028}b\r".as_bytes());
        assert_eq!((all[2].0, all[2].2), (3, false));
        assert_eq!(lines.into_sha256(), Sha256::of(bytes));
        let mut again = input.lines_again(all[1].1, 1);
        assert_eq!(again.next(&mut line).unwrap().unwrap().number, 2);
        assert!(!input.has_changed());
        std::fs::write(&path, "x").unwrap();
        assert!(input.has_changed());
    }

    #[test]
    fn a_stop_ends_the_reading() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, "a\n").unwrap();
        let interrupt = Interrupt::default();
        let input = Input::open(&path, &interrupt, &|_| ()).unwrap();
        interrupt.stop();
        let got = input.lines().next(&mut Vec::new());
        assert!(matches!(got, Err(Error::Interrupted)));
    }
}
