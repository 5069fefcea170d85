//! Lists of goals while goals come, end and are forgotten, and reads right after appends.

use super::*;
use detent_bus::{Forget, OpenGoal, SlotKey};
use detent_protocol::StepId;
use detent_protocol::effect::SlotMark;
use std::time::Duration;

/// Names of goals of one shard.
fn of_shard(shard: u16, count: usize) -> Vec<GoalKey> {
    let all = (0..).map(|n| goal(&format!("listed {n}")));
    all.filter(|key| key.goal.shard() == shard)
        .take(count)
        .collect()
}

async fn open(bus: &Bus, shard: u16) -> Vec<OpenGoal> {
    let open = bus.journal.open_goals(shard, None, 1000).await;
    open.expect("a list")
}

/// Another node sees what happened at once, whichever replica its consumer is on: also
/// where its view is from before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_goals_are_seen_by_another_node_at_once() {
    let cluster = support::cluster3().await;
    let here = connect(cluster.options()).await;
    let there = connect(cluster.options()).await;
    let mut keys = of_shard(5, 12);
    for key in &keys {
        let first = append(&here, key, 0, "first").await.expect("appended");
        let seen = open(&there, 5).await;
        let seen = seen.iter().find(|open| open.key == *key);
        assert_eq!(seen.expect("open").by, NodeId::new("n1").ok());
        let taken = Append {
            by: NodeId::new("n2").unwrap(),
            ..append_of(key, first, "second", false)
        };
        here.journal.append(taken).await.expect("appended");
        let seen = open(&there, 5).await;
        let seen = seen.iter().find(|open| open.key == *key);
        assert_eq!(seen.expect("open").by, NodeId::new("n2").ok());
    }
    keys.sort();
    while let Some(key) = keys.pop() {
        let last = here.journal.tail(&key).await.unwrap().unwrap().seq;
        let end = here
            .journal
            .append(append_of(&key, last, "end", true))
            .await;
        let last = end.expect("ended");
        if keys.len().is_multiple_of(2) {
            forget(&here, &key, last).await;
        }
        let seen = open(&there, 5).await.into_iter().map(|open| open.key);
        assert_eq!(seen.collect::<Vec<_>>(), keys);
        // A node that starts now sees the same.
        let fresh = connect(cluster.options()).await;
        let seen = open(&fresh, 5).await.into_iter().map(|open| open.key);
        assert_eq!(seen.collect::<Vec<_>>(), keys);
    }
}

async fn forget(bus: &Bus, key: &GoalKey, after: u64) {
    let forget = Forget {
        key: key.clone(),
        after,
        tombstone: Bytes::from_static(b"tombstone"),
        keep: Duration::from_secs(3600),
    };
    bus.journal.forget(forget).await.expect("forgotten");
}

/// What is no goal of this shard, and what is no goal at all, disturbs nobody.
#[tokio::test]
async fn strange_subjects_are_left_alone() {
    let server = support::server().await;
    let bus = connect(server.options()).await;
    let jetstream = jetstream(&server.options()).await;
    let key = of_shard(7, 1).remove(0);
    append(&bus, &key, 0, "first").await.expect("appended");
    for strange in ["07.default.nonsense.e", "07.default.nonsense.s.x.1"] {
        let subject = format!("detent-journal.{strange}");
        let sent = jetstream.publish(subject, "x".into()).await.unwrap();
        sent.await.unwrap();
    }
    let seen: Vec<_> = open(&bus, 7)
        .await
        .into_iter()
        .map(|open| open.key)
        .collect();
    assert_eq!(seen, std::slice::from_ref(&key));
    let goals = bus.journal.goals(&key.tenant, None, 10).await;
    assert_eq!(goals, Ok(vec![key]));
}

/// Whoever wrote a tombstone died before it could remove the slots: another node's sweep
/// does.
#[tokio::test]
async fn slots_that_were_left_are_swept() {
    let server = support::server().await;
    let bus = connect(server.options()).await;
    let jetstream = jetstream(&server.options()).await;
    let key = of_shard(9, 1).remove(0);
    let first = append(&bus, &key, 0, "first").await.expect("appended");
    let slot = SlotKey {
        goal: key.clone(),
        step: StepId::new("pay").unwrap(),
        attempt: 1,
    };
    let mark = SlotMark::Revoked { epoch: 1 };
    assert_eq!(bus.slots.win(&slot, mark.clone()).await, Ok(mark.clone()));
    let mut headers = async_nats::HeaderMap::new();
    headers.insert("Nats-Rollup", "sub");
    headers.insert("Detent-Ends", "1");
    headers.insert("Nats-Expected-Last-Subject-Sequence", first.to_string());
    let subject = format!("detent-journal.09.default.{}.e", key.goal);
    let sent = jetstream.publish_with_headers(subject, headers, "tombstone".into());
    sent.await.unwrap().await.unwrap();
    assert_eq!(bus.slots.read(&slot).await, Ok(Some(mark)));

    let other = connect(server.options()).await;
    assert!(open(&other, 9).await.is_empty());
    assert_eq!(other.journal.sweep().await, Ok(false));
    assert_eq!(bus.slots.read(&slot).await, Ok(None));
    assert_eq!(read_all(&bus, &key, 1000).await.len(), 1);
}

/// Whatever replica a page comes from, it reaches the entry that was confirmed last.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_reach_what_was_confirmed() {
    let cluster = support::cluster3().await;
    let here = connect(cluster.options()).await;
    let there = connect(cluster.options()).await;
    let key = goal("barrier");
    let mut written: Vec<Stored> = Vec::new();
    for n in 0..300 {
        let after = written.last().map_or(0, |last| last.seq);
        let entry = Bytes::from(format!("entry {n} {}", "x".repeat(n % 50)));
        let seq = append(&here, &key, after, entry.clone()).await;
        let seq = seq.expect("appended");
        written.push(Stored { seq, entry });
        let tail = there.journal.tail(&key).await.expect("a tail");
        assert_eq!(tail.as_ref(), written.last());
        // From somewhere before the tail, so that replicas are asked.
        let from = written.len().saturating_sub(10);
        let after = from.checked_sub(1).map_or(0, |last| written[last].seq);
        let page = there.journal.read(&key, after, 1 << 20).await;
        assert_eq!(page.expect("a page"), written[from..], "after {after}");
    }
    assert_eq!(read_all(&there, &key, 1 << 20).await, written);
    assert_eq!(read_all(&there, &key, 500).await, written);
}
