//! The witness file as it was before the ring: read once, then replaced.
//!
//! Two slots of 32 KiB, written in turn. Slot: `magic 8 | generation u64 | store id u64 |
//! seq u64 | chain u64 | redo bytes u32 | redo | crc32 u32`, little-endian. Its store was synced
//! with every group: the witness holds the last group, or says that sled has it.

use std::fs::File;
use std::io::{self, Read};

use crate::codec::Fields;
use crate::meta::{Head, Meta};
use crate::redo::{self, Redo};

const SLOT_BYTES: usize = 32 << 10;
const MAGIC: &[u8; 8] = b"DTWITN02";
const HEADER_BYTES: usize = 44;

/// What the newest slot says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    store_id: u64,
    head: Head,
    /// The last group; empty when it was too large.
    redo: Vec<u8>,
}

/// Reads the newest valid slot; the inner `None` says that there is none.
pub(crate) fn read(file: &File) -> io::Result<Option<Found>> {
    if file.metadata()?.len() != 2 * SLOT_BYTES as u64 {
        return Ok(None);
    }
    let mut content = Vec::with_capacity(2 * SLOT_BYTES);
    io::Seek::rewind(&mut &*file)?;
    file.take(2 * SLOT_BYTES as u64).read_to_end(&mut content)?;
    let slots = content.chunks(SLOT_BYTES).enumerate();
    let valid = slots.filter_map(|(index, slot)| {
        decode(slot).filter(|(generation, _)| generation % 2 == index as u64)
    });
    let newest = valid.max_by_key(|(generation, _)| *generation);
    Ok(newest.map(|(_, found)| found))
}

impl Found {
    pub(crate) fn head(&self) -> Head {
        self.head
    }

    /// The last group, when sled is without it.
    pub(crate) fn missing(&self, meta: &Meta) -> Option<Redo> {
        let redo = redo::decode(&self.redo)?;
        let next = &redo.meta;
        let same_store = meta.store_id == self.store_id && next.store_id == self.store_id;
        let follows = same_store && next.previous == meta.head && next.head == self.head;
        follows.then_some(redo)
    }

    /// Whether the store's state is the witness' or the one group after it; else what is wrong.
    pub(crate) fn compare(&self, meta: &Meta) -> Result<(), String> {
        let (store, witness) = (meta.head, self.head);
        if meta.store_id != self.store_id {
            return Err("the witness belongs to another store".to_owned());
        }
        if witness == store || witness == meta.previous {
            return Ok(());
        }
        let (at, saw) = (store.seq, witness.seq);
        Err(if saw > at {
            format!(
                "store is behind its witness: it ends at commit {at}, the witness saw commit {saw}"
            )
        } else {
            format!("store and witness do not fit: store at commit {at}, witness at commit {saw}")
        })
    }
}

fn decode(slot: &[u8]) -> Option<(u64, Found)> {
    let mut fields = Fields(slot);
    if fields.take(MAGIC.len())? != MAGIC {
        return None;
    }
    let (generation, store_id) = (fields.u64()?, fields.u64()?);
    let head = Head {
        seq: fields.u64()?,
        chain: fields.u64()?,
    };
    let redo_bytes = usize::try_from(fields.u32()?).ok()?;
    let redo = fields.take(redo_bytes)?.to_vec();
    let crc = crc32fast::hash(&slot[..HEADER_BYTES + redo_bytes]);
    let found = Found {
        store_id,
        head,
        redo,
    };
    (fields.u32()? == crc).then_some((generation, found))
}

/// A slot as it used to be written.
#[cfg(test)]
pub(crate) fn encode(generation: u64, store_id: u64, head: Head, redo: &[u8]) -> Vec<u8> {
    let mut slot = Vec::with_capacity(SLOT_BYTES);
    slot.extend_from_slice(MAGIC);
    for field in [generation, store_id, head.seq, head.chain] {
        slot.extend_from_slice(&field.to_le_bytes());
    }
    slot.extend_from_slice(&(redo.len() as u32).to_le_bytes());
    slot.extend_from_slice(redo);
    let crc = crc32fast::hash(&slot);
    slot.extend_from_slice(&crc.to_le_bytes());
    slot.resize(SLOT_BYTES, 0);
    slot
}
