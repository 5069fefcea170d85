//! Events: what can happen to a goal.

use detent_protocol::budget::Limits;
use detent_protocol::expect::{Observation, Verdict};
use detent_protocol::json::Digest;
use detent_protocol::messages::PlanAnswer;
use detent_protocol::record::{RunFacts, Seal};
use detent_protocol::{AgentName, Fault, NodeId, QuestionId, StepId};
use serde_json::Value;

/// What a new goal starts with.
#[derive(Debug, Clone, PartialEq)]
pub struct NewGoal {
    /// Its agent.
    pub agent: AgentName,
    /// Definition it is pinned to.
    pub definition: Digest,
    /// Input; the contract was checked.
    pub input: Value,
    /// Digest of the submission.
    pub submission: Digest,
    /// Idempotency key.
    pub key: Option<String>,
    /// Deadline from now, milliseconds.
    pub deadline_ms: u64,
    /// Budget.
    pub limits: Limits,
    /// Trace id.
    pub trace: Option<String>,
    /// It was handed in as JSON.
    pub json: bool,
}

/// What can happen to a goal. The shell makes exactly one of these out of each
/// answer, failure or silence that a command meets.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// ON_NEW_GOAL.
    NewGoal(Box<NewGoal>),
    /// ON_PLAN_RECEIVED.
    PlanReceived {
        /// Revision it was asked for.
        revision: u32,
        /// The answer, not yet believed.
        answer: PlanAnswer,
    },
    /// The planner failed.
    PlanFailed {
        /// Revision it was asked for.
        revision: u32,
        /// Why.
        fault: Fault,
    },
    /// ON_TOOL_COMPLETED.
    ToolCompleted {
        /// The step.
        step: StepId,
        /// The attempt.
        attempt: u32,
        /// Its output.
        output: Value,
        /// What it cost.
        run: RunFacts,
    },
    /// The tool failed.
    ToolFailed {
        /// The step.
        step: StepId,
        /// The attempt.
        attempt: u32,
        /// Why.
        fault: Fault,
        /// Did it start?
        started: bool,
        /// What it cost.
        run: RunFacts,
    },
    /// No clear answer about an attempt within its time.
    ToolSilent {
        /// The step.
        step: StepId,
        /// The attempt.
        attempt: u32,
    },
    /// An attempt is sealed.
    AttemptSealed {
        /// The step.
        step: StepId,
        /// The attempt.
        attempt: u32,
        /// What was found.
        seal: Seal,
    },
    /// An attempt could not be sealed, after several tries.
    SealFailed {
        /// The step.
        step: StepId,
        /// The attempt.
        attempt: u32,
        /// Why.
        fault: Fault,
    },
    /// ON_OBSERVATION_VALIDATED and its failing twin: the world was looked at.
    Observed {
        /// The step.
        step: StepId,
        /// The attempt.
        attempt: u32,
        /// What was seen, one for each expectation, the authority's first.
        observations: Vec<Observation>,
    },
    /// Time passed: a wait, a question or the deadline may be due.
    TimeCame,
    /// A person or program wants it stopped.
    Cancel {
        /// Who.
        by: String,
        /// Why.
        reason: String,
    },
    /// A person or program changes it.
    Amend {
        /// JSON merge patch.
        patch: Value,
        /// Who.
        by: String,
    },
    /// A person answers a question.
    Answer {
        /// The question.
        question: QuestionId,
        /// The choice.
        choice: String,
        /// Who.
        by: String,
    },
    /// Start nothing new.
    Pause {
        /// Who.
        by: String,
    },
    /// Go on.
    Resume {
        /// Who.
        by: String,
    },
    /// This node has taken the goal over.
    OwnerChanged {
        /// The node.
        node: NodeId,
    },
    /// What was decided can't be journaled, now or later: it is too large.
    AppendRefused {
        /// Why.
        fault: Fault,
    },
    /// What the result's data lacked was fetched, or could not be.
    ResultFetched {
        /// Digest of the data as it was asked for.
        of: Digest,
        /// The data, whole.
        data: Result<Value, Fault>,
    },
    /// Executors acknowledged the goal's seal.
    GoalSealed {
        /// These did.
        confirmed: Vec<NodeId>,
        /// These could not be reached.
        unconfirmed: Vec<NodeId>,
    },
}

impl Event {
    /// The event's name in the journal, the audit log and the table.
    pub fn name(&self) -> &'static str {
        match self {
            Event::NewGoal(_) => "new_goal",
            Event::PlanReceived { .. } => "plan_received",
            Event::PlanFailed { .. } => "plan_failed",
            Event::ToolCompleted { .. } => "tool_completed",
            Event::ToolFailed { .. } => "tool_failed",
            Event::ToolSilent { .. } => "tool_silent",
            Event::AttemptSealed { .. } => "attempt_sealed",
            Event::SealFailed { .. } => "seal_failed",
            Event::Observed { observations, .. } => {
                let met = |o: &Observation| o.verdict == Verdict::Met;
                if !observations.is_empty() && observations.iter().all(met) {
                    "observation_validated"
                } else {
                    "observation_rejected"
                }
            }
            Event::TimeCame => "time_came",
            Event::Cancel { .. } => "cancel",
            Event::Amend { .. } => "amend",
            Event::Answer { .. } => "answer",
            Event::Pause { .. } => "pause",
            Event::Resume { .. } => "resume",
            Event::OwnerChanged { .. } => "owner_changed",
            Event::AppendRefused { .. } => "append_refused",
            Event::ResultFetched { .. } => "result_fetched",
            Event::GoalSealed { .. } => "goal_sealed",
        }
    }
}
