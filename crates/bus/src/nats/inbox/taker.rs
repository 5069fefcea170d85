//! Takes messages off a queue and has them dealt with.

use super::hand::{Hand, Held};
use super::pull::{CONSUMER, Came, Pull};
use super::settle::Settler;
use crate::nats::Broker;
use crate::nats::api::{self, Failed, code};
use crate::nats::connect::API_TIMEOUT;
use crate::{BusError, Dealer, Delivery, Disposal};
use async_nats::jetstream::Message;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, ReplayPolicy, pull};
use detent_protocol::Fault;
use futures::FutureExt;
use serde::Deserialize;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Most messages that all nodes together have in hand or have put off. At this number
/// the consumer delivers nothing more, and does not say so: it is far beyond what a
/// cluster has in hand, and the checks compare it with what is pending.
pub(in crate::nats) const PENDING_MAX: i64 = 100_000;
/// Progress is told this often within the time until a message is delivered again.
const PROGRESS_PER_WAIT: u32 = 3;
/// Before beginning again where the consumer was lost.
const PAUSE: Duration = Duration::from_millis(500);

/// Takes from one queue.
pub(super) struct Taker {
    broker: Broker,
    stream: &'static str,
    in_hand_max: usize,
    dealer: Arc<dyn Dealer>,
    hand: Arc<Hand>,
}

impl Taker {
    pub(super) fn new(
        broker: Broker,
        stream: &'static str,
        in_hand_max: usize,
        dealer: Arc<dyn Dealer>,
    ) -> Self {
        Self {
            broker,
            stream,
            in_hand_max: in_hand_max.max(1),
            dealer,
            hand: Arc::default(),
        }
    }

    /// Makes the consumer, or brings it to these settings.
    pub(super) async fn prepare(&self) -> Result<(), BusError> {
        self.make_consumer().await.map_err(|failed| {
            let stream = self.stream;
            tracing::error!(stream, ?failed, "messages can't be taken");
            BusError::Closed
        })
    }

    async fn make_consumer(&self) -> Result<(), Failed> {
        let config = pull::Config {
            durable_name: Some(CONSUMER.into()),
            description: Some("Detent's nodes".into()),
            ack_policy: AckPolicy::Explicit,
            deliver_policy: DeliverPolicy::All,
            replay_policy: ReplayPolicy::Instant,
            ack_wait: self.broker.options.inbox_ack_wait,
            // Nothing is dropped by the broker: it becomes a dead letter here.
            max_deliver: -1,
            max_ack_pending: PENDING_MAX,
            ..pull::Config::default()
        };
        let made = self
            .broker
            .jetstream
            .create_consumer_on_stream(config, self.stream);
        let made = tokio::time::timeout(API_TIMEOUT, made).await;
        match made {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(Failed::Silent(error.to_string())),
            Err(_) => Err(Failed::Silent(format!("no answer within {API_TIMEOUT:?}"))),
        }
    }

    /// Takes until `stop`; then ends when what is being dealt with is done.
    pub(super) async fn run(self, stop: CancellationToken) {
        let me = Arc::new(self);
        let work = async {
            me.take_all(&stop).await;
            me.hand.empty().await;
        };
        tokio::select! {
            () = work => {}
            () = me.tell_progress() => {}
        }
    }

    async fn take_all(self: &Arc<Self>, stop: &CancellationToken) {
        while !stop.is_cancelled() {
            let why = match Pull::open(&self.broker).await {
                Ok(mut pull) => {
                    let taking = self.take_with(&mut pull, stop);
                    let why = stop.run_until_cancelled(taking).await;
                    self.give_back(pull).await;
                    why
                }
                Err(error) => Some(error.to_string()),
            };
            let Some(why) = why else { return };
            tracing::info!(stream = self.stream, why, "asking for messages anew");
            stop.run_until_cancelled(self.begin_anew()).await;
        }
    }

    async fn begin_anew(&self) {
        tokio::time::sleep(PAUSE).await;
        self.broker.connected().await;
        // It goes with a stream that was made anew.
        if let Err(failed) = self.make_consumer().await {
            tracing::warn!(stream = self.stream, ?failed, "no consumer");
        }
    }

    /// What came too late is for another node, at once.
    async fn give_back(&self, pull: Pull) {
        for message in pull.close().await {
            let context = self.broker.jetstream.clone();
            let message = Message { message, context };
            self.settler().again(&message, Duration::ZERO).await;
        }
    }

