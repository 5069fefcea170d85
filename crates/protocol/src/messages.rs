//! Messages between the actors, and between a client and a node.
//!
//! Each is a request in an [`crate::envelope`]; the answer is an
//! [`crate::envelope::Reply`]. `detent` writes golden files of every one.

use crate::budget::Amount;
use crate::claim::Claimed;
use crate::effect::Effect;
use crate::envelope::Message;
use crate::error::Fault;
use crate::expect::Observation;
use crate::goal::Amendment;
use crate::ids::{AgentName, GoalId, NodeId, QuestionId, StepId, TenantId, ToolName};
use crate::json::Digest;
use crate::record::{Question, Seal, ToolOutcome};
use crate::result::GoalResult;
use crate::tombstone::Archive;
use serde::{Deserialize, Serialize};
use serde_json::Value;

macro_rules! message {
    ($t:ty, $kind:literal) => {
        impl Message for $t {
            const KIND: &'static str = $kind;
        }
    };
}

/// A tool as a planner sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ToolView {
    /// Name.
    pub name: ToolName,
    /// What it does.
    pub description: String,
    /// Its effect.
    pub effect: Effect,
    /// JSON Schema of its arguments.
    pub input_schema: Value,
}

/// An earlier step as a planner sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StepView {
    /// Its id.
    pub id: StepId,
    /// Its tool.
    pub tool: ToolName,
    /// `done`, `failed`, `skipped`, `unknown`.
    pub state: String,
    /// Output, or a summary `{"pruned_bytes":…}` where it is large, or
    /// `{"claimed_bytes":…, "inline":…, "large":…}` where it is kept as a body. Data,
    /// never instructions.
    pub output: Value,
    /// Why it failed.
    pub fault: Option<Fault>,
}

/// What a planner gets: bounded, the goal with its amendments always in it whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Snapshot {
    /// The agent.
    pub agent: AgentName,
    /// What it is for.
    pub description: String,
    /// The goal's input as first given.
    pub input: Value,
    /// Changes to it since, oldest first.
    pub amendments: Vec<Amendment>,
    /// The input with its amendments.
    pub effective_input: Value,
    /// JSON Schema of the result's data; null for provider `playbook`.
    pub result_schema: Value,
    /// Tools it may plan with; empty for provider `playbook`, which names its own.
    pub tools: Vec<ToolView>,
    /// Steps of earlier revisions.
    pub steps: Vec<StepView>,
    /// What was wrong with the last answer, or what made a new plan necessary.
    pub violations: Vec<Fault>,
    /// The plan template, for provider `playbook` only.
    pub playbook: Option<Value>,
    /// What is left of the budget.
    pub budget_left: Amount,
    /// How many step outputs were cut to summaries.
    pub pruned: u32,
}

/// Asks for a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PlanRequest {
    /// Whose goal.
    pub tenant: TenantId,
    /// The goal.
    pub goal: GoalId,
    /// Revision that the plan will have.
    pub revision: u32,
    /// What the planner needs to know.
    pub snapshot: Snapshot,
    /// Most tokens that the answer may take.
    pub tokens_max: u64,
}
message!(PlanRequest, "plan_request");

/// A planner's answer; not yet believed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PlanAnswer {
    /// The plan as it was said.
    pub plan: Value,
    /// Tokens it cost, in and out.
    pub tokens: u64,
    /// Written by a person, not by a model.
    pub trusted: bool,
}

/// Calls a tool: one attempt of one step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ToolCall {
    /// Whose goal.
    pub tenant: TenantId,
    /// The goal.
    pub goal: GoalId,
    /// The step.
    pub step: StepId,
    /// The attempt, from 1.
    pub attempt: u32,
    /// Epoch of the owner that intends it.
    pub epoch: u64,
    /// The tool.
    pub tool: ToolName,
    /// Version of the tool that the goal is pinned to. The executor runs what its own
    /// registry has under this digest, never what a message says.
    pub tool_digest: Digest,
    /// Arguments, resolved, and checked where nothing is left to be fetched.
    pub args: Value,
    /// Places in the arguments that have to be fetched before they are checked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<Claimed>,
    /// Idempotency key for the world: the effect's identity, never the attempt.
    pub identity: Option<Digest>,
    /// Fencing token for the world: the number of the intent's record.
    pub fencing_token: u64,
    /// It must start within this time, or not at all; milliseconds.
    pub start_within_ms: u64,
}
message!(ToolCall, "tool_call");

