//! The local bus: the conformance suite, and what only it promises.

use async_trait::async_trait;
use bytes::Bytes;
use detent_bus::conformance::CASES;
use detent_bus::local::{LocalBus, LocalOptions};
use detent_bus::{
    Append, AppendError, Bus, BusError, ENTRY_BYTES_MAX, Event, GoalKey, Handler, OpenGoal,
    ServeOptions, SlotKey,
};
use detent_protocol::effect::SlotMark;
use detent_protocol::{Code, GoalId, MESSAGE_BYTES_MAX, NodeId, StepId, TenantId};
use detent_store::{Store, StoreOptions};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};

const PATIENCE: Duration = Duration::from_secs(60);

fn open(dir: &Path) -> (Bus, Store) {
    let store = Store::open(StoreOptions::journal(dir.join("store"))).unwrap();
    let options = LocalOptions::new(store.clone(), dir.join("blobs"));
    (LocalBus::open(options).unwrap(), store)
}

fn goal() -> GoalKey {
    let tenant = TenantId::default();
    let goal = GoalId::from_bytes([1; 16]);
    GoalKey { tenant, goal }
}

fn append(after: u64, entry: &'static [u8], ends: bool) -> Append {
    let (key, entry) = (goal(), Bytes::from_static(entry));
    Append {
        key,
        after,
        entry,
        by: NodeId::new("n").unwrap(),
        ends,
    }
}

macro_rules! conformance {
    ($($part:ident),*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $part() {
            let prefix = concat!(stringify!($part), "::");
            let cases = CASES.iter().filter(|case| case.name.starts_with(prefix));
            let mut run = 0;
            for case in cases {
                println!("{}", case.name);
                let dir = tempfile::tempdir().unwrap();
                let (bus, store) = open(dir.path());
                (case.run)(bus).await;
                store.close().await.unwrap();
                run += 1;
            }
            assert!(run > 0, "no cases {prefix}*");
        }
    )*};
}

mod conforms {
    use super::*;
    conformance!(messages, journal, forget, slots, leases, blobs);

    /// The suite asks nothing of the clock but that it goes on. (The other parts keep
    /// things in the store, whose writer is a thread that no paused clock waits for.)
    #[tokio::test(start_paused = true)]
    async fn on_a_paused_clock() {
        let in_memory = |name: &str| name.starts_with("messages::") || name.starts_with("leases::");
        for case in CASES.iter().filter(|case| in_memory(case.name)) {
            let dir = tempfile::tempdir().unwrap();
            (case.run)(open(dir.path()).0).await;
        }
    }

    #[test]
    fn no_case_is_left_out() {
        // Durable messages need a broker: here their cases do nothing.
        let parts = [
            "messages", "journal", "forget", "slots", "leases", "blobs", "inbox",
        ];
        for case in CASES {
            let part = case.name.split("::").next().unwrap();
            assert!(parts.contains(&part), "{}", case.name);
        }
    }
}

#[tokio::test]
async fn journals_and_slots_outlive_the_bus() {
    let dir = tempfile::tempdir().unwrap();
    let mark = SlotMark::Revoked { epoch: 4 };
    let slot = SlotKey {
        goal: goal(),
        step: StepId::new("s").unwrap(),
        attempt: 1,
    };
    let (bus, store) = open(dir.path());
    assert_eq!(bus.journal.append(append(0, b"one", false)).await, Ok(1));
    assert_eq!(bus.journal.append(append(1, b"two", false)).await, Ok(2));
    bus.slots.win(&slot, mark.clone()).await.unwrap();
    let digest = bus.blobs.put(Bytes::from_static(b"body")).await.unwrap();
    drop(bus);
    store.close().await.unwrap();

    let (bus, _store) = open(dir.path());
    let page = bus.journal.read(&goal(), 0, 1000).await.unwrap();
    assert_eq!(page.iter().map(|s| s.seq).collect::<Vec<_>>(), [1, 2]);
    let open_goals = bus.journal.open_goals(goal().goal.shard(), None, 10).await;
    let open = OpenGoal {
        key: goal(),
        by: None,
    };
    assert_eq!(open_goals, Ok(vec![open]));
    assert_eq!(bus.slots.read(&slot).await, Ok(Some(mark)));
    let body = bus.blobs.get(&digest).await.unwrap();
    assert_eq!(body.unwrap(), "body");
    let late = bus.journal.append(append(1, b"late", false)).await;
    assert_eq!(late, Err(AppendError::Fenced { last: 2 }));
    assert_eq!(bus.journal.append(append(2, b"three", true)).await, Ok(3));
}

