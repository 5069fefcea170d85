//! The rules of the loop, as `orchestrator::decide` has them, for a plan of one step.
//!
//! One turn: an event and the fold give the next fold, and whether a tool is called once
//! that is confirmed. Sealing, looking and the goal's seal are no commands here: they
//! are what an owner may do while the fold says so, and doing one twice changes nothing.

mod attempt;
mod close;

use crate::fold::{Closing, Effect, End, Fold, Halt, Status};
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
}
