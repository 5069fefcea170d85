//! A call and a seal at the same moment: whatever wins, they agree.

use crate::support::*;
use detent_protocol::record::{Seal, ToolOutcome};
use detent_tool_executor::FnKind;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::{Arc, Mutex};

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
