//! Runs one query under its bounds.

use super::error::SqlError;
use super::value;
use rusqlite::config::DbConfig;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit;
use rusqlite::{Connection, OpenFlags, Row, Rows, Statement};
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Most bytes of values that are kept of one answer.
pub const SQL_ROWS_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Largest single value or row that SQLite may make, bytes; a larger one is an error.
const VALUE_BYTES_MAX: i32 = 8 * 1024 * 1024;
/// Instructions of SQLite's machine between two looks at the clock: well under a
/// millisecond of work.
const PROGRESS_OPS: i32 = 1_000;

/// One question.
#[derive(Debug, Clone, PartialEq)]
pub struct SqlRequest {
    /// The database file.
    pub database: PathBuf,
    /// One statement that only selects.
    pub query: String,
    /// Values for `?1`, `?2` and so on; their number must be right.
    pub params: Vec<Value>,
    /// Rows that are kept; further ones are only counted.
    pub rows_max: usize,
    /// Deadline, milliseconds. A locked database is waited for during half of it.
    pub timeout_ms: u64,
}

/// The answer.
#[derive(Debug, Clone, PartialEq)]
pub struct SqlRows {
    /// Names of the columns, in order.
    pub columns: Vec<String>,
    /// Rows, in order: at most `rows_max`, with values of at most
    /// [`SQL_ROWS_BYTES_MAX`] bytes.
    pub rows: Vec<Map<String, Value>>,
    /// All rows of the answer, also those that were not kept.
    pub row_count: u64,
    /// There are more rows than were kept.
    pub truncated: bool,
}

/// Asks SQLite databases. Keeps nothing open between two questions: what is read is
/// always the last committed state of the file that has the name now.
#[derive(Debug, Clone, Copy, Default)]
pub struct SqlClient;

impl SqlClient {
    /// A client.
    #[must_use]
    pub fn new() -> Self {
        Self
    }

    /// Runs one query on a thread for blocking work. Dropping the future ends it.
    ///
    /// # Errors
    /// [`SqlError`].
    pub async fn query(&self, request: SqlRequest) -> Result<SqlRows, SqlError> {
        let deadline = Deadline::after_ms(request.timeout_ms);
        let _stop = StopOnDrop(deadline.stopped.clone());
        tokio::task::spawn_blocking(move || run(&request, &deadline))
            .await
            .unwrap_or_else(|_| Err(SqlError::invalid("the query ended without an answer")))
    }
}

#[derive(Clone)]
struct Deadline {
    at: Instant,
    stopped: Arc<AtomicBool>,
}

impl Deadline {
    fn after_ms(timeout_ms: u64) -> Self {
        // A day is as good as for ever, and can be added to any instant.
        let wait = Duration::from_millis(timeout_ms.min(24 * 60 * 60 * 1000));
        Self {
            at: Instant::now() + wait,
            stopped: Arc::default(),
        }
    }

    fn has_passed(&self) -> bool {
        self.stopped.load(Ordering::Relaxed) || Instant::now() >= self.at
    }

    fn left(&self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }
}

struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn run(request: &SqlRequest, deadline: &Deadline) -> Result<SqlRows, SqlError> {
    match look(request, deadline) {
        Err(SqlError::Unfinished) => {
            take_back(&request.database, deadline).map_err(|_| SqlError::Unfinished)?;
            look(request, deadline)
        }
        answer => answer,
    }
}

/// Lets SQLite take back what a killed writer left unfinished (its hot journal), as the
/// next program that opens the database would. Nothing that was committed changes, and
/// SQLite does it only when the writer holds no lock any more. Without it a probe could
/// not look at the very database that a killed tool was writing.
fn take_back(path: &Path, deadline: &Deadline) -> rusqlite::Result<()> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(deadline.left() / 2)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.pragma_update(None, "query_only", true)?;
    // The first read does it.
    connection.query_row("SELECT count(*) FROM sqlite_master", [], |_| Ok(()))
}

fn look(request: &SqlRequest, deadline: &Deadline) -> Result<SqlRows, SqlError> {
    let timeout_ms = request.timeout_ms;
    if deadline.has_passed() {
        return Err(SqlError::Timeout { timeout_ms });
    }
    check_file(&request.database)?;
    let sort = |e| SqlError::sort(&e, timeout_ms);
    let connection =
        open(&request.database, deadline).map_err(|e| lost_or(sort(e), &request.database))?;
    let mut statement = connection.prepare(&request.query).map_err(sort)?;
    if statement.column_count() == 0 || !statement.readonly() {
        return Err(SqlError::NotReadOnly);
    }
    bind(&mut statement, request)?;
    let columns = columns(&statement)?;
    let rows = statement.raw_query();
    collect(columns, rows, request).map_err(sort)
}

