//! Real SQLite files.

use crate::support::Place;
use detent_observer::probes::SqlProbe;
use detent_protocol::expect::nothing_there;
use rusqlite::Connection;
use serde_json::{Value, json};
use std::path::Path;

fn make(path: &Path) -> Connection {
    let connection = Connection::open(path).unwrap();
    connection
        .execute_batch(
            "CREATE TABLE orders(id INTEGER, item TEXT); INSERT INTO orders VALUES (1,'bolt')",
        )
        .unwrap();
    connection
}

async fn see(place: &Place, params: Value) -> Value {
    place.look(&SqlProbe::new(), params).await.seen
}

#[tokio::test]
async fn rows_are_seen_with_their_number_and_columns() {
    let place = Place::new();
    make(&place.data_dir().join("shop.db"));
    std::fs::create_dir(place.config_dir().join("data")).unwrap();
    make(&place.config_dir().join("data/shop.db"));
    for database in ["shop.db", "data:shop.db", "config:data/shop.db"] {
        let query = "SELECT id, item FROM orders WHERE item = ?1";
        let params = json!({"database": database, "query": query, "params": ["bolt"]});
        let row = json!({"id": 1, "item": "bolt"});
        assert_eq!(
            see(&place, params).await,
            json!({"rows": [row], "row_count": 1, "columns": ["id", "item"]})
        );
    }
}

#[tokio::test]
async fn nothing_there_is_exactly_the_forms_by_which_expectations_are_checked() {
    let place = Place::new();
    make(&place.data_dir().join("shop.db"));
    let [empty, missing] = nothing_there("sql").try_into().unwrap();
    for (database, query, seen) in [
        ("shop.db", "SELECT id FROM orders WHERE id = 2", &empty),
        ("shop.db", "SELECT id FROM invoices", &missing),
        ("none.db", "SELECT id FROM orders", &missing),
    ] {
        let params = json!({"database": database, "query": query});
        assert_eq!(&see(&place, params).await, seen, "{query}");
    }
}

#[tokio::test]
async fn what_cant_be_asked_is_not_absent() {
    let place = Place::new();
    make(&place.data_dir().join("shop.db"));
    let writer = make(&place.data_dir().join("locked.db"));
    writer.execute_batch("BEGIN EXCLUSIVE").unwrap();
    std::fs::write(place.data_dir().join("text.db"), "no database ".repeat(100)).unwrap();
    for (database, query, why) in [
        ("locked.db", "SELECT id FROM orders", "locked"),
        ("shop.db", "SELECT colour FROM orders", "no such column"),
        ("text.db", "SELECT id FROM orders", "not a database"),
        (".", "SELECT 1 AS a", "not a regular file"),
    ] {
        let params = json!({"database": database, "query": query});
        let timeout_ms = if database == "locked.db" { 200 } else { 60_000 };
        let fault = place.fail(&SqlProbe::new(), params, timeout_ms).await;
        assert!(fault.message.contains(why), "{database}: {fault}");
    }
    std::fs::remove_dir_all(place.data_dir()).unwrap();
    let params = json!({"database": "shop.db", "query": "SELECT 1 AS a"});
    let fault = place.fail(&SqlProbe::new(), params, 60_000).await;
    assert!(fault.message.contains("is not there"), "{fault}");
}

#[tokio::test]
async fn a_probe_never_writes() {
    let place = Place::new();
    let path = place.data_dir().join("shop.db");
    drop(make(&path));
    let before = std::fs::read(&path).unwrap();
    for query in [
        "DELETE FROM orders",
        "SELECT 1 AS a; DELETE FROM orders",
        "PRAGMA user_version = 7",
    ] {
        let params = json!({"database": "shop.db", "query": query});
        let fault = place.fail(&SqlProbe::new(), params, 60_000).await;
        assert!(fault.message.contains("only selects"), "{query}: {fault}");
    }
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[tokio::test]
async fn an_endless_query_is_ended() {
    let place = Place::new();
    make(&place.data_dir().join("shop.db"));
    let query =
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) SELECT max(i) FROM n";
    let params = json!({"database": "shop.db", "query": query});
    let fault = place.fail(&SqlProbe::new(), params, 200).await;
    assert!(fault.message.contains("200 ms"), "{fault}");
}

#[tokio::test]
async fn more_rows_than_are_kept_are_counted() {
    let place = Place::new();
    make(&place.data_dir().join("shop.db"));
    let query =
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) SELECT i FROM n LIMIT 5000";
    let seen = see(&place, json!({"database": "shop.db", "query": query})).await;
    assert_eq!(seen["row_count"], 5_000);
    assert_eq!(seen["rows"].as_array().unwrap().len(), 1_000);
    assert_eq!(seen["truncated"], true);
}
