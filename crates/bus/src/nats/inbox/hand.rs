//! What a node has in hand: which messages, and in which order they are dealt with.

use async_nats::jetstream::Message;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// The messages in hand of one taker.
#[derive(Default)]
pub(super) struct Hand {
    state: Mutex<State>,
    /// A place got free.
    pub(super) freed: Notify,
}

#[derive(Default)]
struct State {
    next: u64,
    /// Where each one's progress is told.
    held: BTreeMap<u64, String>,
    /// Those that wait for one of the same subject, by subject; a subject that is being
    /// dealt with has an entry.
    lanes: HashMap<String, VecDeque<Held>>,
}

/// A message in hand. Dropping it frees its place.
pub(super) struct Held {
    pub(super) message: Message,
    number: u64,
    hand: Arc<Hand>,
}

impl Hand {
    /// Messages in hand.
    pub(super) fn len(&self) -> usize {
        self.state().held.len()
    }

    /// Waits until nothing is in hand. For one who waits.
    pub(super) async fn empty(&self) {
        while self.len() > 0 {
            self.freed.notified().await;
        }
    }

    /// Takes a message in hand. Gives it back where its subject is free and has to be
    /// begun; else it waits in its lane.
    pub(super) fn take(self: &Arc<Self>, message: Message) -> Option<Held> {
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        let reply = message.reply.as_ref().map(|reply| reply.to_string());
        state.held.insert(number, reply.unwrap_or_default());
        let subject = message.subject.to_string();
        let held = Held {
            message,
            number,
            hand: Arc::clone(self),
        };
        match state.lanes.get_mut(&subject) {
            Some(lane) => {
                lane.push_back(held);
                None
            }
            None => {
                state.lanes.insert(subject, VecDeque::new());
                Some(held)
            }
        }
    }

    /// The next message of a subject; `None` closes the lane.
    pub(super) fn next(&self, subject: &str) -> Option<Held> {
        let mut state = self.state();
        let next = state.lanes.get_mut(subject).and_then(VecDeque::pop_front);
        if next.is_none() {
            state.lanes.remove(subject);
        }
        next
    }

    /// Where progress has to be told.
    pub(super) fn replies(&self) -> Vec<String> {
        self.state().held.values().cloned().collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is whole before anything could panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.hand.state().held.remove(&self.number);
        self.hand.freed.notify_one();
    }
}
