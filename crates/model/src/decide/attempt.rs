//! How an attempt starts, how it ends, and what follows: seal, observe, decide.

use super::{ATTEMPTS, Turn};
use crate::fold::{Closing, Effect, Halt, Presence, Status};
use crate::mutation::Mutation;

impl Turn<'_> {
    pub(super) fn after_done(&mut self) {
        self.f.settled = false;
        if !self.rules.effect.has_slot() || self.bug(Mutation::BelieveTheTool) {
            return self.on_present();
        }
        self.f.status = Status::Looking;
    }

    pub(super) fn on_silent(&mut self) {
        self.f.settled = false;
        self.f.status = match self.rules.bug {
            Some(Mutation::RetryOnOwnTimeout) => Status::Ready,
            Some(Mutation::LookWithoutSeal) => {
                self.f.settled = true;
                Status::Looking
            }
            _ => Status::Sealing,
        };
    }

    /// Whether an effect is open is as it was before the last attempt.
    pub(super) fn attempt_had_no_effect(&mut self) {
        self.f.open = self.f.open_before;
        if !self.f.open && self.f.holds {
            self.f.effect = Presence::Absent;
        }
    }

    /// An attempt ended badly or was sealed.
    pub(super) fn after_failure(&mut self) {
        if !self.f.open {
            return self.retry_or_leave();
        }
        let honoured = matches!(self.rules.effect, Effect::Idempotent | Effect::Fenced);
        let honoured = honoured || self.bug(Mutation::SealedCountsAsAbsent);
        if honoured && self.goes_on() && self.f.tries < self.rules.tries_max {
            self.f.status = Status::Ready;
        } else {
            self.f.status = Status::Looking;
        }
    }

    /// May anything more be started? Unwinding is a plan of its own.
    pub(super) fn goes_on(&self) -> bool {
        self.f.undoing || (self.f.closing == Closing::No && self.f.halt == Halt::No)
    }

    pub(super) fn on_present(&mut self) {
        self.f.restored = false;
        self.f.open = false;
        if self.rules.effect.has_slot() {
            self.f.effect = Presence::Present;
            self.f.holds = true;
        }
        self.f.status = Status::Done;
    }

    pub(super) fn proven_absent(&mut self) {
        self.f.restored = false;
        (self.f.open, self.f.open_before) = (false, false);
        self.f.effect = Presence::Absent;
    }

    pub(super) fn on_absent(&mut self) {
        let early = self.bug(Mutation::LookThenSeal) && self.f.status == Status::Sealing;
        let unsettled = early
            || self.bug(Mutation::AbsentWithoutSettling)
            || self.bug(Mutation::AbsentUndeclared);
        let declared = self.rules.settles || unsettled;
        if declared && (self.f.settled || unsettled) {
            self.proven_absent();
            return self.retry_or_leave();
        }
        if declared {
            self.f.status = Status::Settling;
            return;
        }
        let honoured = matches!(self.rules.effect, Effect::Idempotent | Effect::Fenced);
        if honoured && self.goes_on() && self.f.tries < self.rules.tries_max {
            self.f.restored = false;
            self.f.status = Status::Ready;
            return;
        }
        self.undecided();
    }

    /// No effect is open: another try, or the end of the step.
    pub(super) fn retry_or_leave(&mut self) {
        if !self.goes_on() && self.f.closing != Closing::No {
            return self.end_step(Status::Skipped);
        }
        if self.f.tries < self.rules.tries_max {
            self.f.status = Status::Ready;
        } else {
            self.end_step(Status::Failed);
        }
    }

    /// Nobody can say whether the effect happened.
    pub(super) fn undecided(&mut self) {
        if !self.f.open {
            return self.retry_or_leave();
        }
        if self.f.closing != Closing::No {
            return self.end_step(Status::Unknown);
        }
        self.f.status = Status::Asking;
    }

    pub(super) fn end_step(&mut self, end: Status) {
        self.f.status = end;
        let failed = matches!(end, Status::Failed | Status::Unknown);
        if failed && self.f.closing == Closing::No && self.f.halt == Halt::No {
            self.f.halt = Halt::Failed;
        }
    }

    pub(super) fn start(&mut self) {
        if !self.rules.effect.has_slot() {
            return self.attempt();
        }
        let restored = self.f.restored && !self.bug(Mutation::RestoredGoesOn);
        if restored {
            return self.look_for_earlier();
        }
        let f = &self.f;
        if f.holds || f.undoing || self.bug(Mutation::ReplanNewIdentity) {
            return self.attempt();
        }
        match f.effect {
            Presence::Never | Presence::Absent => self.attempt(),
            _ if f.effect_other_args != f.other_args => self.end_step(Status::Failed),
            Presence::Present if f.prior == Status::Done => {
                // Bound to the step that did it.
                self.f.status = Status::Done;
            }
            Presence::Present => self.look_for_earlier(),
            Presence::Open if self.rules.effect == Effect::Once => self.look_for_earlier(),
            Presence::Open => self.attempt(),
        }
    }

    /// An earlier attempt may have had this effect: no attempt before a look.
    pub(super) fn look_for_earlier(&mut self) {
        let f = &mut self.f;
        (f.open, f.open_before, f.settled) = (true, true, false);
        f.effect = Presence::Open;
        f.holds = true;
        f.status = Status::Looking;
    }

    pub(super) fn attempt(&mut self) {
        if self.f.attempt == ATTEMPTS {
            // BUDGET_EXHAUSTED. What can't be taken back any more is said.
            let open = self.f.open;
            return match self.f.undoing {
                true => self.end_step(if open {
                    Status::Unknown
                } else {
                    Status::Failed
                }),
                false => self.close(Closing::Failed),
            };
        }
        let f = &mut self.f;
        let slot = self.rules.effect.has_slot();
        let known = matches!(f.effect, Presence::Open | Presence::Present);
        f.attempt += 1;
        f.tries += 1;
        f.open_before = f.open || (known && !f.undoing);
        f.open |= slot;
        f.settled = false;
        if slot {
            f.effect = Presence::Open;
            f.holds = true;
            f.effect_other_args = f.other_args;
        }
        f.status = Status::Running;
        self.call = true;
    }
}
