//! Journal records: everything that ever happened to a goal.
//!
//! State is the fold of these and nothing else, so a record holds all that a later
//! decision needs. Records are facts in the past tense; they are never changed. A
//! reader keeps a record of a kind it does not know and parks the goal.

use crate::budget::{Amount, Limits};
use crate::error::Fault;
use crate::expect::Observation;
use crate::ids::{AgentName, NodeId, QuestionId, StepId, ToolName};
use crate::json::Digest;
use crate::plan::Plan;
use crate::result::GoalResult;
use crate::tombstone::Tombstone;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How an attempt of a tool ended, as its executor tells it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ToolOutcome {
    /// It ended well, and its output meets its schema. No proof of the effect.
    Done {
        /// Output.
        output: Value,
        /// What it cost and how it was confined.
        run: RunFacts,
    },
    /// It failed.
    Failed {
        /// Why.
        fault: Fault,
        /// Did the child start? If not, there is no effect.
        started: bool,
        /// What it cost and how it was confined.
        run: RunFacts,
    },
}

/// Facts about one run of a tool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct RunFacts {
    /// Wall time, milliseconds.
    pub wall_ms: u64,
    /// User and system time of the whole tree, milliseconds.
    pub cpu_ms: u64,
    /// Peak resident memory of the largest process, bytes.
    pub memory_bytes_max: u64,
    /// Level of the sandbox, e.g. `tree`; empty for in-process tools.
    pub sandbox: String,
    /// Confinements that this machine or version does not give.
    pub sandbox_missing: Vec<String>,
    /// Node that ran it.
    pub node: String,
}

/// Why an attempt is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SealWhy {
    /// A new owner can't know what the old one started.
    Takeover,
    /// No answer within the attempt's time.
    Timeout,
    /// The goal is cancelled or past its deadline.
    Closing,
}

/// What sealing an attempt found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Seal {
    /// The slot was won with `revoked`: the attempt never started and never will.
    NeverStarted,
    /// It had started; its process tree has ended now.
    Ended {
        /// Its outcome, where the executor's ledger has it.
        outcome: Option<ToolOutcome>,
    },
}

/// Why a plan is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanWhy {
    /// The first plan.
    NewGoal,
    /// The last answer was refused.
    Again,
    /// The planner could not be reached; tried again after a wait.
    Unavailable,
    /// A step failed.
    StepFailed {
        /// The step.
        step: StepId,
        /// Its fault.
        fault: Fault,
    },
    /// The goal was amended.
    Amended,
    /// The owner changed while the plan was being made.
    Takeover,
}

/// What to do after a plan was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanNext {
    /// Ask the same planner again, now, with the violation.
    AskAgain,
    /// Ask the same planner again later.
    Wait {
        /// When, Unix milliseconds.
        until_ms: u64,
    },
    /// Ask the next planner in the list.
    NextProvider,
    /// Give up.
    GiveUp,
}

/// Why a step waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitWhy {
    /// The plan's relative delay.
    Delay,
    /// Before the next attempt.
    Backoff,
    /// For what was sent to settle, before the next look.
    Settle,
    /// The probe could not look; before the next look.
    Probe,
}

/// How a step ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepEnd {
    /// Well.
    Done {
        /// It used a second-best source.
        stale: bool,
    },
    /// Badly.
    Failed {
        /// Why.
        fault: Fault,
    },
    /// It was not needed or not allowed any more.
    Skipped,
    /// Nobody can say whether its effect happened, and nobody will be asked.
    Unknown {
        /// Why.
        fault: Fault,
    },
}

/// A question to a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Question {
    /// Its id.
    pub id: QuestionId,
    /// The step it is about.
    pub step: StepId,
    /// What is asked.
    pub what: String,
    /// Answers that are taken.
    pub choices: Vec<String>,
    /// Digest of the arguments it is about: an answer is bound to it.
    pub digest: Digest,
    /// When the question lapses, Unix milliseconds.
    pub until_ms: u64,
}

/// Answer: the effect happened.
pub const CHOICE_HAPPENED: &str = "it-happened";
/// Answer: the effect did not happen.
pub const CHOICE_ABSENT: &str = "it-did-not-happen";
/// Answer: leave it and fail the step.
pub const CHOICE_FAIL: &str = "fail";

/// Why a goal is being closed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CloseWhy {
    /// It can't be reached any more.
    Failed {
        /// Why.
        fault: Fault,
    },
    /// Its deadline passed.
    Deadline,
    /// Somebody cancelled it.
    Cancelled {
        /// Who.
        by: String,
        /// Why.
        reason: String,
    },
}

