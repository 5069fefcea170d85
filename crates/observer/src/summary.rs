//! Cuts what was seen to what fits into the evidence.

use detent_protocol::json;
use serde_json::{Map, Value};

/// Largest value that stands in evidence as it was seen, bytes of JSON text. A larger
/// one is cut to a summary of at most this size: of an object the small members stay,
/// a large member becomes `{"cut_bytes": N}` with the number of its items or keys, and
/// `cut_bytes` beside them is the size of the whole.
pub const SUMMARY_BYTES_MAX: usize = 4096;
/// Largest member that stays as it is.
const MEMBER_BYTES_MAX: usize = 256;
/// Room for the braces and the summary's own `cut_bytes`.
const FRAME_BYTES: usize = 64;
const CUT: &str = "cut_bytes";

/// The value, or a summary of it.
pub(crate) fn cut(value: Value) -> Value {
    let bytes = json::size_bytes(&value);
    if bytes <= SUMMARY_BYTES_MAX {
        return value;
    }
    let mut out = Map::new();
    if let Value::Object(members) = value {
        let mut left = SUMMARY_BYTES_MAX - FRAME_BYTES;
        for (key, member) in members {
            let member = cut_member(member);
            // Key with quotes and escapes, colon, comma.
            let cost = json::size_bytes(&Value::from(key.as_str())) + 2;
            let cost = cost + json::size_bytes(&member);
            if cost <= left {
                left -= cost;
                out.insert(key, member);
            }
        }
    }
    out.insert(CUT.into(), bytes.into());
    Value::Object(out)
}

fn cut_member(value: Value) -> Value {
    let bytes = json::size_bytes(&value);
    if bytes <= MEMBER_BYTES_MAX {
        return value;
    }
    let mut out = Map::new();
    out.insert(CUT.into(), bytes.into());
    match value {
        Value::Array(items) => out.insert("items".into(), items.len().into()),
        Value::Object(members) => out.insert("keys".into(), members.len().into()),
        _ => None,
    };
    Value::Object(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn small_values_stay_and_large_ones_say_what_was_cut() {
        let small = json!({"exists": true, "text": "x".repeat(1000)});
        assert_eq!(cut(small.clone()), small);
        let large = json!({
            "row_count": 900,
            "rows": vec![json!({"a": "b"}); 900],
            "text": "x".repeat(300),
            "deep": {"k": "x".repeat(300)},
        });
        let bytes = json::size_bytes(&large);
        assert_eq!(
            cut(large),
            json!({
                "row_count": 900,
                "rows": {"cut_bytes": 900 * 10 + 1, "items": 900},
                "text": {"cut_bytes": 302},
                "deep": {"cut_bytes": 308, "keys": 1},
                "cut_bytes": bytes,
            })
        );
    }

    #[test]
    fn a_summary_is_never_over_its_bound() {
        let many: Map<_, _> = (0..5000).map(|i| (format!("k\"{i}"), json!(i))).collect();
        let wide = json!({"k".repeat(10_000): 1, "a": "\u{1}".repeat(5_000)});
        let array = json!(vec![1; 5000]);
        let text = json!("x".repeat(5000));
        for value in [Value::Object(many), wide, array, text] {
            let bytes = json::size_bytes(&value);
            let cut = cut(value);
            assert!(json::size_bytes(&cut) <= SUMMARY_BYTES_MAX);
            assert_eq!(cut["cut_bytes"], bytes);
        }
    }
}
