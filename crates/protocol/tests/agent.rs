//! What a definition has to pass before a node takes it.
#![allow(missing_docs)]

use detent_protocol::Code;
use detent_protocol::agent::{Compiled, Definition, ToolDef};
use detent_protocol::goal::merge_patch;
use serde_json::{Value, json};

/// A file probe that can fail, over the arguments.
fn probe() -> Value {
    json!({"probe": "file", "params": {"path": {"$args": "/path"}},
        "schema": {"properties": {"exists": {"const": true}}, "required": ["exists"]}})
}

/// Code and place of what is wrong with a tool that differs by `patch`.
fn tool(patch: Value) -> Result<(), (Code, String)> {
    let mut entry = json!({"name": "pay", "effect": "once", "kind": "process", "probe": probe()});
    merge_patch(&mut entry, &patch);
    let def: ToolDef = serde_json::from_value(entry).unwrap();
    def.lint().map_err(|f| (f.code, f.at.unwrap_or_default()))
}

/// The same for a definition.
fn compile(patch: Value) -> Result<Compiled, (Code, String)> {
    let mut entry = json!({
        "agent": {"name": "shop", "input_schema": true, "result_schema": true, "tools": ["get"]},
        "tools": {"get": {"name": "get", "effect": "read", "kind": "process"}}});
    merge_patch(&mut entry, &patch);
    let definition: Definition = serde_json::from_value(entry).unwrap();
    Compiled::compile(definition).map_err(|f| (f.code, f.at.unwrap_or_default()))
}

#[test]
fn a_tools_numbers_have_bounds() {
    assert_eq!(tool(json!({})), Ok(()));
    for (patch, at) in [
        (json!({"retry": {"attempts_max": 0}}), "retry.attempts_max"),
        (json!({"retry": {"attempts_max": 21}}), "retry.attempts_max"),
        (json!({"timeout_ms": 0}), "timeout_ms"),
        (json!({"timeout_ms": 86_400_001}), "timeout_ms"),
        (json!({"output_bytes_max": 0}), "output_bytes_max"),
        (json!({"output_bytes_max": 67_108_865}), "output_bytes_max"),
        (json!({"identity": ["path"]}), "identity"),
        (json!({"fallback": "pay"}), "fallback"),
    ] {
        assert_eq!(
            tool(patch.clone()),
            Err((Code::ConfigInvalid, at.into())),
            "{patch}"
        );
    }
}

#[test]
fn a_probe_must_be_able_to_fail_and_must_not_need_the_output() {
    let trivial = tool(
        json!({"probe": {"schema": {"properties": null, "required": null, "type": "object"}}}),
    );
    assert_eq!(
        trivial,
        Err((Code::ExpectationTrivial, "probe.schema".into()))
    );
    let own = tool(json!({"probe": {"probe": "output"}}));
    assert_eq!(own, Err((Code::ExpectationTrivial, "probe.probe".into())));
    let lost = tool(json!({"probe": {"params": {"path": {"$args": null, "$output": "/path"}}}}));
    assert_eq!(lost, Err((Code::ConfigInvalid, "probe.params".into())));
    let unknown = tool(json!({"probe": {"probe": "guess"}}));
    assert_eq!(unknown, Err((Code::ConfigInvalid, "probe.probe".into())));
    let broken = tool(json!({"probe": {"schema": {"type": "nothing"}}}));
    assert_eq!(broken, Err((Code::ConfigInvalid, "probe.schema".into())));
}

#[test]
fn the_probe_of_a_read_may_look_at_its_output() {
    assert_eq!(
        tool(
            json!({"effect": "read", "probe": {"params": {"path": {"$args": null, "$output": "/p"}}}})
        ),
        Ok(())
    );
}

#[test]
fn an_agents_numbers_and_names_are_checked_with_their_place() {
    assert!(compile(json!({})).is_ok());
    for (patch, at) in [
        (
            json!({"agent": {"policy": {"parallel_max": 0}}}),
            "agents.shop.policy.parallel_max",
        ),
        (
            json!({"agent": {"policy": {"parallel_max": 257}}}),
            "agents.shop.policy.parallel_max",
        ),
        (
            json!({"agent": {"policy": {"steps_max": 0}}}),
            "agents.shop.policy.steps_max",
        ),
        (
            json!({"agent": {"policy": {"steps_max": 1001}}}),
            "agents.shop.policy.steps_max",
        ),
        (json!({"agent": {"reasoners": []}}), "agents.shop.reasoners"),
        (
            json!({"agent": {"tools": ["get", "put"]}}),
            "agents.shop.tools",
        ),
        (
            json!({"tools": {"get": {"fallback": "put"}}}),
            "agents.shop.tools",
        ),
        (
            json!({"agent": {"input_schema": {"type": "nothing"}}}),
            "agents.shop.input_schema",
        ),
        (
            json!({"agent": {"result_schema": {"$ref": "http://127.0.0.1/x"}}}),
            "agents.shop.result_schema",
        ),
        (
            json!({"tools": {"get": {"input_schema": {"type": 1}}}}),
            "tools.get.input_schema",
        ),
        (
            json!({"tools": {"get": {"output_schema": {"type": 1}}}}),
            "tools.get.output_schema",
        ),
        (
            json!({"tools": {"get": {"timeout_ms": 0}}}),
            "tools.get.timeout_ms",
        ),
    ] {
        let found = compile(patch.clone()).map(|_| ()).unwrap_err();
        assert_eq!(found, (Code::ConfigInvalid, at.into()), "{patch}");
    }
}

#[test]
fn unknown_keys_are_refused() {
    for entry in [
        json!({"name": "x", "effect": "read", "kind": "process", "timeout": 5}),
        json!({"name": "x", "effect": "read", "kind": "process", "retry": {"max": 5}}),
        json!({"name": "x", "effect": "maybe", "kind": "process"}),
        json!({"name": "x y", "effect": "read", "kind": "process"}),
    ] {
        assert!(
            serde_json::from_value::<ToolDef>(entry.clone()).is_err(),
            "{entry}"
        );
    }
}

#[test]
fn a_fallback_can_be_reached_but_not_planned_with() {
    let more = json!({"tools": {"get": {"fallback": "old"}, "old": {"name": "old", "effect": "read", "kind": "process"}}});
    let compiled = compile(more).unwrap();
    let old = detent_protocol::ToolName::new("old").unwrap();
    assert!(compiled.tool(&old).is_some());
    assert!(!compiled.may_plan(&old));
}

#[test]
fn any_change_gives_another_digest_and_the_order_of_keys_does_not() {
    let digest = |patch: Value| compile(patch).unwrap().digest();
    assert_eq!(digest(json!({})), digest(json!({})));
    assert_ne!(
        digest(json!({})),
        digest(json!({"tools": {"get": {"timeout_ms": 5}}}))
    );
    assert_ne!(
        digest(json!({})),
        digest(json!({"agent": {"policy": {"replans_max": 3}}}))
    );
}
