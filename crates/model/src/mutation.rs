//! Mistakes that the model has to catch. Each is one that a real system has made.

use crate::config::Setting;
use crate::decide::Rules;
use crate::fold::Effect::{self, Fenced, Idempotent, Once, Read};
use crate::invariant::Invariant::{self, I1, I2, I3, I4, I5, I6, I7, I10, I14, I15, I16};
use crate::state::Budget;

macro_rules! mutations {
    ($($(#[doc = $about:literal])+ $name:ident = $id:literal,)*) => {
        /// A planted mistake.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Mutation {
            $($(#[doc = $about])+ $name,)*
        }
        impl Mutation {
            /// All of them.
            pub const ALL: &'static [Mutation] = &[$(Mutation::$name,)*];
            /// Its name on the command line.
            pub fn name(self) -> &'static str {
                match self { $(Mutation::$name => $id,)* }
            }
            /// What is wrong.
            pub fn about(self) -> String {
                let text: &[&str] = match self { $(Mutation::$name => &[$($about),+],)* };
                text.concat().trim().to_owned()
            }
        }
    };
}

mutations! {
    /// The publisher is told "accepted" before the journal has it.
    AckEarly = "ack-early",
    /// The journal loses what it had confirmed, and nobody is told.
    SuffixLost = "suffix-lost",
    /// A refused append is tried again with a refreshed fence.
    RefreshedFence = "refreshed-fence",
    /// After a takeover the attempt that is out is made again.
    TakeoverWithoutSeal = "takeover-without-seal",
    /// After a takeover the world is looked at, and nothing is sealed.
    TakeoverLooksOnly = "takeover-looks-only",
    /// A new attempt on one's own timeout.
    RetryOnOwnTimeout = "retry-on-own-timeout",
    /// A cancel writes the end at once.
    CancelEndsAtOnce = "cancel-ends-at-once",
    /// A tool is called before the record that intends it is confirmed.
    DispatchBeforeIntent = "dispatch-before-intent",
    /// The idempotency key changes with the attempt.
    KeyPerAttempt = "key-per-attempt",
    /// What nobody can know is not put to a person.
    NotEscalated = "not-escalated",
    /// The result is told before the end is in the journal.
    TellEarly = "tell-early",
    /// The world is looked at, and nothing is sealed.
    LookWithoutSeal = "look-without-seal",
    /// The world is looked at before the seal.
    LookThenSeal = "look-then-seal",
    /// A replica is looked at, which lags.
    LookAtReplica = "look-at-replica",
    /// "Not there" counts before what was sent has settled.
    AbsentWithoutSettling = "absent-without-settling",
    /// "Not there" counts for a tool that does not say how long it settles.
    AbsentUndeclared = "absent-undeclared",
    /// What was killed by a seal counts as not done, and nobody looks.
    SealedCountsAsAbsent = "sealed-counts-as-absent",
    /// A cancel says of a step with a key that nothing was done.
    CancelClaimsNothing = "cancel-claims-nothing",
    /// The journal is purged after the end.
    PurgeAfterEnd = "purge-after-end",
    /// The world forgets the highest token.
    GateForgets = "gate-forgets",
    /// An executor takes its node's mark in the slot for its own try's.
    SlotWithoutNonce = "slot-without-nonce",
    /// Slots are deleted while the goal is open.
    SlotDeleted = "slot-deleted",
    /// An attempt starts without its slot.
    NoSlot = "no-slot",
    /// An attempt starts although its slot gave no clear answer.
    StartOnUnclearSlot = "start-on-unclear-slot",
    /// A slot of a goal that was rolled up is won.
    SlotIgnoresTombstone = "slot-ignores-tombstone",
    /// An attempt counts as sealed before its processes have ended.
    SealWithoutWaiting = "seal-without-waiting",
    /// A person is asked while an executor that can't be reached may still start it.
    AskBeforeWaitingOut = "ask-before-waiting-out",
    /// A new plan's step has an identity of its own.
    ReplanNewIdentity = "replan-new-identity",
    /// A goal is found by its wake-up message only.
    WakeUpOnly = "wake-up-only",
    /// A cancel has its receipt before the last executor has acknowledged.
    ReceiptBeforeLast = "receipt-before-last",
    /// A cancel is taken out of the inbox before it is in the journal.
    CancelAckedEarly = "cancel-acked-early",
    /// The journal is read before the claim, and the claim has a fresh fence.
    ClaimWithoutBarrier = "claim-without-barrier",
    /// What the tool says counts as evidence.
    BelieveTheTool = "believe-the-tool",
    /// A tool that adds up is declared `fenced`.
    FencedAddsUp = "fenced-adds-up",
    /// A goal from a back-up goes on where the back-up was.
    RestoredGoesOn = "restored-goes-on",
    /// A key from before a restore makes a goal as if it were new.
    OldKeyTakenAnew = "old-key-taken-anew",
}

impl Mutation {
    /// The invariant that it breaks first.
    pub fn breaks(self) -> Invariant {
        use Mutation as M;
        match self {
            M::AckEarly | M::TellEarly | M::SuffixLost => I1,
            M::RefreshedFence => I2,
            M::DispatchBeforeIntent => I3,
            M::SlotWithoutNonce | M::SlotDeleted | M::NoSlot | M::SlotIgnoresTombstone => I4,
            M::TakeoverWithoutSeal
            | M::TakeoverLooksOnly
            | M::RetryOnOwnTimeout
            | M::LookWithoutSeal
            | M::LookThenSeal
            | M::LookAtReplica
            | M::AbsentWithoutSettling
            | M::AbsentUndeclared
            | M::SealedCountsAsAbsent
            | M::SealWithoutWaiting
            | M::AskBeforeWaitingOut
            | M::StartOnUnclearSlot
            | M::RestoredGoesOn
            | M::OldKeyTakenAnew => I5,
            M::CancelClaimsNothing | M::BelieveTheTool => I6,
            M::CancelEndsAtOnce | M::ReceiptBeforeLast => I7,
            M::ClaimWithoutBarrier => I10,
            M::PurgeAfterEnd => I14,
            M::NotEscalated | M::WakeUpOnly | M::CancelAckedEarly => I15,
            M::KeyPerAttempt | M::ReplanNewIdentity | M::GateForgets | M::FencedAddsUp => I16,
        }
    }

    fn effect(self) -> Effect {
        use Mutation as M;
        match self {
            M::KeyPerAttempt | M::CancelClaimsNothing | M::ReplanNewIdentity => Idempotent,
            M::GateForgets | M::FencedAddsUp => Fenced,
            M::ReceiptBeforeLast | M::CancelEndsAtOnce => Read,
            _ => Once,
        }
    }

    /// The smallest setting in which it shows.
    pub fn setting(self) -> Setting {
        use Mutation as M;
        let none = Budget::default();
        let budget = match self {
            M::AckEarly => Budget { crash: 1, ..none },
            M::SuffixLost | M::RestoredGoesOn | M::OldKeyTakenAnew => Budget { restore: 1, ..none },
            M::RefreshedFence | M::TakeoverWithoutSeal | M::TakeoverLooksOnly => {
                Budget { zombie: 1, ..none }
            }
            M::ClaimWithoutBarrier => Budget {
                zombie: 1,
                crash: 1,
                ..none
            },
            M::RetryOnOwnTimeout
            | M::KeyPerAttempt
            | M::LookWithoutSeal
            | M::LookThenSeal
            | M::LookAtReplica
            | M::AbsentWithoutSettling
            | M::AbsentUndeclared
            | M::SealedCountsAsAbsent
            | M::SealWithoutWaiting
            | M::GateForgets
            | M::FencedAddsUp
            | M::NotEscalated => Budget { early: 1, ..none },
            M::CancelEndsAtOnce => Budget { cancel: 1, ..none },
            M::CancelClaimsNothing => Budget {
                cancel: 1,
                tool: 1,
                ..none
            },
            M::DispatchBeforeIntent | M::TellEarly => Budget { lie: 1, ..none },
            M::PurgeAfterEnd | M::NoSlot => Budget { dup: 1, ..none },
            M::SlotWithoutNonce | M::SlotDeleted => Budget {
                dup: 1,
                crash: 1,
                ..none
            },
            M::SlotIgnoresTombstone => Budget { dup: 1, ..none },
            M::StartOnUnclearSlot => Budget {
                lie: 1,
                early: 1,
                ..none
            },
            M::AskBeforeWaitingOut => Budget {
                early: 1,
                lose: 1,
                ..none
            },
            M::ReplanNewIdentity => Budget { amend: 1, ..none },
            M::WakeUpOnly => Budget {
                lie: 1,
                lose: 1,
                ..none
            },
            M::ReceiptBeforeLast => Budget {
                cancel: 1,
                dup: 1,
                early: 1,
                ..none
            },
            M::CancelAckedEarly => Budget {
                cancel: 1,
                lie: 1,
                ..none
            },
            M::BelieveTheTool => Budget { tool: 1, ..none },
        };
        Setting {
            rules: Rules {
                effect: self.effect(),
                settles: !matches!(
                    self,
                    M::NotEscalated | M::AskBeforeWaitingOut | M::AbsentUndeclared
                ),
                tries_max: 2,
                replans_max: 0,
                undo: false,
                bug: Some(self),
            },
            budget,
            other_args: false,
            quiet: self == M::WakeUpOnly,
            reduced: true,
        }
    }
}
