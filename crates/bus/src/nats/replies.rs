//! Who waits for which answer.
//!
//! The client has such a table too, but keeps an entry for ever where no answer comes;
//! here it goes with whoever waited.

use async_nats::{Client, Message, SubscribeError};
use futures::StreamExt;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

type Waiting = HashMap<u64, oneshot::Sender<Message>>;

/// Receives the answers of one connection.
pub(crate) struct Replies {
    /// Subject of an answer, but for its number.
    prefix: String,
    next: AtomicU64,
    waiting: Arc<Mutex<Waiting>>,
    task: AbortHandle,
}

/// A place for one answer.
pub(crate) struct Place {
    /// Where the answer has to be sent.
    pub(crate) subject: String,
    number: u64,
    waiting: Arc<Mutex<Waiting>>,
    answer: oneshot::Receiver<Message>,
}

impl Replies {
    pub(crate) async fn new(client: &Client) -> Result<Self, SubscribeError> {
        let prefix = format!("{}.", client.new_inbox());
        let mut answers = client.subscribe(format!("{prefix}*")).await?;
        let waiting = Arc::<Mutex<Waiting>>::default();
        let (table, cut) = (Arc::clone(&waiting), prefix.len());
        let task = tokio::spawn(async move {
            while let Some(answer) = answers.next().await {
                let number = answer.subject.get(cut..).and_then(|n| n.parse().ok());
                let place = number.and_then(|n: u64| locked(&table).remove(&n));
                if let Some(place) = place {
                    // Whoever waited may have gone this very moment.
                    let _ = place.send(answer);
                }
            }
        });
        Ok(Self {
            prefix,
            next: AtomicU64::new(0),
            waiting,
            task: task.abort_handle(),
        })
    }

    pub(crate) fn place(&self) -> Place {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (answered, answer) = oneshot::channel();
        locked(&self.waiting).insert(number, answered);
        Place {
            subject: format!("{}{number}", self.prefix),
            number,
            waiting: Arc::clone(&self.waiting),
            answer,
        }
    }
}

impl Drop for Replies {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Place {
    /// The answer; `None` when the connection was closed.
    pub(crate) async fn answer(&mut self) -> Option<Message> {
        (&mut self.answer).await.ok()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        locked(&self.waiting).remove(&self.number);
    }
}

fn locked(waiting: &Mutex<Waiting>) -> MutexGuard<'_, Waiting> {
    // Each change is one insert or remove.
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}
