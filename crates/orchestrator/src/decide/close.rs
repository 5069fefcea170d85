//! Closing: bringing what runs to its end, then the one terminal record.

use super::{IsLook, Turn};
use crate::command::Command;
use crate::state::{Status, StepState};
use detent_protocol::claim::{self, Claim, Resolved};
use detent_protocol::expect::Evidence;
use detent_protocol::json::{self, Digest};
use detent_protocol::messages::SealGoal;
use detent_protocol::record::{Body, CloseWhy, SealWhy, StepEnd};
use detent_protocol::result::{GoalResult, Receipt, StepEvidence, StepReport, StepState as Stands};
use detent_protocol::template::{self, Reference};
use detent_protocol::{Code, Fault, NodeId, StepId};
use serde_json::{Value, json};

impl Turn<'_> {
    /// From here on nothing new is started. A cancel or the deadline seals what runs;
    /// a failure lets it end by itself.
    pub(super) fn close(&mut self, why: CloseWhy) {
        let seal = !matches!(why, CloseWhy::Failed { .. });
        self.say(Body::Closing { why });
        if seal {
            self.seal_running(SealWhy::Closing);
        }
        for id in self.open_steps() {
            let Some(s) = self.state.step(&id) else {
                continue;
            };
            match &s.status {
                Status::Asking { question } => {
                    let question = question.clone();
                    self.lapse(&question, &id);
                }
                Status::Waiting { why, .. } if why.is_look() => {}
                status if status.is_active() => {}
                _ => self.put_aside(&id),
            }
        }
    }

    /// What was decided is too large for the journal, so it did not happen. The goal
    /// ends, by a record that is small.
    pub(super) fn on_append_refused(&mut self, fault: &Fault) {
        if self.state.closing.is_none() {
            self.close(CloseWhy::Failed {
                fault: fault.clone(),
            });
        }
        // The answers of what runs may be what is too large: none is waited for.
        self.seal_running(SealWhy::Closing);
    }

    pub(super) fn seal_running(&mut self, why: SealWhy) {
        for id in self.open_steps() {
            if self
                .state
                .step(&id)
                .is_some_and(|s| s.status == Status::Running)
            {
                self.seal(&id, why);
            }
        }
    }

    /// Puts a step aside that is not running: looks first where an earlier attempt may
    /// have had its effect.
    pub(super) fn put_aside(&mut self, id: &StepId) {
        let open = self.state.step(id).is_some_and(|s| s.effect_open);
        if open && !self.checks(id).is_empty() {
            return self.look(id);
        }
        self.abandon(id);
    }

    /// Ends a step that is not running. What its earlier attempts may have done
    /// is not forgotten.
    pub(super) fn abandon(&mut self, id: &StepId) {
        let Some(s) = self.state.step(id) else { return };
        let end = if s.effect_open {
            let message = "put aside before its effect was known";
            StepEnd::Unknown {
                fault: Fault::new(Code::OutcomeUnknown, message).at(id.as_str()),
            }
        } else {
            StepEnd::Skipped
        };
        self.say(Body::StepEnded {
            step: id.clone(),
            end,
        });
    }

    /// Ends the goal once every step has ended and, for a cancel, every executor has
    /// acknowledged.
    pub(super) fn advance_closing(&mut self) {
        for id in self.open_steps() {
            let Some(s) = self.state.step(&id) else {
                continue;
            };
            // What came back during closing and is not being looked at goes no further.
            let at_rest = matches!(s.status, Status::Pending | Status::Between)
                || matches!(s.status, Status::Waiting { why, .. } if !why.is_look());
            if at_rest {
                self.put_aside(&id);
            }
        }
        if !self.open_steps().is_empty() {
            return;
        }
        match self.state.closing.clone() {
            Some(CloseWhy::Failed { fault }) => self.end_failed(&fault),
            Some(CloseWhy::Deadline) => {
                let message = "the deadline passed";
                self.end_failed(&Fault::new(Code::DeadlineExceeded, message));
            }
            Some(CloseWhy::Cancelled { by, reason }) => self.end_cancelled(by, reason),
            None => {}
        }
    }

    fn end_failed(&mut self, fault: &Fault) {
        // An effect that nobody knows about outranks whatever else went wrong.
        let unknown = self.state.steps.values().find_map(|s| match &s.status {
            Status::Unknown { fault } => Some(fault.clone()),
            _ => None,
        });
        let fault = unknown.unwrap_or_else(|| fault.clone());
        let result = GoalResult::failed(&fault, self.reports());
        self.say(Body::Ended { result });
    }

    fn end_cancelled(&mut self, by: String, reason: String) {
        let Some((confirmed, unconfirmed)) = self.state.sealed.clone() else {
            // Asked again on each turn until it is answered; the shell keeps one out.
            return self.commands.push(Command::SealGoal(SealGoal {
                tenant: self.state.tenant.clone(),
                goal: self.state.goal,
            }));
        };
        let receipt = Receipt {
            by,
            reason,
            steps: self.reports(),
            confirmed,
            unconfirmed,
        };
        self.say(Body::Ended {
            result: GoalResult::Cancelled { receipt },
        });
    }

    pub(super) fn on_goal_sealed(&mut self, confirmed: &[NodeId], unconfirmed: &[NodeId]) {
        let wanted = matches!(self.state.closing, Some(CloseWhy::Cancelled { .. }));
        if wanted && self.state.sealed.is_none() && self.open_steps().is_empty() {
            self.say(Body::GoalSealed {
                confirmed: confirmed.to_vec(),
                unconfirmed: unconfirmed.to_vec(),
            });
        }
    }

    fn reports(&self) -> Vec<StepReport> {
        let steps = self.state.steps_in_order();
        let mut reports: Vec<_> = steps.into_iter().map(report).collect();
        let faults = |r: &StepReport| r.fault.as_ref().map_or(0, |f| f.message.len());
        if reports.iter().map(faults).sum::<usize>() > DETAILS_BYTES_MAX {
            for fault in reports.iter_mut().filter_map(|r| r.fault.as_mut()) {
                fault.message = cut(&fault.message, DETAIL_CHARS);
            }
        }
        reports
    }

    /// Every step of the plan has ended well: builds the result, has what it lacks fetched,
    /// and checks it. The shell keeps one fetch out, so that it may be asked for again on
    /// each turn until it is answered.
    pub(super) fn finish(&mut self) {
        match self.result_data() {
            Ok(Resolved { value, claims }) if !claims.is_empty() => {
                self.commands.push(Command::FetchResult {
                    goal: self.state.goal,
                    data: value,
                    claims,
                });
            }
            data => self.finish_with(data.map(|data| data.value)),
        }
    }

    pub(super) fn on_result_fetched(&mut self, of: &Digest, data: &Result<Value, Fault>) {
        let wanted = self.result_data().is_ok_and(|data| data.digest() == *of);
        if wanted && self.state.awaits_result() {
            self.finish_with(data.clone());
        }
    }

    fn finish_with(&mut self, data: Result<Value, Fault>) {
        let checked = data.and_then(|data| {
            let contract = self.cx.definition.result();
            contract
                .check_as(Code::InternalLogicError, &data)
                .map(|()| data)
        });
        match checked {
            Ok(data) => {
                let steps = self.state.steps_in_order().into_iter();
                let done: Vec<_> = steps.filter(|s| s.status == Status::Done).collect();
                let stale = done.iter().any(|s| s.stale);
                let evidence = bounded(done.iter().map(|s| evidence(s)).collect());
                let result = GoalResult::Succeeded {
                    data,
                    evidence,
                    stale,
                };
                self.say(Body::Ended { result });
            }
            Err(fault) => {
                self.close(CloseWhy::Failed { fault });
                self.advance_closing();
            }
        }
    }

    fn result_data(&self) -> Result<Resolved, Fault> {
        let template = self.state.result.clone().unwrap_or_default();
        template::resolve_parts(&template, &|r: &Reference<'_>| {
            self.lookup(r, &self.state.effective)
        })
    }

    /// Looks a reference of a plan up in the state, `input` being the goal's input.
    pub(super) fn lookup(&self, r: &Reference<'_>, input: &Value) -> Option<Resolved> {
        match r {
            Reference::Goal(p) => input.pointer(p).cloned().map(Resolved::from),
            Reference::Step(id, p) => {
                let step = self.state.step(id)?;
                let output = step
                    .output
                    .as_ref()
                    .filter(|_| step.status == Status::Done)?;
                claim::find(output, p)
            }
            Reference::Meta(name) => {
                let fact = match *name {
                    "goal_id" => json!(self.state.goal),
                    "tenant" => json!(self.state.tenant),
                    _ => json!(self.state.agent),
                };
                Some(fact.into())
            }
            Reference::Args(_) | Reference::Output(_) => None,
        }
    }
}

