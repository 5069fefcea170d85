//! Journals.

use super::{goal, goal_of, node};
use crate::{Append, AppendError, Bus, GoalKey, Stored};
use bytes::Bytes;
use detent_protocol::ids::SHARDS;
use detent_protocol::{GoalId, TenantId};
use std::collections::BTreeSet;
use tokio::task::JoinSet;

const WRITERS: usize = 64;
const ALL: usize = 1000;

pub(super) async fn append(
    bus: &Bus,
    key: &GoalKey,
    after: u64,
    entry: &[u8],
    ends: bool,
) -> Result<u64, AppendError> {
    let append = Append {
        key: key.clone(),
        after,
        entry: Bytes::copy_from_slice(entry),
        by: node("n"),
        ends,
    };
    bus.journal.append(append).await
}

/// Appends that must succeed, from an empty journal on; gives their sequences.
pub(super) async fn fill(bus: &Bus, key: &GoalKey, entries: &[&[u8]]) -> Vec<u64> {
    let mut seqs = Vec::new();
    for entry in entries {
        let after = seqs.last().copied().unwrap_or(0);
        let seq = append(bus, key, after, entry, false)
            .await
            .expect("appended");
        assert!(seq > after, "sequences rise");
        seqs.push(seq);
    }
    seqs
}

pub(super) async fn read(bus: &Bus, key: &GoalKey, after: u64, bytes_max: usize) -> Vec<Stored> {
    let page = bus.journal.read(key, after, bytes_max).await;
    page.expect("a page")
}

pub(super) fn entries(page: &[Stored]) -> Vec<&[u8]> {
    page.iter().map(|stored| &*stored.entry).collect()
}

pub(super) async fn the_first_must_be_first(bus: Bus) {
    let key = goal("first");
    let early = append(&bus, &key, 3, b"x", false).await;
    assert_eq!(early, Err(AppendError::Fenced { last: 0 }));
    assert_eq!(bus.journal.tail(&key).await, Ok(None));
    let seq = append(&bus, &key, 0, b"first", false).await;
    let last = seq.expect("appended");
    let again = append(&bus, &key, 0, b"first", false).await;
    assert_eq!(again, Err(AppendError::Fenced { last }));
    assert_eq!(entries(&read(&bus, &key, 0, ALL).await), [b"first"]);
}

pub(super) async fn the_fence_holds(bus: Bus) {
    let key = goal("fence");
    let seqs = fill(&bus, &key, &[b"1", b"2", b"3"]).await;
    let last = seqs[2];
    for wrong in [0, seqs[0], seqs[1], last + 1, u64::MAX] {
        let refused = append(&bus, &key, wrong, b"x", true).await;
        assert_eq!(refused, Err(AppendError::Fenced { last }), "after {wrong}");
    }
    assert_eq!(entries(&read(&bus, &key, 0, ALL).await), [b"1", b"2", b"3"]);
    append(&bus, &key, last, b"4", false)
        .await
        .expect("appended");
}

pub(super) async fn of_racing_writers_one_wins(bus: Bus) {
    let key = goal("race");
    let mut last = 0;
    let mut won = Vec::new();
    for round in 0..5 {
        let mut racers = JoinSet::new();
        for writer in 0..WRITERS {
            let (bus, key) = (bus.clone(), key.clone());
            let entry = format!("{round}/{writer}");
            racers.spawn(async move {
                let outcome = append(&bus, &key, last, entry.as_bytes(), false).await;
                outcome.ok().map(|seq| (seq, entry))
            });
        }
        let winners: Vec<_> = racers.join_all().await.into_iter().flatten().collect();
        let [(seq, entry)] = winners.as_slice() else {
            panic!("{} writers won round {round}", winners.len());
        };
        assert!(*seq > last);
        last = *seq;
        won.push(entry.clone());
    }
    let page = read(&bus, &key, 0, ALL).await;
    assert_eq!(
        entries(&page),
        won.iter().map(String::as_bytes).collect::<Vec<_>>()
    );
}

