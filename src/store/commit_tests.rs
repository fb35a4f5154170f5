use std::os::unix::fs::symlink;

use super::super::testing::{Place, name, prepare, tree};
use super::super::{Failure, Store};
use super::*;
use crate::model::key::SessionKey;

type Committing = Vec<(usize, Result<Committed, CommitError>)>;

fn all_good(committed: &Committing) -> bool {
    let is_good =
        |committed: &Committed| committed.diagnostics.is_empty() && !committed.stream_written_on;
    committed
        .iter()
        .all(|(_, result)| result.as_ref().is_ok_and(is_good))
}

fn stream(store: &Store, key: &str) -> std::path::PathBuf {
    store.layout().stream_file(&name(key).messages())
}

#[test]
fn a_batch_is_in_place_with_all_that_vouches_for_it() {
    let place = Place::new();
    let writer = place.writer();
    let batch = vec![
        prepare(&writer, "1_a", 2, true, 7).unwrap(),
        prepare(&writer, "2_b", 0, false, 9).unwrap(),
    ];
    let keys: Vec<_> = batch.iter().map(|prepared| prepared.ledger_key).collect();
    let committed = writer.commit(batch);
    assert!(all_good(&committed));
    assert_eq!(
        committed.iter().map(|(tag, _)| *tag).collect::<Vec<_>>(),
        [7, 9]
    );
    let files = tree(&place.root());
    for ((_, committed), (key, messages)) in committed.iter().zip([("1_a", 2), ("2_b", 0)]) {
        let committed = committed.as_ref().unwrap();
        let entry = &committed.entry;
        let file = |path: String| files.get(&path).map(|bytes| Sha256::of(bytes));
        assert_eq!(entry.messages, messages);
        assert_eq!(
            entry.journal_sha256,
            file(format!("journal/session.{key}.messages.jsonl"))
        );
        assert_eq!(
            entry.residue_sha256,
            file(format!("journal/session.{key}.residue.jsonl"))
        );
        assert_eq!(
            entry.descriptor_sha256,
            file(format!("kv/sessions/{key}.json"))
        );
        let now = Stat::of(&stream(&place.store(), key), false).unwrap();
        assert_eq!(committed.stream, now);
    }
    let entries = place.store().entries().unwrap();
    assert!(entries.damaged.is_empty());
    assert_eq!(entries.by_key.len(), 2);
    let first = entries.by_key[&keys[0]].clone();
    assert_eq!(first, *committed[0].1.as_ref().unwrap().entry);
    assert!(place.store().leftovers().unwrap().is_empty());
}

/// Large enough for one flush of everything and for several threads.
fn large(place: &Place) {
    let writer = place.writer();
    let batch = (0..200).map(|number| {
        prepare(
            &writer,
            &format!("{number}_a"),
            number % 3,
            number % 5 == 0,
            number,
        )
        .unwrap()
    });
    let committed = writer.commit(batch.collect());
    assert!(all_good(&committed));
    assert!(committed.iter().map(|(tag, _)| *tag).eq(0..200));
    writer.finish().unwrap();
}

#[test]
fn the_bytes_are_the_same_whatever_the_number_of_threads() {
    let places = [Place::new(), Place::new()];
    for (place, threads) in places.iter().zip([1, 4]) {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        pool.unwrap().install(|| large(place));
    }
    let [one, two] = places.map(|place| tree(&place.root()));
    assert_eq!(one.len(), 200 + 40 + 200 + 200 + 2);
    assert!(one == two);
}

#[test]
fn a_stream_that_changed_is_not_replaced_and_takes_none_along() {
    let place = Place::new();
    let writer = place.writer();
    writer.commit(vec![prepare(&writer, "1_a", 1, false, 0).unwrap()]);
    let batch = vec![
        prepare(&writer, "1_a", 2, true, 0).unwrap(),
        prepare(&writer, "2_b", 1, false, 1).unwrap(),
        prepare(&writer, "3_c", 1, false, 2).unwrap(),
    ];
    // The application appends to one, and begins another.
    let (old, new) = (stream(&place.store(), "1_a"), stream(&place.store(), "2_b"));
    let mut text = std::fs::read(&old).unwrap();
    text.extend(b"{}\n");
    std::fs::write(&old, &text).unwrap();
    std::fs::write(&new, "").unwrap();
    let committed = writer.commit(batch);
    assert!(matches!(committed[0].1, Err(CommitError::StreamChanged)));
    assert!(matches!(committed[1].1, Err(CommitError::StreamChanged)));
    assert!(committed[2].1.is_ok());
    assert_eq!(std::fs::read(&old).unwrap(), text);
    assert_eq!(std::fs::read(&new).unwrap(), b"");
    assert!(writer.store().descriptor(&name("2_b")).unwrap().is_none());
    assert!(writer.store().leftovers().unwrap().is_empty());
    assert_eq!(writer.store().entries().unwrap().by_key.len(), 2);
}

