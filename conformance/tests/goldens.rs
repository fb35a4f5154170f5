//! Every golden store is read, and written on, with each version of
//! `tinyagents`.

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use conformance::{Counts, VERSIONS, check_store, copy_store};

/// A case that shows a damaged stream being left alone: what lies there is
/// refused by the application's reader before the import and after it.
const LEFT_DAMAGED: &str = "store-damaged";

/// The stores that the importer is held to, in order.
fn goldens() -> Vec<PathBuf> {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/openhuman");
    let mut stores: Vec<PathBuf> = fs::read_dir(&cases)
        .into_iter()
        .flatten()
        .map(|case| case.unwrap().path().join("expected"))
        // A case without any source has no store.
        .filter(|store| store.is_dir())
        .collect();
    stores.sort();
    assert!(
        !stores.is_empty(),
        "no golden store (fixtures/openhuman/*/expected) was found: nothing was checked"
    );
    stores
}

#[test]
fn every_golden_store_conforms() {
    let mut totals = vec![Counts::default(); VERSIONS.len()];
    let mut failures = Vec::new();
    let stores = goldens();
    for store in &stores {
        let is_left_damaged = store.parent().unwrap().ends_with(LEFT_DAMAGED);
        let copy = tempfile::tempdir().unwrap();
        copy_store(store, copy.path()).unwrap();
        for (outcome, total) in check_store(copy.path(), true)
            .unwrap()
            .iter()
            .zip(&mut totals)
        {
            *total += outcome.counts;
            if is_left_damaged {
                assert_eq!(outcome.failures.len(), 1, "{:?}", outcome.failures);
                continue;
            }
            for failure in &outcome.failures {
                let path = failure.path.strip_prefix(copy.path()).unwrap();
                failures.push(format!(
                    "{}: tinyagents {}: {}",
                    store.join(path).display(),
                    outcome.version,
                    failure.reason
                ));
            }
        }
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
    for (version, total) in VERSIONS.iter().zip(&totals) {
        // Past the test's capture: these are figures for people.
        let line = format!(
            "{} golden stores with tinyagents {}: {total}
",
            stores.len(),
            version.name
        );
        io::stderr().write_all(line.as_bytes()).unwrap();
        // Goldens that hold nothing would prove nothing.
        assert!(total.appended > 0 && total.descriptors > 0, "{total}");
    }
}
