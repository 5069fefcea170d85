//! What JetStream refuses, and what each refusal is taken for.

use super::*;
use detent_bus::ENTRY_BYTES_MAX;
use detent_protocol::Code;
use std::collections::BTreeMap;
use tokio::task::JoinSet;

fn refused<T: std::fmt::Debug>(outcome: Result<T, AppendError>) -> Code {
    match outcome {
        Err(AppendError::Refused(fault)) => fault.code,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_full_stream_refuses_and_keeps_what_it_has() {
    let server = support::server().await;
    let small = NatsOptions {
        journal_bytes_max: 64 * 1024,
        ..server.options()
    };
    let bus = connect(small).await;
    let key = goal("full");
    let mut kept = Vec::new();
    let fault = loop {
        let after = kept.last().map_or(0, |last: &Stored| last.seq);
        let entry = Bytes::from(vec![kept.len() as u8; 1000]);
        match append(&bus, &key, after, entry.clone()).await {
            Ok(seq) => kept.push(Stored { seq, entry }),
            Err(AppendError::Refused(fault)) => break fault,
            Err(other) => panic!("{other}"),
        }
        assert!(kept.len() < 100);
    };
    assert_eq!(fault.code, Code::JournalStorage);
    assert!(fault.code.retryable());
    assert!(fault.message.contains("65536 bytes"), "{fault}");
    assert_eq!(read_all(&bus, &key, 1 << 20).await, kept);
    // Given more room, the same append goes on.
    NatsBus::set_up(server.options()).await.expect("mended");
    let last = kept.last().unwrap().seq;
    append(&bus, &key, last, "more").await.expect("appended");
}

#[tokio::test]
async fn the_largest_entry_comes_back_and_a_larger_one_is_refused() {
    let server = support::server().await;
    let bus = connect(server.options()).await;
    let key = goal("large");
    let largest = Bytes::from(vec![0xa5; ENTRY_BYTES_MAX]);
    let mut after = 0;
    for _ in 0..3 {
        let seq = append(&bus, &key, after, largest.clone()).await;
        after = seq.expect("appended");
    }
    let larger = append(&bus, &key, after, vec![1; ENTRY_BYTES_MAX + 1]).await;
    assert_eq!(refused(larger), Code::InputTooLarge);
    for page_bytes in [1, ENTRY_BYTES_MAX, 2 * ENTRY_BYTES_MAX, usize::MAX] {
        let all = read_all(&bus, &key, page_bytes).await;
        assert_eq!(all.len(), 3);
        assert!(all.iter().all(|stored| stored.entry == largest));
    }
}

/// On several servers an append takes a moment; another one to the same subject is told
/// neither yes nor no (10164) until it is decided.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn appends_that_meet_on_their_way_are_decided() {
    let cluster = support::cluster3().await;
    let options = cluster.options();
    let bus = connect(options.clone()).await;
    let jetstream = jetstream(&options).await;
    let mut seen = BTreeMap::new();
    for round in 0..200 {
        let subject = format!("detent-journal.00.default.raw-{round}.e");
        let mut racers = JoinSet::new();
        for _ in 0..16 {
            let (jetstream, subject) = (jetstream.clone(), subject.clone());
            racers.spawn(async move {
                let message = async_nats::jetstream::message::PublishMessage::build()
                    .expected_last_subject_sequence(0);
                let sent = jetstream.send_publish(subject, message).await.unwrap();
                match sent.await {
                    Ok(_) => "stored".to_owned(),
                    Err(e) => format!("{:?} {e}", e.kind()),
                }
            });
        }
        for outcome in racers.join_all().await {
            *seen.entry(outcome).or_insert(0) += 1;
        }
        if seen.keys().any(|outcome| outcome.contains("10164")) {
            break;
        }
    }
    assert!(
        seen.keys().any(|outcome| outcome.contains("10164")),
        "{seen:#?}"
    );

    let key = goal("meet");
    let mut racers = JoinSet::new();
    for n in 0..32 {
        let (bus, key) = (bus.clone(), key.clone());
        racers.spawn(async move { append(&bus, &key, 0, format!("{n}")).await });
    }
    let outcomes = racers.join_all().await;
    let won: Vec<_> = outcomes.iter().flatten().collect();
    assert_eq!(won.len(), 1, "{outcomes:?}");
    let refused =
        |outcome: &&Result<u64, AppendError>| matches!(outcome, Err(AppendError::Refused(_)));
    assert_eq!(outcomes.iter().filter(refused).count(), 0, "{outcomes:?}");
    assert_eq!(read_all(&bus, &key, 1000).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_leader_nobody_knows() {
    let mut cluster = support::cluster3().await;
    let bus = connect(cluster.options()).await;
    let key = goal("leaderless");
    let first = append(&bus, &key, 0, "first").await.expect("appended");
    // The bus may lose its connection too; that one is told at once.
    cluster.servers[0].server.kill().await;
    cluster.servers[1].server.kill().await;
    let lost = loop {
        match append(&bus, &key, first, "second").await {
            Err(AppendError::Unknown(fault)) => break fault,
            Err(AppendError::Refused(fault)) => assert_eq!(fault.code, Code::BrokerUnreachable),
            other => panic!("{other:?}"),
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    };
    assert!(lost.code.retryable(), "{lost}");
    // A leader that has lost the others goes on answering for some seconds, with what was
    // confirmed.
    let fault = loop {
        match bus.journal.tail(&key).await {
            Ok(tail) => assert_eq!(tail.map(|tail| tail.seq), Some(first)),
            Err(fault) => break fault,
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    };
    assert_eq!(fault.code, Code::BrokerUnreachable, "{fault}");
    let fault = bus
        .journal
        .read(&key, 0, 1000)
        .await
        .expect_err("no leader");
    assert_eq!(fault.code, Code::BrokerUnreachable, "{fault}");
    let shard = key.goal.shard();
    let open = bus.journal.open_goals(shard, None, 10).await;
    assert_eq!(open.expect_err("no leader").code, Code::BrokerUnreachable);
    for n in [0, 1] {
        cluster.servers[n]
            .server
            .respawn()
            .await
            .expect("it starts");
    }
    cluster.wait_ready().await;
    let there = async {
        loop {
            match bus.journal.tail(&key).await {
                Ok(Some(tail)) if tail.entry == "second" => return,
                Ok(_) => drop(append(&bus, &key, first, "second").await),
                Err(fault) => assert!(fault.code.retryable(), "{fault}"),
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    let there = tokio::time::timeout(support::PATIENCE, there).await;
    there.expect("the append goes on");
    let all = read_all(&bus, &key, 1000).await;
    let all: Vec<_> = all.iter().map(|stored| &*stored.entry).collect();
    assert_eq!(all, [&b"first"[..], b"second"]);
}

#[tokio::test]
async fn nothing_is_sent_into_a_lost_connection() {
    let mut broker = support::server().await;
    let bus = connect(broker.options()).await;
    let key = goal("cut");
    let first = append(&bus, &key, 0, "first").await.expect("appended");
    broker.server.kill().await;
    let refused = async {
        loop {
            match append(&bus, &key, first, "second").await {
                Err(AppendError::Refused(fault)) => return fault,
                Err(AppendError::Unknown(_)) => {}
                other => panic!("{other:?}"),
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    let fault = tokio::time::timeout(support::PATIENCE, refused).await;
    assert_eq!(fault.expect("noticed").code, Code::BrokerUnreachable);
}
