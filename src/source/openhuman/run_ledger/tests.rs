use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::process::Command;

use rusqlite::Connection;
use tempfile::TempDir;

use super::*;

const SCHEMA: &str = "CREATE TABLE agent_runs (id TEXT PRIMARY KEY, kind TEXT NOT NULL DEFAULT 'subagent', \
                      parent_run_id TEXT, parent_thread_id TEXT, agent_id TEXT, worker_thread_id TEXT)";

/// A workspace with a `session_db`, and a folder for temporary files beside it.
struct Place {
    root: TempDir,
}

impl Place {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("workspace/session_db")).unwrap();
        fs::create_dir(root.path().join("temp")).unwrap();
        Self { root }
    }

    fn workspace(&self) -> PathBuf {
        self.root.path().join("workspace")
    }

    fn database(&self) -> PathBuf {
        self.workspace().join("session_db/sessions.db")
    }

    fn temp(&self) -> PathBuf {
        self.root.path().join("temp")
    }

    /// A database made with these statements, whole in itself.
    fn with(sql: &str) -> Self {
        let place = Self::new();
        place.execute(sql);
        place
    }

    fn execute(&self, sql: &str) {
        let connection = Connection::open(self.database()).unwrap();
        connection.execute_batch(sql).unwrap();
    }

    /// A database whose rows are only in its `-wal`, as an application that
    /// is running (or was killed) leaves it.
    fn with_wal(sql: &str) -> Self {
        let (place, elsewhere) = (Self::new(), tempfile::tempdir().unwrap());
        let live = elsewhere.path().join("sessions.db");
        let connection = Connection::open(&live).unwrap();
        let start = "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0;";
        connection.execute_batch(&format!("{start} {sql}")).unwrap();
        for suffix in ["", "-wal"] {
            let from = elsewhere.path().join(format!("sessions.db{suffix}"));
            let to = place
                .workspace()
                .join(format!("session_db/sessions.db{suffix}"));
            fs::copy(from, to).unwrap();
        }
        place
    }

    fn limits(&self) -> Limits {
        Limits {
            temp_dir: self.temp(),
            ..Limits::default()
        }
    }

    /// Reads, and sees to it that no file of the workspace was changed or
    /// added, nor anything left in the temporary folder.
    #[track_caller]
    fn read(&self) -> (RunLedger, Vec<String>) {
        self.read_within(&self.limits())
    }

    #[track_caller]
    fn read_within(&self, limits: &Limits) -> (RunLedger, Vec<String>) {
        let before = listing(&self.workspace());
        let (ledger, diagnostics) = RunLedger::read_within(&self.workspace(), limits);
        assert_eq!(listing(&self.workspace()), before);
        assert_eq!(listing(&self.temp()), Vec::<String>::new());
        (
            ledger,
            diagnostics.iter().map(Diagnostic::sentence).collect(),
        )
    }

    /// The one warning of a reading that gave no run.
    #[track_caller]
    fn only_warning(&self) -> String {
        let (ledger, warnings) = self.read();
        assert!(ledger.is_empty());
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        warnings.into_iter().next().unwrap()
    }
}

/// Every file below with all that must not change: bytes, size, times, inode.
fn listing(folder: &Path) -> Vec<String> {
    let mut all = Vec::new();
    for entry in walkdir::WalkDir::new(folder)
        .min_depth(1)
        .sort_by_file_name()
    {
        let entry = entry.unwrap();
        let metadata = entry.path().symlink_metadata().unwrap();
        let bytes = match metadata.is_file() {
            true => crate::model::key::Sha256::of(&fs::read(entry.path()).unwrap()).to_string(),
            false => String::new(),
        };
        all.push(format!(
            "{} {} {}.{} {}.{} {} {:o} {bytes}",
            entry.path().display(),
            metadata.len(),
            metadata.mtime(),
            metadata.mtime_nsec(),
            metadata.ctime(),
            metadata.ctime_nsec(),
            metadata.ino(),
            metadata.mode(),
        ));
    }
    all
}

fn insert(id: &str, parent_run: &str, parent: &str, worker: &str) -> String {
    format!(
        "INSERT INTO agent_runs (id, parent_run_id, parent_thread_id, worker_thread_id) \
         VALUES ({id}, {parent_run}, {parent}, {worker});"
    )
}

