//! How a state is hashed, by hand: what the derive would feed the hasher is several times
//! as much, and hashing is most of the work. A test compares it with equality.

use crate::pack::Bits;
use crate::state::{Budget, Node, Phase, Run, Slot, State};
use std::hash::{Hash, Hasher};

impl Budget {
    fn word(&self) -> u64 {
        let mut bits = Bits::default();
        let all = [
            self.crash,
            self.zombie,
            self.lose,
            self.dup,
            self.early,
            self.lie,
            self.tool,
            self.cancel,
            self.amend,
            self.deadline,
            self.restore,
        ];
        all.iter().for_each(|n| bits.put((*n).into(), 2));
        bits.word()
    }
}

impl Run {
    fn put(&self, bits: &mut Bits) {
        let slot = match self.slot {
            Slot::Free => 0,
            Slot::Revoked => 1,
            Slot::Coming(e) => 2 + u64::from(e),
            Slot::Started(e) => 4 + u64::from(e),
        };
        bits.put(slot, 3);
        bits.put(self.live.into(), 2);
        bits.put(self.outcome as u64, 2);
        let flags = [
            self.acted,
            self.called,
            self.answered,
            self.sent,
            self.undo,
            self.other_key,
        ];
        flags.into_iter().for_each(|f| bits.flag(f));
    }
}

fn put_node(node: &Node, into: &mut impl Hasher) {
    let mut bits = Bits::default();
    let phase = match node.phase {
        Phase::Idle => 0,
        Phase::Owner => 1,
        Phase::Saw(false) => 2,
        Phase::Saw(true) => 3,
        Phase::Unclear => 4,
        Phase::Loaded => 5,
    };
    bits.put(phase, 3);
    bits.flag(node.pending.call);
    bits.flag(node.pending.amends);
    into.write_u64(bits.word());
    into.write_u64(node.view.word());
    into.write_u64(node.pending.base.word());
    into.write_u64(node.pending.next.word());
}

impl Hash for State {
    fn hash<H: Hasher>(&self, into: &mut H) {
        into.write_u64(self.journal.word());
        self.nodes.iter().for_each(|n| put_node(n, into));
        if let Some(late) = &self.late {
            into.write_u64(late.base.word());
            into.write_u64(late.next.word());
        }
        let mut runs = Bits::default();
        self.runs.iter().for_each(|r| r.put(&mut runs));
        runs.flag(self.late.is_some());
        runs.flag(self.backup.is_some());
        into.write_u64(runs.word());
        if let Some(backup) = &self.backup {
            into.write_u64(backup.fold.word());
            let mut bits = Bits::default();
            for slot in backup.slots {
                let run = Run {
                    slot,
                    ..Run::default()
                };
                run.put(&mut bits);
            }
            into.write_u64(bits.word());
        }
        let (w, p) = (&self.world, &self.publisher);
        let mut bits = Bits::default();
        bits.put(w.done.into(), 2);
        bits.put(w.undone.into(), 2);
        bits.put(w.keys.into(), 8);
        bits.put(w.token.into(), 3);
        bits.put(w.token_max.into(), 3);
        bits.put(self.sealed.into(), 2);
        bits.put(p.result.map_or(0, |e| e as u64 + 1), 3);
        bits.put(p.goals.into(), 2);
        let flags = [
            w.stray,
            self.wake,
            self.set_back,
            p.accepted,
            p.unwritten,
            p.cancelled,
            p.cancel,
            p.amend,
        ];
        flags.into_iter().for_each(|f| bits.flag(f));
        into.write_u64(bits.word());
        into.write_u64(self.budget.word());
        into.write_u64(self.broken.word());
    }
}
