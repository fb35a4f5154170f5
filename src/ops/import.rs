//! One item: read its source into the store, or into nowhere in a dry run.
//!
//! Both go through the same lines, so a plan cannot drift from a run.

use std::collections::HashMap;
use std::path::Path;
use std::sync::RwLock;
use std::time::{Duration, SystemTime};

use chrono::{DateTime, SecondsFormat, Utc};

use super::compare::{Compare, Discard, Relation, Tee};
use crate::error::{Error, Result};
use crate::fs::stat::Stat;
use crate::model::diagnostic::{Code, Diagnostic, Diagnostics};
use crate::model::interrupt::Interrupt;
use crate::model::key::{SessionKey, Sha256};
use crate::model::message::Sink;
use crate::model::session::Reading;
use crate::plan::decide::Wishes;
use crate::plan::{Item, Reads};
use crate::report::{Action, ItemReport};
use crate::source::input::Input;
use crate::source::openhuman::lineage::{self, cross_check};
use crate::source::openhuman::run_ledger::RunLedger;
use crate::source::openhuman::salvage::Defaults;
use crate::source::openhuman::subagents::{self, Subagents};
use crate::source::openhuman::{self};
use crate::store::clock::Clock;
use crate::store::name::StoreName;
use crate::store::record::{Descriptor, Entry, Import, Sources, Usage, VERSION};
use crate::store::{Draft, Expect, Prepared, Store, Writer};

/// How often a source that changes is read before it is taken as it is.
const READINGS: u32 = 3;

/// A source that got shorter this recently is taken to be in the middle of
/// being rewritten: before its fifth format the application truncated the file
/// and wrote it anew at each turn.
const REWRITE: Duration = Duration::from_secs(2);

/// All that importing an item needs.
pub(crate) struct Importer<'a> {
    pub(crate) workspace: &'a Path,
    pub(crate) store: &'a Store,
    /// `None` in a dry run.
    pub(crate) writer: Option<&'a Writer>,
    pub(crate) clock: &'a Clock,
    pub(crate) wishes: Wishes,
    pub(crate) ledger: &'a RunLedger,
    pub(crate) subagents: &'a Subagents,
    /// Threads of the sessions known so far; parents come before children.
    pub(crate) threads: &'a RwLock<HashMap<SessionKey, String>>,
    pub(crate) interrupt: &'a Interrupt,
    pub(crate) progress: &'a (dyn Fn(u64) + Sync),
}

/// What became of an item.
pub(crate) struct Outcome {
    pub(crate) report: ItemReport,
    /// Ready to be committed.
    pub(crate) prepared: Option<Box<Prepared>>,
    pub(crate) failure: Option<(Code, String)>,
    /// Lines (of an item that was read) and messages (of one that failed)
    /// that `--salvage` would bring back.
    pub(crate) salvageable: u64,
    pub(crate) rejected: u64,
    /// The stream as it was when it was found ahead of the source.
    pub(crate) ahead: Option<Stat>,
}

/// What one reading gave.
struct Read {
    reading: Reading,
    hash: Sha256,
    draft: Option<Draft>,
    compare: Option<Compare>,
    /// The stream before the reading.
    stream: Option<Stat>,
    /// The source before the reading.
    source: Option<Stat>,
    has_changed: bool,
}

/// What is to be done about what the store already has.
enum Verdict {
    /// Put ours in its place; what was there, if it was not ours.
    Replace {
        replaced: Option<serde_json::Value>,
        note: Option<Diagnostic>,
        moves_dropped: bool,
    },
    /// The store is ahead.
    Keep,
    /// Neither: fail.
    Refuse(Code, String),
}

