//! What a program is given, and that secrets stay with it.

use crate::support::*;
use detent_protocol::Code;
use detent_protocol::json::Digest;
use serde_json::{Value, json};

const PRINT_ENV: &str =
    "import json, os; print(json.dumps({'env': dict(os.environ), 'cwd': os.getcwd()}))";

#[tokio::test]
async fn the_environment_is_what_is_documented_and_nothing_else() {
    let world = World::new().await;
    let run = json!({
        "command": ["python3", "-I", "-S", "-c", PRINT_ENV],
        "env": {"MODE": "fast"},
    });
    let tool = world.tool("tool", "fenced", run, json!({}));
    let mut message = world.message(&tool, 2);
    let identity = Digest::of_bytes(b"effect");
    message.identity = Some(identity);
    let (mut output, _) = done(world.send(&message).await.unwrap());

    let home = world.work_dir();
    assert_eq!(output["cwd"], json!(home));
    let env = output["env"].as_object_mut().unwrap();
    // The sandbox's markers; LC_CTYPE is set by python itself.
    for name in ["DETENT_RUN_OWNER", "DETENT_RUN_ID"] {
        assert!(env.remove(name).is_some(), "{name}");
    }
    env.remove("LC_CTYPE");
    let expected = json!({
        "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": home, "TMPDIR": home,
        "MODE": "fast",
        "DETENT_TENANT": "default", "DETENT_GOAL": world.goal.to_string(),
        "DETENT_STEP": "s1", "DETENT_ATTEMPT": "2",
        "DETENT_CONFIG_DIR": world.options.config_dir, "DETENT_DATA_DIR": world.options.data_dir,
        "DETENT_IDEMPOTENCY_KEY": identity.to_string(), "DETENT_FENCING_TOKEN": "7",
    });
    assert_eq!(Value::Object(env.clone()), expected);
}

#[tokio::test]
async fn a_tool_that_is_not_fenced_gets_no_token() {
    let world = World::new().await;
    let run = json!({"command": ["python3", "-I", "-S", "-c", PRINT_ENV]});
    let tool = world.tool("tool", "read", run, json!({}));
    let (output, _) = done(world.call(&tool).await);
    let env = output["env"].as_object().unwrap();
    assert!(env.get("DETENT_FENCING_TOKEN").is_none());
    assert!(env.get("DETENT_IDEMPOTENCY_KEY").is_none());
}

#[tokio::test]
async fn a_secret_reaches_the_tool_and_nothing_that_it_says() {
    let world = World::new().await;
    let tool = |script: &str| {
        let run = json!({"command": ["sh", "-c", script], "env_from": ["SERVICE_TOKEN"]});
        world.tool("tool", "read", run, json!({}))
    };
    let knows = tool(&format!("[ \"$SERVICE_TOKEN\" = {SECRET} ] && echo '{{}}'"));
    done(world.call(&knows).await);

    let in_stderr = tool("echo \"login with $SERVICE_TOKEN failed\" >&2; exit 1");
    let (fault, _) = failed(world.call(&in_stderr).await, Code::ToolFailed);
    assert!(
        fault.message.contains("login with [redacted] failed"),
        "{fault}"
    );

    let in_output = tool("echo \"{\\\"header\\\": \\\"token $SERVICE_TOKEN\\\"}\"");
    let (output, _) = done(world.call(&in_output).await);
    assert_eq!(output, json!({"header": "token [redacted]"}));

    // Also where the end of a long text cuts through it.
    let repeated = tool("yes \"$SERVICE_TOKEN\" | tr -d '\\n' | head -c 40000 >&2; exit 1");
    let (fault, _) = failed(world.call(&repeated).await, Code::ToolFailed);
    assert!(!fault.message.contains("battery"), "{fault}");
}

#[tokio::test]
async fn the_nodes_own_redactor_is_applied_too() {
    let redact = |options: &mut detent_tool_executor::ExecutorOptions| {
        options.redactor = detent_protocol::redact::Redactor::new(["node-password".to_owned()]);
    };
    let world = World::with(vec![], redact, |bus| bus).await;
    let tool = world.sh("read", "echo '{\"a\": \"node-password\"}'");
    assert_eq!(done(world.call(&tool).await).0, json!({"a": "[redacted]"}));
    let tool = world.sh("read", "echo node-password >&2; exit 1");
    let (fault, _) = failed(world.call(&tool).await, Code::ToolFailed);
    assert!(fault.message.ends_with(": [redacted]"), "{fault}");
}

#[tokio::test]
async fn a_variable_that_the_node_lacks_is_named() {
    let world = World::new().await;
    let run = json!({"command": ["sh"], "env_from": ["NOT_SET_ANYWHERE"]});
    let tool = world.tool("tool", "once", run, json!({}));
    let (fault, started) = failed(world.call(&tool).await, Code::ToolUnavailable);
    assert!(
        !started && fault.message.contains("NOT_SET_ANYWHERE"),
        "{fault}"
    );
}