#[test]
fn no_database_is_an_empty_ledger_without_a_warning() {
    let place = Place::new();
    let (ledger, warnings) = place.read();
    assert!(ledger.is_empty() && warnings.is_empty());
    let nowhere = RunLedger::read(&place.temp());
    assert!(nowhere.0.is_empty() && nowhere.1.is_empty());
}

#[test]
fn runs_belong_to_both_of_their_threads() {
    let place = Place::with(&format!(
        "{SCHEMA}; {} {} {}",
        insert("'run-2'", "'run-1'", "'main'", "'worker'"),
        insert("'run-1'", "NULL", "'main'", "'worker'"),
        insert("'run-3'", "NULL", "'same'", "'same'"),
    ));
    let (ledger, warnings) = place.read();
    assert!(warnings.is_empty(), "{warnings:?}");
    assert_eq!(ledger.run_ids("main"), ["run-1", "run-2"]);
    assert_eq!(ledger.run_ids("worker"), ["run-1", "run-2"]);
    assert_eq!(ledger.run_ids("same"), ["run-3"]);
    assert!(ledger.run_ids("other").is_empty());
    assert_eq!(ledger.parent_threads("worker"), ["main"]);
    assert!(ledger.parent_threads("main").is_empty());
    assert_eq!((ledger.runs(), ledger.is_empty()), (3, false));
}

#[test]
fn every_parent_thread_is_named() {
    let place = Place::with(&format!(
        "{SCHEMA}; {} {} {} {}",
        insert("'1'", "NULL", "'b'", "'worker'"),
        insert("'2'", "NULL", "'a'", "'worker'"),
        insert("'3'", "NULL", "'b'", "'worker'"),
        insert("'4'", "NULL", "NULL", "'worker'"),
    ));
    assert_eq!(place.read().0.parent_threads("worker"), ["a", "b"]);
}

#[test]
fn the_root_is_at_the_top_of_the_parents() {
    let place = Place::with(&format!(
        "{SCHEMA}; {} {} {} {} {} {}",
        insert("'top'", "NULL", "NULL", "NULL"),
        insert("'middle'", "'top'", "NULL", "NULL"),
        insert("'low'", "'middle'", "NULL", "NULL"),
        insert("'orphan'", "'gone'", "NULL", "NULL"),
        insert("'ring-a'", "'ring-b'", "NULL", "NULL"),
        insert("'ring-b'", "'ring-a'", "NULL", "NULL"),
    ));
    let (ledger, _) = place.read();
    let roots =
        ["low", "top", "orphan", "ring-a", "ring-b", "gone"].map(|run| ledger.root_run_id(run));
    let expected = [
        Some("top"),
        Some("top"),
        Some("orphan"),
        Some("ring-b"),
        Some("ring-a"),
        None,
    ];
    assert_eq!(roots, expected);
}

#[test]
fn a_database_in_wal_mode_without_a_wal_is_read_in_place() {
    let place = Place::with(&format!(
        "PRAGMA journal_mode = WAL; {SCHEMA}; {}",
        insert("'run'", "NULL", "'main'", "NULL")
    ));
    // Its folder for copies does not even exist.
    let limits = Limits {
        temp_dir: place.temp().join("none"),
        ..Limits::default()
    };
    for wal_is_there in [false, true] {
        if wal_is_there {
            fs::write(place.workspace().join("session_db/sessions.db-wal"), "").unwrap();
        }
        let (ledger, warnings) = place.read_within(&limits);
        assert_eq!(ledger.run_ids("main"), ["run"], "{warnings:?}");
        assert!(warnings.is_empty());
    }
}

#[test]
fn rows_that_were_never_checkpointed_are_seen() {
    let place = Place::with_wal(&format!(
        "{SCHEMA}; {}",
        insert("'new'", "NULL", "'main'", "'w'")
    ));
    let (ledger, warnings) = place.read();
    assert_eq!(ledger.run_ids("w"), ["new"], "{warnings:?}");
    assert!(warnings.is_empty());
}

#[test]
fn rows_in_the_wal_are_seen_where_nothing_may_be_written() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = Place::with_wal(&format!(
        "{SCHEMA}; {}",
        insert("'new'", "NULL", "'main'", "'w'")
    ));
    let folder = place.workspace().join("session_db");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o555)).unwrap();
    let (ledger, _) = place.read();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(ledger.run_ids("w"), ["new"]);
}