pub(super) async fn racing_first_appends_make_one_goal(bus: Bus) {
    let mut racers = JoinSet::new();
    for _ in 0..WRITERS {
        let bus = bus.clone();
        racers.spawn(async move { append(&bus, &goal("intake"), 0, b"x", false).await });
    }
    let won = racers.join_all().await.into_iter().filter(Result::is_ok);
    assert_eq!(won.count(), 1);
    let key = goal("intake");
    let listed = bus.journal.goals(&key.tenant, None, ALL).await;
    assert_eq!(listed, Ok(vec![key.clone()]));
    assert_eq!(open(&bus, key.goal.shard(), None, ALL).await, [key]);
}

pub(super) async fn entries_come_back_as_they_were(bus: Bus) {
    let key = goal("bytes");
    let every_byte: Vec<u8> = (0..=255).collect();
    let large = vec![0xa5; 512 * 1024];
    let given: [&[u8]; 4] = [b"\0", &every_byte, &large, b"\xc1{}"];
    let seqs = fill(&bus, &key, &given).await;
    let page = read(&bus, &key, 0, 1 << 20).await;
    assert_eq!(entries(&page), given);
    assert!(page.iter().map(|stored| stored.seq).eq(seqs));
}

pub(super) async fn reading_goes_in_pages(bus: Bus) {
    let key = goal("pages");
    let entry: &[u8] = &[1; 100];
    let seqs = fill(&bus, &key, &[entry; 10]).await;
    let (mut after, mut found) = (0, Vec::new());
    loop {
        let page = read(&bus, &key, after, 350).await;
        let Some(last) = page.last() else { break };
        assert!(
            page.len() <= 3,
            "{} entries of 100 bytes in 350",
            page.len()
        );
        after = last.seq;
        found.extend(page.into_iter().map(|stored| stored.seq));
    }
    assert_eq!(found, seqs);
    assert!(read(&bus, &key, u64::MAX, 350).await.is_empty());
    assert!(read(&bus, &goal("other"), 0, 350).await.is_empty());
}

pub(super) async fn a_page_has_at_least_one_entry(bus: Bus) {
    let key = goal("large");
    fill(&bus, &key, &[&[1; 1000], &[2; 1000]]).await;
    assert_eq!(entries(&read(&bus, &key, 0, 1).await), [[1; 1000]]);
}

pub(super) async fn the_tail_is_the_last_entry(bus: Bus) {
    let key = goal("tail");
    assert_eq!(bus.journal.tail(&key).await, Ok(None));
    let mut after = 0;
    for n in 1..=5u8 {
        after = append(&bus, &key, after, &[n], false)
            .await
            .expect("appended");
        let entry = Bytes::copy_from_slice(&[n]);
        let tail = bus.journal.tail(&key).await;
        assert_eq!(tail, Ok(Some(Stored { seq: after, entry })));
    }
}

pub(super) async fn open(
    bus: &Bus,
    shard: u16,
    after: Option<&GoalKey>,
    limit: usize,
) -> Vec<GoalKey> {
    let found = bus.journal.open_goals(shard, after, limit).await;
    let found = found.expect("a list").into_iter();
    found.map(|open| open.key).collect()
}

pub(super) async fn goals_are_open_until_they_end(bus: Bus) {
    let key = goal("open");
    let shard = key.goal.shard();
    assert!(open(&bus, shard, None, ALL).await.is_empty());
    let seqs = fill(&bus, &key, &[b"1", b"2"]).await;
    assert_eq!(
        open(&bus, shard, None, ALL).await,
        std::slice::from_ref(&key)
    );
    assert!(open(&bus, (shard + 1) % SHARDS, None, ALL).await.is_empty());
    // A refused end ends nothing.
    let refused = append(&bus, &key, seqs[0], b"end", true).await;
    assert_eq!(refused, Err(AppendError::Fenced { last: seqs[1] }));
    assert_eq!(
        open(&bus, shard, None, ALL).await,
        std::slice::from_ref(&key)
    );
    append(&bus, &key, seqs[1], b"end", true)
        .await
        .expect("ended");
    assert!(open(&bus, shard, None, ALL).await.is_empty());
    // Its journal stays, and so does its name.
    assert_eq!(read(&bus, &key, 0, ALL).await.len(), 3);
    assert!(append(&bus, &key, 0, b"1", false).await.is_err());
    let at_once = goal("refused at intake");
    append(&bus, &at_once, 0, b"end", true)
        .await
        .expect("ended");
    assert!(open(&bus, at_once.goal.shard(), None, ALL).await.is_empty());
}

