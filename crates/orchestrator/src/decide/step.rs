//! The rules for one step and its attempts.
//!
//! To give an attempt up the order is always *seal, observe, decide*: first make sure
//! that it does not run and will not start, then ask the authority, then decide. A new
//! attempt of a tool with an effect needs one of three things: the world honours the
//! key or the token, the old attempt never started, or its effect is proven absent.

use super::Turn;
use crate::command::Command;
use crate::state::{Presence, Status, StepState};
use detent_protocol::agent::CompiledTool;
use detent_protocol::budget::Amount;
use detent_protocol::claim::{Claim, Resolved};
use detent_protocol::contract::Contract;
use detent_protocol::effect::{self, Effect};
use detent_protocol::expect::PROBE_OUTPUT;
use detent_protocol::json::Digest;
use detent_protocol::messages::{SealAttempt, ToolCall};
use detent_protocol::record::{
    Body, CloseWhy, RunFacts, Seal, SealWhy, StepEnd, ToolOutcome, WaitWhy,
};
use detent_protocol::template::{self, Reference};
use detent_protocol::{Code, Fault, StepId, ToolName};
use serde_json::Value;

/// An attempt has to start within this time of its intent, or not at all.
pub(crate) const START_WITHIN_MS: u64 = 10_000;
/// What an answer may take beyond the start and the tool's own time; then the attempt is
/// given up.
pub(crate) const CALL_MARGIN_MS: u64 = 5_000;

/// What can be done with a step that is ready.
enum Start {
    /// Make this attempt.
    Attempt(Box<Attempt>),
    /// Its effect is another step's, and is there.
    Bind(StepId, Digest),
    /// Its effect may be there, from an earlier step: look first.
    LookFirst(Digest, Digest),
    /// Its own earlier attempt may have done it, and the world need not honour the key
    /// any more: look first.
    LookAgain,
    /// Another step is at the same effect: not now.
    NotNow,
    /// It can't be done.
    Fail(Fault),
}

struct Attempt {
    args: Resolved,
    digest: Digest,
    identity: Option<Digest>,
}

