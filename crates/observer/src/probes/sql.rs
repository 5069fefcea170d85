//! Looks into a SQLite database.
//!
//! Parameters `{database, query, params?}`; a relative `database` is below the data
//! directory. Sees `{rows, row_count, columns}`: at most [`ROWS_MAX`] rows with
//! `truncated` beside them where there are more, while `row_count` counts all.
//!
//! An answer without rows is seen as `{rows: [], row_count: 0}`, without the columns,
//! which would be there also if nothing had happened. A missing file or table is
//! `{missing: true, rows: [], row_count: 0}`; a locked or broken database is no look.

use crate::place::Base;
use crate::probe::{Look, Probe, ProbeContext, read_params, unavailable};
use async_trait::async_trait;
use detent_connect::sql::{SqlClient, SqlError, SqlRequest, SqlRows};
use detent_protocol::Fault;
use serde::Deserialize;
use serde_json::{Value, json};

/// Rows that are seen; further ones are only counted.
const ROWS_MAX: usize = 1_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    database: String,
    query: String,
    #[serde(default)]
    params: Vec<Value>,
}

/// Probe `sql`.
#[derive(Debug, Clone, Copy, Default)]
pub struct SqlProbe {
    client: SqlClient,
}

impl SqlProbe {
    /// A probe.
    pub fn new() -> Self {
        Self::default()
    }
}

#[async_trait]
impl Probe for SqlProbe {
    fn kind(&self) -> &str {
        "sql"
    }

    async fn look(&self, params: &Value, cx: &ProbeContext) -> Result<Look, Fault> {
        let params: Params = read_params(params)?;
        let place = cx.place(&params.database, Base::Data)?;
        let what = format!("{}: {}", place.path.display(), params.query);
        let answer = self.client.query(SqlRequest {
            database: place.path.clone(),
            query: params.query,
            params: params.params,
            rows_max: ROWS_MAX,
            timeout_ms: cx.timeout_ms,
        });
        let seen = match answer.await {
            Ok(rows) => seen(rows),
            Err(SqlError::Missing) => {
                place.check_anchor()?;
                missing()
            }
            Err(SqlError::NoTable { .. }) => missing(),
            Err(error) => return Err(unavailable(error.to_string())),
        };
        Ok(Look::new(what, seen))
    }
}

fn missing() -> Value {
    json!({"missing": true, "rows": [], "row_count": 0})
}

fn seen(answer: SqlRows) -> Value {
    let mut seen = json!({"rows": answer.rows, "row_count": answer.row_count});
    if answer.row_count > 0 {
        seen["columns"] = json!(answer.columns);
    }
    if answer.truncated {
        seen["truncated"] = true.into();
    }
    seen
}