#[test]
fn a_stream_that_begins_at_the_last_moment_is_not_replaced() {
    let place = Place::new();
    let writer = place.writer();
    let written = prepare(&writer, "1_a", 1, false, 0).unwrap().written;
    let file = name("1_a").messages().file_name();
    std::fs::write(stream(&place.store(), "1_a"), "theirs").unwrap();
    assert!(!written.journal.place_new(&file).unwrap());
    let left = std::fs::read(stream(&place.store(), "1_a")).unwrap();
    assert_eq!(left, b"theirs");
    assert!(writer.store().leftovers().unwrap().is_empty());
}

#[test]
fn a_stream_that_is_written_on_after_the_rename_is_looked_at_again() {
    let place = Place::new();
    let writer = place.writer();
    let prepared = prepare(&writer, "1_a", 1, false, 0).unwrap();
    let sessions = writer.namespace(Namespace::Sessions).unwrap();
    let placed = writer.place(ready(prepared, &sessions).unwrap()).unwrap();
    let placed = writer.look_again(placed);
    assert!(!placed.written_on && placed.entry.unsettled.is_none());
    std::fs::remove_file(stream(&place.store(), "1_a")).unwrap();
    let placed = writer.look_again(placed);
    assert!(placed.written_on);
    assert_eq!(placed.entry.unsettled, Some(true));
}

#[test]
fn what_the_new_record_makes_obsolete_goes() {
    let place = Place::new();
    let writer = place.writer();
    let first = prepare(&writer, "1_a", 1, true, 0).unwrap();
    let (key, old_key) = (first.ledger_key, Sha256::of(b"old path"));
    writer.commit(vec![Prepared {
        ledger_key: old_key,
        ..first
    }]);
    let failure = Failure {
        source: "s".into(),
        session_key: SessionKey::new("1_a"),
        code: Code::NoHeader,
        message: "m".into(),
        size: 0,
        mtime_ms: 0,
        at: String::new(),
    };
    writer.put_failure(&key, &failure).unwrap();
    let residue = writer.store().layout().stream_file(&name("1_a").residue());
    assert!(residue.exists());
    let again = prepare(&writer, "1_a", 2, false, 0).unwrap();
    let committed = writer.commit(vec![Prepared {
        old_key: Some(old_key),
        ..again
    }]);
    assert!(all_good(&committed));
    assert!(!residue.exists());
    assert!(writer.store().failures().unwrap().by_key.is_empty());
    let entries = writer.store().entries().unwrap();
    assert_eq!(entries.by_key.keys().collect::<Vec<_>>(), [&key]);
}

#[test]
fn a_link_at_a_files_place_is_replaced_and_never_followed() {
    let place = Place::new();
    let outside = tempfile::tempdir().unwrap();
    let writer = place.writer();
    writer.commit(vec![prepare(&writer, "1_a", 1, true, 0).unwrap()]);
    let files: Vec<_> = tree(&place.root()).into_keys().collect();
    let files = files
        .iter()
        .filter(|path| path.contains("1_a") || path.contains("items"));
    let files: Vec<_> = files.map(|path| place.root().join(path)).collect();
    assert_eq!(files.len(), 4);
    let target = outside.path().join("target");
    std::fs::write(&target, "untouched").unwrap();
    for file in &files {
        std::fs::remove_file(file).unwrap();
        symlink(&target, file).unwrap();
    }
    assert!(all_good(
        &writer.commit(vec![prepare(&writer, "1_a", 1, true, 0).unwrap()])
    ));
    for file in &files {
        assert!(Stat::of(file, false).unwrap().unwrap().is_file());
    }
    assert_eq!(std::fs::read_to_string(target).unwrap(), "untouched");
}

#[test]
fn one_items_trouble_is_that_of_no_other() {
    let place = Place::new();
    let writer = place.writer();
    let layout = writer.store().layout();
    // A folder cannot be replaced by a file.
    std::fs::create_dir_all(layout.key_file(Namespace::Sessions, "2_b")).unwrap();
    let blocked = prepare(&writer, "3_c", 1, false, 2).unwrap();
    let entry = layout.key_file(Namespace::Items, &blocked.ledger_key.to_string());
    std::fs::create_dir_all(entry).unwrap();
    let committed = writer.commit(vec![
        prepare(&writer, "1_a", 1, false, 0).unwrap(),
        prepare(&writer, "2_b", 1, false, 1).unwrap(),
        blocked,
    ]);
    assert!(committed[0].1.is_ok());
    assert!(matches!(
        committed[1].1,
        Err(CommitError::Failed(Error::StoreIo { .. }))
    ));
    assert!(matches!(
        committed[2].1,
        Err(CommitError::Failed(Error::StoreIo { .. }))
    ));
    assert!(writer.store().leftovers().unwrap().is_empty());
}

/// Every step of an import fails once, each in a process of its own, since
/// operations are counted over the whole process.
#[cfg(feature = "fault-injection")]
mod faults {
    use std::collections::BTreeMap;
    use std::process::Command;

    use super::super::super::record::{Marker, Tool};
    use super::super::super::testing::open;
    use super::*;

    const WORKSPACE: &str = "SESSION_IMPORT_TEST_WORKSPACE";

