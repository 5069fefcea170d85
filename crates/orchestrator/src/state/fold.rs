//! Folding records into the state of a goal: what each kind of record makes true of
//! the goal as a whole. [`super::steps`] has what it makes true of a step.

use super::{GoalState, Halt, Planning, Presence, Status, StepState};
use detent_protocol::budget::Amount;
use detent_protocol::goal::{Amendment, merge_patch};
use detent_protocol::journal::Entry;
use detent_protocol::plan::Plan;
use detent_protocol::record::{Body, PlanNext, PlanWhy, Record, Said, WaitWhy};
use detent_protocol::{Code, Fault};
use std::sync::Arc;
impl GoalState {
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
        if let Said::Known(Body::Forgotten { goal }) = &record.said {
            return self.fold_tombstone(epoch, record.n, goal);
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

    pub(super) fn park(&mut self, message: String) {
        self.parked = Some(Fault::new(Code::JournalUnreadable, message));
    }

    /// Applies a record; `None` means that it does not fit.
    pub(super) fn apply(&mut self, at_ms: u64, body: &Body) -> Option<()> {
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
                question,
                choice,
                by,
            } => self.apply_answered(at_ms, question, choice.as_deref(), by),
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
                self.pauses += 1;
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
            // Folded as a whole, never applied to what is there.
            Body::Forgotten { .. } => None,
        }
    }

    pub(super) fn apply_accepted(&mut self, at_ms: u64, body: &Body) -> Option<()> {
        let Body::Accepted {
            agent,
            definition,
            input,
            submission,
            key,
            deadline_ms,
            limits,
            trace,
            json,
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
        self.key = key.clone();
        self.accepted_at_ms = at_ms;
        self.deadline_ms = *deadline_ms;
        self.budget.limits = *limits;
        self.trace = trace.clone();
        self.json = *json;
        Some(())
    }

    pub(super) fn apply_planning(&mut self, at_ms: u64, body: &Body) -> Option<()> {
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

    pub(super) fn start_revision(&mut self, revision: u32, why: &PlanWhy) {
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

    pub(super) fn end_planning(&mut self, revision: u32, used: Amount) -> Option<Planning> {
        let planning = self.planning.take()?;
        self.budget.settle(planning.reserved, used);
        (planning.revision == revision).then_some(planning)
    }

    pub(super) fn take_plan(&mut self, at_ms: u64, revision: u32, plan: &Plan) -> Option<()> {
        for (place, step) in plan.steps.iter().enumerate() {
            let mut state = StepState::new(step, revision, self.effective.clone(), at_ms);
            state.place = place;
            let state = Arc::new(state);
            if self.steps.insert(step.id.clone(), state).is_some() {
                return None;
            }
        }
        self.result = Some(Arc::new(plan.result.clone()));
        self.violations.clear();
        Some(())
    }
}
