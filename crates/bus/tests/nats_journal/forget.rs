//! Roll-up, fence and time to live together.

use super::*;
use detent_bus::Forget;
use std::time::Duration;

async fn forget(bus: &Bus, key: &GoalKey, after: u64, keep: Duration) -> Result<u64, AppendError> {
    let forget = Forget {
        key: key.clone(),
        after,
        tombstone: Bytes::from_static(b"tombstone"),
        keep,
    };
    bus.journal.forget(forget).await
}

async fn ended(bus: &Bus, key: &GoalKey) -> u64 {
    let first = append(bus, key, 0, "first").await.expect("appended");
    let end = bus.journal.append(append_of(key, first, "end", true)).await;
    end.expect("ended")
}

/// A tombstone goes when its time is up, and only then.
async fn lapses(options: NatsOptions) {
    let bus = connect(options).await;
    let (short, long, ever) = (goal("short"), goal("long"), goal("ever"));
    for (key, keep) in [
        (&short, Duration::from_secs(1)),
        (&long, Duration::from_secs(3600)),
        (&ever, Duration::MAX),
    ] {
        let last = ended(&bus, key).await;
        forget(&bus, key, last, keep).await.expect("forgotten");
    }
    let gone = async {
        while bus.journal.tail(&short).await.expect("a tail").is_some() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(support::PATIENCE, gone)
        .await
        .expect("it goes");
    append(&bus, &short, 0, "anew").await.expect("first again");
    for key in [&long, &ever] {
        let first = append(&bus, key, 0, "anew").await;
        assert!(
            matches!(first, Err(AppendError::Fenced { .. })),
            "{first:?}"
        );
        assert_eq!(read_all(&bus, key, 1000).await.len(), 1);
    }
}

#[tokio::test]
async fn a_tombstone_lapses_on_one_server() {
    lapses(support::server().await.options()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tombstone_lapses_on_three_servers() {
    lapses(support::cluster3().await.options()).await;
}

/// The fence is checked in the same step as the roll-up: of an append and a tombstone
/// with the same fence one is stored, and the loser has changed nothing.
async fn races(options: NatsOptions) {
    let bus = connect(options.clone()).await;
    let other = connect(options).await;
    let keep = Duration::from_secs(3600);
    let mut won = [0, 0];
    for round in 0..60 {
        let key = goal(&format!("race {round}"));
        let last = ended(&bus, &key).await;
        let (other, its_key) = (other.clone(), key.clone());
        let forgetting = tokio::spawn(async move { forget(&other, &its_key, last, keep).await });
        let appended = append(&bus, &key, last, "later").await;
        let forgotten = forgetting.await.expect("no panic");
        let all = read_all(&bus, &key, 1000).await;
        let all: Vec<_> = all.iter().map(|stored| &*stored.entry).collect();
        match (appended, forgotten) {
            (Ok(seq), Err(AppendError::Fenced { last })) => {
                assert_eq!(last, seq);
                assert_eq!(all, [&b"first"[..], b"end", b"later"]);
                won[0] += 1;
            }
            (Err(AppendError::Fenced { last }), Ok(seq)) => {
                assert_eq!(last, seq);
                assert_eq!(all, [b"tombstone"]);
                won[1] += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    println!("appends won {}, tombstones {}", won[0], won[1]);
}

#[tokio::test]
async fn an_append_and_a_tombstone_race_on_one_server() {
    races(support::server().await.options()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_and_a_tombstone_race_on_three_servers() {
    races(support::cluster3().await.options()).await;
}
