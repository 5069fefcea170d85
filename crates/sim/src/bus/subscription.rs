//! A subscriber's bounded queue: what does not fit is counted and told.

use super::{Port, lock};
use async_trait::async_trait;
use bytes::Bytes;
use detent_bus::{Event, Subscription};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

/// The queue.
pub(super) struct Queue {
    max: usize,
    state: Mutex<State>,
    news: Notify,
}

#[derive(Default)]
struct State {
    /// Events in their order; a gap stands where its messages would have.
    events: VecDeque<Event>,
    messages: usize,
}

impl Queue {
    pub(super) fn new(max: usize) -> Self {
        Self {
            max: max.max(1),
            state: Mutex::default(),
            news: Notify::new(),
        }
    }

    pub(super) fn push(&self, subject: &str, payload: &Bytes) {
        let mut state = lock(&self.state);
        if state.messages < self.max {
            state.messages += 1;
            state.events.push_back(Event::Message {
                subject: subject.to_owned(),
                payload: payload.clone(),
            });
        } else if let Some(Event::Missed(n)) = state.events.back_mut() {
            *n += 1;
        } else {
            state.events.push_back(Event::Missed(1));
        }
        drop(state);
        self.news.notify_one();
    }

    fn take(&self) -> Option<Event> {
        let mut state = lock(&self.state);
        let event = state.events.pop_front()?;
        state.messages -= usize::from(matches!(event, Event::Message { .. }));
        Some(event)
    }
}

/// The subscriber's end; dropping it ends the subscription.
pub(super) struct SimSubscription {
    pub(super) port: Port,
    pub(super) id: u64,
    pub(super) queue: Arc<Queue>,
}

impl Drop for SimSubscription {
    fn drop(&mut self) {
        lock(&self.port.fabric.routes).unsubscribe(self.id);
    }
}

#[async_trait]
impl Subscription for SimSubscription {
    async fn next(&mut self) -> Option<Event> {
        loop {
            self.port.life.alive().await;
            if let Some(event) = self.queue.take() {
                return Some(event);
            }
            self.queue.news.notified().await;
        }
    }
}
