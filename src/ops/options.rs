//! What a caller may ask of an import, and how it is told of its progress.

use std::path::PathBuf;
use std::time::Duration;

use globset::{Glob, GlobSet, GlobSetBuilder};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::model::diagnostic::{Code, Diagnostic};
use crate::model::interrupt::Interrupt;
use crate::model::key::SessionKey;
use crate::plan::decide::Wishes;
use crate::report::ItemReport;

/// What to import and how; the field names are those of the design's RPC.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Options {
    /// The workspace; else it is sought as `behaviour.md` says.
    pub workspace: Option<PathBuf>,
    /// The store's root; else `tinyagents_store` in the workspace.
    pub store: Option<PathBuf>,
    /// Only plan.
    pub dry_run: bool,
    /// Globs on session keys; empty for all. The design's RPC gives one, as a
    /// string; a list is as good.
    #[serde(deserialize_with = "one_or_many")]
    pub only: Vec<String>,
    /// Import even what is done.
    pub force: bool,
    /// Replace streams that have gone another way.
    pub overwrite: bool,
    /// Compare content instead of size and mtime.
    pub checksum: bool,
    /// Take more than the application's reader would.
    pub salvage: bool,
    /// A rejected line makes the result unclean. Only the caller acts on it.
    pub strict: bool,
    /// Say more. Only the caller acts on it.
    pub verbose: bool,
    /// Leave out of the report the items of which there is nothing to say but
    /// that they were imported or had not changed: for a caller who only counts
    /// them. Without it, memory grows with their number.
    #[serde(skip)]
    pub brief: bool,
    /// Threads; else one per core.
    pub jobs: Option<usize>,
    /// How long to wait for another import, in seconds.
    #[serde(with = "seconds")]
    pub retry_lock: Option<Duration>,
    /// Asks a running import to stop.
    #[serde(skip)]
    pub interrupt: Interrupt,
}

fn one_or_many<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Globs {
        One(String),
        Many(Vec<String>),
    }
    Ok(match Option::deserialize(deserializer)? {
        None => Vec::new(),
        Some(Globs::One(glob)) => vec![glob],
        Some(Globs::Many(globs)) => globs,
    })
}

pub(super) mod seconds {
    use super::{Deserialize, Duration};

    pub(crate) fn serialize<S: serde::Serializer>(
        duration: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match duration {
            Some(duration) => serializer.serialize_some(&duration.as_secs_f64()),
            None => serializer.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: serde::Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        let seconds = Option::<f64>::deserialize(deserializer)?;
        let duration = seconds.map(Duration::try_from_secs_f64).transpose();
        duration.map_err(serde::de::Error::custom)
    }
}

/// Told how an import goes on; every method may be left out.
pub trait Progress: Send {
    /// So many sessions and bytes are to be read; told again where more turn up.
    fn started(&mut self, _sessions: u64, _bytes: u64) {}
    /// So many bytes more were read.
    fn read(&mut self, _bytes: u64) {}
    /// An item is done.
    fn item(&mut self, _item: &ItemReport) {}
    /// A session was verified.
    fn verified(&mut self, _session_key: &str) {}
}

impl Progress for () {}

impl Options {
    /// The options that bear on what is done about an item.
    pub(super) fn wishes(&self) -> Wishes {
        Wishes {
            force: self.force,
            overwrite: self.overwrite,
            checksum: self.checksum,
            salvage: self.salvage,
        }
    }
}

/// Which sessions are meant: those that a pattern fits, or all.
#[derive(Debug, Clone)]
pub(crate) struct Only {
    patterns: Vec<String>,
    /// `None` for all.
    set: Option<GlobSet>,
}

impl Only {
    /// # Errors
    /// A pattern is none.
    pub(crate) fn new(patterns: &[String]) -> Result<Self> {
        if patterns.is_empty() {
            let patterns = Vec::new();
            return Ok(Self {
                patterns,
                set: None,
            });
        }
        let usage = |error| Error::Usage(format!("--only: {error}"));
        let mut set = GlobSetBuilder::new();
        for pattern in patterns {
            set.add(Glob::new(pattern).map_err(usage)?);
        }
        Ok(Self {
            patterns: patterns.to_vec(),
            set: Some(set.build().map_err(usage)?),
        })
    }

    /// Whether every session is meant.
    pub(crate) fn is_all(&self) -> bool {
        self.set.is_none()
    }

    /// Whether this one is.
    pub(crate) fn has(&self, key: &SessionKey) -> bool {
        self.set
            .as_ref()
            .is_none_or(|set| set.is_match(key.as_str()))
    }

    /// A warning for each pattern that fits none of these keys.
    pub(crate) fn unmatched<'k>(
        &self,
        keys: impl IntoIterator<Item = &'k SessionKey>,
    ) -> Vec<Diagnostic> {
        let Some(set) = &self.set else {
            return Vec::new();
        };
        let mut fits = vec![false; self.patterns.len()];
        for key in keys {
            for index in set.matches(key.as_str()) {
                if let Some(fits) = fits.get_mut(index) {
                    *fits = true;
                }
            }
        }
        let all = self.patterns.iter().zip(fits);
        all.filter(|(_, fits)| !fits)
            .map(|(pattern, _)| {
                let message = format!("no session key fits --only {pattern}");
                Diagnostic::new(Code::NothingSelected, message)
            })
            .collect()
    }
}
