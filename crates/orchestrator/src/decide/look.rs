//! Looking at the world, and what follows from what is seen: the second and third of
//! *seal, observe, decide*.

use super::Turn;
use crate::command::Command;
use crate::state::{Status, StepState};
use detent_protocol::agent::CompiledTool;
use detent_protocol::claim::{self, Claim, Resolved};
use detent_protocol::effect::Effect;
use detent_protocol::expect::{Expectation, Observation, PROBE_OUTPUT, Verdict};
use detent_protocol::json::Digest;
use detent_protocol::messages::Observe;
use detent_protocol::record::{
    Body, CHOICE_ABSENT, CHOICE_FAIL, CHOICE_HAPPENED, Question, WaitWhy,
};
use detent_protocol::template::{self, Reference};
use detent_protocol::{Code, Fault, StepId};
use serde_json::json;

/// Looks at the world after one attempt, before it is given up as undecided.
const LOOKS_MAX: u32 = 5;
/// Wait between looks, milliseconds; doubles.
const LOOK_WAIT_MS: u64 = 250;

/// What must be seen after a step, the authority first. The output itself is looked at
/// here only where it is kept as a body: otherwise it was looked at when it came.
fn expectations<'a>(
    s: &'a StepState,
    tool: &'a CompiledTool,
) -> impl Iterator<Item = &'a Expectation> {
    let kept = s.output.as_deref().is_some_and(|o| Claim::of(o).is_some());
    let of_world = |e: &&Expectation| e.probe != PROBE_OUTPUT;
    let of_step = s.step.expect.iter();
    let of_step = of_step.filter(move |e| of_world(e) || kept);
    tool.def.probe.iter().filter(of_world).chain(of_step)
}

/// Does it say that the tool's own output is not as expected?
fn is_wrong_output(o: &Observation) -> bool {
    let wrong = matches!(o.verdict, Verdict::Mismatch { .. });
    wrong && o.evidence.as_ref().is_some_and(|e| e.probe == PROBE_OUTPUT)
}

