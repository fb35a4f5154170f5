//! Which workspace a command is about (`behaviour.md`, Commands).

use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use crate::error::{Error, Result};
use crate::fs::read_regular;
use crate::model::diagnostic::{Code, Diagnostic};
use crate::model::key::readable;
use crate::store::without_links;

/// Any of these makes a folder a workspace.
const SIGNS: [&str; 4] = ["session_raw", "sessions", "session_db", ".openhuman"];

/// Folder of a workspace's store, unless another one is named.
pub(crate) const STORE: &str = "tinyagents_store";

/// What a profile's folder begins with.
const PROFILE: &str = "session_raw-";

/// The store's root: the one named, else the workspace's own.
///
/// # Errors
/// [`Error::Usage`] where it would lie among the sources: they are only read,
/// and nothing is written beside them.
pub(crate) fn store_root(named: Option<&Path>, workspace: &Path) -> Result<PathBuf> {
    let root = named.map_or_else(|| workspace.join(STORE), Path::to_owned);
    let (real, inside) = (without_links(&root), without_links(workspace));
    let is_source = |name: &str| SIGNS.contains(&name) || name.starts_with(PROFILE);
    let first = real.strip_prefix(&inside).ok().and_then(|relative| {
        let first = relative.components().next()?;
        Some(first.as_os_str().to_owned())
    });
    let named = first.filter(|name| name.to_str().is_some_and(is_source));
    // The source folders themselves may be links to elsewhere.
    let folders = std::fs::read_dir(workspace).into_iter().flatten().flatten();
    let linked = || {
        let names = folders.map(|folder| folder.file_name());
        let mut sources = names.filter(|name| name.to_str().is_some_and(is_source));
        sources.find(|name| {
            let folder = workspace.join(name).canonicalize();
            folder.is_ok_and(|folder| real.starts_with(folder))
        })
    };
    match named.or_else(linked) {
        Some(folder) => Err(Error::Usage(format!(
            "the store {} would lie in {}, which is a folder of sources; name one outside of it",
            root.display(),
            readable(&folder)
        ))),
        None => Ok(root),
    }
}

/// What the environment says, apart from it so that it can be tested.
#[derive(Debug, Default)]
pub(crate) struct Surroundings {
    /// `$OPENHUMAN_WORKSPACE`.
    pub(crate) workspace: Option<OsString>,
    /// `$OPENHUMAN_STORAGE_URL`.
    pub(crate) storage_url: Option<OsString>,
    /// The user's home.
    pub(crate) home: Option<PathBuf>,
}

impl Surroundings {
    /// The process's own.
    pub(crate) fn of_process() -> Self {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        Self {
            workspace: variable("OPENHUMAN_WORKSPACE"),
            storage_url: variable("OPENHUMAN_STORAGE_URL"),
            home: std::env::home_dir(),
        }
    }

    /// A warning where the application keeps its sessions elsewhere.
    pub(crate) fn storage_warning(&self) -> Option<Diagnostic> {
        self.storage_url.as_ref().map(|_| {
            let message = "OPENHUMAN_STORAGE_URL is set: the application keeps its sessions \
                           there; only the workspace's files are imported";
            Diagnostic::new(Code::RemoteStorage, message)
        })
    }

    /// The workspace: the one named, else the environment's, else the active
    /// user's, else the common one. Never created.
    ///
    /// # Errors
    /// [`Error::NoWorkspace`] with every place that was looked at.
    pub(crate) fn workspace(&self, named: Option<&Path>) -> Result<PathBuf> {
        let mut looked_at = Vec::new();
        let named = named.map(Path::to_owned);
        let candidates = match named.or_else(|| self.workspace.as_ref().map(PathBuf::from)) {
            Some(named) => vec![named],
            None => self.of_home(),
        };
        for candidate in candidates {
            if candidate.is_dir() {
                return Ok(inner(candidate));
            }
            looked_at.push(candidate);
        }
        Err(Error::NoWorkspace { looked_at })
    }

