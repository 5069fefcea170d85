//! Events of one subscription.

use super::Broker;
use super::link::Gaps;
use crate::event_queue::EventQueue;
use crate::{Event, Subscription};
use async_nats::SubscribeError;
use async_trait::async_trait;
use futures::StreamExt;
use std::sync::{Arc, Weak};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Bytes of events that one subscription holds; beyond it events are dropped and counted,
/// as beyond its `queue_max`.
const BYTES_MAX: usize = 16 << 20;

impl Gaps for EventQueue {
    fn gap(&self) {
        EventQueue::gap(self);
    }
}

/// A subscriber's end.
///
/// Where the connection was lost, or the client itself had to drop something, the number
/// of events that are missing is not known: [`Event::Missed`] then counts one for it.
pub(crate) struct NatsSubscription {
    queue: Arc<EventQueue>,
    _stop: DropGuard,
}

impl NatsSubscription {
    /// Ends with `open`.
    pub(crate) async fn new(
        broker: &Broker,
        pattern: &str,
        queue_max: usize,
        open: CancellationToken,
    ) -> Result<Self, SubscribeError> {
        let queue = Arc::new(EventQueue::new(queue_max, BYTES_MAX));
        let mut events = broker.client.subscribe(pattern.to_owned()).await?;
        let listener: Weak<EventQueue> = Arc::downgrade(&queue);
        broker.links.listen(listener);
        let (filled, ended) = (Arc::clone(&queue), open.clone());
        tokio::spawn(async move {
            let moving = async {
                // Only moves them on, so that the client's own queue stays short.
                while let Some(event) = events.next().await {
                    filled.push(&event.subject, &event.payload);
                }
            };
            ended.run_until_cancelled(moving).await;
            filled.close();
        });
        Ok(Self {
            queue,
            _stop: open.drop_guard(),
        })
    }
}

#[async_trait]
impl Subscription for NatsSubscription {
    async fn next(&mut self) -> Option<Event> {
        self.queue.next().await
    }
}
