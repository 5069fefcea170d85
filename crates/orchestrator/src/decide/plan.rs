//! Planning: asking, believing, refusing, giving up.

use super::Turn;
use crate::command::Command;
use detent_protocol::budget::Amount;
use detent_protocol::messages::{PlanAnswer, PlanRequest};
use detent_protocol::plan::{self, PlanContext};
use detent_protocol::record::{Body, CloseWhy, PlanNext, PlanWhy};
use detent_protocol::{Code, Fault};

/// The planner that is no model: it costs no tokens and does not change its mind.
pub(crate) const PLAYBOOK: &str = "playbook";
/// Tokens reserved for one call of a model, in and out.
pub(crate) const TOKENS_RESERVED: u64 = 32_768;
/// How often a model is asked again after an answer that was refused.
const REFUSALS_MAX: u32 = 2;
/// How often an absent planner is waited for.
const WAITS_MAX: u32 = 3;
/// First wait for an absent planner, milliseconds; doubles.
const WAIT_MS: u64 = 1_000;
/// Longest wait that a planner may ask for, milliseconds.
const WAIT_MS_MAX: u64 = 600_000;

impl Turn<'_> {
    /// Reserves the cost and asks the planner that is next.
    pub(super) fn request_plan(&mut self, why: PlanWhy) {
        let fresh = matches!(
            why,
            PlanWhy::NewGoal | PlanWhy::StepFailed { .. } | PlanWhy::Amended
        );
        let revision = self.state.revision + u32::from(fresh);
        let place = if fresh { 0 } else { self.state.provider };
        let Some(provider) = self.cx.definition.agent().reasoners.get(place).cloned() else {
            let fault = Fault::new(Code::ModelUnavailable, "no further planner in the list");
            return self.close(CloseWhy::Failed { fault });
        };
        let reserve = self.plan_reserve(&provider);
        if let Some(part) = self.state.budget.refuses(reserve) {
            let message = format!("{part} is used up; no plan can be asked for");
            let fault = Fault::new(Code::BudgetExhausted, message);
            return self.close(CloseWhy::Failed { fault });
        }
        self.say(Body::PlanRequested {
            revision,
            provider: provider.clone(),
            why,
            reserve,
        });
        let request = PlanRequest {
            tenant: self.state.tenant.clone(),
            goal: self.state.goal,
            revision,
            snapshot: self.snapshot(&provider),
            tokens_max: reserve.tokens,
        };
        self.commands.push(Command::Plan {
            provider,
            request: Box::new(request),
        });
    }

    /// A model's call reserves what is left of the budget, up to a bound: a small
    /// budget still gets its call, and none is passed by more than it.
    fn plan_reserve(&self, provider: &str) -> Amount {
        let left = self.state.budget.limits.tokens;
        let left = left.saturating_sub(self.state.budget.committed.tokens);
        let tokens = if provider == PLAYBOOK {
            0
        } else {
            TOKENS_RESERVED.min(left).max(1)
        };
        Amount {
            plan_calls: 1,
            tokens,
            ..Amount::default()
        }
    }

    /// Is this the answer that is waited for?
    fn awaits_plan(&self, revision: u32) -> bool {
        let planning = self.state.planning.as_ref();
        planning.is_some_and(|p| p.revision == revision && p.wait_until_ms.is_none())
    }

    pub(super) fn on_plan_received(&mut self, revision: u32, answer: &PlanAnswer) {
        if !self.awaits_plan(revision) {
            return;
        }
        let used = Amount {
            plan_calls: 1,
            tokens: answer.tokens,
            ..Amount::default()
        };
        let faults = match plan::parse(&answer.plan) {
            Err(fault) => vec![fault],
            Ok(plan) => {
                let faults = self.violations(&plan, answer.trusted);
                if faults.is_empty() {
                    return self.say(Body::Planned {
                        revision,
                        plan,
                        used,
                    });
                }
                faults
            }
        };
        self.refuse_plan(revision, faults, used, answer.trusted);
    }

    fn violations(&self, plan: &plan::Plan, trusted: bool) -> Vec<Fault> {
        let state = &self.state;
        let used = |id: &_| state.steps.contains_key(id);
        let done = |id: &_| {
            let step = state.step(id);
            step.is_some_and(|s| s.status == crate::state::Status::Done)
        };
        let mut faults = plan.violations(&PlanContext {
            definition: self.cx.definition,
            used: &used,
            done: &done,
            trusted,
        });
        // What a person or a model is told is bounded; the rest comes up next time.
        faults.truncate(16);
        faults
    }

    /// A model gets the violation and another try; a playbook would only say the same.
    fn refuse_plan(&mut self, revision: u32, faults: Vec<Fault>, used: Amount, fixed: bool) {
        if !fixed && self.state.refusals < REFUSALS_MAX {
            self.say(Body::PlanRefused {
                revision,
                faults,
                used,
                next: PlanNext::AskAgain,
            });
            return self.request_plan(PlanWhy::Again);
        }
        self.next_planner(revision, faults, used);
    }

    fn next_planner(&mut self, revision: u32, faults: Vec<Fault>, used: Amount) {
        let reasoners = &self.cx.definition.agent().reasoners;
        let more = self.state.provider + 1 < reasoners.len();
        let fault = faults.first().cloned();
        self.say(Body::PlanRefused {
            revision,
            faults,
            used,
            next: if more {
                PlanNext::NextProvider
            } else {
                PlanNext::GiveUp
            },
        });
        if more {
            return self.request_plan(PlanWhy::Unavailable);
        }
        let fault = fault.unwrap_or_else(|| Fault::new(Code::ModelUnavailable, "no plan"));
        self.close(CloseWhy::Failed { fault });
    }

    pub(super) fn on_plan_failed(&mut self, revision: u32, fault: &Fault) {
        if !self.awaits_plan(revision) {
            return;
        }
        // What it cost is not known, so all that was reserved counts as used.
        let provider = self.state.planning.as_ref().map(|p| p.provider.clone());
        let fixed = provider.as_deref() == Some(PLAYBOOK);
        let reserved = self.state.planning.as_ref().map(|p| p.reserved);
        let used = reserved.unwrap_or_default();
        let faults = vec![fault.clone()];
        match fault.code {
            Code::ModelMalformed | Code::ModelHallucination | Code::ModelFalseClaim => {
                self.refuse_plan(revision, faults, used, fixed);
            }
            Code::ModelUnavailable if self.state.plan_waits < WAITS_MAX => {
                // A planner that says when to come back did not run. Of any other it is
                // not known: a call that timed out may be billed.
                let used = if fault.retry_after_ms.is_some() {
                    Amount { tokens: 0, ..used }
                } else {
                    used
                };
                let wait = fault
                    .retry_after_ms
                    .unwrap_or(WAIT_MS << self.state.plan_waits);
                let wait = self.jitter(wait.min(WAIT_MS_MAX), u64::from(revision));
                self.say(Body::PlanRefused {
                    revision,
                    faults,
                    used,
                    next: PlanNext::Wait {
                        until_ms: self.cx.now_ms.saturating_add(wait),
                    },
                });
            }
            _ => self.next_planner(revision, faults, used),
        }
    }

    /// Up to a quarter more, fixed by goal, time and `salt`: many goals that failed
    /// together must not come back together, and the same journal gives the same wait.
    pub(super) fn jitter(&self, wait_ms: u64, salt: u64) -> u64 {
        let goal = self.state.goal.as_bytes();
        let parts = [
            &goal[..],
            &salt.to_le_bytes(),
            &self.cx.now_ms.to_le_bytes(),
        ];
        let digest = detent_protocol::json::Digest::of_parts(&parts);
        let random = u64::from(digest.0[0]);
        wait_ms.saturating_add(wait_ms / 4 * random / 255)
    }

    /// A wait for a planner is over.
    pub(super) fn plan_wait_due(&mut self) {
        let due = self.state.planning.as_ref().and_then(|p| p.wait_until_ms);
        if due.is_some_and(|t| t <= self.cx.now_ms) && self.state.paused.is_none() {
            self.request_plan(PlanWhy::Unavailable);
        }
    }
}
