//! What the store's tests have in common.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use chrono::DateTime;

use super::name::StoreName;
use super::record::{Descriptor, Entry, Import, Sources, Usage, VERSION};
use super::{Clock, Expect, Prepared, Store, Writer};
use crate::fs::Stat;
use crate::model::key::{SessionKey, SourcePath};
use crate::model::message::{Message, Residue, Sink as _, Why};

/// A workspace with nothing but a store to be.
pub(super) struct Place {
    pub(super) workspace: tempfile::TempDir,
}

impl Place {
    pub(super) fn new() -> Self {
        Self {
            workspace: tempfile::tempdir().unwrap(),
        }
    }

    pub(super) fn root(&self) -> PathBuf {
        self.workspace.path().join("tinyagents_store")
    }

    pub(super) fn writer(&self) -> Writer {
        open(self.workspace.path())
    }

    pub(super) fn store(&self) -> Store {
        Store::at(&self.root())
    }
}

pub(super) fn open(workspace: &Path) -> Writer {
    let root = workspace.join("tinyagents_store");
    Writer::open(&root, workspace, clock(), None).unwrap().0
}

pub(super) fn clock() -> Clock {
    Clock::fixed(DateTime::from_timestamp(1_767_225_600, 0).unwrap())
}

pub(super) fn name(text: &str) -> StoreName {
    StoreName::parse(text).unwrap()
}

pub(super) fn message<'a>(role: &'a str, content: &'a str) -> Message<'a> {
    Message {
        role: role.into(),
        content: content.into(),
        ..Message::default()
    }
}

pub(super) fn residue(line: u64, why: Why, text: &[u8]) -> Residue<'_> {
    Residue {
        line,
        why,
        error: None,
        text,
    }
}

/// A session of `messages` messages, written and ready to be put in place of
/// what is there now.
pub(super) fn prepare(
    writer: &Writer,
    key: &str,
    messages: usize,
    has_residue: bool,
    tag: usize,
) -> crate::Result<Prepared> {
    let name = name(key);
    let mut draft = writer.draft(&name)?;
    for number in 0..messages {
        draft.message(&message("\"user\"", &format!("\"{key} {number}\"")))?;
    }
    if has_residue {
        draft.residue(&residue(1, Why::Malformed, b"{torn"))?;
    }
    let written = draft.finish()?;
    let source = format!("session_raw/{key}.jsonl");
    let stream = writer.store().layout().stream_file(&name.messages());
    let mut entry = Entry::new(SessionKey::new(key), source.clone(), &name);
    entry.size = messages as u64;
    entry.imported_at = writer.clock().imported_at();
    Ok(Prepared {
        ledger_key: SourcePath::file(&source).ledger_key(),
        old_key: None,
        written,
        descriptor: descriptor(key, &name, writer.clock()),
        name,
        entry,
        expect: match Stat::of(&stream, false).unwrap() {
            Some(stat) => Expect::Same(stat),
            None => Expect::Absent,
        },
        tag,
    })
}

fn descriptor(key: &str, name: &StoreName, clock: Clock) -> Descriptor {
    Descriptor {
        session_key: SessionKey::new(key),
        parent_session_key: None,
        thread_id: "t".into(),
        thread_id_synthesized: false,
        task_id: None,
        run_ids: Vec::new(),
        stream: name.messages().as_str().into(),
        dispatcher: "native".into(),
        agent_name: "a".into(),
        agent_id: None,
        agent_type: None,
        provider: None,
        model: None,
        created: "c".into(),
        updated: "u".into(),
        turn_count: 1,
        usage: Usage::default(),
        source: Sources::default(),
        import: Import {
            version: VERSION,
            imported_at: clock.imported_at(),
            warnings: 0,
        },
    }
}

/// Every file below a folder, with its bytes.
pub(super) fn tree(root: &Path) -> BTreeMap<String, Vec<u8>> {
    walkdir::WalkDir::new(root)
        .into_iter()
        .map(Result::unwrap)
        .filter(|entry| !entry.file_type().is_dir())
        .map(|entry| {
            let path = entry.path().strip_prefix(root).unwrap();
            let bytes = std::fs::read(entry.path()).unwrap();
            (path.to_string_lossy().into_owned(), bytes)
        })
        .collect()
}
