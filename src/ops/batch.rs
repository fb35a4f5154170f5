//! Items on their way into the store: gathered, committed together, and read
//! again where the application got in between.

use std::sync::Mutex;

use super::import::{Importer, Outcome, report};
use crate::model::diagnostic::{Code, Diagnostic};
use crate::plan::Item;
use crate::plan::decide::Decision;
use crate::report::Action;
use crate::store::{CommitError, Committed, Prepared, Writer};

/// Items in a batch, at most: each holds its temporary files' names in memory,
/// and what is not committed is read again after a crash.
const ITEMS: usize = 1024;

/// Bytes in a batch, about.
const BYTES: u64 = 256 << 20;

/// How often an item is read anew because the application wrote to its stream.
const TRIES: u32 = 3;

/// Codes that say what became of the store's record: untrue, once it could not
/// be put in place.
const TELLS_OF_A_WRITE: [Code; 4] = [
    Code::Mended,
    Code::RecordReplaced,
    Code::DroppedMessages,
    Code::ImportedWhileChanging,
];

/// Gathers outcomes from many threads.
pub(crate) struct Batches<'w> {
    writer: Option<&'w Writer>,
    pending: Mutex<Pending>,
    /// Those whose stream changed before it could be replaced.
    changed: Mutex<Vec<(usize, Outcome)>>,
    /// Told each outcome when nothing more is done about it, so that none is
    /// held for longer.
    settled: &'w (dyn Fn(usize, Outcome) + Sync),
}

#[derive(Default)]
struct Pending {
    outcomes: Vec<(usize, Outcome)>,
    bytes: u64,
}

impl<'w> Batches<'w> {
    /// For a writer, or for a dry run.
    pub(crate) fn new(
        writer: Option<&'w Writer>,
        settled: &'w (dyn Fn(usize, Outcome) + Sync),
    ) -> Self {
        Self {
            writer,
            pending: Mutex::default(),
            changed: Mutex::default(),
            settled,
        }
    }

    /// Does what was decided about an item, up to the commit.
    pub(crate) fn import(&self, importer: &Importer<'_>, item: &Item) -> Outcome {
        if let Some(name) = &item.name
            && let Err(error) = importer.store.check_places(name, &item.ledger_key())
        {
            return Outcome::unwritten(item, error.to_string());
        }
        match (&item.decision, self.writer) {
            (Decision::Move(before), Some(writer)) => importer.move_record(item, before, writer),
            (Decision::Move(before), None) => importer.moved(item, before),
            _ => importer.import(item),
        }
    }

    /// Takes an outcome; commits when there are enough.
    pub(crate) fn push(&self, index: usize, outcome: Outcome) {
        if outcome.prepared.is_none() {
            (self.settled)(index, outcome);
            return;
        }
        let full = {
            let Ok(mut pending) = self.pending.lock() else {
                return;
            };
            let written = outcome.prepared.as_ref();
            pending.bytes += written.map_or(0, |prepared| prepared.written.bytes);
            pending.outcomes.push((index, outcome));
            let is_full = pending.outcomes.len() >= ITEMS || pending.bytes >= BYTES;
            is_full.then(|| std::mem::take(&mut *pending))
        };
        if let Some(full) = full {
            self.commit(full.outcomes);
        }
    }

    /// Commits the rest, and reads again what the application wrote to.
    pub(crate) fn finish(self, importer: &Importer<'_>, items: &[Item]) {
        self.commit_rest();
        for _ in 1..TRIES {
            let again = self.take_changed();
            if again.is_empty() {
                break;
            }
            for (index, old) in again {
                match items.get(index) {
                    Some(item) => self.push(index, self.import(importer, item)),
                    None => (self.settled)(index, old),
                }
            }
            self.commit_rest();
        }
        for (index, outcome) in self.take_changed() {
            (self.settled)(index, outcome);
        }
    }

    fn commit_rest(&self) {
        let rest = match self.pending.lock() {
            Ok(mut pending) => std::mem::take(&mut *pending),
            Err(_) => Pending::default(),
        };
        self.commit(rest.outcomes);
    }

    fn take_changed(&self) -> Vec<(usize, Outcome)> {
        let Ok(mut changed) = self.changed.lock() else {
            return Vec::new();
        };
        let mut changed = std::mem::take(&mut *changed);
        changed.sort_by_key(|(index, _)| *index);
        changed
    }

    fn commit(&self, outcomes: Vec<(usize, Outcome)>) {
        let Some(writer) = self.writer.filter(|_| !outcomes.is_empty()) else {
            return;
        };
        let mut outcomes = outcomes;
        let is_busy = |outcome: &Outcome| matches!(&outcome.failure, Some((Code::StoreBusy, _)));
        let mut batch: Vec<Prepared> = Vec::with_capacity(outcomes.len());
        for (tag, (_, outcome)) in outcomes.iter_mut().enumerate() {
            if let Some(mut prepared) = outcome.prepared.take() {
                prepared.tag = tag;
                batch.push(*prepared);
            }
        }
        for (tag, result) in writer.commit(batch) {
            if let Some((_, outcome)) = outcomes.get_mut(tag) {
                outcome.committed(result);
            }
        }
        for (index, outcome) in outcomes {
            if !is_busy(&outcome) {
                (self.settled)(index, outcome);
            } else if let Ok(mut changed) = self.changed.lock() {
                changed.push((index, outcome));
            }
        }
    }
}

impl Outcome {
    /// An item for which nothing could be written, told before it was read.
    pub(super) fn unwritten(item: &Item, message: String) -> Self {
        let mut diagnostics = item.diagnostics.clone();
        diagnostics.push(Diagnostic::new(Code::StoreWrite, message.clone()));
        let mut report = report(item, Action::Failed, diagnostics);
        let name = item.name.as_ref();
        report.stream = name.map(|name| name.messages().as_str().to_owned());
        Self {
            report,
            prepared: None,
            failure: Some((Code::StoreWrite, message)),
            salvageable: 0,
            rejected: 0,
            ahead: None,
        }
    }

    /// Takes note of what the commit gave.
    fn committed(&mut self, result: Result<Committed, CommitError>) {
        let (code, message) = match result {
            Ok(committed) => {
                committed
                    .diagnostics
                    .into_iter()
                    .for_each(|found| self.add(found));
                if committed.stream_written_on {
                    let message = "the application wrote to the stream while it was replaced; \
                                   the next run looks at it again";
                    self.add(Diagnostic::new(Code::StreamWrittenOn, message));
                }
                return;
            }
            Err(CommitError::StreamChanged) => (
                Code::StoreBusy,
                "the application keeps writing to this session's stream; run again".to_owned(),
            ),
            Err(CommitError::Failed(error)) => (Code::StoreWrite, error.to_string()),
        };
        self.report.action = Action::Failed;
        // What was decided has not been done.
        self.report
            .diagnostics
            .retain(|found| !TELLS_OF_A_WRITE.contains(&found.code));
        let warnings = self.report.diagnostics.iter().filter(|d| d.is_warning());
        self.report.warnings = warnings.map(Diagnostic::sentence).collect();
        self.add(Diagnostic::new(code, message.clone()));
        self.failure = Some((code, message));
    }

    fn add(&mut self, diagnostic: Diagnostic) {
        if diagnostic.is_warning() {
            self.report.warnings.push(diagnostic.sentence());
        }
        self.report.diagnostics.push(diagnostic);
    }
}