/// Seals one attempt: it must not run and must never start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SealAttempt {
    /// Whose goal.
    pub tenant: TenantId,
    /// The goal.
    pub goal: GoalId,
    /// The step.
    pub step: StepId,
    /// The attempt.
    pub attempt: u32,
    /// Epoch of the owner that gives it up.
    pub epoch: u64,
}
message!(SealAttempt, "seal_attempt");

/// Answer to [`SealAttempt`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AttemptSealed {
    /// What was found.
    pub seal: Seal,
}

/// Seals a goal: kill what runs of it, refuse it from now on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SealGoal {
    /// Whose goal.
    pub tenant: TenantId,
    /// The goal.
    pub goal: GoalId,
}
message!(SealGoal, "seal_goal");

/// Answer to [`SealGoal`]: nothing of the goal runs here any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GoalSealed {
    /// The executor's node.
    pub node: NodeId,
    /// Runs that were ended for it.
    pub ended: u32,
}

/// Asks an observer to look.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Observe {
    /// Whose goal.
    pub tenant: TenantId,
    /// The goal.
    pub goal: GoalId,
    /// The step.
    pub step: StepId,
    /// Kind of probe.
    pub probe: String,
    /// Its parameters, resolved.
    pub params: Value,
    /// Places in the parameters that have to be fetched before the look.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<Claimed>,
    /// JSON Schema of "there and right".
    pub schema: Value,
    /// JSON Schema of "proven absent", if that can be proven.
    pub absent: Option<Value>,
    /// Where the tool's output stands in what is seen.
    pub output_at: Option<String>,
}
message!(Observe, "observe");

/// A control message to a goal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Control {
    /// Whose goal.
    pub tenant: TenantId,
    /// The goal.
    pub goal: GoalId,
    /// Who sends it; at most 256 bytes.
    #[cfg_attr(feature = "schema", schemars(length(max = 256)))]
    pub by: String,
    /// What is to be done.
    pub verb: Verb,
}
message!(Control, "control");

/// What a control message wants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "verb", rename_all = "snake_case")]
pub enum Verb {
    /// Stop it and say what was done.
    Cancel {
        /// Why; at most 256 bytes.
        #[cfg_attr(feature = "schema", schemars(length(max = 256)))]
        reason: String,
    },
    /// Change its input (JSON merge patch).
    Amend {
        /// The patch.
        patch: Value,
    },
    /// Answer a question.
    Answer {
        /// The question.
        question: QuestionId,
        /// One of its choices.
        #[cfg_attr(feature = "schema", schemars(length(max = 256)))]
        choice: String,
    },
    /// Start nothing new.
    Pause,
    /// Go on.
    Resume,
}

/// The control message is in the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Controlled {
    /// How the goal stands after it.
    pub phase: Phase,
}

/// Something that was handed in without waiting for an answer was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Refused {
    /// Whose.
    pub tenant: TenantId,
    /// The goal's idempotency key, or the goal that a control message named.
    pub name: String,
    /// Why.
    pub fault: Fault,
}
message!(Refused, "refused");

/// Something that an operator should look at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Alert {
    /// The node that says so.
    pub node: NodeId,
    /// Kind, as in the metric `detent_alerts`.
    pub kind: String,
    /// For people.
    pub text: String,
    /// When, Unix milliseconds.
    pub at_ms: u64,
}
message!(Alert, "alert");

/// A question about goals.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Query {
    /// Whose goals.
    pub tenant: TenantId,
    /// What is asked.
    pub ask: Ask,
}
message!(Query, "query");

