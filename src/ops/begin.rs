//! The moment before the first write.

use super::options::Progress;
use super::run::Run;
use super::wave::Shared;
use crate::error::{Error, Result};
use crate::model::plural::count;
use crate::plan::Item;

impl Run<'_> {
    /// Before the first write of some items: what cannot fit is not begun, and
    /// the marker goes before anything that it vouches for is touched. Gives
    /// what there is too little of.
    pub(super) fn begin<P: Progress>(
        &mut self,
        items: &[Item],
        to_write: &[usize],
        progress: &Shared<'_, P>,
    ) -> Result<Option<String>> {
        let sizes = to_write.iter().filter_map(|index| items.get(*index));
        let sizes = sizes.map(Item::bytes);
        let bytes: u64 = sizes.clone().sum();
        self.report.bytes += bytes;
        if let Ok(mut progress) = progress.lock() {
            progress.started(to_write.len() as u64, bytes);
        }
        let Some(writer) = self.writer.as_ref().filter(|_| !to_write.is_empty()) else {
            return Ok(None);
        };
        if let Some(room) = self.store.room() {
            let needed = sizes.map(|size| room.needed(size)).sum();
            if room.free < needed {
                let sessions = count(to_write.len() as u64, "session");
                let message = format!(
                    "about {needed} bytes are needed for {sessions}, and only {} \
                     are free",
                    room.free
                );
                return Ok(Some(message));
            }
        }
        if self.only.is_all() {
            writer.remove_marker()?;
        }
        Ok(None)
    }

    /// The import ends before it has begun.
    pub(super) fn no_room(&self, shortage: String) -> Error {
        Error::Store {
            path: self.store.layout().root().to_owned(),
            message: format!("{shortage}; nothing was imported; run again once there is room"),
        }
    }
}
