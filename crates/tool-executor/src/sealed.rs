//! Attempts that were sealed in this life of the node, for `read` tools, which have no
//! slot. Bounded: the oldest is forgotten first. Forgetting one lets a very late
//! delivery of a `read` tool run, which changes nothing.

use crate::ledger::Attempt;
use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, PoisonError};

#[derive(Default)]
pub(crate) struct SealedAttempts {
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    order: VecDeque<Attempt>,
    set: HashSet<Attempt>,
}

impl SealedAttempts {
    /// Remembers one; of more than `max` the oldest is forgotten.
    pub(crate) fn insert(&self, attempt: &Attempt, max: usize) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if !held.set.insert(attempt.clone()) {
            return;
        }
        held.order.push_back(attempt.clone());
        if held.order.len() > max
            && let Some(oldest) = held.order.pop_front()
        {
            held.set.remove(&oldest);
        }
    }

    pub(crate) fn contains(&self, attempt: &Attempt) -> bool {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.set.contains(attempt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use detent_protocol::{GoalId, StepId};

    fn attempt(attempt: u32) -> Attempt {
        Attempt {
            goal: GoalId::from_bytes([1; 16]),
            step: StepId::new("s").unwrap(),
            attempt,
        }
    }

    #[test]
    fn the_oldest_is_forgotten_first_and_once_is_enough() {
        let sealed = SealedAttempts::default();
        for n in [1, 2, 2, 2] {
            sealed.insert(&attempt(n), 2);
        }
        assert!(sealed.contains(&attempt(1)) && sealed.contains(&attempt(2)));
        sealed.insert(&attempt(3), 2);
        assert!(!sealed.contains(&attempt(1)));
        assert!(sealed.contains(&attempt(2)) && sealed.contains(&attempt(3)));
    }
}
