//! How a run ends, and what is said of it.

use crate::support::*;
use detent_protocol::Code;
use detent_protocol::effect::SlotMark;
use serde_json::json;

#[tokio::test]
async fn a_tool_reads_arguments_and_prints_an_object() {
    let world = World::new().await;
    std::fs::write(
        world.options.config_dir.join("add.py"),
        "import json, sys\na = json.load(sys.stdin)\nprint(json.dumps({'sum': a['x'] + a['y']}))\n",
    )
    .unwrap();
    let run = json!({"command": ["python3", "-I", "-S", "-B", "config:add.py"]});
    let tool = world.tool("add", "read", run, json!({}));
    let mut message = world.message(&tool, 1);
    message.args = json!({"x": 40, "y": 2});

    let (output, run) = done(world.send(&message).await.unwrap());

    assert_eq!(output, json!({"sum": 42}));
    assert_eq!((run.sandbox.as_str(), run.node.as_str()), ("tree", "n1"));
    assert!(run.memory_bytes_max > 0 && !run.sandbox_missing.is_empty());
    assert_eq!(world.slot(1).await, None, "a read tool takes no slot");
    assert_eq!(
        world.store.status().unwrap().commits,
        0,
        "and writes nothing"
    );
}

#[tokio::test]
async fn a_non_zero_exit_is_told_with_its_last_words() {
    let world = World::new().await;
    let script = "i=0; while [ $i -lt 9000 ]; do echo noise; i=$((i+1)); done >&2; \
                  echo 'no such invoice' >&2; exit 3";
    let (fault, started) = failed(
        world.call(&world.sh("read", script)).await,
        Code::ToolFailed,
    );
    assert!(started);
    assert!(
        fault.message.starts_with("it ended with exit code 3: "),
        "{fault}"
    );
    assert!(fault.message.ends_with("no such invoice"), "{fault}");
    assert!(fault.message.len() < 1100, "{}", fault.message.len());
}

#[tokio::test]
async fn a_signal_is_named() {
    let world = World::new().await;
    let tool = world.sh("read", "kill -SEGV $$");
    let (fault, started) = failed(world.call(&tool).await, Code::ToolCrashed);
    assert!(started && fault.message.contains("SIGSEGV"), "{fault}");
}

#[tokio::test]
async fn silence_and_a_slow_drip_end_at_the_timeout() {
    let world = World::new().await;
    let drip = "while :; do printf x; sleep 0.02; done";
    for script in ["sleep 1000", drip] {
        let tool = world.sh_with("read", script, json!({"timeout_ms": 300}));
        let (fault, started) = failed(world.call(&tool).await, Code::ToolTimeout);
        assert!(started && fault.message.contains("300 ms"), "{fault}");
    }
}

#[tokio::test]
async fn a_missing_program_or_script_is_named_and_nothing_started() {
    let world = World::new().await;
    let cases = [
        (json!(["no-such-interpreter", "x"]), "no-such-interpreter"),
        (json!(["/bin/../no/python3"]), "install Python 3"),
        (json!(["sh", "config:gone.sh"]), "gone.sh"),
    ];
    for (attempt, (command, named)) in (1..).zip(cases) {
        let tool = world.tool("tool", "once", json!({"command": command}), json!({}));
        let outcome = world.send(&world.message(&tool, attempt)).await.unwrap();
        let (fault, started) = failed(outcome, Code::ToolUnavailable);
        assert!(!started && fault.message.contains(named), "{fault}");
    }
}

#[tokio::test]
async fn a_call_that_comes_too_late_does_not_start() {
    let world = World::new().await;
    let tool = world.sh("once", "echo ran >> ran; echo {}");
    let mut late = world.message(&tool, 1);
    late.start_within_ms = 0;
    for delivery in ["first", "again, from the ledger"] {
        let outcome = world.send(&late).await.unwrap();
        let (_, started) = failed(outcome, Code::ToolUnavailable);
        assert!(!started, "{delivery}");
    }
    assert_eq!(world.lines("ran"), 0);
}

#[tokio::test]
async fn what_can_not_be_run_here_is_refused_for_good() {
    let world = World::new().await;
    let schema = json!({"input_schema": {"required": ["x"]}});
    let tool = world.sh_with("once", "echo ran >> ran; echo {}", schema);
    let unknown = |m: &mut detent_protocol::messages::ToolCall| {
        m.tool = detent_protocol::ToolName::new("nobody").unwrap();
    };
    let mut calls = [1, 2, 3].map(|attempt| world.message(&tool, attempt));
    unknown(&mut calls[0]);
    calls[1].tool_digest = some_digest();
    let codes = [
        Code::ToolUnavailable,
        Code::ReplayMismatch,
        Code::InputInvalid,
    ];
    for (message, code) in calls.iter().zip(codes) {
        let (_, started) = failed(world.send(message).await.unwrap(), code);
        assert!(!started);
        // Another node could run it: "not started" has to hold there too.
        let slot = world.slot(message.attempt).await;
        assert_eq!(slot, Some(SlotMark::Revoked { epoch: 1 }), "{code}");
    }
    assert_eq!(world.lines("ran"), 0);
}

#[tokio::test]
async fn subject_and_message_must_agree() {
    let world = World::new().await;
    let tool = world.sh("read", "echo {}");
    let message = world.message(&tool, 1);
    let messages = world.bus.messages.as_ref();
    let other = "other".parse().unwrap();
    let subject = detent_protocol::subject::tool(&other, &world.options.node);
    let answer: Result<detent_protocol::record::ToolOutcome, _> =
        detent_bus::call(messages, &subject, &message, PATIENCE).await;
    assert_eq!(answer.unwrap_err().code, Code::InputInvalid);
}
