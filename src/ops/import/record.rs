//! What the store keeps of a session beside its streams: the descriptor in the
//! application's shape, and the item ledger entry with all that has no place
//! there (`tinyagents-store.md`, Key-value).

use super::{Importer, Outcome};
use crate::fs::stat::Stat;
use crate::model::diagnostic::Code;
use crate::model::key::Sha256;
use crate::model::session::{Kind, Reading};
use crate::plan::identity::has_unix_time;
use crate::plan::{Item, Reads};
use crate::report::Action;
use crate::source::openhuman;
use crate::store::Writer;
use crate::store::name::StoreName;
use crate::store::record::{Descriptor, Entry, Import, Sources, Usage, VERSION};

impl Importer<'_> {
    pub(crate) fn descriptor(
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
            run_ids: self.run_ids(name, &thread_id),
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

    /// Runs of a thread; those that the store knows, where the run ledger is
    /// there and cannot be read: they may be in nothing else.
    fn run_ids(&self, name: &StoreName, thread_id: &str) -> Vec<String> {
        if self.ledger.is_unreadable()
            && let Some(before) = self.descriptor_of(name)
            && before.thread_id == thread_id
        {
            return before.run_ids;
        }
        self.ledger.run_ids(thread_id).to_vec()
    }

    pub(crate) fn entry(
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
            // Threads, and stems with a Unix time, came with the third.
            (Kind::JsonlLegacyDir, 3)
                if header.thread_id.is_none() && !has_unix_time(&session.stem) =>
            {
                2
            }
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
        // Only where there was something to salvage: an intact session that is
        // damaged later is not salvaged unasked.
        let is_damaged = reading.salvaged || reading.rejected > 0;
        entry.salvage = (self.salvages(item) && is_damaged).then_some(true);
        entry.unmapped_meta = reading.unmapped_meta.clone();
        entry.first_header = reading.first_header.clone();
        let older = item.older.iter().map(|file| file.path.to_string());
        let older: Vec<_> = older.collect();
        entry.older_copies = (!older.is_empty()).then_some(older);
        entry
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
        let mut report = super::report(item, Action::SkippedUnchanged, item.diagnostics.clone());
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
}
