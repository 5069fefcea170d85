//! A state of the model: one goal, two nodes with an executor each, the journal, the
//! slots, the messages under way, and the world.

use crate::decide::ATTEMPTS;
use crate::fold::{End, Fold};
use crate::invariant::Broken;

/// Nodes; each has an executor.
pub const NODES: u8 = 2;
const SLOTS: usize = ATTEMPTS as usize;

/// How many faults and wishes of each kind are left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Budget {
    /// A process dies.
    pub crash: u8,
    /// A live owner is taken for dead: a pause, a partition, a wrong clock.
    pub zombie: u8,
    /// A message is lost.
    pub lose: u8,
    /// A message comes twice, or the publisher asks twice.
    pub dup: u8,
    /// An owner gives up waiting although an answer is still to come.
    pub early: u8,
    /// The journal or a slot does not answer the truth.
    pub lie: u8,
    /// A tool fails, or says "done" of what it did not do.
    pub tool: u8,
    /// The publisher cancels.
    pub cancel: u8,
    /// The publisher amends.
    pub amend: u8,
    /// The deadline comes.
    pub deadline: u8,
    /// The journal is set back to a back-up.
    pub restore: u8,
}

impl Budget {
    /// Sets one of them by its name; says whether there is one. At most 3.
    pub fn set(&mut self, name: &str, number: u8) -> bool {
        let field = match name {
            "crash" => &mut self.crash,
            "zombie" => &mut self.zombie,
            "lose" => &mut self.lose,
            "dup" => &mut self.dup,
            "early" => &mut self.early,
            "lie" => &mut self.lie,
            "tool" => &mut self.tool,
            "cancel" => &mut self.cancel,
            "amend" => &mut self.amend,
            "deadline" => &mut self.deadline,
            "restore" => &mut self.restore,
            _ => return false,
        };
        *field = number;
        number <= 3
    }
}

/// An entry on its way into the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Entry {
    /// The fence: what its writer had seen.
    pub base: Fold,
    /// The fold after it.
    pub next: Fold,
    /// A tool is called once it is confirmed.
    pub call: bool,
    /// It takes an amendment out of the inbox.
    pub amends: bool,
}

/// What a node is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Phase {
    /// It does not work on the goal.
    #[default]
    Idle,
    /// It owns the goal as far as it knows.
    Owner,
    /// It has looked at the world, and this is what it saw.
    Saw(bool),
    /// An append was not confirmed: the tail has to be read.
    Unclear,
    /// It has read the journal and not claimed yet (only with the mistake that needs it).
    Loaded,
}

/// A node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Node {
    /// What it is at.
    pub phase: Phase,
    /// The journal as it knows it.
    pub view: Fold,
    /// The entry that was not confirmed.
    pub pending: Entry,
}

/// An effect slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Slot {
    /// Nothing stands there.
    #[default]
    Free,
    /// A write of this executor is under way; nobody waits for it any more.
    Coming(u8),
    /// Won by this executor.
    Started(u8),
    /// Won by an owner.
    Revoked,
}

/// How an attempt's process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Outcome {
    /// It did not.
    #[default]
    None,
    /// It said "done"; in the ledger.
    Done,
    /// It failed; in the ledger.
    Failed,
    /// Killed or crashed.
    Killed,
}

/// An attempt as executors have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Run {
    /// Its slot.
    pub slot: Slot,
    /// Executors on which its processes live, a bit each.
    pub live: u8,
    /// It has sent what changes the world.
    pub acted: bool,
    /// How it ended.
    pub outcome: Outcome,
    /// Its call is under way.
    pub called: bool,
    /// Its answer is under way.
    pub answered: bool,
    /// What it sent is under way.
    pub sent: bool,
    /// It takes the effect back.
    pub undo: bool,
    /// It carries another identity than the first (only with mistakes).
    pub other_key: bool,
}

impl Run {
    /// Did a process of it ever start?
    pub fn has_started(&self) -> bool {
        self.live != 0 || self.outcome != Outcome::None
    }
}

/// The world that tools change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct World {
    /// How often the effect was done; 2 is "twice or more".
    pub done: u8,
    /// How often it was taken back.
    pub undone: u8,
    /// Keys it has seen: the effect's, the undo's, another identity's, and one for each
    /// attempt with the mistake that needs it.
    pub keys: u8,
    /// The highest token it remembers.
    pub token: u8,
    /// The highest token it ever took.
    pub token_max: u8,
    /// Something of a lost history is under way.
    pub stray: bool,
}

