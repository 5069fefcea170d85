//! Read-only questions to a SQLite database.
//!
//! Promises: nothing is ever written, held by three independent means (the file is
//! opened read only, `query_only` is set, and the statement is refused before it runs
//! unless SQLite itself calls it read only and it only selects); a query ends by its
//! deadline; rows and bytes that are kept have bounds; a live writer's last commit is
//! seen; a file and a table that are not there are errors of their own.
//!
//! Must not know: what the rows mean.

mod error;
mod query;
mod value;

pub use error::SqlError;
pub use query::{SQL_ROWS_BYTES_MAX, SqlClient, SqlRequest, SqlRows};
