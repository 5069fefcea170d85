//! The state of a goal: the fold of its journal and nothing else (I10).
//!
//! Folding never fails and never panics: a record that this version does not know, or
//! that does not fit, parks the goal ([`GoalState::parked`]) instead of guessing.

use detent_protocol::budget::{Amount, Budget};
use detent_protocol::expect::{Evidence, Verdict};
use detent_protocol::goal::{Amendment, merge_patch};
use detent_protocol::journal::Entry;
use detent_protocol::json::Digest;
use detent_protocol::messages::Phase;
use detent_protocol::plan::{Plan, Step};
use detent_protocol::record::{
    Body, CHOICE_ABSENT, CloseWhy, PlanNext, PlanWhy, Question, Record, Said, Seal, SealWhy,
    StepEnd, ToolOutcome, WaitWhy,
};
use detent_protocol::result::GoalResult;
use detent_protocol::{
    AgentName, Code, Fault, GoalId, NodeId, QuestionId, StepId, TenantId, ToolName,
};
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
    /// When it was accepted, Unix milliseconds.
    pub accepted_at_ms: u64,
    /// Its deadline, Unix milliseconds.
    pub deadline_ms: u64,
    /// Trace id.
    pub trace: Option<String>,
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
    /// Open questions.
    pub questions: BTreeMap<QuestionId, Question>,
    /// It is being closed.
    pub closing: Option<CloseWhy>,
    /// Executors that acknowledged the goal's seal, and those that could not.
    pub sealed: Option<(Vec<NodeId>, Vec<NodeId>)>,
    /// Its result.
    pub ended: Option<Arc<GoalResult>>,
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
            accepted_at_ms: 0,
            deadline_ms: 0,
            trace: None,
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
            questions: BTreeMap::new(),
            closing: None,
            sealed: None,
            ended: None,
            at_ms: 0,
            parked: None,
        }
    }

    /// Folds one entry.
    pub fn fold_entry(&mut self, entry: &Entry) {
        for record in &entry.records {
            self.fold(entry.epoch, entry.at_ms, record);
        }
    }

    /// Folds one record, written by the owner of `epoch` at `at_ms`.
    pub fn fold(&mut self, epoch: u64, at_ms: u64, record: &Record) {
        if self.parked.is_some() {
            return;
        }
        if record.n != self.n + 1 || epoch < self.epoch || self.ended.is_some() {
            self.park(format!(
                "record {} of epoch {epoch} does not follow record {} of epoch {}",
                record.n, self.n, self.epoch
            ));
            return;
        }
        // Clocks of two owners may disagree; the goal's time does not run backwards.
        let at_ms = at_ms.max(self.at_ms);
        self.n = record.n;
        self.epoch = epoch;
        self.at_ms = at_ms;
        match &record.said {
            Said::Known(body) => {
                if self.apply(at_ms, body).is_none() {
                    self.park(format!(
                        "record {} ({}) does not fit",
                        record.n,
                        body.kind()
                    ));
                }
            }
            Said::Unknown { kind, .. } => {
                self.park(format!("record {} is of unknown kind {kind:?}", record.n));
            }
        }
    }

    fn park(&mut self, message: String) {
        self.parked = Some(Fault::new(Code::JournalUnreadable, message));
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

    /// A step.
    pub fn step(&self, id: &StepId) -> Option<&StepState> {
        self.steps.get(id).map(Arc::as_ref)
    }

    /// Is anything outside on its way for any step?
    pub fn any_active(&self) -> bool {
        self.steps.values().any(|s| s.status.is_active())
    }

    /// Applies a record; `None` means that it does not fit.
    fn apply(&mut self, at_ms: u64, body: &Body) -> Option<()> {
        if self.agent.is_none() != matches!(body, Body::Accepted { .. }) {
            return None;
        }
        match body {
            Body::Accepted { .. } => self.apply_accepted(at_ms, body),
            Body::Owned { node } => {
                self.owner = Some(node.clone());
                Some(())
            }
            Body::PlanRequested { .. } | Body::Planned { .. } | Body::PlanRefused { .. } => {
                self.apply_planning(at_ms, body)
            }
            Body::Intended { .. } => self.apply_intended(at_ms, body),
            Body::Bound { step, to, identity } => self.apply_bound(at_ms, step, to, identity),
            Body::Inherited {
                step,
                identity,
                args,
                ..
            } => {
                let s = self.open_step(at_ms, step)?;
                s.identity = Some(*identity);
                s.args = Some(*args);
                s.effect_open = true;
                s.open_before = true;
                s.ended_at_ms = at_ms;
                s.status = Status::Between;
                if let Some(effect) = self.effects.get_mut(identity) {
                    effect.step = step.clone();
                    effect.is = Presence::Open;
                }
                Some(())
            }
            Body::Outcome {
                step,
                attempt,
                outcome,
            } => self.apply_outcome(at_ms, step, *attempt, outcome),
            Body::Sealing { step, attempt, why } => {
                let s = self.at_attempt(at_ms, step, *attempt)?;
                s.status = Status::Sealing { why: *why };
                Some(())
            }
            Body::Sealed {
                step,
                attempt,
                seal,
            } => self.apply_sealed(at_ms, step, *attempt, seal),
            Body::Looking { step, attempt } => {
                let s = self.at_attempt(at_ms, step, *attempt)?;
                s.status = Status::Looking;
                Some(())
            }
            Body::Observed { .. } => self.apply_observed(at_ms, body),
            Body::Waiting {
                step,
                until_ms,
                why,
            } => {
                let s = self.open_step(at_ms, step)?;
                s.delayed |= *why == WaitWhy::Delay;
                s.status = Status::Waiting {
                    until_ms: *until_ms,
                    why: *why,
                };
                Some(())
            }
            Body::FellBack { step, tool, fault } => {
                let s = self.open_step(at_ms, step)?;
                s.tool = tool.clone();
                s.fell_back = true;
                s.tries = 0;
                s.fault = Some(fault.clone());
                s.status = Status::Pending;
                Some(())
            }
            Body::StepEnded { step, end } => self.apply_step_ended(at_ms, step, end),
            Body::Asked { question } => {
                let s = self.open_step(at_ms, &question.step)?;
                s.status = Status::Asking {
                    question: question.id.clone(),
                };
                self.questions.insert(question.id.clone(), question.clone());
                Some(())
            }
            Body::Answered {
                question, choice, ..
            } => self.apply_answered(at_ms, question, choice.as_deref()),
            Body::Amended { patch, by } => {
                let effective = Arc::make_mut(&mut self.effective);
                merge_patch(effective, patch);
                self.amendments.push(Amendment {
                    patch: patch.clone(),
                    by: by.clone(),
                });
                self.halt = Some(Halt::Amended);
                self.planning = None;
                Some(())
            }
            Body::Paused { by } => {
                self.paused = Some(by.clone());
                Some(())
            }
            Body::Resumed { .. } => {
                self.paused = None;
                Some(())
            }
            Body::Closing { why } => {
                self.closing = Some(why.clone());
                self.planning = None;
                self.halt = None;
                Some(())
            }
            Body::GoalSealed {
                confirmed,
                unconfirmed,
            } => {
                self.sealed = Some((confirmed.clone(), unconfirmed.clone()));
                Some(())
            }
            Body::Ended { result } => {
                self.ended = Some(Arc::new(result.clone()));
                Some(())
            }
        }
    }

    fn apply_accepted(&mut self, at_ms: u64, body: &Body) -> Option<()> {
        let Body::Accepted {
            agent,
            definition,
            input,
            submission,
            deadline_ms,
            limits,
            trace,
            ..
        } = body
        else {
            return None;
        };
        self.agent = Some(agent.clone());
        self.definition = Some(*definition);
        self.input = Arc::new(input.clone());
        self.effective = self.input.clone();
        self.submission = Some(*submission);
        self.accepted_at_ms = at_ms;
        self.deadline_ms = *deadline_ms;
        self.budget.limits = *limits;
        self.trace = trace.clone();
        Some(())
    }

    fn apply_planning(&mut self, at_ms: u64, body: &Body) -> Option<()> {
        match body {
            Body::PlanRequested {
                revision,
                provider,
                why,
                reserve,
            } => {
                if *revision > self.revision {
                    self.start_revision(*revision, why);
                }
                self.budget.reserve(*reserve);
                self.planning = Some(Planning {
                    revision: *revision,
                    provider: provider.clone(),
                    since_ms: at_ms,
                    wait_until_ms: None,
                    why: why.clone(),
                    reserved: *reserve,
                });
                Some(())
            }
            Body::Planned {
                revision,
                plan,
                used,
            } => {
                self.end_planning(*revision, *used)?;
                self.take_plan(at_ms, *revision, plan)
            }
            Body::PlanRefused {
                revision,
                faults,
                used,
                next,
            } => {
                let planning = self.end_planning(*revision, *used)?;
                self.violations = faults.clone();
                match next {
                    PlanNext::AskAgain => self.refusals += 1,
                    PlanNext::Wait { until_ms } => {
                        self.plan_waits += 1;
                        self.planning = Some(Planning {
                            wait_until_ms: Some(*until_ms),
                            since_ms: at_ms,
                            reserved: Amount::default(),
                            ..planning
                        });
                    }
                    PlanNext::NextProvider => {
                        self.provider += 1;
                        self.refusals = 0;
                        self.plan_waits = 0;
                    }
                    PlanNext::GiveUp => {}
                }
                Some(())
            }
            _ => None,
        }
    }

    fn start_revision(&mut self, revision: u32, why: &PlanWhy) {
        self.revision = revision;
        self.provider = 0;
        self.refusals = 0;
        self.plan_waits = 0;
        self.violations.clear();
        self.halt = None;
        if let PlanWhy::StepFailed { fault, .. } = why {
            self.replans += 1;
            self.violations.push(fault.clone());
        }
    }

    fn end_planning(&mut self, revision: u32, used: Amount) -> Option<Planning> {
        let planning = self.planning.take()?;
        self.budget.settle(planning.reserved, used);
        (planning.revision == revision).then_some(planning)
    }

    fn take_plan(&mut self, at_ms: u64, revision: u32, plan: &Plan) -> Option<()> {
        for step in &plan.steps {
            let state = StepState::new(step, revision, self.effective.clone(), at_ms);
            let state = Arc::new(state);
            if self.steps.insert(step.id.clone(), state).is_some() {
                return None;
            }
        }
        self.result = Some(Arc::new(plan.result.clone()));
        self.violations.clear();
        Some(())
    }

    /// A step that has not ended, for a change of its status at `at_ms`.
    fn open_step(&mut self, at_ms: u64, id: &StepId) -> Option<&mut StepState> {
        let s = Arc::make_mut(self.steps.get_mut(id)?);
        if s.status.is_end() {
            return None;
        }
        s.since_ms = at_ms;
        Some(s)
    }

    /// The same, and `attempt` is its last one.
    fn at_attempt(&mut self, at_ms: u64, id: &StepId, attempt: u32) -> Option<&mut StepState> {
        let s = self.open_step(at_ms, id)?;
        (s.attempts == attempt).then_some(s)
    }

    fn apply_intended(&mut self, at_ms: u64, body: &Body) -> Option<()> {
        let Body::Intended {
            step,
            attempt,
            tool,
            args,
            identity,
            reserve,
        } = body
        else {
            return None;
        };
        let n = self.n;
        self.budget.reserve(*reserve);
        let known = identity.and_then(|i| self.effects.get(&i));
        let known = known.filter(|e| e.is != Presence::Absent).cloned();
        let s = self.open_step(at_ms, step)?;
        if *attempt != s.attempts + 1 || s.tool != *tool {
            return None;
        }
        s.attempts = *attempt;
        s.tries += 1;
        s.looks = 0;
        s.args = Some(*args);
        s.identity = *identity;
        s.intent_n = n;
        // An earlier step's effect that is not proven absent stays open even when this
        // attempt never starts.
        s.open_before = s.effect_open || known.is_some();
        s.effect_open |= identity.is_some();
        s.output = None;
        s.evidence.clear();
        s.status = Status::Running;
        if let Some(identity) = identity {
            let effect = EffectState {
                step: step.clone(),
                args: *args,
                is: Presence::Open,
                since_ms: known.map_or(at_ms, |e| e.since_ms),
            };
            self.effects.insert(*identity, effect);
        }
        Some(())
    }

    fn apply_bound(
        &mut self,
        at_ms: u64,
        step: &StepId,
        to: &StepId,
        identity: &Digest,
    ) -> Option<()> {
        let other = self.steps.get(to)?.clone();
        let s = self.open_step(at_ms, step)?;
        s.output = other.output.clone();
        s.evidence = other.evidence.clone();
        s.stale = other.stale;
        s.identity = Some(*identity);
        s.args = other.args;
        s.status = Status::Between;
        Some(())
    }

    fn apply_outcome(
        &mut self,
        at_ms: u64,
        step: &StepId,
        attempt: u32,
        outcome: &ToolOutcome,
    ) -> Option<()> {
        let s = self.at_attempt(at_ms, step, attempt)?;
        s.ended_at_ms = at_ms;
        s.looks = 0;
        s.status = Status::Between;
        match outcome {
            ToolOutcome::Done { output, .. } => {
                s.fault = None;
                s.output = Some(Arc::new(output.clone()));
            }
            ToolOutcome::Failed { fault, started, .. } => {
                s.fault = Some(fault.clone());
                if !started {
                    self.attempt_had_no_effect(step);
                }
            }
        }
        Some(())
    }

    fn apply_sealed(&mut self, at_ms: u64, step: &StepId, attempt: u32, seal: &Seal) -> Option<()> {
        let s = self.at_attempt(at_ms, step, attempt)?;
        // An attempt that a takeover ended is not the tool's failure, unless the tool had
        // failed by itself.
        let taken_over = Status::Sealing {
            why: SealWhy::Takeover,
        };
        let told = matches!(seal, Seal::Ended { outcome: Some(_) });
        if s.status == taken_over && !told {
            s.tries = s.tries.saturating_sub(1);
        }
        s.ended_at_ms = at_ms;
        s.looks = 0;
        s.status = Status::Between;
        match seal {
            Seal::NeverStarted => self.attempt_had_no_effect(step),
            Seal::Ended { outcome: None } => {}
            Seal::Ended {
                outcome: Some(outcome),
            } => return self.apply_outcome(at_ms, step, attempt, outcome),
        }
        Some(())
    }

    /// The last attempt had no effect: whether one is open is as it was before it.
    fn attempt_had_no_effect(&mut self, step: &StepId) {
        let Some(s) = self.steps.get_mut(step) else {
            return;
        };
        let s = Arc::make_mut(s);
        s.effect_open = s.open_before;
        let identity = s.identity;
        if !s.effect_open {
            self.set_presence(step, identity, Presence::Absent);
        }
    }

    fn set_presence(&mut self, step: &StepId, identity: Option<Digest>, is: Presence) {
        if let Some(effect) = identity.and_then(|i| self.effects.get_mut(&i))
            && effect.step == *step
        {
            effect.is = is;
        }
    }

    fn apply_observed(&mut self, at_ms: u64, body: &Body) -> Option<()> {
        let Body::Observed {
            step,
            attempt,
            observations,
            proven_absent,
        } = body
        else {
            return None;
        };
        let s = self.at_attempt(at_ms, step, *attempt)?;
        s.status = Status::Between;
        s.looks += 1;
        s.evidence = observations
            .iter()
            .filter_map(|o| o.evidence.clone())
            .collect();
        if s.output.is_none() {
            let found = observations.iter().find_map(|o| o.output.clone());
            s.output = found.map(Arc::new);
        }
        let present = observations
            .first()
            .is_some_and(|o| o.verdict == Verdict::Met);
        let identity = s.identity;
        if *proven_absent {
            s.effect_open = false;
            s.open_before = false;
            s.output = None;
            self.set_presence(step, identity, Presence::Absent);
        } else if present {
            self.set_presence(step, identity, Presence::Present);
        }
        Some(())
    }

    fn apply_step_ended(&mut self, at_ms: u64, id: &StepId, end: &StepEnd) -> Option<()> {
        let s = self.open_step(at_ms, id)?;
        match end {
            StepEnd::Done { stale } => {
                s.stale |= *stale;
                s.effect_open = false;
                s.fault = None;
                s.status = Status::Done;
                let identity = s.identity;
                self.set_presence(id, identity, Presence::Present);
            }
            StepEnd::Failed { fault } => {
                s.fault = Some(fault.clone());
                s.status = Status::Failed {
                    fault: fault.clone(),
                };
                let signature = signature(s, fault);
                *self.signatures.entry(signature).or_default() += 1;
                self.halt_for(id, fault);
            }
            StepEnd::Skipped => s.status = Status::Skipped,
            StepEnd::Unknown { fault } => {
                s.status = Status::Unknown {
                    fault: fault.clone(),
                };
                self.halt_for(id, fault);
            }
        }
        Some(())
    }

    fn halt_for(&mut self, step: &StepId, fault: &Fault) {
        let failed = |h: &Halt| matches!(h, Halt::StepFailed { .. });
        let outranks = fault.code == Code::OutcomeUnknown && self.halt.as_ref().is_some_and(failed);
        if self.closing.is_none() && (self.halt.is_none() || outranks) {
            self.halt = Some(Halt::StepFailed {
                step: step.clone(),
                fault: fault.clone(),
            });
        }
    }

    fn apply_answered(
        &mut self,
        at_ms: u64,
        question: &QuestionId,
        choice: Option<&str>,
    ) -> Option<()> {
        let question = self.questions.remove(question)?;
        let s = self.open_step(at_ms, &question.step)?;
        s.status = Status::Between;
        if choice == Some(CHOICE_ABSENT) {
            s.effect_open = false;
            s.open_before = false;
            s.tries = 0;
            let identity = s.identity;
            self.set_presence(&question.step, identity, Presence::Absent);
        }
        Some(())
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
