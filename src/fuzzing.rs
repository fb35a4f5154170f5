//! How the fuzz targets in `fuzz/` reach the readers. Only compiled under the
//! feature `fuzzing`, and no part of the interface.
//!
//! The readers open files by their names, so the bytes go into one, in memory
//! where there is such a folder. Each thread has one file per kind, and writes
//! it anew each time.

use std::fs;
use std::io;
use std::path::Path;

use tempfile::TempDir;

use crate::error::Result;
use crate::model::interrupt::Interrupt;
use crate::model::key::Sha256;
use crate::model::message::Sink;
use crate::model::session::Reading;
use crate::source::input::Input;
use crate::source::openhuman::salvage::Defaults;
use crate::source::openhuman::{self, Format};
use crate::store::StreamReader;

/// A file system in memory.
const MEMORY: &str = "/dev/shm";

/// Reads a transcript as an import reads it, and hashes it.
///
/// # Errors
/// What gives up the file; the bytes cannot be written.
pub fn transcript(
    format: Format,
    bytes: &[u8],
    salvage: Option<&Defaults>,
    sink: &mut dyn Sink,
) -> Result<(Reading, Sha256)> {
    with_file("transcript", bytes, |folder| {
        let interrupt = Interrupt::default();
        let input = Input::open(&folder.join("transcript"), &interrupt, &|_| ())?;
        openhuman::read(format, &input, salvage, sink)
    })
}

/// Opens a stream of these bytes.
///
/// # Errors
/// It cannot be opened; the bytes cannot be written.
pub fn stream(bytes: &[u8]) -> Result<Option<StreamReader>> {
    with_file("stream", bytes, |folder| {
        StreamReader::open(&folder.join("stream"))
    })
}

/// Calls `read` with a workspace whose sub-agents file has these bytes.
///
/// # Errors
/// Those of `read`; the bytes cannot be written.
pub fn subagents<R>(bytes: &[u8], read: impl FnOnce(&Path) -> Result<R>) -> Result<R> {
    with_file(".openhuman/subagent_sessions.json", bytes, read)
}

/// Calls `read` with the thread's folder, in which a file has these bytes.
fn with_file<R>(name: &str, bytes: &[u8], read: impl FnOnce(&Path) -> Result<R>) -> Result<R> {
    thread_local! {
        static FOLDER: io::Result<TempDir> = folder();
    }
    FOLDER.with(|folder| {
        let folder = match folder {
            Ok(folder) => folder.path(),
            Err(error) => {
                return Err(crate::Error::io("make a folder in", Path::new(MEMORY))(
                    error.kind().into(),
                ));
            }
        };
        fs::write(folder.join(name), bytes).map_err(crate::Error::io("write", folder))?;
        read(folder)
    })
}

fn folder() -> io::Result<TempDir> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("session-import-fuzz-");
    let folder = match Path::new(MEMORY).is_dir() {
        true => builder.tempdir_in(MEMORY)?,
        false => builder.tempdir()?,
    };
    fs::create_dir(folder.path().join(".openhuman"))?;
    Ok(folder)
}
