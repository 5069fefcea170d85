//! Effect slots.

use super::{goal, goal_of, node};
use crate::{Bus, GoalKey, SlotKey};
use detent_protocol::StepId;
use detent_protocol::effect::SlotMark;
use tokio::task::JoinSet;

const RACERS: u64 = 64;

pub(super) fn slot(goal: GoalKey, step: &str, attempt: u32) -> SlotKey {
    let step = StepId::new(step).expect("a name");
    SlotKey {
        goal,
        step,
        attempt,
    }
}

pub(super) fn started(nonce: u64) -> SlotMark {
    let node = node("n");
    SlotMark::Started { node, nonce }
}

/// Every second racer gives the attempt up, the others want to start it.
fn mark(racer: u64) -> SlotMark {
    match racer % 2 {
        0 => started(racer),
        _ => SlotMark::Revoked { epoch: racer },
    }
}

pub(super) async fn one_of_many_wins(bus: Bus) {
    let mut racers = JoinSet::new();
    for racer in 0..RACERS {
        let bus = bus.clone();
        racers.spawn(async move {
            let key = slot(goal("race"), "pay", 1);
            let stands = bus.slots.win(&key, mark(racer)).await.expect("an answer");
            (racer, stands)
        });
    }
    let outcomes = racers.join_all().await;
    let won: Vec<_> = outcomes
        .iter()
        .filter(|(racer, stands)| *stands == mark(*racer))
        .collect();
    assert_eq!(won.len(), 1, "one winner");
    let standing = &won[0].1;
    assert!(outcomes.iter().all(|(_, stands)| stands == standing));
    let read = bus.slots.read(&slot(goal("race"), "pay", 1)).await;
    assert_eq!(read.as_ref(), Ok(&Some(standing.clone())));
}

pub(super) async fn a_mark_never_changes(bus: Bus) {
    let key = slot(goal("stays"), "pay", 1);
    assert_eq!(bus.slots.read(&key).await, Ok(None));
    assert_eq!(bus.slots.win(&key, started(1)).await, Ok(started(1)));
    // Again, with another nonce, and revoked: what stands there stays.
    for later in [started(1), started(2), SlotMark::Revoked { epoch: 9 }] {
        assert_eq!(bus.slots.win(&key, later).await, Ok(started(1)));
        assert_eq!(bus.slots.read(&key).await, Ok(Some(started(1))));
    }
}

pub(super) async fn slots_are_apart(bus: Bus) {
    let keys = [
        slot(goal("one"), "pay", 1),
        slot(goal("one"), "pay", 2),
        slot(goal("one"), "pay1", 1),
        slot(goal("two"), "pay", 1),
        slot(goal_of("other", "one"), "pay", 1),
    ];
    for (n, key) in (1..).zip(&keys) {
        assert_eq!(bus.slots.win(key, started(n)).await, Ok(started(n)));
    }
    for (n, key) in (1..).zip(&keys) {
        assert_eq!(bus.slots.read(key).await, Ok(Some(started(n))));
    }
}
