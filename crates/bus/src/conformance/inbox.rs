//! Durable messages. A bus that has none passes each of these.

use super::{soon, until};
use crate::{BLOB_BYTES_MAX, Bus, BusError, Dealer, Delivery, Disposal, Inbox, Queue, Served};
use async_trait::async_trait;
use bytes::Bytes;
use detent_protocol::{Code, Fault};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, Semaphore, mpsc};

const A: &str = "detent.default.control.a";
const B: &str = "detent.default.control.b";
const GOAL: &str = "detent.default.intake.a";

/// What a dealer says to the n-th delivery of a payload.
type Say = fn(payload: &[u8], nth: usize) -> Disposal;

/// Tells what it got, waits to be let go, says what it was told to say.
struct Teller {
    told: mpsc::UnboundedSender<Delivery>,
    gate: Arc<Semaphore>,
    say: Say,
    seen: Mutex<BTreeMap<Bytes, usize>>,
}

#[async_trait]
impl Dealer for Teller {
    async fn deal(&self, delivery: Delivery) -> Disposal {
        let payload = delivery.payload.clone();
        let nth = {
            let mut seen = self.seen.lock().await;
            let nth = seen.entry(payload.clone()).or_default();
            *nth += 1;
            *nth
        };
        // A case that does not listen any more has no receiver.
        let _ = self.told.send(delivery);
        self.gate.acquire().await.expect("an open gate").forget();
        (self.say)(&payload, nth)
    }
}

struct Taking {
    heard: mpsc::UnboundedReceiver<Delivery>,
    gate: Arc<Semaphore>,
    served: Served,
}

/// Takes; with `free` each one is let go at once.
async fn take(inbox: &Arc<dyn Inbox>, queue: Queue, most: usize, free: bool, say: Say) -> Taking {
    let (told, heard) = mpsc::unbounded_channel();
    let room = if free { Semaphore::MAX_PERMITS } else { 0 };
    let gate = Arc::new(Semaphore::new(room));
    let dealer = Teller {
        told,
        gate: Arc::clone(&gate),
        say,
        seen: Mutex::default(),
    };
    let served = inbox.take(queue, most, Arc::new(dealer)).await;
    Taking {
        heard,
        gate,
        served: served.expect("taken"),
    }
}

impl Taking {
    async fn next(&mut self) -> Delivery {
        let next = soon("a delivery", self.heard.recv()).await;
        next.expect("a dealer")
    }
}

fn done(_: &[u8], _: usize) -> Disposal {
    Disposal::Done
}

async fn put(inbox: &Arc<dyn Inbox>, subject: &str, payload: &'static str) {
    let kept = inbox.put(subject, Bytes::from_static(payload.as_bytes()));
    kept.await.expect("kept");
}

pub(super) async fn a_message_waits_and_is_dealt_with_once(bus: Bus) {
    let Some(inbox) = bus.inbox else { return };
    // Nobody takes yet.
    put(&inbox, GOAL, "one").await;
    put(&inbox, A, "of the other queue").await;
    let mut taking = take(&inbox, Queue::Intake, 4, true, done).await;
    let first = taking.next().await;
    assert_eq!(
        (first.subject.as_str(), &*first.payload),
        (GOAL, &b"one"[..])
    );
    assert_eq!(first.tries, 1);
    put(&inbox, GOAL, "two").await;
    assert_eq!(taking.next().await.payload, "two");
    drop(taking);
    // What was dealt with does not come again, to nobody.
    let mut again = take(&inbox, Queue::Intake, 4, true, done).await;
    put(&inbox, GOAL, "three").await;
    assert_eq!(again.next().await.payload, "three");
    let mut control = take(&inbox, Queue::Control, 4, true, done).await;
    assert_eq!(control.next().await.payload, "of the other queue");
}

pub(super) async fn of_one_subject_one_after_the_other(bus: Bus) {
    let Some(inbox) = bus.inbox else { return };
    for payload in ["a1", "a2", "a3"] {
        put(&inbox, A, payload).await;
    }
    put(&inbox, B, "b1").await;
    let mut taking = take(&inbox, Queue::Control, 8, false, done).await;
    // The other subject does not wait.
    let mut first = [taking.next().await, taking.next().await];
    first.sort_by(|a, b| a.payload.cmp(&b.payload));
    assert_eq!(first[0].payload, "a1");
    assert_eq!(first[1].payload, "b1");
    assert!(taking.heard.try_recv().is_err(), "a2 waits for a1");
    taking.gate.add_permits(4);
    assert_eq!(taking.next().await.payload, "a2");
    assert_eq!(taking.next().await.payload, "a3");
}

pub(super) async fn no_more_in_hand_than_wanted(bus: Bus) {
    let Some(inbox) = bus.inbox else { return };
    let subjects: Vec<_> = (0..6)
        .map(|n| format!("detent.default.control.g{n}"))
        .collect();
    for subject in &subjects {
        put(&inbox, subject, "x").await;
    }
    let mut taking = take(&inbox, Queue::Control, 2, false, done).await;
    for free in (1..=5).rev() {
        taking.next().await;
        if free >= 5 {
            taking.next().await;
        }
        assert!(taking.heard.try_recv().is_err(), "two are in hand");
        taking.gate.add_permits(1);
    }
    taking.gate.add_permits(1);
}