#[test]
fn a_hot_rollback_journal_is_played_back_in_a_copy() {
    let (place, elsewhere) = (Place::new(), tempfile::tempdir().unwrap());
    let connection = Connection::open(elsewhere.path().join("sessions.db")).unwrap();
    // A small cache makes SQLite write pages before the transaction is over.
    connection
        .execute_batch(&format!(
            "PRAGMA journal_mode = DELETE; PRAGMA cache_size = 1; {SCHEMA};
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)
             INSERT INTO agent_runs (id, parent_thread_id) SELECT 'run-' || i, 'committed' FROM n;
             BEGIN; UPDATE agent_runs SET parent_thread_id = 'torn';"
        ))
        .unwrap();
    for suffix in ["", "-journal"] {
        let name = format!("sessions.db{suffix}");
        let to = place.workspace().join("session_db").join(&name);
        fs::copy(elsewhere.path().join(name), to).unwrap();
    }
    let (ledger, warnings) = place.read();
    assert!(warnings.is_empty(), "{warnings:?}");
    assert_eq!(ledger.run_ids("committed").len(), 2000);
    assert!(ledger.run_ids("torn").is_empty());

    // That it had to be: without its journal, the file shows half an update.
    fs::remove_file(place.workspace().join("session_db/sessions.db-journal")).unwrap();
    assert!(!place.read().0.run_ids("torn").is_empty());
}

/// SQLite removes the super-journal that a journal names once it has played
/// that back, and a hostile one may name any file.
#[test]
fn a_journal_that_names_a_super_journal_deletes_nothing() {
    let place = Place::with(SCHEMA);
    let victim = place.workspace().join("victim");
    fs::write(&victim, "a transcript").unwrap();

    let magic = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7_u8];
    let pages = u32::try_from(fs::metadata(place.database()).unwrap().len() / 4096).unwrap();
    let mut journal = magic.to_vec();
    for number in [0, 1, pages, 512, 4096_u32] {
        journal.extend(number.to_be_bytes());
    }
    journal.resize(512, 0);
    let name = victim.to_str().unwrap().as_bytes();
    let sum: u32 = name.iter().map(|byte| u32::from(*byte)).sum();
    journal.extend((0x4000_0000_u32 / 4096 + 1).to_be_bytes());
    journal.extend(name);
    journal.extend(u32::try_from(name.len()).unwrap().to_be_bytes());
    journal.extend(sum.to_be_bytes());
    journal.extend(magic);
    fs::write(
        place.workspace().join("session_db/sessions.db-journal"),
        journal,
    )
    .unwrap();

    let warning = place.only_warning();
    assert!(warning.contains("rollback journal"), "{warning}");
    assert!(victim.exists());

    // That it is a danger: SQLite itself, on the same files, removes it.
    place.execute("SELECT count(*) FROM agent_runs");
    assert!(!victim.exists());
}

#[test]
fn paths_with_any_character_are_opened() {
    use std::os::unix::ffi::OsStrExt as _;
    for name in [
        &b"a?b#c%20d e&f=g"[..],
        b"bad \xff byte",
        "ünïcödé \u{202e}\n".as_bytes(),
    ] {
        let place = Place::with(&format!(
            "{SCHEMA}; {}",
            insert("'run'", "NULL", "'t'", "NULL")
        ));
        let workspace = place.root.path().join(std::ffi::OsStr::from_bytes(name));
        fs::rename(place.workspace(), &workspace).unwrap();
        let (ledger, warnings) = RunLedger::read(&workspace);
        assert_eq!(ledger.run_ids("t"), ["run"], "{warnings:?}");
        assert!(warnings.is_empty());
    }
}

#[test]
fn a_relative_path_and_a_link_inside_are_followed() {
    let place = Place::with_wal(&format!(
        "{SCHEMA}; {}",
        insert("'run'", "NULL", "'t'", "NULL")
    ));
    let moved = place.workspace().join("elsewhere");
    fs::rename(place.workspace().join("session_db"), &moved).unwrap();
    fs::create_dir(place.workspace().join("session_db")).unwrap();
    symlink("../elsewhere/sessions.db", place.database()).unwrap();
    // The rows lie in the `-wal` beside the file that the link points to.
    assert_eq!(place.read().0.run_ids("t"), ["run"]);
}

#[test]
fn a_link_that_leads_outside_is_not_followed() {
    let (place, other) = (Place::new(), Place::with(SCHEMA));
    symlink(other.database(), place.database()).unwrap();
    let warning = place.only_warning();
    assert!(
        warning.starts_with("run-ledger-unusable: session_db/sessions.db: "),
        "{warning}"
    );
    assert!(warning.contains("outside"), "{warning}");
}

