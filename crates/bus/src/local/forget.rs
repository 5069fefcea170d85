//! Forgetting in the store: a journal becomes its tombstone, and its rows go.
//!
//! | table | key | value |
//! |---|---|---|
//! | `journal.floor` | goal | sequence of the tombstone (u64 BE): reads begin there |
//! | `journal.left` | goal | first sequence below the floor that may still have a row |
//! | `journal.kept` | until when (Unix milliseconds, u64 BE), goal | sequence of the tombstone |
//!
//! One transaction under the fence makes the tombstone the journal: it writes the
//! tombstone and the floor. Nothing below the floor is read from then on, and no slot of
//! the goal can be won. What lies below is deleted afterwards, in bounded transactions,
//! each of which says how far it came; a process that dies in between leaves rows that
//! nobody sees, and the sweep goes on with them.

use super::journal::{ENTRY, HEAD, LocalJournal, OPEN, last_seq, refusal, seq_of, too_large};
use super::keys;
use super::slots::SLOT;
use super::storage::{CommitError, Storage, blocking, fault, nonsense};
use crate::{AppendError, ENTRY_BYTES_MAX, Forget, GoalKey, failpoint};
use bytes::Bytes;
use detent_protocol::Fault;
use detent_store::{Scan, Table, Txn};
use std::ops::Bound;
use std::sync::Arc;

pub(super) const FLOOR: Table = Table::new("journal.floor");
const LEFT: Table = Table::new("journal.left");
const KEPT: Table = Table::new("journal.kept");

/// Rows that one transaction deletes.
const ROWS_AT_ONCE: u64 = 256;
/// Goals whose rows one sweep deletes, and tombstones that it takes out.
const GOALS_AT_ONCE: usize = 64;

impl LocalJournal {
    pub(super) async fn replace(&self, forget: Forget) -> Result<u64, AppendError> {
        if forget.tombstone.len() > ENTRY_BYTES_MAX {
            return Err(too_large(forget.tombstone.len()));
        }
        let last = last_seq(&self.storage, &forget.key).map_err(AppendError::Refused)?;
        let Some(seq) = forget.after.checked_add(1).filter(|seq| *seq > 1) else {
            return Err(AppendError::Fenced { last });
        };
        failpoint::hit("forget.before");
        let key = forget.key.clone();
        let txn = self.tombstone(forget, seq).map_err(AppendError::Refused)?;
        self.storage.commit(txn).await.map_err(refusal)?;
        failpoint::hit("forget.after");
        if let Err(fault) = clear(&self.storage, &key).await {
            // Nobody sees what is left, and the sweep takes it out.
            tracing::warn!(goal = %key.goal, %fault, "rows of a forgotten goal are left");
        }
        Ok(seq)
    }

    fn tombstone(&self, forget: Forget, seq: u64) -> Result<Txn, Fault> {
        let Forget {
            key,
            after,
            tombstone,
            keep,
        } = forget;
        let keep_ms = u64::try_from(keep.as_millis()).unwrap_or(u64::MAX);
        let until_ms = self.env.now_ms().saturating_add(keep_ms);
        let goal = Bytes::from(keys::goal(&key));
        // What an earlier tombstone left comes first.
        let left = number(&self.storage, LEFT, &goal)?;
        let first = left.or(number(&self.storage, FLOOR, &goal)?).unwrap_or(1);
        Ok(Txn::new()
            .expect(HEAD, goal.clone(), Some(be(after)))
            .put(ENTRY, keys::entry(&key, seq), tombstone)
            .put(HEAD, goal.clone(), be(seq))
            .put(FLOOR, goal.clone(), be(seq))
            .put(LEFT, goal, be(first))
            .put(KEPT, keys::kept(until_ms, &key), be(seq))
            .delete(OPEN, keys::open(&key)))
    }

