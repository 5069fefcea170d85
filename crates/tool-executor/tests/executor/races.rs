//! A call and a seal at the same moment: whatever wins, they agree.

use crate::support::*;
use async_trait::async_trait;
use detent_bus::{Bus, SlotKey, Slots};
use detent_protocol::agent::ToolDef;
use detent_protocol::effect::SlotMark;
use detent_protocol::record::{Seal, ToolOutcome};
use detent_protocol::{Code, Fault};
use detent_tool_executor::{FnKind, Invocation, Kill, KindOutcome, ToolKind};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use tokio::sync::{Semaphore, mpsc};

const ROUNDS: u32 = 150;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_seal_and_a_call_that_race_agree_on_what_happened() {
    let ran: Arc<Mutex<HashSet<u32>>> = Arc::default();
    let kind = FnKind::new("inner", {
        let ran = Arc::clone(&ran);
        move |call| {
            let first = ran.lock().unwrap().insert(call.attempt);
            assert!(first, "attempt {} ran twice", call.attempt);
            async { Ok(json!({})) }
        }
    });
    let world = World::with_kind(kind).await;
    let tool = world.tool("tool", "once", Value::Null, json!({"kind": "inner"}));
    for attempt in 1..=ROUNDS {
        let call = world.sent(world.message(&tool, attempt));
        // Spreads the seal over the call's life.
        for _ in 0..attempt % 40 {
            tokio::task::yield_now().await;
        }
        let seal = world.seal(attempt).await.unwrap();
        let did_run = ran.lock().unwrap().contains(&attempt);
        let said = call.await.unwrap().unwrap();
        match seal {
            Seal::NeverStarted => {
                assert!(!did_run, "attempt {attempt}");
                assert!(matches!(said, ToolOutcome::Failed { started: false, .. }));
            }
            Seal::Ended {
                outcome: Some(kept),
            } => assert_eq!(kept, said),
            Seal::Ended { outcome: None } => {
                assert!(matches!(said, ToolOutcome::Failed { started: true, .. }));
            }
        }
        let still = ran.lock().unwrap().contains(&attempt);
        assert_eq!(did_run, still, "attempt {attempt} started after its seal");
    }
}

/// The real slots; the wins of attempt 1 that are `held` wait at a gate.
struct Gate {
    slots: Arc<dyn Slots>,
    held: fn(&SlotMark) -> bool,
    arrived: mpsc::UnboundedSender<()>,
    go: Arc<Semaphore>,
}

#[async_trait]
impl Slots for Gate {
    async fn win(&self, key: &SlotKey, mark: SlotMark) -> Result<SlotMark, Fault> {
        if key.attempt == 1 && (self.held)(&mark) {
            self.arrived.send(()).unwrap();
            self.go.acquire().await.unwrap().forget();
        }
        self.slots.win(key, mark).await
    }

    async fn read(&self, key: &SlotKey) -> Result<Option<SlotMark>, Fault> {
        self.slots.read(key).await
    }
}

struct Gated {
    world: World,
    arrives: mpsc::UnboundedReceiver<()>,
    go: Arc<Semaphore>,
}

async fn gated(kinds: Vec<Arc<dyn ToolKind>>, held: fn(&SlotMark) -> bool) -> Gated {
    let (arrived, arrives) = mpsc::unbounded_channel();
    let go = Arc::new(Semaphore::new(0));
    let wrap = |bus: Bus| Bus {
        slots: Arc::new(Gate {
            slots: Arc::clone(&bus.slots),
            held,
            arrived,
            go: Arc::clone(&go),
        }),
        ..bus
    };
    let remember_one = |options: &mut detent_tool_executor::ExecutorOptions| {
        options.sealed_attempts_max = 1;
    };
    Gated {
        world: World::with(kinds, remember_one, wrap).await,
        arrives,
        go,
    }
}

#[tokio::test]
async fn a_seal_looks_again_where_its_mark_was_forgotten_and_a_call_came_through() {
    let is_revoked = |mark: &SlotMark| matches!(mark, SlotMark::Revoked { .. });
    let Gated {
        world,
        mut arrives,
        go,
    } = gated(vec![], is_revoked).await;
    let world = Arc::new(world);
    let tool = world.sh("once", "echo $$ > pid; sleep 1000");
    let seal = tokio::spawn({
        let world = Arc::clone(&world);
        async move { world.seal(1).await }
    });
    arrives.recv().await.unwrap();
    // Only one sealed attempt is remembered: the first one's mark goes.
    assert_eq!(world.seal(2).await.unwrap(), Seal::NeverStarted);
    let call = world.sent(world.message(&tool, 1));
    let pid = world.file("pid").await;

    go.add_permits(1);

    let sealed = seal.await.unwrap().unwrap();
    assert!(!is_alive(&pid));
    assert_eq!(sealed, Seal::Ended { outcome: None });
    failed(call.await.unwrap().unwrap(), Code::OwnerFenced);
}

/// A kind that does not look at its kill switch.
struct Careless;

#[async_trait]
impl ToolKind for Careless {
    fn kind(&self) -> &str {
        "careless"
    }
    fn check(&self, _def: &ToolDef) -> Result<(), Fault> {
        Ok(())
    }
    async fn run(&self, _call: &Invocation, _kill: Kill) -> KindOutcome {
        panic!("it was started")
    }
}

#[tokio::test]
async fn a_call_that_is_sealed_while_it_takes_its_slot_does_not_start() {
    let is_started = |mark: &SlotMark| matches!(mark, SlotMark::Started { .. });
    let Gated {
        world,
        mut arrives,
        go,
    } = gated(vec![Arc::new(Careless)], is_started).await;
    let world = Arc::new(world);
    let tool = world.tool("tool", "once", Value::Null, json!({"kind": "careless"}));
    let call = world.sent(world.message(&tool, 1));
    arrives.recv().await.unwrap();
    let seal = tokio::spawn({
        let world = Arc::clone(&world);
        async move { world.seal(1).await }
    });
    // One thread, a fair queue, and no I/O on the seal's way to the table of runs: by
    // now it waits for the call.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }

    go.add_permits(1);

    let outcome = call.await.unwrap().unwrap();
    let sealed = seal.await.unwrap().unwrap();
    assert_eq!(
        sealed,
        Seal::Ended {
            outcome: Some(outcome.clone())
        }
    );
    let (_, started) = failed(outcome, Code::OwnerFenced);
    assert!(!started, "and that it did not start is known");
}
