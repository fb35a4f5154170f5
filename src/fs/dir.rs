//! Folders of the store, held open, so that no link can lead a write elsewhere.
//!
//! A path is looked up once. Each later operation names a file within the open
//! folder, so what is put in the folder's place meanwhile changes nothing, and
//! no long path is walked again for each of a hundred thousand files.

use std::ffi::OsString;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, fchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::{Stat, fault};
use crate::error::{Error, Result};

/// The user and group that new files and folders are given, where that is not
/// whom they belong to anyway: an import run as root must leave files that the
/// application can write (`tinyagents-store.md`, Writing).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    user: u32,
    group: u32,
}

impl Owner {
    /// The workspace's owner, if this process is root and that is somebody
    /// else; otherwise nobody need be changed.
    ///
    /// # Errors
    /// The workspace cannot be looked at.
    pub fn of_workspace(workspace: &Path) -> Result<Option<Self>> {
        if !rustix::process::geteuid().is_root() {
            return Ok(None);
        }
        let metadata = workspace.metadata().map_err(Error::io("read", workspace))?;
        let owner = Self {
            user: metadata.uid(),
            group: metadata.gid(),
        };
        let this = Self {
            user: rustix::process::geteuid().as_raw(),
            group: rustix::process::getegid().as_raw(),
        };
        Ok((owner != this).then_some(owner))
    }

    /// Gives the open file or folder to this owner.
    fn take(self, file: &File) -> io::Result<()> {
        fault::point("chown")?;
        fchown(file, Some(self.user), Some(self.group))
    }
}

/// An open folder of the store.
#[derive(Debug)]
pub struct Dir {
    handle: File,
    path: PathBuf,
    owner: Option<Owner>,
}

impl Dir {
    /// Opens the store's root, which may be a link, and creates it with its
    /// missing parents. Also says which folders were there and got a new one.
    ///
    /// # Errors
    /// It cannot be made or opened.
    pub fn open_root(path: &Path, owner: Option<Owner>) -> Result<(Arc<Self>, Vec<PathBuf>)> {
        let mut missing = Vec::new();
        let mut at = Some(path);
        while let Some(folder) = at.filter(|folder| !folder.as_os_str().is_empty()) {
            match Stat::of(folder, true).map_err(Error::store_io("open", folder))? {
                Some(_) => break,
                None => missing.push(folder),
            }
            at = folder.parent();
        }
        let mut changed = Vec::new();
        for folder in missing.into_iter().rev() {
            create_folder(folder, owner).map_err(Error::store_io("create", folder))?;
            let parent = folder.parent().filter(|p| !p.as_os_str().is_empty());
            changed.push(parent.unwrap_or(Path::new(".")).to_owned());
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let handle = rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| match errno {
            Errno::NOTDIR => no_folder(path),
            errno => Error::store_io("open", path)(errno.into()),
        })?;
        let dir = Self {
            handle: handle.into(),
            path: path.to_owned(),
            owner,
        };
        Ok((Arc::new(dir), changed))
    }

    /// Opens the folder `name` in this one; `None` if there is none.
    ///
    /// # Errors
    /// It is a link or no folder, or cannot be opened.
    pub fn child(&self, name: &str) -> Result<Option<Arc<Self>>> {
        let path = self.path.join(name);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat(&self.handle, name, flags, Mode::empty()) {
            Ok(handle) => Ok(Some(Arc::new(Self {
                handle: handle.into(),
                path,
                owner: self.owner,
            }))),
            Err(Errno::NOENT) => Ok(None),
            Err(Errno::LOOP | Errno::NOTDIR) => Err(Error::Store {
                path,
                message: "a folder of the store may not be a link or a file: \
                          what is written must lie inside the store"
                    .into(),
            }),
            Err(errno) => Err(Error::store_io("open", &path)(errno.into())),
        }
    }

