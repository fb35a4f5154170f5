//! `accept`: settles failed sessions that nobody can help (`behaviour.md`,
//! Commands).
//!
//! The item ledger gets an entry with the reason, and the source as it is now:
//! from then on `run` skips that source, and its marker may be clean. Once the
//! source changes it is tried again. All of the sources named are settled, or
//! none.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::options::seconds;
use super::workspace::{Surroundings, store_root};
use crate::error::{Error, Result};
use crate::fs::Stat;
use crate::model::diagnostic::Diagnostic;
use crate::model::interrupt::Interrupt;
use crate::model::key::{SessionKey, Sha256, SourcePath, readable};
use crate::model::session::Kind;
use crate::plan::kind;
use crate::plan::survey::{self, Given, SUBAGENTS};
use crate::report::{AcceptReport, AcceptedItem, SCHEMA_VERSION};
use crate::source::input::Input;
use crate::source::openhuman::discover::{Found, discover};
use crate::source::openhuman::subagents::{Subagent, Subagents};
use crate::store::name::StoreName;
use crate::store::record::{Accepted, Entry, Failure};
use crate::store::{Clock, Store, Writer};

/// How many failures a usage error names.
const NAMED: usize = 20;

/// What to settle.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Options {
    /// The workspace; else it is sought as `behaviour.md` says.
    pub workspace: Option<PathBuf>,
    /// The store's root; else `tinyagents_store` in the workspace.
    pub store: Option<PathBuf>,
    /// Failed sessions: paths relative to the workspace or absolute, as a
    /// report shows them, or session keys.
    pub sources: Vec<PathBuf>,
    /// Why nobody can help.
    pub reason: String,
    /// How long to wait for another import, in seconds.
    #[serde(with = "seconds")]
    pub retry_lock: Option<Duration>,
}

/// Settles failures.
///
/// # Errors
/// [`Error::Usage`], and nothing is written, if one of the sources has not
/// failed, has changed since or is gone, or if there is no reason. Otherwise
/// what keeps it from being done: no workspace, a lock that an import holds, a
/// store that cannot be written.
pub fn accept(options: &Options) -> Result<AcceptReport> {
    let surroundings = Surroundings::of_process();
    let workspace = surroundings.workspace(options.workspace.as_deref())?;
    let root = store_root(options.store.as_deref(), &workspace)?;
    let reason = options.reason.trim();
    if reason.is_empty() {
        return Err(Error::Usage("--reason must say why".to_owned()));
    }
    let accept = Accept {
        options,
        workspace,
        store: Store::at(&root),
        clock: Clock::from_env()?,
        reason,
    };
    // Wrong usage changes nothing, so it is looked for before the store is
    // opened for writing; and again under the lock, for what changed meanwhile.
    accept.chosen(&accept.failures()?)?;
    let (writer, diagnostics) =
        Writer::open(&root, &accept.workspace, accept.clock, options.retry_lock)?;
    let report = accept.settle(&writer, diagnostics)?;
    if let Err(error) = writer.finish() {
        tracing::debug!("the lock file could not be emptied: {error}");
    }
    Ok(report)
}

type Failures = std::collections::BTreeMap<Sha256, Failure>;

struct Accept<'a> {
    options: &'a Options,
    workspace: PathBuf,
    store: Store,
    clock: Clock,
    reason: &'a str,
}

/// A source as it is now.
struct Seen {
    kind: Kind,
    size: u64,
    mtime_ms: u64,
    /// `None` where it cannot be read.
    sha256: Option<Sha256>,
}

/// A failure and its source.
struct Chosen {
    key: Sha256,
    failure: Failure,
    seen: Seen,
}