pub(super) async fn takers_share(bus: Bus) {
    let Some(inbox) = bus.inbox else { return };
    let mut one = take(&inbox, Queue::Intake, 1, false, done).await;
    let mut two = take(&inbox, Queue::Intake, 1, false, done).await;
    put(&inbox, GOAL, "x").await;
    put(&inbox, "detent.default.intake.b", "y").await;
    // Each has room for one only.
    let (one, two) = tokio::join!(one.next(), two.next());
    assert_ne!(one.payload, two.payload);
}

pub(super) async fn what_is_put_off_comes_again(bus: Bus) {
    let Some(inbox) = bus.inbox else { return };
    put(&inbox, A, "x").await;
    let mut taking = take(&inbox, Queue::Control, 4, true, |_, nth| match nth {
        1 | 2 => Disposal::Later(Duration::from_millis(10)),
        _ => Disposal::Done,
    })
    .await;
    for tries in 1..=3 {
        assert_eq!(taking.next().await.tries, tries);
    }
}

pub(super) async fn a_dead_letter_is_kept_and_comes_back(bus: Bus) {
    let Some(inbox) = bus.inbox else { return };
    put(&inbox, A, "bad").await;
    put(&inbox, A, "good").await;
    put(&inbox, B, "bad").await;
    let mut taking = take(&inbox, Queue::Control, 4, true, |payload, nth| match nth {
        1 | 2 if payload == b"bad" => {
            Disposal::Dead(Fault::new(Code::InputInvalid, "no\r\nmessage: ä").at("/x"))
        }
        _ => Disposal::Done,
    })
    .await;
    for _ in 0..3 {
        taking.next().await;
    }
    let two = async || {
        let dead = inbox.dead(0, 10).await.expect("a list");
        (dead.len() == 2).then_some(dead)
    };
    let dead = until("two dead letters", two).await;
    assert!(dead[0].number < dead[1].number);
    let letter = dead.iter().find(|letter| letter.subject == A).expect("it");
    let wanted = Fault::new(Code::InputInvalid, "no\r\nmessage: ä").at("/x");
    assert_eq!((&*letter.payload, &letter.fault), (&b"bad"[..], &wanted));
    assert!(letter.tries == 1 && letter.at_ms > 0, "{letter:?}");
    let page = inbox.dead(dead[0].number, 10).await;
    assert_eq!(page, Ok(vec![dead[1].clone()]));
    assert_eq!(inbox.dead(0, 1).await, Ok(vec![dead[0].clone()]));

    let unknown = dead[1].number + 1;
    assert_eq!(inbox.redrive(unknown).await, Ok(false));
    assert_eq!(inbox.redrive(letter.number).await, Ok(true));
    assert_eq!(inbox.redrive(letter.number).await, Ok(false), "it has gone");
    let again = taking.next().await;
    assert_eq!((again.subject.as_str(), &*again.payload), (A, &b"bad"[..]));
    assert_eq!(again.tries, 1, "as new");
    let left = inbox.dead(0, 10).await.expect("a list");
    assert!(left.iter().all(|left| left.number != letter.number));
}

/// Panics at its first message.
struct Fragile(mpsc::UnboundedSender<u64>);

#[async_trait]
impl Dealer for Fragile {
    async fn deal(&self, delivery: Delivery) -> Disposal {
        self.0.send(delivery.tries).expect("a listener");
        assert!(delivery.tries > 1, "asked to");
        Disposal::Done
    }
}

pub(super) async fn a_dealers_panic_loses_nothing(bus: Bus) {
    let Some(inbox) = bus.inbox else { return };
    put(&inbox, A, "x").await;
    let (told, mut heard) = mpsc::unbounded_channel();
    let taken = inbox.take(Queue::Control, 1, Arc::new(Fragile(told)));
    let _served = taken.await.expect("taken");
    assert_eq!(soon("the first try", heard.recv()).await, Some(1));
    assert_eq!(soon("the second", heard.recv()).await, Some(2));
}

pub(super) async fn a_dropped_guard_ends_the_taking(bus: Bus) {
    let Some(inbox) = bus.inbox else { return };
    let mut taking = take(&inbox, Queue::Control, 4, false, done).await;
    put(&inbox, A, "begun").await;
    taking.next().await;
    put(&inbox, A, "waits").await;
    let (gate, mut heard) = (taking.gate, taking.heard);
    drop(taking.served);
    // What was begun is finished; what waits is for somebody else.
    gate.add_permits(8);
    let mut other = take(&inbox, Queue::Control, 4, true, done).await;
    assert_eq!(other.next().await.payload, "waits");
    assert!(heard.try_recv().is_err());
}

pub(super) async fn a_message_has_a_queue_and_a_bound(bus: Bus) {
    let Some(inbox) = bus.inbox else { return };
    let nowhere = inbox.put("detent.default.event.a", Bytes::new()).await;
    assert!(
        matches!(nowhere, Err(BusError::NoResponders(_))),
        "{nowhere:?}"
    );
    let beyond = Bytes::from(vec![0; BLOB_BYTES_MAX]);
    let refused = inbox.put(A, beyond).await;
    assert!(
        matches!(refused, Err(BusError::TooLarge { .. })),
        "{refused:?}"
    );
    let large = Bytes::from(vec![7; 512 * 1024]);
    inbox.put(A, large.clone()).await.expect("kept");
    let mut taking = take(&inbox, Queue::Control, 1, true, done).await;
    assert_eq!(taking.next().await.payload, large);
}
