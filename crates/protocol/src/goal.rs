//! A goal as a publisher submits it, and the answer.

use crate::budget::Limits;
use crate::envelope::Message;
use crate::error::{Code, Fault};
use crate::ids::{AgentName, GoalId, TenantId};
use crate::json::Digest;
use crate::result::GoalResult;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Longest idempotency key, bytes.
pub const KEY_BYTES_MAX: usize = 128;

/// A publisher's name for one submission: the same key never makes a second goal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct IdempotencyKey {
    /// 1 to 128 bytes ([`KEY_BYTES_MAX`]), no control characters.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = KEY_BYTES_MAX)))]
    pub key: String,
    /// When the publisher made it, Unix time in milliseconds. A key older than keys
    /// are kept is refused, never taken anew.
    pub issued_at_ms: u64,
}

/// A goal to be taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Submit {
    /// Whose goal it is.
    #[serde(default)]
    pub tenant: TenantId,
    /// Who is to reach it.
    pub agent: AgentName,
    /// What is wanted; has to meet the agent's `input_schema`.
    pub input: Value,
    /// Makes the submission repeatable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<IdempotencyKey>,
    /// Deadline from acceptance, milliseconds; the agent's own is the most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub deadline_ms: Option<u64>,
    /// Lower limits than the agent's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Limits>,
    /// W3C trace id of the publisher, 32 hex digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(regex(pattern = "^[0-9A-Fa-f]{32}$")))]
    pub trace: Option<String>,
}

impl Message for Submit {
    const KIND: &'static str = "submit";
}

impl Submit {
    /// What makes two submissions with one key the same: everything but the key's
    /// time and the trace.
    pub fn body_digest(&self) -> Digest {
        let body = serde_json::json!({
            "agent": self.agent, "input": self.input,
            "deadline_ms": self.deadline_ms, "budget": self.budget,
        });
        Digest::of_json(&body)
    }

    /// Checks what the types can't, apart from the agent's contract.
    pub fn lint(&self) -> Result<(), Fault> {
        let wrong = |at: &str, m: &str| Err(Fault::new(Code::InputInvalid, m).at(at));
        if let Some(k) = &self.key {
            let length = 1..=KEY_BYTES_MAX;
            if !length.contains(&k.key.len()) || k.key.chars().any(char::is_control) {
                return wrong(
                    "/key/key",
                    "takes 1 to 128 bytes without control characters",
                );
            }
        }
        if self.deadline_ms == Some(0) {
            return wrong("/deadline_ms", "takes at least 1 ms");
        }
        if let Some(t) = &self.trace
            && (t.len() != 32 || !t.bytes().all(|b| b.is_ascii_hexdigit()))
        {
            return wrong("/trace", "takes 32 hex digits");
        }
        Ok(())
    }

    /// The id that the key gives, if there is a key.
    pub fn keyed_id(&self) -> Option<GoalId> {
        let key = self.key.as_ref()?;
        Some(GoalId::from_key(&self.tenant, &self.agent, &key.key))
    }
}

/// The goal is in the journal: it will end with exactly one result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Accepted {
    /// Its id.
    pub goal: GoalId,
    /// The key named a goal that was there before; nothing new was started.
    pub duplicate: bool,
    /// The result, where that goal had ended already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<GoalResult>,
}

/// A change to a running goal: a JSON merge patch (RFC 7396) on its input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Amendment {
    /// The patch.
    pub patch: Value,
    /// Who asked for it.
    pub by: String,
}

/// Applies a JSON merge patch (RFC 7396).
pub fn merge_patch(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    let Value::Object(map) = target else { return };
    for (key, value) in patch {
        if value.is_null() {
            map.remove(key);
        } else {
            merge_patch(map.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn merge_patch_examples_of_the_rfc() {
        for (target, patch, result) in [
            (json!({"a":"b"}), json!({"a":"c"}), json!({"a":"c"})),
            (
                json!({"a":"b","b":"c"}),
                json!({"a":null}),
                json!({"b":"c"}),
            ),
            (json!({"a":["b"]}), json!({"a":"c"}), json!({"a":"c"})),
            (
                json!({"a":{"b":"c"}}),
                json!({"a":{"b":"d","c":null}}),
                json!({"a":{"b":"d"}}),
            ),
            (
                json!(["a"]),
                json!({"a":{"bb":{"ccc":null}}}),
                json!({"a":{"bb":{}}}),
            ),
            (json!({"a":"foo"}), json!("bar"), json!("bar")),
        ] {
            let mut got = target.clone();
            merge_patch(&mut got, &patch);
            assert_eq!(got, result, "{target} + {patch}");
        }
    }

    #[test]
    fn the_key_time_and_trace_do_not_change_the_body() {
        let a: Submit = serde_json::from_value(json!({"agent":"a","input":{},
            "key":{"key":"k","issued_at_ms":1}}))
        .unwrap();
        let b: Submit = serde_json::from_value(json!({"agent":"a","input":{},
            "key":{"key":"k","issued_at_ms":2}, "trace":"0".repeat(32)}))
        .unwrap();
        assert_eq!(a.body_digest(), b.body_digest());
        assert_eq!(a.keyed_id(), b.keyed_id());
    }

    #[test]
    fn junk_is_refused_with_its_place() {
        let mut s: Submit = serde_json::from_value(json!({"agent":"a","input":{}})).unwrap();
        s.key = Some(IdempotencyKey {
            key: "x\n".into(),
            issued_at_ms: 0,
        });
        assert_eq!(s.lint().unwrap_err().at.as_deref(), Some("/key/key"));
        let unknown = serde_json::from_value::<Submit>(json!({"agent":"a","input":{},"foo":1}));
        assert!(unknown.unwrap_err().to_string().contains("foo"));
    }
}
