//! The TinyAgents store on disk (`tinyagents-store.md`).
//!
//! [`Store`] reads and creates nothing; [`Writer`] is the one that writes. The
//! store knows nothing of any source's format.

pub mod clock;
pub mod commit;
mod hashing;
pub(crate) mod holds;
pub mod journal;
pub mod kv;
pub mod layout;
pub mod lock;
pub mod name;
mod places;
pub mod record;
mod relocate;
pub mod remove;
pub mod stream;
#[cfg(test)]
mod testing;
pub mod traces;
pub mod writer;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rayon::iter::{IntoParallelIterator as _, ParallelIterator as _};
use serde::de::DeserializeOwned;

pub use clock::Clock;
pub use commit::{CommitError, Committed, Expect, Prepared};
pub use journal::{Draft, Record, StreamReader, Written};
pub use kv::Damaged;
pub use layout::{Layout, Namespace};
pub use lock::SharedLock;
pub use name::{Names, StoreName, StreamName};
pub use record::{Descriptor, Entry, Failure, Format, ImportRecord, Marker};
pub use writer::Writer;

use crate::error::{Error, Result};
use crate::fs::dir::no_folder;
use crate::fs::stat::Room;
use crate::fs::{Stat, atomic};
use crate::model::diagnostic::{Code, Diagnostic};
use crate::model::key::{SessionKey, Sha256, readable};
use layout::{FORMAT_KEY, MARKER_KEY};

/// The read side of a store. It need not exist.
#[derive(Debug, Clone)]
pub struct Store {
    layout: Layout,
}

/// Records by the source's key, and those that cannot be used.
#[derive(Debug, Clone)]
pub struct Records<T> {
    /// The records.
    pub by_key: BTreeMap<Sha256, T>,
    /// What lies there and is no such record.
    pub damaged: Vec<Damaged>,
}

impl<T> Default for Records<T> {
    fn default() -> Self {
        Self {
            by_key: BTreeMap::new(),
            damaged: Vec::new(),
        }
    }
}

/// The item ledger.
pub type Entries = Records<Entry>;

/// Whether a store may be written for a workspace, and what is to be noted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The format record as it must be.
    pub format: Format,
    /// It is not so yet.
    pub is_new: bool,
    /// What was decided.
    pub diagnostics: Vec<Diagnostic>,
}

impl Store {
    /// The store at this root.
    pub fn at(root: &Path) -> Self {
        Self {
            layout: Layout::new(root),
        }
    }

    /// Whether there is anything.
    pub fn exists(&self) -> bool {
        self.layout.root().is_dir()
    }

    /// Where everything lies.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The format record.
    ///
    /// # Errors
    /// [`Error::Store`] if the store's format is one that this version does
    /// not know, or the record is damaged.
    pub fn format(&self) -> Result<Option<Format>> {
        let refuse = |message: String| Error::Store {
            path: self.layout.key_file(Namespace::Meta, FORMAT_KEY),
            message,
        };
        match kv::get::<Format>(&self.layout, Namespace::Meta, FORMAT_KEY)? {
            None => Ok(None),
            Some(Ok(format)) if format.format <= record::FORMAT => Ok(Some(format)),
            Some(Ok(format)) => Err(refuse(format!(
                "the store has format {}, and this version knows formats up to {}; \
                 use the newer version that wrote it",
                format.format,
                record::FORMAT
            ))),
            Some(Err(damaged)) => Err(refuse(format!(
                "the record that says whose the store is, is damaged: {}; if it is this \
                 workspace's store, remove that file and run again, which writes it anew",
                damaged.reason
            ))),
        }
    }

