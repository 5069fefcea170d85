//! What becomes of a message that was dealt with.

use super::dead;
use crate::Disposal;
use crate::nats::Broker;
use async_nats::jetstream::Message;
use bytes::Bytes;
use detent_protocol::{Code, Fault};
use std::time::Duration;

/// The first pause before a message comes again; it doubles with each try.
const AGAIN_FIRST: Duration = Duration::from_millis(250);
/// The longest such pause. With 20 tries a message is given up after about an hour.
const AGAIN_MAX: Duration = Duration::from_secs(300);
/// How often a confirmation is sent.
const CONFIRM_TRIES: u32 = 3;

/// Settles messages of one taker.
pub(super) struct Settler<'a> {
    pub(super) broker: &'a Broker,
}

impl Settler<'_> {
    /// Does what `disposal` says. What fails is logged: the message then comes again.
    pub(super) async fn settle(&self, message: &Message, tries: u64, disposal: Disposal) {
        match disposal {
            Disposal::Done => self.confirm(message, "+ACK".into()).await,
            Disposal::Later(wait) => self.again(message, wait.max(pause(tries))).await,
            Disposal::Dead(fault) => self.bury(message, tries, &fault).await,
        }
    }

    /// Given up: it was delivered as often as it may be.
    pub(super) async fn give_up(&self, message: &Message, tries: u64) {
        let text = format!("nobody could deal with it in {} tries", tries - 1);
        let fault = Fault::new(Code::NodeUnreachable, text);
        self.bury(message, tries - 1, &fault).await;
    }

    async fn bury(&self, message: &Message, tries: u64, fault: &Fault) {
        let (subject, payload) = (&message.subject, message.payload.clone());
        let kept = dead::keep(self.broker, subject, payload, fault, tries).await;
        match kept {
            Ok(number) => {
                tracing::warn!(%subject, number, %fault, "a message is a dead letter now");
                // Whoever dies right here leaves two dead letters.
                self.confirm(message, "+TERM".into()).await;
            }
            Err(failed) => {
                tracing::error!(%subject, ?failed, %fault, "a dead letter could not be kept");
                self.again(message, pause(tries)).await;
            }
        }
    }

    /// Gives it back to be delivered after `wait`.
    pub(super) async fn again(&self, message: &Message, wait: Duration) {
        let nanos = u64::try_from(wait.as_nanos()).unwrap_or(i64::MAX as u64);
        let nanos = nanos.min(i64::MAX as u64);
        let text = format!("-NAK {{\"delay\": {nanos}}}");
        let Some(reply) = message.reply.clone() else {
            return;
        };
        // Lost, it is delivered again all the same, only later.
        let _ = self.broker.client.publish(reply, text.into()).await;
    }

    /// Tells the stream that it has gone, until the stream says that it knows.
    async fn confirm(&self, message: &Message, text: Bytes) {
        let Some(reply) = message.reply.clone() else {
            return;
        };
        for _ in 0..CONFIRM_TRIES {
            let mut place = self.broker.replies.place();
            let (to, back) = (reply.clone(), place.subject.clone());
            let told = async {
                let sent = self
                    .broker
                    .client
                    .publish_with_reply(to, back, text.clone());
                sent.await.ok()?;
                place.answer().await
            };
            let wait = self.broker.options.ack_timeout;
            if let Ok(Some(_)) = tokio::time::timeout(wait, told).await {
                return;
            }
        }
        let subject = &message.subject;
        tracing::warn!(%subject, "the end of a message is not confirmed: it may come again");
    }
}

/// Before try `tries + 1`.
fn pause(tries: u64) -> Duration {
    let doubled = u32::try_from(tries.saturating_sub(1)).unwrap_or(u32::MAX);
    let pause = AGAIN_FIRST.saturating_mul(2_u32.saturating_pow(doubled));
    pause.min(AGAIN_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_twenty_tries_take_about_an_hour() {
        assert_eq!(pause(0), AGAIN_FIRST);
        assert_eq!(pause(1), AGAIN_FIRST);
        assert_eq!(pause(3), Duration::from_secs(1));
        assert_eq!(pause(u64::MAX), AGAIN_MAX);
        let all: Duration = (1..20).map(pause).sum();
        assert!((2400..3600).contains(&all.as_secs()), "{all:?}");
    }
}
