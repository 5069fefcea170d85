//! JSON helpers: canonical text, digests, pointers.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::fmt;

/// SHA-256 over some canonical bytes. Shown as 64 hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// Of raw bytes.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
    /// Of a JSON value: equal values give equal digests whatever their key order.
    pub fn of_json(value: &Value) -> Self {
        Self::of_bytes(canonical(value).as_bytes())
    }
    /// Of several parts; each is length-prefixed so that parts can't run together.
    pub fn of_parts(parts: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        Self(hash.finalize().into())
    }
    /// The first 12 hex digits, for people.
    pub fn short(&self) -> String {
        self.to_string()[..12].to_owned()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}
impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({})", self.short())
    }
}
impl std::str::FromStr for Digest {
    type Err = &'static str;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        const WRONG: &str = "a digest is 64 hex digits";
        if s.len() != 64 || !s.is_ascii() {
            return Err(WRONG);
        }
        let mut out = [0; 32];
        for (i, byte) in out.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&s[2 * i..2 * i + 2], 16).map_err(|_| WRONG)?;
        }
        Ok(Self(out))
    }
}
impl Serialize for Digest {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}
impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let s = std::borrow::Cow::<'de, str>::deserialize(d)?;
        s.parse().map_err(serde::de::Error::custom)
    }
}

/// Canonical text: no white space, keys in byte order (`serde_json`'s map is sorted),
/// numbers as `serde_json` prints them.
pub fn canonical(value: &Value) -> String {
    value.to_string()
}

/// Escapes one key for use in a JSON pointer (RFC 6901).
pub fn pointer_escape(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// The key that stands escaped in a JSON pointer.
pub fn pointer_unescape(token: &str) -> String {
    token.replace("~1", "/").replace("~0", "~")
}

/// Is `text` a JSON pointer (RFC 6901)?
pub fn is_pointer(text: &str) -> bool {
    text.is_empty() || text.starts_with('/')
}

/// The JSON type's name, for error texts that must not show the value.
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Bytes that `value` takes as JSON text.
pub fn size_bytes(value: &Value) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
            self.0 += buf.len();
            Ok(buf.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // Writing a Value into a counter has no way to fail.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

/// How deep `value` is nested; a value without parts has depth 1. Takes no stack, so
/// that any value may be measured.
pub fn depth(value: &Value) -> usize {
    let mut deepest = 0;
    let mut todo = vec![(value, 1)];
    while let Some((value, level)) = todo.pop() {
        deepest = deepest.max(level);
        match value {
            Value::Array(items) => todo.extend(items.iter().map(|v| (v, level + 1))),
            Value::Object(map) => todo.extend(map.values().map(|v| (v, level + 1))),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn key_order_does_not_matter() {
        let a: Value = serde_json::from_str(r#"{"b":1,"a":[true,null]}"#).unwrap();
        let b: Value = serde_json::from_str(r#"{"a":[true,null],"b":1}"#).unwrap();
        assert_eq!(Digest::of_json(&a), Digest::of_json(&b));
        assert_ne!(
            Digest::of_json(&a),
            Digest::of_json(&json!({"a":[true,null],"b":2}))
        );
    }

    #[test]
    fn digest_text_round_trip() {
        let d = Digest::of_bytes(b"x");
        assert_eq!(d.to_string().parse::<Digest>().unwrap(), d);
        assert!("zz".parse::<Digest>().is_err());
        assert!("é".repeat(32).parse::<Digest>().is_err());
    }

    #[test]
    fn parts_do_not_run_together() {
        assert_ne!(
            Digest::of_parts(&[b"ab", b"c"]),
            Digest::of_parts(&[b"a", b"bc"])
        );
    }

    #[test]
    fn depth_counts_levels() {
        assert_eq!(depth(&json!(1)), 1);
        assert_eq!(depth(&json!([])), 1);
        assert_eq!(depth(&json!({"a": [1, {"b": 2}]})), 4);
    }

    #[test]
    fn size_is_the_text_length() {
        let v = json!({"a":[1,2,{"b":"ü"}]});
        assert_eq!(size_bytes(&v), v.to_string().len());
    }
}
