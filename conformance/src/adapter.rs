//! One face for all versions of `tinyagents`.
//!
//! Each version has traits and errors of its own, so the same code cannot call
//! two of them. The macro below writes what differs, which is only paths, once
//! per version; the checks are written against [`Opened`].

use std::{io, path::Path};

use serde_json::Value;

/// A version of `tinyagents` that a store can be opened with.
#[derive(Clone, Copy)]
pub struct Version {
    /// The version's number, as in `Cargo.toml`.
    pub name: &'static str,
    /// Opens the store with this root (the folder of `journal/` and `kv/`).
    pub open: fn(&Path) -> io::Result<Box<dyn Opened>>,
}

/// A store, opened with one version of `tinyagents`. Errors are the crate's
/// own words.
pub trait Opened {
    /// All records of a stream from `offset` on, with their offsets.
    fn read_from(&self, stream: &str, offset: u64) -> Result<Vec<(u64, Value)>, String>;
    /// The stream's length, as the crate counts it.
    fn stream_len(&self, stream: &str) -> Result<u64, String>;
    /// Appends one record; its offset.
    fn append(&self, stream: &str, value: Value) -> Result<u64, String>;
    /// The keys of a namespace.
    fn list(&self, namespace: &str) -> Result<Vec<String>, String>;
    /// The value of a key, if there is one.
    fn get(&self, namespace: &str, key: &str) -> Result<Option<Value>, String>;
    /// Sets the value of a key.
    fn put(&self, namespace: &str, key: &str, value: Value) -> Result<(), String>;
}

/// Defines a type that implements [`Opened`] with one version of the crate.
macro_rules! adapter {
    ($(#[$doc:meta])* $name:ident, $krate:ident, $version:literal) => {
        $(#[$doc])*
        pub struct $name {
            runtime: tokio::runtime::Runtime,
            journal: $krate::harness::store::JsonlAppendStore,
            kv: $krate::harness::store::FileStore,
        }

        impl $name {
            /// This version.
            pub const VERSION: $crate::Version = $crate::Version {
                name: $version,
                open: |root| Ok(Box::new(Self::open(root)?)),
            };

            /// Opens the store with this root.
            ///
            /// # Errors
            ///
            /// When no runtime can be started. The store itself is only
            /// touched when it is read.
            pub fn open(root: &std::path::Path) -> std::io::Result<Self> {
                Ok(Self {
                    runtime: tokio::runtime::Builder::new_current_thread().build()?,
                    journal: $krate::harness::store::JsonlAppendStore::new(root.join("journal")),
                    kv: $krate::harness::store::FileStore::new(root.join("kv")),
                })
            }
        }

        impl $crate::Opened for $name {
            fn read_from(
                &self,
                stream: &str,
                offset: u64,
            ) -> Result<Vec<(u64, serde_json::Value)>, String> {
                use $krate::harness::store::AppendStore as _;
                let records = self.journal.read_from(stream, offset);
                self.runtime.block_on(records).map_err(|e| e.to_string())
            }

            fn stream_len(&self, stream: &str) -> Result<u64, String> {
                use $krate::harness::store::AppendStore as _;
                let len = self.journal.len(stream);
                self.runtime.block_on(len).map_err(|e| e.to_string())
            }

            fn append(&self, stream: &str, value: serde_json::Value) -> Result<u64, String> {
                use $krate::harness::store::AppendStore as _;
                let offset = self.journal.append(stream, value);
                self.runtime.block_on(offset).map_err(|e| e.to_string())
            }

            fn list(&self, namespace: &str) -> Result<Vec<String>, String> {
                use $krate::harness::store::Store as _;
                let keys = self.kv.list(namespace);
                self.runtime.block_on(keys).map_err(|e| e.to_string())
            }

            fn get(
                &self,
                namespace: &str,
                key: &str,
            ) -> Result<Option<serde_json::Value>, String> {
                use $krate::harness::store::Store as _;
                let value = self.kv.get(namespace, key);
                self.runtime.block_on(value).map_err(|e| e.to_string())
            }

            fn put(
                &self,
                namespace: &str,
                key: &str,
                value: serde_json::Value,
            ) -> Result<(), String> {
                use $krate::harness::store::Store as _;
                let done = self.kv.put(namespace, key, value);
                self.runtime.block_on(done).map_err(|e| e.to_string())
            }
        }
    };
}
