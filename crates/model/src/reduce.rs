//! States that differ in nothing which can matter any more are made the same.
//!
//! Each rule says why what it drops can't be told apart by anything that follows. A
//! planted mistake may be able to, so where it might, the rule is not used.

use crate::fold::Status;
use crate::model::{Protocol, waits_for_goal_seal};
use crate::mutation::Mutation;
use crate::state::{NODES, Node, Phase, Slot, State};

/// Makes it so.
pub(crate) fn reduce(m: &Protocol, s: &mut State) {
    // A fence that is behind stays behind, but for a journal that loses entries.
    if s.late.is_some_and(|l| l.base != s.journal) && !m.bug(Mutation::SuffixLost) {
        s.late = None;
    }
    for node in 0..NODES {
        if is_over(m, s, node) {
            *s.node_mut(node) = Node::default();
        }
    }
    let journal = s.journal;
    for (i, run) in s.runs.iter_mut().enumerate() {
        let is_awaited = journal.status == Status::Running && usize::from(journal.attempt) == i + 1;
        // What a process has done by itself stands in `sent` and in the world.
        run.acted &= run.live != 0;
        // An answer that nobody waits for is stale.
        run.answered &= is_awaited;
        // A call whose slot is taken can only be answered.
        let taken = matches!(run.slot, Slot::Started(_) | Slot::Revoked);
        if taken && !is_awaited && m.rules.bug.is_none() {
            run.called = false;
        }
    }
}

/// Is a node superseded, with nothing left to do that needs no append? Its next append is
/// refused, so it may as well have stepped down.
fn is_over(m: &Protocol, s: &State, node: u8) -> bool {
    let n = s.node(node);
    match n.phase {
        Phase::Unclear => s.journal != n.pending.next && s.journal != n.pending.base,
        Phase::Owner | Phase::Saw(_) if !s.owns(node) => {
            let run = s.run(n.view.attempt);
            let can_seal = matches!(run.slot, Slot::Free | Slot::Coming(_)) || run.live != 0;
            let seals = n.view.status == Status::Sealing && m.rules.effect.has_slot() && can_seal;
            !seals && !waits_for_goal_seal(&n.view) && !m.bug(Mutation::RefreshedFence)
        }
        _ => false,
    }
}
