//! What can happen. One action is one step of one process, of the network, of the
//! world, or a fault; `docs/explanation/model.md` says which code each stands for.

use crate::decide::Event;

/// How an append is answered. All but the first take from the budget of lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It is in the journal, and that is said.
    Confirmed,
    /// It is in the journal, and nothing is said.
    NoAnswer,
    /// It is in the journal, and "fenced" is said.
    FalselyFenced,
    /// It is not in the journal, and nothing is said.
    Lost,
    /// Nothing is said, and it may still get in.
    Late,
}

impl Answer {
    /// All false ones.
    pub const FALSE: [Answer; 4] = [
        Answer::NoAnswer,
        Answer::FalselyFenced,
        Answer::Lost,
        Answer::Late,
    ];

    /// Did it get in?
    pub fn is_applied(self) -> bool {
        matches!(
            self,
            Answer::Confirmed | Answer::NoAnswer | Answer::FalselyFenced
        )
    }
}

/// What dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dies {
    /// The orchestrator of a node.
    Owner,
    /// The executor of a node; what ran on it is killed, and it starts again.
    Executor,
    /// Both, with what the orchestrator had not sent yet.
    Node,
}

/// An action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The publisher submits, at node 0.
    Submit(Answer),
    /// An acceptance that was told is written (only with the mistake that needs it).
    WriteAcceptance,
    /// It is lost with its intake.
    IntakeDies,
    /// The publisher cancels: into the goal's inbox.
    SendCancel,
    /// The publisher amends: into the goal's inbox.
    SendAmend,
    /// The publisher is told the result, from the end record.
    TellResult,
    /// A node claims the goal because of its wake-up message.
    Wake(u8, Answer),
    /// The wake-up message is lost.
    LoseWake,
    /// A node claims the goal because a scan found it.
    Scan(u8, Answer),
    /// A node reads the journal without claiming (only with the mistake that needs it).
    Load(u8),
    /// An owner's turn: decide, append.
    Turn {
        /// The node.
        node: u8,
        /// What happened.
        event: Event,
        /// How its append is answered.
        answer: Answer,
    },
    /// An owner without a clear answer reads the tail, and appends again what is not there.
    ReadTail(u8),
    /// An append that nobody waits for reaches the journal.
    LateArrives,
    /// A node that was superseded finds its next append refused.
    StepDown(u8),
    /// A superseded node takes the refusal for a reason to refresh its fence.
    RefreshFence(u8),
    /// An owner looks at the world.
    Look(u8),
    /// An owner wins the slot of the attempt that it seals.
    Revoke(u8),
    /// The executor kills the processes of the attempt that is sealed.
    Kill(u8),
    /// An executor seals the goal, asked by a node.
    SealGoal {
        /// The node.
        node: u8,
        /// The executor.
        executor: u8,
    },
    /// A call reaches an executor, which tries to win its slot.
    Deliver {
        /// The attempt.
        attempt: u8,
        /// The executor.
        executor: u8,
        /// The message stays under way: it comes twice.
        again: bool,
        /// The slot does not answer, and nothing is read back there yet.
        unclear: bool,
    },
    /// A call is lost.
    LoseCall(u8),
    /// An answer is lost.
    LoseAnswer(u8),
    /// A slot's write that nobody waits for gets in.
    SlotLands(u8),
    /// The tool sends what changes the world.
    Act(u8),
    /// What it sent arrives.
    Land(u8),
    /// What a lost history had sent arrives.
    StrayLands,
    /// The tool ends well.
    Finish {
        /// The attempt.
        attempt: u8,
        /// The executor.
        executor: u8,
    },
    /// The tool fails.
    ToolFails(u8),
    /// The tool says "done" and has done nothing.
    ToolLies(u8),
    /// Something dies.
    Crash(u8, Dies),
    /// The ended goal is archived and rolled up; its slots go.
    RollUp,
    /// The journal is backed up.
    BackUp,
    /// Everything is stopped, and the journal is set back to its back-up.
    SetBack,
    /// Something that only a mistake can do.
    Mishap,
}