    /// Whether this store may be written for this workspace. Looks only: a dry
    /// run says the same as a run.
    ///
    /// # Errors
    /// [`Error::Store`] if it may not: another workspace's, a higher format, a
    /// folder in it that is a link.
    pub fn claim(&self, workspace: &Path) -> Result<Claim> {
        self.check_folders()?;
        let root = without_links(self.layout.root());
        let workspace = without_links(workspace);
        let inside = root.starts_with(&workspace);
        let name = readable(workspace.as_os_str());
        let found = self.format()?;
        let mut format = Format {
            format: record::FORMAT,
            workspace: (!inside).then(|| name.clone()),
        };
        let mut diagnostics = Vec::new();
        match found.as_ref().and_then(|found| found.workspace.as_deref()) {
            Some(named) if named == name => format.workspace = Some(name),
            Some(named) if Path::new(named).try_exists().unwrap_or(true) => {
                return Err(Error::Store {
                    path: self.layout.root().to_owned(),
                    message: format!("it belongs to the workspace {named}; name another store"),
                });
            }
            Some(named) => diagnostics.push(Diagnostic::new(
                Code::WorkspaceMoved,
                format!("the store belonged to {named}, which is gone; taken over for {name}"),
            )),
            None => {}
        }
        Ok(Claim {
            is_new: found.as_ref() != Some(&format),
            format,
            diagnostics,
        })
    }

    /// A folder that leads elsewhere is an error before anything is read or
    /// written through it.
    fn check_folders(&self) -> Result<()> {
        let namespaces = Namespace::ALL.map(|namespace| self.layout.namespace_dir(namespace));
        let folders = [self.layout.journal_dir(), self.layout.kv_dir()];
        for folder in folders.into_iter().chain(namespaces) {
            match Stat::of(&folder, false) {
                Ok(Some(stat)) if !stat.is_dir() => {
                    return Err(Error::Store {
                        path: folder,
                        message: "a folder of the store may not be a link or a file; move it away \
                                  and run again"
                            .into(),
                    });
                }
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => {
                    return Err(no_folder(self.layout.root()));
                }
                Err(error) => return Err(Error::store_io("read", &folder)(error)),
            }
        }
        Ok(())
    }

    /// All item ledger entries.
    ///
    /// # Errors
    /// The folder cannot be listed, or an entry not read.
    pub fn entries(&self) -> Result<Entries> {
        self.map_entries(|_, entry| entry)
    }

    /// The same, keeping only what is needed of each: entries of a hundred
    /// thousand sessions fill a lot of memory.
    ///
    /// # Errors
    /// As [`Store::entries`].
    pub fn map_entries<T: Send>(
        &self,
        keep: impl Fn(&Sha256, Entry) -> T + Sync,
    ) -> Result<Records<T>> {
        self.records(Namespace::Items, keep)
    }

    /// One entry.
    ///
    /// # Errors
    /// It cannot be read, or is damaged.
    pub fn entry(&self, key: &Sha256) -> Result<Option<Entry>> {
        self.get(Namespace::Items, &key.to_string())
    }

    /// A session's descriptor, ours or the application's.
    ///
    /// # Errors
    /// It cannot be read, or is damaged.
    pub fn descriptor(&self, name: &StoreName) -> Result<Option<Descriptor>> {
        self.get(Namespace::Sessions, name.as_str())
    }

    /// All failed items.
    ///
    /// # Errors
    /// As [`Store::entries`].
    pub fn failures(&self) -> Result<Records<Failure>> {
        self.records(Namespace::Failed, |_, failure| failure)
    }

