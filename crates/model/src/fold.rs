//! What a goal's journal says: the fold of its entries, as small as it can be made.
//!
//! An entry of the model is the fold after it. So "append" sets the fold, "is the tail
//! mine?" compares folds, and the fence is the fold that the writer had seen: no entry
//! leaves the fold as it was, so no two places of one journal look alike.

use crate::pack::Bits;

/// What a tool does to the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Changes nothing.
    Read,
    /// The world honours a key.
    Idempotent,
    /// The world is a register that refuses lower tokens.
    Fenced,
    /// None of these.
    Once,
}

impl Effect {
    /// Has each attempt a slot?
    pub fn has_slot(self) -> bool {
        self != Effect::Read
    }
}

/// Where the current step stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Status {
    /// There is no step: a plan is due.
    #[default]
    None,
    /// It may be started, for the first time or again.
    Ready,
    /// An attempt is intended.
    Running,
    /// The attempt is being given up.
    Sealing,
    /// The world is being looked at.
    Looking,
    /// Waits for what was sent to settle.
    Settling,
    /// A person is asked.
    Asking,
    /// Ended well: its effect was seen, or a person has said so.
    Done,
    /// Ended badly, and no effect of it is left open.
    Failed,
    /// Put aside without an effect.
    Skipped,
    /// Nobody can say whether its effect happened.
    Unknown,
}

impl Status {
    /// Has the step ended?
    pub fn is_end(self) -> bool {
        use Status::{Done, Failed, Skipped, Unknown};
        matches!(self, Done | Failed | Skipped | Unknown)
    }
}

/// What is known of the effect with the goal's one identity (I16).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Presence {
    /// It was never intended.
    #[default]
    Never,
    /// It may be there, or may come.
    Open,
    /// It was seen.
    Present,
    /// It is proven not to be there.
    Absent,
}

/// Why no new attempt is made although the goal is not closing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Halt {
    /// Nothing of the kind.
    #[default]
    No,
    /// Its step failed.
    Failed,
    /// The goal was amended.
    Amended,
}

/// Why the goal is being closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Closing {
    /// It is not.
    #[default]
    No,
    /// It can't be reached any more.
    Failed,
    /// Its deadline passed.
    Deadline,
    /// Somebody cancelled it.
    Cancelled,
}

/// The one terminal record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Every step's effect was seen.
    Succeeded,
    /// Failed; it is known what is there.
    Failed,
    /// Failed with OUTCOME_UNKNOWN.
    Unknown,
    /// Cancelled, with a receipt.
    Cancelled,
}

/// The fold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fold {
    /// Epoch of the last owner; 0 where there is no goal.
    pub epoch: u8,
    /// The last owner.
    pub owner: u8,
    /// Revision of the plan.
    pub revision: u8,
    /// A plan is being made.
    pub planning: bool,
    /// Plans after failures.
    pub replans: u8,
    /// The current step.
    pub status: Status,
    /// Steps of earlier revisions: how the last of them ended.
    pub prior: Status,
    /// The current step's arguments are not those of the first.
    pub other_args: bool,
    /// Last attempt of the goal. The model numbers them through all steps; the code has
    /// a number in each step, and step ids are never used again.
    pub attempt: u8,
    /// Attempts of this step.
    pub tries: u8,
    /// The step's effect may be there.
    pub open: bool,
    /// The same before its last attempt.
    pub open_before: bool,
    /// What was sent had time to settle since the last attempt ended.
    pub settled: bool,
    /// The effect.
    pub effect: Presence,
    /// The effect belongs to the current step.
    pub holds: bool,
    /// Arguments it was intended with are not those of the first plan.
    pub effect_other_args: bool,
    /// Why nothing new is started.
    pub halt: Halt,
    /// Why it is being closed.
    pub closing: Closing,
    /// The current step takes the effect back.
    pub undoing: bool,
    /// Executors named as confirmed in the receipt, a bit each.
    pub confirmed: u8,
    /// Executors named as unconfirmed in the receipt, a bit each.
    pub unconfirmed: u8,
    /// The end.
    pub end: Option<End>,
    /// It came from a back-up, and its step was not looked at since.
    pub restored: bool,
    /// It was rolled up: only the end is left.
    pub tombstone: bool,
}

impl Fold {
    /// Is there a goal that has not ended?
    pub fn is_open(&self) -> bool {
        self.epoch > 0 && self.end.is_none()
    }

    /// Is the last attempt out?
    pub fn runs(&self, attempt: u8) -> bool {
        self.status == Status::Running && self.attempt == attempt
    }

    /// All of it in one word: what is hashed and compared.
    pub fn word(&self) -> u64 {
        let mut bits = Bits::default();
        bits.put(self.epoch.into(), 4);
        bits.put(self.owner.into(), 1);
        bits.put(self.revision.into(), 3);
        bits.flag(self.planning);
        bits.put(self.replans.into(), 2);
        bits.put(self.status as u64, 4);
        bits.put(self.prior as u64, 4);
        bits.flag(self.other_args);
        bits.put(self.attempt.into(), 3);
        bits.put(self.tries.into(), 3);
        bits.flag(self.open);
        bits.flag(self.open_before);
        bits.flag(self.settled);
        bits.put(self.effect as u64, 2);
        bits.flag(self.holds);
        bits.flag(self.effect_other_args);
        bits.put(self.halt as u64, 2);
        bits.put(self.closing as u64, 2);
        bits.flag(self.undoing);
        bits.put(self.confirmed.into(), 2);
        bits.put(self.unconfirmed.into(), 2);
        bits.put(self.end.map_or(0, |e| e as u64 + 1), 3);
        bits.flag(self.restored);
        bits.flag(self.tombstone);
        bits.word()
    }
}
