//! What the simulated cluster is asked to do: agents whose tools cover every kind of
//! effect, each with a probe of its own.

use crate::node::Registry;
use detent_orchestrator::Definitions;
use detent_protocol::agent::{AgentDef, Compiled, CompiledTool, Definition, ToolDef};
use detent_protocol::effect::Effect;
use detent_protocol::{Fault, ToolName};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

/// How long a goal may take, milliseconds.
pub(crate) const DEADLINE_MS: u64 = 240_000;
/// How long a person may take to answer, milliseconds.
const ASK_MS: u64 = 40_000;

/// Definitions and tools, compiled.
#[derive(Clone)]
pub(crate) struct Workload {
    pub(crate) definitions: Definitions,
    pub(crate) registry: Registry,
    pub(crate) effects: BTreeMap<ToolName, Effect>,
}

/// Names of the agents.
pub(crate) const AGENTS: [&str; 4] = ["order", "ship", "batch", "brief"];

/// The workload of every run. Compiled once: contracts are the slowest thing here.
pub(crate) fn workload() -> &'static Workload {
    static WORKLOAD: OnceLock<Workload> = OnceLock::new();
    // It is written down here and compiled by a test.
    #[allow(clippy::expect_used)]
    WORKLOAD.get_or_init(|| compile().expect("the workload compiles"))
}

fn compile() -> Result<Workload, Fault> {
    let tools = tools();
    let mut registry = BTreeMap::new();
    for def in tools.values() {
        let tool = CompiledTool::compile(def)?;
        registry.insert((def.name.clone(), tool.digest), tool);
    }
    let agents = AGENTS.into_iter().map(|name| {
        let agent = agent(name)?;
        let tools = tools.clone();
        Compiled::compile(Definition { agent, tools })
    });
    let agents: Result<Vec<_>, Fault> = agents.collect();
    Ok(Workload {
        definitions: Definitions::new(agents?, []),
        registry: Arc::new(registry),
        effects: tools.into_iter().map(|(n, d)| (n, d.effect)).collect(),
    })
}

fn from_json<T: serde::de::DeserializeOwned>(value: Value) -> Result<T, Fault> {
    serde_json::from_value(value)
        .map_err(|e| Fault::new(detent_protocol::Code::ConfigInvalid, e.to_string()))
}

/// | tool | effect | declares |
/// |---|---|---|
/// | `fetch` | read | a fallback |
/// | `fetch-old` | read | second best |
/// | `put` | idempotent | keys that are kept |
/// | `stamp` | idempotent | keys that are kept 25 s, a settling time, a fallback |
/// | `set` | fenced | a settling time |
/// | `pay` | once | a settling time |
/// | `send` | once | nothing: whether it happened a person has to say |
fn tools() -> BTreeMap<ToolName, ToolDef> {
    let all = [
        json!({"name": "fetch", "effect": "read", "timeout_ms": 2000,
            "fallback": "fetch-old"}),
        json!({"name": "fetch-old", "effect": "read", "timeout_ms": 2000, "stale": true}),
        json!({"name": "put", "effect": "idempotent", "timeout_ms": 3000}),
        json!({"name": "stamp", "effect": "idempotent", "timeout_ms": 3000,
            "key_valid_for_ms": 25_000, "settles_within_ms": 3000,
            "fallback": "put"}),
        json!({"name": "set", "effect": "fenced", "timeout_ms": 2000,
            "settles_within_ms": 3000}),
        json!({"name": "pay", "effect": "once", "timeout_ms": 3000,
            "settles_within_ms": 6000}),
        json!({"name": "send", "effect": "once", "timeout_ms": 2000}),
    ];
    all.into_iter().filter_map(tool).collect()
}

fn tool(mut def: Value) -> Option<(ToolName, ToolDef)> {
    let merge = json!({
        "kind": "sim",
        "identity": ["/item"],
        "input_schema": {"type": "object", "required": ["item"]},
        "retry": {"attempts_max": 3, "backoff_ms": 200, "backoff_ms_max": 2000},
    });
    detent_protocol::goal::merge_patch(&mut def, &merge);
    if def["effect"] == "read" {
        def["identity"] = json!([]);
    } else {
        let name = def["name"].clone();
        def["probe"] = json!({
            "probe": "sql",
            "params": {"tool": name, "item": {"$args": "/item"}},
            "schema": {"properties": {"row_count": {"minimum": 1}}, "required": ["row_count"]},
            "output_at": "/rows/0",
        });
    }
    let def: ToolDef = from_json(def).ok()?;
    Some((def.name.clone(), def))
}

fn agent(name: &str) -> Result<AgentDef, Fault> {
    let tools = tools();
    let tools: Vec<_> = tools.keys().filter(|t| t.as_str() != "fetch-old").collect();
    from_json(json!({
        "name": name,
        "input_schema": {"type": "object", "required": ["item"]},
        "result_schema": {"type": "object", "required": ["item"]},
        "tools": tools,
        "playbook": playbook(name),
        "deadline_ms": DEADLINE_MS,
        "policy": {"replans_max": 2, "ask_ms": ASK_MS, "parallel_max": 4},
        "budget": {"plan_calls": 60, "tokens": 1000, "tool_calls": 60},
    }))
}

fn step(id: &str, tool: &str, after: &[&str]) -> Value {
    json!({
        "id": id, "tool": tool, "after": after,
        "args": {"item": {"$goal": "/item"}, "amount": {"$goal": "/amount"}},
    })
}

fn playbook(agent: &str) -> Value {
    let steps = match agent {
        "order" => vec![
            step("fetch", "fetch", &[]),
            step("put", "put", &["fetch"]),
            step("pay", "pay", &["put"]),
        ],
        "ship" => vec![
            step("set", "set", &[]),
            step("send", "send", &[]),
            step("fetch", "fetch", &["set", "send"]),
        ],
        "batch" => vec![
            json!({"id": "each", "tool": "put", "for_each": {"goal": "/items", "as": "one"},
                "args": {"item": {"$item": "/name"}}}),
            step("pay", "pay", &["each"]),
            step("fetch", "fetch", &["pay"]),
        ],
        _ => vec![
            step("stamp", "stamp", &[]),
            step("set", "set", &["stamp"]),
            step("fetch", "fetch", &["stamp"]),
        ],
    };
    // A part of the result has to come from a step.
    json!({"steps": steps, "result": {"item": {"$step": "fetch", "at": "/item"}}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workload_compiles_and_covers_every_effect() {
        let workload = compile().unwrap();
        assert_eq!(workload.effects.len(), 7);
        for effect in [
            Effect::Read,
            Effect::Idempotent,
            Effect::Fenced,
            Effect::Once,
        ] {
            assert!(
                workload.effects.values().any(|e| *e == effect),
                "{effect:?}"
            );
        }
    }
}
