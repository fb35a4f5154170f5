//! Finds every file that may be a transcript, by name and `stat` alone
//! (`openhuman-workspace.md` §1, §2, §7).
//!
//! Nothing is opened here. What a person may miss is a warning; what is
//! plainly something else is only logged.

use std::ffi::OsStr;
use std::fs::{self, DirEntry, FileType};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tracing::info;

use crate::fs::stat::Stat;
use crate::model::diagnostic::{Code, Diagnostic};
use crate::model::key::{SourcePath, readable};

/// Folder of the current transcripts.
const RAW: &str = "session_raw";
/// What a profile's folder begins with.
const PROFILE: &str = "session_raw-";
/// Folder of the Markdown transcripts.
const MARKDOWN: &str = "sessions";

/// Where a file lies, which is also the order of candidates for one stem
/// (`openhuman-workspace.md` §6).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// `session_raw/{stem}.jsonl`.
    Flat,
    /// `session_raw/{DDMMYYYY}/{stem}.jsonl`.
    Date(Arc<str>),
    /// `session_raw-{id}/{stem}.jsonl`.
    Profile(Arc<str>),
    /// `sessions/{dir}/{stem}.md`.
    Markdown(Arc<str>),
    /// A `.md` directly in `sessions/` or somewhere in `session_raw/`; the
    /// name of that folder.
    LooseMarkdown(Arc<str>),
}

impl Place {
    /// Whether it holds Markdown.
    pub fn is_markdown(&self) -> bool {
        matches!(self, Self::Markdown(_) | Self::LooseMarkdown(_))
    }

    /// What stands behind a stem that is used twice.
    pub fn suffix(&self) -> &str {
        match self {
            Self::Flat => RAW,
            Self::Date(name)
            | Self::Profile(name)
            | Self::Markdown(name)
            | Self::LooseMarkdown(name) => name,
        }
    }
}

/// A file that may be a transcript.
#[derive(Debug, Clone)]
pub struct Found {
    /// Path relative to the workspace.
    pub path: SourcePath,
    /// File name without its extension, as text.
    pub stem: Arc<str>,
    /// Where it lies.
    pub place: Place,
    /// Size and times; of what it points to, for a link. `None` where even
    /// that is refused.
    pub stat: Option<Stat>,
}

impl Found {
    /// Places compare in the order of §6, paths within a place by their bytes.
    pub(crate) fn order(&self) -> impl Ord + '_ {
        (&self.place, &self.path)
    }
}

/// All that was found.
#[derive(Debug, Default)]
pub struct Discovery {
    /// Candidates, in the order of §6.
    pub files: Vec<Found>,
    /// Source folders that could not be listed.
    pub unreadable: Vec<Diagnostic>,
    /// The same as paths relative to the workspace.
    pub unreadable_folders: Vec<PathBuf>,
    /// What a person may miss.
    pub diagnostics: Vec<Diagnostic>,
    /// Whether any source folder is there.
    pub has_sources: bool,
}

/// Looks through the workspace's source folders.
pub fn discover(workspace: &Path) -> Discovery {
    let mut scan = Scan {
        workspace,
        roots: fs::canonicalize(workspace).into_iter().collect(),
        found: Discovery::default(),
    };
    let mut folders = Vec::new();
    match fs::read_dir(workspace) {
        Ok(entries) => folders.extend(entries.flatten().map(|entry| entry.file_name())),
        Err(error) => scan.unreadable(Path::new(""), &error),
    }
    folders.sort();
    scan.source_folder(Path::new(RAW), Scan::raw_entry);
    for name in &folders {
        let Some(id) = name.to_str().and_then(|name| name.strip_prefix(PROFILE)) else {
            // `session_raw_old`, `sessions.bak`: named like a source folder.
            let looks_like_one = |prefix: &str| {
                let bytes = name.as_encoded_bytes();
                bytes.starts_with(prefix.as_bytes()) && bytes != prefix.as_bytes()
            };
            if looks_like_one(RAW) || looks_like_one(MARKDOWN) {
                scan.warn_if_transcripts(Path::new(name), "it is no source folder");
            }
            continue;
        };
        if id.is_empty() {
            scan.warn_if_transcripts(Path::new(name), "it is no profile's folder");
        } else {
            let id = id.into();
            scan.source_folder(Path::new(name), |scan, entry| {
                scan.profile_entry(&id, entry);
            });
        }
    }
    scan.source_folder(Path::new(MARKDOWN), Scan::markdown_entry);
    let mut found = scan.found;
    found.files.sort_by(|a, b| a.order().cmp(&b.order()));
    found
}

