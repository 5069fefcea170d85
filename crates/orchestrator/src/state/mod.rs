//! The state of a goal: the fold of its journal and nothing else (I10).
//!
//! Folding never fails and never panics: a record that this version does not know, or
//! that does not fit, parks the goal ([`GoalState::parked`]) instead of guessing.

mod fold;
mod forgotten;
mod steps;

use detent_protocol::budget::{Amount, Budget};
use detent_protocol::expect::Evidence;
use detent_protocol::goal::Amendment;
use detent_protocol::json::Digest;
use detent_protocol::messages::Phase;
use detent_protocol::plan::Step;
use detent_protocol::record::{CloseWhy, PlanWhy, Question, SealWhy, WaitWhy};
use detent_protocol::result::GoalResult;
use detent_protocol::tombstone::Tombstone;
use detent_protocol::{AgentName, Fault, GoalId, NodeId, QuestionId, StepId, TenantId, ToolName};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Where a step stands.
#[derive(Debug, Clone, PartialEq)]
pub enum Status {
    /// Not started; its predecessors may not be done.
    Pending,
    /// An attempt ended or was given up, or a wait is over; what follows is said by
    /// the next record of the same transition.
    Between,
    /// Until a time.
    Waiting {
        /// Unix milliseconds.
        until_ms: u64,
        /// For what.
        why: WaitWhy,
    },
    /// An attempt is intended and may run.
    Running,
    /// The attempt is being given up.
    Sealing {
        /// Why.
        why: SealWhy,
    },
    /// The world is being looked at.
    Looking,
    /// A person is asked.
    Asking {
        /// What.
        question: QuestionId,
    },
    /// Ended well.
    Done,
    /// Ended badly; no effect is left open.
    Failed {
        /// Why.
        fault: Fault,
    },
    /// Never started, or stopped before its effect.
    Skipped,
    /// Nobody can say whether its effect happened.
    Unknown {
        /// Why.
        fault: Fault,
    },
}

impl Status {
    /// Has it ended?
    pub fn is_end(&self) -> bool {
        matches!(
            self,
            Status::Done | Status::Failed { .. } | Status::Skipped | Status::Unknown { .. }
        )
    }
    /// Is something outside on its way for it?
    pub fn is_active(&self) -> bool {
        matches!(
            self,
            Status::Running | Status::Sealing { .. } | Status::Looking
        )
    }
}

/// A step of any revision.
#[derive(Debug, Clone, PartialEq)]
pub struct StepState {
    /// As planned.
    pub step: Arc<Step>,
    /// Steps that have to be done first.
    pub needs: Arc<[StepId]>,
    /// Revision of the plan it came with.
    pub revision: u32,
    /// Its place in that plan, from 0.
    pub place: usize,
    /// The goal's input that the plan was made for: what its references mean.
    pub input: Arc<Value>,
    /// Where it stands.
    pub status: Status,
    /// Since when, Unix milliseconds.
    pub since_ms: u64,
    /// Tool in use: its own or a fallback.
    pub tool: ToolName,
    /// A tool before this one was left.
    pub fell_back: bool,
    /// Attempts in all. Numbers of attempts are never reused.
    pub attempts: u32,
    /// Attempts with the tool in use that count against its retries.
    pub tries: u32,
    /// The planned delay is over.
    pub delayed: bool,
    /// Digest of the resolved arguments of the last attempt.
    pub args: Option<Digest>,
    /// Identity of the effect of the last attempt.
    pub identity: Option<Digest>,
    /// Record number of the last attempt's intent: the fencing token.
    pub intent_n: u64,
    /// An attempt may have had its effect, and nothing proves that it had not.
    pub effect_open: bool,
    /// The same before the last attempt.
    open_before: bool,
    /// When the last attempt ended or was sealed; settling counts from here.
    pub ended_at_ms: u64,
    /// Looks at the world since then.
    pub looks: u32,
    /// Output, where it is known.
    pub output: Option<Arc<Value>>,
    /// What was seen.
    pub evidence: Vec<Evidence>,
    /// It used a second-best source.
    pub stale: bool,
    /// The last thing that went wrong.
    pub fault: Option<Fault>,
}

