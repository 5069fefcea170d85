//! What a goal ends with.

use crate::envelope::Message;
use crate::error::{Code, Fault};
use crate::expect::Evidence;
use crate::ids::{AgentName, GoalId, NodeId, StepId, TenantId, ToolName};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The one terminal result of a goal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum GoalResult {
    /// Every step's expectation was observed and the data meets the result contract.
    Succeeded {
        /// Meets the agent's `result_schema`.
        data: Value,
        /// What was seen in the world, step by step.
        evidence: Vec<StepEvidence>,
        /// A step had to use a second-best source.
        #[serde(default)]
        stale: bool,
    },
    /// It could not be reached.
    Failed {
        /// Why.
        error_code: Code,
        /// For people.
        message: String,
        /// What to do next.
        recovery_suggestion: String,
        /// May the same goal succeed later unchanged?
        retryable: bool,
        /// How far each step came.
        steps: Vec<StepReport>,
    },
    /// Somebody cancelled it.
    Cancelled {
        /// What had been done and what was stopped.
        receipt: Receipt,
    },
}

impl GoalResult {
    /// A failure with the code's own suggestion.
    pub fn failed(fault: &Fault, steps: Vec<StepReport>) -> Self {
        GoalResult::Failed {
            error_code: fault.code,
            message: fault.message.clone(),
            recovery_suggestion: fault.code.next().to_owned(),
            retryable: fault.code.retryable(),
            steps,
        }
    }
    /// `succeeded`, `failed` or `cancelled`.
    pub fn status(&self) -> &'static str {
        match self {
            GoalResult::Succeeded { .. } => "succeeded",
            GoalResult::Failed { .. } => "failed",
            GoalResult::Cancelled { .. } => "cancelled",
        }
    }
}

/// Evidence of one step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StepEvidence {
    /// The step.
    pub step: StepId,
    /// The tool that did it.
    pub tool: ToolName,
    /// What was seen.
    pub seen: Vec<Evidence>,
}

/// How a step ended, for a failed or cancelled goal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StepReport {
    /// The step.
    pub step: StepId,
    /// Its tool.
    pub tool: ToolName,
    /// `done`, `failed`, `skipped`, or `unknown` where nobody can say whether the
    /// effect happened.
    pub state: StepState,
    /// Attempts made.
    pub attempts: u32,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
}

/// How a step stands at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StepState {
    /// Ended well and observed.
    Done,
    /// Ended badly; its effect is not there.
    Failed,
    /// Never started, or stopped before its effect.
    Skipped,
    /// Nobody can say whether its effect happened.
    Unknown,
}

/// Receipt of a cancel: after it no process of the goal is alive and none starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Receipt {
    /// Who cancelled.
    pub by: String,
    /// Why.
    pub reason: String,
    /// How each step stands.
    pub steps: Vec<StepReport>,
    /// Executors that confirmed that they hold nothing of the goal and refuse it.
    pub confirmed: Vec<NodeId>,
    /// Executors that could not be reached.
    pub unconfirmed: Vec<NodeId>,
}

/// The result as it is published.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ResultMessage {
    /// Whose goal it was.
    pub tenant: TenantId,
    /// Its agent.
    pub agent: AgentName,
    /// The goal.
    pub goal: GoalId,
    /// The result.
    pub result: GoalResult,
}

impl Message for ResultMessage {
    const KIND: &'static str = "result";
}
