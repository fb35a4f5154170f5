//! What follows from a record, its source and its entry, all read.
//!
//! Each part is told once, by the reason that explains it best: a stream that
//! the application would refuse is not also one that was changed.

use super::difference::Field;
use super::examine::{Examiner, State};
use super::lockstep::{Lockstep, Seen};
use crate::model::check::Check;
use crate::model::key::Sha256;
use crate::model::plural::count;
use crate::model::session::Kind;
use crate::ops::compare::describe;
use crate::plan::Item;
use crate::report::Finding;
use crate::store::layout::JOURNAL;
use crate::store::name::{StoreName, StreamName};
use crate::store::record::Entry;

/// The files of a session's record.
pub(super) struct Held {
    pub(super) journal: Option<Sha256>,
    pub(super) residue: Option<Sha256>,
    pub(super) descriptor: Option<Result<Vec<u8>, &'static str>>,
    /// The item ledger entry's file.
    pub(super) entry: Option<Result<Vec<u8>, &'static str>>,
}

/// One entry, judged.
pub(super) struct Judge<'a> {
    pub(super) examiner: &'a Examiner<'a>,
    pub(super) entry: &'a Entry,
    pub(super) item: Option<&'a Item>,
    pub(super) name: &'a StoreName,
    pub(super) state: State,
    pub(super) lockstep: Lockstep,
    pub(super) held: Held,
    pub(super) found: Vec<Finding>,
    /// Fields of the entry that are not what they should be.
    pub(super) wrong: Vec<Field>,
    pub(super) is_moved: bool,
    /// The source failed as it is, and somebody has accepted that.
    pub(super) is_settled: bool,
    /// The application has gone further than the source: an import leaves the
    /// session alone.
    pub(super) is_ahead: bool,
}

