//! Forgetting in the store: what is left, what is swept up, what readers see.

use super::*;
use crate::env::Env;
use crate::local::slots::LocalSlots;
use crate::{Append, Journal, SlotKey, Slots};
use detent_protocol::effect::SlotMark;
use detent_protocol::{GoalId, NodeId, StepId, TenantId};
use detent_store::{Store, StoreOptions};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const KEEP: Duration = Duration::from_secs(100);

#[derive(Default)]
struct Clock(AtomicU64);

impl Env for Clock {
    fn now_ms(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
    fn clock_error_ms(&self) -> u64 {
        0
    }
    fn random(&self) -> u64 {
        0
    }
}

struct Bus {
    journal: LocalJournal,
    slots: LocalSlots,
    clock: Arc<Clock>,
    store: Store,
}

fn open(dir: &tempfile::TempDir) -> Bus {
    let store = Store::open(StoreOptions::journal(dir.path())).unwrap();
    let storage = Arc::new(Storage::new(store.clone()));
    let clock = Arc::new(Clock::default());
    Bus {
        journal: LocalJournal::new(storage.clone(), clock.clone()),
        slots: LocalSlots::new(storage),
        clock,
        store,
    }
}

fn key(id: u8) -> GoalKey {
    let tenant = TenantId::default();
    let goal = GoalId::from_bytes([id; 16]);
    GoalKey { tenant, goal }
}

fn slot(id: u8, attempt: u32) -> SlotKey {
    let step = StepId::new("s").unwrap();
    SlotKey {
        goal: key(id),
        step,
        attempt,
    }
}

fn forget_after(id: u8, after: u64) -> Forget {
    Forget {
        key: key(id),
        after,
        tombstone: Bytes::from_static(b"tombstone"),
        keep: KEEP,
    }
}

impl Bus {
    /// A goal of `entries` entries, the last of which ends it, with a slot for each.
    async fn ended(&self, id: u8, entries: u64) {
        for after in 0..entries {
            let append = Append {
                key: key(id),
                after,
                entry: Bytes::from(vec![1; 100]),
                by: NodeId::new("n").unwrap(),
                ends: after + 1 == entries,
            };
            self.journal.append(append).await.unwrap();
            let attempt = u32::try_from(after).unwrap();
            let mark = SlotMark::Revoked { epoch: 1 };
            self.slots.win(&slot(id, attempt), mark).await.unwrap();
        }
    }

    async fn read(&self, id: u8) -> Vec<(u64, Bytes)> {
        let page = self.journal.read(&key(id), 0, 1 << 20).await.unwrap();
        page.into_iter().map(|s| (s.seq, s.entry)).collect()
    }

