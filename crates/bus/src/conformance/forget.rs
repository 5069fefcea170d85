//! Forgetting goals that have ended.

use super::journal::{append, entries, fill, open, read};
use super::slots::{slot, started};
use super::{goal, until};
use crate::{AppendError, Bus, Forget, GoalKey};
use bytes::Bytes;
use detent_protocol::Code;
use std::time::Duration;

const ALL: usize = 1000;
/// Longer than any case takes.
const KEEP: Duration = Duration::from_secs(3600);

async fn forget(
    bus: &Bus,
    key: &GoalKey,
    after: u64,
    tombstone: &'static [u8],
) -> Result<u64, AppendError> {
    let forget = Forget {
        key: key.clone(),
        after,
        tombstone: Bytes::from_static(tombstone),
        keep: KEEP,
    };
    bus.journal.forget(forget).await
}

/// A goal with three entries, the last of which ends it; gives their sequences.
async fn ended(bus: &Bus, key: &GoalKey) -> [u64; 3] {
    let seqs = fill(bus, key, &[b"1", b"2"]).await;
    let end = append(bus, key, seqs[1], b"end", true).await;
    [seqs[0], seqs[1], end.expect("ended")]
}

pub(super) async fn a_tombstone_stands_alone(bus: Bus) {
    let key = goal("forgotten");
    let seqs = ended(&bus, &key).await;
    let seq = forget(&bus, &key, seqs[2], b"tombstone").await;
    let seq = seq.expect("forgotten");
    assert!(seq > seqs[2], "sequences rise");
    for after in [0, seqs[0], seqs[2]] {
        let page = read(&bus, &key, after, ALL).await;
        assert_eq!(entries(&page), [b"tombstone"], "after {after}");
        assert_eq!(page[0].seq, seq);
    }
    assert!(read(&bus, &key, seq, ALL).await.is_empty());
    let tail = bus.journal.tail(&key).await.expect("a tail");
    assert_eq!(tail.map(|tail| tail.seq), Some(seq));
    assert!(open(&bus, key.goal.shard(), None, ALL).await.is_empty());
    let listed = bus.journal.goals(&key.tenant, None, ALL).await;
    assert_eq!(listed, Ok(vec![key]));
}

pub(super) async fn a_forgotten_goal_is_not_begun_anew(bus: Bus) {
    let key = goal("not anew");
    let seqs = ended(&bus, &key).await;
    let last = forget(&bus, &key, seqs[2], b"tombstone").await;
    let last = last.expect("forgotten");
    for wrong in [0, seqs[0], seqs[2]] {
        let refused = append(&bus, &key, wrong, b"x", false).await;
        assert_eq!(refused, Err(AppendError::Fenced { last }), "after {wrong}");
    }
    assert_eq!(entries(&read(&bus, &key, 0, ALL).await), [b"tombstone"]);
}

pub(super) async fn forgetting_needs_the_last_sequence(bus: Bus) {
    let key = goal("kept");
    let seqs = ended(&bus, &key).await;
    let last = seqs[2];
    for wrong in [0, seqs[0], seqs[1], last + 1] {
        let refused = forget(&bus, &key, wrong, b"tombstone").await;
        assert_eq!(refused, Err(AppendError::Fenced { last }), "after {wrong}");
    }
    let kept: [&[u8]; 3] = [b"1", b"2", b"end"];
    assert_eq!(entries(&read(&bus, &key, 0, ALL).await), kept);
    let unknown = forget(&bus, &goal("unknown"), last, b"tombstone").await;
    assert_eq!(unknown, Err(AppendError::Fenced { last: 0 }));
    let listed = bus.journal.goals(&key.tenant, None, ALL).await;
    assert_eq!(listed, Ok(vec![key]), "nothing was made by it");
}

pub(super) async fn slots_go_with_their_goal(bus: Bus) {
    let (gone, stays) = (goal("gone"), goal("stays"));
    let slots = [
        slot(gone.clone(), "pay", 1),
        slot(gone.clone(), "pay", 2),
        slot(gone.clone(), "ship", 1),
    ];
    for (n, key) in (1..).zip(&slots) {
        assert_eq!(bus.slots.win(key, started(n)).await, Ok(started(n)));
    }
    let other = slot(stays.clone(), "pay", 1);
    assert_eq!(bus.slots.win(&other, started(9)).await, Ok(started(9)));
    fill(&bus, &stays, &[b"1"]).await;
    let seqs = ended(&bus, &gone).await;
    let forgotten = forget(&bus, &gone, seqs[2], b"tombstone").await;
    forgotten.expect("forgotten");
    for key in &slots {
        let empty = async || {
            let read = bus.slots.read(key).await.expect("an answer");
            read.is_none().then_some(())
        };
        until("the slot is gone", empty).await;
    }
    assert_eq!(bus.slots.read(&other).await, Ok(Some(started(9))));
    assert_eq!(entries(&read(&bus, &stays, 0, ALL).await), [b"1"]);
}

/// An archivist whose answer was lost does it again.
pub(super) async fn forgetting_again_is_forgetting_once(bus: Bus) {
    let key = goal("twice");
    let seqs = ended(&bus, &key).await;
    let first = forget(&bus, &key, seqs[2], b"tombstone").await;
    let first = first.expect("forgotten");
    let lost = forget(&bus, &key, seqs[2], b"again").await;
    assert_eq!(lost, Err(AppendError::Fenced { last: first }));
    let again = forget(&bus, &key, first, b"again").await;
    let again = again.expect("forgotten again");
    assert!(again > first);
    let page = read(&bus, &key, 0, ALL).await;
    assert_eq!(entries(&page), [b"again"]);
    assert_eq!(page[0].seq, again);
}

/// The fence is all that an append is asked for.
pub(super) async fn a_tombstone_may_be_followed(bus: Bus) {
    let key = goal("followed");
    let seqs = ended(&bus, &key).await;
    let tombstone = forget(&bus, &key, seqs[2], b"tombstone").await;
    let after = tombstone.expect("forgotten");
    let seq = append(&bus, &key, after, b"x", true).await;
    let seq = seq.expect("appended");
    assert!(seq > after);
    let given: [&[u8]; 2] = [b"tombstone", b"x"];
    assert_eq!(entries(&read(&bus, &key, 0, ALL).await), given);
    assert_eq!(entries(&read(&bus, &key, after, ALL).await), [b"x"]);
}

/// A call that was so long under way that its goal has been forgotten must not start.
pub(super) async fn nothing_of_a_forgotten_goal_starts(bus: Bus) {
    let key = goal("late");
    let late = slot(key.clone(), "pay", 1);
    let seqs = ended(&bus, &key).await;
    let seq = forget(&bus, &key, seqs[2], b"tombstone").await;
    seq.expect("forgotten");
    let won = bus.slots.win(&late, started(1)).await;
    assert_eq!(won.map_err(|fault| fault.code), Err(Code::OwnerFenced));
}
