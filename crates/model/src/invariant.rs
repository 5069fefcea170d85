//! The invariants that the model holds, by their numbers.

use crate::fold::{Closing, Effect, End, Status};
use crate::model::Protocol;
use crate::state::State;

/// Invariants; the text of each is in `ARCHITECTURE.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Invariant {
    /// An accepted goal ends exactly once.
    I1,
    /// One effective owner.
    I2,
    /// No command before the record that intends it.
    I3,
    /// An attempt with an effect starts at most once.
    I4,
    /// A `once` step waits for proof.
    I5,
    /// Success rests on observations, and the end tells the truth.
    I6,
    /// After a cancel's receipt nothing lives and nothing starts.
    I7,
    /// The state is the fold of the journal.
    I10,
    /// One key makes one goal.
    I14,
    /// A goal waits for something that can come; a control message is not lost.
    I15,
    /// One identity is one effect.
    I16,
}

impl Invariant {
    /// All of them.
    pub const ALL: [Invariant; 11] = [
        Invariant::I1,
        Invariant::I2,
        Invariant::I3,
        Invariant::I4,
        Invariant::I5,
        Invariant::I6,
        Invariant::I7,
        Invariant::I10,
        Invariant::I14,
        Invariant::I15,
        Invariant::I16,
    ];

    /// Its number and what it says, as the checker prints it.
    pub fn name(self) -> &'static str {
        match self {
            Invariant::I1 => "I1 an accepted goal is kept and ends exactly once",
            Invariant::I2 => "I2 one effective owner",
            Invariant::I3 => "I3 no command before its record",
            Invariant::I4 => "I4 an attempt starts at most once",
            Invariant::I5 => "I5 once: not again until proven absent",
            Invariant::I6 => "I6 the end tells the truth",
            Invariant::I7 => "I7 nothing lives after a cancel's receipt",
            Invariant::I10 => "I10 the state is the fold of the journal",
            Invariant::I14 => "I14 one key, one goal",
            Invariant::I15 => "I15 what is waited for can come",
            Invariant::I16 => "I16 one identity, one effect",
        }
    }
}

/// Invariants that something which happened has broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Broken(u16);

impl Broken {
    /// Notes one.
    pub fn add(&mut self, invariant: Invariant) {
        self.0 |= 1 << invariant as u8;
    }

    /// Is it broken?
    pub fn has(self, invariant: Invariant) -> bool {
        self.0 & (1 << invariant as u8) != 0
    }

    /// All of them as a word.
    pub fn word(self) -> u64 {
        self.0.into()
    }
}

/// Does the invariant hold in this state?
pub fn holds(model: &Protocol, s: &State, invariant: Invariant) -> bool {
    if s.broken.has(invariant) {
        return false;
    }
    match invariant {
        Invariant::I1 => is_kept(s),
        Invariant::I3 => is_intended(s),
        Invariant::I6 => is_true(model, s),
        Invariant::I7 => is_quiet(s),
        Invariant::I15 => is_cancel_kept(s) && model.is_waiting_for_something(s),
        Invariant::I16 => is_single(model, s),
        Invariant::I2 | Invariant::I4 | Invariant::I5 | Invariant::I10 | Invariant::I14 => true,
    }
}

/// What the publisher was told is in the journal. A back-up that is put back may know
/// neither: what is promised then is that nothing is done twice.
fn is_kept(s: &State) -> bool {
    let kept = !s.publisher.accepted || s.journal.epoch > 0 || s.publisher.unwritten;
    let told = s.publisher.result.is_none_or(|r| s.journal.end == Some(r));
    s.set_back || (kept && told)
}

/// Nothing is under way or alive that the journal does not intend.
fn is_intended(s: &State) -> bool {
    let not_intended = &s.runs[usize::from(s.journal.attempt)..];
    not_intended.iter().all(|r| !r.called && r.live == 0)
}

/// What the end says of the effect is so.
fn is_true(model: &Protocol, s: &State) -> bool {
    let f = &s.journal;
    let Some(end) = f.end else { return true };
    if !model.rules.effect.has_slot() {
        return true;
    }
    if f.undoing {
        return says(s, true, f.status);
    }
    if end == End::Succeeded {
        return s.is_visible(false);
    }
    let of_both = match (f.status, f.prior) {
        (Status::Unknown, _) | (_, Status::Unknown) => Status::Unknown,
        (Status::Done, _) | (_, Status::Done) => Status::Done,
        (status, _) => status,
    };
    says(s, false, of_both)
}

fn says(s: &State, undo: bool, status: Status) -> bool {
    match status {
        Status::Done => s.is_visible(undo),
        Status::Unknown => true,
        _ => !s.is_visible(undo) && !s.may_still_act(undo),
    }
}

fn is_quiet(s: &State) -> bool {
    let f = &s.journal;
    if f.end != Some(End::Cancelled) {
        return true;
    }
    let all_named = f.confirmed | f.unconfirmed == crate::decide::EVERYBODY;
    all_named && s.runs.iter().all(|r| r.live & f.confirmed == 0)
}

/// A cancel that was sent is in the inbox or in the journal.
fn is_cancel_kept(s: &State) -> bool {
    let p = &s.publisher;
    let taken = s.journal.closing == Closing::Cancelled || s.journal.end.is_some();
    !p.cancelled || p.cancel || taken || s.set_back
}

fn is_single(model: &Protocol, s: &State) -> bool {
    // A register that is set twice to the same is set.
    model.rules.effect == Effect::Fenced && !model.adds()
        || s.world.done <= 1 && s.world.undone <= 1
}

/// What an open goal waits for (I15), in words.
pub fn waits_for(s: &State) -> &'static str {
    let f = &s.journal;
    if f.epoch == 0 {
        return "a submission";
    }
    if f.end.is_some() {
        return "nothing: it has ended";
    }
    if !s.has_live_owner() {
        return "an owner";
    }
    match f.status {
        _ if f.planning || f.status == Status::None => "a plan",
        Status::Ready => "the wait before an attempt",
        Status::Running => "a tool",
        Status::Sealing => "an attempt's seal",
        Status::Looking => "a look at the world",
        Status::Settling => "what was sent to settle",
        Status::Asking => "a person",
        Status::Done | Status::Failed | Status::Skipped | Status::Unknown | Status::None => {
            "the executors' seals of the goal"
        }
    }
}