struct Scan<'w> {
    workspace: &'w Path,
    /// Real paths of the workspace and of source folders that are links:
    /// whatever lies below them is inside.
    roots: Vec<PathBuf>,
    found: Discovery,
}

/// One name in a folder.
struct Entry {
    /// Path relative to the workspace.
    path: PathBuf,
    name: String,
    /// What it is, or what it points to.
    is_dir: bool,
    /// Of a file that is no link: asked of the open folder, which is cheaper
    /// than to look the whole path up.
    stat: Option<Stat>,
}

impl Scan<'_> {
    /// Lists a source folder, which may itself be a link.
    fn source_folder(&mut self, relative: &Path, each: impl Fn(&mut Self, Entry)) {
        let folder = self.workspace.join(relative);
        match fs::metadata(&folder) {
            Ok(metadata) if metadata.is_dir() => {}
            Ok(_) => {
                info!("{} is no folder", folder.display());
                return;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if folder.is_symlink() {
                    self.warn(Code::ForeignLink, relative, "it leads nowhere");
                }
                return;
            }
            Err(error) => return self.unreadable(relative, &error),
        }
        self.found.has_sources = true;
        self.roots.extend(fs::canonicalize(&folder));
        self.list(relative, each);
    }

    /// Calls `each` for every name in a folder that is a file or a folder.
    fn list(&mut self, relative: &Path, each: impl Fn(&mut Self, Entry)) {
        let entries = match fs::read_dir(self.workspace.join(relative)) {
            Ok(entries) => entries,
            Err(error) => return self.unreadable(relative, &error),
        };
        let mut all = Vec::new();
        for entry in entries {
            match entry {
                Ok(entry) => all.extend(self.entry(relative, &entry)),
                Err(error) => self.unreadable(relative, &error),
            }
        }
        // A folder is listed in an order of the file system's own.
        // Within one, bytes compare as paths do, and much faster.
        all.sort_by(|a, b| a.path.as_os_str().cmp(b.path.as_os_str()));
        all.into_iter().for_each(|entry| each(self, entry));
    }

    fn entry(&mut self, folder: &Path, entry: &DirEntry) -> Option<Entry> {
        let file_name = entry.file_name();
        let name = readable(&file_name);
        let path = folder.join(&file_name);
        if name.starts_with('.') {
            info!("{}: hidden, not a source", path.display());
            return None;
        }
        let is_dir = match entry.file_type() {
            Ok(kind) if kind.is_symlink() => self.follow(&path)?,
            Ok(kind) => Self::is_dir(&path, kind)?,
            // Even its type is refused: let reading it say so.
            Err(_) => false,
        };
        let is_plain = !is_dir && entry.file_type().is_ok_and(|kind| kind.is_file());
        let metadata = is_plain.then(|| entry.metadata().ok()).flatten();
        Some(Entry {
            path,
            name,
            is_dir,
            stat: metadata.as_ref().map(Stat::from_metadata),
        })
    }

    /// Whether it is a folder; `None` for what is neither file nor folder.
    fn is_dir(path: &Path, kind: FileType) -> Option<bool> {
        if !kind.is_file() && !kind.is_dir() {
            info!("{}: no file, not a source", path.display());
            return None;
        }
        Some(kind.is_dir())
    }

    /// Follows a link that stays inside of the workspace.
    fn follow(&mut self, path: &Path) -> Option<bool> {
        let is_candidate = has_extension(path.as_os_str(), &["jsonl", "md"]);
        let Ok(target) = fs::canonicalize(self.workspace.join(path)) else {
            if is_candidate {
                self.warn(Code::ForeignLink, path, "it leads nowhere");
            }
            return None;
        };
        if !self.roots.iter().any(|root| target.starts_with(root)) {
            if is_candidate || target.is_dir() {
                self.warn(Code::ForeignLink, path, "it leads out of the workspace");
            }
            return None;
        }
        let kind = fs::metadata(&target).ok()?.file_type();
        Self::is_dir(path, kind)
    }

    fn raw_entry(&mut self, entry: Entry) {
        if !entry.is_dir {
            let loose = Place::LooseMarkdown(RAW.into());
            return self.file(entry, Some(Place::Flat), Some(loose));
        }
        let is_date = entry.name.len() == 8 && entry.name.bytes().all(|b| b.is_ascii_digit());
        if !is_date {
            return self.warn_if_transcripts(&entry.path, "it is no date folder");
        }
        let name: Arc<str> = entry.name.into();
        self.list(&entry.path, |scan, inner| {
            if inner.is_dir {
                scan.warn_if_transcripts(&inner.path, "folders in a date folder are not scanned");
            } else {
                let date = Place::Date(Arc::clone(&name));
                let loose = Place::LooseMarkdown(Arc::clone(&name));
                scan.file(inner, Some(date), Some(loose));
            }
        });
    }

    fn profile_entry(&mut self, id: &Arc<str>, entry: Entry) {
        if entry.is_dir {
            let why = "folders in a profile's folder are not scanned";
            self.warn_if_transcripts(&entry.path, why);
        } else {
            self.file(entry, Some(Place::Profile(Arc::clone(id))), None);
        }
    }

    fn markdown_entry(&mut self, entry: Entry) {
        if !entry.is_dir {
            let loose = Place::LooseMarkdown(MARKDOWN.into());
            return self.file(entry, None, Some(loose));
        }
        let name: Arc<str> = entry.name.into();
        self.list(&entry.path, |scan, inner| {
            if inner.is_dir {
                let why = "Markdown is looked for one folder deep";
                scan.warn_if_transcripts(&inner.path, why);
            } else {
                scan.file(inner, None, Some(Place::Markdown(Arc::clone(&name))));
            }
        });
    }

    /// Takes a file where its extension fits the folder.
    fn file(&mut self, entry: Entry, jsonl: Option<Place>, markdown: Option<Place>) {
        let (stem, place) = if let Some(stem) = entry.name.strip_suffix(".jsonl") {
            (stem, jsonl)
        } else if let Some(stem) = entry.name.strip_suffix(".md") {
            (stem, markdown)
        } else {
            if has_extension(OsStr::new(&entry.name), &["jsonl", "md"]) {
                let why = "an extension in capitals is not read";
                self.warn(Code::NotScanned, &entry.path, why);
            } else {
                info!("{}: not a source", entry.path.display());
            }
            return;
        };
        let Some(place) = place else {
            if entry.name.ends_with(".jsonl") {
                let why = "transcripts in JSONL are not kept in this folder";
                self.warn(Code::NotScanned, &entry.path, why);
            }
            return;
        };
        self.found.files.push(Found {
            stem: stem.into(),
            place,
            stat: entry.stat.or_else(|| {
                Stat::of(&self.workspace.join(&entry.path), true)
                    .ok()
                    .flatten()
            }),
            path: SourcePath::file(entry.path),
        });
    }

    /// Warns about a folder that is not scanned, if transcripts lie there.
    fn warn_if_transcripts(&mut self, relative: &Path, why: &str) {
        let is_markdown = relative.starts_with(MARKDOWN);
        let extensions: &[&str] = if is_markdown {
            &["jsonl", "md"]
        } else {
            &["jsonl"]
        };
        let entries = fs::read_dir(self.workspace.join(relative));
        let names = entries.into_iter().flatten().flatten();
        let count = names
            .filter(|entry| has_extension(&entry.file_name(), extensions))
            .count();
        if count > 0 {
            let (what, lie) = match (is_markdown, count) {
                (false, 1) => ("transcript", "lies"),
                (false, _) => ("transcripts", "lie"),
                (true, 1) => ("Markdown or JSONL file", "lies"),
                (true, _) => ("Markdown or JSONL files", "lie"),
            };
            let why = format!("{count} {what} {lie} there; {why}");
            let mut shown = relative.as_os_str().to_owned();
            shown.push("/");
            self.warn(Code::NotScanned, Path::new(&shown), &why);
        }
    }

    fn warn(&mut self, code: Code, relative: &Path, why: &str) {
        let shown: Vec<_> = relative.iter().map(readable).collect();
        let slash = if relative.as_os_str().as_encoded_bytes().ends_with(b"/") {
            "/"
        } else {
            ""
        };
        let message = format!("{}{slash} was not read: {why}", shown.join("/"));
        self.found.diagnostics.push(Diagnostic::new(code, message));
    }

    fn unreadable(&mut self, relative: &Path, error: &io::Error) {
        let folder = self.workspace.join(relative);
        let message = format!("cannot list {}: {error}", folder.display());
        let diagnostic = Diagnostic::new(Code::UnreadableFolder, message);
        self.found.unreadable.push(diagnostic);
        self.found.unreadable_folders.push(relative.to_owned());
    }
}