#[tokio::test]
async fn a_closed_store_refuses_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let (bus, store) = open(dir.path());
    store.close().await.unwrap();
    let refused = bus.journal.append(append(0, b"x", false)).await;
    assert!(matches!(refused, Err(AppendError::Refused(f)) if f.code == Code::JournalStorage));
    let unread = bus.journal.tail(&goal()).await;
    assert_eq!(unread.unwrap_err().code, Code::JournalStorage);
}

#[tokio::test]
async fn an_entry_has_a_bound() {
    let dir = tempfile::tempdir().unwrap();
    let (bus, _store) = open(dir.path());
    let with = |bytes| Append {
        entry: Bytes::from(vec![1; bytes]),
        ..append(0, b"", false)
    };
    let refused = bus.journal.append(with(ENTRY_BYTES_MAX + 1)).await;
    assert!(matches!(refused, Err(AppendError::Refused(f)) if f.code == Code::InputTooLarge));
    assert_eq!(bus.journal.append(with(ENTRY_BYTES_MAX)).await, Ok(1));
    let tail = bus.journal.tail(&goal()).await.unwrap().unwrap();
    assert_eq!(tail.entry.len(), ENTRY_BYTES_MAX);
}

#[tokio::test]
async fn a_message_is_no_larger_than_on_a_network() {
    let dir = tempfile::tempdir().unwrap();
    let (bus, _store) = open(dir.path());
    let beyond = Bytes::from(vec![0; MESSAGE_BYTES_MAX + 1]);
    let refused = bus.messages.publish("detent.event", beyond).await;
    let (bytes, max) = (MESSAGE_BYTES_MAX + 1, MESSAGE_BYTES_MAX);
    assert_eq!(refused, Err(BusError::TooLarge { bytes, max }));
    let largest = Bytes::from(vec![0; MESSAGE_BYTES_MAX]);
    assert_eq!(bus.messages.publish("detent.event", largest).await, Ok(()));
}

/// Panics once it is let go.
struct Doomed(Arc<Semaphore>);

#[async_trait]
impl Handler for Doomed {
    async fn handle(&self, _: &str, _: Bytes) -> Bytes {
        self.0.acquire().await.unwrap().forget();
        panic!("asked to");
    }
}

#[tokio::test]
async fn a_panic_is_told_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let (bus, _store) = open(dir.path());
    let gate = Arc::new(Semaphore::new(1));
    let options = ServeOptions::default();
    let doomed = Arc::new(Doomed(gate));
    let _served = bus.messages.serve("s", options, doomed).await.unwrap();
    // With no timeout that could be mistaken for it.
    let asked = bus.messages.request("s", Bytes::new(), Duration::MAX);
    let told = tokio::time::timeout(PATIENCE, asked).await.unwrap();
    assert_eq!(told, Err(BusError::Closed));
}

