use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

use super::super::record::{Format, Tool, VERSION};
use super::super::testing::{Place, clock, name, prepare, tree};
use super::*;
use crate::model::key::SessionKey;
use crate::report::RunReport;

fn failure() -> Failure {
    Failure {
        source: "s".into(),
        session_key: SessionKey::new("k"),
        code: Code::NoHeader,
        message: "m".into(),
        size: 1,
        mtime_ms: 2,
        at: clock().imported_at(),
    }
}

fn try_open(root: &Path, workspace: &Path) -> Result<Vec<Diagnostic>> {
    Writer::open(root, workspace, clock(), None).map(|(_, diagnostics)| diagnostics)
}

#[test]
fn a_new_store_has_a_format_and_an_empty_lock() {
    let place = Place::new();
    assert!(!place.store().exists());
    place.writer().finish().unwrap();
    let files = tree(&place.root());
    assert_eq!(files[".session-import.lock"], b"");
    assert_eq!(
        files["kv/session_import.meta/format.json"],
        b"{\n  \"format\": 1\n}"
    );
    assert_eq!(files.len(), 2);
    assert!(place.root().join("journal").is_dir());
}

#[test]
fn everything_new_is_for_its_owner_alone() {
    let place = Place::new();
    let root = rustix::process::geteuid().is_root();
    if root {
        std::os::unix::fs::chown(place.workspace.path(), Some(4321), Some(1234)).unwrap();
    }
    let writer = place.writer();
    let batch = vec![prepare(&writer, "1_a", 1, true, 0).unwrap()];
    assert!(
        writer
            .commit(batch)
            .iter()
            .all(|(_, result)| result.is_ok())
    );
    writer.put_failure(&Sha256::of(b"x"), &failure()).unwrap();
    writer.finish().unwrap();
    for entry in walkdir::WalkDir::new(place.root()) {
        let entry = entry.unwrap();
        let metadata = entry.metadata().unwrap();
        let mode = if metadata.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(
            metadata.permissions().mode() & 0o777,
            mode,
            "{:?}",
            entry.path()
        );
        if root {
            assert_eq!(
                (metadata.uid(), metadata.gid()),
                (4321, 1234),
                "{:?}",
                entry.path()
            );
        }
    }
}

#[test]
fn a_store_of_a_higher_format_is_left_alone() {
    let place = Place::new();
    drop(place.writer());
    let file = place.store().layout().key_file(Namespace::Meta, FORMAT_KEY);
    for text in ["{\"format\":2,\"workspace\":[]}", "{\"format\":2}", "{"] {
        std::fs::write(&file, text).unwrap();
        std::fs::remove_file(place.store().layout().lock_file()).unwrap_or_default();
        let before = tree(&place.root());
        let refused = try_open(&place.root(), place.workspace.path());
        assert!(matches!(refused, Err(Error::Store { .. })));
        assert_eq!(tree(&place.root()), before);
    }
}

#[test]
fn a_store_outside_its_workspace_belongs_to_that_one() {
    let base = tempfile::tempdir().unwrap();
    let (one, two) = (base.path().join("one"), base.path().join("two"));
    let root = base.path().join("deep/er/store");
    std::fs::create_dir(&one).unwrap();
    std::fs::create_dir(&two).unwrap();
    assert_eq!(try_open(&root, &one).unwrap(), []);
    let format = Store::at(&root).format().unwrap().unwrap();
    let named = one.canonicalize().unwrap().to_string_lossy().into_owned();
    assert_eq!(
        format,
        Format {
            format: 1,
            workspace: Some(named)
        }
    );
    assert_eq!(try_open(&root, &one).unwrap(), []);
    assert!(matches!(try_open(&root, &two), Err(Error::Store { .. })));

    std::fs::rename(&one, base.path().join("moved")).unwrap();
    let claim = Store::at(&root).claim(&two).unwrap();
    assert!(claim.is_new);
    let told = try_open(&root, &two).unwrap();
    assert_eq!(told, claim.diagnostics);
    assert_eq!(told[0].code, Code::WorkspaceMoved);
    assert_eq!(try_open(&root, &two).unwrap(), []);
    assert_eq!(Store::at(&root).format().unwrap().unwrap(), claim.format);
}

#[test]
fn a_linked_folder_is_an_error_before_anything_is_written() {
    for folder in ["journal", "kv", "kv/sessions", "kv/session_import.meta"] {
        let place = Place::new();
        let outside = tempfile::tempdir().unwrap();
        let link = place.root().join(folder);
        std::fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink(outside.path(), &link).unwrap();
        let refused = try_open(&place.root(), place.workspace.path());
        assert!(matches!(refused, Err(Error::Store { .. })), "{folder}");
        assert!(tree(outside.path()).is_empty(), "{folder}");
        assert!(!place.store().layout().lock_file().exists());
    }
}

#[test]
fn a_folder_that_becomes_a_link_while_an_import_runs_leads_nowhere() {
    let place = Place::new();
    let writer = place.writer();
    let outside = tempfile::tempdir().unwrap();
    let sessions = place.store().layout().namespace_dir(Namespace::Sessions);
    symlink(outside.path(), &sessions).unwrap();
    let batch = vec![prepare(&writer, "1_a", 1, true, 0).unwrap()];
    let committed = writer.commit(batch);
    assert!(matches!(
        committed[0].1,
        Err(commit::CommitError::Failed(_))
    ));
    let journal = place.store().layout().journal_dir();
    std::fs::rename(&journal, journal.with_extension("old")).unwrap();
    symlink(outside.path(), &journal).unwrap();
    writer.draft(&name("1_a")).unwrap().finish().unwrap();
    assert!(tree(outside.path()).is_empty());
}