impl Judge<'_> {
    pub(super) fn judge(mut self) -> Vec<Finding> {
        let messages = self.lockstep.messages.take().map(|stream| stream.seen);
        let residue = self.lockstep.residue.take().map(|stream| stream.seen);
        if messages.is_none() && self.held.descriptor.is_none() {
            let message = "neither its stream nor its descriptor is there";
            self.found.push(Finding::new(Check::RecordMissing, message));
        } else {
            let is_written_on = self.stream(messages.as_ref());
            self.descriptor(is_written_on);
            self.residue(residue.as_ref());
        }
        self.lines(messages.as_ref(), residue.as_ref());
        self.entry();
        self.remedies();
        self.found
    }

    pub(super) fn tell(&mut self, code: Check, file: String, message: impl Into<String>) {
        self.found.push(about(code, file, message));
    }

    /// `true` if the application has written on in it.
    fn stream(&mut self, seen: Option<&Seen>) -> bool {
        let file = stream_file(&self.name.messages());
        let Some(seen) = seen else {
            self.tell(Check::StreamMissing, file, "its stream is not there");
            return false;
        };
        if let Some(damaged) = &seen.refused {
            let message = format!(
                "the application would refuse the stream: {}",
                describe(damaged)
            );
            self.tell(Check::StreamRefused, file, message);
            return false;
        }
        let is_as_left = self.held.journal == self.entry.journal_sha256;
        let given = self.lockstep.given.messages;
        let relation = Relation::of(seen, given);
        let is_same_source = matches!(self.state, State::Same(_));
        let is_read = !matches!(self.state, State::Unread | State::Gone);
        if !is_as_left && is_read {
            let is_written_on = match (is_same_source, relation) {
                (true, relation) => relation == Relation::Ahead,
                (false, relation) => relation != Relation::Diverged,
            };
            if is_written_on {
                let message = written_on(seen, given);
                self.is_ahead = relation == Relation::Ahead;
                self.tell(Check::WrittenOn, file, message);
                return true;
            }
        }
        let differs = seen.differs.is_some() || seen.records != given;
        let gap = seen.gap.map(|number| {
            format!(
                "its offsets have a gap: message {number} does not have offset {}",
                number - 1
            )
        });
        let (code, message) = match (is_as_left, is_same_source) {
            (_, true) if differs => match is_as_left {
                true => (Check::StreamDiffers, first_difference(seen, given)),
                false => (Check::StreamChanged, first_difference(seen, given)),
            },
            (_, _) if gap.is_some() && (is_as_left || is_same_source || !is_read) => {
                (Check::StreamGap, gap.unwrap_or_default())
            }
            (true, true) => return false,
            (true, false) => {
                self.counts(seen);
                return false;
            }
            (false, true) => {
                let message = "it holds the source's messages, but not the bytes that were written";
                (Check::StreamChanged, message.to_owned())
            }
            (false, false) if is_read => {
                let parted = format!("part after message {}", seen.agreed);
                if self.is_settled {
                    let message = format!("stream and source {parted}, and both are kept");
                    self.tell(Check::AcceptedItem, file, message);
                    return true;
                }
                let message = format!("stream and source have both changed, and {parted}");
                (Check::StreamDiverged, message)
            }
            (false, false) => {
                let why = match self.state {
                    State::Gone => "there is no source",
                    _ => "its source gives nothing",
                };
                let message = format!(
                    "its bytes are not those that were written, and {why} to compare it with"
                );
                (Check::StreamChanged, message)
            }
        };
        let first = match code {
            Check::StreamGap => seen.gap,
            Check::StreamDiverged => Some(seen.agreed + 1),
            _ if is_read && differs => seen.differs.or(Some(seen.records.min(given) + 1)),
            _ => None,
        };
        self.found.push(Finding {
            first_message: first,
            differences: seen.differences.clone(),
            ..about(code, file, message)
        });
        // Who has written the one has written the descriptor, too.
        code == Check::StreamDiverged
    }

    /// A stream that is as it was left must have the messages that its entry
    /// counts, whatever its source is now.
    fn counts(&mut self, seen: &Seen) {
        if seen.records != self.entry.messages {
            self.wrong.push(Field {
                name: "messages".to_owned(),
                store: Some(self.entry.messages.into()),
                given: Some(seen.records.into()),
            });
        }
    }

    fn residue(&mut self, seen: Option<&Seen>) {
        let file = stream_file(&self.name.residue());
        let given = self.lockstep.given.residue;
        let is_same_source = matches!(self.state, State::Same(_));
        let is_expected = self.entry.residue_sha256.is_some();
        let Some(seen) = seen else {
            if is_expected {
                let message = "its residue stream is not there";
                self.tell(Check::ResidueMissing, file, message);
            } else if is_same_source && given > 0 {
                let lines = count(given, "line");
                let message = format!("the source gives {lines} of residue, the store has none");
                self.tell(Check::ResidueDiffers, file, message);
            }
            return;
        };
        if !is_expected {
            let message = "its entry knows of no residue stream, and there is one";
            self.tell(Check::ResidueExtra, file, message);
            return;
        }
        if let Some(damaged) = &seen.refused {
            let message = format!("its residue stream is damaged: {}", describe(damaged));
            self.tell(Check::ResidueRefused, file, message);
            return;
        }
        let is_as_left = self.held.residue == self.entry.residue_sha256;
        let numbered = seen.records - seen.dropped;
        let differs =
            is_same_source && (seen.differs.is_some() || seen.behind > 0 || numbered != given);
        let first = match seen.differs {
            Some(first) => Some(first),
            None if differs => Some(numbered.min(given) + 1),
            None => seen.gap,
        };
        let code = match is_as_left {
            true if differs || seen.gap.is_some() => Check::ResidueDiffers,
            true => return,
            false => Check::ResidueChanged,
        };
        let message = match (differs, seen.gap) {
            (true, _) => match seen.differs {
                Some(first) => format!("residue record {first} differs in {}", seen.fields),
                None => {
                    let lines = count(numbered, "line");
                    format!("it holds {lines} of the source, which gives {given}")
                }
            },
            (false, Some(gap)) => format!("its offsets have a gap at record {gap}"),
            (false, None) => "its bytes are not those that were written".to_owned(),
        };
        let differences = match is_same_source {
            true => seen.differences.clone(),
            false => Vec::new(),
        };
        self.found.push(Finding {
            first_residue: first,
            differences,
            ..about(code, file, message)
        });
    }

    fn kind(&self) -> Option<Kind> {
        let now = self.item.map(|item| item.session.kind);
        now.or(self.entry.kind)
    }

    /// Messages and residue together account for every line of the source
    /// (`tinyagents-store.md`, Journals).
    fn lines(&mut self, messages: Option<&Seen>, residue: Option<&Seen>) {
        let Some(lines) = self.entry.lines else {
            return;
        };
        let numbered = residue.map_or(0, |seen| seen.records - seen.dropped);
        // In Markdown a record spans many lines; what was salvaged stands in
        // the residue as well, and a compaction brings its messages along.
        // An entry that is wrong in these is told by itself.
        let (is_salvaged, compactions) = match &self.state {
            State::Same(source) => (source.reading.salvaged, Some(source.reading.compactions)),
            _ => (self.entry.salvaged == Some(true), self.entry.compactions),
        };
        let is_by_line = self.kind() != Some(Kind::Markdown) && !is_salvaged;
        let is_one_to_one = is_by_line && compactions == Some(0);
        let has_residue = self.held.residue == self.entry.residue_sha256;
        let has_messages = messages.is_some() && self.held.journal == self.entry.journal_sha256;
        let message = if !lines.add_up() {
            format!(
                "of {}, {}, {}, {} of residue and {} blank are counted",
                count(lines.total, "line"),
                count(lines.headers, "header"),
                count(lines.messages, "message"),
                lines.residue,
                lines.blank
            )
        } else if is_by_line && has_residue && numbered != lines.residue {
            format!(
                "its entry counts {} of residue, the stream holds {numbered}",
                count(lines.residue, "line")
            )
        } else if is_one_to_one
            && has_messages
            && messages.is_some_and(|seen| seen.records != lines.messages)
        {
            let held = messages.map_or(0, |seen| seen.records);
            format!(
                "its entry counts {}, the stream holds {held}",
                count(lines.messages, "message")
            )
        } else {
            return;
        };
        self.found.push(Finding::new(Check::LinesOff, message));
    }
}

