//! The ledger: what is kept, and that it can be bounded.

use crate::support::*;
use detent_tool_executor::{Attempt, Entry, Ledger, REFUSED_FOR_MS};

fn attempt(goal_n: u8, attempt: u32) -> Attempt {
    Attempt {
        goal: goal(goal_n),
        step: step(),
        attempt,
    }
}

fn entry(nonce: u64) -> Entry {
    Entry {
        nonce,
        outcome: None,
        at_ms: 1,
    }
}

#[tokio::test]
async fn forgetting_a_goal_takes_out_all_of_it_and_nothing_else() {
    let world = World::new().await;
    let ledger = Ledger::new(world.store.clone());
    // More than one round of forgetting takes.
    for n in 1..=600 {
        ledger.record(&attempt(1, n), &entry(7)).await.unwrap();
    }
    ledger.record(&attempt(2, 1), &entry(8)).await.unwrap();
    for n in [1, 2] {
        ledger.seal(&goal(n), 5).await.unwrap();
        ledger.seal(&goal(n), 6).await.unwrap();
    }
    assert_eq!(world.store.status().unwrap().rows, 603);

    assert!(ledger.knows(&goal(1)).unwrap());
    ledger.forget(&goal(1), 1_000).await.unwrap();
    ledger.forget(&goal(1), 1_000).await.unwrap();

    assert_eq!(ledger.entry(&attempt(1, 600)).unwrap(), None);
    assert_eq!(ledger.entry(&attempt(2, 1)).unwrap(), Some(entry(8)));
    assert!(ledger.is_sealed(&goal(2)).unwrap());
    // Beside these: its seal, and since when it is forgotten.
    assert_eq!(world.store.status().unwrap().rows, 2 + 2);
}

#[tokio::test]
async fn a_forgotten_goal_is_refused_until_nothing_of_it_can_be_under_way() {
    let world = World::new().await;
    let ledger = Ledger::new(world.store.clone());
    ledger.record(&attempt(1, 1), &entry(7)).await.unwrap();
    ledger.forget(&goal(1), 1_000).await.unwrap();
    assert!(ledger.is_sealed(&goal(1)).unwrap());

    ledger
        .forget(&goal(2), 1_000 + REFUSED_FOR_MS)
        .await
        .unwrap();
    assert!(ledger.is_sealed(&goal(1)).unwrap());
    ledger
        .forget(&goal(3), 1_001 + REFUSED_FOR_MS)
        .await
        .unwrap();
    assert!(!ledger.knows(&goal(1)).unwrap());
    assert!(ledger.is_sealed(&goal(2)).unwrap());
}