impl Turn<'_> {
    // ---- starting ----------------------------------------------------------

    pub(super) fn start_ready_steps(&mut self) {
        let max = self.cx.definition.agent().policy.parallel_max as usize;
        let mut active = self
            .state
            .steps
            .values()
            .filter(|s| s.status.is_active())
            .count();
        for id in self.open_steps() {
            if active >= max || self.state.halt.is_some() || self.state.closing.is_some() {
                return;
            }
            if self.is_ready(&id) {
                self.start(&id);
                active += usize::from(self.state.step(&id).is_some_and(|s| s.status.is_active()));
            }
        }
    }

    fn is_ready(&self, id: &StepId) -> bool {
        let Some(s) = self.state.step(id) else {
            return false;
        };
        let waited = match &s.status {
            Status::Pending => true,
            Status::Waiting { until_ms, why } => {
                matches!(why, WaitWhy::Delay | WaitWhy::Backoff) && *until_ms <= self.cx.now_ms
            }
            _ => false,
        };
        let done = |d: &StepId| self.state.step(d).is_some_and(|s| s.status == Status::Done);
        waited && s.needs.iter().all(done)
    }

    fn start(&mut self, id: &StepId) {
        let Some(s) = self.state.step(id) else { return };
        let delay = s.step.delay_seconds;
        if delay > 0 && !s.delayed {
            let until = self.cx.now_ms.saturating_add(delay * 1000);
            return self.wait_until(id, until, WaitWhy::Delay);
        }
        match self.how_to_start(id) {
            Start::NotNow => {}
            Start::Fail(fault) => self.end_failed_step(id, fault.at(id.as_str())),
            Start::Bind(to, identity) => {
                self.say(Body::Bound {
                    step: id.clone(),
                    to,
                    identity,
                });
                self.end_done(id);
            }
            Start::LookFirst(identity, args) => self.look_for_earlier(id, identity, args),
            Start::LookAgain => self.look_or_ask(id),
            Start::Attempt(attempt) => self.attempt(id, *attempt),
        }
    }

    fn how_to_start(&self, id: &StepId) -> Start {
        let Some((s, tool)) = self.step_and_tool(id) else {
            let message = "its tool is not in the definition";
            return Start::Fail(Fault::new(Code::ReplayMismatch, message));
        };
        let args = match self.args(s, tool) {
            Ok(args) => args,
            Err(fault) => return Start::Fail(fault),
        };
        if let Err(fault) = self.can_be_proven(s, tool, &args) {
            return Start::Fail(fault);
        }
        let digest = args.digest();
        if !tool.def.effect.has_slot() {
            return Start::Attempt(Box::new(Attempt {
                args,
                digest,
                identity: None,
            }));
        }
        let identity = match self.identity(s, tool, &args) {
            Ok(identity) => identity,
            Err(fault) => return Start::Fail(fault),
        };
        let attempt = || {
            Start::Attempt(Box::new(Attempt {
                args: args.clone(),
                digest,
                identity: Some(identity),
            }))
        };
        match self.state.effects.get(&identity) {
            None => attempt(),
            Some(e) if e.step == *id => {
                // The wait before this attempt may have been longer than the key lives.
                if s.effect_open && !self.key_holds(s, tool) {
                    return Start::LookAgain;
                }
                attempt()
            }
            Some(e) if e.is == Presence::Absent => attempt(),
            Some(e) if e.args != digest => {
                let message = format!("step {} did it with other arguments", e.step);
                Start::Fail(Fault::new(Code::EffectConflict, message))
            }
            Some(e) if e.is == Presence::Present => match self.state.step(&e.step) {
                Some(other) if other.status == Status::Done => {
                    Start::Bind(e.step.clone(), identity)
                }
                Some(other) if !other.status.is_end() => Start::NotNow,
                // It is there, but the step that made it failed in another check.
                _ => Start::LookFirst(identity, digest),
            },
            Some(e) => match self.state.step(&e.step) {
                Some(other) if !other.status.is_end() => Start::NotNow,
                _ if tool.def.effect == Effect::Once => Start::LookFirst(identity, digest),
                // The world knows the key or the token: doing it again is safe, as long
                // as it keeps the key.
                _ if tool.def.effect == Effect::Idempotent
                    && !self.key_outlives_an_attempt(e.since_ms, tool) =>
                {
                    Start::LookFirst(identity, digest)
                }
                _ => attempt(),
            },
        }
    }

    pub(super) fn step_and_tool(&self, id: &StepId) -> Option<(&StepState, &CompiledTool)> {
        let s = self.state.step(id)?;
        Some((s, self.cx.definition.tool(&s.tool)?))
    }

    /// Arguments with all references resolved, and checked. The same for every attempt
    /// and every look: an amendment is for the next plan. Where something of them has
    /// still to be fetched, whoever fetches it checks them.
    pub(super) fn args(&self, s: &StepState, tool: &CompiledTool) -> Result<Resolved, Fault> {
        let scope = |r: &Reference<'_>| self.lookup(r, &s.input);
        let args = template::resolve_parts(&s.step.args, &scope)?;
        if args.is_whole() {
            tool.input.check_as(Code::InputInvalid, &args.value)?;
        }
        Ok(args)
    }

    /// Identity of the step's effect. A fallback does the same thing by other means, so
    /// it has the identity of the tool that was planned: a replan that names that tool
    /// again must meet what the fallback has done. It has to be the same for the same
    /// values, wherever they come from: a piece of a large output whose digest is not
    /// known can't be part of it.
    fn identity(
        &self,
        s: &StepState,
        tool: &CompiledTool,
        args: &Resolved,
    ) -> Result<Digest, Fault> {
        let anew = s.step.repeat || self.cx.bug == Some(super::Bug::ReplanNewIdentity);
        let salt = anew.then(|| s.step.id.as_str());
        let (tenant, goal) = (&self.state.tenant, &self.state.goal);
        let planned = self.cx.definition.tool(&s.step.tool).unwrap_or(tool);
        let (name, pointers) = (&planned.def.name, &planned.def.identity);
        if let Some(at) = args.unknown_in(pointers) {
            let message = format!(
                "argument {at:?} makes the identity of the effect and is deep in an output that \
                 is too large to be looked into here; let a step take it out"
            );
            return Err(Fault::new(Code::InputTooLarge, message).at(at));
        }
        let identity = effect::identity(tenant, goal, name, args, pointers, salt);
        Ok(identity)
    }

    fn attempt(&mut self, id: &StepId, attempt: Attempt) {
        let Some((s, tool)) = self.step_and_tool(id) else {
            return;
        };
        let reserve = Amount {
            tool_calls: 1,
            money_micros: tool.def.cost_micros,
            ..Amount::default()
        };
        if let Some(part) = self.state.budget.refuses(reserve) {
            let message = format!("{part} is used up before step {id}");
            let fault = Fault::new(Code::BudgetExhausted, message);
            return self.close(CloseWhy::Failed { fault });
        }
        let (number, tool) = (s.attempts + 1, tool.clone());
        self.say(Body::Intended {
            step: id.clone(),
            attempt: number,
            tool: tool.def.name.clone(),
            args: attempt.digest,
            identity: attempt.identity,
            reserve,
        });
        let key = match self.cx.bug {
            Some(super::Bug::KeyPerAttempt) => attempt
                .identity
                .map(|i| Digest::of_parts(&[&i.0, &number.to_le_bytes()])),
            _ => attempt.identity,
        };
        self.commands.push(Command::Call {
            call: Box::new(ToolCall {
                tenant: self.state.tenant.clone(),
                goal: self.state.goal,
                step: id.clone(),
                attempt: number,
                epoch: self.cx.epoch,
                tool: tool.def.name.clone(),
                tool_digest: tool.digest,
                args: attempt.args.value,
                claims: attempt.args.claims,
                identity: key,
                fencing_token: self.state.n,
                start_within_ms: START_WITHIN_MS,
            }),
            timeout_ms: tool.def.timeout_ms,
        });
    }

    // ---- how attempts end --------------------------------------------------

    /// Is this the attempt that is out?
    fn is_out(&self, id: &StepId, attempt: u32) -> bool {
        let s = self.state.step(id);
        s.is_some_and(|s| s.attempts == attempt && s.status == Status::Running)
    }

    pub(super) fn on_tool_completed(
        &mut self,
        id: &StepId,
        attempt: u32,
        output: &Value,
        run: &RunFacts,
    ) {
        if !self.is_out(id, attempt) {
            return;
        }
        self.say(Body::Outcome {
            step: id.clone(),
            attempt,
            outcome: ToolOutcome::Done {
                output: output.clone(),
                run: run.clone(),
            },
        });
        self.after_done(id);
    }

    /// The tool says that it is done: that is looked at, or, for a tool without an
    /// effect and without expectations, its output is the evidence.
    fn after_done(&mut self, id: &StepId) {
        if let Err(fault) = self.check_output(id) {
            return self.after_failure(id, fault);
        }
        if !self.checks(id).is_empty() {
            return self.look(id);
        }
        match self.unlooked(id) {
            // All its expectations need a part of the output that is not there.
            Some(fault) => self.leave_unproven(id, fault, false),
            None => self.end_done(id),
        }
    }

    /// Expectations on the output itself: only ever for tools without an effect. One that
    /// is kept as a body is looked at by an observer.
    fn check_output(&self, id: &StepId) -> Result<(), Fault> {
        let Some(s) = self.state.step(id) else {
            return Ok(());
        };
        let Some(output) = s.output.as_deref().filter(|o| Claim::of(o).is_none()) else {
            return Ok(());
        };
        for e in s.step.expect.iter().filter(|e| e.probe == PROBE_OUTPUT) {
            Contract::compile(&e.schema)?.check_as(Code::ObservationRejected, output)?;
        }
        Ok(())
    }

    pub(super) fn on_tool_failed(
        &mut self,
        id: &StepId,
        attempt: u32,
        fault: &Fault,
        started: bool,
        run: &RunFacts,
    ) {
        if !self.is_out(id, attempt) {
            return;
        }
        self.say(Body::Outcome {
            step: id.clone(),
            attempt,
            outcome: ToolOutcome::Failed {
                fault: fault.clone(),
                started,
                run: run.clone(),
            },
        });
        self.after_failure(id, fault.clone());
    }

    pub(super) fn on_tool_silent(&mut self, id: &StepId, attempt: u32) {
        if !self.is_out(id, attempt) {
            return;
        }
        if self.cx.bug == Some(super::Bug::RetryOnOwnTimeout) {
            return self.start_again(id);
        }
        if self.cx.bug == Some(super::Bug::ObserveBeforeSeal) {
            return self.look(id);
        }
        self.seal(id, SealWhy::Timeout);
    }

    /// Gives the last attempt up: the first of seal, observe, decide.
    pub(super) fn seal(&mut self, id: &StepId, why: SealWhy) {
        let Some(s) = self.state.step(id) else { return };
        let attempt = s.attempts;
        self.say(Body::Sealing {
            step: id.clone(),
            attempt,
            why,
        });
        self.commands.push(Command::Seal(SealAttempt {
            tenant: self.state.tenant.clone(),
            goal: self.state.goal,
            step: id.clone(),
            attempt,
            epoch: self.cx.epoch,
        }));
    }

    fn sealing(&self, id: &StepId, attempt: u32) -> Option<SealWhy> {
        let s = self.state.step(id).filter(|s| s.attempts == attempt)?;
        match s.status {
            Status::Sealing { why } => Some(why),
            _ => None,
        }
    }

    pub(super) fn on_sealed(&mut self, id: &StepId, attempt: u32, seal: &Seal) {
        let Some(why) = self.sealing(id, attempt) else {
            return;
        };
        self.say(Body::Sealed {
            step: id.clone(),
            attempt,
            seal: seal.clone(),
        });
        match seal {
            Seal::Ended {
                outcome: Some(ToolOutcome::Done { .. }),
            } => self.after_done(id),
            Seal::Ended {
                outcome: Some(ToolOutcome::Failed { fault, .. }),
            } => self.after_failure(id, fault.clone()),
            Seal::Ended { outcome: None } | Seal::NeverStarted => {
                let (code, message) = match why {
                    SealWhy::Takeover => (Code::ToolCrashed, "its node went away"),
                    SealWhy::Timeout => (Code::ToolTimeout, "no answer in time; sealed"),
                    SealWhy::Closing => (Code::UserCancelled, "stopped while the goal closes"),
                };
                self.after_failure(id, Fault::new(code, message));
            }
        }
    }

    pub(super) fn on_seal_failed(&mut self, id: &StepId, attempt: u32, fault: &Fault) {
        if self.sealing(id, attempt).is_none() {
            return;
        }
        let message = format!("the attempt could not be sealed: {}", fault.message);
        if self.state.step(id).is_some_and(|s| !s.effect_open) {
            // It may still run, but it changes nothing.
            return self.retry_or_leave(id, Fault::new(Code::ToolTimeout, message));
        }
        self.undecided(id, Fault::new(Code::OutcomeUnknown, message));
    }

    /// An attempt ended badly or was sealed; it does not run any more.
    pub(super) fn after_failure(&mut self, id: &StepId, fault: Fault) {
        let Some((s, tool)) = self.step_and_tool(id) else {
            return;
        };
        let (open, effect) = (s.effect_open, tool.def.effect);
        let may_repeat = match effect {
            Effect::Read => true,
            Effect::Idempotent | Effect::Fenced => self.key_holds(s, tool),
            Effect::Once => false,
        };
        if !open {
            return self.retry_or_leave(id, fault);
        }
        if may_repeat && self.goes_on() && self.may_try_again(s, tool, &fault) {
            return self.back_off(id);
        }
        if self.checks(id).is_empty() {
            self.undecided(id, fault);
        } else {
            self.look(id);
        }
    }

    /// May this plan start anything more?
    pub(super) fn goes_on(&self) -> bool {
        self.state.closing.is_none() && self.state.halt.is_none()
    }

    /// Does the world still honour the effect's key?
    pub(super) fn key_holds(&self, s: &StepState, tool: &CompiledTool) -> bool {
        let effect = s.identity.and_then(|i| self.state.effects.get(&i));
        let since = effect.map_or(self.cx.now_ms, |e| e.since_ms);
        tool.def.effect == Effect::Fenced || self.key_outlives_an_attempt(since, tool)
    }

    /// Will a key first used at `since_ms` still be honoured when the last byte of an
    /// attempt that is intended now arrives? That it is honoured now is not enough: the
    /// attempt may start late and run long.
    fn key_outlives_an_attempt(&self, since_ms: u64, tool: &CompiledTool) -> bool {
        let def = &tool.def;
        let sealed_after = START_WITHIN_MS + def.timeout_ms + CALL_MARGIN_MS;
        let arrives_after = sealed_after.saturating_add(def.settles_within_ms.unwrap_or(0));
        let last = self.cx.now_ms.saturating_add(arrives_after);
        last < since_ms.saturating_add(def.key_valid_for_ms)
    }

    fn may_try_again(&self, s: &StepState, tool: &CompiledTool, fault: &Fault) -> bool {
        let again = fault.code.retryable() || fault.code == Code::UserCancelled;
        again && s.tries < tool.def.retry.attempts_max
    }

    /// No effect is open: another try, the fallback, or the end of the step.
    pub(super) fn retry_or_leave(&mut self, id: &StepId, fault: Fault) {
        let Some((s, tool)) = self.step_and_tool(id) else {
            return;
        };
        if self.state.closing.is_some() {
            return self.abandon(id);
        }
        if self.may_try_again(s, tool, &fault) {
            return self.back_off(id);
        }
        match self.fallback(s, tool) {
            Some(tool) => self.say(Body::FellBack {
                step: id.clone(),
                tool,
                fault,
            }),
            None => self.end_failed_step(id, fault.at(id.as_str())),
        }
    }

    /// The tool that comes after the one in use, unless the step came from there.
    fn fallback(&self, s: &StepState, tool: &CompiledTool) -> Option<ToolName> {
        let next = tool.def.fallback.clone()?;
        self.cx.definition.tool(&next)?;
        let mut left = Some(&s.step.tool);
        while let Some(name) = left {
            if *name == next {
                return None;
            }
            left = match self.cx.definition.tool(name) {
                Some(t) if *name != s.tool => t.def.fallback.as_ref(),
                _ => None,
            };
        }
        Some(next)
    }

    pub(super) fn back_off(&mut self, id: &StepId) {
        let Some((s, tool)) = self.step_and_tool(id) else {
            return;
        };
        let retry = tool.def.retry;
        // A try that a takeover ended does not count, so the first wait may be for 0.
        let doubled = retry
            .backoff_ms
            .saturating_mul(1 << s.tries.saturating_sub(1).min(20));
        let wait = if s.tries == 0 {
            0
        } else {
            doubled.min(retry.backoff_ms_max)
        };
        let wait = self.jitter(wait, u64::from(s.attempts));
        let until = self.cx.now_ms.saturating_add(wait);
        self.wait_until(id, until, WaitWhy::Backoff);
    }

    pub(super) fn wait_until(&mut self, id: &StepId, until_ms: u64, why: WaitWhy) {
        self.say(Body::Waiting {
            step: id.clone(),
            until_ms,
            why,
        });
    }

    // ---- ending ------------------------------------------------------------

    pub(super) fn end_done(&mut self, id: &StepId) {
        let stale = self
            .step_and_tool(id)
            .is_some_and(|(_, tool)| tool.def.stale);
        self.say(Body::StepEnded {
            step: id.clone(),
            end: StepEnd::Done { stale },
        });
    }

    pub(super) fn end_failed_step(&mut self, id: &StepId, fault: Fault) {
        self.say(Body::StepEnded {
            step: id.clone(),
            end: StepEnd::Failed { fault },
        });
    }

    pub(super) fn end_unknown(&mut self, id: &StepId, fault: Fault) {
        self.say(Body::StepEnded {
            step: id.clone(),
            end: StepEnd::Unknown { fault },
        });
    }
}
