//! What is asked of the database: `agent_runs`, four of its columns.
//!
//! The file may be older, newer, damaged or hostile (`openhuman-workspace.md`
//! §3: "in any older shape"), so its schema is looked at before it is used.

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension as _, Row};

use super::open::Trouble;

const TABLE: &str = "agent_runs";
const COLUMNS: [&str; 4] = [
    "id",
    "parent_run_id",
    "parent_thread_id",
    "worker_thread_id",
];

/// An id longer than this many bytes is none: a row of a hostile file may hold
/// a gigabyte, and this keeps it from being loaded.
pub(super) const LONGEST_ID: u32 = 4096;

/// One row of `agent_runs`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) id: String,
    pub(super) parent_run_id: Option<String>,
    pub(super) parent_thread_id: Option<String>,
    pub(super) worker_thread_id: Option<String>,
}

impl Run {
    /// About what it takes up once it can be found by each of its threads.
    fn memory(&self) -> u64 {
        const LISTS: usize = 512;
        let threads = [&self.parent_thread_id, &self.worker_thread_id];
        let threads: usize = threads.into_iter().flatten().map(String::len).sum();
        let parent = self.parent_run_id.as_ref().map_or(0, String::len);
        (LISTS + 3 * self.id.len() + parent + 2 * threads) as u64
    }
}

/// What the database gave.
#[derive(Debug, Default)]
pub(super) struct Rows {
    pub(super) runs: Vec<Run>,
    /// Rows with a value of another type.
    pub(super) unusable: u64,
    /// What is not as expected, each a warning.
    pub(super) notes: Vec<String>,
}

/// Reads all runs, or the first of them as far as `room` bytes of memory go.
pub(super) fn read(connection: &Connection, room: u64) -> Result<Rows, Trouble> {
    let mut rows = Rows::default();
    if let Err(instead) = table(connection)? {
        let note = format!("it has {instead}; sessions have no run ids");
        rows.notes.push(note);
        return Ok(rows);
    }
    let columns = Columns::of(connection, TABLE)?;
    let missing: Vec<_> = COLUMNS
        .into_iter()
        .filter(|name| !columns.has(name))
        .collect();
    if !missing.is_empty() {
        let missing = missing.join(", ");
        rows.notes.push(format!("{TABLE} has no column {missing}"));
    }
    if !columns.has("id") {
        return Ok(rows);
    }
    if columns.computed {
        let note = format!("{TABLE} computes columns, so that it was not checked for damage");
        rows.notes.push(note);
    } else if is_damaged(connection, TABLE)? {
        return Err(Trouble::Damaged);
    }
    read_runs(connection, &columns, room, &mut rows)?;
    rows.notes.extend(others(connection)?);
    Ok(rows)
}

/// Whether `agent_runs` is a real table; otherwise what there is instead.
///
/// A virtual table is of type "table" too, but has no root page. SQLite itself
/// refuses a schema whose SQL makes something of another name or kind. A
/// trigger may have a table's name beside that table.
fn table(connection: &Connection) -> Result<Result<(), String>, Trouble> {
    const SQL: &str = "SELECT type IS 'table' AND rootpage > 0 AND sql GLOB 'CREATE TABLE *' \
                       FROM sqlite_master WHERE name = ?1 COLLATE NOCASE AND type <> 'index' \
                       ORDER BY 1 DESC";
    let is_real = connection
        .query_row(SQL, [TABLE], |row| row.get::<_, Option<bool>>(0))
        .optional()?;
    Ok(match is_real {
        Some(Some(true)) => Ok(()),
        Some(_) => Err(format!(
            "no table {TABLE}: what bears that name is no real table"
        )),
        None => Err(format!("no table {TABLE}")),
    })
}

struct Columns {
    names: Vec<String>,
    /// Some column is an expression of the schema's. It is neither read nor
    /// may SQLite compute it in a check: it may be made to eat all memory.
    computed: bool,
}

impl Columns {
    fn of(connection: &Connection, table: &str) -> rusqlite::Result<Self> {
        let mut columns = Self {
            names: Vec::new(),
            computed: false,
        };
        connection.pragma(None, "table_xinfo", table, |row| {
            match row.get("hidden")? {
                0 => columns.names.push(row.get("name")?),
                _ => columns.computed = true,
            }
            Ok(())
        })?;
        Ok(columns)
    }

