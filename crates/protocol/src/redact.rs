//! The redactor: no secret reaches the journal, a log, a trace or an error text
//! (invariant I12).
//!
//! Two ways to know one: its value (read from the environment or a file at start),
//! and its shape (tokens of well-known services, private keys, passwords in URLs).

use regex::Regex;
use serde_json::Value;
use std::sync::{Arc, LazyLock};

/// What stands in place of a secret.
pub const MASK: &str = "[redacted]";
/// Shorter values are not masked: they would mask ordinary words.
pub const VALUE_BYTES_MIN: usize = 6;

/// Shapes of tokens. Formats as their issuers document them.
static SHAPES: LazyLock<Regex> = LazyLock::new(|| {
    let shapes = [
        // OpenAI, Anthropic and others that begin alike; Stripe
        r"\bsk-[A-Za-z0-9_-]{20,}",
        r"\b[spr]k_(?:live|test)_[A-Za-z0-9]{10,}",
        // GitHub, GitLab, Slack
        r"\bgh[pousr]_[A-Za-z0-9]{30,}",
        r"\bgithub_pat_[A-Za-z0-9_]{30,}",
        r"\bglpat-[A-Za-z0-9_-]{18,}",
        r"\bxox[abeprs]-[A-Za-z0-9-]{10,}",
        // AWS access key id, Google API key
        r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
        r"\bAIza[A-Za-z0-9_-]{35}",
        // NATS seeds
        r"\bS[UAONCX][A-Z2-7]{54,}",
        // JSON web token
        r"\beyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]*",
        // HTTP authorization; "basic" alone is an ordinary word
        r#"(?i)\bauthorization["']?\s*[:=]\s*["']?(?:bearer|basic|token)\s+[^\s"']{6,}"#,
        r"(?i)\bbearer\s+[A-Za-z0-9._~+/=-]{20,}",
        // private keys
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)",
        // password in a URL
        r"(?P<url>[a-z][a-z0-9+.-]*://[^\s/:@]*:)[^\s/@]+@",
    ];
    // The patterns are constants and a test compiles them.
    #[allow(clippy::expect_used)]
    Regex::new(&shapes.join("|")).expect("constant patterns")
});

/// Masks secrets in texts and JSON. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Redactor {
    values: Arc<Values>,
}

#[derive(Default)]
struct Values(Vec<String>);

impl std::fmt::Debug for Values {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} values", self.0.len())
    }
}

impl Redactor {
    /// A redactor that knows these values, beside the shapes. Values shorter than
    /// [`VALUE_BYTES_MIN`] are left out.
    pub fn new(values: impl IntoIterator<Item = String>) -> Self {
        let mut values: Vec<_> = values
            .into_iter()
            .filter(|v| v.len() >= VALUE_BYTES_MIN)
            .collect();
        // The longest first: one secret may hold another.
        values.sort_by_key(|v| std::cmp::Reverse(v.len()));
        values.dedup();
        Self {
            values: Arc::new(Values(values)),
        }
    }

    /// Masks every secret in a text.
    pub fn text(&self, text: &str) -> String {
        let mut out = text.to_owned();
        for v in &self.values.0 {
            if out.contains(v.as_str()) {
                out = out.replace(v.as_str(), MASK);
            }
        }
        if SHAPES.is_match(&out) {
            out = SHAPES
                .replace_all(&out, |c: &regex::Captures<'_>| match c.name("url") {
                    Some(url) => format!("{}{MASK}@", url.as_str()),
                    None => MASK.to_owned(),
                })
                .into_owned();
        }
        out
    }

    /// Masks every secret in a JSON value, keys included.
    pub fn json(&self, value: &mut Value) {
        match value {
            Value::String(s) if self.holds_secret(s) => *s = self.text(s),
            Value::Array(items) => items.iter_mut().for_each(|v| self.json(v)),
            Value::Object(map) => {
                if map.keys().any(|k| self.holds_secret(k)) {
                    let old = std::mem::take(map);
                    map.extend(old.into_iter().map(|(k, v)| (self.text(&k), v)));
                }
                map.values_mut().for_each(|v| self.json(v));
            }
            _ => {}
        }
    }

    /// JSON pointer of the first value or key that holds a secret, if any does.
    pub fn find(&self, value: &Value) -> Option<String> {
        match value {
            Value::String(s) => self.holds_secret(s).then(String::new),
            Value::Array(items) => items
                .iter()
                .enumerate()
                .find_map(|(i, v)| Some(format!("/{i}{}", self.find(v)?))),
            Value::Object(map) => map.iter().find_map(|(k, v)| {
                if self.holds_secret(k) {
                    return Some(format!("/{MASK}"));
                }
                let inner = self.find(v)?;
                Some(format!("/{}{inner}", crate::json::pointer_escape(k)))
            }),
            _ => None,
        }
    }

    fn holds_secret(&self, text: &str) -> bool {
        self.values.0.iter().any(|v| text.contains(v.as_str())) || SHAPES.is_match(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn known_values_and_shapes_are_masked() {
        let r = Redactor::new(["hunter2-secret".to_owned(), "abc".to_owned()]);
        for (text, masked) in [
            ("pw hunter2-secret!", "pw [redacted]!"),
            ("abc stays", "abc stays"),
            ("key sk-proj-abcdefghijklmnop1234", "key [redacted]"),
            (
                "token ghp_0123456789012345678901234567890123",
                "token [redacted]",
            ),
            ("id AKIAIOSFODNN7EXAMPLE.", "id [redacted]."),
            (
                "postgres://u:p4ss@host/db",
                "postgres://u:[redacted]@host/db",
            ),
            ("Authorization: Basic dXNlcjpwdw==", "[redacted]"),
            ("a bearer abcdef0123456789abcdef", "a [redacted]"),
            (
                "the basic understanding-of-it",
                "the basic understanding-of-it",
            ),
            ("j eyJhbGciOi.eyJzdWIiOiIx.c2ln", "j [redacted]"),
            (
                "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----",
                "[redacted]",
            ),
            (
                "a plain sentence with a date 2026-01-01",
                "a plain sentence with a date 2026-01-01",
            ),
        ] {
            assert_eq!(r.text(text), masked);
        }
    }

    #[test]
    fn json_is_masked_in_depth() {
        let r = Redactor::new(["hunter2-secret".to_owned()]);
        let mut v = json!({"a": ["x hunter2-secret"], "hunter2-secret": {"b": 1}});
        r.json(&mut v);
        assert_eq!(v, json!({"a": ["x [redacted]"], "[redacted]": {"b": 1}}));
    }

    #[test]
    fn a_secret_is_found_with_its_place() {
        let r = Redactor::new(["hunter2-secret".to_owned()]);
        let v = json!({"a": [1, {"b/c": "my hunter2-secret"}]});
        assert_eq!(r.find(&v).as_deref(), Some("/a/1/b~1c"));
        assert_eq!(r.find(&json!({"a": ["nothing here", 5]})), None);
    }

    #[test]
    fn debug_shows_no_value() {
        let r = Redactor::new(["hunter2-secret".to_owned()]);
        assert!(!format!("{r:?}").contains("hunter2"));
    }
}
