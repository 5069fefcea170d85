//! Outputs that are refused.

use crate::support::*;
use detent_protocol::Code;
use serde_json::json;
use std::os::unix::fs::PermissionsExt;

#[tokio::test]
async fn an_endless_output_is_cut_and_kept_up_to_the_cap() {
    let world = World::new().await;
    let tool = world.sh_with("once", "exec yes", json!({"output_bytes_max": 100_000}));
    let (fault, started) = failed(world.call(&tool).await, Code::ResponseTooLarge);
    assert!(started);
    let path = world.work_dir().join(".detent/refused-s1-1.out");
    assert!(fault.message.contains(path.to_str().unwrap()), "{fault}");
    let kept = std::fs::metadata(&path).unwrap();
    assert_eq!(kept.len(), 100_000);
    assert_eq!(kept.permissions().mode() & 0o777, 0o600);
    let dir = std::fs::metadata(world.work_dir()).unwrap();
    assert_eq!(dir.permissions().mode() & 0o777, 0o700);
}

#[tokio::test]
async fn what_is_not_one_object_is_refused_with_its_place() {
    let world = World::new().await;
    let cases = [
        ("true", "byte 0"),
        ("printf '\\377\\376'", "byte 0"),
        ("echo hello", "line 1 column 1"),
        ("echo '[1]'", "/"),
        ("echo '{} {}'", "line 1 column 4"),
        ("echo '{\"a\":'", "line 2 column 0"),
    ];
    for (script, at) in cases {
        let outcome = world.call(&world.sh("read", script)).await;
        let (fault, started) = failed(outcome, Code::ToolOutputInvalid);
        assert!(started);
        assert_eq!(fault.at.as_deref(), Some(at), "{script}: {fault}");
    }
}

#[tokio::test]
async fn binary_output_is_kept_as_it_is() {
    let world = World::new().await;
    let outcome = world.call(&world.sh("read", "printf '\\377\\000x'")).await;
    let (fault, _) = failed(outcome, Code::ToolOutputInvalid);
    assert!(fault.message.contains("not UTF-8"), "{fault}");
    let kept = std::fs::read(world.work_dir().join(".detent/refused-s1-1.out")).unwrap();
    assert_eq!(kept, b"\xff\0x");
}

#[tokio::test]
async fn a_broken_schema_is_told_by_place_and_rule_without_the_value() {
    let world = World::new().await;
    let schema = json!({"output_schema": {"properties": {"id": {"type": "integer"}}}});
    let tool = world.sh_with("read", "echo '{\"id\": \"4711-private\"}'", schema);
    let (fault, started) = failed(world.call(&tool).await, Code::ToolOutputInvalid);
    assert!(started);
    assert_eq!(fault.at.as_deref(), Some("/id"));
    assert!(fault.message.contains("type \"integer\""), "{fault}");
    assert!(!fault.message.contains("4711"), "{fault}");
}

#[tokio::test]
async fn what_no_reader_could_take_is_refused_here() {
    let world = World::new().await;
    let deep = "printf '{\"a\":'; head -c 70 /dev/zero | tr '\\0' '['; \
                head -c 70 /dev/zero | tr '\\0' ']'; echo '}'";
    let outcome = world.call(&world.sh("read", deep)).await;
    let (fault, _) = failed(outcome, Code::ToolOutputInvalid);
    assert!(fault.message.contains("deeper than 64"), "{fault}");

    // That key is Detent's own: an output must not pass for what was kept as a body.
    let forged = world.sh("read", "echo '{\"$claim\": {\"digest\": \"0\"}, \"a\": 1}'");
    let (fault, _) = failed(world.call(&forged).await, Code::ToolOutputInvalid);
    assert!(fault.message.contains("$claim"), "{fault}");
}