impl StepState {
    fn new(step: &Step, revision: u32, input: Arc<Value>, at_ms: u64) -> Self {
        Self {
            tool: step.tool.clone(),
            needs: step.needs().into_iter().collect(),
            step: Arc::new(step.clone()),
            revision,
            place: 0,
            input,
            status: Status::Pending,
            since_ms: at_ms,
            fell_back: false,
            attempts: 0,
            tries: 0,
            delayed: false,
            args: None,
            identity: None,
            intent_n: 0,
            effect_open: false,
            open_before: false,
            ended_at_ms: 0,
            looks: 0,
            output: None,
            evidence: Vec::new(),
            stale: false,
            fault: None,
        }
    }
}

/// What is known of one effect (I16).
#[derive(Debug, Clone, PartialEq)]
pub struct EffectState {
    /// Step that holds it.
    pub step: StepId,
    /// Digest of the arguments it was intended with.
    pub args: Digest,
    /// Is it there?
    pub is: Presence,
    /// When it was first intended; the world honours an idempotency key from here.
    pub since_ms: u64,
}

/// Is an effect there?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// It may be, or may come.
    Open,
    /// It was seen.
    Present,
    /// It is proven not to be.
    Absent,
}

/// A plan that is being made.
#[derive(Debug, Clone, PartialEq)]
pub struct Planning {
    /// Revision it will have.
    pub revision: u32,
    /// Planner asked.
    pub provider: String,
    /// Since when.
    pub since_ms: u64,
    /// Not before this time, where the planner could not be reached.
    pub wait_until_ms: Option<u64>,
    /// Why it was asked for.
    pub why: PlanWhy,
    /// Reserved for it.
    pub reserved: Amount,
}

/// Why no new step is started although the goal is not closing: a new plan is due.
#[derive(Debug, Clone, PartialEq)]
pub enum Halt {
    /// A step failed.
    StepFailed {
        /// The step.
        step: StepId,
        /// Its fault.
        fault: Fault,
    },
    /// The goal was amended.
    Amended,
}

/// The state of a goal.
#[derive(Debug, Clone, PartialEq)]
pub struct GoalState {
    /// Its tenant.
    pub tenant: TenantId,
    /// The goal.
    pub goal: GoalId,
    /// Number of the last record; 0 before the first.
    pub n: u64,
    /// Epoch of the last owner.
    pub epoch: u64,
    /// The last owner.
    pub owner: Option<NodeId>,
    /// Its agent; set by the first record, like all that follows.
    pub agent: Option<AgentName>,
    /// Definition it is pinned to.
    pub definition: Option<Digest>,
    /// Input as first given.
    pub input: Arc<Value>,
    /// Changes to it.
    pub amendments: Vec<Amendment>,
    /// Input with its amendments.
    pub effective: Arc<Value>,
    /// Digest of the submission.
    pub submission: Option<Digest>,
    /// Idempotency key, if one was given.
    pub key: Option<String>,
    /// When it was accepted, Unix milliseconds.
    pub accepted_at_ms: u64,
    /// Its deadline, Unix milliseconds.
    pub deadline_ms: u64,
    /// Trace id.
    pub trace: Option<String>,
    /// What is told about it is JSON, for it was handed in so.
    pub json: bool,
    /// Its budget.
    pub budget: Budget,
    /// Last revision that was asked for.
    pub revision: u32,
    /// The plan that is being made.
    pub planning: Option<Planning>,
    /// Place of the planner in the agent's list.
    pub provider: usize,
    /// Answers of this planner that were refused, for this revision.
    pub refusals: u32,
    /// Waits for this planner, for this revision.
    pub plan_waits: u32,
    /// What was wrong with the last answer.
    pub violations: Vec<Fault>,
    /// Template of the result.
    pub result: Option<Arc<Value>>,
    /// Steps of all revisions.
    pub steps: BTreeMap<StepId, Arc<StepState>>,
    /// Effects by identity.
    pub effects: BTreeMap<Digest, EffectState>,
    /// New plans after failures.
    pub replans: u32,
    /// How often the same tool failed in the same way with the same arguments.
    pub signatures: BTreeMap<Digest, u32>,
    /// A new plan is due.
    pub halt: Option<Halt>,
    /// Paused by.
    pub paused: Option<String>,
    /// How often it was paused.
    pub pauses: u32,
    /// Open questions.
    pub questions: BTreeMap<QuestionId, Question>,
    /// It is being closed.
    pub closing: Option<CloseWhy>,
    /// Executors that acknowledged the goal's seal, and those that could not.
    pub sealed: Option<(Vec<NodeId>, Vec<NodeId>)>,
    /// Its result.
    pub ended: Option<Arc<GoalResult>>,
    /// What stays of it, once it was forgotten. Of a journal that begins with a tombstone
    /// nothing else is known: no input, no steps, no effects.
    pub forgotten: Option<Arc<Tombstone>>,
    /// Time of the last entry.
    pub at_ms: u64,
    /// Nothing is dispatched any more, because the journal can't be understood.
    pub parked: Option<Fault>,
}