#[test]
fn what_is_no_file_is_not_opened() {
    let place = Place::new();
    fs::create_dir(place.database()).unwrap();
    assert!(place.only_warning().contains("no regular file"));

    let place = Place::new();
    assert!(
        Command::new("mkfifo")
            .arg(place.database())
            .status()
            .unwrap()
            .success()
    );
    assert!(place.only_warning().contains("no regular file"));

    let place = Place::with(SCHEMA);
    let wal = place.workspace().join("session_db/sessions.db-wal");
    assert!(Command::new("mkfifo").arg(wal).status().unwrap().success());
    assert!(
        place
            .only_warning()
            .contains("sessions.db-wal is no regular file")
    );
}

#[test]
fn damage_is_a_warning() {
    let many: String = (0..500)
        .map(|n| insert(&format!("'run-{n}'"), "NULL", "'t'", "NULL"))
        .collect();
    let whole = Place::with(&format!("{SCHEMA}; BEGIN; {many} COMMIT;"));
    let bytes = fs::read(whole.database()).unwrap();
    assert_eq!(whole.read().0.runs(), 500);

    let mut torn = bytes.clone();
    torn.truncate(bytes.len() / 2);
    let mut overwritten = bytes.clone();
    overwritten[4096..].fill(0xa5);
    let mut no_header = bytes.clone();
    no_header[..16].fill(b'x');
    for (bytes, words) in [
        (torn, "it is damaged"),
        (overwritten, "it is damaged"),
        (no_header, "no SQLite database"),
        (
            b"not a database, but some text".repeat(40),
            "no SQLite database",
        ),
        (b"short".to_vec(), "no SQLite database"),
    ] {
        let place = Place::new();
        fs::write(place.database(), bytes).unwrap();
        let warning = place.only_warning();
        assert!(
            warning.starts_with("run-ledger-unusable: ") && warning.contains(words),
            "{warning}"
        );
    }
}

#[test]
fn damage_to_another_table_costs_no_run() {
    let place = Place::with(&format!(
        "{SCHEMA}; {} CREATE TABLE run_events(payload); INSERT INTO run_events VALUES (1);",
        insert("'run'", "NULL", "'t'", "NULL")
    ));
    let page: usize = Connection::open(place.database())
        .unwrap()
        .query_row(
            "SELECT rootpage FROM sqlite_master WHERE name = 'run_events'",
            [],
            |row| row.get(0),
        )
        .unwrap();
    let mut bytes = fs::read(place.database()).unwrap();
    bytes[(page - 1) * 4096..page * 4096].fill(0xa5);
    fs::write(place.database(), bytes).unwrap();

    let (ledger, warnings) = place.read();
    assert_eq!(ledger.run_ids("t"), ["run"]);
    assert_eq!(warnings.len(), 1);
    assert!(
        warnings[0].starts_with("run-ledger-partial: "),
        "{warnings:?}"
    );
    assert!(
        warnings[0].contains("the database is damaged, but agent_runs is whole"),
        "{warnings:?}"
    );
}

#[test]
fn a_damaged_wal_shows_what_was_committed_before() {
    let place = Place::with_wal(&format!(
        "{SCHEMA}; {}",
        insert("'run'", "NULL", "'t'", "NULL")
    ));
    let wal = place.workspace().join("session_db/sessions.db-wal");
    let bytes = fs::read(&wal).unwrap();
    fs::write(&wal, &bytes[..bytes.len() - 100]).unwrap();
    // The torn frame is the row's; SQLite's own checksums leave it out.
    let (ledger, warnings) = place.read();
    assert!(ledger.is_empty() && warnings.is_empty(), "{warnings:?}");
}

#[test]
fn an_empty_file_is_an_empty_database() {
    let place = Place::new();
    fs::write(place.database(), "").unwrap();
    let warning = place.only_warning();
    assert!(warning.starts_with("run-ledger-partial: "), "{warning}");
    assert!(warning.contains("no table agent_runs"), "{warning}");
}

