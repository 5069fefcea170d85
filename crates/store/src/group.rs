//! One group commit in the making: transactions are admitted one after the other, each sees
//! what the earlier ones wrote.

use std::collections::HashMap;

use bytes::Bytes;
use sled::IVec;

use crate::key::{self, ChunkSet};
use crate::meta::Meta;
use crate::redo::RedoWriter;
use crate::row::{self, Source};
use crate::txn::{Condition, Txn, Write};
use crate::view::View;
use crate::{CommitSeq, StoreError};

/// A stored key's value before and after.
pub(crate) struct Change {
    pub(crate) old: Option<IVec>,
    pub(crate) new: Option<IVec>,
}

pub(crate) type Changes = HashMap<Vec<u8>, Change>;

/// The writes of the transactions admitted so far, over the durable state.
pub(crate) struct Group<'a> {
    durable: &'a View,
    meta: Meta,
    seq: u64,
    changes: Changes,
}

/// What a finished group hands to the committer.
pub(crate) struct Prepared {
    pub(crate) changes: Changes,
    /// The store's meta row after the group.
    pub(crate) meta: Meta,
    /// The group for the witness; `None` when it is too large.
    pub(crate) redo: Option<Vec<u8>>,
}

impl<'a> Group<'a> {
    /// A group that comes after all that is durable.
    pub(crate) fn new(durable: &'a View) -> Group<'a> {
        Group {
            durable,
            meta: durable.meta.clone(),
            seq: durable.meta.head.seq,
            changes: Changes::new(),
        }
    }

    /// Evaluates the conditions and takes the writes in, all of them or none.
    pub(crate) fn admit(&mut self, txn: &Txn) -> Result<CommitSeq, StoreError> {
        self.check(&txn.conditions)?;
        let seq = self.seq + 1;
        let mut staged = Staged {
            group: self,
            changes: Changes::new(),
        };
        for (index, write) in txn.writes.iter().enumerate() {
            staged.write(
                write,
                ChunkSet {
                    commit: seq,
                    write: index as u32,
                },
            )?;
        }
        let changes = staged.changes;
        self.merge(changes);
        self.seq = seq;
        Ok(CommitSeq(seq))
    }

    /// What to commit; `None` when no transaction was admitted. The witness takes at most
    /// `redo_bytes_max`.
    pub(crate) fn finish(mut self, redo_bytes_max: usize) -> Option<Prepared> {
        if self.seq == self.meta.head.seq {
            return None;
        }
        self.meta.advance(self.seq);
        let mut redo = RedoWriter::new(redo_bytes_max);
        for (key, change) in &self.changes {
            redo.push(key, change.new.as_deref());
        }
        redo.push(key::META, Some(&self.meta.encode()));
        Some(Prepared {
            changes: self.changes,
            meta: self.meta,
            redo: redo.finish(),
        })
    }

    fn check(&self, conditions: &[Condition]) -> Result<(), StoreError> {
        for (index, condition) in conditions.iter().enumerate() {
            let current = row::load(self, condition.table, &condition.key)?;
            if current != condition.value {
                return Err(StoreError::ConditionFailed { index, current });
            }
        }
        Ok(())
    }

    fn merge(&mut self, staged: Changes) {
        for (key, Change { old, new }) in staged {
            self.meta.replace(&key, old.as_deref(), new.as_deref());
            // The value before the *group* stays the first one seen.
            self.changes
                .entry(key)
                .and_modify(|c| c.new = new.clone())
                .or_insert(Change { old, new });
        }
    }
}

impl Source for Group<'_> {
    fn stored(&self, key: &[u8]) -> Result<Option<IVec>, StoreError> {
        match self.changes.get(key) {
            Some(change) => Ok(change.new.clone()),
            None => self.durable.stored(key),
        }
    }
}

/// One transaction's writes, kept apart until all of them are known to work.
struct Staged<'g, 'a> {
    group: &'g Group<'a>,
    changes: Changes,
}

impl Staged<'_, '_> {
    fn write(&mut self, write: &Write, set: ChunkSet) -> Result<(), StoreError> {
        let stored_key = key::row(write.table, &write.key);
        self.drop_chunks(write, &stored_key)?;
        match &write.value {
            None => self.set(stored_key, None),
            Some(value) => self.put(stored_key, value, set),
        }
    }

    fn put(&mut self, stored_key: Vec<u8>, value: &Bytes, set: ChunkSet) -> Result<(), StoreError> {
        for (key, framed) in row::encode(stored_key, value, set) {
            self.set(key, Some(framed.into()))?;
        }
        Ok(())
    }

    fn drop_chunks(&mut self, write: &Write, stored_key: &[u8]) -> Result<(), StoreError> {
        let Some(framed) = self.stored(stored_key)? else {
            return Ok(());
        };
        for chunk in row::chunk_keys(write.table, stored_key, &framed)? {
            self.set(chunk, None)?;
        }
        Ok(())
    }

    fn set(&mut self, key: Vec<u8>, new: Option<IVec>) -> Result<(), StoreError> {
        if let Some(change) = self.changes.get_mut(&key) {
            change.new = new;
            return Ok(());
        }
        let old = self.group.stored(&key)?;
        self.changes.insert(key, Change { old, new });
        Ok(())
    }
}

impl Source for Staged<'_, '_> {
    fn stored(&self, key: &[u8]) -> Result<Option<IVec>, StoreError> {
        match self.changes.get(key) {
            Some(change) => Ok(change.new.clone()),
            None => self.group.stored(key),
        }
    }
}
