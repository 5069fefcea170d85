//! Requests and events.

use super::{PATIENCE, soon, until};
use crate::{BLOB_BYTES_MAX, Bus, BusError, Event, Handler, Messages, ServeOptions, Served};
use async_trait::async_trait;
use bytes::Bytes;
use detent_protocol::MESSAGE_BYTES_MAX;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};

const SUBJECT: &str = "detent.conformance.a";

/// Answers with subject, a space and the payload.
struct Echo;

#[async_trait]
impl Handler for Echo {
    async fn handle(&self, subject: &str, payload: Bytes) -> Bytes {
        [subject.as_bytes(), b" ", &payload].concat().into()
    }
}

/// Answers each request once it is let go.
struct Gate(Arc<Semaphore>);

#[async_trait]
impl Handler for Gate {
    async fn handle(&self, _: &str, payload: Bytes) -> Bytes {
        self.0.acquire().await.expect("an open gate").forget();
        payload
    }
}

/// Counts, tells, answers.
#[derive(Clone)]
struct Counter {
    count: Arc<AtomicUsize>,
    told: mpsc::UnboundedSender<()>,
}

impl Counter {
    fn new() -> (Self, mpsc::UnboundedReceiver<()>) {
        let (told, heard) = mpsc::unbounded_channel();
        let count = Arc::default();
        (Self { count, told }, heard)
    }
    fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Handler for Counter {
    async fn handle(&self, _: &str, payload: Bytes) -> Bytes {
        self.count.fetch_add(1, Ordering::SeqCst);
        // A case that does not listen has no receiver.
        let _ = self.told.send(());
        payload
    }
}

async fn serve(bus: &Bus, pattern: &str, group: &str, handler: impl Handler) -> Served {
    let options = ServeOptions {
        group: group.into(),
        ..ServeOptions::default()
    };
    let served = bus.messages.serve(pattern, options, Arc::new(handler));
    served.await.expect("served")
}

async fn ask(bus: &Bus, subject: &str, payload: &'static [u8]) -> Result<Bytes, BusError> {
    let payload = Bytes::from_static(payload);
    bus.messages.request(subject, payload, PATIENCE).await
}

pub(super) async fn a_request_is_answered(bus: Bus) {
    let _served = serve(&bus, SUBJECT, "g", Echo).await;
    let answer = ask(&bus, SUBJECT, b"\0\xffhello").await.expect("an answer");
    assert_eq!(answer, [SUBJECT.as_bytes(), b" \0\xffhello"].concat());
}

pub(super) async fn a_pattern_is_served(bus: Bus) {
    let _one = serve(&bus, "detent.one.*", "g", Echo).await;
    let _rest = serve(&bus, "detent.rest.>", "g", Echo).await;
    for subject in ["detent.one.x", "detent.rest.x", "detent.rest.x.y"] {
        let answer = ask(&bus, subject, b"").await.expect("an answer");
        assert_eq!(answer, format!("{subject} "));
    }
    for subject in ["detent.one", "detent.one.x.y", "detent.rest"] {
        let refused = ask(&bus, subject, b"").await;
        assert_eq!(refused, Err(BusError::NoResponders(subject.into())));
    }
}

pub(super) async fn without_a_service_nobody_answers(bus: Bus) {
    let refused = ask(&bus, SUBJECT, b"").await;
    assert_eq!(refused, Err(BusError::NoResponders(SUBJECT.into())));
}

pub(super) async fn a_late_answer_is_a_timeout(bus: Bus) {
    let gate = Arc::new(Semaphore::new(0));
    let _served = serve(&bus, SUBJECT, "g", Gate(Arc::clone(&gate))).await;
    let short = Duration::from_millis(50);
    let late = bus.messages.request(SUBJECT, Bytes::new(), short).await;
    let subject = SUBJECT.to_owned();
    let timeout_ms = 50;
    assert_eq!(
        late,
        Err(BusError::Timeout {
            subject,
            timeout_ms
        })
    );
    // The service itself is not harmed.
    gate.add_permits(2);
    assert_eq!(ask(&bus, SUBJECT, b"x").await.as_deref(), Ok(&b"x"[..]));
}

pub(super) async fn more_than_may_wait_is_busy(bus: Bus) {
    let gate = Arc::new(Semaphore::new(0));
    let options = ServeOptions {
        group: "g".into(),
        concurrency_max: 1,
        queue_max: 2,
    };
    let handler = Arc::new(Gate(Arc::clone(&gate)));
    let served = bus.messages.serve(SUBJECT, options, handler);
    let _served = served.await.expect("served");
    let mut asked: FuturesUnordered<_> = (0..8).map(|_| ask(&bus, SUBJECT, b"x")).collect();
    // One is handled, two wait; nobody else can be told anything but that it is busy.
    for _ in 0..5 {
        let refused = soon("a full queue", asked.next()).await;
        assert_eq!(refused, Some(Err(BusError::Busy(SUBJECT.into()))));
    }
    gate.add_permits(3);
    let answers: Vec<_> = soon("three answers", asked.collect()).await;
    assert!(answers.len() == 3 && answers.iter().all(Result::is_ok));
    gate.add_permits(1);
    let room = async || ask(&bus, SUBJECT, b"x").await.ok();
    until("room again", room).await;
}

pub(super) async fn a_group_shares_requests(bus: Bus) {
    let (one, two) = (Counter::new().0, Counter::new().0);
    let _one = serve(&bus, SUBJECT, "g", one.clone()).await;
    let _two = serve(&bus, SUBJECT, "g", two.clone()).await;
    for _ in 0..100 {
        ask(&bus, SUBJECT, b"").await.expect("an answer");
    }
    assert_eq!(one.count() + two.count(), 100, "each request once");
    assert!(one.count() > 0 && two.count() > 0, "both do some");
}

pub(super) async fn each_group_gets_one(bus: Bus) {
    let (counters, mut heard): (Vec<_>, Vec<_>) = (0..4).map(|_| Counter::new()).unzip();
    let mut guards = Vec::new();
    // Two groups, and two services without a group.
    for (counter, group) in counters.iter().zip(["a", "b", "", ""]) {
        guards.push(serve(&bus, SUBJECT, group, counter.clone()).await);
    }
    // Often: one answering first must not keep the request from the others.
    for n in 1..=50 {
        ask(&bus, SUBJECT, b"").await.expect("one answer");
        for heard in &mut heard {
            soon("the request everywhere", heard.recv()).await;
        }
        assert!(counters.iter().all(|counter| counter.count() == n));
    }
}

/// Panics when told to.
struct Fragile;

#[async_trait]
impl Handler for Fragile {
    async fn handle(&self, _: &str, payload: Bytes) -> Bytes {
        assert_ne!(payload, "panic", "asked to");
        payload
    }
}

pub(super) async fn a_panic_harms_only_its_request(bus: Bus) {
    let _served = serve(&bus, SUBJECT, "g", Fragile).await;
    // More often than would go unnoticed if each kept its place in the queue.
    let options = ServeOptions {
        group: "g".into(),
        concurrency_max: 1,
        queue_max: 1,
    };
    let narrow = bus
        .messages
        .serve("detent.narrow", options, Arc::new(Fragile));
    let _narrow = narrow.await.expect("served");
    for subject in [SUBJECT, "detent.narrow"] {
        for _ in 0..4 {
            let told = async || {
                let payload = Bytes::from_static(b"panic");
                let wait = Duration::from_secs(1);
                match bus.messages.request(subject, payload, wait).await {
                    // Its place may be given back a moment after the asker was told.
                    Err(BusError::Busy(_)) => None,
                    told => Some(told),
                }
            };
            let told = until("an end", told).await;
            let lost = matches!(told, Err(BusError::Closed | BusError::Timeout { .. }));
            assert!(lost, "{told:?}");
        }
        let answer = until("an answer", async || ask(&bus, subject, b"x").await.ok()).await;
        assert_eq!(answer, "x");
    }
}

pub(super) async fn a_dropped_guard_ends_the_service(bus: Bus) {
    let served = serve(&bus, SUBJECT, "g", Echo).await;
    let other = serve(&bus, "detent.conformance.b", "g", Echo).await;
    ask(&bus, SUBJECT, b"").await.expect("an answer");
    drop(served);
    let ended = async || {
        let refused = ask(&bus, SUBJECT, b"").await;
        (refused == Err(BusError::NoResponders(SUBJECT.into()))).then_some(())
    };
    until("the end of the service", ended).await;
    ask(&bus, "detent.conformance.b", b"")
        .await
        .expect("an answer");
    drop(other);
}

/// Asks another service before it answers.
struct Relay(Arc<dyn Messages>);

#[async_trait]
impl Handler for Relay {
    async fn handle(&self, _: &str, payload: Bytes) -> Bytes {
        let asked = self.0.request("detent.conformance.b", payload, PATIENCE);
        asked.await.expect("the other's answer")
    }
}

pub(super) async fn a_handler_may_ask_itself(bus: Bus) {
    let _other = serve(&bus, "detent.conformance.b", "g", Echo).await;
    let relay = Relay(Arc::clone(&bus.messages));
    let _relay = serve(&bus, SUBJECT, "g", relay).await;
    let answer = ask(&bus, SUBJECT, b"x").await.expect("an answer");
    assert_eq!(answer, "detent.conformance.b x");
}

pub(super) async fn sizes_are_bounded(bus: Bus) {
    let counter = Counter::new().0;
    let _served = serve(&bus, SUBJECT, "g", counter).await;
    let largest = Bytes::from(vec![7; MESSAGE_BYTES_MAX]);
    let answer = bus.messages.request(SUBJECT, largest.clone(), PATIENCE);
    assert_eq!(answer.await.expect("an answer"), largest);
    let beyond = Bytes::from(vec![7; BLOB_BYTES_MAX]);
    let refused = bus
        .messages
        .request(SUBJECT, beyond.clone(), PATIENCE)
        .await;
    let told = matches!(refused, Err(BusError::TooLarge { bytes, .. }) if bytes == beyond.len());
    assert!(told, "{refused:?}");
    let refused = bus.messages.publish(SUBJECT, beyond).await;
    assert!(matches!(refused, Err(BusError::TooLarge { .. })));
}

fn numbered(n: u64) -> Bytes {
    Bytes::copy_from_slice(&n.to_be_bytes())
}

fn number(payload: &[u8]) -> u64 {
    u64::from_be_bytes(payload.try_into().expect("eight bytes"))
}

pub(super) async fn events_reach_every_subscriber_in_order(bus: Bus) {
    let publish = async |subject, n| {
        let published = bus.messages.publish(subject, numbered(n));
        published.await.expect("published");
    };
    // Nobody listens: that is no error.
    publish(SUBJECT, 0).await;
    let exact = bus.messages.subscribe(SUBJECT, 64).await;
    let wide = bus.messages.subscribe("detent.conformance.*", 64).await;
    let mut subscriptions = [exact.expect("subscribed"), wide.expect("subscribed")];
    for n in 1..=16 {
        publish(SUBJECT, n).await;
        publish("detent.elsewhere", n).await;
    }
    for subscription in &mut subscriptions {
        for n in 1..=16 {
            let subject = SUBJECT.to_owned();
            let payload = numbered(n);
            let event = soon("an event", subscription.next()).await;
            assert_eq!(event, Some(Event::Message { subject, payload }));
        }
    }
}

pub(super) async fn a_slow_subscriber_is_told_what_it_missed(bus: Bus) {
    const EVENTS: u64 = 1000;
    let subscription = bus.messages.subscribe(SUBJECT, 4).await;
    let mut subscription = subscription.expect("subscribed");
    let witness = bus.messages.subscribe(SUBJECT, 2 * EVENTS as usize).await;
    let mut witness = witness.expect("subscribed");
    for n in 1..=EVENTS {
        let published = bus.messages.publish(SUBJECT, numbered(n));
        published.await.expect("published");
    }
    // Until all have arrived: on the way to a subscriber none is missed.
    for _ in 1..=EVENTS {
        let event = soon("an event", witness.next()).await;
        assert!(matches!(event, Some(Event::Message { .. })), "{event:?}");
    }
    let (mut accounted, mut missed) = (0, 0);
    while accounted < EVENTS {
        match soon("an event", subscription.next()).await {
            Some(Event::Message { payload, .. }) => {
                accounted += 1;
                assert_eq!(number(&payload), accounted, "a gap that nobody told of");
            }
            Some(Event::Missed(n)) => {
                assert!(n > 0);
                (accounted, missed) = (accounted + n, missed + n);
            }
            None => panic!("the bus is open"),
        }
    }
    assert_eq!(accounted, EVENTS);
    assert!(missed > 0, "a queue of 4 can't hold {EVENTS}");
}

pub(super) async fn a_dropped_subscription_harms_nobody(bus: Bus) {
    let gone = bus.messages.subscribe(SUBJECT, 1).await;
    let stays = bus.messages.subscribe(SUBJECT, 8).await;
    drop(gone.expect("subscribed"));
    let mut stays = stays.expect("subscribed");
    for n in 1..=3 {
        let published = bus.messages.publish(SUBJECT, numbered(n));
        published.await.expect("published");
        let event = soon("an event", stays.next()).await;
        assert!(matches!(event, Some(Event::Message { payload, .. }) if number(&payload) == n));
    }
}