    fn of_home(&self) -> Vec<PathBuf> {
        let Some(home) = &self.home else {
            return Vec::new();
        };
        let root = home.join(".openhuman");
        let mut candidates = Vec::new();
        if let Some(user) = active_user(&root) {
            candidates.push(root.join("users").join(user).join("workspace"));
        }
        candidates.push(root.join("workspace"));
        candidates
    }
}

/// `user_id` of `active_user.toml`, if it is a single path component.
fn active_user(root: &Path) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct ActiveUser {
        user_id: String,
    }
    let text = read_regular(&root.join("active_user.toml")).ok()?;
    let user: ActiveUser = toml::from_str(&text).ok()?;
    let path = PathBuf::from(&user.user_id);
    let mut components = path.components();
    let is_single = matches!(components.next(), Some(Component::Normal(_)));
    (is_single && components.next().is_none()).then_some(user.user_id)
}

/// `workspace/` below the folder, where that is the workspace and the folder
/// itself is none.
fn inner(folder: PathBuf) -> PathBuf {
    let is_workspace = |folder: &Path| SIGNS.iter().any(|sign| folder.join(sign).exists());
    let below = folder.join("workspace");
    if !is_workspace(&folder) && is_workspace(&below) {
        return below;
    }
    folder
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_active_users_workspace_comes_before_the_common_one() {
        let home = tempfile::tempdir().unwrap();
        let root = home.path().join(".openhuman");
        let of_user = root.join("users/u1/workspace");
        std::fs::create_dir_all(&of_user).unwrap();
        std::fs::create_dir_all(root.join("workspace")).unwrap();
        let surroundings = Surroundings {
            home: Some(home.path().to_owned()),
            ..Surroundings::default()
        };
        let common = root.join("workspace");
        assert_eq!(surroundings.workspace(None).unwrap(), common);
        std::fs::write(root.join("active_user.toml"), "user_id = \"u1\"\n").unwrap();
        assert_eq!(surroundings.workspace(None).unwrap(), of_user);
        std::fs::write(root.join("active_user.toml"), "user_id = \"../u1\"\n").unwrap();
        assert_eq!(surroundings.workspace(None).unwrap(), common);
    }

    #[test]
    fn what_is_named_must_exist() {
        let folder = tempfile::tempdir().unwrap();
        let named = folder.path().join("none");
        let error = Surroundings::default().workspace(Some(&named)).unwrap_err();
        assert!(error.to_string().contains("none"), "{error}");
        assert!(!named.exists());
    }

    #[test]
    fn a_store_never_lies_among_the_sources() {
        let folder = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let workspace = folder.path();
        std::os::unix::fs::symlink(elsewhere.path(), workspace.join("session_raw-far")).unwrap();
        std::os::unix::fs::symlink("session_raw", workspace.join("link")).unwrap();
        for inside in [
            "session_raw",
            "session_raw/02042026",
            "session_raw/../session_raw/store",
            "sessions/2026_04_02/store",
            "session_db",
            ".openhuman/store",
            "session_raw-work",
            "link/store",
        ] {
            std::fs::create_dir_all(workspace.join("session_raw")).unwrap();
            let refused = store_root(Some(&workspace.join(inside)), workspace);
            assert!(
                matches!(refused, Err(Error::Usage(_))),
                "{inside}: {refused:?}"
            );
        }
        let refused = store_root(Some(&elsewhere.path().join("store")), workspace);
        assert!(matches!(refused, Err(Error::Usage(_))), "{refused:?}");
        for outside in ["tinyagents_store", "stores/session_raw", "session_raw_old"] {
            assert!(store_root(Some(&workspace.join(outside)), workspace).is_ok());
        }
        assert_eq!(store_root(None, workspace).unwrap(), workspace.join(STORE));
    }

    #[test]
    fn a_workspace_folder_below_is_taken_where_only_that_is_one() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("workspace");
        std::fs::create_dir_all(below.join("session_raw")).unwrap();
        let surroundings = Surroundings::default();
        assert_eq!(surroundings.workspace(Some(folder.path())).unwrap(), below);
        std::fs::create_dir_all(folder.path().join("sessions")).unwrap();
        assert_eq!(
            surroundings.workspace(Some(folder.path())).unwrap(),
            folder.path()
        );
    }
}
