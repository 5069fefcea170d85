//! The state of a goal that was forgotten: from its tombstone and, where they are still
//! there, the entries before it; and the tombstone of a goal that has ended.

use super::{GoalState, Status};
use detent_protocol::tombstone::{Archive, Tombstone};
use std::sync::Arc;

impl GoalState {
    /// Folds a tombstone: onto nothing, where it begins the journal, or onto the goal that
    /// it stands for.
    pub(super) fn fold_tombstone(&mut self, epoch: u64, n: u64, goal: &Tombstone) {
        let fits = match self.n {
            0 => n > 1,
            last => {
                n == last + 1
                    && epoch == self.epoch
                    && self.tombstone(goal.archive.clone()).as_ref() == Some(goal)
            }
        };
        if !fits {
            let (last, of) = (self.n, self.epoch);
            return self.park(format!(
                "tombstone {n} of epoch {epoch} does not stand for record {last} of epoch {of}"
            ));
        }
        self.n = n;
        self.epoch = epoch;
        self.at_ms = goal.ended_at_ms;
        self.owner = goal.owner.clone();
        self.agent = Some(goal.agent.clone());
        self.definition = Some(goal.definition);
        self.submission = Some(goal.submission);
        self.key = goal.key.clone();
        self.trace = goal.trace.clone();
        self.json = goal.json;
        self.accepted_at_ms = goal.accepted_at_ms;
        self.deadline_ms = goal.deadline_ms;
        self.ended = Some(Arc::new(goal.result.clone()));
        self.forgotten = Some(Arc::new(goal.clone()));
    }

    /// What stays of the goal if it is forgotten; `None` for one that has not ended or
    /// that was forgotten.
    pub fn tombstone(&self, archive: Archive) -> Option<Tombstone> {
        if self.forgotten.is_some() {
            return None;
        }
        let (steps_done, steps) = self.step_counts();
        Some(Tombstone {
            agent: self.agent.clone()?,
            definition: self.definition?,
            submission: self.submission?,
            key: self.key.clone(),
            trace: self.trace.clone(),
            json: self.json,
            owner: self.owner.clone(),
            accepted_at_ms: self.accepted_at_ms,
            deadline_ms: self.deadline_ms,
            ended_at_ms: self.at_ms,
            result: self.ended.as_deref()?.clone(),
            steps_done,
            steps,
            archive,
        })
    }

    /// Steps that ended well, and all.
    pub(crate) fn step_counts(&self) -> (u32, u32) {
        if let Some(goal) = &self.forgotten {
            return (goal.steps_done, goal.steps);
        }
        let done = self.steps.values().filter(|s| s.status == Status::Done);
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        (count(done.count()), count(self.steps.len()))
    }
}
