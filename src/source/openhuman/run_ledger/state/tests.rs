use std::cell::Cell;
use std::fs::{self, File};

use super::*;

fn quiet<T>(database: &Path, work: impl FnMut(&State) -> Result<T, Trouble>) -> Result<T, Trouble> {
    while_quiet(database, &Deadline::after(Duration::from_secs(30)), work)
}

/// What changes a folder's database a little, each time it is called.
fn changes(folder: &Path) -> Vec<Box<dyn Fn(usize) + '_>> {
    let database = folder.join("sessions.db");
    let wal = folder.join("sessions.db-wal");
    let journal = folder.join("sessions.db-journal");
    vec![
        Box::new(move |n| fs::write(&database, "d".repeat(n)).unwrap()),
        Box::new({
            let wal = wal.clone();
            move |n| fs::write(&wal, "w".repeat(n)).unwrap()
        }),
        // Started anew: the same size and time, another header.
        Box::new(move |n| {
            fs::write(&wal, format!("{n:032}")).unwrap();
            let file = File::options().write(true).open(&wal).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        }),
        Box::new(move |n| fs::write(&journal, "j".repeat(n)).unwrap()),
    ]
}

#[test]
fn what_changed_meanwhile_is_done_again() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("sessions.db");
    fs::write(&database, "x").unwrap();
    for change in changes(folder.path()) {
        let tries = Cell::new(0);
        let outcome = quiet(&database, |_| {
            tries.set(tries.get() + 1);
            if tries.get() < 4 {
                change(tries.get());
                // Even an error may only be the writer's doing.
                return Err(Trouble::Damaged);
            }
            Ok(tries.get())
        });
        assert_eq!(outcome.unwrap(), 4);
    }
}

#[test]
fn what_never_rests_is_given_up_after_twenty_times() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("sessions.db");
    fs::write(&database, "x").unwrap();
    let mut tries = 0;
    let outcome = quiet(&database, |_| {
        tries += 1;
        fs::write(&database, "x".repeat(tries)).unwrap();
        Ok(())
    });
    assert!(matches!(outcome, Err(Trouble::Changing)), "{outcome:?}");
    assert_eq!(tries, 20);
}

#[test]
fn an_error_while_all_was_quiet_stands() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("sessions.db");
    fs::write(&database, "x").unwrap();
    let outcome = quiet::<()>(&database, |_| Err(Trouble::Damaged));
    assert!(matches!(outcome, Err(Trouble::Damaged)), "{outcome:?}");
}
