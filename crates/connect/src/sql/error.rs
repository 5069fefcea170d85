//! Why a query has no rows to show.

use rusqlite::ffi::ErrorCode;

/// Why a query was not answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SqlError {
    /// There is no such file.
    #[error("there is no such database file")]
    Missing,
    /// The database is there, a table or view of the query is not.
    #[error("the database has no table {table}")]
    NoTable {
        /// Its name.
        table: String,
    },
    /// Another connection holds the database; it was waited for.
    #[error("the database is locked by another connection")]
    Busy,
    /// A writer was killed in the middle of a write, and what it left could not be taken
    /// back: no right to write, or somebody holds the database.
    #[error("the database was left in the middle of a write; a writer has to open it first")]
    Unfinished,
    /// The query, its parameters or the file can't be used.
    #[error("{message}")]
    Invalid {
        /// What is wrong.
        message: String,
    },
    /// The query did not end in time and was ended.
    #[error("the query did not end within {timeout_ms} ms")]
    Timeout {
        /// The deadline, milliseconds.
        timeout_ms: u64,
    },
    /// The statement is not one that only selects.
    #[error("the query is not a single statement that only selects")]
    NotReadOnly,
}

impl SqlError {
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::Invalid {
            message: message.into(),
        }
    }

    pub(crate) fn sort(error: &rusqlite::Error, timeout_ms: u64) -> Self {
        if matches!(error, rusqlite::Error::MultipleStatement) {
            return Self::NotReadOnly;
        }
        let message = message_of(error);
        if let Some(table) = message.strip_prefix("no such table: ") {
            return Self::NoTable {
                table: table.to_owned(),
            };
        }
        // For a function SQLite gives its general code, only the words tell.
        if message.starts_with("not authorized") {
            return Self::NotReadOnly;
        }
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy,
            Some(ErrorCode::OperationInterrupted) => Self::Timeout { timeout_ms },
            Some(ErrorCode::AuthorizationForStatementDenied) => Self::NotReadOnly,
            // The statement can't be why: it was refused before. It is what a killed
            // writer left behind.
            Some(ErrorCode::ReadOnly) => Self::Unfinished,
            _ => Self::Invalid { message },
        }
    }
}

/// SQLite's own words; the library's would repeat the whole query.
fn message_of(error: &rusqlite::Error) -> String {
    match error {
        rusqlite::Error::SqlInputError { msg, .. } => msg.clone(),
        rusqlite::Error::SqliteFailure(_, Some(message)) => message.clone(),
        other => other.to_string(),
    }
}
