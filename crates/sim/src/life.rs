//! One life of a node, from its start to its crash.
//!
//! What it promises: from the moment of [`Life::end`] nothing of that life has any
//! effect outside: every call that it makes through its [`Port`](crate::bus::Port)
//! waits for ever, and its handlers are dropped. That is what a crash is: a future that
//! never returns, not one that fails.
//!
//! What it must not know: what runs in the node.

use detent_protocol::NodeId;
use std::sync::{Mutex, PoisonError};
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// One life of a node.
pub struct Life {
    node: NodeId,
    number: u64,
    mortal: bool,
    ended: watch::Sender<bool>,
    tasks: Mutex<Vec<AbortHandle>>,
}

impl Life {
    /// The `number`th life of a node, which may end at any of its calls.
    pub fn of_node(node: NodeId, number: u64) -> Self {
        Self::new(node, number, true)
    }

    /// The life of somebody outside the cluster: it never ends.
    pub fn outside(name: NodeId) -> Self {
        Self::new(name, 0, false)
    }

    fn new(node: NodeId, number: u64, mortal: bool) -> Self {
        Self {
            node,
            number,
            mortal,
            ended: watch::Sender::new(false),
            tasks: Mutex::default(),
        }
    }

    /// Whose life it is.
    pub fn node(&self) -> &NodeId {
        &self.node
    }

    /// Which of the node's lives it is, from 1; 0 outside the cluster.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// May it end at a call?
    pub fn is_mortal(&self) -> bool {
        self.mortal
    }

    /// Is it over?
    pub fn is_over(&self) -> bool {
        *self.ended.borrow()
    }

    /// Ends it: now, in the middle of whatever it does.
    pub fn end(&self) {
        self.ended.send_replace(true);
        // In the order in which they were started: the run must be the same each time.
        let tasks = std::mem::take(&mut *self.tasks());
        tasks.iter().for_each(AbortHandle::abort);
    }

    /// Waits for its end.
    pub async fn over(&self) {
        let mut ended = self.ended.subscribe();
        // The sender lives in `self`, so the channel can't close meanwhile.
        let _ = ended.wait_for(|over| *over).await;
    }

    /// Goes on only in a life that is not over.
    pub async fn alive(&self) {
        if self.is_over() {
            std::future::pending::<()>().await;
        }
    }

    /// Lets a task end with it.
    pub fn owns(&self, task: AbortHandle) {
        if self.is_over() {
            return task.abort();
        }
        let mut tasks = self.tasks();
        tasks.retain(|t| !t.is_finished());
        tasks.push(task);
    }

    fn tasks(&self) -> std::sync::MutexGuard<'_, Vec<AbortHandle>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