/// A step in a failed or cancelled goal's result.
fn report(s: &StepState) -> StepReport {
    let (state, fault) = match &s.status {
        Status::Done => (Stands::Done, None),
        Status::Failed { fault } => (Stands::Failed, Some(fault.clone())),
        Status::Unknown { fault } => (Stands::Unknown, Some(fault.clone())),
        _ => (Stands::Skipped, s.fault.clone()),
    };
    StepReport {
        step: s.step.id.clone(),
        tool: s.tool.clone(),
        state,
        attempts: s.attempts,
        fault,
    }
}

/// Most bytes of evidence, and of step reports, in a result, as JSON text. What was seen
/// stands in the journal whole.
const DETAILS_BYTES_MAX: usize = 192 * 1024;

/// The evidence, without what was seen where it would be too much.
fn bounded(mut all: Vec<StepEvidence>) -> Vec<StepEvidence> {
    let bytes: usize = all
        .iter()
        .flat_map(|s| &s.seen)
        .map(|e| json::size_bytes(&e.seen) + e.what.len())
        .sum();
    if bytes > DETAILS_BYTES_MAX {
        for seen in all.iter_mut().flat_map(|s| &mut s.seen) {
            seen.seen = json!({"cut_bytes": json::size_bytes(&seen.seen)});
            seen.what = cut(&seen.what, DETAIL_CHARS);
        }
    }
    all
}

/// Characters that are left of a text where all together are too many.
const DETAIL_CHARS: usize = 100;

fn cut(text: &str, chars: usize) -> String {
    text.chars().take(chars).collect()
}

/// Evidence of a step that ended well: what probes saw, or, for a tool without an
/// effect, its output, which met its schema.
fn evidence(s: &StepState) -> StepEvidence {
    let seen = if s.evidence.is_empty() {
        let output = s.output.as_deref().cloned().unwrap_or_default();
        vec![Evidence {
            probe: detent_protocol::expect::PROBE_OUTPUT.to_owned(),
            what: format!("output of {} meets its schema", s.tool),
            at_ms: s.since_ms,
            digest: Claim::of(&output).map_or_else(|| Digest::of_json(&output), |c| c.value),
            seen: Value::Null,
        }]
    } else {
        s.evidence.clone()
    };
    StepEvidence {
        step: s.step.id.clone(),
        tool: s.tool.clone(),
        seen,
    }
}
