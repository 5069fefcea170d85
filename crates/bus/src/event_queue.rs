//! A subscriber's queue: bounded in messages and bytes; what does not fit is counted
//! where it is missing.
//!
//! What it is for: every implementation whose events arrive by themselves.
//!
//! What it promises: a message that was not dropped comes out once and in order; where
//! some are missing, [`Event::Missed`] stands between its neighbours.
//!
//! What it must not know: where the events come from.

use crate::Event;
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// The queue, shared by publishers and the subscriber.
pub(crate) struct EventQueue {
    messages_max: usize,
    bytes_max: usize,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Waiting>,
    bytes: usize,
    /// Dropped since the last message that was taken in.
    missed: u64,
    closed: bool,
}

struct Waiting {
    /// Dropped right before this message.
    missed: u64,
    subject: String,
    payload: Bytes,
}

impl Waiting {
    fn bytes(&self) -> usize {
        self.subject.len() + self.payload.len()
    }
}

impl EventQueue {
    /// Holds `messages_max` (at least 1) messages of together `bytes_max` bytes; one
    /// message always fits into an empty queue.
    pub(crate) fn new(messages_max: usize, bytes_max: usize) -> Self {
        Self {
            messages_max: messages_max.max(1),
            bytes_max,
            state: Mutex::default(),
            changed: Notify::new(),
        }
    }

    pub(crate) fn push(&self, subject: &str, payload: &Bytes) {
        let mut state = self.state();
        let bytes = state.bytes + subject.len() + payload.len();
        let fits = state.waiting.len() < self.messages_max && bytes <= self.bytes_max;
        if fits || state.waiting.is_empty() {
            let missed = std::mem::take(&mut state.missed);
            state.bytes = bytes;
            state.waiting.push_back(Waiting {
                missed,
                subject: subject.to_owned(),
                payload: payload.clone(),
            });
        } else {
            state.missed += 1;
        }
        drop(state);
        self.changed.notify_one();
    }

    /// At least one event was lost before it got here.
    pub(crate) fn gap(&self) {
        self.state().missed += 1;
        self.changed.notify_one();
    }

    /// The next event; `None` once the queue is closed and empty. For one subscriber.
    pub(crate) async fn next(&self) -> Option<Event> {
        loop {
            match self.take() {
                Ok(event) => return event,
                Err(()) => self.changed.notified().await,
            }
        }
    }

    /// No message comes any more.
    pub(crate) fn close(&self) {
        self.state().closed = true;
        self.changed.notify_one();
    }

    /// What is there now: an event, the end, or `Err` to wait.
    fn take(&self) -> Result<Option<Event>, ()> {
        let mut state = self.state();
        let Some(front) = state.waiting.front_mut() else {
            return match std::mem::take(&mut state.missed) {
                0 if state.closed => Ok(None),
                0 => Err(()),
                missed => Ok(Some(Event::Missed(missed))),
            };
        };
        let missed = std::mem::take(&mut front.missed);
        if missed > 0 {
            return Ok(Some(Event::Missed(missed)));
        }
        let front = state.waiting.pop_front();
        state.bytes -= front.as_ref().map_or(0, Waiting::bytes);
        Ok(front.map(|front| Event::Message {
            subject: front.subject,
            payload: front.payload,
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing in here calls foreign code, so nothing panics half-way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(queue: &EventQueue) -> Vec<Event> {
        std::iter::from_fn(|| queue.take().ok().flatten()).collect()
    }

    fn message(n: u8) -> Event {
        Event::Message {
            subject: "s".into(),
            payload: Bytes::copy_from_slice(&[n]),
        }
    }

    #[test]
    fn what_was_dropped_is_told_where_it_is_missing() {
        let queue = EventQueue::new(2, 1000);
        let push = |n: u8| queue.push("s", &Bytes::copy_from_slice(&[n]));
        (1..=4).for_each(push);
        assert_eq!(queue.take(), Ok(Some(message(1))));
        push(5);
        assert_eq!(taken(&queue), [message(2), Event::Missed(2), message(5)]);
        assert_eq!(queue.take(), Err(()));
    }

    #[test]
    fn bytes_are_bounded_too_but_one_message_always_fits() {
        let queue = EventQueue::new(100, 8);
        let large = Bytes::from_static(&[0; 20]);
        queue.push("s", &large);
        queue.push("s", &Bytes::from_static(&[1]));
        let first = Event::Message {
            subject: "s".into(),
            payload: large,
        };
        assert_eq!(taken(&queue), [first, Event::Missed(1)]);
        queue.push("s", &Bytes::from_static(&[2]));
        assert_eq!(taken(&queue), [message(2)]);
    }

    #[test]
    fn a_gap_is_told_where_it_is() {
        let queue = EventQueue::new(8, 1000);
        let push = |n: u8| queue.push("s", &Bytes::copy_from_slice(&[n]));
        push(1);
        queue.gap();
        push(2);
        assert_eq!(taken(&queue), [message(1), Event::Missed(1), message(2)]);
        queue.gap();
        assert_eq!(taken(&queue), [Event::Missed(1)]);
    }

    #[test]
    fn the_end_comes_after_what_is_waiting() {
        let queue = EventQueue::new(2, 1000);
        queue.push("s", &Bytes::from_static(&[1]));
        queue.close();
        assert_eq!(queue.take(), Ok(Some(message(1))));
        assert_eq!(queue.take(), Ok(None));
    }
}
