//! Effect slots in the store: table `slot`, keyed goal, step, attempt (u32 BE).
//!
//! A slot is written by a transaction that demands that it is not there, so it is written
//! once, and that its goal was not forgotten, so it is not written again after the slots
//! went with the rest of the goal ([`super::forget`]).

use super::forget::FLOOR;
use super::keys;
use super::storage::{CommitError, Storage, fault};
use crate::failpoint;
use crate::{SlotKey, Slots};
use async_trait::async_trait;
use detent_protocol::effect::SlotMark;
use detent_protocol::envelope::{from_msgpack, to_msgpack};
use detent_protocol::{Code, Fault};
use detent_store::{Table, Txn};
use std::sync::Arc;

pub(super) const SLOT: Table = Table::new("slot");

/// Slots of all goals of one node.
pub(crate) struct LocalSlots {
    storage: Arc<Storage>,
}

impl LocalSlots {
    pub(crate) fn new(storage: Arc<Storage>) -> Self {
        Self { storage }
    }
}

#[async_trait]
impl Slots for LocalSlots {
    async fn win(&self, key: &SlotKey, mark: SlotMark) -> Result<SlotMark, Fault> {
        let (row, value) = (keys::slot(key), to_msgpack(&mark)?);
        let txn = Txn::new()
            .expect_absent(SLOT, row.clone())
            .expect_absent(FLOOR, keys::goal(&key.goal))
            .put(SLOT, row, value);
        failpoint::hit("slot.before");
        match self.storage.commit(txn).await {
            Ok(()) => {
                failpoint::hit("slot.after");
                Ok(mark)
            }
            // The condition is "there is none", so there is one.
            Err(CommitError::Condition(0, standing)) => read_mark(&standing.unwrap_or_default()),
            Err(CommitError::Condition(..)) => {
                let goal = key.goal.goal;
                let text = format!("goal {goal} has ended and was forgotten: nothing of it starts");
                Err(Fault::new(Code::OwnerFenced, text))
            }
            Err(CommitError::NotWritten(fault) | CommitError::Unknown(fault)) => Err(fault),
        }
    }

    async fn read(&self, key: &SlotKey) -> Result<Option<SlotMark>, Fault> {
        let row = self.storage.store.get(SLOT, &keys::slot(key));
        row.map_err(|e| fault(&e))?
            .map(|value| read_mark(&value))
            .transpose()
    }
}

/// The row's checksum was right, so what can't be read was written by a newer version.
fn read_mark(value: &[u8]) -> Result<SlotMark, Fault> {
    from_msgpack(value)
        .map_err(|e| Fault::new(Code::JournalUnreadable, format!("an effect slot: {e}")))
}
