//! `status`: what is in the store, and what a run would do and why
//! (`behaviour.md`, Commands).
//!
//! Names, sizes and times only: no source and no stream is opened, and nothing
//! is written. Where a run would have to look closer, that is what it says.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::options::seconds;
use super::workspace::{Surroundings, store_root};
use crate::error::Result;
use crate::fs::Stat;
use crate::model::diagnostic::{Code, Diagnostic};
use crate::model::key::Sha256;
use crate::plan::cache::StatCache;
use crate::plan::glance::{Glance, Known, Seen};
use crate::plan::held_back::hold_back_files;
use crate::report::{
    MarkerStatus, NextStep, SCHEMA_VERSION, State, StatusBytes, StatusLines, StatusReport,
};
use crate::source::openhuman::discover::discover;
use crate::store::record::{Failure, RULES};
use crate::store::{Clock, Marker, Namespace, SharedLock, Store};

/// How many sources a step names.
const EXAMPLES: usize = 3;

/// What to look at.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Options {
    /// The workspace; else it is sought as `behaviour.md` says.
    pub workspace: Option<PathBuf>,
    /// The store's root; else `tinyagents_store` in the workspace.
    pub store: Option<PathBuf>,
    /// How long to wait for a running import, in seconds.
    #[serde(with = "seconds")]
    pub retry_lock: Option<Duration>,
}

/// Says how workspace and store stand to each other. The store need not exist.
///
/// # Errors
/// What keeps it from being seen: no workspace, a running import, a store that
/// cannot be read or is another workspace's.
pub fn status(options: &Options) -> Result<StatusReport> {
    let surroundings = Surroundings::of_process();
    let workspace = surroundings.workspace(options.workspace.as_deref())?;
    let root = store_root(options.store.as_deref(), &workspace)?;
    let store = Store::at(&root);
    // Refuses what a run would refuse.
    let claim = store.claim(&workspace)?;
    let _lock = SharedLock::take(store.layout(), options.retry_lock)?;
    let clock = Clock::from_env()?;
    let mut found = discover(&workspace);

    let mut diagnostics: Vec<_> = surroundings.storage_warning().into_iter().collect();
    diagnostics.extend(claim.diagnostics);
    diagnostics.extend(store.unfinished_undo());
    let unreadable = found.unreadable.len() as u64;
    diagnostics.extend(found.unreadable);
    diagnostics.extend(found.diagnostics);
    let entries = store.map_entries(|_, entry| Known::of(entry))?;
    let mut damaged_entries = HashSet::new();
    for damaged in entries.damaged {
        let (key, why) = (damaged.key, damaged.reason);
        let is_in_the_way = store.is_in_the_way(Namespace::Items, &key);
        let what = if is_in_the_way { "; move it away" } else { "" };
        let message = format!("item ledger entry {key} cannot be used ({why}){what}");
        diagnostics.push(Diagnostic::new(Code::EntryUnusable, message));
        damaged_entries.extend(key.parse::<Sha256>().ok().filter(|_| !is_in_the_way));
    }
    let mut by_key: HashMap<Sha256, Known> = entries.by_key.into_iter().collect();
    by_key.retain(|key, known| {
        if known.is_damaged {
            let message = format!("item ledger entry {key} has no journal_sha256");
            diagnostics.push(Diagnostic::new(Code::EntryUnusable, message));
            damaged_entries.insert(*key);
        }
        !known.is_damaged
    });
    let entries = by_key;
    let held_back = hold_back_files(&mut found.files, &found.unreadable_folders, |key| {
        entries.contains_key(key)
    });
    diagnostics.extend(held_back);
    let failures: HashMap<Sha256, Failure> = store.failures()?.by_key.into_iter().collect();
    let marker = store.marker()?;
    let cache = match clock.is_fixed() {
        true => StatCache::default(),
        false => StatCache::load(&store.layout().stat_cache_file()),
    };
    let glance = Glance {
        workspace: &workspace,
        layout: store.layout(),
        clock: &clock,
        cache: &cache,
        entries: &entries,
        damaged: &damaged_entries,
        failures: &failures,
        streams: &store.stream_names()?,
        descriptors: &store.descriptor_names()?,
        was_cut_off: !marker.as_ref().is_some_and(Marker::is_ours),
    };
    let (sessions, other_files) = glance.sessions(&found.files);

    let warnings = diagnostics.iter().filter(|d| d.is_warning());
    let mut report = StatusReport {
        schema_version: SCHEMA_VERSION,
        workspace: workspace.display().to_string(),
        store: root.display().to_string(),
        store_exists: store.exists(),
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        marker: marker.as_ref().map(of_marker),
        scanned: sessions.len() as u64,
        other_files,
        unreadable,
        bytes: StatusBytes {
            streams: stream_bytes(&store),
            ..StatusBytes::default()
        },
        warnings: warnings.map(Diagnostic::sentence).collect(),
        diagnostics,
        ..StatusReport::default()
    };
    records(&mut report, entries.values());
    steps(&mut report, &sessions);
    report.nothing_to_do = unreadable == 0
        && report.next.iter().all(|step| !step.state.is_work())
        && (report.scanned == report.states.source_gone
            || report.marker.as_ref().is_some_and(|m| m.is_clean));
    Ok(report)
}

