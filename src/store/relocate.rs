//! A record whose source has another path now, and the stat cache: the two
//! things that are written without a session being written.

use super::layout::{Namespace, STAT_CACHE};
use super::{Descriptor, Entry, StoreName, Writer, kv};
use crate::error::Result;
use crate::fs::Temp;
use crate::model::key::Sha256;

impl Writer {
    /// Gives a record to its source's new path: the descriptor first, the new
    /// entry, then the old entries go. At every moment one of the entries
    /// vouches for what is there.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn relocate(
        &self,
        name: &StoreName,
        descriptor: Option<&Descriptor>,
        mut entry: Entry,
        new_key: &Sha256,
        old_keys: &[Sha256],
    ) -> Result<()> {
        if let Some(descriptor) = descriptor {
            let bytes = kv::to_bytes(descriptor)?;
            entry.descriptor_sha256 = Some(Sha256::of(&bytes));
            self.put(Namespace::Sessions, name.as_str(), &bytes)?;
        }
        self.put_entry(new_key, &entry)?;
        for old in old_keys.iter().filter(|old| *old != new_key) {
            self.remove_item(old)?;
        }
        Ok(())
    }

    /// Writes the stat cache. It is not flushed: it may be lost at any time.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn put_stat_cache(&self, bytes: &[u8]) -> Result<()> {
        Temp::with(&self.root, bytes)?.place(STAT_CACHE)
    }
}
