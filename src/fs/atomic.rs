//! Files that appear whole or not at all (`tinyagents-store.md`, Writing).
//!
//! A file is written under a temporary name in its folder and renamed into
//! place once it is durable. What is not renamed is removed.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::{Dir, Stat, fault};
use crate::error::{Error, Result};

const PREFIX: &str = ".session-import-";
const SUFFIX: &str = ".tmp";

/// Whether a file of this name is a temporary file of ours. Nothing else may
/// be cleared away.
pub fn is_temp_name(name: &str) -> bool {
    name.starts_with(PREFIX) && name.ends_with(SUFFIX)
}

/// A file under its temporary name; removed when dropped.
#[derive(Debug)]
pub struct Temp {
    dir: Arc<Dir>,
    name: OsString,
    placed: bool,
}

impl Temp {
    /// Creates one, open for writing, for a file that is to lie in `dir`.
    ///
    /// # Errors
    /// It cannot be created.
    pub fn new(dir: &Arc<Dir>) -> Result<(Self, File)> {
        let mut name = OsString::new();
        let made = tempfile::Builder::new()
            .prefix(PREFIX)
            .suffix(SUFFIX)
            .rand_bytes(12)
            .disable_cleanup(true)
            // Only the name is used, in the open folder. A relative path here
            // would make it ask for the current folder for each file.
            .make_in("/", |path| {
                name = path.file_name().unwrap_or_default().to_owned();
                dir.create_new(&name)
            })
            .map_err(Error::store_io("create a file in", dir.path()))?;
        let temp = Self {
            dir: Arc::clone(dir),
            name,
            placed: false,
        };
        Ok((temp, made.into_file()))
    }

    /// Creates one with this content.
    ///
    /// # Errors
    /// It cannot be created or written.
    pub fn with(dir: &Arc<Dir>, bytes: &[u8]) -> Result<Self> {
        let (temp, mut file) = Self::new(dir)?;
        fault::write_all(&mut file, bytes).map_err(Error::store_io("write to", dir.path()))?;
        Ok(temp)
    }

    /// Where it lies now.
    pub fn path(&self) -> PathBuf {
        self.dir.path().join(&self.name)
    }

    /// What it looks like now; after the rename the file looks the same but
    /// for its change time.
    ///
    /// # Errors
    /// It is gone.
    pub fn stat(&self) -> Result<Stat> {
        let path = self.path();
        let stat = Stat::of(&path, false).map_err(Error::store_io("read", &path))?;
        stat.ok_or_else(|| Error::store_io("read", &path)(io::ErrorKind::NotFound.into()))
    }

    /// Makes its content durable, alone.
    ///
    /// # Errors
    /// The disk is full or broken.
    pub fn flush(&self) -> Result<()> {
        let path = self.path();
        // Opened anew, so that a batch of any size needs no handles. An error
        // of earlier writes that nobody has seen is reported here all the same.
        fault::point("fsync")
            .and_then(|()| File::open(&path)?.sync_all())
            .map_err(Error::store_io("flush", &path))
    }

    /// Renames it into place as `name`. What lies there is replaced; a link is
    /// replaced itself.
    ///
    /// # Errors
    /// It cannot be renamed, and is removed.
    pub fn place(mut self, name: &str) -> Result<()> {
        self.dir
            .rename(&self.name, name)
            .map_err(Error::store_io("put in place", &self.dir.path().join(name)))?;
        self.placed = true;
        Ok(())
    }

    /// Renames it into place as `name`, where nothing may lie: `false`, and it
    /// is removed, if something does.
    ///
    /// # Errors
    /// It cannot be renamed, and is removed.
    pub fn place_new(mut self, name: &str) -> Result<bool> {
        self.placed = self
            .dir
            .rename_new(&self.name, name)
            .map_err(Error::store_io("put in place", &self.dir.path().join(name)))?;
        Ok(self.placed)
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        if !self.placed {
            // What cannot be removed now is cleared away by the next import.
            let _ = self.dir.unlink(&self.name);
        }
    }
}
