//! The twin of the executor's table of attempts in hand.

use super::ledger::Attempt;
use crate::bus::lock;
use detent_protocol::record::ToolOutcome;
use detent_protocol::{Code, Fault, GoalId};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};
use tokio::sync::watch;

/// What is answered to a call.
pub(super) type Reply = Result<ToolOutcome, Fault>;

/// Why a run is ended from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KillWhy {
    Attempt,
    Goal,
}

impl KillWhy {
    pub(super) fn fault(self) -> Fault {
        match self {
            Self::Attempt => Fault::new(Code::OwnerFenced, "the attempt was sealed"),
            Self::Goal => Fault::new(Code::UserCancelled, "the goal is sealed"),
        }
    }
}

/// What a seal may make of an ending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nothing ran, and the slot is not ours.
    Refused,
    /// It is over and the reply says how.
    Over,
    /// It was killed; what it did is unknown.
    Killed,
}

/// How the handling of an attempt ended.
#[derive(Debug, Clone)]
pub(super) struct Ending {
    pub(super) reply: Reply,
    pub(super) kind: Kind,
}

/// One attempt in hand.
pub(super) struct Run {
    why: OnceLock<KillWhy>,
    killed: watch::Sender<bool>,
    ending: watch::Sender<Option<Ending>>,
}

impl Run {
    fn new() -> Self {
        Self {
            why: OnceLock::new(),
            killed: watch::Sender::new(false),
            ending: watch::Sender::new(None),
        }
    }

    /// Asks it to end; the first reason counts.
    pub(super) fn end(&self, why: KillWhy) {
        self.why.get_or_init(|| why);
        self.killed.send_replace(true);
    }

    pub(super) fn why(&self) -> Option<KillWhy> {
        self.why.get().copied()
    }

    pub(super) fn is_killed(&self) -> bool {
        *self.killed.borrow()
    }

    pub(super) async fn killed(&self) {
        // The sender lives in `self`: neither channel closes meanwhile.
        let _ = self.killed.subscribe().wait_for(|k| *k).await;
    }

    pub(super) async fn ended(&self) -> Ending {
        let mut ending = self.ending.subscribe();
        let seen = ending.wait_for(Option::is_some).await;
        let seen = seen.ok().and_then(|ending| ending.clone());
        // Only a crash ends a run without an ending, and then nobody waits.
        seen.unwrap_or_else(|| Ending {
            reply: Err(Fault::new(Code::OutcomeUnknown, "nobody saw its end")),
            kind: Kind::Killed,
        })
    }
}

/// All attempts in hand.
#[derive(Default)]
pub(super) struct Runs(Mutex<BTreeMap<Attempt, Arc<Run>>>);

impl Runs {
    /// The run, and whether the caller leads it.
    pub(super) fn join(&self, attempt: &Attempt) -> (Arc<Run>, bool) {
        let mut table = lock(&self.0);
        if let Some(run) = table.get(attempt) {
            return (run.clone(), false);
        }
        let run = Arc::new(Run::new());
        table.insert(attempt.clone(), run.clone());
        (run, true)
    }

    /// Tells the ending, then takes the attempt off the table.
    pub(super) fn finish(&self, attempt: &Attempt, run: &Run, ending: Ending) {
        run.ending.send_replace(Some(ending));
        lock(&self.0).remove(attempt);
    }

    pub(super) fn get(&self, attempt: &Attempt) -> Option<Arc<Run>> {
        lock(&self.0).get(attempt).cloned()
    }

    pub(super) fn of_goal(&self, goal: &GoalId) -> Vec<Arc<Run>> {
        let table = lock(&self.0);
        let all = table.iter().filter(|(a, _)| a.goal == *goal);
        all.map(|(_, run)| run.clone()).collect()
    }
}
