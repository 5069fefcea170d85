//! Expectations: what must be seen in the real world after a step.

use crate::contract::Contract;
use crate::error::{Code, Fault};
use crate::json::Digest;
use crate::template::{self, Reference};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The kind of probe that only reads the tool's own output. Good enough for `read`,
/// refused for a tool with an effect (invariant I6).
pub const PROBE_OUTPUT: &str = "output";

/// Stands as the probe in evidence that a person gave by answering a question. No plan
/// and no tool can ask for it.
pub const PROBE_PERSON: &str = "person";

/// What to look at, and what it must look like.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    /// Kind of probe: `file`, `sql`, `http`, `process`, or `output`.
    pub probe: String,
    /// Parameters of the probe; a [`crate::template`] over `$args`, `$goal`, `$meta`
    /// and, outside a tool's own probe, `$output`.
    #[serde(default)]
    pub params: Value,
    /// JSON Schema that the observed value must meet: the effect is there and right.
    pub schema: Value,
    /// JSON Schema of an observation that proves the effect absent. Default: the
    /// probe kind's own form of "nothing there".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absent: Option<Value>,
    /// JSON pointer into the observed value that gives the tool's output when the
    /// effect is found but the output was lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_at: Option<String>,
}

/// What a probe of this kind sees when nothing is there. An expectation that these
/// meet would be met also if nothing had happened.
pub fn nothing_there(probe: &str) -> Vec<Value> {
    match probe {
        "file" => vec![json!({"exists": false})],
        "sql" => vec![
            json!({"rows": [], "row_count": 0}),
            json!({"missing": true, "rows": [], "row_count": 0}),
        ],
        "http" => vec![
            json!({"status": 404, "body": null}),
            json!({"status": 404, "body": ""}),
        ],
        "process" => vec![
            json!({"exit_code": 1, "output": null}),
            json!({"exit_code": 1}),
        ],
        // A tool's output is always an object.
        _ => vec![json!({})],
    }
}

/// Default schema of "proven absent" for a probe kind, if it has one. A process
/// probe's failure proves nothing, so it has none.
pub fn absent_schema(probe: &str) -> Option<Value> {
    match probe {
        "file" => Some(json!({"properties": {"exists": {"const": false}}, "required": ["exists"]})),
        "sql" => {
            Some(json!({"properties": {"row_count": {"const": 0}}, "required": ["row_count"]}))
        }
        "http" => {
            Some(json!({"properties": {"status": {"enum": [404, 410]}}, "required": ["status"]}))
        }
        _ => None,
    }
}

/// Probe kinds that exist.
pub const PROBES: [&str; 5] = ["file", "sql", "http", "process", PROBE_OUTPUT];

impl Expectation {
    /// Refuses what proves nothing, with [`Code::ExpectationTrivial`], and what is
    /// malformed, with [`Code::PlanInvalid`].
    pub fn lint(&self, has_effect: bool) -> Result<(), Fault> {
        if !PROBES.contains(&self.probe.as_str()) {
            let message = format!("no probe {:?}; there are {}", self.probe, PROBES.join(", "));
            return Err(Fault::new(Code::PlanInvalid, message).at("/probe"));
        }
        if has_effect && self.probe == PROBE_OUTPUT {
            let message = "a tool with an effect is not proven by its own output";
            return Err(Fault::new(Code::ExpectationTrivial, message).at("/probe"));
        }
        let compile = |schema: &Value| {
            Contract::compile(schema)
                .map_err(|f| Fault::new(Code::PlanInvalid, f.message).at("/schema"))
        };
        let contract = compile(&self.schema)?;
        if let Some(absent) = &self.absent {
            compile(absent)?;
        }
        if nothing_there(&self.probe)
            .iter()
            .any(|v| contract.accepts(v))
        {
            let message = "the expectation is met also when nothing is there";
            return Err(Fault::new(Code::ExpectationTrivial, message).at("/schema"));
        }
        template::walk(&self.params, &mut |_, _| ())
    }

