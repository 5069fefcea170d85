//! Durable messages, leases and bodies on a real broker: what a fault does to them.

mod support;

use async_nats::jetstream::{self, consumer};
use async_trait::async_trait;
use bytes::Bytes;
use detent_bus::nats::{BLOBS, DEAD, INTAKE, NatsBus, NatsOptions};
use detent_bus::{BusError, Dealer, Delivery, Disposal, Inbox, Queue};
use detent_protocol::{Code, NodeId};
use futures::StreamExt;
use std::sync::Arc;
use std::time::Duration;
use support::{Broker, PATIENCE, server};
use tokio::sync::mpsc;

const A: &str = "detent.default.intake.a";
const B: &str = "detent.default.intake.b";
/// The shortest that is sure not to pass while a loaded machine does something else.
const ACK_WAIT: Duration = Duration::from_secs(3);

/// Tells, and says what it was told to say.
struct Teller {
    told: mpsc::UnboundedSender<Delivery>,
    say: fn(&Delivery) -> Disposal,
}

#[async_trait]
impl Dealer for Teller {
    async fn deal(&self, delivery: Delivery) -> Disposal {
        let disposal = (self.say)(&delivery);
        // A test that has seen enough has no receiver.
        let _ = self.told.send(delivery);
        disposal
    }
}

fn teller(say: fn(&Delivery) -> Disposal) -> (Arc<Teller>, mpsc::UnboundedReceiver<Delivery>) {
    let (told, heard) = mpsc::unbounded_channel();
    (Arc::new(Teller { told, say }), heard)
}

async fn next(heard: &mut mpsc::UnboundedReceiver<Delivery>) -> Delivery {
    let next = tokio::time::timeout(PATIENCE, heard.recv()).await;
    next.expect("a delivery in time").expect("a dealer")
}

