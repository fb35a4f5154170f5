//! What the integration tests share: a workspace on disk, the program run on
//! it, and a picture of a whole tree to compare with a later one.

// Each test crate uses a part of this. Clippy takes only functions marked as
// tests for tests, and a test may well panic.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr
)]

mod outcome;
pub mod store;
mod tree;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use assert_cmd::Command;
use tempfile::TempDir;

pub use self::outcome::Outcome;
pub use self::tree::Tree;

/// The time that every file gets unless a test says otherwise: 2026-05-02,
/// 08:10 UTC. Older than the clock of a run, whatever that is.
pub const WRITTEN_AT: u64 = 1_777_709_400;

/// A header line with everything that the reader insists on, and a thread.
pub const HEADER: &str = r#"{"_meta":{"agent":"helper","agent_id":"helper","agent_type":"root","dispatcher":"native","created":"2026-05-02T08:00:00Z","updated":"2026-05-02T08:09:00Z","turn_count":1,"input_tokens":40,"output_tokens":12,"cached_input_tokens":8,"charged_amount_usd":0.0021,"thread_id":"thr-1"}}"#;

/// A workspace in a temporary folder of its own, which is also the home of
/// whoever runs the program on it.
pub struct Workspace {
    home: TempDir,
}

impl Workspace {
    /// One without any file.
    #[track_caller]
    pub fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("workspace")).unwrap();
        Self { home }
    }

    /// One with the files of a folder, each as old as [`WRITTEN_AT`].
    #[track_caller]
    pub fn copy_of(folder: impl AsRef<Path>) -> Self {
        let workspace = Self::new();
        let folder = folder.as_ref();
        for entry in walkdir::WalkDir::new(folder) {
            let entry = entry.unwrap();
            let relative = entry.path().strip_prefix(folder).unwrap();
            if entry.file_type().is_file() {
                workspace.file(relative, fs::read(entry.path()).unwrap());
            } else {
                fs::create_dir_all(workspace.path(relative)).unwrap();
            }
        }
        workspace
    }

    /// The workspace's folder.
    pub fn root(&self) -> PathBuf {
        self.home.path().join("workspace")
    }

    /// Where the store lies if nothing else is said.
    pub fn store(&self) -> PathBuf {
        self.root().join("tinyagents_store")
    }

    /// The folder around the workspace, for what must lie outside of it.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// A path in the workspace.
    pub fn path(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.root().join(relative)
    }

    /// Writes a file, with its folders, as old as [`WRITTEN_AT`].
    #[track_caller]
    pub fn file(&self, relative: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> &Self {
        let path = self.path(&relative);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        self.mtime(relative, WRITTEN_AT)
    }

    /// Writes `session_raw/{stem}.jsonl`: a header and these lines.
    #[track_caller]
    pub fn transcript(&self, stem: &str, lines: &[&str]) -> &Self {
        let all = [HEADER].iter().chain(lines);
        let text: String = all.map(|line| format!("{line}\n")).collect();
        self.file(format!("session_raw/{stem}.jsonl"), text)
    }

    /// Adds bytes to the end of a file. Its time becomes that of now.
    #[track_caller]
    pub fn append(&self, relative: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> &Self {
        let path = self.path(relative);
        let mut all = fs::read(&path).unwrap();
        all.extend_from_slice(bytes.as_ref());
        fs::write(&path, all).unwrap();
        self
    }

    /// Sets a file's time, in seconds since 1970.
    #[track_caller]
    pub fn mtime(&self, relative: impl AsRef<Path>, seconds: u64) -> &Self {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let file = fs::File::options()
            .append(true)
            .open(self.path(relative))
            .unwrap();
        file.set_modified(time).unwrap();
        self
    }

    /// Makes a folder.
    #[track_caller]
    pub fn folder(&self, relative: impl AsRef<Path>) -> &Self {
        fs::create_dir_all(self.path(relative)).unwrap();
        self
    }

    /// Makes a symbolic link.
    #[cfg(unix)]
    #[track_caller]
    pub fn link(&self, relative: impl AsRef<Path>, target: impl AsRef<Path>) -> &Self {
        let path = self.path(relative);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(target, path).unwrap();
        self
    }

    /// Sets what one may do with a file or folder.
    #[cfg(unix)]
    #[track_caller]
    pub fn mode(&self, relative: impl AsRef<Path>, mode: u32) -> &Self {
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(self.path(relative), fs::Permissions::from_mode(mode)).unwrap();
        self
    }

    /// Moves a file, whose time stays.
    #[track_caller]
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> &Self {
        let to = self.path(to);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::rename(self.path(from), to).unwrap();
        self
    }

    /// Removes a file.
    #[track_caller]
    pub fn remove(&self, relative: impl AsRef<Path>) -> &Self {
        fs::remove_file(self.path(relative)).unwrap();
        self
    }

    /// The text of a file.
    #[track_caller]
    pub fn read(&self, relative: impl AsRef<Path>) -> String {
        let path = self.path(relative);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// The program, in this home and in no one else's environment.
    pub fn command(&self) -> Command {
        let mut command = program();
        command.env("HOME", self.home()).current_dir(self.home());
        command
    }

    /// `run -w WORKSPACE` and these arguments.
    #[track_caller]
    pub fn run(&self, arguments: &[&str]) -> Outcome {
        self.call("run", arguments)
    }

    /// Any command on this workspace.
    #[track_caller]
    pub fn call(&self, command: &str, arguments: &[&str]) -> Outcome {
        let mut program = self.command();
        program
            .arg(command)
            .arg("-w")
            .arg(self.root())
            .args(arguments);
        Outcome::of(&mut program)
    }

    /// The same to be started, watched and stopped.
    pub fn process(&self, arguments: &[&str]) -> std::process::Command {
        let program = assert_cmd::cargo::cargo_bin!("session-import");
        let mut command = match ignores_signals() {
            // A job in the background of a script starts so, and what is
            // ignored stays so in every process that it starts.
            true => {
                let mut command = std::process::Command::new("env");
                command.arg(DEFAULT_SIGNALS).arg(program);
                command
            }
            false => std::process::Command::new(program),
        };
        FOREIGN.iter().for_each(|name| {
            command.env_remove(name);
        });
        command.env("HOME", self.home()).current_dir(self.home());
        command
            .arg("run")
            .arg("-w")
            .arg(self.root())
            .args(arguments);
        command
    }

    /// Holds the lock of the store, which an import made, until dropped.
    #[track_caller]
    pub fn hold_lock(&self) -> fs::File {
        self.run(&[]);
        let lock = self.store().join(".session-import.lock");
        let lock = fs::File::options().append(true).open(lock).unwrap();
        lock.try_lock().unwrap();
        lock
    }

    /// The store as any other program reads it.
    #[track_caller]
    pub fn read_store(&self) -> store::Store {
        store::Store::read(&self.store())
    }

    /// Everything in the workspace as it is now.
    #[track_caller]
    pub fn tree(&self) -> Tree {
        Tree::of(&self.root())
    }
}

/// What the environment might make the program do.
const FOREIGN: &[&str] = &[
    "OPENHUMAN_WORKSPACE",
    "OPENHUMAN_STORAGE_URL",
    "SOURCE_DATE_EPOCH",
    "NO_COLOR",
    "CLICOLOR_FORCE",
];

/// A plain message line.
pub fn message(role: &str, content: &str) -> String {
    serde_json::json!({"role": role, "content": content}).to_string()
}

/// Makes `env` undo what a process is told to ignore.
pub const DEFAULT_SIGNALS: &str = "--default-signal=INT,TERM,HUP";

/// Whether signals that end a process are ignored here.
fn ignores_signals() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // SIGHUP is 1, SIGINT 2, SIGTERM 15; the lowest bit is that of 1.
    ignored.is_some_and(|mask| mask & 0x4003 != 0)
}

/// Whether this is the user who may do anything.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether a program is installed; if not, it is said that a test is skipped.
pub fn has_program(name: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&paths).any(|folder| folder.join(name).is_file());
    if !found {
        eprintln!("skipped: {name} is not installed");
    }
    found
}

/// The program, in nobody's environment.
pub fn program() -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("session-import"));
    FOREIGN.iter().for_each(|name| {
        command.env_remove(name);
    });
    command
}

/// The program alone, without any workspace.
#[track_caller]
pub fn call<S: AsRef<OsStr>>(arguments: &[S]) -> Outcome {
    Outcome::of(program().args(arguments))
}

/// Insists that a document is as `docs/schema/{name}.json` says.
#[track_caller]
pub fn assert_schema(name: &str, document: &serde_json::Value) {
    let path = format!("{}/docs/schema/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let schema = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<_> = validator
        .iter_errors(document)
        .map(|error| error.to_string())
        .collect();
    assert!(
        errors.is_empty(),
        "not as docs/schema/{name}.json says: {errors:?}\n{document:#}"
    );
}