fn of_marker(marker: &Marker) -> MarkerStatus {
    let tool = marker.tool.as_ref();
    MarkerStatus {
        is_ours: marker.is_ours(),
        is_clean: marker.is_ours() && marker.rules == Some(RULES),
        imported_at: marker.imported_at.clone(),
        tool: tool.map(|tool| format!("{} {}", tool.name, tool.version)),
    }
}

/// What the item ledger says of the sessions that are in the store.
fn records<'k>(report: &mut StatusReport, entries: impl Iterator<Item = &'k Known>) {
    for known in entries.filter(|known| known.has_record) {
        report.sessions += 1;
        report.messages += known.messages;
        report.dropped |= known.has_dropped;
        let StatusLines {
            total,
            residue,
            rejected,
            interrupted,
            compactions,
            other,
        } = &mut report.lines;
        let of_reasons = known.rejected + known.interrupted + known.compactions;
        *total += known.lines.total;
        *residue += known.lines.residue;
        *rejected += known.rejected;
        *interrupted += known.interrupted;
        *compactions += known.compactions;
        *other += known.lines.residue.saturating_sub(of_reasons);
    }
}

/// Counts by state, and what a run would do, the most work first.
fn steps(report: &mut StatusReport, sessions: &[Seen]) {
    let mut steps: BTreeMap<(State, &str), NextStep> = BTreeMap::new();
    for seen in sessions {
        report.states.add(seen.state);
        if seen.state != State::SourceGone {
            report.bytes.sources += seen.bytes;
        }
        if seen.state.is_work() {
            report.bytes.to_read += seen.bytes;
        }
        let step = steps.entry((seen.state, &seen.reason));
        let step = step.or_insert_with(|| NextStep {
            state: seen.state,
            reason: seen.reason.clone(),
            sessions: 0,
            bytes: 0,
            examples: Vec::new(),
        });
        step.sessions += 1;
        step.bytes += seen.bytes;
        if step.examples.len() < EXAMPLES {
            step.examples.push(seen.source.clone());
        }
    }
    report.next = steps.into_values().collect();
}

/// Size of all streams, those of the application included.
fn stream_bytes(store: &Store) -> u64 {
    let Ok(folder) = std::fs::read_dir(store.layout().journal_dir()) else {
        return 0;
    };
    let sizes = folder.flatten().filter_map(|file| {
        let stat = Stat::of(&file.path(), false).ok().flatten()?;
        stat.is_file().then_some(stat.size)
    });
    sizes.sum()
}