async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let asking = async {
        loop {
            if let Some(found) = ask().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let found = tokio::time::timeout(PATIENCE, asking).await;
    found.unwrap_or_else(|_| panic!("{what}: not within {PATIENCE:?}"))
}

fn options(broker: &Broker) -> NatsOptions {
    NatsOptions {
        inbox_ack_wait: ACK_WAIT,
        ..broker.options()
    }
}

async fn connect(options: NatsOptions) -> (NatsBus, Arc<dyn Inbox>) {
    let nats = NatsBus::connect(options).await.unwrap();
    let inbox = nats.bus.inbox.clone().unwrap();
    (nats, inbox)
}

async fn raw(broker: &Broker) -> jetstream::Context {
    jetstream::new(async_nats::connect(broker.server.url()).await.unwrap())
}

#[tokio::test]
async fn what_a_killed_taker_had_in_hand_comes_to_another() {
    let broker = server().await;
    let (_nats, inbox) = connect(options(&broker)).await;
    // Makes the consumer.
    let (dealer, _heard) = teller(|_| Disposal::Done);
    drop(inbox.take(Queue::Intake, 1, dealer).await.unwrap());
    inbox.put(A, "one".into()).await.unwrap();
    inbox.put(A, "two".into()).await.unwrap();
    // Takes one, and is not heard of any more.
    let stream = raw(&broker).await.get_stream(INTAKE).await.unwrap();
    let killed: consumer::PullConsumer = stream.get_consumer("dealers").await.unwrap();
    let mut taken = killed.fetch().max_messages(1).messages().await.unwrap();
    assert_eq!(taken.next().await.unwrap().unwrap().payload, "one");
    drop(taken);

    let (dealer, mut heard) = teller(|_| Disposal::Done);
    let _served = inbox.take(Queue::Intake, 8, dealer).await.unwrap();
    let mut got = [next(&mut heard).await, next(&mut heard).await];
    got.sort_by(|a, b| a.payload.cmp(&b.payload));
    let got: Vec<_> = got.iter().map(|d| (&*d.payload, d.tries)).collect();
    assert_eq!(got, [(&b"one"[..], 2), (b"two", 1)]);
}

#[tokio::test]
async fn who_deals_with_it_for_long_keeps_it() {
    struct Slow(mpsc::UnboundedSender<u64>);
    #[async_trait]
    impl Dealer for Slow {
        async fn deal(&self, delivery: Delivery) -> Disposal {
            self.0.send(delivery.tries).unwrap();
            tokio::time::sleep(2 * ACK_WAIT).await;
            Disposal::Done
        }
    }
    let broker = server().await;
    let (_nats, inbox) = connect(options(&broker)).await;
    let (told, mut heard) = mpsc::unbounded_channel();
    let slow = Arc::new(Slow(told));
    let _served = inbox.take(Queue::Intake, 4, slow).await.unwrap();
    // The second waits behind the first, which counts as in hand too.
    for payload in ["one", "two"] {
        inbox.put(A, payload.into()).await.unwrap();
    }
    assert_eq!(heard.recv().await, Some(1));
    assert_eq!(heard.recv().await, Some(1));
    let mut stream = raw(&broker).await.get_stream(INTAKE).await.unwrap();
    until("both to be settled", async || {
        let info = stream.info().await.unwrap();
        (info.state.messages == 0).then_some(())
    })
    .await;
    assert!(heard.try_recv().is_err(), "neither was delivered again");
}

#[tokio::test]
async fn what_nobody_can_deal_with_becomes_a_dead_letter() {
    let broker = server().await;
    let (_nats, inbox) = connect(NatsOptions {
        inbox_tries_max: 3,
        ..options(&broker)
    })
    .await;
    inbox.put(A, "x".into()).await.unwrap();
    let (dealer, mut heard) = teller(|_| Disposal::Later(Duration::ZERO));
    let _served = inbox.take(Queue::Intake, 1, dealer).await.unwrap();
    for tries in 1..=3 {
        assert_eq!(next(&mut heard).await.tries, tries);
    }
    let letter = until("a dead letter", async || {
        inbox.dead(0, 1).await.unwrap().pop()
    })
    .await;
    assert_eq!((letter.subject.as_str(), letter.tries), (A, 3));
    assert_eq!(letter.fault.code, Code::NodeUnreachable);
    assert!(heard.try_recv().is_err());
}

#[tokio::test]
async fn a_full_stream_is_busy_and_loses_nothing() {
    let broker = server().await;
    let (_nats, inbox) = connect(NatsOptions {
        inbox_bytes_max: 1 << 20,
        blobs_bytes_max: 1 << 20,
        ..options(&broker)
    })
    .await;
    let body = Bytes::from(vec![7; 100 << 10]);
    let mut kept: usize = 0;
    let refused = loop {
        match inbox.put(A, body.clone()).await {
            Ok(()) => kept += 1,
            Err(error) => break error,
        }
        assert!(kept < 20, "there is no bound");
    };
    assert_eq!(refused, BusError::Busy(A.into()));
    let (dealer, mut heard) = teller(|_| Disposal::Done);
    let _served = inbox.take(Queue::Intake, 4, dealer).await.unwrap();
    for _ in 0..kept {
        assert_eq!(next(&mut heard).await.payload, body);
    }
    until("room again", async || inbox.put(B, body.clone()).await.ok()).await;

    let bodies = _nats.bus.blobs.clone();
    let fault = bodies.put(Bytes::from(vec![7; 2 << 20])).await.unwrap_err();
    assert_eq!(fault.code, Code::JournalStorage, "{fault}");
    assert!(fault.message.contains(BLOBS), "{fault}");
    // What was written of it is gone again.
    let small = bodies.put(Bytes::from(vec![8; 700 << 10])).await.unwrap();
    assert!(bodies.get(&small).await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_comes_back_and_all_goes_on() {
    let mut broker = server().await;
    let (nats, inbox) = connect(options(&broker)).await;
    let node = NodeId::new("n").unwrap();
    let long = Duration::from_secs(3600);
    let leases = nats.bus.leases.clone();
    let lease = leases.acquire("x", &node, long).await.unwrap().unwrap();
    let body = nats.bus.blobs.put("body".into()).await.unwrap();
    let (dealer, mut heard) = teller(|_| Disposal::Done);
    let _served = inbox.take(Queue::Intake, 4, dealer).await.unwrap();
    inbox.put(A, "before".into()).await.unwrap();
    assert_eq!(next(&mut heard).await.payload, "before");

    broker.server.kill().await;
    let lost = inbox.put(A, "lost".into()).await;
    assert!(
        matches!(lost, Err(BusError::Closed | BusError::Timeout { .. })),
        "{lost:?}"
    );
    let fault = leases.renew(&lease, long).await.unwrap_err();
    assert_eq!(fault.code, Code::BrokerUnreachable);
    broker.server.restart().await.unwrap();

    until("a put", async || inbox.put(A, "after".into()).await.ok()).await;
    // A confirmation may be lost with the server; then it comes again.
    until("what came after", async || {
        (next(&mut heard).await.payload == "after").then_some(())
    })
    .await;
    let renewed = leases.renew(&lease, long).await.unwrap();
    assert!(renewed.unwrap().revision > lease.revision);
    assert!(nats.bus.blobs.get(&body).await.unwrap().is_some());
}

#[tokio::test]
async fn a_consumer_that_was_removed_is_made_anew() {
    let broker = server().await;
    let (_nats, inbox) = connect(options(&broker)).await;
    let (dealer, mut heard) = teller(|_| Disposal::Done);
    let _served = inbox.take(Queue::Intake, 4, dealer).await.unwrap();
    inbox.put(A, "one".into()).await.unwrap();
    assert_eq!(next(&mut heard).await.payload, "one");
    let stream = raw(&broker).await.get_stream(INTAKE).await.unwrap();
    stream.delete_consumer("dealers").await.unwrap();
    inbox.put(A, "two".into()).await.unwrap();
    until("the other one", async || {
        (next(&mut heard).await.payload == "two").then_some(())
    })
    .await;
}

#[tokio::test]
async fn redriving_puts_it_back_before_it_takes_it_out() {
    let broker = server().await;
    let (_nats, inbox) = connect(NatsOptions {
        inbox_tries_max: 1,
        ..options(&broker)
    })
    .await;
    inbox.put(A, "x".into()).await.unwrap();
    let (dealer, _heard) = teller(|_| Disposal::Later(Duration::ZERO));
    let served = inbox.take(Queue::Intake, 1, dealer).await.unwrap();
    let letter = until("a dead letter", async || {
        inbox.dead(0, 1).await.unwrap().pop()
    })
    .await;
    drop(served);
    // Its queue can't take it: it stays a dead letter.
    let jetstream = raw(&broker).await;
    jetstream.delete_stream(INTAKE).await.unwrap();
    inbox.redrive(letter.number).await.unwrap_err();
    assert_eq!(inbox.dead(0, 10).await, Ok(vec![letter.clone()]));
    let config = jetstream
        .get_stream(DEAD)
        .await
        .unwrap()
        .cached_info()
        .config
        .clone();
    assert!(config.max_age > Duration::from_secs(24 * 3600));
}

#[tokio::test]
async fn a_damaged_body_is_found() {
    let broker = server().await;
    let (nats, _inbox) = connect(options(&broker)).await;
    let body = Bytes::from(vec![7; 600 << 10]);
    let digest = nats.bus.blobs.put(body.clone()).await.unwrap();
    let jetstream = raw(&broker).await;
    // What NATS's own tools see is a whole object.
    let store = jetstream.get_object_store("DETENT_BLOBS").await.unwrap();
    let mut object = store.get(digest.to_string()).await.unwrap();
    let mut read = Vec::new();
    tokio::io::AsyncReadExt::read_to_end(&mut object, &mut read)
        .await
        .unwrap();
    assert_eq!(read, body);

    let stream = jetstream.get_stream(BLOBS).await.unwrap();
    let first = stream.cached_info().state.first_sequence;
    stream.delete_message(first).await.unwrap();
    let fault = nats.bus.blobs.get(&digest).await.unwrap_err();
    assert_eq!(fault.code, Code::JournalCorrupt);
    assert_eq!(fault.at, Some(digest.to_string()));
    nats.bus.blobs.remove(&digest).await.unwrap();
    assert_eq!(nats.bus.blobs.get(&digest).await, Ok(None));
    nats.bus.blobs.put(body.clone()).await.unwrap();
    assert_eq!(nats.bus.blobs.get(&digest).await, Ok(Some(body)));
}
