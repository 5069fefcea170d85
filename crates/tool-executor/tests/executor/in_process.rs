//! Kinds that the embedding program adds.

use crate::support::*;
use detent_protocol::agent::CompiledTool;
use detent_protocol::record::Seal;
use detent_protocol::{Code, Fault};
use detent_tool_executor::{ExecutorError, FnKind, ToolExecutor};
use serde_json::{Value, json};
use std::future::pending;
use std::sync::Arc;
use tokio::sync::oneshot;

fn tool(world: &World, more: Value) -> CompiledTool {
    let mut entry = json!({"kind": "inner"});
    entry
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    world.tool("tool", "once", Value::Null, entry)
}

#[tokio::test]
async fn a_function_is_a_tool() {
    let double = FnKind::new("inner", |call| async move {
        match call.args["x"].as_i64() {
            Some(x) => Ok(json!({"twice": 2 * x})),
            None => Err(Fault::new(Code::ToolFailed, "x is missing")),
        }
    });
    let world = World::with_kind(double).await;
    let tool = tool(&world, json!({}));
    let mut message = world.message(&tool, 1);
    message.args = json!({"x": 21});
    let (output, run) = done(world.send(&message).await.unwrap());
    assert_eq!(output, json!({"twice": 42}));
    assert_eq!((run.sandbox.as_str(), run.node.as_str()), ("", "n1"));

    let outcome = world.send(&world.message(&tool, 2)).await.unwrap();
    let (_, started) = failed(outcome, Code::ToolFailed);
    assert!(started);
}

#[tokio::test]
async fn its_output_meets_the_same_contract() {
    let wrong = FnKind::new("inner", |_| async { Ok(json!({"n": "x"})) });
    let world = World::with_kind(wrong).await;
    let schema = json!({"properties": {"n": {"type": "integer"}}});
    let tool = tool(&world, json!({"output_schema": schema}));
    let (fault, _) = failed(world.call(&tool).await, Code::ToolOutputInvalid);
    assert_eq!(fault.at.as_deref(), Some("/n"));
}

/// Says when it is dropped.
struct Dropped(Option<oneshot::Sender<()>>);
impl Drop for Dropped {
    fn drop(&mut self) {
        let _ = self.0.take().unwrap().send(());
    }
}

fn endless() -> (
    FnKind,
    tokio::sync::mpsc::UnboundedReceiver<oneshot::Receiver<()>>,
) {
    let (begun, begins) = tokio::sync::mpsc::unbounded_channel();
    let kind = FnKind::new("inner", move |_| {
        let (tx, dropped) = oneshot::channel();
        let guard = Dropped(Some(tx));
        begun.send(dropped).unwrap();
        async move {
            let _guard = guard;
            pending::<()>().await;
            unreachable!()
        }
    });
    (kind, begins)
}

#[tokio::test]
async fn a_seal_drops_it_before_it_is_answered() {
    let (kind, mut begins) = endless();
    let world = World::with_kind(kind).await;
    let tool = tool(&world, json!({}));
    let answer = world.sent(world.message(&tool, 1));
    let mut dropped = begins.recv().await.unwrap();
    let seal = world.seal(1).await.unwrap();
    assert_eq!(seal, Seal::Ended { outcome: None });
    dropped.try_recv().expect("it was dropped already");
    let (_, started) = failed(answer.await.unwrap().unwrap(), Code::OwnerFenced);
    assert!(started);
}

#[tokio::test]
async fn what_a_failed_actor_had_in_hand_still_counts() {
    let (kind, mut begins) = endless();
    let mut world = World::with_kind(kind).await;
    let tool = tool(&world, json!({}));
    let answer = world.sent(world.message(&tool, 1));
    let mut dropped = begins.recv().await.unwrap();
    world.replace_actor().await;
    assert_eq!(world.handle.running(), 1);
    // A second delivery waits for the run that is going on, and starts none.
    let again = world.sent(world.message(&tool, 1));
    assert_eq!(world.seal(1).await.unwrap(), Seal::Ended { outcome: None });
    dropped.try_recv().expect("it was dropped already");
    failed(answer.await.unwrap().unwrap(), Code::OwnerFenced);
    let _ = again.await.unwrap();
    assert!(begins.try_recv().is_err(), "it ran twice");
    assert_eq!(world.handle.running(), 0);
}

#[tokio::test]
async fn what_a_failed_actor_sealed_stays_sealed() {
    let (kind, mut begins) = endless();
    let mut world = World::with_kind(kind).await;
    // Without an effect there is no slot: only the memory knows of the seal.
    let tool = tool(&world, json!({"effect": "read"}));
    world.seal(1).await.unwrap();
    world.replace_actor().await;
    failed(world.call(&tool).await, Code::OwnerFenced);
    assert!(begins.try_recv().is_err(), "it ran");
}

#[tokio::test]
async fn its_timeout_is_kept() {
    let (kind, mut begins) = endless();
    let world = World::with_kind(kind).await;
    let tool = tool(&world, json!({"timeout_ms": 50}));
    let (_, started) = failed(world.call(&tool).await, Code::ToolTimeout);
    assert!(started);
    begins.recv().await.unwrap().await.unwrap();
}

#[tokio::test]
async fn a_panic_ends_the_call_and_not_the_executor() {
    let kind = FnKind::new("inner", |call| async move {
        assert!(call.attempt > 1, "the first one panics");
        Ok(json!({}))
    });
    let world = World::with_kind(kind).await;
    let tool = tool(&world, json!({}));
    let (_, started) = failed(world.call(&tool).await, Code::InternalLogicError);
    assert!(started);
    done(world.send(&world.message(&tool, 2)).await.unwrap());
}

#[tokio::test]
async fn two_kinds_of_one_name_are_refused() {
    let world = World::new().await;
    let kind = || Arc::new(FnKind::new("inner", |_| async { Ok(json!({})) })) as Arc<_>;
    let spawned = ToolExecutor::spawn(
        world.options.clone(),
        world.bus.clone(),
        world.ledger.clone(),
        world.registry.clone(),
        vec![kind(), kind()],
        Arc::new(detent_bus::env::SystemEnv),
        None,
    )
    .await;
    assert!(matches!(spawned, Err(ExecutorError::KindTwice(name)) if name == "inner"));
}
