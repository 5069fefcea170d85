//! The rules of the loop, as `orchestrator::decide` has them, for a plan of one step.
//!
//! One turn: an event and the fold give the next fold, and whether a tool is called once
//! that is confirmed. Sealing, looking and the goal's seal are no commands here: they
//! are what an owner may do while the fold says so, and doing one twice changes nothing.

use crate::fold::{Closing, Effect, End, Fold, Halt, Presence, Status};
use crate::mutation::Mutation;

/// Attempts of a goal: its budget of tool calls.
pub const ATTEMPTS: u8 = 3;
/// Both executors.
pub const EVERYBODY: u8 = 0b11;

/// What the definition of the agent and its tool says, and what is wrong on purpose.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// What the tool does.
    pub effect: Effect,
    /// The tool declares `settles_within_ms`.
    pub settles: bool,
    /// Attempts of one step.
    pub tries_max: u8,
    /// New plans after a failure.
    pub replans_max: u8,
    /// The tool has an `undo`, and the policy unwinds.
    pub undo: bool,
    /// A deliberate mistake.
    pub bug: Option<Mutation>,
}

/// What can happen to a goal. Names as in `orchestrator::Event`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A node takes it over.
    OwnerChanged(u8),
    /// A plan came, with the first plan's arguments or with others.
    PlanReceived {
        /// Others.
        other_args: bool,
    },
    /// A wait before an attempt is over.
    TimeCame,
    /// The tool says that it is done.
    ToolCompleted,
    /// The tool started and failed.
    ToolFailed,
    /// The tool never started.
    ToolRefused,
    /// No clear answer in time.
    ToolSilent,
    /// The attempt's slot was won with `revoked`.
    SealedNeverStarted,
    /// Its processes have ended; what the ledger says of it.
    SealedEnded(Option<bool>),
    /// It could not be sealed.
    SealFailed,
    /// The effect was seen.
    SeenPresent,
    /// It was not there.
    SeenAbsent,
    /// What was sent has settled.
    Settled,
    /// A person says that it happened.
    AnswerHappened,
    /// A person says that it did not.
    AnswerAbsent,
    /// A person leaves it, or nobody answered in time.
    AnswerNone,
    /// Somebody wants it stopped.
    Cancel,
    /// Somebody changes it.
    Amend,
    /// The deadline passed.
    Deadline,
    /// Executors have acknowledged the goal's seal.
    GoalSealed {
        /// These, a bit each.
        confirmed: u8,
        /// These could not be reached.
        unconfirmed: u8,
    },
}

/// What a turn decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    /// The fold after its entry.
    pub next: Fold,
    /// The tool is called, once the entry is confirmed.
    pub call: bool,
}

/// Decides what follows from `event`.
pub fn decide(rules: &Rules, fold: &Fold, event: Event) -> Decision {
    let mut turn = Turn {
        rules,
        f: *fold,
        call: false,
    };
    turn.handle(event);
    let starts = matches!(event, Event::TimeCame | Event::PlanReceived { .. });
    turn.advance(starts);
    Decision {
        next: turn.f,
        call: turn.call,
    }
}

struct Turn<'a> {
    rules: &'a Rules,
    f: Fold,
    call: bool,
}

