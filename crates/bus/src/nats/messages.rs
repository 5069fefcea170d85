//! Requests and events over core NATS.
//!
//! Promises: a request is handled at most once, never sent while the connection is known to be
//! lost, and never after its asker has given up. An answer that is lost with the
//! connection is a timeout; one that comes after a reconnect is still taken. A request that
//! the broker denies ends at once.

use super::Broker;
use super::service::{BUSY, ENDED, ERROR_CODE, Endpoints, TOO_LARGE, told_size};
use super::subscription::NatsSubscription;
use crate::{BusError, Handler, Messages, ServeOptions, Served, Subscription};
use async_nats::{Message, StatusCode};
use async_trait::async_trait;
use bytes::Bytes;
use detent_protocol::{Fault, MESSAGE_BYTES_MAX};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OnceCell;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// For the server's word that a subscription stands.
const SUBSCRIBE_MAX: Duration = Duration::from_secs(5);

/// Before a request is sent again that reached a service at its end.
const AGAIN_FIRST: Duration = Duration::from_millis(1);
/// The pause doubles up to this.
const AGAIN_MAX: Duration = Duration::from_millis(5);

/// Messages over one connection. Services and subscriptions end with it.
pub(crate) struct NatsMessages {
    broker: Broker,
    /// Made with the first service: a client that only asks is none.
    endpoints: OnceCell<Endpoints>,
    open: CancellationToken,
}

impl NatsMessages {
    /// # Errors
    /// `BROKER_UNREACHABLE` when the broker does not take the subscriptions.
    pub(crate) async fn open(broker: Broker) -> Result<Self, Fault> {
        Ok(Self {
            endpoints: OnceCell::new(),
            open: CancellationToken::new(),
            broker,
        })
    }

    /// Waits until the server has seen the subscription: what is sent after that arrives.
    async fn stands(&self) -> Result<(), BusError> {
        let back = self.broker.round_trip(SUBSCRIBE_MAX).await;
        back.map(drop).ok_or(BusError::Closed)
    }

    async fn ask(
        &self,
        subject: &str,
        payload: Bytes,
        sent: &mut Sent,
    ) -> Result<Message, BusError> {
        let mut pause = AGAIN_FIRST;
        loop {
            self.broker.connected().await;
            *sent = Sent::Yes;
            let since = Instant::now();
            let mut place = self.broker.replies.place();
            let (to, reply) = (subject.to_owned(), place.subject.clone());
            let client = &self.broker.client;
            let asked = client.publish_with_reply(to, reply, payload.clone());
            asked.await.map_err(|_| BusError::Closed)?;
            // A denial is told beside the request, which just gets no answer.
            let answer = tokio::select! {
                answer = place.answer() => answer.ok_or(BusError::Closed)?,
                words = self.broker.links.denial(subject, since) => {
                    return Err(BusError::Denied(words));
                }
            };
            if !is(&answer, ENDED) {
                return Ok(answer);
            }
            *sent = Sent::Refused;
            tokio::time::sleep(pause).await;
            pause = (2 * pause).min(AGAIN_MAX);
        }
    }
}

/// How far a request has come.
enum Sent {
    /// Nobody can have it.
    No,
    /// Somebody may have it.
    Yes,
    /// Who had it did not look at it.
    Refused,
}

impl Drop for NatsMessages {
    fn drop(&mut self) {
        self.open.cancel();
    }
}

fn check_size(payload: &Bytes) -> Result<(), BusError> {
    let (bytes, max) = (payload.len(), MESSAGE_BYTES_MAX);
    if bytes > max {
        return Err(BusError::TooLarge { bytes, max });
    }
    Ok(())
}

/// Is the answer this refusal?
fn is(answer: &Message, wanted: usize) -> bool {
    let code = answer.headers.as_ref().and_then(|h| h.get(ERROR_CODE));
    code.is_some_and(|code| code.as_str() == wanted.to_string())
}

/// What an answer says: the service's bytes, or why there are none.
fn read(subject: &str, answer: Message) -> Result<Bytes, BusError> {
    if answer.status == Some(StatusCode::NO_RESPONDERS) {
        return Err(BusError::NoResponders(subject.to_owned()));
    }
    let headers = answer.headers.as_ref();
    let Some(code) = headers.and_then(|h| h.get(ERROR_CODE)) else {
        check_size(&answer.payload)?;
        return Ok(answer.payload);
    };
    if is(&answer, BUSY) {
        return Err(BusError::Busy(subject.to_owned()));
    }
    if is(&answer, TOO_LARGE) {
        return Err(BusError::TooLarge {
            bytes: headers.and_then(told_size).unwrap_or(MESSAGE_BYTES_MAX + 1),
            max: MESSAGE_BYTES_MAX,
        });
    }
    tracing::warn!(subject, code = code.as_str(), "a service failed");
    Err(BusError::Closed)
}

#[async_trait]
impl Messages for NatsMessages {
    async fn request(
        &self,
        subject: &str,
        payload: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, BusError> {
        check_size(&payload)?;
        let mut sent = Sent::No;
        let asked = self.ask(subject, payload, &mut sent);
        let asked = tokio::time::timeout(timeout, asked).await;
        match (asked, sent) {
            (Ok(answer), _) => read(subject, answer?),
            (Err(_), Sent::No) => Err(BusError::Closed),
            (Err(_), Sent::Refused) => Err(BusError::NoResponders(subject.to_owned())),
            (Err(_), Sent::Yes) => Err(BusError::Timeout {
                subject: subject.to_owned(),
                timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
            }),
        }
    }

    async fn publish(&self, subject: &str, payload: Bytes) -> Result<(), BusError> {
        check_size(&payload)?;
        if !self.broker.is_connected() {
            // It would wait in a queue and arrive when nobody expects it any more.
            return Err(BusError::Closed);
        }
        let published = self.broker.client.publish(subject.to_owned(), payload);
        match tokio::time::timeout(SUBSCRIBE_MAX, published).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                tracing::warn!(subject, %error, "an event could not be published");
                Err(BusError::Closed)
            }
            Err(_) => Err(BusError::Busy(subject.to_owned())),
        }
    }

    async fn serve(
        &self,
        pattern: &str,
        options: ServeOptions,
        handler: Arc<dyn Handler>,
    ) -> Result<Served, BusError> {
        let stop = self.open.child_token();
        let guard = stop.clone();
        let opened = self
            .endpoints
            .get_or_try_init(|| Endpoints::open(&self.broker, self.open.child_token()))
            .await;
        let endpoints = opened.map_err(|fault| {
            tracing::error!(pattern, %fault, "a service is refused");
            BusError::Closed
        })?;
        let added = endpoints.add(pattern, options, handler, stop);
        added.await?;
        let served = Served::new(move || guard.cancel());
        self.stands().await?;
        Ok(served)
    }

    async fn subscribe(
        &self,
        pattern: &str,
        queue_max: usize,
    ) -> Result<Box<dyn Subscription>, BusError> {
        let open = self.open.child_token();
        let subscription = NatsSubscription::new(&self.broker, pattern, queue_max, open).await;
        let subscription = subscription.map_err(|error| {
            tracing::error!(pattern, %error, "a subscription is refused");
            BusError::Closed
        })?;
        self.stands().await?;
        Ok(Box::new(subscription))
    }
}