    fn settler(&self) -> Settler<'_> {
        Settler {
            broker: &self.broker,
        }
    }

    /// Takes until the questions are lost; gives why.
    async fn take_with(self: &Arc<Self>, pull: &mut Pull, stop: &CancellationToken) -> String {
        let mut link = self.broker.links.watch();
        let losses = link.borrow_and_update().losses;
        loop {
            let room = self.in_hand_max.saturating_sub(self.hand.len());
            pull.ask(&self.broker, self.stream, room, self.in_hand_max)
                .await;
            let came = tokio::select! {
                came = pull.next() => came,
                () = self.hand.freed.notified() => continue,
                lost = link.wait_for(|link| link.losses > losses) => {
                    return match lost {
                        Ok(_) => "the connection was lost".into(),
                        Err(_) => "the connection is closed".into(),
                    };
                }
            };
            match came {
                Came::Nothing => {}
                Came::Lost(why) => return why,
                Came::Message(message) => self.begin(message, stop),
            }
        }
    }

    fn begin(self: &Arc<Self>, message: async_nats::Message, stop: &CancellationToken) {
        let context = self.broker.jetstream.clone();
        let message = Message { message, context };
        if let Some(first) = self.hand.take(message) {
            tokio::spawn(Arc::clone(self).deal_with_all(first, stop.clone()));
        }
    }

    /// Deals with a message and those of its subject that wait behind it.
    async fn deal_with_all(self: Arc<Self>, first: Held, stop: CancellationToken) {
        let subject = first.message.subject.to_string();
        let mut next = Some(first);
        while let Some(held) = next {
            let settler = self.settler();
            if stop.is_cancelled() {
                // Not begun: for another node, at once.
                settler.again(&held.message, Duration::ZERO).await;
            } else {
                self.deal(&settler, &held.message).await;
            }
            drop(held);
            next = self.hand.next(&subject);
        }
    }

    async fn deal(&self, settler: &Settler<'_>, message: &Message) {
        let tries = match message.info() {
            Ok(info) => u64::try_from(info.delivered).unwrap_or(1).max(1),
            Err(error) => {
                tracing::error!(%error, "a message without its delivery's number");
                1
            }
        };
        if tries > self.broker.options.inbox_tries_max {
            return settler.give_up(message, tries).await;
        }
        let delivery = Delivery {
            subject: message.subject.to_string(),
            payload: message.payload.clone(),
            tries,
        };
        let dealing = AssertUnwindSafe(self.dealer.deal(delivery)).catch_unwind();
        let disposal = dealing.await.unwrap_or_else(|_| {
            tracing::error!(%message.subject, "dealing with a message panicked");
            Disposal::Later(Duration::ZERO)
        });
        settler.settle(message, tries, disposal).await;
    }

    /// Tells the stream that what is in hand is being dealt with.
    async fn tell_progress(&self) {
        let every = self.broker.options.inbox_ack_wait / PROGRESS_PER_WAIT;
        let every = every.max(Duration::from_millis(100));
        loop {
            tokio::time::sleep(every).await;
            for reply in self.hand.replies() {
                if !self.broker.is_connected() {
                    break;
                }
                // Lost, the message is delivered again, which dealers expect.
                let _ = self.broker.client.publish(reply, "+WPI".into()).await;
            }
        }
    }
}

/// How a queue's consumer stands.
#[derive(Debug, Deserialize)]
pub(in crate::nats) struct ConsumerInfo {
    /// Not delivered yet.
    pub(in crate::nats) num_pending: u64,
    /// Delivered and not settled, or put off.
    pub(in crate::nats) num_ack_pending: u64,
    /// Delivered more than once and not settled.
    pub(in crate::nats) num_redelivered: u64,
}

/// Asks for it; `None` before anybody took.
pub(in crate::nats) async fn consumer_info(
    broker: &Broker,
    stream: &str,
) -> Result<Option<ConsumerInfo>, Fault> {
    let subject = format!("CONSUMER.INFO.{stream}.{CONSUMER}");
    match api::ask(broker, &subject, &serde_json::json!({})).await {
        Ok(info) => Ok(Some(info)),
        Err(failed) if failed.is(code::CONSUMER_NOT_FOUND) => Ok(None),
        Err(failed) => Err(failed.fault("asking for the takers")),
    }
}
