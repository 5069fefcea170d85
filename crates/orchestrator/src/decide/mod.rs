//! The pure state machine: `(state, event) -> (records, commands)`.
//!
//! Read this file first, then [`step`], which holds the rules for one attempt:
//! *seal, observe, decide*. A turn works on a copy of the state: each record that is
//! said is folded at once, so later rules of the same turn see it; the caller installs
//! the copy only after the journal has confirmed the records.

mod close;
mod control;
mod look;
mod plan;
mod snapshot;
pub(crate) use snapshot::view;
mod step;
pub(crate) use step::CALL_MARGIN_MS;

use crate::command::Command;
use crate::event::{Event, NewGoal};
use crate::state::{GoalState, Halt, Status};
use detent_protocol::agent::Compiled;
use detent_protocol::messages::Phase;
use detent_protocol::record::{Body, CloseWhy, PlanWhy, Record, Said};
use detent_protocol::{Code, Fault, NodeId};

/// What a turn may know beside the state and the event.
#[derive(Debug, Clone)]
pub struct Context<'a> {
    /// The definition that the goal is pinned to.
    pub definition: &'a Compiled,
    /// This node.
    pub node: &'a NodeId,
    /// Epoch of this owner.
    pub epoch: u64,
    /// Wall clock, Unix milliseconds.
    pub now_ms: u64,
    /// A deliberate mistake, for the tests that must find it.
    pub bug: Option<Bug>,
}

/// Mistakes that the simulation plants to see that its judge finds them. Each is one
/// that a real system has made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// The publisher is told "accepted" before the journal has it.
    AckEarly,
    /// A tool is called before the record that intends it is confirmed.
    DispatchBeforeIntent,
    /// A new attempt on one's own timeout, without sealing the old one.
    RetryOnOwnTimeout,
    /// The idempotency key changes with the attempt.
    KeyPerAttempt,
    /// The world is looked at before the attempt is sealed.
    ObserveBeforeSeal,
    /// A replan gives the same effect a new identity.
    ReplanNewIdentity,
}

/// What a turn decided.
#[derive(Debug, Clone)]
pub struct Decision {
    /// What is true now. All of it goes into one append. Empty: nothing changed.
    pub records: Vec<Record>,
    /// What follows, once the records are confirmed.
    pub commands: Vec<Command>,
    /// The state after the records.
    pub next: GoalState,
    /// Why a control event was refused.
    pub refused: Option<Fault>,
}

/// How the table sees a pair of state and event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Legal {
    /// It is handled.
    Yes,
    /// It comes too late or twice; nothing happens.
    Stale,
    /// Its sender is told that this is not possible.
    No,
}

/// The table: which event means something in which state. What it lets through may
/// still turn out stale against the details (another revision, another attempt).
pub fn legal(fresh: bool, parked: bool, phase: Phase, event: &Event) -> Legal {
    use Event as E;
    let control = matches!(
        event,
        E::Cancel { .. } | E::Amend { .. } | E::Answer { .. } | E::Pause { .. } | E::Resume { .. }
    );
    let refused = if control { Legal::No } else { Legal::Stale };
    if fresh || matches!(event, E::NewGoal(_)) {
        let first = fresh && !parked && matches!(event, E::NewGoal(_));
        return if first { Legal::Yes } else { refused };
    }
    if parked || phase == Phase::Ended {
        return refused;
    }
    match (phase, event) {
        (Phase::Planning, E::PlanReceived { .. } | E::PlanFailed { .. }) => Legal::Yes,
        (_, E::PlanReceived { .. } | E::PlanFailed { .. }) => Legal::Stale,
        (Phase::Executing, E::ToolCompleted { .. } | E::ToolFailed { .. }) => Legal::Yes,
        (Phase::Executing, E::ToolSilent { .. }) => Legal::Yes,
        (_, E::ToolCompleted { .. } | E::ToolFailed { .. } | E::ToolSilent { .. }) => Legal::Stale,
        (Phase::Executing, E::AttemptSealed { .. } | E::SealFailed { .. }) => Legal::Yes,
        (_, E::AttemptSealed { .. } | E::SealFailed { .. }) => Legal::Stale,
        (Phase::Executing | Phase::Observing, E::Observed { .. }) => Legal::Yes,
        (_, E::Observed { .. }) => Legal::Stale,
        (Phase::Idle | Phase::Executing | Phase::Observing, E::GoalSealed { .. }) => Legal::Yes,
        (_, E::GoalSealed { .. }) => Legal::Stale,
        (Phase::Idle, E::ResultFetched { .. }) => Legal::Yes,
        (_, E::ResultFetched { .. }) => Legal::Stale,
        _ => Legal::Yes,
    }
}

