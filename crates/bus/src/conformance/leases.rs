//! Leases.

use super::{node, until};
use crate::{Bus, Lease};
use std::time::Duration;

/// Far beyond any run of the suite.
const LONG: Duration = Duration::from_secs(24 * 3600);
/// The shortest that every implementation offers.
const SHORT: Duration = Duration::from_secs(1);

async fn acquire(bus: &Bus, name: &str, holder: &str, ttl: Duration) -> Lease {
    let got = bus.leases.acquire(name, &node(holder), ttl).await;
    let lease = got.expect("an answer").expect("a free name");
    assert_eq!((lease.name.as_str(), &lease.holder), (name, &node(holder)));
    lease
}

pub(super) async fn one_holds_a_name(bus: Bus) {
    acquire(&bus, "x", "a", LONG).await;
    // Not the holder either: after a restart it can't tell its own from another's.
    for asker in ["b", "a"] {
        let got = bus.leases.acquire("x", &node(asker), LONG).await;
        assert_eq!(got, Ok(Err(node("a"))));
    }
    acquire(&bus, "y", "b", LONG).await;
}

pub(super) async fn a_lapsed_name_is_free(bus: Bus) {
    let lapsed = acquire(&bus, "x", "a", SHORT).await;
    let taken = async || {
        let got = bus.leases.acquire("x", &node("b"), LONG).await;
        got.expect("an answer").ok()
    };
    let taken = until("the lease to lapse", taken).await;
    assert!(taken.revision > lapsed.revision);
    let renewed = bus.leases.renew(&lapsed, LONG).await;
    assert_eq!(renewed, Ok(None), "it was lost");
    // Giving back what was lost takes nothing from its new holder.
    bus.leases.release(&lapsed).await.expect("released");
    assert_eq!(bus.leases.held("").await, Ok(vec![taken]));
}

pub(super) async fn renewing_needs_the_last_revision(bus: Bus) {
    let first = acquire(&bus, "x", "a", SHORT).await;
    let second = bus.leases.renew(&first, LONG).await.expect("an answer");
    let second = second.expect("still held");
    assert!(second.revision > first.revision);
    assert_eq!(bus.leases.renew(&first, LONG).await, Ok(None));
    let third = bus.leases.renew(&second, LONG).await.expect("an answer");
    let third = third.expect("still held");
    assert_eq!(bus.leases.held("x").await, Ok(vec![third]));
}

pub(super) async fn a_released_name_is_free(bus: Bus) {
    let first = acquire(&bus, "x", "a", LONG).await;
    bus.leases.release(&first).await.expect("released");
    assert_eq!(bus.leases.held("").await, Ok(vec![]));
    assert_eq!(bus.leases.renew(&first, LONG).await, Ok(None));
    let second = acquire(&bus, "x", "b", LONG).await;
    assert!(second.revision > first.revision, "also across holders");
}

pub(super) async fn held_names_are_listed_by_prefix(bus: Bus) {
    for name in ["shard-10", "node-a", "shard-2", "shard-1"] {
        acquire(&bus, name, "n", LONG).await;
    }
    let names = async |prefix: &str| {
        let held = bus.leases.held(prefix).await.expect("a list");
        held.into_iter().map(|lease| lease.name).collect::<Vec<_>>()
    };
    assert_eq!(names("shard-").await, ["shard-1", "shard-10", "shard-2"]);
    assert_eq!(names("").await.len(), 4);
    assert!(names("other").await.is_empty());
    acquire(&bus, "shard-3", "n", SHORT).await;
    let gone = async || (names("shard-3").await.is_empty()).then_some(());
    until("a lapsed lease to leave the list", gone).await;
}
