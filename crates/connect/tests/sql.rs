//! The SQLite client against real files, with a real writer beside it.

use detent_connect::sql::{SqlClient, SqlError, SqlRequest, SqlRows};
use rusqlite::Connection;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Far more than any query here takes, also on a loaded machine.
const PATIENCE_MS: u64 = 60_000;

struct Db {
    dir: TempDir,
    path: PathBuf,
}

impl Db {
    fn new(schema: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("shop.db");
        Connection::open(&path)
            .unwrap()
            .execute_batch(schema)
            .unwrap();
        Self { dir, path }
    }

    fn sales() -> Self {
        Self::new(
            "CREATE TABLE sales(id INTEGER PRIMARY KEY, product TEXT, price REAL, raw BLOB);
             INSERT INTO sales VALUES (1,'bolt',1.5,x'00ff'),(2,'nut',NULL,NULL);",
        )
    }
}

fn request(path: &Path, query: &str, params: Vec<Value>) -> SqlRequest {
    SqlRequest {
        database: path.to_owned(),
        query: query.into(),
        params,
        rows_max: 100,
        timeout_ms: PATIENCE_MS,
    }
}

async fn ask(path: &Path, query: &str) -> Result<SqlRows, SqlError> {
    SqlClient::new().query(request(path, query, vec![])).await
}

#[tokio::test]
async fn rows_come_with_their_columns_and_types() {
    let db = Db::sales();
    let rows = ask(
        &db.path,
        "SELECT id, product, price, raw FROM sales ORDER BY id",
    )
    .await;
    let rows = rows.unwrap();
    assert_eq!(rows.columns, ["id", "product", "price", "raw"]);
    assert_eq!(
        json!(rows.rows),
        json!([
            {"id": 1, "product": "bolt", "price": 1.5, "raw": "00ff"},
            {"id": 2, "product": "nut", "price": null, "raw": null},
        ])
    );
    assert_eq!((rows.row_count, rows.truncated), (2, false));
}

#[tokio::test]
async fn parameters_are_values_and_never_part_of_the_query() {
    let db = Db::sales();
    let query = "SELECT count(*) AS n FROM sales WHERE product = ?1";
    for (param, n) in [("bolt", 1), ("x' OR '1'='1", 0)] {
        let rows = SqlClient::new()
            .query(request(&db.path, query, vec![json!(param)]))
            .await
            .unwrap();
        assert_eq!(rows.rows[0]["n"], n);
    }
    for (params, query) in [
        (vec![], query),
        (vec![json!(1), json!(2)], query),
        (vec![json!(u64::MAX)], query),
    ] {
        let answer = SqlClient::new()
            .query(request(&db.path, query, params))
            .await;
        assert!(
            matches!(answer, Err(SqlError::Invalid { .. })),
            "{answer:?}"
        );
    }
    let query = "SELECT ?1 AS a, ?2 AS b, ?3 AS c, ?4 AS d, ?5 AS e";
    let params = vec![
        json!(true),
        json!(-7),
        json!(0.25),
        json!(null),
        json!({"k": [1]}),
    ];
    let rows = SqlClient::new()
        .query(request(&db.path, query, params))
        .await
        .unwrap();
    assert_eq!(
        json!(rows.rows[0]),
        json!({"a": 1, "b": -7, "c": 0.25, "d": null, "e": "{\"k\":[1]}"})
    );
}

#[tokio::test]
async fn a_missing_file_and_a_missing_table_are_told_apart() {
    let db = Db::sales();
    let nowhere = db.dir.path().join("none.db");
    assert_eq!(ask(&nowhere, "SELECT 1 AS a").await, Err(SqlError::Missing));
    assert!(!nowhere.exists(), "looking must not make it");
    let below_a_file = db.path.join("none.db");
    assert_eq!(
        ask(&below_a_file, "SELECT 1 AS a").await,
        Err(SqlError::Missing)
    );
    let table = ask(&db.path, "SELECT * FROM orders").await;
    assert_eq!(
        table,
        Err(SqlError::NoTable {
            table: "orders".into()
        })
    );
    // An empty file is a database without tables.
    let empty = db.dir.path().join("empty.db");
    std::fs::write(&empty, "").unwrap();
    let table = ask(&empty, "SELECT * FROM orders").await;
    assert!(matches!(table, Err(SqlError::NoTable { .. })), "{table:?}");
}

