//! The attempts that are in hand right now: who leads one, who waits for it, and the
//! switch that ends it.
//!
//! Promises: an attempt has one leader at a time; whoever else comes gets the leader's
//! ending; an ending is told before the attempt leaves the table. The table holds no
//! more than the calls that the bus lets in at the same time.

use crate::kind::Kill;
use crate::ledger::Attempt;
use detent_protocol::record::ToolOutcome;
use detent_protocol::{Code, Fault, GoalId};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tokio::sync::watch;

/// What is answered to a call: an outcome, or a fault that says nothing about the
/// effect.
pub(crate) type Reply = Result<ToolOutcome, Fault>;

/// Why a run is being ended from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KillWhy {
    AttemptSealed,
    GoalSealed,
    Stopping,
}

impl KillWhy {
    pub(crate) fn fault(self) -> Fault {
        match self {
            Self::AttemptSealed => Fault::new(
                Code::OwnerFenced,
                "the attempt was sealed by the goal's owner",
            ),
            Self::GoalSealed => Fault::new(Code::UserCancelled, "the goal is sealed on this node"),
            Self::Stopping => Fault::new(Code::Draining, "the executor is stopping"),
        }
    }
}

/// How the handling of an attempt ended.
#[derive(Debug, Clone)]
pub(crate) struct Ending {
    pub(crate) reply: Reply,
    /// What a seal may make of it.
    pub(crate) kind: EndingKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndingKind {
    /// It was not taken up here: nothing ran, and its slot is not ours.
    Refused,
    /// It is over, and the reply says how.
    Over,
    /// It had started and was killed by us; what it did is unknown.
    Killed,
    /// Its leader vanished: it is being killed, but nobody saw its end.
    Lost,
}

/// One attempt in hand.
pub(crate) struct Run {
    pub(crate) kill: Kill,
    why: OnceLock<KillWhy>,
    ending: watch::Sender<Option<Ending>>,
}

impl Run {
    fn new() -> Self {
        Self {
            kill: Kill::new(),
            why: OnceLock::new(),
            ending: watch::Sender::new(None),
        }
    }

    /// Asks it to end; the first reason counts.
    pub(crate) fn end(&self, why: KillWhy) {
        self.why.get_or_init(|| why);
        self.kill.kill();
    }

    /// Why it was asked to end.
    pub(crate) fn why(&self) -> Option<KillWhy> {
        self.why.get().copied()
    }

    /// Waits for its end.
    pub(crate) async fn ended(&self) -> Ending {
        let mut ending = self.ending.subscribe();
        // The sender lives in `self`, so the channel can't close meanwhile.
        match ending.wait_for(Option::is_some).await {
            Ok(seen) => seen.clone().unwrap_or_else(lost),
            Err(_) => lost(),
        }
    }
}

fn lost() -> Ending {
    let message = "the call was dropped while it ran; it is being killed";
    Ending {
        reply: Err(Fault::new(Code::OutcomeUnknown, message)),
        kind: EndingKind::Lost,
    }
}

/// All attempts in hand.
#[derive(Default)]
pub(crate) struct Runs {
    table: Mutex<HashMap<Attempt, Arc<Run>>>,
    count: watch::Sender<usize>,
}

/// What a call finds when it comes in.
pub(crate) enum Joined {
    /// Nobody has this attempt in hand: the caller does.
    Leads(Lead),
    /// Somebody has: wait for that.
    Attached(Arc<Run>),
}

impl Runs {
    pub(crate) fn join(self: &Arc<Self>, attempt: &Attempt) -> Joined {
        let mut table = self.table();
        match table.entry(attempt.clone()) {
            Entry::Occupied(there) => Joined::Attached(Arc::clone(there.get())),
            Entry::Vacant(free) => {
                let run = Arc::clone(free.insert(Arc::new(Run::new())));
                self.count.send_replace(table.len());
                Joined::Leads(Lead {
                    runs: Arc::clone(self),
                    attempt: attempt.clone(),
                    run,
                    ended: false,
                })
            }
        }
    }

    pub(crate) fn get(&self, attempt: &Attempt) -> Option<Arc<Run>> {
        self.table().get(attempt).cloned()
    }

    pub(crate) fn of_goal(&self, goal: &GoalId) -> Vec<Arc<Run>> {
        let table = self.table();
        let of_goal = table.iter().filter(|(attempt, _)| attempt.goal == *goal);
        of_goal.map(|(_, run)| Arc::clone(run)).collect()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Run>> {
        self.table().values().cloned().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.table().len()
    }

    /// Waits until nothing is in hand.
    pub(crate) async fn idle(&self) {
        let mut count = self.count.subscribe();
        // The sender lives in `self`, so the channel can't close meanwhile.
        let _ = count.wait_for(|n| *n == 0).await;
    }

    fn table(&self) -> MutexGuard<'_, HashMap<Attempt, Arc<Run>>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Held by whoever handles an attempt. Dropped without an ending (the handler was
/// dropped or panicked) it tells those who wait that nobody saw the end.
pub(crate) struct Lead {
    runs: Arc<Runs>,
    attempt: Attempt,
    pub(crate) run: Arc<Run>,
    ended: bool,
}

impl Lead {
    /// Tells everybody how it ended and takes it off the table.
    pub(crate) fn finish(mut self, ending: Ending) {
        self.close(ending);
    }

    fn close(&mut self, ending: Ending) {
        self.ended = true;
        self.run.ending.send_replace(Some(ending));
        let mut table = self.runs.table();
        table.remove(&self.attempt);
        self.runs.count.send_replace(table.len());
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        if !self.ended {
            self.close(lost());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use detent_protocol::StepId;

    fn attempt() -> Attempt {
        Attempt {
            goal: GoalId::from_bytes([1; 16]),
            step: StepId::new("s").unwrap(),
            attempt: 1,
        }
    }

    fn lead(runs: &Arc<Runs>) -> Lead {
        match runs.join(&attempt()) {
            Joined::Leads(lead) => lead,
            Joined::Attached(_) => panic!("somebody leads already"),
        }
    }

    #[tokio::test]
    async fn who_attaches_gets_the_leaders_ending() {
        let runs = Arc::new(Runs::default());
        let leads = lead(&runs);
        let Joined::Attached(run) = runs.join(&attempt()) else {
            panic!("two leaders");
        };
        let fault = Fault::new(Code::ToolFailed, "as it ended");
        leads.finish(Ending {
            reply: Err(fault.clone()),
            kind: EndingKind::Over,
        });
        assert_eq!(run.ended().await.reply, Err(fault));
        runs.idle().await;
        drop(lead(&runs));
    }

    #[tokio::test]
    async fn a_leader_that_vanishes_leaves_nobody_waiting() {
        let runs = Arc::new(Runs::default());
        let leads = lead(&runs);
        let Joined::Attached(run) = runs.join(&attempt()) else {
            panic!("two leaders");
        };
        drop(leads);
        assert_eq!(run.ended().await.kind, EndingKind::Lost);
        assert_eq!(runs.len(), 0);
    }

    #[test]
    fn the_first_reason_to_end_counts() {
        let run = Run::new();
        run.end(KillWhy::GoalSealed);
        run.end(KillWhy::Stopping);
        assert_eq!(run.why(), Some(KillWhy::GoalSealed));
        assert!(run.kill.is_killed());
    }
}
