//! Services: the endpoints of one micro service for each connection, so that
//! `nats micro ls`, `info` and `stats` show what a node serves.
//!
//! Promises: a handler's panic ends its request alone; a full queue is told at once (429),
//! a panic too (500), and an answer that no message can carry (413) with its size. An
//! answer has the request's `Content-Type` where that was JSON. A service that ends loses
//! no request: what reaches it while it ends was not handled and is told so (410).
//!
//! The client's own services are not used: they can't end without losing what is on its
//! way to them, and list for ever what has ended.
//!
//! Must not know: what a request says.

mod ending;
mod listing;

use super::Broker;
use crate::{BusError, Handler, ServeOptions};
use async_nats::client::PublishErrorKind;
use async_nats::{Client, HeaderMap, Message, Subscriber};
use bytes::Bytes;
use detent_protocol::{Fault, MESSAGE_BYTES_MAX};
use ending::Ending;
use futures::{FutureExt, StreamExt};
use listing::{Entry, Listing};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The queue is full.
pub(super) const BUSY: usize = 429;
/// The answer is larger than a message.
pub(super) const TOO_LARGE: usize = 413;
/// The service is ending and has not looked at the request.
pub(super) const ENDED: usize = 410;
/// The handler panicked.
const FAILED: usize = 500;
/// A refusal's text and its code, as every micro service tells them.
const ERROR: &str = "Nats-Service-Error";
pub(super) const ERROR_CODE: &str = "Nats-Service-Error-Code";
/// Size of an answer that was too large, bytes.
const BYTES: &str = "Detent-Bytes";
const CONTENT_TYPE: &str = "Content-Type";
const JSON: &str = "application/json";

/// The endpoints of one connection.
pub(super) struct Endpoints {
    broker: Broker,
    listing: Arc<Listing>,
    open: CancellationToken,
}

impl Endpoints {
    /// Lists them until `open` ends.
    pub(super) async fn open(broker: &Broker, open: CancellationToken) -> Result<Self, Fault> {
        let listing = Listing::open(broker, open.clone()).await;
        let listing = listing.map_err(|e| broker.fault("listing the services", &e))?;
        Ok(Self {
            broker: broker.clone(),
            listing,
            open,
        })
    }

    /// Serves `pattern` until `stop`.
    pub(super) async fn add(
        &self,
        pattern: &str,
        options: ServeOptions,
        handler: Arc<dyn Handler>,
        stop: CancellationToken,
    ) -> Result<(), BusError> {
        let client = &self.broker.client;
        let (subject, group) = (pattern.to_owned(), options.group.clone());
        let ending = Ending::begin(client, !group.is_empty());
        let requests = if group.is_empty() {
            client.subscribe(subject).await
        } else {
            client.queue_subscribe(subject, group).await
        };
        let requests = requests.map_err(|error| {
            tracing::error!(pattern, %error, "an endpoint is refused");
            BusError::Closed
        })?;
        let service = Service {
            client: client.clone(),
            seats: Seats::new(&options),
            entry: self.listing.add(pattern, &options.group),
            handler,
        };
        let (listing, open) = (Arc::clone(&self.listing), self.open.clone());
        tokio::spawn(async move {
            let left = service.run(requests, &stop).await;
            listing.remove(&service.entry);
            if let Some((requests, taken)) = left {
                let ended = ending.end(requests, taken, &service);
                open.run_until_cancelled(ended).await;
            }
        });
        Ok(())
    }
}

/// Room for requests.
struct Seats {
    /// Handled or waiting.
    all: Arc<Semaphore>,
    /// Handled.
    running: Arc<Semaphore>,
}

impl Seats {
    fn new(options: &ServeOptions) -> Self {
        let running = options.concurrency_max.clamp(1, Semaphore::MAX_PERMITS);
        let all = running.saturating_add(options.queue_max);
        Self {
            all: Arc::new(Semaphore::new(all.min(Semaphore::MAX_PERMITS))),
            running: Arc::new(Semaphore::new(running)),
        }
    }
}

/// One endpoint.
struct Service {
    client: Client,
    seats: Seats,
    entry: Arc<Entry>,
    handler: Arc<dyn Handler>,
}