    fn rows(&self) -> Vec<(String, u64)> {
        self.store
            .status()
            .unwrap()
            .rows_by_table
            .into_iter()
            .collect()
    }
}

fn row(table: &str, rows: u64) -> (String, u64) {
    (table.to_owned(), rows)
}

/// What is left of a forgotten goal, and of another with one entry and one slot.
fn shrunk() -> Vec<(String, u64)> {
    vec![
        row("journal.entry", 2),
        row("journal.floor", 1),
        row("journal.head", 2),
        row("journal.kept", 1),
        row("slot", 1),
    ]
}

#[tokio::test]
async fn the_rows_of_a_forgotten_goal_go_and_others_stay() {
    let dir = tempfile::tempdir().unwrap();
    let bus = open(&dir);
    bus.ended(1, 2 * ROWS_AT_ONCE + 3).await;
    bus.ended(2, 1).await;
    let after = 2 * ROWS_AT_ONCE + 3;
    let seq = bus.journal.forget(forget_after(1, after)).await.unwrap();
    assert_eq!(bus.rows(), shrunk());
    assert_eq!(bus.read(1).await, [(seq, Bytes::from_static(b"tombstone"))]);
    assert_eq!(bus.read(2).await.len(), 1);
    let (late, mark) = (slot(1, 9), SlotMark::Revoked { epoch: 2 });
    let late = bus.slots.win(&late, mark);
    assert_eq!(
        late.await.unwrap_err().code,
        detent_protocol::Code::OwnerFenced
    );
}

/// As a process leaves it that dies after the tombstone was committed.
#[tokio::test]
async fn what_a_killed_process_left_is_not_seen_and_swept_up() {
    let dir = tempfile::tempdir().unwrap();
    let bus = open(&dir);
    bus.ended(1, 5).await;
    bus.ended(2, 1).await;
    let txn = bus.journal.tombstone(forget_after(1, 5), 6).unwrap();
    bus.journal.storage.commit(txn).await.unwrap();
    bus.store.clone().close().await.unwrap();
    drop(bus);

    let bus = open(&dir);
    let tombstone = (6, Bytes::from_static(b"tombstone"));
    assert_eq!(bus.read(1).await, std::slice::from_ref(&tombstone));
    assert_eq!(bus.journal.tail(&key(1)).await.unwrap().unwrap().seq, 6);
    assert!(bus.rows().contains(&row("journal.entry", 7)));
    assert!(!bus.journal.sweep().await.unwrap());
    assert_eq!(bus.rows(), shrunk());
    assert_eq!(bus.read(1).await, [tombstone]);
}

/// What was left is below the second tombstone too.
#[tokio::test]
async fn forgetting_again_takes_out_what_was_left() {
    let dir = tempfile::tempdir().unwrap();
    let bus = open(&dir);
    bus.ended(1, 5).await;
    bus.ended(2, 1).await;
    let txn = bus.journal.tombstone(forget_after(1, 5), 6).unwrap();
    bus.journal.storage.commit(txn).await.unwrap();
    bus.clock.0.store(5, Ordering::SeqCst);
    bus.journal.forget(forget_after(1, 6)).await.unwrap();
    let mut rows = shrunk();
    rows[3] = row("journal.kept", 2);
    assert_eq!(bus.rows(), rows);
}

#[tokio::test]
async fn a_tombstone_stays_as_long_as_was_said_and_then_goes() {
    let dir = tempfile::tempdir().unwrap();
    let bus = open(&dir);
    bus.ended(1, 3).await;
    bus.ended(2, 1).await;
    bus.journal.forget(forget_after(1, 3)).await.unwrap();
    let keep_ms = u64::try_from(KEEP.as_millis()).unwrap();
    bus.clock.0.store(keep_ms, Ordering::SeqCst);
    assert!(!bus.journal.sweep().await.unwrap());
    assert_eq!(bus.rows(), shrunk());

    bus.clock.0.store(keep_ms + 1, Ordering::SeqCst);
    assert!(!bus.journal.sweep().await.unwrap());
    let others = ["journal.entry", "journal.head", "slot"];
    assert_eq!(bus.rows(), others.map(|table| row(table, 1)));
    assert!(bus.read(1).await.is_empty());
    // The name is free again: it is up to the keys' own time that nobody uses it.
    bus.ended(1, 1).await;
}

#[tokio::test]
async fn a_tombstone_that_was_followed_stays() {
    let dir = tempfile::tempdir().unwrap();
    let bus = open(&dir);
    bus.ended(1, 3).await;
    let first = bus.journal.forget(forget_after(1, 3)).await.unwrap();
    let second = bus.journal.forget(forget_after(1, first)).await.unwrap();
    let append = Append {
        key: key(1),
        after: second,
        entry: Bytes::from_static(b"x"),
        by: NodeId::new("n").unwrap(),
        ends: true,
    };
    bus.journal.append(append).await.unwrap();
    bus.clock.0.store(u64::MAX, Ordering::SeqCst);
    bus.journal.sweep().await.unwrap();
    assert_eq!(bus.read(1).await.len(), 2);
    let kept = |(table, _): &(String, u64)| table == "journal.kept";
    assert!(!bus.rows().iter().any(kept));
}

/// Readers that meet the change see the journal before it or after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_see_the_journal_or_its_tombstone() {
    let dir = tempfile::tempdir().unwrap();
    let bus = Arc::new(open(&dir));
    for id in 1..=20 {
        bus.ended(id, 12).await;
        let reader = bus.clone();
        let reader = tokio::spawn(async move {
            loop {
                let tail = reader.journal.tail(&key(id)).await.unwrap().unwrap();
                let seqs: Vec<_> = reader.read(id).await.iter().map(|(seq, _)| *seq).collect();
                match seqs.as_slice() {
                    [13] => return,
                    all => assert!(all.iter().copied().eq(1..=12), "{all:?}"),
                }
                assert!(tail.seq == 12 || tail.seq == 13);
            }
        });
        bus.journal.forget(forget_after(id, 12)).await.unwrap();
        reader.await.unwrap();
    }
}