fn has_extension(name: &OsStr, extensions: &[&str]) -> bool {
    let extension = Path::new(name).extension().and_then(OsStr::to_str);
    extension.is_some_and(|found| extensions.iter().any(|e| found.eq_ignore_ascii_case(e)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace(files: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        folder
    }

    fn paths(found: &Discovery) -> Vec<String> {
        found
            .files
            .iter()
            .map(|file| file.path.to_string())
            .collect()
    }

    #[test]
    fn candidates_come_in_the_order_of_the_contract() {
        let folder = workspace(&[
            "sessions/2026_04_01/a_0.md",
            "sessions/loose.md",
            "session_raw-work/a_0.jsonl",
            "session_raw/02042026/a_0.jsonl",
            "session_raw/01042026/a_0.jsonl",
            "session_raw/a_0.jsonl",
            "session_raw/b.md",
        ]);
        let found = discover(folder.path());
        assert_eq!(
            paths(&found),
            [
                "session_raw/a_0.jsonl",
                "session_raw/01042026/a_0.jsonl",
                "session_raw/02042026/a_0.jsonl",
                "session_raw-work/a_0.jsonl",
                "sessions/2026_04_01/a_0.md",
                "session_raw/b.md",
                "sessions/loose.md",
            ]
        );
        assert!(found.diagnostics.is_empty());
    }

    #[test]
    fn what_a_person_may_miss_is_a_warning() {
        let folder = workspace(&[
            "session_raw/A.JSONL",
            "session_raw-/x.jsonl",
            "session_raw/old/x.jsonl",
            "session_raw/01042026/deep/x.jsonl",
            "sessions/x.jsonl",
            "session_raw/.hidden.jsonl",
            "session_raw/x.jsonl.bak",
            "session_raw/notes.txt",
        ]);
        let found = discover(folder.path());
        assert!(found.files.is_empty());
        let all: Vec<_> = found.diagnostics.iter().map(Diagnostic::sentence).collect();
        assert_eq!(all.len(), 5, "{all:#?}");
        assert!(
            all.iter().any(|text| text.contains("session_raw-/ was")),
            "{all:#?}"
        );
    }

    #[cfg(unix)]
    #[test]
    fn links_are_followed_inside_only() {
        use std::os::unix::fs::symlink;
        let folder = workspace(&["session_raw/a.jsonl"]);
        let outside = workspace(&["x.jsonl"]);
        let raw = folder.path().join("session_raw");
        symlink("a.jsonl", raw.join("b.jsonl")).unwrap();
        symlink(outside.path().join("x.jsonl"), raw.join("c.jsonl")).unwrap();
        symlink("nowhere", raw.join("d.jsonl")).unwrap();
        let found = discover(folder.path());
        assert_eq!(
            paths(&found),
            ["session_raw/a.jsonl", "session_raw/b.jsonl"]
        );
        assert_eq!(found.diagnostics.len(), 2);
    }

    #[cfg(unix)]
    #[test]
    fn the_source_folder_itself_may_be_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let elsewhere = workspace(&["a.jsonl"]);
        std::os::unix::fs::symlink(elsewhere.path(), folder.path().join("session_raw")).unwrap();
        assert_eq!(paths(&discover(folder.path())), ["session_raw/a.jsonl"]);
    }

    #[test]
    fn an_empty_workspace_has_no_sources() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!discover(folder.path()).has_sources);
    }
}