impl Turn<'_> {
    /// What is to be looked at, the authority first. Expectations whose parameters
    /// come from a lost output are left out; the authority never needs it.
    pub(super) fn checks(&self, id: &StepId) -> Vec<Observe> {
        let Some((s, tool)) = self.step_and_tool(id) else {
            return Vec::new();
        };
        let Ok(args) = self.args(s, tool) else {
            return Vec::new();
        };
        let scope = |r: &Reference<'_>| match r {
            Reference::Args(p) => args.pointer(p),
            Reference::Output(p) => claim::find(s.output.as_ref()?, p),
            other => self.lookup(other, &s.input),
        };
        let all = expectations(s, tool);
        all.filter_map(|e| self.check(id, e, &scope)).collect()
    }

    /// Refuses an attempt whose end could not be proven: nothing to look at after an
    /// effect, or an expectation whose parameters are known to be missing already.
    pub(super) fn can_be_proven(
        &self,
        s: &StepState,
        tool: &CompiledTool,
        args: &Resolved,
    ) -> Result<(), Fault> {
        if tool.def.effect.has_slot() && expectations(s, tool).next().is_none() {
            let message = format!(
                "{} changes the world, and nothing is expected of it",
                s.tool
            );
            return Err(Fault::new(Code::ExpectationTrivial, message));
        }
        let scope = |r: &Reference<'_>| match r {
            Reference::Args(p) => args.pointer(p),
            other => self.lookup(other, &s.input),
        };
        let mut all = expectations(s, tool).filter(|e| !e.needs_output());
        all.try_for_each(|e| template::resolve_parts(&e.params, &scope).map(|_| ()))
    }

    /// What could not be looked at although the output is known: an expectation that
    /// rests on a part of it that is not there. Where the output was lost, the
    /// authority alone decides.
    pub(super) fn unlooked(&self, id: &StepId) -> Option<Fault> {
        let (s, tool) = self.step_and_tool(id)?;
        let all = expectations(s, tool).count();
        let left_out = all.saturating_sub(self.checks(id).len());
        let lost = s.output.is_none() && tool.def.probe.is_some();
        if left_out == 0 || lost {
            return None;
        }
        let message = "what is expected refers to output that is not there";
        Some(Fault::new(Code::ReferenceMissing, message))
    }

    /// The attempt ended, and it can't be shown what came of it. `present`: the
    /// authority has seen the effect.
    pub(super) fn leave_unproven(&mut self, id: &StepId, fault: Fault, present: bool) {
        let Some((s, _)) = self.step_and_tool(id) else {
            return;
        };
        if present {
            let message = format!("its effect is there, but: {}", fault.message);
            let fault = Fault::new(fault.code, message).at(id.as_str());
            return self.end_failed_step(id, fault);
        }
        if s.effect_open {
            return self.undecided(id, fault);
        }
        self.retry_or_leave(id, fault);
    }

    /// Looks, or asks where there is nothing to look at.
    pub(super) fn look_or_ask(&mut self, id: &StepId) {
        if self.checks(id).is_empty() {
            let message = "an earlier attempt may have done it, and there is no probe";
            return self.undecided(id, Fault::new(Code::OutcomeUnknown, message));
        }
        self.look(id);
    }

    fn check(
        &self,
        id: &StepId,
        e: &Expectation,
        scope: &dyn Fn(&Reference<'_>) -> Option<Resolved>,
    ) -> Option<Observe> {
        let whole_output;
        let params = match e.probe.as_str() {
            PROBE_OUTPUT => {
                whole_output = json!({"output": {"$output": ""}});
                &whole_output
            }
            _ => &e.params,
        };
        let params = template::resolve_parts(params, &scope).ok()?;
        Some(Observe {
            tenant: self.state.tenant.clone(),
            goal: self.state.goal,
            step: id.clone(),
            probe: e.probe.clone(),
            params: params.value,
            claims: params.claims,
            schema: e.schema.clone(),
            absent: e.absent(),
            output_at: e.output_at.clone(),
        })
    }

    pub(super) fn look(&mut self, id: &StepId) {
        let checks = self.checks(id);
        let Some(s) = self.state.step(id) else { return };
        let attempt = s.attempts;
        self.say(Body::Looking {
            step: id.clone(),
            attempt,
        });
        self.commands.push(Command::Look {
            step: id.clone(),
            attempt,
            checks,
        });
    }

    /// An earlier step may have had this effect, and nobody knows: no attempt before
    /// a look.
    pub(super) fn look_for_earlier(&mut self, id: &StepId, identity: Digest, args: Digest) {
        let holder = self.state.effects.get(&identity).map(|e| e.step.clone());
        self.say(Body::Inherited {
            step: id.clone(),
            from: holder.unwrap_or_else(|| id.clone()),
            identity,
            args,
        });
        self.look_or_ask(id);
    }

    pub(super) fn on_observed(&mut self, id: &StepId, attempt: u32, seen: &[Observation]) {
        let Some((s, tool)) = self.step_and_tool(id) else {
            // Only in a goal that is closed without its definition.
            return self.abandon(id);
        };
        if s.status != Status::Looking || s.attempts != attempt {
            return;
        }
        // Only the tool's own probe is an authority on its effect. What a plan expects
        // may prove a step right, but never that it is safe to do it once more.
        let authority = tool.def.probe.as_ref().and(seen.first());
        let authority = authority.map(|o| o.verdict.clone());
        let absent = authority == Some(Verdict::Absent);
        let settled = self.settled(s, tool);
        let proven_absent = absent && settled && tool.def.effect.has_slot();
        let settles_at = tool
            .def
            .settles_within_ms
            .map(|ms| s.ended_at_ms.saturating_add(ms));
        self.say(Body::Observed {
            step: id.clone(),
            attempt,
            observations: seen.to_vec(),
            proven_absent,
        });
        if !seen.is_empty() && seen.iter().all(|o| o.verdict == Verdict::Met) {
            return match self.unlooked(id) {
                // What was seen gave the lost output, so now there is more to look at.
                None if self.checks(id).len() > seen.len() => {
                    let message = "not everything was looked at";
                    let fault = Fault::new(Code::ObservationUnavailable, message);
                    self.look_again_or_leave(id, fault, authority);
                }
                None => self.end_done(id),
                Some(fault) => self.leave_unproven(id, fault, authority.is_some()),
            };
        }
        let fault = self.observation_fault(id, seen);
        if seen.iter().any(is_wrong_output) {
            // It will not change by being looked at again.
            return self.after_failure(id, fault);
        }
        if proven_absent {
            return self.retry_or_leave(id, fault);
        }
        match settles_at {
            Some(at) if absent && at > self.cx.now_ms => self.wait_until(id, at, WaitWhy::Settle),
            // It settled while the probe was looking, perhaps just after it looked.
            Some(_) if absent && !settled => self.look(id),
            _ => self.look_again_or_leave(id, fault, authority),
        }
    }

    /// Had everything arrived that could, when this look began? Only a declared
    /// settling time says so.
    fn settled(&self, s: &StepState, tool: &CompiledTool) -> bool {
        let settles = tool.def.settles_within_ms;
        settles.is_some_and(|ms| s.since_ms >= s.ended_at_ms.saturating_add(ms))
    }

    /// What the observations say is wrong, or what had been wrong with the attempt.
    fn observation_fault(&self, id: &StepId, seen: &[Observation]) -> Fault {
        let earlier = self.state.step(id).and_then(|s| s.fault.clone());
        let found = seen.iter().find_map(|o| match &o.verdict {
            Verdict::Met => None,
            Verdict::Absent => Some(Fault::new(
                Code::ObservationRejected,
                "the effect is not there",
            )),
            Verdict::Mismatch { why } => Some(Fault::new(
                Code::ObservationRejected,
                format!("not as expected: {why}"),
            )),
            Verdict::Unavailable { fault } => Some(Fault::new(
                Code::ObservationUnavailable,
                fault.message.clone(),
            )),
        });
        let nothing = || Fault::new(Code::ObservationUnavailable, "nothing could be looked at");
        earlier.or(found).unwrap_or_else(nothing)
    }

    /// Not met, not proven absent: the authority may lag, so it is asked again, a few
    /// times; then what follows depends on what a repetition would do.
    fn look_again_or_leave(&mut self, id: &StepId, fault: Fault, authority: Option<Verdict>) {
        let Some((s, tool)) = self.step_and_tool(id) else {
            return;
        };
        if s.looks < LOOKS_MAX {
            let wait = self.jitter(LOOK_WAIT_MS << s.looks.min(10), u64::from(s.looks));
            let until = self.cx.now_ms.saturating_add(wait);
            return self.wait_until(id, until, WaitWhy::Probe);
        }
        let effect = tool.def.effect;
        let again = self.goes_on() && s.tries < tool.def.retry.attempts_max;
        match effect {
            Effect::Read => self.retry_or_leave(id, fault),
            // Only with the old key: the world must know it still.
            Effect::Idempotent | Effect::Fenced if again && self.key_holds(s, tool) => {
                self.back_off(id);
            }
            // It is there; something else about the step is wrong.
            _ if authority == Some(Verdict::Met) => self.leave_unproven(id, fault, true),
            _ => self.undecided(id, fault),
        }
    }

    /// Nobody can say whether the effect happened: a person is asked; it is never
    /// hoped.
    pub(super) fn undecided(&mut self, id: &StepId, fault: Fault) {
        let Some((s, tool)) = self.step_and_tool(id) else {
            return;
        };
        if !s.effect_open {
            // Without an effect there is nothing to know.
            return self.retry_or_leave(id, fault);
        }
        let fault = Fault {
            code: Code::OutcomeUnknown,
            ..fault.at(id.as_str())
        };
        if self.state.closing.is_some() {
            return self.end_unknown(id, fault);
        }
        let question = Question {
            id: super::control::question_id(&self.state.goal, id, s.attempts, self.state.n),
            step: id.clone(),
            what: format!(
                "Did step {id} (tool {}) have its effect? {}",
                tool.def.name, fault.message
            ),
            choices: [CHOICE_HAPPENED, CHOICE_ABSENT, CHOICE_FAIL]
                .map(str::to_owned)
                .into(),
            digest: s.args.unwrap_or(Digest([0; 32])),
            until_ms: self.ask_until(),
        };
        self.say(Body::Asked { question });
    }

    fn ask_until(&self) -> u64 {
        let ask = self.cx.definition.agent().policy.ask_ms;
        self.cx
            .now_ms
            .saturating_add(ask)
            .min(self.state.deadline_ms)
    }
}
