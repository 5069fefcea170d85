//! Folding records into the steps of a goal and into what is known of their effects.

use super::{EffectState, GoalState, Halt, Presence, Status, StepState, signature};
use detent_protocol::expect::{Evidence, PROBE_PERSON, Verdict};
use detent_protocol::json::Digest;
use detent_protocol::record::{
    Body, CHOICE_ABSENT, CHOICE_HAPPENED, Seal, SealWhy, StepEnd, ToolOutcome,
};
use detent_protocol::{Code, Fault, QuestionId, StepId};
use serde_json::Value;
use std::sync::Arc;
impl GoalState {
    /// A step that has not ended, for a change of its status at `at_ms`.
    pub(super) fn open_step(&mut self, at_ms: u64, id: &StepId) -> Option<&mut StepState> {
        let s = Arc::make_mut(self.steps.get_mut(id)?);
        if s.status.is_end() {
            return None;
        }
        s.since_ms = at_ms;
        Some(s)
    }

    /// The same, and `attempt` is its last one.
    pub(super) fn at_attempt(
        &mut self,
        at_ms: u64,
        id: &StepId,
        attempt: u32,
    ) -> Option<&mut StepState> {
        let s = self.open_step(at_ms, id)?;
        (s.attempts == attempt).then_some(s)
    }

    pub(super) fn apply_intended(&mut self, at_ms: u64, body: &Body) -> Option<()> {
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

    pub(super) fn apply_bound(
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

    pub(super) fn apply_outcome(
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

    pub(super) fn apply_sealed(
        &mut self,
        at_ms: u64,
        step: &StepId,
        attempt: u32,
        seal: &Seal,
    ) -> Option<()> {
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
    pub(super) fn attempt_had_no_effect(&mut self, step: &StepId) {
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

    pub(super) fn set_presence(&mut self, step: &StepId, identity: Option<Digest>, is: Presence) {
        if let Some(effect) = identity.and_then(|i| self.effects.get_mut(&i))
            && effect.step == *step
        {
            effect.is = is;
        }
    }

    pub(super) fn apply_observed(&mut self, at_ms: u64, body: &Body) -> Option<()> {
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

    pub(super) fn apply_step_ended(
        &mut self,
        at_ms: u64,
        id: &StepId,
        end: &StepEnd,
    ) -> Option<()> {
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

    pub(super) fn halt_for(&mut self, step: &StepId, fault: &Fault) {
        let failed = |h: &Halt| matches!(h, Halt::StepFailed { .. });
        let outranks = fault.code == Code::OutcomeUnknown && self.halt.as_ref().is_some_and(failed);
        if self.closing.is_none() && (self.halt.is_none() || outranks) {
            self.halt = Some(Halt::StepFailed {
                step: step.clone(),
                fault: fault.clone(),
            });
        }
    }

    pub(super) fn apply_answered(
        &mut self,
        at_ms: u64,
        question: &QuestionId,
        choice: Option<&str>,
        by: &str,
    ) -> Option<()> {
        let question = self.questions.remove(question)?;
        let s = self.open_step(at_ms, &question.step)?;
        s.status = Status::Between;
        if choice == Some(CHOICE_HAPPENED) {
            // The word of a person is the evidence now, not what a probe did not see.
            s.evidence = vec![Evidence {
                probe: PROBE_PERSON.to_owned(),
                what: format!("{by} answered question {}: it happened", question.id),
                at_ms,
                digest: question.digest,
                seen: Value::Null,
            }];
        }
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