impl Accept<'_> {
    fn failures(&self) -> Result<Failures> {
        Ok(self.store.failures()?.by_key)
    }

    /// The failures that are meant, each once, with their sources as they are.
    fn chosen(&self, failures: &Failures) -> Result<Vec<Chosen>> {
        let mut chosen: Failures = Failures::new();
        for named in &self.options.sources {
            let (key, failure) = self.named(named, failures)?;
            chosen.insert(key, failure);
        }
        let files = discover(&self.workspace).files;
        let files: HashMap<Sha256, Found> = files
            .into_iter()
            .map(|file| (file.path.ledger_key(), file))
            .filter(|(key, _)| chosen.contains_key(key))
            .collect();
        let is_history = |failure: &Failure| failure.source.starts_with(SUBAGENTS);
        let subagents = match chosen.values().any(is_history) {
            true => Subagents::read(&self.workspace).0.records,
            false => Vec::new(),
        };
        let seen = chosen.into_iter().map(|(key, failure)| {
            let seen = match files.get(&key) {
                Some(file) => self.seen(file, &failure)?,
                None => seen_record(&key, &subagents).ok_or_else(|| gone(&failure))?,
            };
            Ok(Chosen { key, failure, seen })
        });
        seen.collect()
    }

    /// The failure that an argument names.
    fn named(&self, named: &Path, failures: &Failures) -> Result<(Sha256, Failure)> {
        let relative = self.relative(named);
        let key = relative
            .as_ref()
            .map(|path| SourcePath::file(path).ledger_key());
        let texts = [Some(named), relative.as_deref()];
        let texts: Vec<String> = texts
            .into_iter()
            .flatten()
            .map(|path| readable(path.as_os_str()))
            .collect();
        let is_meant = |(at, failure): &(&Sha256, &Failure)| {
            Some(**at) == key
                || texts.contains(&failure.source)
                || texts
                    .iter()
                    .any(|text| text == failure.session_key.as_str())
        };
        let mut meant = failures.iter().filter(is_meant);
        match (meant.next(), meant.next()) {
            (Some((key, failure)), None) => Ok((*key, failure.clone())),
            (Some((_, one)), Some((_, other))) => Err(Error::Usage(format!(
                "{} may be {} or {}; name its path",
                readable(named.as_os_str()),
                one.source,
                other.source
            ))),
            (None, _) => Err(not_failed(named, failures)),
        }
    }

    /// The path as it is seen from the workspace, where it lies in there.
    fn relative(&self, named: &Path) -> Option<PathBuf> {
        if named.is_relative() {
            let path = named.strip_prefix(".").unwrap_or(named);
            return Some(path.to_owned());
        }
        let absolute = |path: &Path| std::path::absolute(path).ok();
        let workspace = absolute(&self.workspace)?;
        if let Ok(relative) = named.strip_prefix(&workspace) {
            return Some(relative.to_owned());
        }
        // The workspace, or a folder above it, may be known by another name.
        // The file itself may be a link, which is what failed.
        let folder = named.parent()?.canonicalize().ok()?;
        let folder = folder.strip_prefix(workspace.canonicalize().ok()?).ok()?;
        Some(folder.join(named.file_name()?))
    }

    /// A file as it is now, if that is what failed.
    fn seen(&self, file: &Found, failure: &Failure) -> Result<Seen> {
        let path = self.workspace.join(file.path.relative());
        let capped = |ms| self.clock.cap_mtime(ms);
        let hash = || {
            let interrupt = Interrupt::default();
            let input = Input::open(&path, &interrupt, &|_| ())?;
            Ok::<_, Error>((input.before(), input.hash()?, input.has_changed()))
        };
        let (stat, sha256, has_changed) = match hash() {
            Ok((stat, hash, has_changed)) => (Some(stat), Some(hash), has_changed),
            // What cannot be read may well be what nobody can help: a broken
            // disk, say. Its size and time are all there is to know it by.
            Err(error) => {
                tracing::debug!("{error}");
                (
                    Stat::of(&path, true).ok().flatten().or(file.stat),
                    None,
                    false,
                )
            }
        };
        let size = stat.map_or(0, |stat| stat.size);
        let mtime_ms = capped(stat.map_or(0, |stat| stat.mtime_ms()));
        let is_same = size == failure.size && mtime_ms == capped(failure.mtime_ms);
        if has_changed || !is_same {
            return Err(Error::Usage(format!(
                "{} has changed since it failed; `run` tries it again",
                failure.source
            )));
        }
        Ok(Seen {
            kind: kind(&file.place),
            size,
            mtime_ms,
            sha256,
        })
    }

    /// Writes the entries, all durable before the first failure goes.
    fn settle(&self, writer: &Writer, diagnostics: Vec<Diagnostic>) -> Result<AcceptReport> {
        let failures = self.failures()?;
        let chosen = self.chosen(&failures)?;
        let names = self.names(&chosen)?;
        let mut items = Vec::new();
        let mut entries = Vec::new();
        for Chosen { key, failure, seen } in &chosen {
            // An earlier record of the session stays as it is, and vouched for.
            let before = self.store.entry(key).ok().flatten();
            let before = before.filter(|entry| entry.session_key == failure.session_key);
            let keeps_record = before
                .as_ref()
                .is_some_and(|entry| entry.journal_sha256.is_some());
            let entry = match before {
                Some(before) => before,
                None => {
                    let name = names
                        .get(&failure.session_key)
                        .ok_or_else(|| unnamed(failure))?;
                    let source = failure.source.clone();
                    let mut entry = Entry::new(failure.session_key.clone(), source, name);
                    entry.imported_at = self.clock.imported_at();
                    entry.kind = Some(seen.kind);
                    entry.size = seen.size;
                    entry.mtime_ms = seen.mtime_ms;
                    entry
                }
            };
            entries.push((*key, self.accepted(entry, seen)));
            items.push(AcceptedItem {
                session_key: failure.session_key.to_string(),
                source: failure.source.clone(),
                code: failure.code,
                message: failure.message.clone(),
                sha256: seen.sha256.map(|hash| hash.to_string()),
                keeps_record,
            });
        }
        writer.put_entries(entries)?;
        writer.remove_failures(chosen.iter().map(|chosen| &chosen.key))?;
        items.sort_by(|a, b| (&a.session_key, &a.source).cmp(&(&b.session_key, &b.source)));
        let warnings = diagnostics.iter().filter(|d| d.is_warning());
        Ok(AcceptReport {
            schema_version: SCHEMA_VERSION,
            workspace: self.workspace.display().to_string(),
            store: self.store.layout().root().display().to_string(),
            reason: self.reason.to_owned(),
            accepted: items.len() as u64,
            still_failed: failures.len().saturating_sub(items.len()) as u64,
            warnings: warnings.map(Diagnostic::sentence).collect(),
            diagnostics,
            items,
        })
    }

    /// The entry with what was accepted. What it says of the record stays.
    fn accepted(&self, mut entry: Entry, seen: &Seen) -> Entry {
        entry.accepted = Some(Accepted {
            reason: self.reason.to_owned(),
            at: self.clock.imported_at(),
            sha256: seen.sha256,
            size: seen.size,
            mtime_ms: seen.mtime_ms,
        });
        entry
    }

    /// Names in the store for those that have none, as an import would give
    /// them.
    fn names(&self, chosen: &[Chosen]) -> Result<HashMap<SessionKey, StoreName>> {
        let given = self.store.map_entries(|_, entry| Given::of(&entry))?;
        let given = given.by_key.into_values().flatten().collect();
        let (mut names, mut named) = survey::reserve(given, &self.store)?;
        let keys = chosen.iter().map(|chosen| &chosen.failure.session_key);
        let new = keys.filter(|key| !named.contains_key(*key)).cloned();
        let occupants = self.store.occupants()?;
        let assigned = names.assign(new.collect(), &|name| occupants.of(name));
        named.extend(assigned.into_iter().map(|(key, (name, _))| (key, name)));
        Ok(named)
    }
}