    /// A bounded piece of what is left and of what was kept long enough; whether there
    /// is more.
    pub(super) async fn sweep_some(&self) -> Result<bool, Fault> {
        let left = self.rows(LEFT, Scan::prefix([], GOALS_AT_ONCE)).await?;
        for (goal, _) in &left {
            let key = keys::parse_goal(goal).ok_or_else(|| nonsense("a goal's key"))?;
            clear(&self.storage, &key).await?;
        }
        let now = self.env.now_ms().to_be_bytes();
        let due = Scan::range(Bound::Unbounded, Bound::Excluded(&now), GOALS_AT_ONCE);
        let due = self.rows(KEPT, due).await?;
        for (row, seq) in &due {
            let key = keys::parse_kept(row).ok_or_else(|| nonsense("a goal's key"))?;
            clear(&self.storage, &key).await?;
            self.take_out(row, &key, seq).await?;
        }
        Ok(left.len().max(due.len()) == GOALS_AT_ONCE)
    }

    /// Takes a tombstone out, unless the journal has another last entry by now.
    async fn take_out(&self, row: &Bytes, key: &GoalKey, seq: &Bytes) -> Result<(), Fault> {
        let goal = Bytes::from(keys::goal(key));
        let entry = keys::entry(key, seq_of(Some(seq))?);
        let txn = Txn::new()
            .expect(HEAD, goal.clone(), Some(seq.clone()))
            .delete(KEPT, row.clone())
            .delete(ENTRY, entry)
            .delete(FLOOR, goal.clone())
            .delete(HEAD, goal);
        match self.storage.commit(txn).await {
            Err(CommitError::Condition(..)) => {
                let stale = Txn::new().delete(KEPT, row.clone());
                told(self.storage.commit(stale).await).map(drop)
            }
            committed => told(committed).map(drop),
        }
    }

    async fn rows(&self, table: Table, scan: Scan) -> Result<Vec<(Bytes, Bytes)>, Fault> {
        let storage = Arc::clone(&self.storage);
        blocking(move || storage.store.scan(table, &scan).map_err(|e| fault(&e))).await
    }
}

/// Deletes what lies below a goal's floor, then its slots, then the note that there is
/// something to delete. Ends early where somebody else is at it.
async fn clear(storage: &Arc<Storage>, key: &GoalKey) -> Result<(), Fault> {
    let goal = Bytes::from(keys::goal(key));
    while let Some(next) = number(storage, LEFT, &goal)? {
        let floor = number(storage, FLOOR, &goal)?.unwrap_or(next);
        let txn = Txn::new().expect(LEFT, goal.clone(), Some(be(next)));
        let txn = if next < floor {
            let to = floor.min(next.saturating_add(ROWS_AT_ONCE));
            let entries = (next..to).map(|seq| keys::entry(key, seq));
            let txn = entries.fold(txn, |txn, entry| txn.delete(ENTRY, entry));
            txn.put(LEFT, goal.clone(), be(to))
        } else {
            let scan = Scan::prefix(&goal, ROWS_AT_ONCE as usize);
            let shared = Arc::clone(storage);
            let slots = move || shared.store.scan(SLOT, &scan).map_err(|e| fault(&e));
            match blocking(slots).await? {
                slots if slots.is_empty() => txn.delete(LEFT, goal.clone()),
                slots => slots
                    .into_iter()
                    .fold(txn, |txn, (slot, _)| txn.delete(SLOT, slot)),
            }
        };
        if !told(storage.commit(txn).await)? {
            break;
        }
    }
    Ok(())
}

/// Whether it was committed; `false` where a condition did not hold.
fn told(committed: Result<(), CommitError>) -> Result<bool, Fault> {
    match committed {
        Ok(()) => Ok(true),
        Err(CommitError::Condition(..)) => Ok(false),
        Err(CommitError::NotWritten(fault) | CommitError::Unknown(fault)) => Err(fault),
    }
}

/// A goal's floor: 0 for a journal that was not forgotten.
pub(super) fn floor_of(storage: &Storage, key: &GoalKey) -> Result<u64, Fault> {
    Ok(number(storage, FLOOR, &keys::goal(key))?.unwrap_or(0))
}

fn number(storage: &Storage, table: Table, goal: &[u8]) -> Result<Option<u64>, Fault> {
    let row = storage.store.get(table, goal).map_err(|e| fault(&e))?;
    row.map(|value| seq_of(Some(&value))).transpose()
}

fn be(number: u64) -> Bytes {
    Bytes::copy_from_slice(&number.to_be_bytes())
}

#[cfg(test)]
mod tests;
