//! One block of the ring: 4 KiB that say by themselves whose they are.
//!
//! Layout, little-endian: `magic 8 | crc32 u32 over all that follows | blocks of the ring u32 |
//! position u32 | copy u32 | part u32 | redo bytes u32 | generation u64 | store id u64 |
//! seq u64 | chain u64 | previous seq u64 | previous chain u64 | payload`, zeros behind it.
//! The position is under the checksum, so a block that turns up elsewhere is none, and a value
//! that somebody stores can't pass for a block: it never lies at the beginning of one.

use crate::codec::Fields;
use crate::meta::Head;

pub(super) const BLOCK_BYTES: usize = 4096;
const MAGIC: &[u8; 8] = b"DTRING01";
const CRC_END: usize = 12;
const HEADER_BYTES: usize = CRC_END + 5 * 4 + 6 * 8;
/// Bytes of a record that one block holds.
pub(super) const PAYLOAD_BYTES: usize = BLOCK_BYTES - HEADER_BYTES;

/// What all blocks of one record say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Record {
    /// Counts the records of a ring. None is ever used twice.
    pub(crate) generation: u64,
    pub(crate) store_id: u64,
    /// The store's head after the record's group.
    pub(crate) head: Head,
    /// The head before it: durable when the record was begun.
    pub(crate) previous: Head,
    /// Size of the group; 0 when it is not kept here but was in sled before.
    pub(crate) redo_bytes: u32,
}

impl Record {
    /// Blocks of one copy.
    pub(crate) fn parts(&self) -> u32 {
        parts(self.redo_bytes as usize)
    }
}

/// Blocks of one copy of a record with so many bytes of redo.
pub(super) fn parts(redo_bytes: usize) -> u32 {
    redo_bytes.div_ceil(PAYLOAD_BYTES).max(1) as u32
}

/// What one block says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Label {
    /// Size of the ring.
    pub(super) blocks: u32,
    /// Which block of the ring this is.
    pub(super) position: u32,
    /// 0 or 1.
    pub(super) copy: u32,
    /// Which part of the record.
    pub(super) part: u32,
    pub(super) record: Record,
}

impl Label {
    /// Where the record begins; `None` when that would be before the ring.
    pub(super) fn start(&self) -> Option<u32> {
        self.position
            .checked_sub(self.copy * self.record.parts() + self.part)
    }
}

/// Writes a block. `payload` has at most [`PAYLOAD_BYTES`].
pub(super) fn encode(block: &mut [u8], label: Label, payload: &[u8]) {
    let record = label.record;
    let mut at = 0;
    let mut put = |bytes: &[u8]| {
        block[at..at + bytes.len()].copy_from_slice(bytes);
        at += bytes.len();
    };
    put(MAGIC);
    put(&[0; 4]);
    let small = [
        label.blocks,
        label.position,
        label.copy,
        label.part,
        record.redo_bytes,
    ];
    small.iter().for_each(|field| put(&field.to_le_bytes()));
    let large = [
        record.generation,
        record.store_id,
        record.head.seq,
        record.head.chain,
        record.previous.seq,
        record.previous.chain,
    ];
    large.iter().for_each(|field| put(&field.to_le_bytes()));
    put(payload);
    block[at..].fill(0);
    let crc = crc32fast::hash(&block[CRC_END..]);
    block[MAGIC.len()..CRC_END].copy_from_slice(&crc.to_le_bytes());
}

/// What the block at `position` says and holds; `None` when it is not as it was written, or
/// never was.
pub(super) fn decode(block: &[u8], position: u32) -> Option<(Label, &[u8])> {
    let mut fields = Fields(block);
    if block.len() != BLOCK_BYTES || fields.take(MAGIC.len())? != MAGIC {
        return None;
    }
    if fields.u32()? != crc32fast::hash(&block[CRC_END..]) {
        return None;
    }
    let (blocks, written_at) = (fields.u32()?, fields.u32()?);
    let (copy, part, redo_bytes) = (fields.u32()?, fields.u32()?, fields.u32()?);
    let record = Record {
        generation: fields.u64()?,
        store_id: fields.u64()?,
        head: head(&mut fields)?,
        previous: head(&mut fields)?,
        redo_bytes,
    };
    let label = Label {
        blocks,
        position,
        copy,
        part,
        record,
    };
    let is_sound = written_at == position && copy < 2 && part < record.parts();
    let end = label.start()?.checked_add(2 * record.parts())?;
    (is_sound && end <= blocks).then_some(())?;
    let before = part as usize * PAYLOAD_BYTES;
    let len = (redo_bytes as usize - before).min(PAYLOAD_BYTES);
    Some((label, fields.take(len)?))
}

fn head(fields: &mut Fields<'_>) -> Option<Head> {
    Some(Head {
        seq: fields.u64()?,
        chain: fields.u64()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> (Label, Vec<u8>, Vec<u8>) {
        let head = |seq| Head {
            seq,
            chain: seq * 31,
        };
        let record = Record {
            generation: 8,
            store_id: 3,
            head: head(7),
            previous: head(6),
            redo_bytes: PAYLOAD_BYTES as u32 + 10,
        };
        let label = Label {
            blocks: 32,
            position: 12,
            copy: 1,
            part: 1,
            record,
        };
        let mut block = vec![0xee; BLOCK_BYTES];
        let payload = b"ten bytes.".to_vec();
        encode(&mut block, label, &payload);
        (label, payload, block)
    }

    #[test]
    fn a_block_comes_back_and_knows_where_its_record_begins() {
        let (label, payload, block) = sample();
        assert_eq!(decode(&block, 12), Some((label, &payload[..])));
        assert_eq!(label.start(), Some(9));
    }

    #[test]
    fn a_block_in_another_place_is_none() {
        let (_, _, block) = sample();
        assert_eq!(decode(&block, 13), None);
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let (_, _, block) = sample();
        for bit in 0..BLOCK_BYTES * 8 {
            let mut flipped = block.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&flipped, 12), None, "bit {bit}");
        }
    }

    #[test]
    fn the_number_of_parts_follows_from_the_size() {
        let sizes = [0, 1, PAYLOAD_BYTES, PAYLOAD_BYTES + 1, 2 * PAYLOAD_BYTES];
        assert_eq!(sizes.map(parts), [1, 1, 1, 2, 2]);
    }
}
