//! A picture of everything below a folder.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use session_import::model::key::Sha256;

/// Every file, folder and link below a folder, by its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree(BTreeMap<PathBuf, Entry>);

/// What an untouched file keeps: a write shows in one of these, always, since
/// nobody can set a change time.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    kind: &'static str,
    content: String,
    mode: u32,
    modified: (i64, i64),
    changed: (i64, i64),
    inode: u64,
}

impl Tree {
    /// Takes the picture.
    #[track_caller]
    pub fn of(root: &Path) -> Self {
        let entries = walkdir::WalkDir::new(root).into_iter().map(|entry| {
            let path = entry.unwrap().into_path();
            let relative = path.strip_prefix(root).unwrap().to_owned();
            (relative, Entry::of(&path))
        });
        Self(entries.collect())
    }

    /// The same without what lies in these places, and without the times of
    /// the folders around them, which change when such a place comes or goes.
    pub fn without(mut self, places: &[&str]) -> Self {
        self.0
            .retain(|path, _| !places.iter().any(|place| path.starts_with(place)));
        for place in places {
            let parent = Path::new(place).parent().unwrap_or(Path::new(""));
            if let Some(folder) = self.0.get_mut(parent) {
                folder.modified = (0, 0);
                folder.changed = (0, 0);
            }
        }
        self
    }

    /// The same without times and inodes: what `diff -r` compares.
    pub fn contents(mut self) -> Self {
        for entry in self.0.values_mut() {
            entry.modified = (0, 0);
            entry.changed = (0, 0);
            entry.inode = 0;
        }
        self
    }

    /// The paths below a folder, that folder not included.
    pub fn paths(&self, below: &str) -> Vec<String> {
        let below = Path::new(below);
        let inside = self
            .0
            .keys()
            .filter(|path| path.starts_with(below) && *path != below);
        inside.map(|path| path.display().to_string()).collect()
    }

    /// Whether there is something at this path.
    pub fn has(&self, path: &str) -> bool {
        self.0.contains_key(Path::new(path))
    }

    /// Insists that nothing at all has changed since.
    #[track_caller]
    pub fn assert_same(&self, later: &Self) {
        let mut differences = String::new();
        for path in self
            .0
            .keys()
            .chain(later.0.keys().filter(|path| !self.0.contains_key(*path)))
        {
            let (before, after) = (self.0.get(path), later.0.get(path));
            if before != after {
                writeln!(differences, "{}\n  {before:?}\n  {after:?}", path.display()).unwrap();
            }
        }
        assert!(differences.is_empty(), "these differ:\n{differences}");
    }
}

impl Entry {
    #[track_caller]
    fn of(path: &Path) -> Self {
        let stat = fs::symlink_metadata(path).unwrap();
        let kind = stat.file_type();
        let (kind, content) = if kind.is_symlink() {
            ("link", fs::read_link(path).unwrap().display().to_string())
        } else if kind.is_dir() {
            ("folder", String::new())
        } else if kind.is_file() {
            ("file", Self::hash(path))
        } else {
            ("other", String::new())
        };
        Self {
            kind,
            content,
            mode: stat.mode(),
            modified: (stat.mtime(), stat.mtime_nsec()),
            changed: (stat.ctime(), stat.ctime_nsec()),
            inode: stat.ino(),
        }
    }

    /// Of a file that may not be read, that this is so.
    fn hash(path: &Path) -> String {
        match fs::read(path) {
            Ok(bytes) => Sha256::of(&bytes).to_string(),
            Err(error) => error.kind().to_string(),
        }
    }
}
