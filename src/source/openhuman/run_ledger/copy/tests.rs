use std::time::Duration;

use super::*;

#[test]
fn the_copy_is_private_and_goes() {
    let (folder, temp) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let workspace = tempfile::tempdir().unwrap();
    let database = folder.path().join("sessions.db");
    fs::write(&database, "database").unwrap();
    fs::write(folder.path().join("sessions.db-wal"), "wal").unwrap();
    fs::write(folder.path().join("sessions.db-shm"), "shm").unwrap();
    let limits = Limits {
        time: Duration::from_secs(30),
        temp_dir: temp.path().to_owned(),
        ..Limits::default()
    };
    let state = State::of(&database).unwrap();
    let deadline = Deadline::after(limits.time);
    let copied = copy(&database, &state, workspace.path(), &limits, &deadline).unwrap();
    let mode = copied.path().metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    let mut names: Vec<_> = fs::read_dir(copied.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["sessions.db", "sessions.db-wal"]);
    drop(copied);
    assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 0);

    let over = Deadline::after(Duration::ZERO);
    let copied = copy(&database, &state, workspace.path(), &limits, &over);
    assert!(matches!(copied, Err(Trouble::TimedOut)));
    assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 0);
}
