//! What lies where a session's files are to be put.
//!
//! A rename replaces a link as it replaces a file, but never a folder; and a
//! pipe or a device is nobody's record. Found in the middle of a commit, it
//! would leave a session's files of two imports, so it is looked for before
//! the first of them is put in place.

use super::layout::Namespace;
use super::{Store, StoreName};
use crate::error::{Error, Result};
use crate::fs::Stat;
use crate::model::key::Sha256;

impl Store {
    /// Whether nothing is in the way of a session's files: its streams, its
    /// descriptor and its item ledger entry.
    ///
    /// # Errors
    /// [`Error::Store`] names what is in the way and what to do about it.
    pub fn check_places(&self, name: &StoreName, ledger_key: &Sha256) -> Result<()> {
        let layout = self.layout();
        let places = [
            layout.stream_file(&name.messages()),
            layout.stream_file(&name.residue()),
            layout.key_file(Namespace::Sessions, name.as_str()),
            layout.key_file(Namespace::Items, &ledger_key.to_string()),
        ];
        for path in places {
            let found = Stat::of(&path, false).map_err(Error::store_io("read", &path))?;
            if let Some(what) = found.and_then(|stat| stat.in_the_way()) {
                let message = format!(
                    "{what} lies where a file of this session belongs; nothing of the session was \
                     changed; move it away and run again"
                );
                return Err(Error::Store { path, message });
            }
        }
        Ok(())
    }

    /// Whether what lies at a key's place is something that no record can
    /// replace.
    pub fn is_in_the_way(&self, namespace: Namespace, key: &str) -> bool {
        let found = Stat::of(&self.layout().key_file(namespace, key), false);
        found.is_ok_and(|stat| stat.is_some_and(|stat| stat.in_the_way().is_some()))
    }
}