#[test]
fn missing_columns_are_named_once() {
    let place = Place::with(
        "CREATE TABLE agent_runs (ID TEXT, Parent_Thread_Id TEXT); INSERT INTO agent_runs VALUES ('run', 't');",
    );
    let (ledger, warnings) = place.read();
    assert_eq!(ledger.run_ids("t"), ["run"]);
    let expected = "run-ledger-partial: session_db/sessions.db: agent_runs has no column parent_run_id, worker_thread_id";
    assert_eq!(warnings, [expected]);

    let place = Place::with(
        "CREATE TABLE agent_runs (kind TEXT, parent_run_id, parent_thread_id, worker_thread_id)",
    );
    assert!(
        place
            .only_warning()
            .ends_with("agent_runs has no column id")
    );
}

#[test]
fn rows_with_values_of_other_types_are_counted() {
    let place = Place::with(&format!(
        "CREATE TABLE agent_runs (id, parent_run_id, parent_thread_id, worker_thread_id); {} {} {} {} {} {} {} {}",
        insert("'good'", "NULL", "'t'", "NULL"),
        insert("7", "NULL", "'t'", "NULL"),
        insert("1.5", "NULL", "'t'", "NULL"),
        insert("x'6162'", "NULL", "'t'", "NULL"),
        insert("NULL", "NULL", "'t'", "NULL"),
        insert("'bad-thread'", "NULL", "x'00'", "NULL"),
        insert("CAST(x'ff' AS TEXT)", "NULL", "'t'", "NULL"),
        insert("CAST(zeroblob(5000) AS TEXT)", "NULL", "'t'", "NULL"),
    ));
    let (ledger, warnings) = place.read();
    assert_eq!(ledger.run_ids("t"), ["good"]);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(
        warnings[0].contains(" 7 rows of agent_runs were left out"),
        "{warnings:?}"
    );
}

#[test]
fn two_rows_with_one_id_are_one_run() {
    let place = Place::with(&format!(
        "CREATE TABLE agent_runs (id, parent_run_id, parent_thread_id, worker_thread_id); {} {} {}",
        insert("'top'", "NULL", "NULL", "NULL"),
        insert("'run'", "'top'", "'a'", "NULL"),
        insert("'run'", "NULL", "'a'", "'b'"),
    ));
    let (ledger, _) = place.read();
    assert_eq!(
        (ledger.run_ids("a"), ledger.run_ids("b")),
        (&["run".to_owned()][..], &["run".to_owned()][..])
    );
    assert_eq!(ledger.root_run_id("run"), Some("top"));
}

#[test]
fn what_only_bears_the_name_is_not_read() {
    // The view would run for ever, were it ever asked.
    let forever = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS id, i AS parent_run_id, i AS parent_thread_id, i AS worker_thread_id FROM n";
    for sql in [
        format!("CREATE VIEW agent_runs AS {forever}"),
        "CREATE VIRTUAL TABLE agent_runs USING fts5(id, parent_run_id, parent_thread_id, worker_thread_id); \
         INSERT INTO agent_runs VALUES ('run', NULL, 't', NULL)".to_owned(),
        "CREATE TABLE other (id); CREATE TRIGGER agent_runs AFTER INSERT ON other BEGIN SELECT 1; END".to_owned(),
    ] {
        let warning = Place::with(&sql).only_warning();
        assert!(warning.starts_with("run-ledger-partial: "), "{warning}");
        assert!(warning.contains("is no real table"), "{warning}");
    }
    let index = Place::with("CREATE TABLE other (id); CREATE INDEX agent_runs ON other (id)");
    assert!(index.only_warning().contains("it has no table agent_runs;"));
}

#[test]
fn a_schema_that_lies_about_its_types_is_not_believed() {
    // A view and a virtual table that claim to be tables, with a root page and
    // all, and a table's entry whose SQL makes another one, so that the name
    // would mean what a third entry makes.
    for sql in [
        "CREATE TABLE other (id); CREATE VIEW agent_runs AS SELECT 'x' AS id; \
         PRAGMA writable_schema = ON; \
         UPDATE sqlite_master SET type = 'table', rootpage = 2 WHERE name = 'agent_runs';",
        "CREATE VIRTUAL TABLE agent_runs USING fts5(id); INSERT INTO agent_runs VALUES ('x'); \
         PRAGMA writable_schema = ON; \
         UPDATE sqlite_master SET rootpage = 2 WHERE name = 'agent_runs';",
        "CREATE TABLE agent_runs (id); CREATE VIRTUAL TABLE v USING fts5(id); \
         INSERT INTO v VALUES ('x'); PRAGMA writable_schema = ON; \
         UPDATE sqlite_master SET sql = 'CREATE TABLE other (id)' WHERE name = 'agent_runs'; \
         UPDATE sqlite_master SET sql = 'CREATE VIRTUAL TABLE agent_runs USING fts5(id)' \
         WHERE name = 'v';",
    ] {
        let warning = Place::with(sql).only_warning();
        let refused = ["it is damaged", "is no real table"].map(|words| warning.contains(words));
        assert!(refused.contains(&true), "{warning}");
    }
}

