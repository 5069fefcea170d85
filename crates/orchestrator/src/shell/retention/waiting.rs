//! What retention has to deal with, by the time when it is due. Bounded: what does not fit
//! is dropped, the latest first, and it is said that something was.

use super::AT_ONCE;
use detent_bus::GoalKey;
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use tokio::sync::Notify;

/// Goals that wait in memory; beyond it the latest are dropped and found again later.
pub(super) const WAITING_MAX: usize = 65_536;

/// Goals that wait to be forgotten, or for their archive to be removed, by time.
#[derive(Default)]
pub(crate) struct Waiting {
    due: Mutex<Due>,
    pub(super) news: Notify,
}

#[derive(Default)]
pub(super) struct Due {
    goals: BTreeSet<(u64, GoalKey)>,
    /// Some did not fit.
    pub(super) missed: bool,
}

impl Waiting {
    pub(super) fn with<R>(&self, f: impl FnOnce(&mut Due) -> R) -> R {
        // Nothing that can panic runs under the lock.
        f(&mut self.due.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn add(&self, at_ms: u64, key: GoalKey) {
        self.with(|due| {
            due.goals.insert((at_ms, key));
            if due.goals.len() > WAITING_MAX {
                due.missed = due.goals.pop_last().is_some();
            }
        });
        self.news.notify_one();
    }

    /// Takes out what is due, a handful at most.
    pub(super) fn take(&self, now_ms: u64) -> Vec<GoalKey> {
        self.with(|due| {
            let mut taken = Vec::new();
            while taken.len() < AT_ONCE
                && due.goals.first().is_some_and(|(at_ms, _)| *at_ms <= now_ms)
                && let Some((_, key)) = due.goals.pop_first()
            {
                taken.push(key);
            }
            taken
        })
    }

    pub(super) fn next_ms(&self) -> Option<u64> {
        self.with(|due| due.goals.first().map(|(at_ms, _)| *at_ms))
    }

    /// Has to be looked for what did not fit, and is there room for it? Asked once.
    pub(super) fn missed(&self) -> bool {
        let room = |due: &mut Due| due.goals.len() < WAITING_MAX / 2;
        self.with(|due| room(due) && std::mem::take(&mut due.missed))
    }
}
