//! Durable messages: work queues, and what became of what nobody could deal with.
//!
//! | stream | holds |
//! |---|---|
//! | `DETENT_INTAKE`, `DETENT_CONTROL` | messages until somebody has dealt with them |
//! | `DETENT_DEAD` | dead letters, for `options.dead_keep` |
//!
//! Promises: a message is confirmed only by its own stream, and leaves it only when it
//! was dealt with or stands among the dead letters; a full stream refuses and forgets
//! nothing. Whoever dies in the middle leaves its messages to others, which get them after
//! `options.inbox_ack_wait`. A message may come more than once.
//!
//! Messages of one subject are dealt with one after the other on a node; one that is to
//! come later is overtaken by those behind it.
//!
//! Must not know: what a message says.

mod dead;
mod hand;
mod pull;
mod settle;
mod taker;

pub use dead::DEAD;
pub(super) use taker::{PENDING_MAX, consumer_info};

use super::api::{self, Failed};
use super::verdict::{Verdict, judge};
use super::{Broker, NatsOptions};
use crate::{BusError, DeadLetter, Dealer, Inbox, Queue, Served};
use async_nats::HeaderMap;
use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy, StorageType};
use async_trait::async_trait;
use bytes::Bytes;
use detent_protocol::subject::{CONTROL_ALL, INTAKE_ALL, matches};
use detent_protocol::{Code, Fault, MESSAGE_BYTES_MAX};
use std::sync::Arc;
use taker::Taker;
use tokio_util::sync::CancellationToken;

/// Stream of goals handed in.
pub const INTAKE: &str = "DETENT_INTAKE";
/// Stream of control messages.
pub const CONTROL: &str = "DETENT_CONTROL";

/// Largest durable message with its headers, bytes: as a dead letter, which says more, it
/// still fits into a message.
pub(super) const KEPT_BYTES_MAX: usize = MESSAGE_BYTES_MAX - 32 * 1024;

impl Queue {
    fn stream(self) -> &'static str {
        match self {
            Queue::Intake => INTAKE,
            Queue::Control => CONTROL,
        }
    }

    fn pattern(self) -> &'static str {
        match self {
            Queue::Intake => INTAKE_ALL,
            Queue::Control => CONTROL_ALL,
        }
    }

    /// The queue that keeps this subject.
    fn of(subject: &str) -> Option<Self> {
        let all = [Queue::Intake, Queue::Control];
        all.into_iter()
            .find(|queue| matches(queue.pattern(), subject))
    }
}

/// Settings of the streams.
pub(super) fn streams(options: &NatsOptions) -> Vec<Config> {
    let of = |queue: Queue, description: &str| Config {
        name: queue.stream().into(),
        description: Some(description.into()),
        subjects: vec![queue.pattern().into()],
        retention: RetentionPolicy::WorkQueue,
        ..kept(options)
    };
    vec![
        of(Queue::Intake, "Goals handed in to Detent"),
        of(Queue::Control, "Control messages of Detent's goals"),
        dead::stream(options),
    ]
}

/// What the streams have in common.
fn kept(options: &NatsOptions) -> Config {
    Config {
        storage: StorageType::File,
        num_replicas: options.replicas,
        // Full, it refuses; it never makes room by forgetting.
        discard: DiscardPolicy::New,
        max_messages: -1,
        max_messages_per_subject: -1,
        max_bytes: i64::try_from(options.inbox_bytes_max).unwrap_or(i64::MAX),
        max_message_size: i32::try_from(KEPT_BYTES_MAX).unwrap_or(i32::MAX),
        ..Config::default()
    }
}

/// Durable messages of a cluster. Takers end with it.
pub(crate) struct NatsInbox {
    broker: Broker,
    open: CancellationToken,
}

impl NatsInbox {
    /// Durable messages over a connection. The streams have to be there.
    pub(crate) fn new(broker: Broker) -> Self {
        Self {
            broker,
            open: CancellationToken::new(),
        }
    }

    async fn keep(&self, queue: Queue, subject: &str, payload: Bytes) -> Result<u64, Failed> {
        let (stream, subject) = (queue.stream(), subject.to_owned());
        api::publish(&self.broker, stream, subject, HeaderMap::new(), payload).await
    }

    fn error(&self, queue: Queue, subject: &str, bytes: usize, failed: Failed) -> BusError {
        let max = self.broker.options.inbox_bytes_max;
        match judge(failed, queue.stream(), max) {
            Verdict::Refused(fault) => {
                tracing::warn!(subject, %fault, "a durable message is refused");
                match fault.code {
                    Code::JournalStorage => BusError::Busy(subject.to_owned()),
                    Code::InputTooLarge => too_large(bytes),
                    _ => BusError::Closed,
                }
            }
            unclear => {
                tracing::warn!(subject, ?unclear, "a durable message is not confirmed");
                let wait = self.broker.options.ack_timeout;
                BusError::Timeout {
                    subject: subject.to_owned(),
                    timeout_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
                }
            }
        }
    }
}

impl Drop for NatsInbox {
    fn drop(&mut self) {
        self.open.cancel();
    }
}

fn too_large(bytes: usize) -> BusError {
    let max = KEPT_BYTES_MAX;
    BusError::TooLarge { bytes, max }
}

#[async_trait]
impl Inbox for NatsInbox {
    async fn put(&self, subject: &str, payload: Bytes) -> Result<(), BusError> {
        let queue = Queue::of(subject).ok_or_else(|| BusError::NoResponders(subject.to_owned()))?;
        let bytes = payload.len();
        if bytes > KEPT_BYTES_MAX {
            return Err(too_large(bytes));
        }
        let kept = self.keep(queue, subject, payload).await;
        kept.map(drop)
            .map_err(|failed| self.error(queue, subject, bytes, failed))
    }

    async fn take(
        &self,
        queue: Queue,
        in_hand_max: usize,
        dealer: Arc<dyn Dealer>,
    ) -> Result<Served, BusError> {
        let stop = self.open.child_token();
        let taker = Taker::new(self.broker.clone(), queue.stream(), in_hand_max, dealer);
        taker.prepare().await?;
        tokio::spawn(taker.run(stop.clone()));
        Ok(Served::new(move || stop.cancel()))
    }

    async fn dead(&self, after: u64, limit: usize) -> Result<Vec<DeadLetter>, Fault> {
        dead::list(&self.broker, after, limit).await
    }

    async fn redrive(&self, number: u64) -> Result<bool, Fault> {
        let Some(letter) = dead::find(&self.broker, number).await? else {
            return Ok(false);
        };
        let subject = &letter.subject;
        let queue = Queue::of(subject).ok_or_else(|| {
            let text = format!("no queue keeps {subject}");
            Fault::new(Code::InputInvalid, text)
        })?;
        let kept = self.keep(queue, subject, letter.payload).await;
        kept.map_err(|failed| match judge(failed.clone(), queue.stream(), 0) {
            Verdict::Refused(fault) => fault,
            _ => failed.fault("redriving a dead letter"),
        })?;
        // Whoever dies right here leaves it twice, and dealers expect that.
        dead::remove(&self.broker, number).await?;
        Ok(true)
    }
}
