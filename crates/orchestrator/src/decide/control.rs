//! Control events: what people and programs want of a running goal, time, and a
//! change of owner.

use super::{IsLook, Turn};
use crate::state::Status;
use detent_protocol::goal::merge_patch;
use detent_protocol::json;
use detent_protocol::record::{
    Body, CHOICE_ABSENT, CHOICE_FAIL, CHOICE_HAPPENED, CloseWhy, PlanWhy, SealWhy, WaitWhy,
};
use detent_protocol::{Code, Fault, GOAL_BYTES_MAX, GoalId, NodeId, QuestionId, StepId};
use serde_json::Value;

impl Turn<'_> {
    /// Whatever is due: waits, questions, the deadline.
    pub(super) fn on_time(&mut self) {
        let now = self.cx.now_ms;
        if now >= self.state.deadline_ms {
            match self.state.closing {
                None => self.close(CloseWhy::Deadline),
                // A failing goal lets its steps end by themselves, but not for ever.
                Some(_) => self.seal_running(SealWhy::Closing),
            }
        }
        self.plan_wait_due();
        for id in self.open_steps() {
            self.step_due(&id);
        }
    }

    fn step_due(&mut self, id: &StepId) {
        let now = self.cx.now_ms;
        let Some(s) = self.state.step(id) else { return };
        match &s.status {
            Status::Waiting { until_ms, why } if *until_ms <= now && why.is_look() => {
                self.look(id);
            }
            Status::Asking { question } => {
                let question = question.clone();
                let lapsed = self.state.questions.get(&question);
                if lapsed.is_some_and(|q| q.until_ms <= now) {
                    self.lapse(&question, id);
                }
            }
            // Delays and backoffs are started by `advance`, which knows the limits.
            _ => {}
        }
    }

    /// A wait is over, but there is no room for its step yet: notes that, so that the
    /// same moment does not wake the goal again and hide a later one.
    pub(super) fn note_due(&mut self) {
        let (now, noted) = (self.cx.now_ms, self.state.at_ms);
        let due = self.state.steps.iter().find_map(|(id, s)| match s.status {
            Status::Waiting { until_ms, why } => {
                let due = !why.is_look() && until_ms <= now && until_ms > noted;
                due.then(|| (id.clone(), why))
            }
            _ => None,
        });
        if let (Some((id, why)), None) = (due, &self.state.paused) {
            self.wait_until(&id, now, why);
        }
    }

    pub(super) fn lapse(&mut self, question: &QuestionId, step: &StepId) {
        self.say(Body::Answered {
            question: question.clone(),
            choice: None,
            by: "nobody".into(),
        });
        let fault = Fault::new(Code::OutcomeUnknown, "nobody answered in time").at(step.as_str());
        self.end_unknown(step, fault);
    }

    pub(super) fn on_cancel(&mut self, by: &str, reason: &str) {
        let why = CloseWhy::Cancelled {
            by: by.to_owned(),
            reason: reason.to_owned(),
        };
        match &self.state.closing {
            // A second cancel changes nothing and is answered like the first.
            Some(CloseWhy::Cancelled { .. }) => {}
            _ => self.close(why),
        }
    }

    pub(super) fn on_amend(&mut self, patch: &Value, by: &str) {
        if self.state.closing.is_some() {
            let fault = Fault::new(Code::InputInvalid, "the goal is being closed").at("/goal");
            return self.refuse(fault);
        }
        let mut input = self.state.effective.as_ref().clone();
        merge_patch(&mut input, patch);
        // Each of them is in every snapshot for a planner, so all of them have a bound.
        let amendments = self.state.amendments.iter();
        let patches: usize = amendments.map(|a| json::size_bytes(&a.patch)).sum();
        if patches + json::size_bytes(patch) > GOAL_BYTES_MAX {
            let message = format!("all amendments of a goal take at most {GOAL_BYTES_MAX} bytes");
            return self.refuse(Fault::new(Code::InputTooLarge, message).at("/patch"));
        }
        if json::size_bytes(&input) > GOAL_BYTES_MAX {
            let message = format!("with it the input is over {GOAL_BYTES_MAX} bytes");
            return self.refuse(Fault::new(Code::InputTooLarge, message).at("/patch"));
        }
        let contract = self.cx.definition.input();
        if let Err(fault) = contract.check_as(Code::InputInvalid, &input) {
            return self.refuse(fault);
        }
        if self.state.amendments.len() >= AMENDMENTS_MAX {
            let message = format!("a goal takes {AMENDMENTS_MAX} amendments");
            return self.refuse(Fault::new(Code::InputTooLarge, message).at("/patch"));
        }
        self.say(Body::Amended {
            patch: patch.clone(),
            by: by.to_owned(),
        });
    }

    pub(super) fn on_answer(&mut self, question: &QuestionId, choice: &str, by: &str) {
        let Some(open) = self.state.questions.get(question).cloned() else {
            let message = format!("no open question {question}; `detent goals show` lists them");
            return self.refuse(Fault::new(Code::InputInvalid, message).at("/question"));
        };
        if !open.choices.iter().any(|c| c == choice) {
            let message = format!("the choices are {}", open.choices.join(", "));
            return self.refuse(Fault::new(Code::InputInvalid, message).at("/choice"));
        }
        self.say(Body::Answered {
            question: question.clone(),
            choice: Some(choice.to_owned()),
            by: by.to_owned(),
        });
        match choice {
            CHOICE_HAPPENED => self.end_done(&open.step),
            CHOICE_ABSENT => self.start_again(&open.step),
            _ => {
                debug_assert_eq!(choice, CHOICE_FAIL);
                let message = format!("{by} chose to leave it");
                let fault = Fault::new(Code::OutcomeUnknown, message).at(open.step.as_str());
                self.end_unknown(&open.step, fault);
            }
        }
    }

    pub(super) fn on_pause(&mut self, by: &str) {
        if self.state.pauses >= PAUSES_MAX {
            let message = format!("a goal can be paused {PAUSES_MAX} times");
            return self.refuse(Fault::new(Code::InputTooLarge, message).at("/verb"));
        }
        if self.state.paused.is_none() {
            self.say(Body::Paused { by: by.to_owned() });
        }
    }

    pub(super) fn on_resume(&mut self, by: &str) {
        if self.state.paused.is_some() {
            self.say(Body::Resumed { by: by.to_owned() });
            self.plan_wait_due();
        }
    }

    /// Takeover. What the old owner had outside is sealed, looked at again or asked
    /// again; nothing is assumed of it.
    pub(super) fn on_owner_changed(&mut self, node: &NodeId) {
        self.say(Body::Owned { node: node.clone() });
        let waits = |p: &crate::state::Planning| p.wait_until_ms.is_none();
        if self.state.planning.as_ref().is_some_and(waits) {
            self.request_plan(PlanWhy::Takeover);
        }
        for id in self.open_steps() {
            let Some(s) = self.state.step(&id) else {
                continue;
            };
            match s.status {
                Status::Running => self.seal(&id, SealWhy::Takeover),
                Status::Sealing { why } => self.seal(&id, why),
                Status::Looking => self.look(&id),
                // Every transition leaves a step somewhere else than `Between`.
                _ => {}
            }
        }
    }

    /// Back to the start line, now: `advance` picks it up.
    pub(super) fn start_again(&mut self, id: &StepId) {
        self.wait_until(id, self.cx.now_ms, WaitWhy::Backoff);
    }
}

/// Amendments that a goal takes.
pub(crate) const AMENDMENTS_MAX: usize = 64;
/// How often a goal can be paused: each time is kept in its journal.
pub(crate) const PAUSES_MAX: u32 = 64;

/// Id of the question about an attempt: the same on every node that asks it.
pub(super) fn question_id(goal: &GoalId, step: &StepId, attempt: u32, n: u64) -> QuestionId {
    let digest = detent_protocol::json::Digest::of_parts(&[
        goal.as_bytes(),
        step.as_str().as_bytes(),
        &attempt.to_le_bytes(),
        &n.to_le_bytes(),
    ]);
    // Twelve hex digits are always a valid name.
    #[allow(clippy::expect_used)]
    QuestionId::new(format!("q-{}", digest.short())).expect("hex digits")
}
