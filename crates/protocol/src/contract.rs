//! Contracts: JSON Schemas, compiled once, that a value must meet.
//!
//! `format` is asserted (the validator does not by itself) and nothing is ever
//! fetched: a schema with a remote or file reference does not compile. A violation
//! names the place, the rule and the type that was found, never the value: what
//! breaks a contract may be a secret in the wrong field.

use crate::error::{Code, Fault};
use crate::json;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;
use std::sync::Arc;

/// Most violations that are reported for one value.
pub const VIOLATIONS_MAX: usize = 8;

/// One broken rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Violation {
    /// JSON pointer of the value that breaks it; empty is the whole.
    pub at: String,
    /// The rule, e.g. `required "date_range"`, `type "string"`, `format "date"`.
    pub rule: String,
    /// JSON type of what was found.
    pub found: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = if self.at.is_empty() { "/" } else { &self.at };
        write!(f, "{at}: breaks {}, found {}", self.rule, self.found)
    }
}

/// A compiled JSON Schema (draft 2020-12 unless `$schema` says otherwise). Cheap to
/// clone, usable from many threads.
#[derive(Clone)]
pub struct Contract {
    validator: Arc<jsonschema::Validator>,
    schema: Arc<Value>,
}

impl fmt::Debug for Contract {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Contract({})", self.schema)
    }
}

impl Contract {
    /// Compiles `schema`; fails with [`Code::ConfigInvalid`] when it is none or
    /// refers to anything outside itself.
    pub fn compile(schema: &Value) -> Result<Self, Fault> {
        let validator = jsonschema::options()
            .should_validate_formats(true)
            .build(schema)
            .map_err(|e| {
                Fault::new(
                    Code::ConfigInvalid,
                    format!("not a usable JSON Schema: {e}"),
                )
                .at(e.instance_path().to_string())
            })?;
        Ok(Self {
            validator: Arc::new(validator),
            schema: Arc::new(schema.clone()),
        })
    }

    /// The schema it was compiled from.
    pub fn schema(&self) -> &Value {
        &self.schema
    }

    /// Does `value` meet the contract?
    pub fn accepts(&self, value: &Value) -> bool {
        self.validator.is_valid(value)
    }

    /// Checks `value`; at most [`VIOLATIONS_MAX`] violations are named.
    pub fn check(&self, value: &Value) -> Result<(), Vec<Violation>> {
        if self.accepts(value) {
            return Ok(());
        }
        let found: Vec<_> = self
            .validator
            .iter_errors(value)
            .take(VIOLATIONS_MAX)
            .map(|e| self.violation(&e))
            .collect();
        Err(found)
    }

    /// Like [`Contract::check`], as one fault with `code`.
    pub fn check_as(&self, code: Code, value: &Value) -> Result<(), Fault> {
        self.check(value).map_err(|found| fault_of(code, &found))
    }

    fn violation(&self, e: &jsonschema::ValidationError<'_>) -> Violation {
        let schema_path = e.schema_path().to_string();
        let keyword = schema_path.rsplit('/').next().unwrap_or_default();
        Violation {
            at: e.instance_path().to_string(),
            rule: self.rule_text(keyword, &schema_path),
            found: json::type_name(e.instance()).to_owned(),
        }
    }

    /// The keyword with its argument from the schema, which is public, unlike the value.
    fn rule_text(&self, keyword: &str, schema_path: &str) -> String {
        let argument = self.schema.pointer(schema_path).map(json::canonical);
        match argument {
            Some(a) if a.len() <= 120 => format!("{keyword} {a}"),
            _ => keyword.to_owned(),
        }
    }
}

/// One fault for a list of violations; its place is the first one's.
pub fn fault_of(code: Code, violations: &[Violation]) -> Fault {
    let text: Vec<_> = violations.iter().map(ToString::to_string).collect();
    let first = violations.first().map(|v| v.at.clone()).unwrap_or_default();
    Fault::new(code, text.join("; ")).at(if first.is_empty() { "/".into() } else { first })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn contract() -> Contract {
        Contract::compile(&json!({
            "type": "object",
            "required": ["product", "from"],
            "additionalProperties": false,
            "properties": {
                "product": {"type": "string", "minLength": 1},
                "from": {"type": "string", "format": "date"},
            }
        }))
        .unwrap()
    }

    #[test]
    fn formats_are_asserted() {
        let c = contract();
        assert!(c.accepts(&json!({"product": "w", "from": "2026-02-28"})));
        let v = c
            .check(&json!({"product": "w", "from": "2026-02-30"}))
            .unwrap_err();
        assert_eq!(v[0].at, "/from");
        assert_eq!(v[0].rule, "format \"date\"");
    }

    #[test]
    fn a_violation_names_place_rule_and_type_but_not_the_value() {
        let secret = "sk-live-0123456789abcdef";
        let v = contract()
            .check(&json!({"product": [secret], "from": secret}))
            .unwrap_err();
        let text = format!("{v:?} {}", fault_of(Code::InputInvalid, &v));
        assert!(!text.contains(secret), "{text}");
        assert!(v.iter().any(|v| v.at == "/product" && v.found == "array"));
    }

    #[test]
    fn a_missing_field_is_named() {
        let v = contract().check(&json!({"product": "w"})).unwrap_err();
        assert!(v[0].rule.contains("from"), "{v:?}");
    }

    #[test]
    fn nothing_is_fetched() {
        for r in [
            "http://127.0.0.1:1/s.json",
            "file:///etc/passwd",
            "other.json",
        ] {
            let e = Contract::compile(&json!({"$ref": r})).unwrap_err();
            assert_eq!(e.code, Code::ConfigInvalid);
        }
    }

    #[test]
    fn violations_are_bounded() {
        let c = Contract::compile(&json!({"items": {"type": "string"}})).unwrap();
        let many = json!((0..1000).collect::<Vec<_>>());
        assert_eq!(c.check(&many).unwrap_err().len(), VIOLATIONS_MAX);
    }
}
