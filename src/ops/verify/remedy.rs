//! What helps against what was found. A command is named only where it does.

use super::examine::{Examiner, State};
use super::judge::Judge;
use crate::fs::stat::Stat;
use crate::model::check::{Check, Weight};
use crate::model::remedy::Remedy;
use crate::report::Finding;
use crate::store::Store;

impl Judge<'_> {
    /// Says of each finding what helps.
    pub(super) fn remedies(&mut self) {
        let mut found = std::mem::take(&mut self.found);
        for finding in &mut found {
            if finding.severity == Weight::Finding {
                finding.remedy = Some(self.remedy(finding));
            }
        }
        self.found = found;
    }

    fn remedy(&self, finding: &Finding) -> Remedy {
        let Examiner { importer, .. } = self.examiner;
        if is_in_the_way(importer.store, finding) {
            return Remedy::MoveAway;
        }
        match (finding.code, &self.state) {
            (Check::StreamDiverged, _) => Remedy::Overwrite,
            (Check::SourceUnreadable, _) => Remedy::MendSource,
            (_, State::Gone) => Remedy::CopyOfStore,
            // A run skips it.
            (_, State::Unread) if self.is_settled => Remedy::CopyOfStore,
            _ if self.is_settled => Remedy::Force,
            (_, State::Unread) => Remedy::MendSource,
            _ if self.is_ahead => Remedy::Overwrite,
            _ => Remedy::Checksum,
        }
    }
}

/// What helps against a finding about which no more is known.
pub(super) fn usual(store: &Store, finding: &Finding) -> Remedy {
    match finding.code {
        _ if is_in_the_way(store, finding) => Remedy::MoveAway,
        Check::ResidueOrphan => Remedy::CopyOrRemove,
        Check::SourceUnreadable => Remedy::MendSource,
        Check::StreamDiverged => Remedy::Overwrite,
        _ => Remedy::Checksum,
    }
}

/// Whether something that no run replaces lies where the file should be.
fn is_in_the_way(store: &Store, finding: &Finding) -> bool {
    let path = finding.file.as_ref();
    let path = path.map(|file| store.layout().root().join(file));
    let stat = path.and_then(|path| Stat::of(&path, false).ok().flatten());
    stat.is_some_and(|stat| stat.in_the_way().is_some())
}
