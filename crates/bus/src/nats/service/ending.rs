//! How an endpoint ends without losing a request.
//!
//! The client forgets a subscription the moment it is told to end it, and drops what the
//! server has sent by then: its asker would wait for nothing. So the server is told to end
//! it after a few more messages. It counts as the client does, so both end it at the same
//! message; what comes until then is told that it was not handled.

use super::{ENDED, Request, Service};
use async_nats::{Client, Subscriber};
use futures::StreamExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;

/// More than can be on their way at the moment of the end.
const MORE: u64 = 32;
/// A service that has ended, and gets nothing for so long, is forgotten without waiting
/// for [`MORE`]: hardly ever is something on its way to it then.
const SILENCE: Duration = Duration::from_secs(30);

/// What has to be known from the beginning.
pub(super) struct Ending {
    connects: u64,
    /// Others of the group can take what is not handled here.
    shared: bool,
}

impl Ending {
    pub(super) fn begin(client: &Client, shared: bool) -> Self {
        let connects = connects(client);
        Self { connects, shared }
    }

    /// Ends it, after `taken` requests.
    pub(super) async fn end(&self, mut requests: Subscriber, taken: u64, service: &Service) {
        // After a reconnect the server has begun to count anew. And where each server gets
        // every request, one that was not handled here must not be asked again.
        if !self.shared || connects(&service.client) != self.connects {
            return;
        }
        if requests.unsubscribe_after(taken + MORE).await.is_err() {
            return;
        }
        while let Ok(Some(message)) = tokio::time::timeout(SILENCE, requests.next()).await {
            let request = Request {
                message,
                client: service.client.clone(),
                entry: Arc::clone(&service.entry),
                came: Instant::now(),
            };
            request.refuse(ENDED, "the service has ended").await;
        }
    }
}

fn connects(client: &Client) -> u64 {
    client.statistics().connects.load(Ordering::Relaxed)
}