    /// Opens the folder `name` in this one and makes it, if need be. `true` if
    /// it is new.
    ///
    /// # Errors
    /// As [`Dir::child`], or it cannot be made.
    pub fn child_or_new(&self, name: &str) -> Result<(Arc<Self>, bool)> {
        if let Some(child) = self.child(name)? {
            return Ok((child, false));
        }
        let path = self.path.join(name);
        let made = fault::point("mkdir")
            .and_then(|()| Ok(rustix::fs::mkdirat(&self.handle, name, Mode::RWXU)?));
        match made {
            // The live application makes folders too.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            other => other.map_err(Error::store_io("create", &path))?,
        }
        let Some(child) = self.child(name)? else {
            let gone = io::Error::from(io::ErrorKind::NotFound);
            return Err(Error::store_io("create", &path)(gone));
        };
        child
            .take(&child.handle)
            .map_err(Error::store_io("create", &path))?;
        Ok((child, true))
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The open folder itself, to flush it.
    pub fn handle(&self) -> &File {
        &self.handle
    }

    /// Creates a file that is not there yet, 0600, never through a link.
    pub(super) fn create_new(&self, name: &OsString) -> io::Result<File> {
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        fault::point("create")?;
        let file = rustix::fs::openat(&self.handle, name, flags, Mode::RUSR | Mode::WUSR)?;
        let file = File::from(file);
        if let Err(error) = self.take(&file) {
            // The caller has no name for what it did not get.
            let _ = self.unlink(name);
            return Err(error);
        }
        Ok(file)
    }

    /// Opens the file `name` for reading and writing, and makes it, 0600, if
    /// need be. A link at its place is replaced, never followed.
    ///
    /// # Errors
    /// The operating system's.
    pub fn open_or_new(&self, name: &str) -> io::Result<File> {
        let name = OsString::from(name);
        loop {
            let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            match rustix::fs::openat(&self.handle, &name, flags, Mode::empty()) {
                Ok(file) => return Ok(file.into()),
                Err(Errno::LOOP) => self.unlink(&name).map(drop)?,
                Err(Errno::NOENT) => match self.create_new(&name) {
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                    other => return other,
                },
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// What lies at `name`; of a link, the link itself.
    ///
    /// # Errors
    /// The operating system's, but for "not found".
    pub fn stat(&self, name: &str) -> io::Result<Option<Stat>> {
        Stat::of(&self.path.join(name), false)
    }

    /// Renames within the folder; what lies at `to` is replaced.
    pub(super) fn rename(&self, from: &OsString, to: &str) -> io::Result<()> {
        fault::point("rename")?;
        Ok(rustix::fs::renameat(&self.handle, from, &self.handle, to)?)
    }

    /// The same where nothing may lie at `to`; `false` if something does. A
    /// file system that cannot promise that renames as ever.
    pub(super) fn rename_new(&self, from: &OsString, to: &str) -> io::Result<bool> {
        #[cfg(any(target_os = "linux", target_os = "macos"))]
        {
            use rustix::fs::{RenameFlags, renameat_with};
            fault::point("rename")?;
            let flags = RenameFlags::NOREPLACE;
            match renameat_with(&self.handle, from, &self.handle, to, flags) {
                Ok(()) => return Ok(true),
                Err(Errno::EXIST) => return Ok(false),
                Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        self.rename(from, to).map(|()| true)
    }

    /// Removes a file or link; `false` if there is none.
    ///
    /// # Errors
    /// The operating system's, but for "not found".
    pub fn unlink(&self, name: impl rustix::path::Arg) -> io::Result<bool> {
        fault::point("unlink")?;
        match rustix::fs::unlinkat(&self.handle, name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Moves a file into another folder of the same store; what lies there at
    /// `name` is replaced. `false` if there is none here.
    ///
    /// # Errors
    /// The operating system's, but for "not found".
    pub(crate) fn hand_over(&self, name: &str, to: &Self) -> io::Result<bool> {
        fault::point("rename")?;
        match rustix::fs::renameat(&self.handle, name, &to.handle, name) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Removes the folder `name` in this one, if it is empty; `false` if it is
    /// not, or if there is none.
    ///
    /// # Errors
    /// The operating system's, but for "not found" and "not empty".
    pub(crate) fn remove_if_empty(&self, name: &str) -> io::Result<bool> {
        fault::point("rmdir")?;
        match rustix::fs::unlinkat(&self.handle, name, AtFlags::REMOVEDIR) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    fn take(&self, file: &File) -> io::Result<()> {
        self.owner.map_or(Ok(()), |owner| owner.take(file))
    }
}

/// Something else lies where the store's root should be.
pub(crate) fn no_folder(root: &Path) -> Error {
    Error::Store {
        path: root.to_owned(),
        message: "this is a file, not a folder; move it away or name another store".into(),
    }
}

fn create_folder(path: &Path, owner: Option<Owner>) -> io::Result<()> {
    fault::point("mkdir")?;
    match DirBuilder::new().mode(0o700).create(path) {
        // Another import may have been faster; which of the two goes on is
        // decided by the lock.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        other => other?,
    }
    match owner {
        Some(owner) => owner.take(&File::open(path)?),
        None => Ok(()),
    }
}