impl Turn<'_> {
    fn bug(&self, bug: Mutation) -> bool {
        self.rules.bug == Some(bug)
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::OwnerChanged(node) => self.on_owner_changed(node),
            Event::PlanReceived { other_args } => self.on_plan(other_args),
            Event::TimeCame => {}
            Event::ToolCompleted | Event::SealedEnded(Some(true)) => self.after_done(),
            Event::ToolFailed | Event::SealedEnded(Some(false) | None) => {
                self.f.settled = false;
                self.after_failure();
            }
            Event::ToolRefused | Event::SealedNeverStarted => {
                self.attempt_had_no_effect();
                self.f.settled = false;
                self.after_failure();
            }
            Event::ToolSilent => self.on_silent(),
            Event::SealFailed => self.undecided(),
            Event::SeenPresent => self.on_present(),
            Event::SeenAbsent => self.on_absent(),
            Event::Settled => {
                self.f.settled = true;
                self.f.status = Status::Looking;
            }
            Event::AnswerHappened => self.on_present(),
            Event::AnswerAbsent => {
                self.proven_absent();
                self.f.tries = 0;
                self.f.status = Status::Ready;
            }
            Event::AnswerNone => self.end_step(Status::Unknown),
            Event::Cancel => self.on_cancel(),
            Event::Amend => {
                self.f.halt = Halt::Amended;
                self.f.planning = false;
            }
            Event::Deadline => self.close(Closing::Deadline),
            Event::GoalSealed {
                confirmed,
                unconfirmed,
            } => {
                self.f.confirmed = confirmed;
                self.f.unconfirmed = unconfirmed;
                self.f.end = Some(End::Cancelled);
            }
        }
    }

    /// Takeover. What the old owner had outside is sealed; nothing is assumed of it.
    fn on_owner_changed(&mut self, node: u8) {
        self.f.epoch += 1;
        self.f.owner = node;
        if self.f.restored {
            // Settling counts from the restore: what the lost history sent is not older.
            self.f.settled = false;
            if self.f.status == Status::Settling {
                self.f.status = Status::Looking;
            }
        }
        if self.f.status == Status::Running {
            self.f.status = match self.rules.bug {
                Some(Mutation::TakeoverWithoutSeal) => Status::Ready,
                Some(Mutation::TakeoverLooksOnly) => Status::Looking,
                _ => Status::Sealing,
            };
        }
    }

    fn on_plan(&mut self, other_args: bool) {
        let f = &mut self.f;
        // What is known of the effect belongs to an earlier step from here on.
        f.prior = match (f.prior, f.status) {
            (Status::Done, _) | (_, Status::Done) => Status::Done,
            (Status::Unknown, _) | (_, Status::Unknown) => Status::Unknown,
            (_, status) => status,
        };
        f.holds = false;
        f.revision += 1;
        f.planning = false;
        f.other_args = other_args;
        (f.tries, f.open, f.open_before, f.settled) = (0, false, false, false);
        f.status = Status::Ready;
    }

    // ---- how attempts end ------------------------------------------------------

    fn after_done(&mut self) {
        self.f.settled = false;
        if !self.rules.effect.has_slot() || self.bug(Mutation::BelieveTheTool) {
            return self.on_present();
        }
        self.f.status = Status::Looking;
    }

    fn on_silent(&mut self) {
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
    fn attempt_had_no_effect(&mut self) {
        self.f.open = self.f.open_before;
        if !self.f.open && self.f.holds {
            self.f.effect = Presence::Absent;
        }
    }

    /// An attempt ended badly or was sealed.
    fn after_failure(&mut self) {
        if !self.f.open {
            return self.retry_or_leave();
        }
        let honoured = matches!(self.rules.effect, Effect::Idempotent | Effect::Fenced);
        if honoured && self.goes_on() && self.f.tries < self.rules.tries_max {
            self.f.status = Status::Ready;
        } else {
            self.f.status = Status::Looking;
        }
    }

    /// May anything more be started? Unwinding is a plan of its own.
    fn goes_on(&self) -> bool {
        self.f.undoing || (self.f.closing == Closing::No && self.f.halt == Halt::No)
    }

    fn on_present(&mut self) {
        self.f.restored = false;
        self.f.open = false;
        if self.rules.effect.has_slot() {
            self.f.effect = Presence::Present;
            self.f.holds = true;
        }
        self.f.status = Status::Done;
    }

    fn proven_absent(&mut self) {
        self.f.restored = false;
        (self.f.open, self.f.open_before) = (false, false);
        self.f.effect = Presence::Absent;
    }

    fn on_absent(&mut self) {
        let early = self.bug(Mutation::LookThenSeal) && self.f.status == Status::Sealing;
        let unsettled = early || self.bug(Mutation::AbsentWithoutSettling);
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
    fn retry_or_leave(&mut self) {
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
    fn undecided(&mut self) {
        if !self.f.open {
            return self.retry_or_leave();
        }
        if self.f.closing != Closing::No {
            return self.end_step(Status::Unknown);
        }
        self.f.status = Status::Asking;
    }

    fn end_step(&mut self, end: Status) {
        self.f.status = end;
        let failed = matches!(end, Status::Failed | Status::Unknown);
        if failed && self.f.closing == Closing::No && self.f.halt == Halt::No {
            self.f.halt = Halt::Failed;
        }
    }

    // ---- starting ----------------------------------------------------------------

    fn start(&mut self) {
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
    fn look_for_earlier(&mut self) {
        let f = &mut self.f;
        (f.open, f.open_before, f.settled) = (true, true, false);
        f.effect = Presence::Open;
        f.holds = true;
        f.status = Status::Looking;
    }

    fn attempt(&mut self) {
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

    // ---- closing and ending --------------------------------------------------------

    fn on_cancel(&mut self) {
        if self.bug(Mutation::CancelEndsAtOnce) {
            self.f.closing = Closing::Cancelled;
            self.f.status = Status::Skipped;
            self.f.confirmed = EVERYBODY;
            self.f.end = Some(End::Cancelled);
            return;
        }
        if self.f.closing != Closing::Cancelled {
            self.close(Closing::Cancelled);
        }
    }

    fn close(&mut self, why: Closing) {
        self.f.closing = why;
        self.f.halt = Halt::No;
        self.f.planning = false;
        match self.f.status {
            // What is being taken back goes on being taken back.
            _ if self.f.undoing => {}
            Status::Running if why != Closing::Failed => self.f.status = Status::Sealing,
            Status::Asking => self.f.status = Status::Unknown,
            _ => {}
        }
    }

    /// What follows by itself. `starts`: a wait is over or a plan is there, so a step
    /// that is ready starts with this entry.
    fn advance(&mut self, starts: bool) {
        if self.f.end.is_some() {
            return;
        }
        if starts && self.f.status == Status::Ready && self.goes_on() {
            self.start();
        }
        if self.f.closing == Closing::No && self.f.halt != Halt::No {
            self.advance_halted();
        }
        if self.f.closing != Closing::No {
            return self.advance_closing();
        }
        if self.f.status == Status::Done && self.f.halt == Halt::No && !self.f.planning {
            self.f.end = Some(End::Succeeded);
        }
    }

    /// A new plan is due: lets what is outside come home, then puts the rest aside.
    fn advance_halted(&mut self) {
        if self.f.status == Status::Ready {
            self.put_aside();
        }
        let home = self.f.status.is_end() || self.f.status == Status::None;
        if !home || self.f.planning {
            return;
        }
        let amended = self.f.halt == Halt::Amended;
        let unknown = self.f.status == Status::Unknown;
        if amended || (!unknown && self.f.replans < self.rules.replans_max) {
            self.f.replans += u8::from(!amended);
            self.f.halt = Halt::No;
            self.f.planning = true;
        } else {
            self.close(Closing::Failed);
        }
    }

    fn put_aside(&mut self) {
        if self.f.restored && self.rules.effect.has_slot() {
            return self.look_for_earlier();
        }
        if self.f.open && !self.bug(Mutation::CancelClaimsNothing) {
            self.f.settled = false;
            self.f.status = Status::Looking;
        } else {
            self.end_step(Status::Skipped);
        }
    }

    fn advance_closing(&mut self) {
        match self.f.status {
            Status::Ready if !self.f.undoing => self.put_aside(),
            Status::None => self.f.status = Status::Skipped,
            _ => {}
        }
        if !self.f.status.is_end() {
            return;
        }
        if self.rules.undo && !self.f.undoing && self.f.status == Status::Done {
            self.unwind();
        }
        if !self.f.status.is_end() {
            return;
        }
        if self.f.restored && self.f.status != Status::Done {
            // Steps that the back-up does not know can't be looked at.
            self.f.status = Status::Unknown;
        }
        let unknown = [self.f.status, self.f.prior].contains(&Status::Unknown);
        match self.f.closing {
            Closing::Failed | Closing::Deadline if unknown => self.f.end = Some(End::Unknown),
            Closing::Failed | Closing::Deadline => self.f.end = Some(End::Failed),
            Closing::Cancelled | Closing::No => {}
        }
    }

    /// Takes the effect back: a step of its own, with its own identity.
    fn unwind(&mut self) {
        let f = &mut self.f;
        f.undoing = true;
        f.prior = Status::Done;
        f.effect = Presence::Never;
        f.holds = false;
        (f.tries, f.open, f.open_before, f.settled) = (0, false, false, false);
        f.status = Status::Ready;
        self.start();
    }
}
