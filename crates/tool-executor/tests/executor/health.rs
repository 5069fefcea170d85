//! What the doctor is told.

use crate::support::*;
use detent_protocol::Code;
use serde_json::json;

#[tokio::test]
async fn each_tool_that_can_not_be_run_is_named_with_what_is_missing() {
    let world = World::new().await;
    std::fs::write(world.options.config_dir.join("x.py"), "").unwrap();
    let entries = [
        ("a-good", json!({"command": ["python3", "config:x.py"]})),
        ("b-script", json!({"command": ["python3", "config:y.py"]})),
        ("c-program", json!({"command": ["no-such-program"]})),
        (
            "d-secret",
            json!({"command": ["sh"], "env_from": ["UNSET"]}),
        ),
        ("e-config", json!({"command": "sh"})),
    ];
    for (name, run) in entries {
        world.tool(name, "read", run, json!({}));
    }
    world.tool("f-kind", "read", json!({}), json!({"kind": "other"}));

    let found: Vec<_> = world
        .handle
        .health()
        .into_iter()
        .map(|h| (h.tool.to_string(), h.fault.map(|f| f.code)))
        .collect();

    let unavailable = Some(Code::ToolUnavailable);
    let expected = [
        ("a-good", None),
        ("b-script", unavailable),
        ("c-program", unavailable),
        ("d-secret", unavailable),
        ("e-config", Some(Code::ConfigInvalid)),
        ("f-kind", unavailable),
    ];
    let expected: Vec<_> = expected.map(|(t, c)| (t.to_owned(), c)).into();
    assert_eq!(found, expected);
}
