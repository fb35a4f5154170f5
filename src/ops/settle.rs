//! The end of an import: what failed, what was done, that it is complete, and
//! what the next run need not look at again.

use std::collections::{HashMap, HashSet};

use super::run::Run;
use super::wave::Done;
use crate::error::{Error, Result};
use crate::model::diagnostic::{Code, Diagnostic};
use crate::model::key::Sha256;
use crate::model::plural::count;
use crate::plan::cache::{CacheWriter, Role, Stamp, StatCache, Told};
use crate::plan::decide::Decision;
use crate::plan::survey::SUBAGENTS;
use crate::plan::{Item, Reads};
use crate::report::Action;
use crate::source::openhuman::discover::Found;
use crate::store::Writer;
use crate::store::record::{Entry, Failure, ImportRecord, Marker, RULES, Tool, VERSION};

impl Run<'_> {
    /// Failures, the import's report, and at the very end the marker.
    pub(super) fn settle(
        &mut self,
        entries: &HashMap<Sha256, Entry>,
        items: &[Item],
        done: &Done,
    ) -> Result<()> {
        let failures = &done.failures;
        let marker = self.store.marker()?.filter(Marker::is_ours);
        let is_whole = self.only.is_all() && !self.options.interrupt.is_set();
        let report = &mut self.report;
        let is_clean = report.failed == 0 && report.unreadable == 0;
        let wrote = report.imported > 0;
        report.already_done = is_whole && is_clean && !wrote && marker.is_some();
        let Some(writer) = &self.writer else {
            return Ok(());
        };
        let mut failed = Vec::new();
        for (index, code, message) in failures {
            let Some(item) = items.get(*index).filter(|_| *code != Code::Interrupted) else {
                continue;
            };
            let failure = Failure {
                source: item.session.source.to_string(),
                session_key: item.session.key.clone(),
                code: *code,
                message: message.clone(),
                size: item.stat.map_or(0, |stat| stat.size),
                mtime_ms: self
                    .clock
                    .cap_mtime(item.stat.map_or(0, |stat| stat.mtime_ms())),
                at: self.clock.imported_at(),
            };
            failed.push((item.ledger_key(), failure));
        }
        // The report has them all the same, and the next run tries them again.
        let unwritten = writer.put_failures(failed).into_iter();
        let unwritten: Vec<Error> = unwritten.filter_map(Result::err).collect();
        if let Some(error) = unwritten.first() {
            let failures = count(unwritten.len() as u64, "failure");
            let message = format!("{failures} could not be recorded: {error}");
            let diagnostic = Diagnostic::new(Code::StoreWrite, message);
            self.diagnostics.push(diagnostic);
        }
        let imported = |item: &&Item| item.replaces.len() > 1 && item.decision.writes();
        for item in items.iter().filter(imported) {
            // The first went with the commit.
            for old in item.replaces.iter().skip(1) {
                writer.remove_item(old)?;
            }
        }
        if is_whole {
            self.forget_failures(writer, items, failures)?;
            self.forget_moved(writer, entries, items)?;
        }
        let imported_at = self.clock.imported_at();
        if wrote {
            let warnings = self.diagnostics.iter().filter(|d| d.is_warning());
            self.report.warnings = warnings.map(Diagnostic::sentence).collect();
            let record = self.import_record(items, done, imported_at.clone());
            writer.put_import(&record)?;
        }
        if !is_clean && !self.only.is_all() {
            writer.remove_marker()?;
        }
        let is_current = marker
            .as_ref()
            .is_some_and(|marker| marker.rules == Some(RULES))
            && marker.is_some_and(|marker| !self.options.checksum || self.is_marker_sound(&marker));
        if is_whole && is_clean && self.report.scanned > 0 && (wrote || !is_current) {
            let warnings = self.diagnostics.iter().filter(|d| d.is_warning()).count();
            let marker = Marker {
                version: VERSION,
                imported_at,
                scanned: self.report.scanned,
                imported: self.report.imported,
                skipped: self.report.skipped,
                failed: 0,
                messages_written: self.report.messages_written,
                warnings: (warnings + done.warnings) as u64,
                tool: Some(Tool::this()),
                rules: Some(RULES),
            };
            if let Err(error) = writer.put_marker(&marker) {
                let diagnostic = Diagnostic::new(Code::MarkerNotWritten, error.to_string());
                self.diagnostics.push(diagnostic);
            }
        }
        Ok(())
    }

    /// Entries of the paths that sources had before. They go with the commit
    /// of the new ones, unless an import was cut off in between: then two of
    /// them vouch for one record.
    fn forget_moved(
        &self,
        writer: &Writer,
        entries: &HashMap<Sha256, Entry>,
        items: &[Item],
    ) -> Result<()> {
        let sources: HashSet<Sha256> = items.iter().map(Item::ledger_key).collect();
        let items: HashMap<_, _> = items.iter().map(|item| (&item.session.key, item)).collect();
        let others = entries.iter().filter(|(key, _)| !sources.contains(key));
        for (key, entry) in others.filter(|(_, entry)| entry.has_record()) {
            let Some(item) = items.get(&entry.session_key) else {
                continue;
            };
            let own = self.store.entry(&item.ledger_key()).ok().flatten();
            if own.is_some_and(|own| own.has_record() && own.stream == entry.stream) {
                writer.remove_item(key)?;
            }
        }
        Ok(())
    }

    /// Failures of sources that are not there any more, or not failing.
    fn forget_failures(
        &self,
        writer: &Writer,
        items: &[Item],
        failures: &[(usize, Code, String)],
    ) -> Result<()> {
        let failing = failures.iter().filter_map(|(index, ..)| items.get(*index));
        let known: HashSet<Sha256> = failing.map(Item::ledger_key).collect();
        for key in self.store.failures()?.by_key.keys() {
            if !known.contains(key) {
                writer.remove_failure(key)?;
            }
        }
        Ok(())
    }

    /// What the store keeps of this import.
    fn import_record(&self, items: &[Item], done: &Done, imported_at: String) -> ImportRecord {
        let keys = |indices: &mut dyn Iterator<Item = usize>| {
            let items = indices.filter_map(|index| items.get(index));
            let mut found: Vec<_> = items
                .map(|item| (&item.session.key, item.session.source.to_string()))
                .collect();
            found.sort();
            found.into_iter().map(|(key, _)| key.clone()).collect()
        };
        ImportRecord {
            imported: keys(&mut done.imported.iter().copied()),
            failed: keys(&mut done.failures.iter().map(|(index, ..)| *index)),
            ..ImportRecord::of(&self.report, imported_at)
        }
    }

    pub(super) fn write_cache(
        &self,
        before: &StatCache,
        items: &[Item],
        others: &[Found],
        done: &Done,
    ) {
        let Some(writer) = self.writer.as_ref().filter(|_| !self.clock.is_fixed()) else {
            return;
        };
        let failed: HashSet<usize> = done.failures.iter().map(|(index, ..)| *index).collect();
        let mut cache = CacheWriter::new();
        let mut histories = Vec::new();
        let mut is_told_by_cache = true;
        for (index, item) in items.iter().enumerate() {
            let key = &item.session.key;
            let accepted = matches!(item.decision, Decision::Skip(Action::SkippedAccepted, _));
            let format = match &item.reads {
                Reads::File(format) => *format,
                Reads::History(subagent) => {
                    // Of these the cache holds only that they are done.
                    is_told_by_cache &= !accepted;
                    histories.push(subagent.id.clone());
                    continue;
                }
            };
            if failed.contains(&index) {
                continue;
            }
            // One that was left out was not looked at: what is new about it is
            // for the next run to find.
            let is_known = before.role(&item.session.source, item.stat).is_some();
            if !self.only.has(key) && !is_known {
                continue;
            }
            let still_ahead = still_ahead(before, item);
            for file in &item.older {
                cache.note(file, Role::OlderCopy { of: key.clone() });
            }
            for file in &item.companions {
                cache.note(file, Role::Companion { of: key.clone() });
            }
            let ahead = done.ahead.get(&index);
            let ahead = ahead.map(|stat| (*stat).into());
            let role = Role::Source {
                accepted,
                key: key.clone(),
                format,
                ahead: ahead.or(still_ahead),
            };
            cache.note_path(&item.place, &item.session.source, item.stat, role);
        }
        for file in others {
            cache.note(file, Role::NoTranscript);
        }
        let subagents = self.workspace.join(SUBAGENTS);
        let marker = self.store.marker().ok().flatten();
        let is_marked = marker.is_some_and(|marker| marker.is_ours());
        let is_known = is_marked && !done.is_unsettled && is_told_by_cache;
        let is_done = self.only.is_all() && self.report.is_clean() && is_known;
        let told = Told {
            histories,
            rejected: self.report.rejected,
        };
        let done = is_done.then_some((told, subagents.as_path()));
        // Only a cache: an import does not fail over it.
        let bytes = cache.into_bytes(self.store.layout(), done);
        if let Err(error) = writer.put_stat_cache(&bytes) {
            tracing::debug!("the stat cache could not be written: {error}");
        }
    }
}

/// The stream of an item that was not read because it was ahead before and is
/// the same still: so it is the next time.
fn still_ahead(before: &StatCache, item: &Item) -> Option<Stamp> {
    let is_ahead = matches!(item.decision, Decision::Skip(Action::SkippedStoreAhead, _));
    match before.role(&item.session.source, item.stat) {
        Some(Role::Source { ahead, .. }) if is_ahead => *ahead,
        _ => None,
    }
}
