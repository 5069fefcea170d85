//! Reading a ring as a crash left it: which records are whole, which are not.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;

use super::RING_BYTES_CEILING;
use super::block::{self, BLOCK_BYTES, Label, PAYLOAD_BYTES, Record};
use crate::meta::Head;

/// What is read at once, in bytes.
const READ_BYTES: usize = 256 << 10;

/// A record of which each part is there in one copy at least.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Whole {
    pub(crate) record: Record,
    /// The block it begins with.
    pub(super) start: u32,
    /// Blocks of it that are not as they were written.
    pub(crate) damaged: u32,
}

/// What a ring holds.
#[derive(Debug)]
pub(crate) struct Survey {
    pub(super) blocks: u32,
    /// In the order they were written. Never empty.
    pub(crate) whole: Vec<Whole>,
    /// The furthest head that any block, of a whole record or not, proves to have been durable.
    pub(crate) proven: Head,
    /// Of the last record that left a trace, whole or not.
    pub(super) last_generation: u64,
    pub(crate) store_ids: Vec<u64>,
}

/// What is wrong with a file as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unusable {
    /// No block of it is a ring's.
    NoRing,
    /// It is shorter or longer than it was made.
    Length,
    /// There are blocks, but not one whole record.
    NoRecord,
}

/// Parts of a record that were found, per copy.
type Parts = Vec<[bool; 2]>;

/// Reads a ring's file from its beginning.
pub(crate) fn read(file: &File) -> io::Result<Result<Survey, Unusable>> {
    let bytes = file.metadata()?.len();
    if bytes > RING_BYTES_CEILING {
        return Ok(Err(Unusable::NoRing));
    }
    read_blocks(BufReader::with_capacity(READ_BYTES, file), bytes)
}

/// Reads all blocks, one after the other. Holds a few bytes for each.
pub(super) fn read_blocks(
    mut reader: impl Read,
    bytes: u64,
) -> io::Result<Result<Survey, Unusable>> {
    let mut block = [0; BLOCK_BYTES];
    let mut found: BTreeMap<(Record, u32), Parts> = BTreeMap::new();
    let mut blocks = None;
    for position in 0..(bytes / BLOCK_BYTES as u64) as u32 {
        reader.read_exact(&mut block)?;
        let Some((label, _)) = block::decode(&block, position) else {
            continue;
        };
        if bytes != u64::from(label.blocks) * BLOCK_BYTES as u64 {
            return Ok(Err(Unusable::Length));
        }
        blocks = Some(label.blocks);
        note(&mut found, label);
    }
    Ok(match blocks {
        None => Err(Unusable::NoRing),
        Some(blocks) => conclude(blocks, &found),
    })
}

fn note(found: &mut BTreeMap<(Record, u32), Parts>, label: Label) {
    let Some(start) = label.start() else { return };
    let parts = found
        .entry((label.record, start))
        .or_insert_with(|| vec![[false; 2]; label.record.parts() as usize]);
    parts[label.part as usize][label.copy as usize] = true;
}

fn conclude(blocks: u32, found: &BTreeMap<(Record, u32), Parts>) -> Result<Survey, Unusable> {
    let mut whole = Vec::new();
    let mut proven = None;
    let mut store_ids = Vec::new();
    let mut last_generation = 0;
    for (&(record, start), parts) in found {
        last_generation = last_generation.max(record.generation);
        proven = proven.max(Some(record.previous));
        if !store_ids.contains(&record.store_id) {
            store_ids.push(record.store_id);
        }
        let is_whole = parts.iter().all(|[a, b]| *a || *b);
        if is_whole {
            let damaged = parts.iter().flatten().filter(|sound| !**sound).count() as u32;
            proven = proven.max(Some(record.head));
            whole.push(Whole {
                record,
                start,
                damaged,
            });
        }
    }
    match (proven, whole.is_empty()) {
        (Some(proven), false) => Ok(Survey {
            blocks,
            whole,
            proven,
            last_generation,
            store_ids,
        }),
        _ => Err(Unusable::NoRecord),
    }
}

impl Survey {
    /// The last record that is whole.
    pub(crate) fn newest(&self) -> &Whole {
        &self.whole[self.whole.len() - 1]
    }

    /// Whether a record was begun after the newest whole one.
    pub(crate) fn ends_unfinished(&self) -> bool {
        self.last_generation > self.newest().record.generation
    }
}

/// The group that a record keeps; `None` when it changed since the survey.
pub(crate) fn redo(file: &File, whole: &Whole) -> io::Result<Option<Vec<u8>>> {
    let record = &whole.record;
    let mut redo = Vec::with_capacity(record.redo_bytes as usize);
    for part in 0..record.parts() {
        let from_copy = |copy| read_part(file, whole, part, copy);
        let payload = match from_copy(0)? {
            Some(payload) => Some(payload),
            None => from_copy(1)?,
        };
        let Some(payload) = payload else {
            return Ok(None);
        };
        redo.extend_from_slice(&payload);
    }
    Ok(Some(redo))
}

fn read_part(file: &File, whole: &Whole, part: u32, copy: u32) -> io::Result<Option<Vec<u8>>> {
    let position = whole.start + copy * whole.record.parts() + part;
    let mut block = [0; BLOCK_BYTES];
    file.read_exact_at(&mut block, u64::from(position) * BLOCK_BYTES as u64)?;
    let payload = block::decode(&block, position)
        .filter(|(label, _)| {
            label.record == whole.record && (label.part, label.copy) == (part, copy)
        })
        .map(|(_, payload)| {
            debug_assert!(payload.len() <= PAYLOAD_BYTES);
            payload.to_vec()
        });
    Ok(payload)
}
