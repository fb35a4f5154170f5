//! Copies of stores, so that a check can write in one.

use std::{fs, io, path::Path};

/// Copies the store `from`, with all that lies in it, to the folder `to`,
/// which is created.
///
/// # Errors
///
/// Any error of the file system. A link is followed: what the store's readers
/// would read is what is copied.
pub fn copy_store(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if fs::metadata(entry.path())?.is_dir() {
            copy_store(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
