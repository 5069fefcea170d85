//! Asks the stream's consumer for messages, never for more than there is room for.
//!
//! A message that waits here unseen would use up its time until it is delivered again, so
//! nothing is fetched ahead.

use crate::nats::Broker;
use crate::nats::api::API;
use async_nats::{HeaderMap, Message, StatusCode, Subscriber};
use bytes::Bytes;
use futures::StreamExt;
use std::time::Duration;
use tokio::time::Instant;

/// How long a question waits at the server for messages.
const EXPIRES: Duration = Duration::from_secs(30);
/// How often the server says that it still has the question.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// For the server to take the questions back.
const CLOSE_MAX: Duration = Duration::from_secs(2);
/// Of a status: how many messages of the question will not come.
const PENDING: &str = "Nats-Pending-Messages";

/// Name of the consumer, the same on every node: they share it.
pub(super) const CONSUMER: &str = "dealers";

/// One inbox, and what was asked for with it.
pub(super) struct Pull {
    inbox: String,
    answers: Subscriber,
    /// Messages asked for that have not come.
    asked: usize,
    /// The last word of the server.
    heard: Instant,
}

/// What came.
pub(super) enum Came {
    /// A message of the stream.
    Message(Message),
    /// Nothing that has to be dealt with.
    Nothing,
    /// The questions are lost, or the consumer: begin again with a new inbox.
    Lost(String),
}

impl Pull {
    pub(super) async fn open(broker: &Broker) -> Result<Self, async_nats::SubscribeError> {
        let inbox = broker.client.new_inbox();
        let answers = broker.client.subscribe(inbox.clone()).await?;
        Ok(Self {
            inbox,
            answers,
            asked: 0,
            heard: Instant::now(),
        })
    }

    /// Asks for more where `room` for messages is free beyond what was asked for. Not for
    /// each place that gets free: many small questions are dearer than one.
    pub(super) async fn ask(&mut self, broker: &Broker, stream: &str, room: usize, most: usize) {
        let more = room.saturating_sub(self.asked);
        if more == 0 || (self.asked > 0 && more < most / 2) {
            return;
        }
        let question = serde_json::json!({
            "batch": more,
            "expires": EXPIRES.as_nanos() as u64,
            "idle_heartbeat": HEARTBEAT.as_nanos() as u64,
        });
        let subject = format!("{API}.CONSUMER.MSG.NEXT.{stream}.{CONSUMER}");
        let payload = Bytes::from(question.to_string());
        let sent = broker
            .client
            .publish_with_reply(subject, self.inbox.clone(), payload);
        // A failure is a question that nobody answers: the silence shows it.
        if sent.await.is_ok() {
            self.asked += more;
        }
    }

    /// Waits for what comes next, or for a silence that means that nothing will.
    pub(super) async fn next(&mut self) -> Came {
        let silence = match self.asked {
            // Nothing is owed.
            0 => Duration::from_secs(24 * 3600),
            _ => 2 * HEARTBEAT + Duration::from_secs(1),
        };
        let until = self.heard + silence;
        let came = match tokio::time::timeout_at(until, self.answers.next()).await {
            Ok(Some(message)) => message,
            Ok(None) => return Came::Lost("the connection is closed".into()),
            Err(_) => return Came::Lost("no word from the consumer".into()),
        };
        self.heard = Instant::now();
        match came.status {
            None => {
                self.asked = self.asked.saturating_sub(1);
                Came::Message(came)
            }
            Some(status) => self.told(status, &came),
        }
    }

    /// Takes the questions back; gives what had been sent by then. What the server sends
    /// in this very moment is lost, and delivered again after its time.
    pub(super) async fn close(mut self) -> Vec<Message> {
        let mut came = Vec::new();
        if self.answers.drain().await.is_err() {
            return came;
        }
        let rest = async {
            while let Some(message) = self.answers.next().await {
                if message.status.is_none() {
                    came.push(message);
                }
            }
        };
        // Ends as soon as the server has been told.
        let _ = tokio::time::timeout(CLOSE_MAX, rest).await;
        came
    }

    fn told(&mut self, status: StatusCode, answer: &Message) -> Came {
        let pending = answer.headers.as_ref().and_then(owed);
        let why = answer.description.clone().unwrap_or_default();
        match (status.as_u16(), pending) {
            // Still waiting.
            (100, _) => Came::Nothing,
            // The question has ended: this many of it did not come.
            (404 | 408, Some(pending)) => {
                self.asked = self.asked.saturating_sub(pending);
                Came::Nothing
            }
            (status, _) => Came::Lost(format!("{status} {why}")),
        }
    }
}

fn owed(headers: &HeaderMap) -> Option<usize> {
    headers.get(PENDING)?.as_str().parse().ok()
}
