//! The library's one error type.
//!
//! An [`Error`] ends what it names: a run, or one item of it. What merely was
//! odd is a [`crate::model::diagnostic::Diagnostic`] in the result instead.

use std::io;
use std::path::{Path, PathBuf};

use crate::model::diagnostic::Code;

/// Why a command, or one item of it, could not be done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no workspace where one was named or sought.
    #[error("no workspace found; looked at {}", list(.looked_at))]
    NoWorkspace {
        /// Every place that was looked at.
        looked_at: Vec<PathBuf>,
    },

    /// Another import holds the store's lock.
    #[error("another import is running on this store: {holder} (lock file {path})", path = .path.display())]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// What the holder wrote into it.
        holder: String,
    },

    /// A usage error that the argument parser cannot see, such as a bad glob.
    #[error("{0}")]
    Usage(String),

    /// The operating system refused.
    #[error("cannot {action} {path}: {error}", path = .path.display())]
    Io {
        /// What was tried, as a verb: `read`, `write`, `rename`.
        action: &'static str,
        /// On which file or folder.
        path: PathBuf,
        /// Its answer.
        #[source]
        error: io::Error,
    },

    /// A source that cannot be taken, by a rule of the contract.
    #[error("{message}")]
    Source {
        /// The stable code.
        code: Code,
        /// What was found, and what to do.
        message: String,
        /// Messages that `--salvage` would bring back; 0 if none or unknown.
        salvageable: u64,
    },

    /// The store cannot be used as it is.
    #[error("store {path}: {message}", path = .path.display())]
    Store {
        /// The store's root, or the file in it.
        path: PathBuf,
        /// What is wrong, and what to do.
        message: String,
    },

    /// The operating system refused, on a file or folder of the store.
    #[error("cannot {action} {path}: {error}", path = .path.display())]
    StoreIo {
        /// What was tried, as a verb: `write`, `flush`, `rename`.
        action: &'static str,
        /// On which file or folder.
        path: PathBuf,
        /// Its answer.
        #[source]
        error: io::Error,
    },

    /// A signal or the host asked to stop.
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    /// An I/O error with what was tried and where.
    pub fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Io {
            action,
            path: path.to_owned(),
            error,
        }
    }

    /// The same for the store, so that a full disk is not taken for an
    /// unreadable source.
    pub fn store_io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::StoreIo {
            action,
            path: path.to_owned(),
            error,
        }
    }

    /// A source that fails by a rule.
    pub fn source(code: Code, message: impl Into<String>) -> Self {
        Self::Source {
            code,
            message: message.into(),
            salvageable: 0,
        }
    }

    /// The stable code of what failed. An I/O error is taken to be about the
    /// source of an item.
    pub fn code(&self) -> Code {
        match self {
            Self::Source { code, .. } => *code,
            Self::Interrupted => Code::Interrupted,
            Self::Io { .. } => Code::Unreadable,
            Self::StoreIo { .. } => Code::StoreWrite,
            Self::NoWorkspace { .. } => Code::NoWorkspace,
            Self::Locked { .. } => Code::Locked,
            Self::Usage(_) => Code::Usage,
            Self::Store { .. } => Code::StoreUnusable,
        }
    }
}

fn list(paths: &[PathBuf]) -> String {
    let names: Vec<_> = paths
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    names.join(", ")
}

/// What most of this library returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;