#[test]
fn views_and_triggers_beside_the_table_do_nothing() {
    let bombs: String = (1..40)
        .map(|n| {
            format!(
                "CREATE VIEW v{n} AS SELECT * FROM v{} UNION ALL SELECT * FROM v{};",
                n - 1,
                n - 1
            )
        })
        .collect();
    let place = Place::with(&format!(
        "CREATE TABLE other (id); \
         CREATE TRIGGER agent_runs AFTER INSERT ON other BEGIN DELETE FROM agent_runs; END; \
         {SCHEMA}; {} CREATE VIEW v0 AS SELECT 1; {bombs} CREATE VIRTUAL TABLE search USING fts5(text); \
         CREATE TRIGGER t AFTER INSERT ON agent_runs BEGIN DELETE FROM agent_runs; END;",
        insert("'run'", "NULL", "'t'", "NULL"),
    ));
    let (ledger, warnings) = place.read();
    assert_eq!(ledger.run_ids("t"), ["run"]);
    assert!(warnings.is_empty(), "{warnings:?}");
}

/// Such an expression may be made to take gigabytes; these fail when computed.
#[test]
fn expressions_of_the_schema_are_never_computed() {
    let fails = "abs(-9223372036854775807 - 1)";
    let rewritten = |table: &str, end: &str| {
        let place = Place::with(&format!(
            "CREATE TABLE agent_runs (id, parent_run_id, parent_thread_id); {} \
             CREATE TABLE other (a); INSERT INTO other VALUES (1);",
            "INSERT INTO agent_runs VALUES ('run', NULL, 't');"
        ));
        place.execute(&format!(
            "PRAGMA writable_schema = ON; UPDATE sqlite_master \
             SET sql = rtrim(sql, ')') || ', {end})' WHERE name = '{table}';"
        ));
        // SQLite heeds a CHECK only where it may write: in a copy.
        let wal = place.workspace().join("session_db/sessions.db-wal");
        fs::write(wal, "no frame").unwrap();
        let (ledger, warnings) = place.read();
        assert_eq!(ledger.run_ids("t"), ["run"], "{warnings:?}");
        assert!(warnings[0].ends_with("has no column worker_thread_id"));
        warnings
    };
    let check = rewritten("agent_runs", &format!("CHECK ({fails} > 0)"));
    assert_eq!(check.len(), 1, "{check:?}");
    let elsewhere = rewritten("other", &format!("b TEXT AS ({fails})"));
    assert_eq!(elsewhere.len(), 1, "{elsewhere:?}");
    let computed = rewritten("agent_runs", &format!("worker_thread_id TEXT AS ({fails})"));
    assert_eq!(computed.len(), 2, "{computed:?}");
    assert!(computed[1].contains("computes columns"), "{computed:?}");
}

/// `quick_check` does not compare an index with its table.
#[test]
fn an_index_that_lies_is_not_asked() {
    let columns = "id, parent_run_id, parent_thread_id, worker_thread_id";
    let place = Place::with(&format!(
        "{SCHEMA}; {} CREATE INDEX lie ON agent_runs ({columns}); PRAGMA writable_schema = ON; \
         CREATE TABLE kept AS SELECT * FROM sqlite_master WHERE name = 'lie'; \
         DELETE FROM sqlite_master WHERE name = 'lie';",
        insert("'run'", "NULL", "'lie'", "NULL")
    ));
    place.execute(
        "UPDATE agent_runs SET parent_thread_id = 'truth'; PRAGMA writable_schema = ON; \
         INSERT INTO sqlite_master SELECT * FROM kept;",
    );
    let (ledger, warnings) = place.read();
    assert!(warnings.is_empty(), "{warnings:?}");
    assert_eq!(ledger.run_ids("truth"), ["run"]);
}