#[test]
fn a_root_that_is_a_file_or_cannot_be_made_is_named() {
    let place = Place::new();
    std::fs::write(place.root(), "").unwrap();
    let error = try_open(&place.root(), place.workspace.path()).unwrap_err();
    assert!(error.to_string().contains("tinyagents_store"), "{error}");
    let below = place.root().join("below");
    assert!(try_open(&below, place.workspace.path()).is_err());
}

#[test]
fn only_our_own_temporary_files_are_cleared_away() {
    let place = Place::new();
    drop(place.writer());
    let root = place.root();
    let ours = [
        ".session-import-abc.tmp",
        "journal/.session-import-abc.tmp",
        "kv/session_import.meta/.session-import-abc.tmp",
    ];
    let others = ["journal/x.tmp", "kv/a.json.tmp.1.2", ".session-import.stat"];
    ours.iter()
        .chain(&others)
        .for_each(|file| std::fs::write(root.join(file), "x").unwrap());
    let kept = root.join("journal/.session-import-folder.tmp");
    std::fs::create_dir(&kept).unwrap();
    assert_eq!(place.store().leftovers().unwrap().len(), 4);

    let told = try_open(&root, place.workspace.path()).unwrap();
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].code, Code::Leftover);
    assert!(ours.iter().all(|file| !root.join(file).exists()));
    assert!(others.iter().all(|file| root.join(file).exists()));
}

#[test]
fn markers_failures_and_reports_come_and_go() {
    let place = Place::new();
    let writer = place.writer();
    let store = writer.store();
    assert!(!writer.remove_marker().unwrap());
    assert_eq!(store.marker().unwrap(), None);
    let marker = Marker {
        version: VERSION,
        scanned: 1,
        tool: Some(Tool::this()),
        ..Marker::default()
    };
    writer.put_marker(&marker).unwrap();
    assert_eq!(store.marker().unwrap(), Some(marker));
    assert!(writer.remove_marker().unwrap());
    assert_eq!(store.marker().unwrap(), None);

    let keys = [Sha256::of(b"a"), Sha256::of(b"b")];
    let results = writer.put_failures(keys.iter().map(|key| (*key, failure())).collect());
    assert!(results.iter().all(Result::is_ok));
    assert_eq!(store.failures().unwrap().by_key.len(), 2);
    assert!(writer.remove_failure(&keys[0]).unwrap());
    assert!(!writer.remove_failure(&keys[0]).unwrap());
    assert_eq!(store.failures().unwrap().by_key[&keys[1]], failure());

    let record = ImportRecord::of(&RunReport::default(), clock().imported_at());
    assert_eq!(writer.put_import(&record).unwrap(), "20260101T000000Z-1");
    assert_eq!(writer.put_import(&record).unwrap(), "20260101T000000Z-2");
}

#[test]
fn damaged_records_are_told_and_do_not_end_the_reading() {
    let place = Place::new();
    let writer = place.writer();
    let batch = vec![prepare(&writer, "1_a", 1, false, 0).unwrap()];
    let key = batch[0].ledger_key;
    writer.commit(batch);
    let other = Sha256::of(b"other");
    let file = writer
        .store()
        .layout()
        .key_file(Namespace::Items, &other.to_string());
    std::fs::write(file, "{}").unwrap();
    let marker = writer
        .store()
        .layout()
        .key_file(Namespace::Markers, MARKER_KEY);
    std::fs::create_dir_all(marker.parent().unwrap()).unwrap();
    std::fs::write(marker, "[").unwrap();

    let entries = writer.store().entries().unwrap();
    assert_eq!(entries.by_key.keys().collect::<Vec<_>>(), [&key]);
    assert_eq!(entries.damaged[0].key, other.to_string());
    assert!(writer.store().entry(&other).is_err());
    assert!(writer.store().entry(&key).unwrap().unwrap().is_ours());
    assert!(!writer.store().marker().unwrap().unwrap().is_ours());
}

#[test]
fn occupants_are_found_without_regard_to_case() {
    let place = Place::new();
    let writer = place.writer();
    let batch = vec![
        prepare(&writer, "1_Agent", 1, false, 0).unwrap(),
        prepare(&writer, "2_both", 1, false, 1).unwrap(),
        prepare(&writer, "2_BOTH", 1, false, 2).unwrap(),
    ];
    writer.commit(batch);
    let damaged = writer
        .store()
        .layout()
        .key_file(Namespace::Sessions, "3_damaged");
    std::fs::write(damaged, "{").unwrap();
    let occupants = writer.store().occupants().unwrap();
    let key = |text: &str| occupants.of(&name(text)).map(|key| key.as_str().to_owned());
    assert_eq!(key("1_agent").as_deref(), Some("1_Agent"));
    assert_eq!(key("2_both").as_deref(), Some("2_both"));
    assert_eq!(key("2_BOTH").as_deref(), Some("2_BOTH"));
    assert_eq!(key("3_damaged").as_deref(), Some(""));
    assert_eq!(key("4_none"), None);
}