/// How a stream's messages stand to the source's, by role and content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Relation {
    /// They are the source's, or the first of them.
    First,
    /// The source's are the first of them.
    Ahead,
    Diverged,
}

impl Relation {
    pub(super) fn of(seen: &Seen, given: u64) -> Self {
        if seen.agreed < seen.records.min(given) {
            Self::Diverged
        } else if seen.records > given {
            Self::Ahead
        } else {
            Self::First
        }
    }
}

fn written_on(seen: &Seen, given: u64) -> String {
    let agreed = count(seen.agreed, "message");
    match seen.records.checked_sub(given) {
        Some(0) => format!("it agrees with the source in all {agreed}"),
        Some(more) => format!("it agrees with all {agreed} of the source, and has {more} more"),
        None => format!(
            "it agrees with the first {} of the source's {}",
            seen.agreed,
            count(given, "message")
        ),
    }
}

fn first_difference(seen: &Seen, given: u64) -> String {
    let records = seen.records;
    let counts = match records == given {
        true => format!("{} of {} differ", seen.differing, count(records, "message")),
        false => format!("it holds {}, the source {given}", count(records, "message")),
    };
    match seen.differs {
        Some(first) => format!("message {first} differs in {}; {counts}", seen.fields),
        None => counts,
    }
}

pub(super) fn about(code: Check, file: String, message: impl Into<String>) -> Finding {
    Finding {
        file: Some(file),
        ..Finding::new(code, message)
    }
}

/// A stream's file, relative to the store.
fn stream_file(stream: &StreamName) -> String {
    format!("{JOURNAL}/{}", stream.file_name())
}
