//! Commands: what is let out once the records that intend it are confirmed (I3).

use detent_protocol::StepId;
use detent_protocol::messages::{Observe, PlanRequest, SealAttempt, SealGoal, ToolCall};

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
    /// Seal the goal with every executor. Ends in `GoalSealed`.
    SealGoal(SealGoal),
}
