//! At most once.

use crate::support::*;
use async_trait::async_trait;
use detent_bus::{Bus, SlotKey, Slots};
use detent_protocol::effect::SlotMark;
use detent_protocol::{Code, Fault};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Appends a line when it runs, and ends once the file `go` is there.
const ONCE: &str = "echo ran >> ran; while ! [ -e go ]; do sleep 0.01; done; echo '{\"n\": 1}'";

#[tokio::test]
async fn thirty_two_deliveries_are_one_run() {
    for effect in ["once", "read"] {
        let world = World::new().await;
        let tool = world.sh(effect, ONCE);
        let answers: Vec<_> = (0..32)
            .map(|_| world.sent(world.message(&tool, 1)))
            .collect();
        world.file("ran").await;
        assert_eq!(world.handle.running(), 1);
        std::fs::write(world.work_dir().join("go"), "").unwrap();
        let mut outcomes = vec![];
        for answer in answers {
            outcomes.push(answer.await.unwrap().unwrap());
        }
        assert!(outcomes.iter().all(|o| *o == outcomes[0]), "{effect}");
        done(outcomes.remove(0));
        // One that came after the end of a `read` runs again; here all came before.
        assert_eq!(world.lines("ran"), 1, "{effect}");
    }
}

#[tokio::test]
async fn a_delivery_after_the_end_gets_what_the_ledger_holds_also_after_a_restart() {
    let world = World::new().await;
    let tool = world.sh("once", "echo ran >> ran; echo '{\"n\": 1}'");
    let first = world.call(&tool).await;
    assert_eq!(world.call(&tool).await, first);
    let world = world.restart().await;
    assert_eq!(world.call(&tool).await, first);
    assert_eq!(world.lines("ran"), 1);
}

#[tokio::test]
async fn a_revoked_attempt_never_starts() {
    let world = World::new().await;
    let tool = world.sh("once", "echo ran >> ran; echo {}");
    let revoked = SlotMark::Revoked { epoch: 9 };
    world
        .bus
        .slots
        .win(&world.slot_key(1), revoked)
        .await
        .unwrap();
    let (_, started) = failed(world.call(&tool).await, Code::OwnerFenced);
    assert!(!started);
    assert_eq!(world.lines("ran"), 0);
}

#[tokio::test]
async fn what_another_started_is_not_started_and_not_called_unstarted() {
    let world = World::new().await;
    let tool = world.sh("once", "echo ran >> ran; echo {}");
    let theirs = SlotMark::Started {
        node: node("n2"),
        nonce: 5,
    };
    world
        .bus
        .slots
        .win(&world.slot_key(1), theirs)
        .await
        .unwrap();
    // A fault and no outcome: nothing is known about the effect.
    let fault = world.send(&world.message(&tool, 1)).await.unwrap_err();
    assert_eq!(fault.code, Code::OwnerFenced);
    assert_eq!(fault.at.as_deref(), Some("n2"));
    assert_eq!(world.lines("ran"), 0);
}

/// The real slots, with an answer that gets lost once.
struct LosesAnswer {
    slots: Arc<dyn Slots>,
    after_writing: bool,
    lost: AtomicBool,
}

#[async_trait]
impl Slots for LosesAnswer {
    async fn win(&self, key: &SlotKey, mark: SlotMark) -> Result<SlotMark, Fault> {
        if self.lost.swap(true, Ordering::SeqCst) {
            return self.slots.win(key, mark).await;
        }
        if self.after_writing {
            self.slots.win(key, mark).await?;
        }
        Err(Fault::new(Code::JournalUnknown, "no answer"))
    }

    async fn read(&self, key: &SlotKey) -> Result<Option<SlotMark>, Fault> {
        self.slots.read(key).await
    }
}

async fn with_lost_answer(after_writing: bool) -> World {
    let wrap = |bus: Bus| Bus {
        slots: Arc::new(LosesAnswer {
            slots: Arc::clone(&bus.slots),
            after_writing,
            lost: AtomicBool::new(false),
        }),
        ..bus
    };
    World::with(vec![], |_| {}, wrap).await
}

#[tokio::test]
async fn a_lost_answer_is_read_back_and_the_own_mark_counts() {
    let world = with_lost_answer(true).await;
    let tool = world.sh("once", "echo ran >> ran; echo {}");
    assert_eq!(done(world.call(&tool).await).0, json!({}));
    assert_eq!(world.lines("ran"), 1);
}

#[tokio::test]
async fn nothing_starts_while_nobody_knows_whose_the_slot_is() {
    let world = with_lost_answer(false).await;
    let tool = world.sh("once", "echo ran >> ran; echo {}");
    let fault = world.send(&world.message(&tool, 1)).await.unwrap_err();
    assert_eq!(fault.code, Code::JournalUnknown);
    assert_eq!(world.lines("ran"), 0);
}
