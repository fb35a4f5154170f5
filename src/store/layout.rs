//! Where everything lies in a store (`tinyagents-store.md`).

use std::path::{Path, PathBuf};

use super::name::StreamName;

/// The folder of the streams.
pub const JOURNAL: &str = "journal";
/// The folder of the key-value namespaces.
pub const KV: &str = "kv";
/// The lock's file.
pub const LOCK: &str = ".session-import.lock";
/// The stat cache.
pub const STAT_CACHE: &str = ".session-import.stat";
/// The key of the marker of a completed import.
pub const MARKER_KEY: &str = "session_import_v1";
/// The key of the format record.
pub const FORMAT_KEY: &str = "format";

/// A namespace of the key-value half.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Namespace {
    /// Session descriptors, in the application's shape.
    Sessions,
    /// Item ledger entries.
    Items,
    /// The marker.
    Markers,
    /// Failed items.
    Failed,
    /// Reports of imports that changed something.
    Imports,
    /// The format record.
    Meta,
    /// Entries of sessions that are being undone.
    Undo,
}

impl Namespace {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Sessions,
        Self::Items,
        Self::Markers,
        Self::Failed,
        Self::Imports,
        Self::Meta,
        Self::Undo,
    ];

    /// The folder's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sessions => "sessions",
            Self::Items => "migration_items",
            Self::Markers => "migrations",
            Self::Failed => "session_import.failed",
            Self::Imports => "session_import.imports",
            Self::Meta => "session_import.meta",
            Self::Undo => "session_import.undo",
        }
    }
}

/// The paths of one store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    root: PathBuf,
}

impl Layout {
    /// Of the store at this root.
    pub fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
        }
    }

    /// The store's root.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The folder of the streams.
    pub fn journal_dir(&self) -> PathBuf {
        self.root.join(JOURNAL)
    }

    /// A stream's file.
    pub fn stream_file(&self, stream: &StreamName) -> PathBuf {
        self.journal_dir().join(stream.file_name())
    }

    /// The folder of all namespaces.
    pub fn kv_dir(&self) -> PathBuf {
        self.root.join(KV)
    }

    /// The folder of a namespace.
    pub fn namespace_dir(&self, namespace: Namespace) -> PathBuf {
        self.kv_dir().join(namespace.as_str())
    }

    /// The file of a key. The caller vouches for the key: a store name, a hash
    /// or one of ours.
    pub fn key_file(&self, namespace: Namespace, key: &str) -> PathBuf {
        self.namespace_dir(namespace).join(key_file_name(key))
    }

    /// The lock's file.
    pub fn lock_file(&self) -> PathBuf {
        self.root.join(LOCK)
    }

    /// The stat cache's file.
    pub fn stat_cache_file(&self) -> PathBuf {
        self.root.join(STAT_CACHE)
    }
}

/// The name of a key's file.
pub fn key_file_name(key: &str) -> String {
    format!("{key}.json")
}
