//! Seals: ending what runs, and making sure that nothing starts any more.
//!
//! A seal marks first and looks at the table of runs afterwards; a call puts itself on
//! the table first and looks for marks afterwards. So one of the two sees the other.

use crate::core::Core;
use crate::ledger::Attempt;
use crate::runs::{EndingKind, KillWhy};
use crate::slot::{Claim, key_of_seal};
use detent_protocol::messages::{AttemptSealed, GoalSealed, SealAttempt, SealGoal};
use detent_protocol::record::Seal;
use detent_protocol::{Code, Fault, NodeId};

impl Core {
    /// Seals one attempt; when it is answered the attempt does not run here and never
    /// will.
    pub(crate) async fn seal_attempt(&self, ask: &SealAttempt) -> Result<AttemptSealed, Fault> {
        let attempt = Attempt {
            goal: ask.goal,
            step: ask.step.clone(),
            attempt: ask.attempt,
        };
        self.sealed
            .insert(&attempt, self.options.sealed_attempts_max);
        if let Some(seal) = self.over_here(&attempt).await? {
            return Ok(AttemptSealed { seal });
        }
        let seal = match self.revoke(&key_of_seal(ask), ask.epoch).await? {
            Claim::StartedBy(node) if node == self.options.node => {
                self.started_here(&attempt).await?
            }
            Claim::StartedBy(node) => return Err(ask_there(&node)),
            Claim::Won | Claim::Revoked => Seal::NeverStarted,
        };
        Ok(AttemptSealed { seal })
    }

    /// Seals a goal: nothing of it runs here when this is answered, and from then on,
    /// also after a restart, nothing of it starts here.
    pub(crate) async fn seal_goal(&self, ask: &SealGoal) -> Result<GoalSealed, Fault> {
        self.ledger.seal(&ask.goal, self.env.now_ms()).await?;
        let runs = self.runs.of_goal(&ask.goal);
        runs.iter().for_each(|run| run.end(KillWhy::GoalSealed));
        let mut ended = 0;
        for run in runs {
            match run.ended().await.kind {
                EndingKind::Refused => {}
                EndingKind::Over | EndingKind::Killed => ended += 1,
                EndingKind::Lost => return Err(still_dying()),
            }
        }
        Ok(GoalSealed {
            node: self.options.node.clone(),
            ended,
        })
    }

    /// Ends the attempt if it runs; what is known about it if it is over.
    async fn over_here(&self, attempt: &Attempt) -> Result<Option<Seal>, Fault> {
        if let Some(seal) = self.end_running(attempt).await? {
            return Ok(Some(seal));
        }
        let entry = self.ledger.entry(attempt).unwrap_or_else(|fault| {
            tracing::warn!(%fault, "the ledger can't be read");
            None
        });
        Ok(entry.map(|entry| Seal::Ended {
            outcome: entry.outcome,
        }))
    }

    async fn end_running(&self, attempt: &Attempt) -> Result<Option<Seal>, Fault> {
        let Some(run) = self.runs.get(attempt) else {
            return Ok(None);
        };
        run.end(KillWhy::AttemptSealed);
        let ending = run.ended().await;
        match ending.kind {
            EndingKind::Refused => Ok(None),
            EndingKind::Over => Ok(Some(Seal::Ended {
                outcome: ending.reply.ok(),
            })),
            EndingKind::Killed => Ok(Some(Seal::Ended { outcome: None })),
            EndingKind::Lost => Err(still_dying()),
        }
    }

    /// The slot says that this node started it. A call that came through after the first
    /// look, because the mark was forgotten meanwhile (the memory for marks is bounded),
    /// is on the table until its end is in the ledger: a second look finds it. What
    /// neither has is of an earlier life, whose processes were killed at start.
    async fn started_here(&self, attempt: &Attempt) -> Result<Seal, Fault> {
        let found = self.over_here(attempt).await?;
        Ok(found.unwrap_or(Seal::Ended { outcome: None }))
    }
}

fn ask_there(node: &NodeId) -> Fault {
    let message = format!("the attempt was started by node {node}: only its executor can seal it");
    Fault::new(Code::NodeUnreachable, message).at(node.as_str())
}

fn still_dying() -> Fault {
    let message = "a run was dropped and is being killed; ask again";
    Fault::new(Code::NodeUnreachable, message).retry_after_ms(200)
}
