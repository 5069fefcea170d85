//! Owners of goals that append as the orchestrator does, and what has to be true of what
//! they have done.

use super::*;
use detent_bus::SlotKey;
use detent_protocol::StepId;
use detent_protocol::effect::SlotMark;
use detent_protocol::ids::SHARDS;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;

/// Many owners, each with one goal, appending until they are told to stop.
pub(super) struct Owners {
    tasks: JoinSet<(GoalKey, Vec<Stored>)>,
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
}

impl Owners {
    pub(super) fn start(bus: &Bus, goals: usize) -> Self {
        let mut owners = Self {
            tasks: JoinSet::new(),
            stop: Arc::default(),
            done: Arc::default(),
        };
        for n in 0..goals {
            let (stop, done) = (Arc::clone(&owners.stop), Arc::clone(&owners.done));
            let (bus, key) = (bus.clone(), goal(&format!("owned {n}")));
            owners.tasks.spawn(async move {
                let mut confirmed = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    step(&bus, &key, &mut confirmed).await;
                    done.fetch_add(1, Ordering::Relaxed);
                }
                (key, confirmed)
            });
        }
        owners
    }

    /// Waits until this many more steps were done, by all owners together.
    pub(super) async fn progress(&self, steps: u64) {
        let until = self.done.load(Ordering::Relaxed) + steps;
        let progress = async {
            while self.done.load(Ordering::Relaxed) < until {
                assert!(!self.tasks.is_empty());
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let patience = support::PATIENCE * 2;
        let progress = tokio::time::timeout(patience, progress).await;
        progress.expect("the owners go on");
    }

    /// Stops them and checks what they have done: everything that was confirmed is there,
    /// at its sequence, once, in order, and nothing else.
    pub(super) async fn check(self, bus: &Bus) {
        self.stop.store(true, Ordering::Relaxed);
        let finished = self.tasks.join_all().await;
        let mut entries = 0;
        for (key, confirmed) in &finished {
            assert!(!confirmed.is_empty());
            assert_eq!(
                read_all(bus, key, 3000).await,
                *confirmed,
                "goal {}",
                key.goal
            );
            let tail = bus.journal.tail(key).await.expect("a tail");
            assert_eq!(tail.as_ref(), confirmed.last());
            for n in 0..confirmed.len() {
                let stands = bus.slots.read(&slot(key, n)).await.expect("an answer");
                assert_eq!(stands, Some(mark(n)), "slot {n} of goal {}", key.goal);
            }
            entries += confirmed.len();
        }
        let mut open = Vec::new();
        for shard in 0..SHARDS {
            let of_shard = bus.journal.open_goals(shard, None, usize::MAX).await;
            open.extend(of_shard.expect("a list").into_iter().map(|open| open.key));
        }
        let mut keys: Vec<_> = finished.iter().map(|(key, _)| key.clone()).collect();
        keys.sort();
        open.sort();
        assert_eq!(open, keys);
        println!(
            "{entries} entries of {} goals, and as many slots",
            finished.len()
        );
    }
}

fn slot(key: &GoalKey, n: usize) -> SlotKey {
    SlotKey {
        goal: key.clone(),
        step: StepId::new(format!("s{n}")).unwrap(),
        attempt: 1,
    }
}

fn mark(n: usize) -> SlotMark {
    let node = NodeId::new("n1").unwrap();
    SlotMark::Started {
        node,
        nonce: n as u64,
    }
}

/// One entry and one slot.
async fn step(bus: &Bus, key: &GoalKey, confirmed: &mut Vec<Stored>) {
    let n = confirmed.len();
    let after = confirmed.last().map_or(0, |last| last.seq);
    let entry = Bytes::from(format!("entry {n} of goal {}", key.goal));
    let seq = settle(bus, key, after, &entry).await;
    confirmed.push(Stored { seq, entry });
    loop {
        match bus.slots.win(&slot(key, n), mark(n)).await {
            Ok(stands) => {
                assert_eq!(stands, mark(n), "nobody else writes it");
                return;
            }
            Err(fault) => {
                assert!(fault.code.retryable(), "{fault}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// As the orchestrator does it: what is not confirmed is looked for at the tail, and the
/// fence is never refreshed.
async fn settle(bus: &Bus, key: &GoalKey, after: u64, entry: &Bytes) -> u64 {
    loop {
        let unclear = match append(bus, key, after, entry.clone()).await {
            Ok(seq) => return seq,
            Err(AppendError::Refused(fault)) => {
                assert!(fault.code.retryable(), "{fault}");
                fault.to_string()
            }
            Err(unclear) => unclear.to_string(),
        };
        match bus.journal.tail(key).await {
            Ok(Some(tail)) if tail.entry == *entry => return tail.seq,
            Ok(tail) => {
                let seq = tail.map_or(0, |tail| tail.seq);
                assert_eq!(seq, after, "goal {} after {unclear}", key.goal);
            }
            Err(fault) => assert!(fault.code.retryable(), "{fault}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