/// Looks before SQLite opens it: a named pipe would block there, and SQLite's error
/// for a file that is not there is the same as for one that may not be read.
fn check_file(path: &Path) -> Result<(), SqlError> {
    match std::fs::metadata(path) {
        Ok(meta) if meta.is_file() => Ok(()),
        Ok(_) => Err(SqlError::invalid("the database is not a regular file")),
        Err(e) => Err(match e.kind() {
            std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => SqlError::Missing,
            _ => SqlError::invalid(format!("the database can't be read: {e}")),
        }),
    }
}

/// A file that vanished between the look and the opening is missing, too.
fn lost_or(error: SqlError, path: &Path) -> SqlError {
    match check_file(path) {
        Err(SqlError::Missing) => SqlError::Missing,
        _ => error,
    }
}

fn open(path: &Path, deadline: &Deadline) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(deadline.left() / 2)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    // Functions with side effects must not run from a view or an index.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.pragma_update(None, "query_only", true)?;
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, VALUE_BYTES_MAX)?;
    let deadline = deadline.clone();
    connection.progress_handler(PROGRESS_OPS, Some(move || deadline.has_passed()));
    connection.authorizer(Some(authorize));
    Ok(connection)
}

/// Selecting is allowed and nothing else. SQLite counts `ATTACH` and some pragmas as
/// read only, although one opens other files and the others change the connection.
fn authorize(context: AuthContext<'_>) -> Authorization {
    match context.action {
        AuthAction::Select | AuthAction::Read { .. } | AuthAction::Recursive => {
            Authorization::Allow
        }
        AuthAction::Function { function_name } if function_name != "load_extension" => {
            Authorization::Allow
        }
        // Full-text search asks this of itself while it reads.
        AuthAction::Pragma {
            pragma_name: "data_version",
            ..
        } => Authorization::Allow,
        _ => Authorization::Deny,
    }
}

fn bind(statement: &mut Statement<'_>, request: &SqlRequest) -> Result<(), SqlError> {
    let (wanted, given) = (statement.parameter_count(), request.params.len());
    if wanted != given {
        let message = format!("the query has {wanted} parameters, {given} were given");
        return Err(SqlError::Invalid { message });
    }
    for (i, param) in request.params.iter().enumerate() {
        let param = value::to_sql(param)?;
        statement
            .raw_bind_parameter(i + 1, param)
            .map_err(|e| SqlError::sort(&e, request.timeout_ms))?;
    }
    Ok(())
}

fn columns(statement: &Statement<'_>) -> Result<Vec<String>, SqlError> {
    let names = statement.column_names();
    let columns: Vec<_> = names.iter().map(|n| (*n).to_owned()).collect();
    for (i, name) in columns.iter().enumerate() {
        // One would hide the other in the row.
        if columns[..i].contains(name) {
            let message = format!("two columns are named {name:?}; name them apart with AS");
            return Err(SqlError::Invalid { message });
        }
    }
    Ok(columns)
}

fn collect(
    columns: Vec<String>,
    mut rows: Rows<'_>,
    request: &SqlRequest,
) -> rusqlite::Result<SqlRows> {
    let mut kept = Vec::new();
    let mut row_count = 0;
    let mut bytes = 0;
    while let Some(row) = rows.next()? {
        row_count += 1;
        // Once a row was left out so are all later ones: what is kept is a beginning.
        if kept.len() as u64 + 1 < row_count || kept.len() >= request.rows_max {
            continue;
        }
        bytes += row_bytes(row, &columns)?;
        if bytes <= SQL_ROWS_BYTES_MAX {
            kept.push(row_map(row, &columns)?);
        }
    }
    Ok(SqlRows {
        columns,
        truncated: kept.len() as u64 != row_count,
        rows: kept,
        row_count,
    })
}

fn row_bytes(row: &Row<'_>, columns: &[String]) -> rusqlite::Result<usize> {
    let sizes = columns.iter().enumerate().map(|(i, name)| {
        let column = row.get_ref(i)?;
        Ok(name.len() + value::size_bytes(column))
    });
    sizes.sum()
}

fn row_map(row: &Row<'_>, columns: &[String]) -> rusqlite::Result<Map<String, Value>> {
    let pairs = columns.iter().enumerate();
    pairs
        .map(|(i, name)| Ok((name.clone(), value::to_json(row.get_ref(i)?))))
        .collect()
}
