//! A file that is hashed while it is written, and can be cut back to a mark.

use std::fs::File;
use std::io::{self, Seek as _, SeekFrom, Write};
use std::sync::{Arc, Mutex, PoisonError};

use sha2::Digest as _;

use crate::fs::fault;
use crate::model::key::Sha256;

/// Size of a write to the disk. Larger ones were not measurably faster.
const BUFFER: usize = 128 * 1024;

/// Buffers that are used again: a session is written in the one of an earlier
/// session, so memory depends on the number of threads alone.
#[derive(Debug, Clone, Default)]
pub(super) struct Buffers(Arc<Mutex<Vec<Vec<u8>>>>);

impl Buffers {
    fn take(&self) -> Vec<u8> {
        let mut spare = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        spare.pop().unwrap_or_else(|| Vec::with_capacity(BUFFER))
    }

    fn give_back(&self, mut buffer: Vec<u8>) {
        buffer.clear();
        let mut spare = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        spare.push(buffer);
    }
}

/// A place to cut back to.
#[derive(Debug, Clone, Default)]
pub(super) struct Mark {
    length: u64,
    hasher: sha2::Sha256,
}

/// The file, its buffer and its hash so far.
#[derive(Debug)]
pub(super) struct HashedFile {
    file: File,
    buffers: Buffers,
    /// What is not in the file yet.
    buffer: Vec<u8>,
    /// How much of the buffer is in the hash.
    hashed: usize,
    /// Length of the file, without the buffer.
    written: u64,
    hasher: sha2::Sha256,
}

impl HashedFile {
    pub(super) fn new(file: File, buffers: &Buffers) -> Self {
        Self {
            file,
            buffers: buffers.clone(),
            buffer: buffers.take(),
            hashed: 0,
            written: 0,
            hasher: sha2::Sha256::new(),
        }
    }

    /// Length so far.
    pub(super) fn length(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Where it ends now.
    pub(super) fn mark(&mut self) -> Mark {
        self.hash_buffer();
        Mark {
            length: self.length(),
            hasher: self.hasher.clone(),
        }
    }

    /// Forgets all that came after the mark.
    pub(super) fn cut(&mut self, mark: &Mark) -> io::Result<()> {
        self.hasher = mark.hasher.clone();
        if let Some(kept) = mark.length.checked_sub(self.written) {
            // A buffer is never as large as an address space.
            self.buffer
                .truncate(usize::try_from(kept).unwrap_or(usize::MAX));
        } else {
            fault::point("set_len")?;
            self.file.set_len(mark.length)?;
            self.file.seek(SeekFrom::Start(mark.length))?;
            self.written = mark.length;
            self.buffer.clear();
        }
        self.hashed = self.buffer.len();
        Ok(())
    }

    /// Writes what is left, and gives the hash and the length of it all.
    pub(super) fn finish(mut self) -> io::Result<(Sha256, u64)> {
        self.empty_buffer()?;
        let hasher = std::mem::take(&mut self.hasher);
        Ok((Sha256::from_digest(hasher), self.written))
    }

    fn hash_buffer(&mut self) {
        if let Some(rest) = self.buffer.get(self.hashed..) {
            self.hasher.update(rest);
        }
        self.hashed = self.buffer.len();
    }

    fn empty_buffer(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        self.hash_buffer();
        fault::write_all(&mut self.file, &self.buffer)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        self.hashed = 0;
        Ok(())
    }
}

impl Write for HashedFile {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > BUFFER - self.buffer.len() {
            self.empty_buffer()?;
            if bytes.len() >= BUFFER {
                // A text of many megabytes is not copied once more.
                self.hasher.update(bytes);
                fault::write_all(&mut self.file, bytes)?;
                self.written += bytes.len() as u64;
                return Ok(bytes.len());
            }
        }
        self.buffer.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    /// Nothing is flushed before the end: see [`HashedFile::finish`].
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for HashedFile {
    fn drop(&mut self) {
        self.buffers.give_back(std::mem::take(&mut self.buffer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, Clone)]
    enum Step {
        Write(usize),
        Mark,
        Cut,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (0..3 * BUFFER).prop_map(Step::Write),
            4 => (0..100_usize).prop_map(Step::Write),
            1 => Just(Step::Mark),
            1 => Just(Step::Cut),
        ];
        proptest::collection::vec(step, 0..30)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Against a plain vector of bytes.
        #[test]
        fn file_and_hash_are_those_of_the_bytes_that_are_left(steps in steps()) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("file");
            let buffers = Buffers::default();
            let mut file = HashedFile::new(File::create(&path).unwrap(), &buffers);
            let mut mark = Mark::default();
            let (mut bytes, mut kept) = (Vec::new(), 0);
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Write(length) => {
                        let more = vec![number as u8; length];
                        file.write_all(&more).unwrap();
                        bytes.extend(more);
                    }
                    Step::Mark => {
                        mark = file.mark();
                        kept = bytes.len();
                    }
                    Step::Cut => {
                        file.cut(&mark).unwrap();
                        bytes.truncate(kept);
                    }
                }
                prop_assert_eq!(file.length(), bytes.len() as u64);
            }
            let (hash, length) = file.finish().unwrap();
            prop_assert_eq!(length, bytes.len() as u64);
            prop_assert_eq!(hash, Sha256::of(&bytes));
            prop_assert_eq!(std::fs::read(&path).unwrap(), bytes);
        }
    }
}
