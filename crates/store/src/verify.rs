//! Comparing what is in the store with what must be in it.

use std::collections::BTreeMap;

use crate::StoreError;
use crate::frame::{self, Kind};
use crate::key::{self, Parsed};
use crate::meta::{Meta, Totals};
use crate::view::Tree;

/// Reads every row: checksums, and count and digest per table.
pub(crate) fn all_rows(tree: &Tree, meta: &Meta) -> Result<(), RowsError> {
    let mut found = BTreeMap::new();
    let mut current = (String::new(), Totals::default());
    let mut last = None;
    for row in tree.rows() {
        let (stored_key, framed) = row.map_err(RowsError::Store)?;
        // A damaged index can lead in a circle.
        if last.is_some_and(|last| last >= stored_key) {
            return Err(RowsError::Detail("rows are out of order".to_owned()));
        }
        if let Some(name) = check(&stored_key, &framed).map_err(RowsError::Detail)? {
            if name != current.0 {
                merge(&mut found, &mut current);
                current.0 = name.to_owned();
            }
            current.1.add(&stored_key, &framed);
        }
        last = Some(stored_key);
    }
    merge(&mut found, &mut current);
    compare(&meta.tables, &found).map_err(RowsError::Detail)
}

/// Why the rows do not stand.
pub(crate) enum RowsError {
    /// Reading them failed.
    Store(StoreError),
    /// They are not what they must be.
    Detail(String),
}

/// The table to which a sound stored row counts; `None` for the meta row.
fn check<'a>(stored_key: &'a [u8], framed: &[u8]) -> Result<Option<&'a str>, String> {
    let bad = |detail: &str| format!("row {}: {detail}", stored_key.escape_ascii());
    let parsed = key::parse(stored_key).ok_or_else(|| bad("unknown kind of key"))?;
    let (kind, _) = frame::decode(stored_key, framed).map_err(bad)?;
    match (parsed, kind) {
        (Parsed::Meta, Kind::Meta) => Ok(None),
        (Parsed::Row { table, .. }, Kind::Inline | Kind::Chunked) => Ok(Some(table)),
        (Parsed::Chunk, Kind::Chunk) => Ok(Some(key::CHUNKS_NAME)),
        _ => Err(bad("key and value are of different kinds")),
    }
}

fn merge(found: &mut BTreeMap<String, Totals>, current: &mut (String, Totals)) {
    let totals = std::mem::take(&mut current.1);
    if totals.rows > 0 {
        found.insert(current.0.clone(), totals);
    }
}

fn compare(
    expected: &BTreeMap<String, Totals>,
    found: &BTreeMap<String, Totals>,
) -> Result<(), String> {
    let names = expected.keys().chain(found.keys());
    for name in names {
        let (must, is) = (expected.get(name).copied(), found.get(name).copied());
        let (must, is) = (must.unwrap_or_default(), is.unwrap_or_default());
        if must.rows != is.rows {
            return Err(format!(
                "table {name:?} has {} rows, {} were committed",
                is.rows, must.rows
            ));
        }
        if must != is {
            return Err(format!(
                "table {name:?} has other content than was committed"
            ));
        }
    }
    Ok(())
}
