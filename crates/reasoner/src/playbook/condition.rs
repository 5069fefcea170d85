//! `when`: is a step wanted for this input?
//!
//! Must never know: the step.

use detent_protocol::contract::Contract;
use detent_protocol::json::is_pointer;
use detent_protocol::{Code, Fault};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// A condition on the goal's effective input.
#[derive(Debug)]
pub(super) struct Condition {
    goal: String,
    test: Test,
    /// As written: equal texts are equal conditions.
    raw: Value,
}

#[derive(Debug)]
enum Test {
    Equals(Value),
    Exists(bool),
    Schema(Contract),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    goal: String,
    #[serde(default, deserialize_with = "given")]
    equals: Option<Value>,
    exists: Option<bool>,
    #[serde(default, deserialize_with = "given")]
    schema: Option<Value>,
}

/// `null` is a value here, not an absence.
fn given<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(d).map(Some)
}

impl Condition {
    /// Reads a condition; the fault's place is relative to it.
    pub(super) fn parse(raw: &Value) -> Result<Self, Fault> {
        let invalid = |m: String| Fault::new(Code::PlanInvalid, m).at("");
        let parts = Raw::deserialize(raw).map_err(|e| invalid(format!("not a condition: {e}")))?;
        if !is_pointer(&parts.goal) {
            let message = "a JSON pointer is empty or starts with /".to_owned();
            return Err(invalid(message).at("/goal"));
        }
        let test = match (parts.equals, parts.exists, parts.schema) {
            (Some(v), None, None) => Test::Equals(v),
            (None, Some(b), None) => Test::Exists(b),
            (None, None, Some(s)) => {
                let compiled = Contract::compile(&s);
                Test::Schema(compiled.map_err(|f| invalid(f.message).at("/schema"))?)
            }
            _ => {
                let message = "a condition has exactly one of equals, exists, schema";
                return Err(invalid(message.to_owned()));
            }
        };
        Ok(Self {
            goal: parts.goal,
            test,
            raw: raw.clone(),
        })
    }

    /// Does `input` meet it? What is not there equals nothing and meets no schema.
    pub(super) fn holds(&self, input: &Value) -> bool {
        let found = input.pointer(&self.goal);
        match &self.test {
            Test::Equals(v) => found == Some(v),
            Test::Exists(wanted) => found.is_some() == *wanted,
            Test::Schema(contract) => found.is_some_and(|v| contract.accepts(v)),
        }
    }
}

impl PartialEq for Condition {
    fn eq(&self, other: &Self) -> bool {
        self.raw == other.raw
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn conditions_look_at_the_input() {
        let input = json!({"format": "pdf", "n": 3, "to": null, "list": ["a"]});
        for (condition, holds) in [
            (json!({"goal": "/format", "equals": "pdf"}), true),
            (json!({"goal": "/format", "equals": "csv"}), false),
            (json!({"goal": "/to", "equals": null}), true),
            (json!({"goal": "/absent", "equals": null}), false),
            (json!({"goal": "/to", "exists": true}), true),
            (json!({"goal": "/absent", "exists": true}), false),
            (json!({"goal": "/absent", "exists": false}), true),
            (json!({"goal": "/n", "schema": {"minimum": 3}}), true),
            (json!({"goal": "/n", "schema": {"minimum": 4}}), false),
            (json!({"goal": "/absent", "schema": true}), false),
            (json!({"goal": "", "schema": {"required": ["n"]}}), true),
        ] {
            let parsed = Condition::parse(&condition).unwrap();
            assert_eq!(parsed.holds(&input), holds, "{condition}");
        }
    }

    #[test]
    fn what_is_no_condition_is_refused_with_its_place() {
        for (bad, at) in [
            (json!(true), ""),
            (json!({"goal": "/a"}), ""),
            (json!({"equals": 1}), ""),
            (json!({"goal": "a", "equals": 1}), "/goal"),
            (json!({"goal": "/a", "equals": 1, "exists": true}), ""),
            (json!({"goal": "/a", "equals": 1, "else": 2}), ""),
            (
                json!({"goal": "/a", "schema": {"type": "nothing"}}),
                "/schema",
            ),
            (
                json!({"goal": "/a", "schema": {"$ref": "http://127.0.0.1/s"}}),
                "/schema",
            ),
        ] {
            let fault = Condition::parse(&bad).unwrap_err();
            assert_eq!(fault.code, Code::PlanInvalid, "{bad}");
            assert_eq!(fault.at.as_deref(), Some(at), "{bad}");
        }
    }
}
