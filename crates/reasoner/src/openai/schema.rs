//! The JSON Schema of a plan, as endpoints with structured output take it.
//!
//! Must never know: the endpoint.

use detent_protocol::expect::PROBES;
use detent_protocol::messages::ToolView;
use detent_protocol::plan::DELAY_SECONDS_MAX;
use serde_json::{Value, json};

/// The schema of a plan that may use `tools`.
///
/// Arguments are any object: they may hold references, which a tool's own input
/// schema would refuse.
pub fn plan_schema(tools: &[ToolView]) -> Value {
    let names: Vec<_> = tools.iter().map(|t| t.name.as_str()).collect();
    let id = json!({"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"});
    let expectation = json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["probe", "params", "schema"],
        "properties": {
            "probe": {"type": "string", "enum": PROBES},
            "params": {"type": "object"},
            "schema": {"type": "object"},
            "absent": {"type": "object"},
            "output_at": {"type": "string"},
        }
    });
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
            "expect": {"type": "array", "items": expectation},
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

    #[test]
    fn a_full_plan_meets_the_schema_and_an_invented_tool_does_not() {
        let tool = ToolView {
            name: ToolName::new("fetch").unwrap(),
            description: String::new(),
            effect: Effect::Read,
            input_schema: json!({}),
        };
        let contract = Contract::compile(&plan_schema(&[tool])).unwrap();
        let mut full = json!({
            "steps": [{"id": "a", "tool": "fetch", "args": {"p": {"$goal": "/p"}}, "after": [],
                "delay_seconds": 1, "repeat": false, "expect": [{"probe": "file",
                "params": {"path": "x"}, "schema": {"required": ["exists"]}, "absent": {},
                "output_at": ""}]}],
            "result": {"rows": {"$step": "a"}}
        });
        contract.check(&full).unwrap();
        plan::parse(&full).unwrap();
        full["steps"][0]["tool"] = json!("summon");
        assert!(!contract.accepts(&full));
    }
}