pub(super) async fn open_goals_are_listed_by_shard_in_pages(bus: Bus) {
    let mut keys: Vec<_> = (0..20).map(|n| goal(&format!("scan {n}"))).collect();
    keys.extend((0..20).map(|n| goal_of("a-tenant", &format!("scan {n}"))));
    for key in &keys {
        append(&bus, key, 0, b"x", false).await.expect("appended");
    }
    let mut found = Vec::new();
    for shard in 0..SHARDS {
        let mut of_shard: Vec<GoalKey> = Vec::new();
        loop {
            let page = open(&bus, shard, of_shard.last(), 2).await;
            assert!(page.len() <= 2);
            if page.is_empty() {
                break;
            }
            of_shard.extend(page);
        }
        assert!(of_shard.iter().all(|key| key.goal.shard() == shard));
        assert!(of_shard.is_sorted(), "in key order");
        found.extend(of_shard);
    }
    keys.sort();
    found.sort();
    assert_eq!(found, keys);
}

pub(super) async fn goals_are_listed_by_tenant_in_pages(bus: Bus) {
    let mut keys: Vec<_> = (0..7).map(|n| goal(&format!("list {n}"))).collect();
    for (n, key) in keys.iter().enumerate() {
        // Ended goals are listed too.
        append(&bus, key, 0, b"x", n % 2 == 0)
            .await
            .expect("appended");
    }
    keys.sort();
    let mut found: Vec<GoalKey> = Vec::new();
    loop {
        let after = found.last().map(|key: &GoalKey| key.goal);
        let page = bus.journal.goals(&keys[0].tenant, after.as_ref(), 3).await;
        let page = page.expect("a list");
        assert!(page.len() <= 3);
        if page.is_empty() {
            break;
        }
        found.extend(page);
    }
    assert_eq!(found, keys);
}

pub(super) async fn tenants_are_listed_in_pages(bus: Bus) {
    let names = ["a", "b-1", "c_2", "default"];
    for (n, name) in names.iter().enumerate() {
        for goal in ["1", "2"] {
            let key = goal_of(name, goal);
            append(&bus, &key, 0, b"x", n % 2 == 0)
                .await
                .expect("appended");
        }
    }
    let mut found: Vec<TenantId> = Vec::new();
    loop {
        let page = bus.journal.tenants(found.last(), 3).await.expect("a list");
        assert!(page.len() <= 3);
        if page.is_empty() {
            break;
        }
        found.extend(page);
    }
    let found: Vec<_> = found.iter().map(TenantId::as_str).collect();
    assert_eq!(found, names);
}

pub(super) async fn tenants_are_apart(bus: Bus) {
    let id = GoalId::from_bytes([7; 16]);
    let tenants = ["a", "ab", "b"].map(|name| TenantId::new(name).expect("a name"));
    let keys = tenants.clone().map(|tenant| GoalKey { tenant, goal: id });
    for key in &keys {
        let entry = key.tenant.as_str().as_bytes();
        append(&bus, key, 0, entry, false).await.expect("appended");
    }
    append(
        &bus,
        &keys[1],
        1.max(tail_seq(&bus, &keys[1]).await),
        b"end",
        true,
    )
    .await
    .expect("ended");
    for key in &keys {
        let page = read(&bus, key, 0, ALL).await;
        assert_eq!(page[0].entry, key.tenant.as_str());
        let listed = bus.journal.goals(&key.tenant, None, ALL).await;
        assert_eq!(listed, Ok(vec![key.clone()]));
    }
    let open: BTreeSet<_> = open(&bus, id.shard(), None, ALL)
        .await
        .into_iter()
        .collect();
    assert_eq!(open, BTreeSet::from([keys[0].clone(), keys[2].clone()]));
}

async fn tail_seq(bus: &Bus, key: &GoalKey) -> u64 {
    let tail = bus.journal.tail(key).await.expect("a tail");
    tail.expect("an entry").seq
}
