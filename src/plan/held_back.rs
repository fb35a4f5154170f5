//! Markdown whose transcript may lie where nobody can look.
//!
//! A view is a source only for a session that has no JSONL
//! (`openhuman-workspace.md` §2). Where a folder that may hold that JSONL
//! cannot be listed, nobody knows; and a view that is imported in its place
//! keeps the session's key for ever (§6).

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Item;
use super::identity::{day_of, has_unix_time};
use crate::model::diagnostic::{Code, Diagnostic};
use crate::model::key::{Sha256, SourcePath, readable};
use crate::model::session::Kind;
use crate::source::openhuman::discover::{Found, Place};

/// Takes such items out, and says of each which folder it waits for. One that
/// was imported before stays.
pub(crate) fn hold_back(items: &mut Vec<Item>, unreadable: &[PathBuf]) -> Vec<(Item, Diagnostic)> {
    if unreadable.is_empty() {
        return Vec::new();
    }
    let waits_for = |item: &Item| {
        let is_new = item.session.kind == Kind::Markdown && item.record().is_none();
        let folder = folder_of(unreadable, &item.session.stem, &item.place);
        folder.filter(|_| is_new)
    };
    let (held, others): (Vec<Item>, Vec<Item>) = std::mem::take(items)
        .into_iter()
        .partition(|item| waits_for(item).is_some());
    *items = others;
    let told = held.into_iter().filter_map(|item| {
        let waits = waits(&item.session.source, waits_for(&item)?);
        Some((item, waits))
    });
    told.collect()
}

/// The same by names alone, of files that are not items yet. What has a JSONL
/// of its stem may be a view of that one, and stays.
pub(crate) fn hold_back_files(
    files: &mut Vec<Found>,
    unreadable: &[PathBuf],
    has_entry: impl Fn(&Sha256) -> bool,
) -> Vec<Diagnostic> {
    if unreadable.is_empty() {
        return Vec::new();
    }
    let jsonl = files.iter().filter(|file| !file.place.is_markdown());
    let stems: HashSet<Arc<str>> = jsonl.map(|file| file.stem.clone()).collect();
    let mut told = Vec::new();
    files.retain(|file| {
        let is_new = file.place.is_markdown()
            && !stems.contains(&file.stem)
            && !has_entry(&file.path.ledger_key());
        let folder = folder_of(unreadable, &file.stem, &file.place).filter(|_| is_new);
        told.extend(folder.map(|folder| waits(&file.path, folder)));
        folder.is_none()
    });
    told
}

fn waits(source: &SourcePath, folder: &Path) -> Diagnostic {
    let folder = readable(folder.as_os_str());
    let folder = if folder.is_empty() {
        "the workspace"
    } else {
        &folder
    };
    let message = format!(
        "{source} waits: {folder} cannot be listed, and the transcript that it is a view of may \
         lie there"
    );
    Diagnostic::new(Code::HeldBack, message)
}

/// The folder that may hold the JSONL of a stem.
fn folder_of<'f>(unreadable: &'f [PathBuf], stem: &str, view: &Place) -> Option<&'f Path> {
    let mut folders = unreadable.iter().map(PathBuf::as_path);
    folders.find(|folder| may_hold(folder, stem, view))
}

/// Whether the JSONL of a stem may lie in a folder.
fn may_hold(folder: &Path, stem: &str, view: &Place) -> bool {
    let mut parts = folder.iter().map(readable);
    let Some(first) = parts.next() else {
        // The workspace itself: its profiles are not known.
        return true;
    };
    if !(first == "session_raw" || first.starts_with("session_raw-")) {
        return false;
    }
    let Some(date) = parts.next() else {
        return true;
    };
    // Numbered stems start anew each day.
    let days = (day_of(&Place::Date(date.into())), day_of(view));
    match days {
        (Some(of_folder), Some(of_view)) if !has_unix_time(stem) => of_folder == of_view,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_waits_for_the_folders_that_may_hold_its_transcript() {
        let view = Place::Markdown("2026_04_02".into());
        let holds = |folder: &str, stem: &str| may_hold(Path::new(folder), stem, &view);
        for folder in ["", "session_raw", "session_raw-work"] {
            assert!(holds(folder, "main_0") && holds(folder, "1777000000_main"));
        }
        assert!(holds("session_raw/02042026", "main_0"));
        assert!(!holds("session_raw/03042026", "main_0"));
        assert!(holds("session_raw/03042026", "1777000000_main"));
        assert!(!holds("sessions/2026_04_02", "main_0"));
        let undated = Place::Markdown("notes".into());
        assert!(may_hold(
            Path::new("session_raw/03042026"),
            "main_0",
            &undated
        ));
    }
}
