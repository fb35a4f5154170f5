//! Whether a file that the contract names may be read at all.
//!
//! The run ledger and the sub-agents file each lie at one fixed path. A
//! source folder may be a link to anywhere, a link to the file itself must
//! stay in the workspace, and nothing but a regular file is opened: a pipe
//! would block for ever (`openhuman-workspace.md` §7).

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Why a file that is there is not read.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refused {
    /// The operating system's answer.
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
    /// A dangling link.
    #[error("it is a link that leads nowhere")]
    LeadsNowhere,
    /// A link to a file that is not the workspace's.
    #[error("it is a link that leads outside of the workspace")]
    LeadsOutside,
    /// A folder, a pipe, a socket or a device.
    #[error("it is no regular file")]
    NotAFile,
}

/// The real path of `{workspace}/{folder}/{name}`, links resolved; `None` if
/// there is no such file.
pub(super) fn locate(
    workspace: &Path,
    folder: &str,
    name: &str,
) -> Result<Option<PathBuf>, Refused> {
    let folder = workspace.join(folder);
    let path = folder.join(name);
    match path.symlink_metadata() {
        Ok(_) => {}
        Err(error) if is_absent(&error) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    let real = match path.canonicalize() {
        Ok(real) => real,
        Err(error) if is_absent(&error) => return Err(Refused::LeadsNowhere),
        Err(error) => return Err(error.into()),
    };
    // The folder is asked too: it may itself be a link to another disk.
    if !real.starts_with(workspace.canonicalize()?) && !real.starts_with(folder.canonicalize()?) {
        return Err(Refused::LeadsOutside);
    }
    if !real.metadata()?.is_file() {
        return Err(Refused::NotAFile);
    }
    Ok(Some(real))
}

/// A file where the folder should be counts as "not there": it is another
/// program's (`openhuman-workspace.md` §7).
fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn workspace() -> tempfile::TempDir {
        let workspace = tempfile::tempdir().unwrap();
        fs::create_dir(workspace.path().join("d")).unwrap();
        workspace
    }

    #[test]
    fn a_file_that_is_not_there_is_no_trouble() {
        let workspace = workspace();
        assert!(locate(workspace.path(), "d", "f").unwrap().is_none());
        assert!(locate(workspace.path(), "none", "f").unwrap().is_none());
        fs::write(workspace.path().join("file"), "x").unwrap();
        assert!(locate(workspace.path(), "file", "f").unwrap().is_none());
    }

    #[test]
    fn links_are_followed_inside_only() {
        let (workspace, outside) = (workspace(), workspace());
        let link = workspace.path().join("d/f");
        fs::write(outside.path().join("d/f"), "x").unwrap();

        symlink("nowhere", &link).unwrap();
        let nowhere = locate(workspace.path(), "d", "f");
        assert!(matches!(nowhere, Err(Refused::LeadsNowhere)), "{nowhere:?}");

        fs::remove_file(&link).unwrap();
        symlink(outside.path().join("d/f"), &link).unwrap();
        let out = locate(workspace.path(), "d", "f");
        assert!(matches!(out, Err(Refused::LeadsOutside)), "{out:?}");

        fs::remove_file(&link).unwrap();
        fs::write(workspace.path().join("real"), "x").unwrap();
        symlink("../real", &link).unwrap();
        let real = workspace.path().canonicalize().unwrap().join("real");
        assert_eq!(locate(workspace.path(), "d", "f").unwrap(), Some(real));
    }

    #[test]
    fn the_folder_itself_may_lead_outside() {
        let (workspace, outside) = (workspace(), workspace());
        fs::write(outside.path().join("d/f"), "x").unwrap();
        symlink(outside.path().join("d"), workspace.path().join("e")).unwrap();
        assert!(locate(workspace.path(), "e", "f").unwrap().is_some());
    }

    #[test]
    fn folders_and_pipes_are_refused() {
        let workspace = workspace();
        fs::create_dir(workspace.path().join("d/folder")).unwrap();
        let pipe = workspace.path().join("d/pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        for name in ["folder", "pipe"] {
            let refused = locate(workspace.path(), "d", name);
            assert!(matches!(refused, Err(Refused::NotAFile)), "{refused:?}");
        }
    }

    #[test]
    fn a_link_in_a_circle_is_an_error_and_no_hang() {
        let workspace = workspace();
        symlink("f", workspace.path().join("d/f")).unwrap();
        assert!(locate(workspace.path(), "d", "f").is_err());
    }
}