/// What a back-up has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backup {
    /// The journal.
    pub fold: Fold,
    /// The slots.
    pub slots: [Slot; SLOTS],
}

/// The publisher and what it was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Publisher {
    /// It was told "accepted".
    pub accepted: bool,
    /// The acceptance is not in the journal yet (only with the mistake that needs it).
    pub unwritten: bool,
    /// The result it was told.
    pub result: Option<End>,
    /// Its cancel was sent.
    pub cancelled: bool,
    /// Its cancel is in the goal's inbox.
    pub cancel: bool,
    /// Its amendment is in the goal's inbox.
    pub amend: bool,
    /// Goals that its key has made.
    pub goals: u8,
}

/// A state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    /// The goal's journal, as the authority has it.
    pub journal: Fold,
    /// The nodes.
    pub nodes: [Node; NODES as usize],
    /// An append under way that nobody waits for any more.
    pub late: Option<Entry>,
    /// The attempts.
    pub runs: [Run; SLOTS],
    /// Executors that refuse the goal, a bit each.
    pub sealed: u8,
    /// The goal's wake-up message is in the queue.
    pub wake: bool,
    /// The world.
    pub world: World,
    /// The publisher.
    pub publisher: Publisher,
    /// A back-up.
    pub backup: Option<Backup>,
    /// The journal was set back: keys issued before that are not taken as new.
    pub set_back: bool,
    /// What is left of the faults.
    pub budget: Budget,
    /// Invariants that something which happened has broken.
    pub broken: Broken,
}

impl State {
    /// Nothing was submitted yet.
    pub fn new(budget: Budget) -> Self {
        Self {
            journal: Fold::default(),
            nodes: Default::default(),
            late: None,
            runs: Default::default(),
            sealed: 0,
            wake: false,
            world: World::default(),
            publisher: Publisher::default(),
            backup: None,
            set_back: false,
            budget,
            broken: Broken::default(),
        }
    }

    /// An attempt, from 1.
    pub fn run(&self, attempt: u8) -> &Run {
        &self.runs[usize::from(attempt.saturating_sub(1))]
    }

    /// The same, to change it.
    pub fn run_mut(&mut self, attempt: u8) -> &mut Run {
        &mut self.runs[usize::from(attempt.saturating_sub(1))]
    }

    /// A node.
    pub fn node(&self, node: u8) -> &Node {
        &self.nodes[usize::from(node)]
    }

    /// The same, to change it.
    pub fn node_mut(&mut self, node: u8) -> &mut Node {
        &mut self.nodes[usize::from(node)]
    }

    /// Does this node own the goal, not only as far as it knows?
    pub fn owns(&self, node: u8) -> bool {
        let n = self.node(node);
        n.phase != Phase::Idle && n.phase != Phase::Loaded && n.view == self.journal
    }

    /// Is the last owner still at work, or about to find out that it is?
    pub fn has_live_owner(&self) -> bool {
        let (j, n) = (&self.journal, self.node(self.journal.owner));
        let claims = |f: &Fold| f.epoch == j.epoch && f.owner == j.owner;
        match n.phase {
            Phase::Idle | Phase::Loaded => false,
            Phase::Unclear => claims(&n.view) || claims(&n.pending.next),
            Phase::Owner | Phase::Saw(_) => claims(&n.view),
        }
    }

    /// Is the effect, or its being taken back, there to be seen?
    pub fn is_visible(&self, undo: bool) -> bool {
        let w = &self.world;
        if undo { w.undone > 0 } else { w.done > 0 }
    }

    /// Is anything sent under way that may still change the world?
    pub fn is_anything_sent(&self) -> bool {
        self.world.stray || self.runs.iter().any(|r| r.sent)
    }

    /// Could an attempt still change the world by itself: it lives, or may start?
    pub fn may_still_act(&self, undo: bool) -> bool {
        self.runs.iter().any(|r| {
            let free = matches!(r.slot, Slot::Free | Slot::Coming(_));
            let may_start = r.called && free && !self.journal.tombstone;
            r.undo == undo && (r.live != 0 || r.sent || may_start)
        }) || (self.world.stray && !undo)
    }
}
