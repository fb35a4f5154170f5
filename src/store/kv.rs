//! The key-value half: one pretty-printed JSON value per file, keys sorted, no
//! final newline, as the application's own store writes it.

use std::fs::{DirEntry, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::layout::{Layout, Namespace};
use super::record::Tool;
use crate::error::{Error, Result};
use crate::fs::Stat;

/// A file of the store that cannot be used as what it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damaged {
    /// Its key.
    pub key: String,
    /// Why, without any of its contents.
    pub reason: String,
}

/// The bytes that stand for a value.
///
/// # Errors
/// The value cannot be JSON.
pub fn to_bytes<T: Serialize>(value: &T) -> Result<Vec<u8>> {
    // A value's maps are sorted by key; a struct's fields are not.
    serde_json::to_value(value)
        .and_then(|value| serde_json::to_vec_pretty(&value))
        .map_err(not_json)
}

/// Whether a record's file has the very bytes that this version writes for it;
/// of another version's nothing can be said.
pub(crate) fn is_as_written<T: Serialize>(bytes: &[u8], value: &T, tool: Option<&Tool>) -> bool {
    tool != Some(&Tool::this()) || to_bytes(value).is_ok_and(|written| written == bytes)
}

pub(super) fn not_json(error: serde_json::Error) -> Error {
    Error::Store {
        path: PathBuf::new(),
        message: format!("a record cannot be written as JSON: {error}"),
    }
}

/// Opens a file of the store for reading: never through a link, never waiting
/// for the other end of a pipe. `None` if there is none.
pub(super) fn open(path: &Path) -> Result<Option<Opened>> {
    use rustix::fs::OFlags;
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path);
    match opened {
        Ok(file) => {
            let metadata = file.metadata().map_err(Error::store_io("read", path))?;
            Ok(Some(if metadata.is_file() {
                Opened::File(file)
            } else {
                Opened::NoFile(NO_FILE)
            }))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => Ok(
            Some(Opened::NoFile("this is a link, and links are not followed")),
        ),
        // Sockets and some devices cannot even be opened.
        Err(error) => match Stat::of(path, false) {
            Ok(Some(stat)) if !(stat.is_file() || stat.is_dir()) => {
                Ok(Some(Opened::NoFile(NO_FILE)))
            }
            _ => Err(Error::store_io("read", path)(error)),
        },
    }
}

const NO_FILE: &str = "this is not a regular file";

/// What lies at a path of the store.
pub(super) enum Opened {
    /// A regular file.
    File(File),
    /// Something else, in words.
    NoFile(&'static str),
}

/// A file's bytes, or in words why it has none. `None` if there is no file.
///
/// # Errors
/// It cannot be read.
pub fn read(path: &Path) -> Result<Option<Result<Vec<u8>, &'static str>>> {
    let mut bytes = Vec::new();
    match open(path)? {
        None => Ok(None),
        Some(Opened::NoFile(reason)) => Ok(Some(Err(reason))),
        Some(Opened::File(mut file)) => {
            file.read_to_end(&mut bytes)
                .map_err(Error::store_io("read", path))?;
            Ok(Some(Ok(bytes)))
        }
    }
}

/// The value of a key, or why it cannot be used. `None` if there is none.
///
/// # Errors
/// It cannot be read.
pub fn get<T: DeserializeOwned>(
    layout: &Layout,
    namespace: Namespace,
    key: &str,
) -> Result<Option<Result<T, Damaged>>> {
    let damaged = |reason: String| Damaged {
        key: key.to_owned(),
        reason,
    };
    let value = match read(&layout.key_file(namespace, key))? {
        None => return Ok(None),
        Some(Err(reason)) => Err(damaged(reason.to_owned())),
        Some(Ok(bytes)) => serde_json::from_slice(&bytes).map_err(|error| {
            // The parser's own words may quote what it read.
            let (line, column) = (error.line(), error.column());
            damaged(format!("not such a record (line {line}, column {column})"))
        }),
    };
    Ok(Some(value))
}

/// All keys of a namespace, sorted; none if it has no folder.
///
/// # Errors
/// The folder cannot be listed.
pub fn list(layout: &Layout, namespace: Namespace) -> Result<Vec<String>> {
    let mut keys = Vec::new();
    for_each_file(&layout.namespace_dir(namespace), |name| {
        if let Some(key) = name.strip_suffix(".json")
            && super::name::is_valid(key)
        {
            keys.push(key.to_owned());
        }
    })?;
    keys.sort_unstable();
    Ok(keys)
}

/// Gives each name in a folder that is UTF-8; none of ours and none of the
/// application's is not. Nothing happens if there is no such folder.
pub(super) fn for_each_file(dir: &Path, mut found: impl FnMut(&str)) -> Result<()> {
    for_each_entry(dir, |name, _| found(name))
}

/// The same without what no record can be: folders, pipes, sockets, devices.
pub(super) fn for_each_record(dir: &Path, mut found: impl FnMut(&str)) -> Result<()> {
    for_each_entry(dir, |name, entry| {
        let kind = entry.file_type();
        // A link is one, if a damaged one.
        if kind.is_ok_and(|kind| kind.is_file() || kind.is_symlink()) {
            found(name);
        }
    })
}

fn for_each_entry(dir: &Path, mut found: impl FnMut(&str, &DirEntry)) -> Result<()> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Error::store_io("list", dir)(error)),
    };
    for entry in entries {
        let entry = entry.map_err(Error::store_io("list", dir))?;
        if let Some(name) = entry.file_name().to_str() {
            found(name, &entry);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_look_as_the_applications_own_do() {
        #[derive(Serialize)]
        struct Value {
            b: u64,
            a: f64,
        }
        let bytes = to_bytes(&Value { b: 1, a: 0.5 }).unwrap();
        assert_eq!(
            String::from_utf8(bytes).unwrap(),
            "{\n  \"a\": 0.5,\n  \"b\": 1\n}"
        );
    }

    #[test]
    fn what_cannot_be_used_is_damaged_and_not_quoted() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path());
        let folder = layout.namespace_dir(Namespace::Items);
        let get = |key: &str| get::<Vec<u64>>(&layout, Namespace::Items, key).unwrap();
        assert_eq!(get("none"), None);
        assert!(list(&layout, Namespace::Items).unwrap().is_empty());

        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("good.json"), "[1]").unwrap();
        std::fs::write(folder.join("bad.json"), "[\"secret\"]").unwrap();
        std::os::unix::fs::symlink("good.json", folder.join("link.json")).unwrap();
        std::fs::create_dir(folder.join("folder.json")).unwrap();
        for other in [
            "good.json.tmp.1.2",
            ".json",
            "a b.json",
            ".session-import-x.tmp",
        ] {
            std::fs::write(folder.join(other), "").unwrap();
        }
        assert_eq!(get("good"), Some(Ok(vec![1])));
        let keys = list(&layout, Namespace::Items).unwrap();
        assert_eq!(keys, ["bad", "folder", "good", "link"]);
        for key in ["bad", "folder", "link"] {
            let damaged = get(key).unwrap().unwrap_err();
            assert_eq!(damaged.key, key);
            assert!(!damaged.reason.contains("secret"));
        }
    }
}
