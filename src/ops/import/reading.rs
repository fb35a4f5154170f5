//! Reading a source that may be written to meanwhile (`behaviour.md`, The
//! source while it is read).

use std::time::{Duration, SystemTime};

use chrono::{DateTime, SecondsFormat, Utc};

use super::Importer;
use crate::error::{Error, Result};
use crate::fs::stat::Stat;
use crate::model::diagnostic::{Code, Diagnostic};
use crate::model::key::Sha256;
use crate::model::message::{Discard, Sink};
use crate::model::plural::count;
use crate::model::session::Reading;
use crate::ops::compare::{Compare, Tee};
use crate::plan::{Item, Reads};
use crate::source::input::Input;
use crate::source::openhuman::salvage::Defaults;
use crate::source::openhuman::{self, subagents};
use crate::store::Draft;
use crate::store::name::StoreName;
use crate::store::record::Entry;

/// How often a source that changes is read before it is taken as it is.
const READINGS: u32 = 3;

/// A source that got shorter this recently is taken to be in the middle of
/// being rewritten: before its fifth format the application truncated the file
/// and wrote it anew at each turn.
const REWRITE: Duration = Duration::from_secs(2);

/// What one reading gave.
pub(super) struct Read {
    pub(super) reading: Reading,
    pub(super) hash: Sha256,
    pub(super) draft: Option<Draft>,
    pub(super) compare: Option<Compare>,
    /// The stream before the reading.
    pub(super) stream: Option<Stat>,
    /// The source before the reading.
    pub(super) source: Option<Stat>,
    pub(super) has_changed: bool,
}

/// A source, read.
pub(crate) struct Source {
    pub(crate) reading: Reading,
    pub(crate) hash: Sha256,
    /// Its file before the reading.
    pub(crate) stat: Option<Stat>,
    /// It was written to meanwhile.
    pub(crate) has_changed: bool,
}

/// A reading that gave nothing.
pub(crate) struct Reject {
    pub(crate) error: Error,
    pub(crate) has_changed: bool,
}