/// What a query asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum Ask {
    /// Goals in the order of their ids, a page at a time.
    List {
        /// Only those that have not ended.
        open_only: bool,
        /// After this one.
        after: Option<GoalId>,
        /// At most this many, 1 to 1,000.
        limit: u32,
    },
    /// One goal as it stands.
    Show {
        /// The goal.
        goal: GoalId,
    },
    /// A goal's journal, as it lies on disk.
    Export {
        /// The goal.
        goal: GoalId,
        /// From this entry on, from 1; answers hold at most 512 KiB.
        from: u64,
    },
    /// A goal's events from number `from`; waits for one where there is none yet.
    Events {
        /// The goal.
        goal: GoalId,
        /// First number wanted, from 1.
        from: u64,
        /// Longest wait, milliseconds, at most 30,000.
        wait_ms: u64,
    },
}

/// Answer to a query.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Answer {
    /// To `List`.
    Goals {
        /// A page.
        goals: Vec<GoalLine>,
    },
    /// To `Show`.
    Goal {
        /// The goal.
        goal: Box<GoalView>,
    },
    /// To `Export`.
    Entries {
        /// Entries, oldest first; empty at the end.
        #[cfg_attr(feature = "schema", schemars(with = "Vec<Vec<u8>>"))]
        entries: Vec<serde_bytes::ByteBuf>,
    },
    /// To `Events`.
    Events {
        /// Events, numbered without gaps.
        events: Vec<GoalEvent>,
        /// No more will come.
        ended: bool,
    },
}

/// The four states of a goal, and the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Phase {
    /// Nothing to do right now.
    Idle,
    /// A plan is being made.
    Planning,
    /// Steps run or wait to run.
    Executing,
    /// Nothing runs; the world is being looked at.
    Observing,
    /// It has its result.
    Ended,
}

/// What a goal waits for (invariant I15).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WaitingFor {
    /// For what, e.g. `tool`, `plan`, `observation`, `delay`, `answer`, `resume`.
    pub what: String,
    /// The step, where it is one's.
    pub step: Option<StepId>,
    /// Since when, Unix milliseconds.
    pub since_ms: u64,
    /// Until when at the latest, Unix milliseconds.
    pub until_ms: u64,
}

/// A line of the list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GoalLine {
    /// The goal.
    pub goal: GoalId,
    /// Its agent.
    pub agent: AgentName,
    /// Its state.
    pub phase: Phase,
    /// `succeeded`, `failed`, `cancelled` once it has ended.
    pub status: Option<String>,
    /// Taken at, Unix milliseconds.
    pub accepted_at_ms: u64,
    /// Steps that ended well, and all.
    pub steps_done: u32,
    /// Steps of all revisions.
    pub steps: u32,
    /// It was forgotten: its result stays, its entries are in an archive for a time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub archived: bool,
}

/// A goal as it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GoalView {
    /// The summary.
    pub line: GoalLine,
    /// The input with its amendments.
    pub input: Value,
    /// Epoch and owner.
    pub epoch: u64,
    /// The owner's node.
    pub owner: Option<NodeId>,
    /// Deadline, Unix milliseconds.
    pub deadline_ms: u64,
    /// What it waits for.
    pub waiting: Vec<WaitingFor>,
    /// Open questions.
    pub questions: Vec<Question>,
    /// Its steps.
    pub steps: Vec<StepView>,
    /// The result, once it has ended.
    pub result: Option<GoalResult>,
    /// Why nothing is dispatched any more, where the goal is parked.
    pub parked: Option<Fault>,
    /// Where its entries are, once it was forgotten; of its input and its steps only the
    /// counts are left then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archive: Option<Archive>,
}

/// A transition of a goal, as followers see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GoalEvent {
    /// The goal.
    pub goal: GoalId,
    /// Number of the record, from 1, without gaps.
    pub n: u64,
    /// When, Unix milliseconds.
    pub at_ms: u64,
    /// Kind of the record.
    pub kind: String,
    /// State after it.
    pub phase: Phase,
    /// The step it is about.
    pub step: Option<StepId>,
    /// A sentence for people.
    pub text: String,
    /// Details for programs.
    pub detail: Value,
}
message!(GoalEvent, "event");

/// Answer of an executor to a [`ToolCall`].
pub type ToolAnswer = ToolOutcome;
/// Answer of an observer to an [`Observe`].
pub type Seen = Observation;
