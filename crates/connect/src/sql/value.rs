//! Values between JSON and SQLite.

use super::error::SqlError;
use rusqlite::types::{Value as SqlValue, ValueRef};
use serde_json::{Number, Value};

/// A parameter: arrays and objects become their JSON text, booleans 0 and 1.
pub(crate) fn to_sql(value: &Value) -> Result<SqlValue, SqlError> {
    Ok(match value {
        Value::Null => SqlValue::Null,
        Value::Bool(b) => SqlValue::Integer(i64::from(*b)),
        Value::Number(n) => number_to_sql(n)?,
        Value::String(s) => SqlValue::Text(s.clone()),
        Value::Array(_) | Value::Object(_) => SqlValue::Text(value.to_string()),
    })
}

fn number_to_sql(n: &Number) -> Result<SqlValue, SqlError> {
    if let Some(i) = n.as_i64() {
        return Ok(SqlValue::Integer(i));
    }
    // As a float it would lose digits in silence.
    if n.is_u64() {
        return Err(SqlError::invalid(
            "an integer parameter is larger than SQLite's integers",
        ));
    }
    let real = n.as_f64().filter(|f| f.is_finite());
    real.map(SqlValue::Real)
        .ok_or_else(|| SqlError::invalid("a number parameter can't be represented"))
}

/// A column's value: a blob becomes lower-case hex; in text, what is not UTF-8 is
/// replaced; an infinite number, which JSON has not, becomes the text `inf` or `-inf`.
pub(crate) fn to_json(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(i) => i.into(),
        ValueRef::Real(f) => {
            Number::from_f64(f).map_or_else(|| Value::String(f.to_string()), Value::Number)
        }
        ValueRef::Text(bytes) => Value::String(String::from_utf8_lossy(bytes).into_owned()),
        ValueRef::Blob(bytes) => Value::String(hex(bytes)),
    }
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
    bytes
        .iter()
        .flat_map(|b| [digit(b >> 4), digit(b & 15)])
        .collect()
}

/// Roughly the bytes that a column's value takes in memory and as JSON.
pub(crate) fn size_bytes(value: ValueRef<'_>) -> usize {
    match value {
        ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => 8,
        ValueRef::Text(bytes) => bytes.len(),
        ValueRef::Blob(bytes) => bytes.len() * 2,
    }
}