#[tokio::test]
async fn what_is_no_database_is_neither_missing_nor_empty() {
    let db = Db::sales();
    let text = db.dir.path().join("text.db");
    std::fs::write(&text, "this is a text, not a database ".repeat(100)).unwrap();
    for path in [text.as_path(), db.dir.path(), Path::new("/dev/null")] {
        let answer = ask(path, "SELECT * FROM sales").await;
        assert!(
            matches!(answer, Err(SqlError::Invalid { .. })),
            "{path:?} {answer:?}"
        );
    }
    let column = ask(&db.path, "SELECT colour FROM sales").await;
    assert!(
        matches!(column, Err(SqlError::Invalid { .. })),
        "{column:?}"
    );
}

#[tokio::test]
async fn everything_but_one_select_is_refused_and_changes_nothing() {
    let db = Db::sales();
    let before = std::fs::read(&db.path).unwrap();
    let other = db.dir.path().join("other.db");
    let attach = format!("ATTACH '{}' AS o", other.display());
    for query in [
        "INSERT INTO sales(product) VALUES ('x')",
        "INSERT INTO sales(product) VALUES ('x') RETURNING id",
        "DELETE FROM sales",
        "DROP TABLE sales",
        "CREATE TEMP TABLE t(a)",
        "SELECT 1 AS a; DELETE FROM sales",
        "SELECT 1 AS a; SELECT 2 AS b",
        "PRAGMA query_only = OFF",
        "PRAGMA journal_mode = WAL",
        "PRAGMA user_version",
        "BEGIN",
        "VACUUM",
        "SELECT load_extension('x')",
        "",
        "-- nothing",
        &attach,
    ] {
        let answer = ask(&db.path, query).await;
        assert_eq!(answer, Err(SqlError::NotReadOnly), "{query}");
    }
    assert_eq!(std::fs::read(&db.path).unwrap(), before);
    assert!(!other.exists());
    let trailing = ask(&db.path, "SELECT 1 AS a; -- the end").await;
    assert_eq!(trailing.unwrap().row_count, 1);
}

#[tokio::test]
async fn a_database_with_a_live_writer_shows_its_last_commit() {
    let db = Db::sales();
    let mut writer = Connection::open(&db.path).unwrap();
    writer
        .execute_batch("PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0")
        .unwrap();
    for n in 3..23 {
        let open = writer.transaction().unwrap();
        open.execute("INSERT INTO sales(id) VALUES (?1)", [n])
            .unwrap();
        let query = "SELECT count(*) AS n, max(id) AS top FROM sales";
        let rows = ask(&db.path, query).await.unwrap();
        assert_eq!(json!(rows.rows[0]), json!({"n": n - 1, "top": n - 1}));
        open.commit().unwrap();
        let rows = ask(&db.path, query).await.unwrap();
        assert_eq!(json!(rows.rows[0]), json!({"n": n, "top": n}));
    }
}

#[tokio::test]
async fn a_locked_database_is_busy() {
    let db = Db::sales();
    let writer = Connection::open(&db.path).unwrap();
    writer.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let mut asked = request(&db.path, "SELECT id FROM sales", vec![]);
    asked.timeout_ms = 200;
    assert_eq!(SqlClient::new().query(asked).await, Err(SqlError::Busy));
    writer.execute_batch("COMMIT").unwrap();
    let rows = ask(&db.path, "SELECT id FROM sales").await.unwrap();
    assert_eq!(rows.row_count, 2);
}

const ENDLESS: &str =
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n";