/// A sub-agent's record as it is now.
fn seen_record(key: &Sha256, subagents: &[Subagent]) -> Option<Seen> {
    let is_it =
        |record: &&Subagent| SourcePath::record(SUBAGENTS, record.id.clone()).ledger_key() == *key;
    let record = subagents.iter().find(is_it)?;
    Some(Seen {
        kind: Kind::SubagentHistory,
        size: record.bytes,
        mtime_ms: 0,
        sha256: Some(record.sha256),
    })
}

fn gone(failure: &Failure) -> Error {
    Error::Usage(format!(
        "{} is gone since it failed; `run` forgets the failure",
        failure.source
    ))
}

fn unnamed(failure: &Failure) -> Error {
    Error::Usage(format!("{} has no name in the store", failure.source))
}

fn not_failed(named: &Path, failures: &Failures) -> Error {
    let mut message = format!("{} has not failed", readable(named.as_os_str()));
    if failures.is_empty() {
        message += "; nothing has, as far as the store knows";
    } else {
        let named = failures.values().take(NAMED);
        let named = named.map(|failure| format!("{} ({})", failure.source, failure.code));
        let named: Vec<_> = named.collect();
        let _ = write!(message, "; these have: {}", named.join(", "));
        let more = failures.len().saturating_sub(NAMED);
        if more > 0 {
            let _ = write!(message, " and {more} more");
        }
    }
    Error::Usage(message)
}