    fn has(&self, name: &str) -> bool {
        self.names
            .iter()
            .any(|other| other.eq_ignore_ascii_case(name))
    }
}

/// `quick_check` of one table.
fn is_damaged(connection: &Connection, table: &str) -> rusqlite::Result<bool> {
    let mut sound = false;
    connection.pragma(None, "quick_check", table, |row| {
        // The finding itself quotes names from the schema; it is not shown.
        sound = matches!(row.get_ref(0)?, ValueRef::Text(b"ok"));
        Ok(())
    })?;
    Ok(!sound)
}

/// Checks the tables that are not read. Their damage costs no run id, but a
/// person will want to know.
///
/// One by one, because a check of the whole file would start the modules of
/// virtual tables and compute columns.
fn others(connection: &Connection) -> Result<Option<String>, Trouble> {
    const SQL: &str = "SELECT name FROM sqlite_master WHERE type IS 'table' AND rootpage > 0 \
                       AND sql GLOB 'CREATE TABLE *' AND name <> ?1 COLLATE NOCASE";
    let check = || -> rusqlite::Result<bool> {
        let mut names = connection.prepare(SQL)?;
        for name in names.query_map([TABLE], |row| row.get::<_, String>(0))? {
            let name = name?;
            if !Columns::of(connection, &name)?.computed && is_damaged(connection, &name)? {
                return Ok(true);
            }
        }
        Ok(false)
    };
    match check().map_err(Trouble::from) {
        Ok(false) => Ok(None),
        Ok(true) | Err(Trouble::Damaged) => {
            let note = format!("the database is damaged, but {TABLE} is whole and was used");
            Ok(Some(note))
        }
        // A database of many gigabytes: what is needed of it was checked and read.
        Err(trouble) => Ok(Some(format!(
            "{TABLE} was used, but the rest of the database could not be checked: {trouble}"
        ))),
    }
}

/// `NOT INDEXED`, since an index of a hostile file may say other than the table.
fn read_runs(
    connection: &Connection,
    columns: &Columns,
    mut room: u64,
    rows: &mut Rows,
) -> rusqlite::Result<()> {
    let values = COLUMNS.map(|name| match columns.has(name) {
        // `octet_length` and `typeof` do not load what they look at.
        true => {
            format!("typeof(\"{name}\"), iif(octet_length(\"{name}\") <= {LONGEST_ID}, \"{name}\", NULL)")
        }
        false => "'null', NULL".to_owned(),
    });
    let sql = format!("SELECT {} FROM {TABLE} NOT INDEXED", values.join(", "));
    let mut statement = connection.prepare(&sql)?;
    let mut found = statement.query([])?;
    while let Some(row) = found.next()? {
        match run(row)? {
            Some(run) => {
                let Some(left) = room.checked_sub(run.memory()) else {
                    let runs = rows.runs.len();
                    let note = format!("{TABLE} has more runs than are kept: {runs} were used");
                    rows.notes.push(note);
                    return Ok(());
                };
                room = left;
                rows.runs.push(run);
            }
            None => rows.unusable += 1,
        }
    }
    Ok(())
}

/// The row, if it can be used: its id and threads are what sessions are bound
/// by. A parent of a wrong type only ends the walk to the root.
fn run(row: &Row<'_>) -> rusqlite::Result<Option<Run>> {
    let (Ok(Some(id)), Ok(parent_thread_id), Ok(worker_thread_id)) =
        (text(row, 0)?, text(row, 4)?, text(row, 6)?)
    else {
        return Ok(None);
    };
    Ok(Some(Run {
        id,
        parent_run_id: text(row, 2)?.ok().flatten(),
        parent_thread_id,
        worker_thread_id,
    }))
}

/// Something that is neither text nor null.
struct WrongType;

fn text(row: &Row<'_>, at: usize) -> rusqlite::Result<Result<Option<String>, WrongType>> {
    Ok(match (row.get_ref(at)?, row.get_ref(at + 1)?) {
        (ValueRef::Text(b"null"), _) => Ok(None),
        (ValueRef::Text(b"text"), ValueRef::Text(bytes)) => {
            let text = std::str::from_utf8(bytes);
            text.map(|text| Some(text.to_owned()))
                .map_err(|_| WrongType)
        }
        _ => Err(WrongType),
    })
}