    /// May a model ask for this? Only for what a tool without an effect said itself, and
    /// for files below the goal's own folder: a probe runs with the node's rights, and
    /// one of kind `process` runs any program.
    pub fn may_be_untrusted(&self) -> Result<(), Fault> {
        let inside = |path: &str| {
            let up = path.split('/').any(|part| part == "..");
            !path.is_empty() && !path.starts_with('/') && !path.contains(':') && !up
        };
        let denied = match self.probe.as_str() {
            PROBE_OUTPUT => return Ok(()),
            "file" => match self.params.get("path").and_then(Value::as_str) {
                Some(path) if inside(path) => return Ok(()),
                _ => Fault::new(
                    Code::PolicyDenied,
                    "a model may look only at files below the goal's folder, by a plain path",
                )
                .at("/params/path"),
            },
            other => Fault::new(
                Code::PolicyDenied,
                format!("a model may not use probe {other}; it runs with the node's rights"),
            )
            .at("/probe"),
        };
        Err(denied)
    }

    /// Does any parameter come from the tool's own output?
    pub fn needs_output(&self) -> bool {
        let mut needs = false;
        let _ = template::walk(&self.params, &mut |r, _| {
            needs |= matches!(r, Reference::Output(_));
        });
        needs
    }

    /// Schema of "proven absent", if there is one.
    pub fn absent(&self) -> Option<Value> {
        self.absent.clone().or_else(|| absent_schema(&self.probe))
    }
}

/// How an observation compares with its expectation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It is there and right.
    Met,
    /// It is proven not to be there.
    Absent,
    /// Something is there, but not what was expected: half an effect, or another's.
    Mismatch {
        /// What is wrong with it.
        why: String,
    },
    /// The probe could not look.
    Unavailable {
        /// Why not.
        fault: Fault,
    },
}

/// Proof that goes into the result: what was looked at, when, how, and the digest of
/// what was seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Evidence {
    /// Kind of probe.
    pub probe: String,
    /// What was looked at, for people: a path, a query, an address.
    pub what: String,
    /// When, Unix time in milliseconds on the observer's clock.
    pub at_ms: u64,
    /// Digest of the observed value.
    pub digest: Digest,
    /// The observed value, cut to a summary where it is large.
    pub seen: Value,
}

/// One observation: a verdict and its evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Observation {
    /// How it compares.
    pub verdict: Verdict,
    /// What was seen; absent where the probe could not look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Evidence>,
    /// The tool's output as the probe found it (see [`Expectation::output_at`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expectation(probe: &str, schema: Value) -> Expectation {
        Expectation {
            probe: probe.into(),
            params: json!({}),
            schema,
            absent: None,
            output_at: None,
        }
    }

    #[test]
    fn trivially_true_expectations_are_refused() {
        for (probe, schema) in [
            ("file", json!(true)),
            ("file", json!({})),
            ("file", json!({"type": "object"})),
            ("file", json!({"required": ["exists"]})),
            ("sql", json!({"properties": {"row_count": {"minimum": 0}}})),
            (
                "sql",
                json!({"anyOf": [{}, {"properties": {"row_count": {"const": 1}}}]}),
            ),
            ("http", json!({"required": ["status"]})),
            ("process", json!({"required": ["exit_code"]})),
        ] {
            let f = expectation(probe, schema.clone()).lint(true).unwrap_err();
            assert_eq!(f.code, Code::ExpectationTrivial, "{probe} {schema}");
        }
        let real = json!({"properties": {"row_count": {"const": 1}}, "required": ["row_count"]});
        expectation("sql", real).lint(true).unwrap();
    }

    #[test]
    fn a_model_may_not_use_the_rights_of_the_node() {
        let schema = json!({"required": ["rows"]});
        for (probe, params, may) in [
            ("output", json!({}), true),
            ("file", json!({"path": "out/report.md"}), true),
            ("file", json!({"path": "/etc/passwd"}), false),
            ("file", json!({"path": "a/../../b"}), false),
            ("file", json!({"path": "config:x"}), false),
            ("file", json!({"path": {"$goal": "/p"}}), false),
            ("process", json!({"command": ["id"]}), false),
            ("http", json!({"url": "http://127.0.0.1"}), false),
            ("sql", json!({"database": "x", "query": "select 1"}), false),
        ] {
            let mut e = expectation(probe, schema.clone());
            e.params = params.clone();
            let allowed = e.may_be_untrusted();
            assert_eq!(allowed.is_ok(), may, "{probe} {params}");
            assert!(may || allowed.unwrap_err().code == Code::PolicyDenied);
        }
    }

    #[test]
    fn own_output_is_no_proof_of_an_effect() {
        let e = expectation("output", json!({"required": ["rows"]}));
        assert_eq!(e.lint(true).unwrap_err().code, Code::ExpectationTrivial);
        e.lint(false).unwrap();
    }
}
