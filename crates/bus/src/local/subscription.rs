//! The subscriber's end of a queue of events.

use crate::event_queue::EventQueue;
use crate::{Event, Subscription};
use async_trait::async_trait;
use std::sync::Arc;

/// The subscriber's end.
pub(crate) struct LocalSubscription {
    queue: Arc<EventQueue>,
    stop: Option<Box<dyn FnOnce() + Send>>,
}

impl LocalSubscription {
    /// `stop` is called when the subscriber goes away.
    pub(crate) fn new(queue: Arc<EventQueue>, stop: impl FnOnce() + Send + 'static) -> Self {
        Self {
            queue,
            stop: Some(Box::new(stop)),
        }
    }
}

impl Drop for LocalSubscription {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            stop();
        }
    }
}

#[async_trait]
impl Subscription for LocalSubscription {
    async fn next(&mut self) -> Option<Event> {
        self.queue.next().await
    }
}