/// Decides what follows from `event`.
pub fn decide(cx: &Context<'_>, state: &GoalState, event: &Event) -> Decision {
    // A goal's time never runs backwards, not even when it moves to a node whose clock
    // is behind: what was due stays due.
    let cx = Context {
        now_ms: cx.now_ms.max(state.at_ms),
        ..cx.clone()
    };
    let mut turn = Turn {
        cx: &cx,
        cause: event.name(),
        state: state.clone(),
        records: Vec::new(),
        commands: Vec::new(),
        refused: None,
    };
    let fresh = state.agent.is_none();
    match legal(fresh, state.parked.is_some(), state.phase(), event) {
        Legal::Yes => turn.handle(event),
        Legal::Stale => {}
        Legal::No => turn.refuse_control(),
    }
    Decision {
        records: turn.records,
        commands: turn.commands,
        next: turn.state,
        refused: turn.refused,
    }
}

/// One turn: the copy of the state and what was decided so far.
struct Turn<'a> {
    cx: &'a Context<'a>,
    cause: &'static str,
    state: GoalState,
    records: Vec<Record>,
    commands: Vec<Command>,
    refused: Option<Fault>,
}

impl Turn<'_> {
    /// Makes something true: a record, folded at once.
    fn say(&mut self, body: Body) {
        let record = Record {
            n: self.state.n + 1,
            cause: self.cause.to_owned(),
            said: Said::Known(body),
        };
        self.state.fold(self.cx.epoch, self.cx.now_ms, &record);
        self.records.push(record);
    }

    fn refuse(&mut self, fault: Fault) {
        self.refused = Some(fault);
    }

    fn refuse_control(&mut self) {
        let fault = match (&self.state.ended, &self.state.parked) {
            (Some(result), _) => {
                let message = format!("the goal has ended: {}", result.status());
                Fault::new(Code::InputInvalid, message).at("/goal")
            }
            (None, Some(parked)) => parked.clone(),
            (None, None) => Fault::new(Code::GoalUnknown, "no such goal"),
        };
        self.refuse(fault);
    }

    fn handle(&mut self, event: &Event) {
        match event {
            Event::NewGoal(new) => self.on_new_goal(new),
            Event::PlanReceived { revision, answer } => self.on_plan_received(*revision, answer),
            Event::PlanFailed { revision, fault } => self.on_plan_failed(*revision, fault),
            Event::ToolCompleted {
                step,
                attempt,
                output,
                run,
            } => self.on_tool_completed(step, *attempt, output, run),
            Event::ToolFailed {
                step,
                attempt,
                fault,
                started,
                run,
            } => self.on_tool_failed(step, *attempt, fault, *started, run),
            Event::ToolSilent { step, attempt } => self.on_tool_silent(step, *attempt),
            Event::AttemptSealed {
                step,
                attempt,
                seal,
            } => self.on_sealed(step, *attempt, seal),
            Event::SealFailed {
                step,
                attempt,
                fault,
            } => self.on_seal_failed(step, *attempt, fault),
            Event::Observed {
                step,
                attempt,
                observations,
            } => self.on_observed(step, *attempt, observations),
            Event::TimeCame => self.on_time(),
            Event::Cancel { by, reason } => self.on_cancel(by, reason),
            Event::Amend { patch, by } => self.on_amend(patch, by),
            Event::Answer {
                question,
                choice,
                by,
            } => self.on_answer(question, choice, by),
            Event::Pause { by } => self.on_pause(by),
            Event::Resume { by } => self.on_resume(by),
            Event::OwnerChanged { node } => self.on_owner_changed(node),
            Event::AppendRefused { fault } => self.on_append_refused(fault),
            Event::ResultFetched { of, data } => self.on_result_fetched(of, data),
            Event::GoalSealed {
                confirmed,
                unconfirmed,
            } => self.on_goal_sealed(confirmed, unconfirmed),
        }
        self.advance();
        if matches!(event, Event::TimeCame) && self.records.is_empty() {
            self.note_due();
        }
    }

    fn on_new_goal(&mut self, new: &NewGoal) {
        self.say(Body::Accepted {
            agent: new.agent.clone(),
            definition: new.definition,
            input: new.input.clone(),
            submission: new.submission,
            key: new.key.clone(),
            deadline_ms: self.cx.now_ms.saturating_add(new.deadline_ms),
            limits: new.limits,
            trace: new.trace.clone(),
            json: new.json,
        });
        self.say(Body::Owned {
            node: self.cx.node.clone(),
        });
        self.request_plan(PlanWhy::NewGoal);
    }

    /// Starts whatever can be started now. Called at the end of each turn, so no rule
    /// has to think about what else its change makes possible.
    fn advance(&mut self) {
        if self.state.ended.is_some() || self.state.parked.is_some() || self.refused.is_some() {
            return;
        }
        if self.state.closing.is_some() {
            return self.advance_closing();
        }
        if self.state.paused.is_some() || self.state.planning.is_some() {
            return;
        }
        if self.state.halt.is_none() {
            self.start_ready_steps();
        }
        if self.state.halt.is_some() {
            self.advance_halted();
        }
        if self.state.closing.is_some() {
            self.advance_closing();
        } else if self.state.awaits_result() {
            self.finish();
        }
    }

    /// A new plan is due: lets what is outside come home, puts the rest aside, then
    /// asks for the plan or gives up.
    fn advance_halted(&mut self) {
        let unsettled = |s: &Status| {
            s.is_active()
                || matches!(s, Status::Asking { .. })
                || matches!(s, Status::Waiting { why, .. } if why.is_look())
        };
        if self.state.steps.values().any(|s| unsettled(&s.status)) {
            return;
        }
        for id in self.open_steps() {
            self.put_aside(&id);
        }
        if !self.open_steps().is_empty() {
            return;
        }
        match self.state.halt.clone() {
            Some(Halt::Amended) => self.request_plan(PlanWhy::Amended),
            Some(Halt::StepFailed { step, fault }) => match self.no_replan(&fault, &step) {
                None => self.request_plan(PlanWhy::StepFailed { step, fault }),
                Some(fault) => self.close(CloseWhy::Failed { fault }),
            },
            None => {}
        }
    }

    /// Why a failed step ends the goal instead of leading to a new plan.
    fn no_replan(&self, fault: &Fault, step: &detent_protocol::StepId) -> Option<Fault> {
        if fault.code == Code::OutcomeUnknown {
            return Some(fault.clone());
        }
        let same = self.state.step(step).map_or(0, |s| {
            let signature = crate::state::signature(s, fault);
            self.state.signatures.get(&signature).copied().unwrap_or(0)
        });
        // Steps of one plan may fail alike side by side: only a new plan that changes
        // nothing is a loop.
        if same >= SAME_FAILURES_MAX && self.state.replans > 0 {
            let message = format!("{same} times the same: {}", fault.message);
            return Some(Fault::new(Code::LoopNoProgress, message).at(step.as_str()));
        }
        let max = self.cx.definition.agent().policy.replans_max;
        (self.state.replans >= max).then(|| fault.clone())
    }

    fn open_steps(&self) -> Vec<detent_protocol::StepId> {
        let open = self.state.steps.iter().filter(|(_, s)| !s.status.is_end());
        open.map(|(id, _)| id.clone()).collect()
    }
}

/// The same failure so many times, over all plans, ends the goal.
const SAME_FAILURES_MAX: u32 = 3;

trait IsLook {
    fn is_look(&self) -> bool;
}
impl IsLook for detent_protocol::record::WaitWhy {
    /// Does a look at the world follow the wait?
    fn is_look(&self) -> bool {
        use detent_protocol::record::WaitWhy;
        matches!(self, WaitWhy::Settle | WaitWhy::Probe)
    }
}