impl GoalState {
    /// A goal of which nothing is known yet.
    pub fn new(tenant: TenantId, goal: GoalId) -> Self {
        Self {
            tenant,
            goal,
            n: 0,
            epoch: 0,
            owner: None,
            agent: None,
            definition: None,
            input: Arc::new(Value::Null),
            amendments: Vec::new(),
            effective: Arc::new(Value::Null),
            submission: None,
            key: None,
            accepted_at_ms: 0,
            deadline_ms: 0,
            trace: None,
            json: false,
            budget: Budget::default(),
            revision: 0,
            planning: None,
            provider: 0,
            refusals: 0,
            plan_waits: 0,
            violations: Vec::new(),
            result: None,
            steps: BTreeMap::new(),
            effects: BTreeMap::new(),
            replans: 0,
            signatures: BTreeMap::new(),
            halt: None,
            paused: None,
            pauses: 0,
            questions: BTreeMap::new(),
            closing: None,
            sealed: None,
            ended: None,
            forgotten: None,
            at_ms: 0,
            parked: None,
        }
    }

    /// Where it stands: derived, never stored.
    pub fn phase(&self) -> Phase {
        if self.ended.is_some() {
            return Phase::Ended;
        }
        if self.planning.is_some() {
            return Phase::Planning;
        }
        let mut looking = false;
        let mut working = false;
        for step in self.steps.values() {
            match step.status {
                Status::Looking => looking = true,
                Status::Running | Status::Sealing { .. } | Status::Asking { .. } => working = true,
                Status::Pending | Status::Between | Status::Waiting { .. } => working = true,
                _ => {}
            }
        }
        match (working, looking) {
            (true, _) => Phase::Executing,
            (false, true) => Phase::Observing,
            (false, false) => Phase::Idle,
        }
    }

    /// All steps in the order in which they were planned.
    pub fn steps_in_order(&self) -> Vec<&StepState> {
        let mut steps: Vec<_> = self.steps.values().map(Arc::as_ref).collect();
        steps.sort_by_key(|s| (s.revision, s.place));
        steps
    }

    /// A step.
    pub fn step(&self, id: &StepId) -> Option<&StepState> {
        self.steps.get(id).map(Arc::as_ref)
    }

    /// Is its result all that is left to be made?
    pub fn awaits_result(&self) -> bool {
        let busy = self.planning.is_some() || self.halt.is_some() || self.paused.is_some();
        let over = self.closing.is_some() || self.ended.is_some() || self.parked.is_some();
        let mut steps = self.steps.values();
        self.result.is_some() && !busy && !over && steps.all(|s| s.status.is_end())
    }

    /// Is anything outside on its way for any step?
    pub fn any_active(&self) -> bool {
        self.steps.values().any(|s| s.status.is_active())
    }
}

/// What makes two failures the same: tool, arguments, code. Never the step's id,
/// which is new in each revision.
pub(crate) fn signature(s: &StepState, fault: &Fault) -> Digest {
    let args = s.args.map_or([0; 32], |d| d.0);
    Digest::of_parts(&[
        s.tool.as_str().as_bytes(),
        &args,
        fault.code.as_str().as_bytes(),
    ])
}
