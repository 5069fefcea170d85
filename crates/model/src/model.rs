//! The model: what can happen in a state, and what then is.

use crate::action::Action;
use crate::config::Setting;
use crate::decide::Rules;
use crate::fold::{Closing, End, Status};
use crate::invariant::{self, Invariant};
use crate::mutation::Mutation;
use crate::reduce::reduce;
use crate::state::{Budget, State};
use crate::{executor, owner, publisher, quiet};
use stateright::{Model, Property};
use std::sync::atomic::{AtomicU32, Ordering};

/// The protocol under one configuration.
pub struct Protocol {
    /// What the agent and its tool declare.
    pub rules: Rules,
    /// How many faults and wishes there are.
    pub budget: Budget,
    /// A plan after the first may want the effect with other arguments.
    pub other_args: bool,
    /// Checks in every state that the goal ends when no more faults come.
    pub quiet: bool,
    /// States that differ in nothing which can matter any more are made the same.
    pub reduced: bool,
    seen: AtomicU32,
}

impl Protocol {
    /// The model of a setting.
    pub fn new(setting: &Setting) -> Self {
        Self {
            rules: setting.rules,
            budget: setting.budget,
            other_args: setting.other_args,
            quiet: setting.quiet,
            reduced: setting.reduced,
            seen: AtomicU32::new(0),
        }
    }

    /// Is this mistake planted?
    pub fn bug(&self, bug: Mutation) -> bool {
        self.rules.bug == Some(bug)
    }

    /// Does the tool behind the token add up instead of setting a register?
    pub fn adds(&self) -> bool {
        self.bug(Mutation::FencedAddsUp)
    }

    /// Everything that can happen.
    pub fn all_actions(&self, s: &State, into: &mut Vec<Action>) {
        if s.broken.word() != 0 {
            // What follows a broken invariant proves nothing.
            return;
        }
        publisher::actions(self, s, into);
        owner::actions(self, s, into);
        executor::actions(self, s, into);
    }

    /// What then is; `None` where the action makes no difference.
    pub fn after(&self, s: &State, action: Action) -> Option<State> {
        let mut next = *s;
        publisher::step(self, &mut next, action);
        owner::step(self, &mut next, action);
        executor::step(self, &mut next, action);
        if self.reduced {
            reduce(self, &mut next);
        }
        (next != *s).then_some(next)
    }

    /// Is something on its way for an open goal that no fault is needed for?
    pub fn is_waiting_for_something(&self, s: &State) -> bool {
        if !s.journal.is_open() || s.broken.word() != 0 {
            return true;
        }
        let mut actions = Vec::with_capacity(16);
        self.all_actions(s, &mut actions);
        let moves = actions
            .into_iter()
            .any(|a| quiet::is_free(self, s, a).is_some());
        moves && (!self.quiet || quiet::ends(self, s))
    }

    /// True the first time only. The checker notes every state in which it finds what it
    /// looks for, the last one for good; of the first the way is the shortest.
    fn first(&self, place: u32, reached: bool) -> bool {
        reached && self.seen.fetch_or(1 << place, Ordering::Relaxed) & (1 << place) == 0
    }
}

/// Ways in which a goal has to be able to end, or to get there.
pub const GOALS: [&str; 12] = [
    "succeeds",
    "fails",
    "ends unknown",
    "is cancelled",
    "succeeds after a takeover",
    "succeeds after a second attempt",
    "asks a person",
    "is bound to an earlier step",
    "is refused for other arguments",
    "is taken back",
    "is rolled up",
    "succeeds after a restore",
];

fn reaches(s: &State, goal: usize) -> bool {
    let f = &s.journal;
    let succeeded = f.end == Some(End::Succeeded);
    match goal {
        0 => succeeded,
        1 => f.end == Some(End::Failed),
        2 => f.end == Some(End::Unknown),
        3 => f.end == Some(End::Cancelled),
        4 => succeeded && f.epoch > 1,
        5 => succeeded && f.attempt > 1,
        6 => f.status == Status::Asking,
        7 => succeeded && f.revision > 1 && f.prior == Status::Done && f.attempt == 1,
        8 => {
            f.prior == Status::Done
                && f.status == Status::Failed
                && f.effect_other_args != f.other_args
        }
        9 => f.end.is_some() && f.undoing && f.status == Status::Done,
        10 => f.tombstone,
        _ => succeeded && s.set_back,
    }
}

macro_rules! always {
    ($($invariant:ident)*) => {
        vec![$(Property::<Protocol>::always(Invariant::$invariant.name(), |m, s| {
            let place = GOALS.len() as u32 + Invariant::$invariant as u32;
            !m.first(place, !invariant::holds(m, s, Invariant::$invariant))
        }),)*]
    };
}
macro_rules! sometimes {
    ($into:ident, $($goal:literal)*) => {
        $($into.push(Property::<Protocol>::sometimes(GOALS[$goal], |m, s| {
            m.first($goal, reaches(s, $goal))
        }));)*
    };
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(self.budget)]
    }

    fn actions(&self, s: &State, into: &mut Vec<Action>) {
        self.all_actions(s, into);
    }

    fn next_state(&self, s: &State, action: Action) -> Option<State> {
        self.after(s, action)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut all = always!(I1 I2 I3 I4 I5 I6 I7 I10 I14 I15 I16);
        sometimes!(all, 0 1 2 3 4 5 6 7 8 9 10 11);
        all
    }
}

/// Is the goal only waiting for its executors to refuse it?
pub(crate) fn waits_for_goal_seal(f: &crate::fold::Fold) -> bool {
    f.closing == Closing::Cancelled && f.status.is_end() && f.end.is_none()
}
