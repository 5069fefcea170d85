//! The twin of the executor's ledger: the same rows, in a map that outlives the node.

use crate::bus::{Port, lock};
use detent_protocol::record::ToolOutcome;
use detent_protocol::{Code, Fault, GoalId, StepId};
use std::collections::{BTreeMap, BTreeSet};

/// Names one attempt of one step.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Attempt {
    pub(super) goal: GoalId,
    pub(super) step: StepId,
    pub(super) attempt: u32,
}

/// What lies on a node's disk.
#[derive(Default)]
pub(crate) struct LedgerRows {
    /// How attempts ended; `None`: killed, and what they had done is unknown.
    runs: BTreeMap<Attempt, Option<ToolOutcome>>,
    sealed: BTreeSet<GoalId>,
}

/// The ledger of one life.
pub(super) struct Ledger {
    port: Port,
}

impl Ledger {
    pub(super) fn new(port: Port) -> Self {
        Self { port }
    }

    pub(super) fn entry(&self, attempt: &Attempt) -> Option<Option<ToolOutcome>> {
        self.with(|rows| rows.runs.get(attempt).cloned())
    }

    pub(super) fn is_sealed(&self, goal: &GoalId) -> bool {
        self.with(|rows| rows.sealed.contains(goal))
    }

    /// Durable when it returns; on an error it may be recorded or not.
    pub(super) async fn record(
        &self,
        attempt: &Attempt,
        outcome: Option<ToolOutcome>,
    ) -> Result<(), Fault> {
        let attempt = attempt.clone();
        self.commit(move |rows| drop(rows.runs.insert(attempt, outcome)))
            .await
    }

    /// Seals a goal for ever.
    pub(super) async fn seal(&self, goal: GoalId) -> Result<(), Fault> {
        if self.is_sealed(&goal) {
            return Ok(());
        }
        self.commit(move |rows| {
            rows.sealed.insert(goal);
        })
        .await
    }

    /// Takes out how the attempts of a goal ended, which was forgotten. Its seal stays, or
    /// is put there: calls may still be under way. (The real one lifts it later; no run
    /// is so long.)
    pub(super) async fn forget(&self, goal: GoalId) -> Result<(), Fault> {
        let of_goal = |rows: &LedgerRows| rows.runs.keys().any(|a| a.goal == goal);
        if self.is_sealed(&goal) && !self.with(|rows| of_goal(rows)) {
            return Ok(());
        }
        self.commit(move |rows| {
            rows.sealed.insert(goal);
            rows.runs.retain(|attempt, _| attempt.goal != goal);
        })
        .await
    }

    async fn commit(&self, write: impl FnOnce(&mut LedgerRows)) -> Result<(), Fault> {
        let chance = &self.port.fabric.chance;
        self.port.point("ledger").await;
        chance.delay_us(0, 2_000).await;
        self.port.life.alive().await;
        let fails = chance.fault(|f| f.ledger);
        if !fails || chance.happens(500) {
            self.with(write);
        }
        self.port.point("ledger written").await;
        if fails {
            return Err(Fault::new(Code::JournalStorage, "the ledger's disk failed"));
        }
        Ok(())
    }

    fn with<R>(&self, f: impl FnOnce(&mut LedgerRows) -> R) -> R {
        let mut ledgers = lock(&self.port.fabric.ledgers);
        f(ledgers.entry(self.port.life.node().clone()).or_default())
    }
}