    /// The state that the import begins with.
    fn before(place: &Place) {
        let writer = place.writer();
        let batch = vec![prepare(&writer, "1_a", 1, true, 0).unwrap()];
        assert!(all_good(&writer.commit(batch)));
        let marker = Marker {
            tool: Some(Tool::this()),
            ..Marker::default()
        };
        writer.put_marker(&marker).unwrap();
    }

    /// A session replaced, which loses its residue, and a new one.
    fn import(workspace: &std::path::Path) -> crate::Result<bool> {
        let root = workspace.join("tinyagents_store");
        let clock = super::super::super::testing::clock();
        let (writer, told) = Writer::open(&root, workspace, clock, None)?;
        writer.remove_marker()?;
        let mut batch = vec![prepare(&writer, "1_a", 3, false, 0)?];
        // One that cannot be written is left out, as a run does.
        let other = prepare(&writer, "2_b", 2, true, 1);
        let is_whole = other.is_ok();
        batch.extend(other.ok());
        let is_good = all_good(&writer.commit(batch)) && is_whole && told.is_empty();
        if is_good {
            let marker = Marker {
                imported: 2,
                tool: Some(Tool::this()),
                ..Marker::default()
            };
            writer.put_marker(&marker)?;
        }
        writer.finish()?;
        Ok(is_good)
    }

    /// The process in which a step fails: this test, started by the next one.
    #[test]
    fn child() {
        if let Some(workspace) = std::env::var_os(WORKSPACE) {
            let is_good = import(std::path::Path::new(&workspace));
            println!("result: {}", matches!(is_good, Ok(true)));
        }
    }

    /// Runs the child and says whether it said that all is well.
    fn run(place: &Place, name: &str, value: &str) -> bool {
        let output = Command::new(std::env::current_exe().unwrap())
            .args([
                "store::commit::tests::faults::child",
                "--exact",
                "--nocapture",
            ])
            .env(WORKSPACE, place.workspace.path())
            .env("RAYON_NUM_THREADS", "1")
            .env(name, value)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("result: "), "{text}");
        text.contains("result: true")
    }

    type Tree = BTreeMap<String, Vec<u8>>;

    /// Each file is the old one or the new one, whole; an entry or marker that
    /// is new vouches for nothing that is not.
    fn check(now: &Tree, old: &Tree, new: &Tree, what: &str) {
        for (path, bytes) in now {
            if path.ends_with(".tmp") || path.ends_with(".lock") {
                continue;
            }
            let is_known = [old, new].iter().any(|tree| tree.get(path) == Some(bytes));
            assert!(is_known, "{what}: {path} is neither old nor new");
        }
        for path in old.keys().filter(|path| new.contains_key(*path)) {
            let is_marker = path.contains("kv/migrations/");
            assert!(
                is_marker || now.contains_key(path),
                "{what}: {path} is gone"
            );
        }
        for key in ["1_a", "2_b"] {
            let hash = crate::model::key::SourcePath::file(format!("session_raw/{key}.jsonl"));
            let entry = format!("kv/migration_items/{}.json", hash.ledger_key());
            let files = [
                format!("journal/session.{key}.messages.jsonl"),
                format!("journal/session.{key}.residue.jsonl"),
                format!("kv/sessions/{key}.json"),
            ];
            if now.contains_key(&entry) && now.get(&entry) == new.get(&entry) {
                for file in files.iter().filter(|file| new.contains_key(*file)) {
                    assert_eq!(now.get(file), new.get(file), "{what}: {file}");
                }
            }
        }
        let marker = "kv/migrations/session_import_v1.json";
        if now.contains_key(marker) && now.get(marker) == new.get(marker) {
            let mut settled = new.iter().filter(|(path, _)| !path.ends_with(".lock"));
            assert!(
                settled.all(|(path, bytes)| now.get(path) == Some(bytes)),
                "{what}"
            );
        }
    }

    #[test]
    fn every_step_may_fail_and_the_next_import_puts_it_right() {
        let calm = Place::new();
        before(&calm);
        let old = tree(&calm.root());
        let count = calm.workspace.path().join("count");
        assert!(run(
            &calm,
            "SESSION_IMPORT_FAULT_COUNT",
            count.to_str().unwrap()
        ));
        let count: u64 = std::fs::read_to_string(count).unwrap().parse().unwrap();
        let new = tree(&calm.root());
        assert!(count > 40, "{count}");

        for number in 1..=count {
            for fault in ["ENOSPC", "EIO", "EACCES", "short"] {
                let what = format!("{number}:{fault}");
                let place = Place::new();
                before(&place);
                let is_good = run(&place, "SESSION_IMPORT_FAULT", &what);
                let now = tree(&place.root());
                check(&now, &old, &new, &what);
                if is_good {
                    let without_lock = |tree: &Tree| {
                        let mut tree = tree.clone();
                        tree.remove(".session-import.lock");
                        tree
                    };
                    assert_eq!(without_lock(&now), without_lock(&new), "{what}");
                }
                assert!(import(place.workspace.path()).unwrap(), "{what}");
                assert_eq!(tree(&place.root()), new, "{what}");
                drop(open(place.workspace.path()));
            }
        }
    }
}