#[test]
fn the_reading_ends_when_its_time_is_over() {
    let fill = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300000) \
                INSERT INTO agent_runs (id, parent_thread_id) SELECT 'run-' || i, 't' FROM n;";
    for place in [
        Place::with(&format!("{SCHEMA}; {fill}")),
        Place::with_wal(&format!("{SCHEMA}; {fill}")),
    ] {
        let limits = Limits {
            time: Duration::from_millis(20),
            ..place.limits()
        };
        let start = std::time::Instant::now();
        let (ledger, warnings) = place.read_within(&limits);
        assert!(
            start.elapsed() < Duration::from_secs(2),
            "{:?}",
            start.elapsed()
        );
        assert!(ledger.is_empty());
        assert_eq!(warnings.len(), 1);
        assert!(
            warnings[0].contains("longer than the time set"),
            "{warnings:?}"
        );
        assert_eq!(place.read().0.runs(), 300_000);
    }
}

#[test]
fn memory_does_not_grow_with_the_database() {
    let place = Place::with(&format!(
        "{SCHEMA}; WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100) \
         INSERT INTO agent_runs (id, parent_thread_id) SELECT 'run-' || i, 't' FROM n;"
    ));
    let limits = Limits {
        memory: 6_000,
        ..place.limits()
    };
    let (ledger, warnings) = place.read_within(&limits);
    assert_eq!(ledger.runs(), 11);
    assert_eq!(warnings.len(), 1);
    assert!(
        warnings[0].ends_with("agent_runs has more runs than are kept: 11 were used"),
        "{warnings:?}"
    );
}

#[test]
fn an_exclusive_lock_of_another_process_is_no_hindrance() {
    let place = Place::with(&format!(
        "{SCHEMA}; {}",
        insert("'run'", "NULL", "'t'", "NULL")
    ));
    let holder = Connection::open(place.database()).unwrap();
    holder
        .execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE;")
        .unwrap();
    let (ledger, warnings) = place.read();
    assert_eq!(ledger.run_ids("t"), ["run"], "{warnings:?}");
    drop(holder);
}

#[test]
fn the_state_is_a_consistent_one_while_a_writer_goes_on() {
    let place = Place::with(&format!("PRAGMA journal_mode = WAL; {SCHEMA};"));
    let database = place.database();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut connection = Connection::open(&database).unwrap();
            connection
                .execute_batch("PRAGMA wal_autocheckpoint = 7;")
                .unwrap();
            let mut number = 0;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                // Always two rows at once: an odd number would be half a transaction.
                let transaction = connection.transaction().unwrap();
                for half in ["a", "b"] {
                    let sql = insert(&format!("'{number}{half}'"), "NULL", "'t'", "NULL");
                    transaction.execute_batch(&sql).unwrap();
                }
                transaction.commit().unwrap();
                number += 1;
                std::thread::sleep(Duration::from_millis(4));
            }
        });
        let (mut last, mut read) = (0, 0);
        for _ in 0..60 {
            let (ledger, warnings) = RunLedger::read_within(&place.workspace(), &place.limits());
            let warnings: Vec<_> = warnings.iter().map(Diagnostic::sentence).collect();
            if warnings.is_empty() {
                let runs = ledger.runs();
                assert!(runs % 2 == 0 && runs >= last, "{runs} after {last}");
                (last, read) = (runs, read + 1);
            } else {
                assert!(warnings[0].contains("it was being written"), "{warnings:?}");
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(read > 0 && last > 0, "{read} {last}");
    });
    assert_eq!(listing(&place.temp()), Vec::<String>::new());
}

#[test]
fn a_copy_is_never_made_in_the_workspace() {
    let place = Place::with_wal(&format!(
        "{SCHEMA}; {}",
        insert("'run'", "NULL", "'t'", "NULL")
    ));
    let inside = place.workspace().join("tmp");
    fs::create_dir(&inside).unwrap();
    let limits = Limits {
        temp_dir: inside,
        ..Limits::default()
    };
    let (ledger, warnings) = place.read_within(&limits);
    assert!(ledger.is_empty());
    assert!(
        warnings[0].contains("lies in the workspace"),
        "{warnings:?}"
    );
}

#[test]
fn a_warning_quotes_nothing_of_the_file() {
    let place = Place::with(
        "CREATE TABLE t (a); PRAGMA writable_schema = ON; UPDATE sqlite_master SET sql = 'CREATE TABLE \u{1b}[31mSECRET';",
    );
    let warning = place.only_warning();
    assert!(!warning.contains("SECRET"), "{warning}");
}