impl Importer<'_> {
    /// Reads the source; again, if it changes meanwhile.
    pub(super) fn read_until_quiet(&self, item: &Item, name: &StoreName) -> Result<Read> {
        let held = self.held(item, name);
        let mut reading = 1;
        loop {
            let read = self.read_once(item, name);
            let is_last = reading == READINGS;
            match read {
                Ok(mut read) => {
                    let shrank = self.is_being_rewritten(&read, held);
                    if !read.has_changed && !shrank {
                        return Ok(read);
                    }
                    if is_last {
                        if read.reading.messages >= held.unwrap_or(0) {
                            read.has_changed = true;
                            return Ok(read);
                        }
                        let gave = format!(
                            "it gave {}, fewer than the {} that the store holds",
                            count(read.reading.messages, "message"),
                            held.unwrap_or(0)
                        );
                        let message = match read.has_changed {
                            true => format!(
                                "it was written to while it was read, and {gave}; nothing was \
                                 changed, run again later"
                            ),
                            false => format!(
                                "it was written to less than {} seconds ago, and {gave}; it may \
                                 be in the middle of being rewritten, so nothing was changed; run \
                                 again",
                                REWRITE.as_secs()
                            ),
                        };
                        return Err(Error::source(Code::ChangedWhileRead, message));
                    }
                }
                Err(Reject { error, has_changed }) => {
                    let may_be_empty_for_now = matches!(
                        &error,
                        Error::Source {
                            code: Code::EmptyFile | Code::NoHeader,
                            ..
                        }
                    ) && self.is_fresh(item);
                    if is_last || !(has_changed || may_be_empty_for_now) {
                        return Err(error);
                    }
                }
            }
            reading += 1;
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(super) fn read_once(&self, item: &Item, name: &StoreName) -> Result<Read, Reject> {
        let quiet = |error| Reject {
            error,
            has_changed: false,
        };
        let stream_file = self.store.layout().stream_file(&name.messages());
        let stream = Stat::of(&stream_file, false).map_err(Error::io("look at", &stream_file));
        let stream = stream.map_err(quiet)?;
        let compare = stream.map(|_| Compare::open(&stream_file)).transpose();
        let mut compare = compare.map_err(quiet)?.flatten();
        let mut draft = self.draft(name).map_err(quiet)?;
        let mut discard = Discard;
        let to: &mut dyn Sink = match &mut draft {
            Some(draft) => draft,
            None => &mut discard,
        };
        let mut tee = Tee {
            to,
            compare: compare.as_mut(),
        };
        let Source {
            reading,
            hash,
            stat: source,
            has_changed,
        } = self.read_source(item, &mut tee)?;
        Ok(Read {
            reading,
            hash,
            draft,
            compare,
            stream,
            source,
            has_changed,
        })
    }

    /// Reads an item's source into a sink, salvaging as the item says.
    pub(crate) fn read_source(&self, item: &Item, sink: &mut dyn Sink) -> Result<Source, Reject> {
        let quiet = |error| Reject {
            error,
            has_changed: false,
        };
        let (reading, hash, stat, has_changed) = match &item.reads {
            Reads::History(subagent) => {
                let read = subagents::read_history(self.workspace, subagent, sink);
                (read.map_err(quiet)?, subagent.sha256, None, false)
            }
            Reads::File(format) => {
                let path = self.workspace.join(item.session.source.relative());
                let input = Input::open(&path, self.interrupt, self.progress).map_err(quiet)?;
                let defaults = self.salvages(item).then(|| defaults(item));
                let read = openhuman::read(*format, &input, defaults.as_ref(), sink);
                let has_changed = input.has_changed();
                match read {
                    Ok((reading, hash)) => (reading, hash, Some(input.before()), has_changed),
                    Err(error) => {
                        let view = self.view(item, &input, error, defaults.as_ref(), sink);
                        let (reading, hash) =
                            view.map_err(|error| Reject { error, has_changed })?;
                        (reading, hash, Some(input.before()), has_changed)
                    }
                }
            }
        };
        Ok(Source {
            reading,
            hash,
            stat,
            has_changed,
        })
    }

    /// What a transcript that gives nothing leaves: the error with what could
    /// help, or under `--salvage` its Markdown view.
    fn view(
        &self,
        item: &Item,
        input: &Input<'_>,
        error: Error,
        defaults: Option<&Defaults>,
        sink: &mut dyn Sink,
    ) -> Result<(Reading, Sha256)> {
        let (Error::Source { .. }, Reads::File(format)) = (&error, &item.reads) else {
            return Err(error);
        };
        // A record that was read from the JSONL itself, while that was whole,
        // says more than a view of it. What came from the view may grow.
        let ours = item.record().filter(|entry| entry.has_record());
        if ours.is_some_and(|entry| !is_of_markdown(entry)) {
            let error = match defaults {
                Some(_) => error,
                None => openhuman::with_salvageable(error, *format, input),
            };
            let has_view = item.session.companion.is_some();
            return Err(if has_view { keeps_record(error) } else { error });
        }
        let view = item.session.companion.as_ref().and_then(|companion| {
            let path = self.workspace.join(companion.relative());
            let format = openhuman::markdown_format(&path).ok().flatten()?;
            Some((companion, path, format))
        });
        match (view, defaults) {
            (Some((companion, path, format)), Some(_)) => {
                sink.restart()?;
                let hash = input.hash()?;
                let view = Input::open(&path, self.interrupt, &|_| ())?;
                let (mut reading, _) = openhuman::read(format, &view, defaults, sink)?;
                reading.salvaged = true;
                let message = format!("{error}; read from its Markdown {companion} instead");
                reading
                    .diagnostics
                    .push(Diagnostic::new(Code::SalvagedFromMarkdown, message));
                Ok((reading, hash))
            }
            (Some((companion, ..)), None) => {
                let error = openhuman::with_salvageable(error, *format, input);
                Err(match error {
                    Error::Source {
                        code,
                        message,
                        salvageable,
                    } => Error::Source {
                        code,
                        message: format!("{message}; there is a Markdown view, {companion}"),
                        salvageable: salvageable.max(1),
                    },
                    other => other,
                })
            }
            (None, None) => Err(openhuman::with_salvageable(error, *format, input)),
            (None, Some(_)) => Err(error),
        }
    }

    fn draft(&self, name: &StoreName) -> Result<Option<Draft>> {
        self.writer.map(|writer| writer.draft(name)).transpose()
    }

    /// Whether the item is salvaged: now asked for, or once before.
    pub(super) fn salvages(&self, item: &Item) -> bool {
        let before = item.record().and_then(|entry| entry.salvage);
        self.wishes.salvage || before == Some(true)
    }

    /// Messages that the store holds of the item.
    fn held(&self, item: &Item, name: &StoreName) -> Option<u64> {
        let entry = item.record().filter(|entry| entry.is_ours())?;
        let stream = self.store.layout().stream_file(&name.messages());
        stream.exists().then_some(entry.messages)
    }

    /// A file that gives fewer messages than before, without a compaction that
    /// would explain it, and was written to just now.
    fn is_being_rewritten(&self, read: &Read, held: Option<u64>) -> bool {
        let is_shorter = read.reading.messages < held.unwrap_or(0);
        is_shorter && read.reading.compactions == 0 && read.source.is_some_and(is_fresh)
    }

    fn is_fresh(&self, item: &Item) -> bool {
        let path = self.workspace.join(item.session.source.relative());
        Stat::of(&path, true).ok().flatten().is_some_and(is_fresh)
    }
}

/// Whether a record of ours came from Markdown: of the first generation, or
/// what only the rendered view gives.
fn is_of_markdown(entry: &Entry) -> bool {
    entry.generation == Some(1) || entry.lossy == Some(true)
}

fn keeps_record(error: Error) -> Error {
    match error {
        Error::Source {
            code,
            message,
            salvageable,
        } => Error::Source {
            code,
            message: format!(
                "{message}; its Markdown view says less than the store's record, which is kept"
            ),
            salvageable,
        },
        other => other,
    }
}

fn is_fresh(stat: Stat) -> bool {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.map_or(0, |now| i64::try_from(now.as_nanos()).unwrap_or(i64::MAX));
    let age = now.saturating_sub(stat.mtime_ns);
    let limit = i64::try_from(REWRITE.as_nanos()).unwrap_or(i64::MAX);
    (0..limit).contains(&age)
}

/// Agent and start from the stem, end from the mtime (`--salvage`).
pub(crate) fn defaults(item: &Item) -> Defaults {
    let own = item.session.stem.rsplit_once("__");
    let own = own.map_or(&*item.session.stem, |(_, own)| own);
    let (number, rest) = own.split_once('_').unwrap_or(("", own));
    let start = number.parse().ok().filter(|_| number.len() >= 9);
    let (agent, created) = match start.and_then(time) {
        Some(created) => (rest.to_owned(), created),
        // The older, numbered stems: `{agent}_{index}`.
        None => {
            let agent = own.rsplit_once('_').map_or(own, |(agent, _)| agent);
            (agent.to_owned(), String::new())
        }
    };
    let updated = item
        .stat
        .and_then(|stat| time(stat.mtime_ns / 1_000_000_000));
    Defaults {
        agent,
        created,
        updated: updated.unwrap_or_default(),
    }
}

fn time(seconds: i64) -> Option<String> {
    let time = DateTime::<Utc>::from_timestamp(seconds, 0)?;
    Some(time.to_rfc3339_opts(SecondsFormat::Secs, true))
}
