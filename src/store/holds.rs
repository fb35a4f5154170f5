//! Whether a source still has what an import read from it.

use std::io::{self, Read as _};
use std::path::Path;

use sha2::Digest as _;

use super::Entry;
use crate::fs::open_regular;
use crate::model::key::Sha256;

/// Whether an entry's source begins with the very bytes that were imported:
/// it is unchanged, or was only appended to. `false` where that cannot be told,
/// as of a sub-agent's history or of what was read from a Markdown view.
pub(crate) fn begins_as_imported(workspace: &Path, entry: &Entry) -> bool {
    let is_of_view = entry.salvaged == Some(true);
    entry.sha256.is_some()
        && !is_of_view
        && hash_of_beginning(workspace, entry).ok() == entry.sha256
}

fn hash_of_beginning(workspace: &Path, entry: &Entry) -> io::Result<Sha256> {
    let file = open_regular(&workspace.join(&entry.source))?;
    let mut hasher = sha2::Sha256::new();
    let mut buffer = vec![0; 64 * 1024];
    let mut beginning = file.take(entry.size);
    loop {
        match beginning.read(&mut buffer) {
            Ok(0) => return Ok(Sha256::from_digest(hasher)),
            Ok(read) => hasher.update(buffer.get(..read).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
