//! The JSON Schema of a plan, as endpoints with structured output take it.
//!
//! Must never know: the endpoint.

use detent_protocol::expect::PROBE_OUTPUT;
use detent_protocol::messages::ToolView;
use detent_protocol::plan::DELAY_SECONDS_MAX;
use serde_json::{Value, json};

/// Paths that a model may look at: relative, of plain names, with no `..`. Narrower than
/// what a plan is checked for, and free of look-ahead, which many endpoints don't take.
const PATH: &str = "^[A-Za-z0-9_-]+([.][A-Za-z0-9_-]+)*(/[A-Za-z0-9_-]+([.][A-Za-z0-9_-]+)*)*$";

/// What a model may expect of a step: its own output, or a file below the goal's work
/// directory. Every other probe acts with the node's rights on what its parameters say,
/// so that only people name it.
fn expectation() -> Value {
    let form = |probe: &str, params: Value| {
        json!({
            "type": "object",
            "additionalProperties": false,
            "required": ["probe", "params", "schema"],
            "properties": {
                "probe": {"type": "string", "enum": [probe]},
                "params": params,
                "schema": {"type": "object"},
            }
        })
    };
    let output = json!({"type": "object", "additionalProperties": false, "properties": {}});
    let file = json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["path"],
        "properties": {
            "path": {"type": "string", "pattern": PATH},
            "parse": {"type": "string", "enum": ["none", "text", "json"]},
        }
    });
    json!({"anyOf": [form(PROBE_OUTPUT, output), form("file", file)]})
}

/// The schema of a plan that may use `tools`.
///
/// Arguments are any object: they may hold references, which a tool's own input
/// schema would refuse. Expectations are those that a model may have.
pub fn plan_schema(tools: &[ToolView]) -> Value {
    let names: Vec<_> = tools.iter().map(|t| t.name.as_str()).collect();
    let id = json!({"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"});
    let step = json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["id", "tool", "args"],
        "properties": {
            "id": id,
            "tool": {"type": "string", "enum": names},
            "args": {"type": "object"},
            "after": {"type": "array", "items": id},
            "delay_seconds": {"type": "integer", "minimum": 0, "maximum": DELAY_SECONDS_MAX},
            "expect": {"type": "array", "items": expectation()},
            "repeat": {"type": "boolean"},
        }
    });
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["steps", "result"],
        "properties": {
            "steps": {"type": "array", "items": step},
            "result": {"type": "object"},
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use detent_protocol::ToolName;
    use detent_protocol::contract::Contract;
    use detent_protocol::effect::Effect;
    use detent_protocol::plan;

    fn contract() -> Contract {
        let tool = ToolView {
            name: ToolName::new("fetch").unwrap(),
            description: String::new(),
            effect: Effect::Read,
            input_schema: json!({}),
        };
        Contract::compile(&plan_schema(&[tool])).unwrap()
    }

    fn full() -> Value {
        json!({
            "steps": [{"id": "a", "tool": "fetch", "args": {"p": {"$goal": "/p"}}, "after": [],
                "delay_seconds": 1, "repeat": false, "expect": [
                    {"probe": "output", "params": {}, "schema": {"required": ["rows"]}},
                    {"probe": "file", "params": {"path": "out/x.csv", "parse": "text"},
                        "schema": {"required": ["text"]}}]}],
            "result": {"rows": {"$step": "a"}}
        })
    }

    #[test]
    fn a_full_plan_meets_the_schema_and_an_invented_tool_does_not() {
        let mut full = full();
        contract().check(&full).unwrap();
        plan::parse(&full).unwrap();
        full["steps"][0]["tool"] = json!("summon");
        assert!(!contract().accepts(&full));
    }

    #[test]
    fn only_outputs_and_files_of_the_goal_can_be_expected() {
        let contract = contract();
        let expecting = |probe: &str, params: Value| {
            let mut plan = full();
            let schema = json!({"required": ["x"]});
            let e = json!({"probe": probe, "params": params, "schema": schema});
            plan["steps"][0]["expect"] = json!([e]);
            contract.accepts(&plan)
        };
        for path in ["x", "out/report.csv", "a/b-c/d_e.tar.gz"] {
            assert!(expecting("file", json!({"path": path})), "{path}");
        }
        for path in [
            "/etc/passwd",
            "../x",
            "a/../../x",
            "a/..",
            ":data/x",
            "",
            "a//b",
            "~/x",
        ] {
            assert!(!expecting("file", json!({"path": path})), "{path}");
        }
        let computed = json!({"$concat": ["/etc/", "passwd"]});
        for (probe, params) in [
            ("file", json!({"path": computed})),
            ("file", json!({"path": {"$goal": "/path"}})),
            ("file", json!({})),
            ("process", json!({"command": ["/bin/sh", "-c", "id"]})),
            ("http", json!({"url": "http://127.0.0.1/"})),
            ("sql", json!({"url": "sqlite:x", "query": "select 1"})),
            ("output", json!({"command": ["id"]})),
        ] {
            assert!(!expecting(probe, params.clone()), "{probe} {params}");
        }
    }
}