impl Importer<'_> {
    /// Reads an item and prepares its record.
    pub(crate) fn import(&self, item: &Item) -> Outcome {
        let Some(name) = &item.name else {
            return self.failed(item, Code::StoreWrite, "the session has no name".to_owned(), 0);
        };
        match self.read_and_judge(item, name) {
            Ok(outcome) => outcome,
            Err(error) => {
                let salvageable = match &error {
                    Error::Source { salvageable, .. } => *salvageable,
                    _ => 0,
                };
                self.failed(item, error.code(), error.to_string(), salvageable)
            }
        }
    }

    fn read_and_judge(&self, item: &Item, name: &StoreName) -> Result<Outcome> {
        let read = self.read_until_quiet(item, name)?;
        let Read {
            mut reading,
            hash,
            mut draft,
            mut compare,
            stream,
            source,
            has_changed,
        } = read;
        let mut diagnostics = Diagnostics::default();
        diagnostics.extend(item.diagnostics.iter().cloned());
        let found = std::mem::take(&mut reading.diagnostics);
        let verdict = self.judge(item, name, hash, compare.as_mut())?;
        let mut replaced_record = None;
        match verdict {
            Verdict::Keep => return Ok(self.ahead(item, name, &reading, stream)),
            Verdict::Refuse(code, message) => {
                return Ok(self.failed(item, code, message, 0));
            }
            Verdict::Replace {
                replaced,
                note,
                moves_dropped,
            } => {
                replaced_record = replaced.or(replaced_record);
                diagnostics.extend(note);
                if moves_dropped {
                    let dropped = self.move_dropped(name, compare, draft.as_mut())?;
                    if dropped > 0 {
                        diagnostics.push(dropped_warning(dropped));
                    }
                }
            }
        }
        let (thread_id, is_synthesized) =
            lineage::thread_id(reading.header.thread_id.as_deref(), name.as_str());
        if is_synthesized {
            let message = format!("the header names no thread; the session got {thread_id}");
            diagnostics.push(Diagnostic::new(Code::ThreadIdSynthesized, message));
        }
        diagnostics.extend(self.lineage(item, &thread_id));
        if has_changed {
            let message = "the source changed during each of three readings; imported as last read";
            diagnostics.push(Diagnostic::new(Code::ImportedWhileChanging, message));
        }
        diagnostics.append(found);
        let diagnostics = diagnostics.into_vec();
        let warnings = diagnostics.iter().filter(|d| d.is_warning()).count() as u64;

        let descriptor = self.descriptor(item, name, &reading, thread_id.clone(), warnings);
        let mut entry = self.entry(item, name, &reading, hash, source);
        // Once said it stays: `undo` cannot bring back what was there before.
        let before = item.entry.as_ref().and_then(|entry| entry.replaced.clone());
        entry.replaced = replaced_record.or(before);
        entry.unsettled = has_changed.then_some(true);
        if entry.subagent.is_none() {
            let record = self.subagents.by_worker_thread(&thread_id);
            entry.subagent = record.map(|record| record.about.clone());
        }
        let prepared = match draft {
            Some(draft) => Some(Box::new(Prepared {
                ledger_key: item.ledger_key(),
                old_key: item.replaces.first().copied(),
                written: draft.finish()?,
                name: name.clone(),
                descriptor,
                entry,
                expect: stream.map_or(Expect::Absent, Expect::Same),
                tag: 0,
            })),
            None => None,
        };
        let action = match self.writer {
            Some(_) => Action::Imported,
            None => Action::WouldImport,
        };
        let mut report = self.report(item, action, diagnostics);
        report.stream = Some(name.messages().as_str().to_owned());
        report.thread_id = Some(thread_id);
        report.dialect = Some(dialect(&reading).to_owned());
        report.messages = reading.messages;
        report.lines = reading.lines;
        Ok(Outcome {
            report,
            prepared,
            failure: None,
            salvageable: reading.salvageable,
            rejected: reading.rejected,
            ahead: None,
        })
    }

    /// Gives a record to its source's new path; its stream stays as it is, also
    /// where the application has written on in it.
    pub(crate) fn move_record(&self, item: &Item, before: &Entry, writer: &Writer) -> Outcome {
        let Some(name) = before.store_name() else {
            let message = "its entry names no stream of ours".to_owned();
            return self.failed(item, Code::StoreWrite, message, 0);
        };
        let mut entry = before.clone();
        let source = item.session.source.to_string();
        let descriptor = self.descriptor_of(&name).map(|mut descriptor| {
            match &item.reads {
                Reads::File(openhuman::Format::Jsonl) => {
                    descriptor.source.jsonl = Some(source.clone());
                    let companion = item.session.companion.as_ref();
                    descriptor.source.md = companion.map(ToString::to_string);
                }
                _ => descriptor.source.md = Some(source.clone()),
            }
            descriptor
        });
        entry.source = source;
        entry.kind = Some(item.session.kind);
        entry.profile = item.session.profile.clone();
        let mtime = item.stat.map_or(0, |stat| stat.mtime_ms());
        entry.mtime_ms = self.clock.cap_mtime(mtime);
        let (key, old) = (item.ledger_key(), &item.replaces);
        match writer.relocate(&name, descriptor.as_ref(), entry, &key, old) {
            Ok(()) => self.moved(item, before),
            Err(error) => self.failed(item, Code::StoreWrite, error.to_string(), 0),
        }
    }

    /// The outcome of a record that only moves.
    pub(crate) fn moved(&self, item: &Item, before: &Entry) -> Outcome {
        let mut report = self.report(item, Action::SkippedUnchanged, item.diagnostics.clone());
        report.stream = Some(before.stream.clone());
        report.messages = before.messages;
        report.lines = before.lines.unwrap_or_default();
        let name = item.name.as_ref();
        let descriptor = name.and_then(|name| self.descriptor_of(name));
        report.thread_id = descriptor.map(|descriptor| descriptor.thread_id);
        Outcome {
            report,
            prepared: None,
            failure: None,
            salvageable: 0,
            rejected: 0,
            ahead: None,
        }
    }

    /// Reads the source; again, if it changes meanwhile.
    fn read_until_quiet(&self, item: &Item, name: &StoreName) -> Result<Read> {
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
                        let message = format!(
                            "the application was writing it and it gave {} messages, fewer than \
                             the {} that the store holds; nothing was changed, run again later",
                            read.reading.messages,
                            held.unwrap_or(0)
                        );
                        return Err(Error::source(Code::ChangedWhileRead, message));
                    }
                }
                Err(Reject { error, has_changed }) => {
                    let may_be_empty_for_now = matches!(
                        &error,
                        Error::Source { code: Code::EmptyFile | Code::NoHeader, .. }
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

    fn read_once(&self, item: &Item, name: &StoreName) -> Result<Read, Reject> {
        let quiet = |error| Reject {
            error,
            has_changed: false,
        };
        let stream_file = self.store.layout().stream_file(&name.messages());
        let stream = Stat::of(&stream_file, false).map_err(Error::io("look at", &stream_file));
        let stream = stream.map_err(quiet)?;
        let mut compare = Compare::open(&stream_file).map_err(quiet)?;
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
        let (reading, hash, source, has_changed) = match &item.reads {
            Reads::History(subagent) => {
                let read = subagents::read_history(self.workspace, subagent, &mut tee);
                (read.map_err(quiet)?, subagent.sha256, None, false)
            }
            Reads::File(format) => {
                let path = self.workspace.join(item.session.source.relative());
                let input = Input::open(&path, self.interrupt, self.progress).map_err(quiet)?;
                let defaults = self.salvages(item).then(|| defaults(item));
                let read = openhuman::read(*format, &input, defaults.as_ref(), &mut tee);
                let has_changed = input.has_changed();
                match read {
                    Ok((reading, hash)) => (reading, hash, Some(input.before()), has_changed),
                    Err(error) => {
                        let view = self.view(item, &input, error, defaults.as_ref(), &mut tee);
                        let (reading, hash) = view.map_err(|error| Reject { error, has_changed })?;
                        (reading, hash, Some(input.before()), has_changed)
                    }
                }
            }
        };
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
    fn salvages(&self, item: &Item) -> bool {
        let before = item.entry.as_deref().and_then(|entry| entry.salvage);
        self.wishes.salvage || before == Some(true)
    }

    /// Messages that the store holds of the item.
    fn held(&self, item: &Item, name: &StoreName) -> Option<u64> {
        let entry = item.entry.as_deref().filter(|entry| entry.is_ours())?;
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

    /// Holds what the store has of the session against what was read.
    fn judge(
        &self,
        item: &Item,
        name: &StoreName,
        hash: Sha256,
        compare: Option<&mut Compare>,
    ) -> Result<Verdict> {
        let Wishes {
            force,
            overwrite,
            checksum,
            ..
        } = self.wishes;
        let plain = Verdict::Replace {
            replaced: None,
            note: None,
            moves_dropped: false,
        };
        let Some(compare) = compare else {
            return Ok(plain);
        };
        let entry = item.entry.as_deref();
        let ours = entry.filter(|entry| entry.has_record());
        let stream = self.store.layout().stream_file(&name.messages());
        let stream_hash = crate::store::journal::sha256_of_file(&stream)?;
        let is_as_left = ours.is_some_and(|entry| {
            entry.journal_sha256 == stream_hash.map(|(hash, _)| hash)
        });
        if is_as_left {
            return Ok(Verdict::Replace {
                replaced: None,
                note: None,
                moves_dropped: true,
            });
        }
        let mends = force || checksum || overwrite;
        let stays_damaged = |what: &str| {
            let message = format!("{what}; `run --checksum` writes it again from the source");
            Verdict::Refuse(Code::StoreDamaged, message)
        };
        let mended = |what: &str| Verdict::Replace {
            replaced: None,
            note: Some(Diagnostic::new(Code::Mended, format!("{what}; written again"))),
            moves_dropped: false,
        };
        let relation = compare.relation();
        let is_of_earlier_importer = entry.is_some_and(|entry| !entry.is_ours())
            && self.descriptor_of(name).is_some_and(|descriptor| {
                Some(&descriptor.import.imported_at) == entry.map(|entry| &entry.imported_at)
            });
        if is_of_earlier_importer {
            return Ok(self.take_over(entry, "the earlier importer's"));
        }
        let is_source_unchanged = ours.is_some_and(|entry| entry.sha256 == Some(hash));
        Ok(match relation {
            Relation::Damaged(reason) => {
                let what = format!("the store's stream is damaged ({reason})");
                if mends { mended(&what) } else { stays_damaged(&what) }
            }
            Relation::StoreIsAhead if !overwrite => Verdict::Keep,
            // Nothing is lost by replacing it: an import that was cut off
            // between a session's files and its entry, or damage.
            Relation::StoreIsFirst if is_source_unchanged => {
                mended("the store's stream is not what the item ledger says")
            }
            Relation::StoreIsFirst if ours.is_some() => plain,
            Relation::StoreIsFirst => self.take_over(entry, "the application's"),
            Relation::Diverged if is_source_unchanged && !overwrite => {
                let what = "the store's stream differs from the source, which is unchanged";
                if mends { mended(what) } else { stays_damaged(what) }
            }
            Relation::Diverged if !overwrite => {
                let message = "the store's stream has gone another way than the source; both are \
                               kept; `run --overwrite` replaces the stream";
                Verdict::Refuse(Code::StoreDiverged, message.to_owned())
            }
            Relation::StoreIsAhead | Relation::Diverged => self.take_over(entry, "the application's"),
        })
    }

    /// Replaces a record that was not ours, and says so in the entry.
    fn take_over(&self, entry: Option<&Entry>, whose: &str) -> Verdict {
        let replaced = serde_json::json!({
            "record": whose,
            "imported_at": entry.map(|entry| &entry.imported_at),
            "messages": entry.map(|entry| entry.messages),
        });
        let message = format!("{whose} record of this session was replaced");
        Verdict::Replace {
            replaced: Some(replaced),
            note: Some(Diagnostic::new(Code::RecordReplaced, message)),
            moves_dropped: false,
        }
    }

    fn descriptor_of(&self, name: &StoreName) -> Option<Descriptor> {
        self.store.descriptor(name).ok().flatten()
    }

    /// Moves what the source no longer has into the residue, behind what was
    /// moved there before. In a dry run it is only counted.
    fn move_dropped(
        &self,
        name: &StoreName,
        compare: Option<Compare>,
        mut draft: Option<&mut Draft>,
    ) -> Result<u64> {
        let residue = self.store.layout().stream_file(&name.residue());
        if let (Some(draft), Some(mut old)) =
            (&mut draft, crate::store::journal::StreamReader::open(&residue)?)
        {
            while let Ok(Some(record)) = old.next() {
                if let Some(record) = dropped_record(record.value()) {
                    draft.dropped(record)?;
                }
            }
        }
        let mut count = 0;
        if let Some(mut compare) = compare {
            compare.relation();
            compare.dropped(|record| {
                count += 1;
                match &mut draft {
                    Some(draft) => draft.dropped(record),
                    None => Ok(()),
                }
            })?;
        }
        Ok(count)
    }

    fn lineage(&self, item: &Item, thread_id: &str) -> Vec<Diagnostic> {
        let parent_thread = item.session.parent.as_ref().and_then(|parent| {
            let threads = self.threads.read().ok()?;
            threads.get(parent).cloned()
        });
        cross_check(
            &item.session,
            thread_id,
            parent_thread.as_deref(),
            self.ledger,
            self.subagents,
        )
    }

    fn descriptor(
        &self,
        item: &Item,
        name: &StoreName,
        reading: &Reading,
        thread_id: String,
        warnings: u64,
    ) -> Descriptor {
        let header = &reading.header;
        let session = &item.session;
        let path = Some(session.source.to_string());
        let companion = session.companion.as_ref().map(ToString::to_string);
        let source = match &item.reads {
            Reads::History(_) => Sources::default(),
            Reads::File(openhuman::Format::Jsonl) => Sources {
                jsonl: path,
                md: companion,
            },
            Reads::File(_) => Sources {
                jsonl: None,
                md: path,
            },
        };
        let thread_id_synthesized = header
            .thread_id
            .as_deref()
            .is_none_or(|id| id.trim().is_empty());
        Descriptor {
            session_key: session.key.clone(),
            parent_session_key: session.parent.clone(),
            thread_id_synthesized,
            task_id: header.task_id.clone(),
            run_ids: self.ledger.run_ids(&thread_id).to_vec(),
            thread_id,
            stream: name.messages().as_str().to_owned(),
            dispatcher: header.dispatcher.clone(),
            agent_name: header.agent.clone(),
            agent_id: header.agent_id.clone(),
            agent_type: header.agent_type.clone(),
            provider: header.provider.clone(),
            model: header.model.clone(),
            created: header.created.clone(),
            updated: header.updated.clone(),
            turn_count: header.turn_count,
            usage: Usage {
                input: header.input_tokens,
                output: header.output_tokens,
                cached_input: header.cached_input_tokens,
                cost_usd: header.charged_amount_usd,
            },
            source,
            import: Import {
                version: VERSION,
                imported_at: self.clock.imported_at(),
                warnings,
            },
        }
    }

    fn entry(
        &self,
        item: &Item,
        name: &StoreName,
        reading: &Reading,
        hash: Sha256,
        source: Option<Stat>,
    ) -> Entry {
        let session = &item.session;
        let mut entry = Entry::new(session.key.clone(), session.source.to_string(), name);
        let header = &reading.header;
        match &item.reads {
            Reads::File(_) => {
                let stat = source.or(item.stat);
                entry.size = stat.map_or(0, |stat| stat.size);
                entry.mtime_ms = self.clock.cap_mtime(stat.map_or(0, |stat| stat.mtime_ms()));
            }
            Reads::History(subagent) => {
                entry.size = subagent.bytes;
                entry.subagent = Some(subagent.about.clone());
            }
        }
        entry.messages = reading.messages;
        entry.imported_at = self.clock.imported_at();
        entry.sha256 = Some(hash);
        entry.kind = Some(session.kind);
        entry.generation = Some(match (session.kind, reading.generation) {
            // Before the third generation there were date folders.
            (crate::model::session::Kind::JsonlLegacyDir, 3) => 2,
            (_, generation) => generation,
        });
        entry.lines = Some(reading.lines);
        entry.compactions = Some(reading.compactions);
        entry.interrupted = Some(reading.interrupted);
        entry.rejected = Some(reading.rejected);
        entry.profile = session.profile.clone();
        entry.session_id = header.session_id.clone();
        entry.parent_session_id = header.parent_session_id.clone();
        entry.lossy = reading.lossy.then_some(true);
        entry.salvaged = reading.salvaged.then_some(true);
        entry.salvage = self.salvages(item).then_some(true);
        entry.unmapped_meta = reading.unmapped_meta.clone();
        entry.first_header = reading.first_header.clone();
        let older = item.older.iter().map(|file| file.path.to_string());
        let older: Vec<_> = older.collect();
        entry.older_copies = (!older.is_empty()).then_some(older);
        entry
    }

    fn ahead(
        &self,
        item: &Item,
        name: &StoreName,
        reading: &Reading,
        stream: Option<Stat>,
    ) -> Outcome {
        let message = "the store holds all of the source's messages and more; left alone";
        let mut diagnostics = item.diagnostics.clone();
        diagnostics.push(Diagnostic::new(Code::StoreAhead, message));
        let mut report = self.report(item, Action::SkippedStoreAhead, diagnostics);
        report.stream = Some(name.messages().as_str().to_owned());
        report.messages = reading.messages;
        report.lines = reading.lines;
        let descriptor = self.descriptor_of(name);
        report.thread_id = descriptor.map(|descriptor| descriptor.thread_id);
        Outcome {
            report,
            prepared: None,
            failure: None,
            salvageable: 0,
            rejected: 0,
            ahead: stream,
        }
    }

    /// An item that could not be imported.
    pub(crate) fn failed(
        &self,
        item: &Item,
        code: Code,
        message: String,
        salvageable: u64,
    ) -> Outcome {
        let mut diagnostics = item.diagnostics.clone();
        diagnostics.push(Diagnostic::new(code, message.clone()));
        let mut report = self.report(item, Action::Failed, diagnostics);
        report.stream = item.name.as_ref().map(|name| name.messages().as_str().to_owned());
        Outcome {
            report,
            prepared: None,
            failure: Some((code, message)),
            salvageable,
            rejected: 0,
            ahead: None,
        }
    }

    fn report(&self, item: &Item, action: Action, diagnostics: Vec<Diagnostic>) -> ItemReport {
        report(item, action, diagnostics)
    }
}

/// The report of an item of which nothing more is known.
pub(crate) fn report(item: &Item, action: Action, diagnostics: Vec<Diagnostic>) -> ItemReport {
    let warnings = diagnostics.iter().filter(|d| d.is_warning());
    ItemReport {
        session_key: item.session.key.to_string(),
        source: item.session.source.to_string(),
        kind: item.session.kind,
        action,
        reason: item.decision.reason().to_owned(),
        stream: None,
        thread_id: None,
        dialect: None,
        messages: 0,
        lines: Default::default(),
        warnings: warnings.map(Diagnostic::sentence).collect(),
        diagnostics,
    }
}

/// A reading that gave nothing.
struct Reject {
    error: Error,
    has_changed: bool,
}

fn dropped_warning(count: u64) -> Diagnostic {
    let plural = if count == 1 { "" } else { "s" };
    let message = format!(
        "{count} message{plural} of an earlier import are not in the source any more; \
         they were moved to the residue stream"
    );
    Diagnostic::new(Code::DroppedMessages, message)
}

/// The record inside of a residue record that holds a dropped message.
fn dropped_record(value: &str) -> Option<&str> {
    #[derive(serde::Deserialize)]
    struct Dropped<'a> {
        why: std::borrow::Cow<'a, str>,
        #[serde(borrow)]
        record: &'a serde_json::value::RawValue,
    }
    let dropped: Dropped<'_> = serde_json::from_str(value).ok()?;
    (dropped.why == "dropped").then(|| dropped.record.get())
}

fn is_fresh(stat: Stat) -> bool {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.map_or(0, |now| i64::try_from(now.as_nanos()).unwrap_or(i64::MAX));
    let age = now.saturating_sub(stat.mtime_ns);
    let limit = i64::try_from(REWRITE.as_nanos()).unwrap_or(i64::MAX);
    (0..limit).contains(&age)
}

/// How the session's tool calls are written (`openhuman-workspace.md` §1,
/// Tool calls): the application says `xml` for two notations, and only the
/// content tells whether there is markup.
fn dialect(reading: &Reading) -> &str {
    match reading.header.dispatcher.as_str() {
        "native" => "native",
        _ if reading.tool_call_markup => "xml",
        other => other,
    }
}

/// Agent and start from the stem, end from the mtime (`--salvage`).
fn defaults(item: &Item) -> Defaults {
    let own = item.session.stem.rsplit_once("__");
    let own = own.map_or(item.session.stem.as_str(), |(_, own)| own);
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
    let updated = item.stat.and_then(|stat| time(stat.mtime_ns / 1_000_000_000));
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