#[tokio::test]
async fn an_endless_query_ends_at_its_deadline() {
    let db = Db::sales();
    let within = format!("SELECT count(*) AS n FROM ({ENDLESS})");
    for query in [ENDLESS, &within] {
        let mut asked = request(&db.path, query, vec![]);
        asked.timeout_ms = 200;
        let answer = SqlClient::new().query(asked).await;
        assert_eq!(answer, Err(SqlError::Timeout { timeout_ms: 200 }));
    }
}

/// The only thread for blocking work is free again once the asker is gone.
#[test]
fn a_query_that_nobody_waits_for_ends() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(1)
        .build()
        .unwrap();
    runtime.block_on(async {
        let db = Db::sales();
        let client = SqlClient::new();
        let endless = client.query(SqlRequest {
            timeout_ms: u64::MAX,
            ..request(&db.path, ENDLESS, vec![])
        });
        let waited = tokio::time::timeout(std::time::Duration::from_millis(50), endless).await;
        assert!(waited.is_err());
        assert_eq!(ask(&db.path, "SELECT 1 AS a").await.unwrap().row_count, 1);
    });
}

#[tokio::test]
async fn what_a_killed_writer_left_half_written_is_not_read() {
    let db = Db::sales();
    let writer = Connection::open(&db.path).unwrap();
    writer
        .execute_batch(
            "PRAGMA cache_size = 1; BEGIN;
             WITH RECURSIVE n(i) AS (SELECT 3 UNION ALL SELECT i + 1 FROM n LIMIT 2000)
             INSERT INTO sales(id, product) SELECT i, hex(zeroblob(500)) FROM n;
             UPDATE sales SET price = 0",
        )
        .unwrap();
    // The files as they would be found after the writer was killed now.
    let left = db.dir.path().join("left.db");
    std::fs::copy(&db.path, &left).unwrap();
    let journal = |path: &Path| PathBuf::from(format!("{}-journal", path.display()));
    std::fs::copy(journal(&db.path), journal(&left)).unwrap();
    // It is taken back, as by the next program that opens it; the last commit is there.
    let rows = ask(&left, "SELECT count(*) AS n FROM sales").await.unwrap();
    assert_eq!(rows.rows[0]["n"], 2);
}

#[tokio::test]
async fn rows_beyond_the_bound_are_counted_but_not_kept() {
    let db = Db::sales();
    let numbers = |n| format!("SELECT * FROM ({ENDLESS}) LIMIT {n}");
    let rows = ask(&db.path, &numbers(100)).await.unwrap();
    assert_eq!((rows.rows.len(), rows.truncated), (100, false));
    let rows = ask(&db.path, &numbers(101)).await.unwrap();
    assert_eq!((rows.rows.len(), rows.truncated), (100, true));
    assert_eq!(rows.row_count, 101);
    // Twenty rows of a million bytes do not fit either.
    let wide = format!("SELECT i, printf('%.1000000c', 'x') AS w FROM ({ENDLESS}) LIMIT 20");
    let rows = ask(&db.path, &wide).await.unwrap();
    assert!(
        rows.truncated && rows.rows.len() < 10,
        "{}",
        rows.rows.len()
    );
    assert_eq!(rows.row_count, 20);
    let huge = ask(&db.path, "SELECT zeroblob(900000000) AS z").await;
    assert!(matches!(huge, Err(SqlError::Invalid { .. })), "not bounded");
}

#[tokio::test]
async fn columns_that_would_hide_one_another_are_refused() {
    let db = Db::sales();
    let answer = ask(&db.path, "SELECT a.id, b.id FROM sales a, sales b").await;
    assert!(
        matches!(answer, Err(SqlError::Invalid { .. })),
        "{answer:?}"
    );
}

#[tokio::test]
async fn a_path_is_a_path_and_not_an_address_with_options() {
    let db = Db::sales();
    let uri = PathBuf::from(format!("file:{}?mode=rwc", db.path.display()));
    assert_eq!(ask(&uri, "SELECT 1 AS a").await, Err(SqlError::Missing));
}