impl Service {
    /// Takes requests until `stop`; gives what is left, and how many were taken. `None`:
    /// the connection is closed.
    async fn run(
        &self,
        mut requests: Subscriber,
        stop: &CancellationToken,
    ) -> Option<(Subscriber, u64)> {
        let mut taken = 0;
        loop {
            let request = tokio::select! {
                biased;
                () = stop.cancelled() => return Some((requests, taken)),
                request = requests.next() => request?,
            };
            taken += 1;
            let request = Request {
                message: request,
                client: self.client.clone(),
                entry: Arc::clone(&self.entry),
                came: Instant::now(),
            };
            match Arc::clone(&self.seats.all).try_acquire_owned() {
                Ok(seat) => {
                    let running = Arc::clone(&self.seats.running);
                    let handler = Arc::clone(&self.handler);
                    tokio::spawn(request.serve(seat, running, handler));
                }
                Err(_) => request.refuse(BUSY, "the queue is full").await,
            }
        }
    }
}

/// A request on its way to an answer.
struct Request {
    message: Message,
    client: Client,
    entry: Arc<Entry>,
    came: Instant,
}

impl Request {
    async fn serve(
        self,
        seat: OwnedSemaphorePermit,
        running: Arc<Semaphore>,
        handler: Arc<dyn Handler>,
    ) {
        // The semaphore is never closed.
        let running = running.acquire_owned().await;
        let payload = self.message.payload.clone();
        let handling = handler.handle(&self.message.subject, payload);
        // The handler is not looked at again after a panic, but by its other requests,
        // which it has to expect.
        let answer = AssertUnwindSafe(handling).catch_unwind().await;
        // Before the answer: who has it and asks again must find the place free.
        drop((running, seat));
        match answer {
            Ok(answer) => self.respond(answer).await,
            Err(_) => self.refuse(FAILED, "the handler failed").await,
        }
    }

    async fn respond(&self, answer: Bytes) {
        let bytes = answer.len();
        if bytes <= MESSAGE_BYTES_MAX {
            match self.send(self.headers(), answer).await {
                // With its headers it may be too large all the same.
                Err(PublishErrorKind::MaxPayloadExceeded) => {}
                _ => return self.entry.answered(self.came.elapsed()),
            }
        }
        let mut headers = HeaderMap::new();
        headers.insert(BYTES, bytes.to_string());
        self.refuse_with(TOO_LARGE, "the answer is too large", headers)
            .await;
    }

    /// Headers of an answer.
    fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let asked = self.message.headers.as_ref();
        let kind = asked.and_then(|h| h.get(CONTENT_TYPE));
        if kind.is_some_and(|kind| kind.as_str() == JSON) {
            headers.insert(CONTENT_TYPE, JSON);
        }
        headers
    }

    async fn refuse(&self, code: usize, text: &str) {
        self.refuse_with(code, text, HeaderMap::new()).await;
    }

    async fn refuse_with(&self, code: usize, text: &str, mut headers: HeaderMap) {
        headers.insert(ERROR, text);
        headers.insert(ERROR_CODE, code.to_string());
        self.entry.refused(self.came.elapsed(), code, text);
        // The asker then gets no answer; there is nobody else to tell.
        let _ = self.send(headers, Bytes::new()).await;
    }

    async fn send(&self, headers: HeaderMap, payload: Bytes) -> Result<(), PublishErrorKind> {
        // A request that wants no answer.
        let Some(reply) = self.message.reply.clone() else {
            return Ok(());
        };
        if !may_be_told(&reply) {
            tracing::warn!(%reply, subject = %self.message.subject, "no place for an answer");
            return Ok(());
        }
        let sent = if headers.is_empty() {
            self.client.publish(reply, payload).await
        } else {
            let client = &self.client;
            client.publish_with_headers(reply, headers, payload).await
        };
        sent.map_err(|error| error.kind())
    }
}

/// May an answer go there? Who asks may name any subject, and the answer is published with
/// a node's rights: an empty one to the API that purges a stream would empty the journal.
pub(super) fn may_be_told(reply: &str) -> bool {
    let first = reply.split('.').next().unwrap_or_default();
    !first.starts_with('$') && first != "detent" && !first.starts_with("detent-")
}

/// The size that a refusal tells, bytes.
pub(super) fn told_size(headers: &HeaderMap) -> Option<usize> {
    headers.get(BYTES)?.as_str().parse().ok()
}