macro_rules! bodies {
    ($($(#[$doc:meta])* $variant:ident = $kind:literal $body:tt)*) => {
        /// What a record says. The text is its name in the journal.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(tag = "kind", content = "body", rename_all = "snake_case")]
        pub enum Body {
            $($(#[$doc])* #[serde(rename = $kind)] $variant $body,)*
        }
        impl Body {
            /// Name of the kind in the journal.
            pub fn kind(&self) -> &'static str {
                match self { $(Body::$variant { .. } => $kind,)* }
            }
            /// All kinds that this version knows.
            pub const KINDS: &'static [&'static str] = &[$($kind,)*];
        }
    };
}

bodies! {
    /// The goal was taken: always the first record.
    Accepted = "accepted" {
        /// Its agent.
        agent: AgentName,
        /// Definition it is pinned to.
        definition: Digest,
        /// The input as given.
        input: Value,
        /// Digest of the submission, for repeated keys.
        submission: Digest,
        /// Idempotency key, if one was given.
        key: Option<String>,
        /// Deadline, Unix milliseconds.
        deadline_ms: u64,
        /// Budget.
        limits: Limits,
        /// Trace id.
        trace: Option<String>,
        /// It was handed in as JSON; what is told about it is JSON too.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        json: bool,
    }
    /// A node owns it from here on; the epoch is the entry's.
    Owned = "owned" {
        /// The node.
        node: NodeId,
    }
    /// A plan was asked for; its cost is reserved.
    PlanRequested = "plan_requested" {
        /// Revision that the plan will have, from 1.
        revision: u32,
        /// Planner asked.
        provider: String,
        /// Why.
        why: PlanWhy,
        /// What is reserved for it.
        reserve: Amount,
    }
    /// A plan was taken.
    Planned = "planned" {
        /// Its revision.
        revision: u32,
        /// The plan.
        plan: Plan,
        /// What it really cost.
        used: Amount,
    }
    /// A plan was not got, or refused.
    PlanRefused = "plan_refused" {
        /// Its revision.
        revision: u32,
        /// Each thing that is wrong with it.
        faults: Vec<Fault>,
        /// What it really cost.
        used: Amount,
        /// What follows.
        next: PlanNext,
    }
    /// An attempt will be made. Its number `n` in the journal is the fencing token.
    Intended = "intended" {
        /// The step.
        step: StepId,
        /// Number of the attempt in this step, from 1, over all tools.
        attempt: u32,
        /// Tool: the step's own or a fallback.
        tool: ToolName,
        /// Digest of the resolved arguments.
        args: Digest,
        /// Identity of the effect, where the tool has one.
        identity: Option<Digest>,
        /// What is reserved for it.
        reserve: Amount,
    }
    /// The step's effect is that of another step: nothing is run.
    Bound = "bound" {
        /// The step.
        step: StepId,
        /// The step whose effect it is.
        to: StepId,
        /// The identity they share.
        identity: Digest,
    }
    /// An effect that an earlier step left open is this step's from here on: it is
    /// looked for before any attempt.
    Inherited = "inherited" {
        /// The step.
        step: StepId,
        /// The step that left it open.
        from: StepId,
        /// Its identity.
        identity: Digest,
        /// Digest of the arguments.
        args: Digest,
    }
    /// The executor told how an attempt ended.
    Outcome = "outcome" {
        /// The step.
        step: StepId,
        /// The attempt.
        attempt: u32,
        /// How it ended.
        outcome: ToolOutcome,
    }
    /// An attempt is being given up.
    Sealing = "sealing" {
        /// The step.
        step: StepId,
        /// The attempt.
        attempt: u32,
        /// Why.
        why: SealWhy,
    }
    /// An attempt is sealed: it does not run and will not start.
    Sealed = "sealed" {
        /// The step.
        step: StepId,
        /// The attempt.
        attempt: u32,
        /// What was found.
        seal: Seal,
    }
    /// The world is being looked at.
    Looking = "looking" {
        /// The step.
        step: StepId,
        /// The attempt; 0 before any, where an earlier step's effect is looked for.
        attempt: u32,
    }
    /// The world was looked at.
    Observed = "observed" {
        /// The step.
        step: StepId,
        /// The attempt.
        attempt: u32,
        /// What was seen, one for each expectation.
        observations: Vec<Observation>,
        /// The effect is proven absent: nothing there, and nothing on its way.
        proven_absent: bool,
    }
    /// A step waits until a time.
    Waiting = "waiting" {
        /// The step.
        step: StepId,
        /// Until when, Unix milliseconds.
        until_ms: u64,
        /// For what.
        why: WaitWhy,
    }
    /// A step's fallback is used from here on.
    FellBack = "fell_back" {
        /// The step.
        step: StepId,
        /// The fallback.
        tool: ToolName,
        /// Why the tool before it was left.
        fault: Fault,
    }
    /// A step ended.
    StepEnded = "step_ended" {
        /// The step.
        step: StepId,
        /// How.
        end: StepEnd,
    }
    /// A person is asked.
    Asked = "asked" {
        /// The question.
        question: Question,
    }
    /// A person answered, or the question lapsed (no choice).
    Answered = "answered" {
        /// The question.
        question: QuestionId,
        /// The choice.
        choice: Option<String>,
        /// Who.
        by: String,
    }
    /// The goal was changed.
    Amended = "amended" {
        /// JSON merge patch on the input.
        patch: Value,
        /// Who.
        by: String,
    }
    /// Nothing new is started until it is resumed.
    Paused = "paused" {
        /// Who.
        by: String,
    }
    /// It goes on.
    Resumed = "resumed" {
        /// Who.
        by: String,
    }
    /// No new work is started; what runs is brought to its end.
    Closing = "closing" {
        /// Why.
        why: CloseWhy,
    }
    /// Executors refuse the goal from here on.
    GoalSealed = "goal_sealed" {
        /// Executors that acknowledged.
        confirmed: Vec<NodeId>,
        /// Executors that could not be reached.
        unconfirmed: Vec<NodeId>,
    }
    /// The end: always the last record, until the goal is forgotten.
    Ended = "ended" {
        /// The result.
        result: GoalResult,
    }
    /// The goal was forgotten: this record stands for all before it, alone in a journal
    /// or after the end.
    Forgotten = "forgotten" {
        /// What stays of it.
        goal: Box<Tombstone>,
    }
}

/// One record with its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Number in the goal's journal, from 1, without gaps.
    pub n: u64,
    /// Name of the event that caused it.
    pub cause: String,
    /// What it says.
    pub said: Said,
}

/// A body that this version knows, or the bytes of one that it does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// Known.
    Known(Body),
    /// Of a newer version; kept as it is.
    Unknown {
        /// Its kind.
        kind: String,
        /// Its msgpack.
        raw: Vec<u8>,
    },
}
