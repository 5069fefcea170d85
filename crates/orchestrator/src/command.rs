//! Commands: what is let out once the records that intend it are confirmed (I3).

use detent_protocol::claim::Claimed;
use detent_protocol::messages::{Observe, PlanRequest, SealAttempt, SealGoal, ToolCall};
use detent_protocol::{GoalId, StepId};
use serde_json::Value;

/// Each command ends in exactly one event, whatever happens to it.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Ask a planner. Ends in `PlanReceived` or `PlanFailed`.
    Plan {
        /// Which.
        provider: String,
        /// What.
        request: Box<PlanRequest>,
    },
    /// Call a tool. Ends in `ToolCompleted`, `ToolFailed` or `ToolSilent`.
    Call {
        /// The call.
        call: Box<ToolCall>,
        /// Wall time of the tool itself, milliseconds.
        timeout_ms: u64,
    },
    /// Seal an attempt. Ends in `AttemptSealed` or `SealFailed`.
    Seal(SealAttempt),
    /// Look at the world. Ends in `Observed`.
    Look {
        /// The step.
        step: StepId,
        /// The attempt.
        attempt: u32,
        /// What to look at, the authority first.
        checks: Vec<Observe>,
    },
    /// Fetch what the result's data lacks. Ends in `ResultFetched`.
    FetchResult {
        /// The goal.
        goal: GoalId,
        /// The data, with markers where something is to be fetched.
        data: Value,
        /// What belongs there.
        claims: Vec<Claimed>,
    },
    /// Seal the goal with every executor. Ends in `GoalSealed`.
    SealGoal(SealGoal),
}