    /// The marker; one that is damaged is given as one that is not ours.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn marker(&self) -> Result<Option<Marker>> {
        let marker = kv::get(&self.layout, Namespace::Markers, MARKER_KEY)?;
        Ok(marker.map(Result::unwrap_or_default))
    }

    /// All streams, ours or not.
    ///
    /// # Errors
    /// The folder cannot be listed.
    pub fn stream_names(&self) -> Result<HashSet<StreamName>> {
        let mut names = HashSet::new();
        kv::for_each_record(&self.layout.journal_dir(), |file| {
            names.extend(file.strip_suffix(".jsonl").and_then(StreamName::parse));
        })?;
        Ok(names)
    }

    /// All descriptors' names, ours or not.
    ///
    /// # Errors
    /// The folder cannot be listed.
    pub fn descriptor_names(&self) -> Result<HashSet<StoreName>> {
        let mut names = HashSet::new();
        kv::for_each_record(&self.layout.namespace_dir(Namespace::Sessions), |file| {
            names.extend(file.strip_suffix(".json").and_then(StoreName::parse));
        })?;
        Ok(names)
    }

    /// Who has which name in the store, for [`Names::assign`].
    ///
    /// # Errors
    /// The folder cannot be listed.
    pub fn occupants(&self) -> Result<Occupants<'_>> {
        let mut names: HashMap<String, Vec<String>> = HashMap::new();
        for name in kv::list(&self.layout, Namespace::Sessions)? {
            names
                .entry(name.to_ascii_lowercase())
                .or_default()
                .push(name);
        }
        Ok(Occupants {
            store: self,
            names,
            known: Mutex::default(),
        })
    }

    /// Temporary files of ours that an interrupted import left.
    ///
    /// # Errors
    /// A folder cannot be listed.
    pub fn leftovers(&self) -> Result<Vec<PathBuf>> {
        let namespaces = Namespace::ALL.map(|namespace| self.layout.namespace_dir(namespace));
        let folders = [self.layout.root().to_owned(), self.layout.journal_dir()];
        let mut found = Vec::new();
        for folder in folders.into_iter().chain(namespaces) {
            kv::for_each_file(&folder, |name| {
                if atomic::is_temp_name(name) {
                    found.push(folder.join(name));
                }
            })?;
        }
        found.sort_unstable();
        Ok(found)
    }

    /// How much may still be written to where the store lies.
    pub fn room(&self) -> Option<Room> {
        Room::at(self.layout.root())
    }

    fn get<T: DeserializeOwned>(&self, namespace: Namespace, key: &str) -> Result<Option<T>> {
        let value = kv::get(&self.layout, namespace, key)?;
        value.transpose().map_err(|damaged| Error::Store {
            path: self.layout.key_file(namespace, key),
            message: damaged.reason,
        })
    }

    fn records<T: DeserializeOwned, U: Send>(
        &self,
        namespace: Namespace,
        keep: impl Fn(&Sha256, T) -> U + Sync,
    ) -> Result<Records<U>> {
        let keys: Vec<Sha256> = kv::list(&self.layout, namespace)?
            .iter()
            .filter_map(|key| key.parse().ok())
            .collect();
        let read: Vec<_> = keys
            .into_par_iter()
            .map(|key| {
                let value = kv::get(&self.layout, namespace, &key.to_string())?;
                Ok(value.map(|value| value.map(|value| (key, keep(&key, value)))))
            })
            .collect::<Result<_>>()?;
        let mut records = Records::default();
        for value in read.into_iter().flatten() {
            match value {
                Ok((key, value)) => {
                    records.by_key.insert(key, value);
                }
                Err(damaged) => records.damaged.push(damaged),
            }
        }
        Ok(records)
    }
}

/// Who has which name in the store, without regard to case. Descriptors are
/// read only when somebody asks for their names.
#[derive(Debug)]
pub struct Occupants<'a> {
    store: &'a Store,
    /// Names as they stand on disk, by their folded form.
    names: HashMap<String, Vec<String>>,
    known: Mutex<HashMap<String, SessionKey>>,
}

impl Occupants<'_> {
    /// The session key in the descriptor of that name; where the name stands
    /// there with other capitals, in that one's. A descriptor that cannot be
    /// read has a key that no session has: whosever it is, the name is taken.
    pub fn of(&self, name: &StoreName) -> Option<SessionKey> {
        let names = self.names.get(&name.as_str().to_ascii_lowercase())?;
        let exact = names.iter().find(|other| *other == name.as_str());
        let name = exact.or(names.first())?;
        let mut known = self
            .known
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let key = known.entry(name.clone()).or_insert_with(|| self.read(name));
        Some(key.clone())
    }

    fn read(&self, name: &str) -> SessionKey {
        #[derive(serde::Deserialize)]
        struct Named {
            session_key: SessionKey,
        }
        let named = kv::get::<Named>(&self.store.layout, Namespace::Sessions, name);
        match named {
            Ok(Some(Ok(named))) => named.session_key,
            _ => SessionKey::new(""),
        }
    }
}

/// The path without links, as far as it exists.
pub(crate) fn without_links(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    for ancestor in path.ancestors() {
        if let (Ok(existing), Ok(rest)) = (ancestor.canonicalize(), path.strip_prefix(ancestor)) {
            // Joined with nothing, it would end in a slash.
            return existing.join(rest).components().collect();
        }
    }
    path
}