#[tokio::test]
async fn a_request_that_nobody_waits_for_any_more_is_not_started() {
    struct Recorder(Arc<Semaphore>, mpsc::UnboundedSender<Bytes>);
    #[async_trait]
    impl Handler for Recorder {
        async fn handle(&self, _: &str, payload: Bytes) -> Bytes {
            self.1.send(payload.clone()).unwrap();
            self.0.acquire().await.unwrap().forget();
            payload
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let (bus, _store) = open(dir.path());
    let gate = Arc::new(Semaphore::new(0));
    let (started, mut seen) = mpsc::unbounded_channel();
    let one_at_a_time = ServeOptions {
        concurrency_max: 1,
        ..ServeOptions::default()
    };
    let recorder = Arc::new(Recorder(Arc::clone(&gate), started));
    let served = bus.messages.serve("s", one_at_a_time, recorder);
    let _served = served.await.unwrap();
    let ask = |name: &'static str, wait| {
        let payload = Bytes::from_static(name.as_bytes());
        bus.messages.request("s", payload, wait)
    };
    let (first, ()) = tokio::join!(ask("first", PATIENCE), async {
        assert_eq!(seen.recv().await.unwrap(), "first");
        let given_up = ask("given up", Duration::from_millis(20)).await;
        assert!(matches!(given_up, Err(BusError::Timeout { .. })));
        gate.add_permits(2);
    });
    first.unwrap();
    ask("last", PATIENCE).await.unwrap();
    assert_eq!(seen.recv().await.unwrap(), "last");
}

#[tokio::test]
async fn a_group_takes_turns_and_skips_the_full() {
    struct Blocked;
    #[async_trait]
    impl Handler for Blocked {
        async fn handle(&self, _: &str, _: Bytes) -> Bytes {
            std::future::pending().await
        }
    }
    struct Free;
    #[async_trait]
    impl Handler for Free {
        async fn handle(&self, _: &str, payload: Bytes) -> Bytes {
            payload
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let (bus, _store) = open(dir.path());
    let narrow = ServeOptions {
        concurrency_max: 1,
        queue_max: 0,
        ..ServeOptions::default()
    };
    let blocked = bus.messages.serve("s", narrow, Arc::new(Blocked));
    let _blocked = blocked.await.unwrap();
    let wide = ServeOptions::default();
    let _free = bus.messages.serve("s", wide, Arc::new(Free)).await.unwrap();
    let mut asked: FuturesUnordered<_> = (0..9)
        .map(|_| bus.messages.request("s", Bytes::new(), PATIENCE))
        .collect();
    // One stays with the blocked service; where it was full the other stepped in.
    for _ in 0..8 {
        assert_eq!(asked.next().await, Some(Ok(Bytes::new())));
    }
}

#[tokio::test]
async fn subscriptions_end_with_the_bus() {
    let dir = tempfile::tempdir().unwrap();
    let (bus, _store) = open(dir.path());
    let mut subscription = bus.messages.subscribe("s", 4).await.unwrap();
    let payload = Bytes::from_static(b"last");
    bus.messages.publish("s", payload.clone()).await.unwrap();
    drop(bus);
    let subject = "s".to_owned();
    let last = Event::Message { subject, payload };
    assert_eq!(subscription.next().await, Some(last));
    assert_eq!(subscription.next().await, None);
}

#[tokio::test]
async fn services_and_subscriptions_are_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(StoreOptions::journal(dir.path().join("store"))).unwrap();
    let bus = LocalBus::open(LocalOptions {
        services_max: 1,
        subscriptions_max: 1,
        ..LocalOptions::new(store, dir.path().join("blobs"))
    });
    let bus = bus.unwrap();
    let serve = || {
        let handler = Arc::new(Doomed(Arc::new(Semaphore::new(0))));
        bus.messages.serve("s", ServeOptions::default(), handler)
    };
    let first = serve().await.unwrap();
    assert!(matches!(serve().await, Err(BusError::Busy(_))));
    drop(first);
    let _again = serve().await.unwrap();
    let first = bus.messages.subscribe("s", 1).await.unwrap();
    let second = bus.messages.subscribe("s", 1).await;
    assert!(matches!(second, Err(BusError::Busy(_))));
    drop(first);
    bus.messages.subscribe("s", 1).await.unwrap();
}

#[tokio::test]
async fn a_damaged_body_is_found_and_mended() {
    let dir = tempfile::tempdir().unwrap();
    let (bus, _store) = open(dir.path());
    let body = Bytes::from_static(b"a body");
    let digest = bus.blobs.put(body.clone()).await.unwrap();
    let name = digest.to_string();
    let file = dir.path().join("blobs").join(&name[..2]).join(&name);
    for damage in [&b"A body"[..], b"", b"a body and more"] {
        std::fs::write(&file, damage).unwrap();
        let found = bus.blobs.get(&digest).await.unwrap_err();
        assert_eq!(found.code, Code::JournalCorrupt);
        assert!(found.at.unwrap().ends_with(&name));
        assert_eq!(bus.blobs.put(body.clone()).await, Ok(digest));
        assert_eq!(bus.blobs.get(&digest).await, Ok(Some(body.clone())));
    }
}

#[tokio::test]
async fn what_a_killed_process_left_half_written_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let unfinished = dir.path().join("blobs").join("unfinished");
    std::fs::create_dir_all(&unfinished).unwrap();
    std::fs::write(unfinished.join("0"), "half").unwrap();
    let (bus, _store) = open(dir.path());
    assert_eq!(std::fs::read_dir(&unfinished).unwrap().count(), 0);
    bus.blobs.put(Bytes::from_static(b"x")).await.unwrap();
    assert_eq!(std::fs::read_dir(&unfinished).unwrap().count(), 0);
}
