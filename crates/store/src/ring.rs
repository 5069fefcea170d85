//! The witness: a ring of redo records beside sled, and the first home of every commit.
//!
//! sled's own flush wakes a pool of threads, and sled takes a damaged record for the end of
//! its log, so it cannot see that its tail is missing. So a group is written here first, whole,
//! in one synchronous write, and answered. sled gets many groups at once, later, in a
//! *checkpoint* that is flushed and synced. Whatever a crash leaves in sled, the records behind
//! sled's head are put back when the store is opened. A group that is too large goes to sled
//! first, flushed and synced, and then leaves a record without content.
//!
//! The file has its final size from the beginning and all of it was written once, so a write
//! changes nothing but content: no metadata to sync, and no space to run out of, unless the
//! filesystem writes to a new place each time. A record lies in a row of blocks of 4 KiB, and
//! the whole row lies there twice, one copy after the other. Each block carries a checksum, its
//! own position, and what the record says ([`block`]). A record never goes around the end. No
//! record is overwritten whose group sled has not synced, and never the newest one.
//!
//! # What damage does
//!
//! The records behind sled's head must follow one another without a gap (sequence and hash
//! chain) up to the newest. Besides, every block says which head was durable when its record
//! was begun, and the store must have reached that, too.
//!
//! | damage | to a record that sled has not synced | to any other record |
//! |---|---|---|
//! | a flipped byte, a zeroed or stale block | made good from the other copy, with a warning | of no account; if sled has lost its tail as well: made good from the other copy |
//! | one copy of it, all blocks | the same | the same |
//! | the same part of both copies, not the newest record | `Corrupt`: the chain has a gap | of no account |
//! | the same part of both copies, the newest record | taken for a write that a crash cut off: dropped | nothing is lost: sled has the group |
//! | file cut or longer | `Corrupt` | `Corrupt` |
//! | file missing, empty, all zeros, of another store | `Corrupt` | `Corrupt` |
//! | file replaced by an older copy of itself | `Corrupt` where sled is ahead of it by more than a group, else not to be told | `Corrupt`; nothing where it is the last but one |
//!
//! "Not synced" is a matter of a kill in the middle of work: after a clean close sled has all.
//! A killed process loses nothing that a write has taken; a write that it was in the middle of
//! was not answered, and is either whole in one copy or dropped. So damage to one copy never
//! costs a confirmed commit. What is left open is damage to both copies of the very newest
//! record, or the whole file put back, within the moment before sled's sync: there no witness
//! is left that could tell.
//!
//! What it must not know: what a group means; when sled is synced.

mod block;
mod file;
mod make;
mod plan;
mod survey;

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io;
use std::path::Path;

use block::{BLOCK_BYTES, Label, PAYLOAD_BYTES};
use file::{Aligned, RingFile};

pub(crate) use block::Record;
pub(crate) use plan::{Plan, plan};
pub(crate) use survey::{Survey, Unusable, read, redo};

use crate::SyncMode;
use crate::meta::Head;

/// Largest ring in bytes.
pub(crate) const RING_BYTES_CEILING: u64 = 16 << 20;
/// Smallest ring in bytes.
pub(crate) const RING_BYTES_FLOOR: u64 = 128 << 10;
/// A record takes at most this part of the ring, both copies together.
const RECORD_SHARE: u32 = 4;

/// What a record says beside its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Testimony {
    pub(crate) store_id: u64,
    /// The store's head with the group.
    pub(crate) head: Head,
    /// The head before it, which is durable already.
    pub(crate) previous: Head,
}

/// The open ring. Owned by the one thread that commits.
pub(crate) struct Ring {
    file: RingFile,
    blocks: u32,
    generation: u64,
    /// Where the next record begins, if it does not go around the end.
    next: u32,
    /// Blocks of the newest record.
    newest: u32,
    /// Blocks before `next` that may not be overwritten.
    held: u32,
    memory: Aligned,
}

impl Ring {
    /// Makes the file: it appears under its name only when it is whole and synced. It has
    /// `bytes_max` bytes, or less where there is little space, but [`RING_BYTES_FLOOR`].
    pub(crate) fn create(
        path: &Path,
        bytes_max: u64,
        says: Testimony,
        sync: SyncMode,
    ) -> io::Result<Ring> {
        let (file, blocks) = make::make(path, bytes_max, says)?;
        Ok(Ring {
            file: RingFile::new(path, file, sync),
            blocks,
            generation: 0,
            next: 2,
            newest: 2,
            held: 2,
            memory: Aligned::default(),
        })
    }

    /// Goes on behind the newest whole record. For a store that has all groups synced.
    pub(crate) fn resume(path: &Path, file: File, survey: &Survey, sync: SyncMode) -> Ring {
        let newest = survey.newest();
        let blocks = 2 * newest.record.parts();
        Ring {
            file: RingFile::new(path, file, sync),
            blocks: survey.blocks,
            generation: survey.last_generation,
            next: newest.start + blocks,
            newest: blocks,
            held: blocks,
            memory: Aligned::default(),
        }
    }

    /// Largest group that a record keeps, in bytes.
    pub(crate) fn redo_bytes_max(&self) -> usize {
        (self.blocks / (2 * RECORD_SHARE)) as usize * PAYLOAD_BYTES
    }

    /// Whether a group of that size fits without overwriting what sled has not synced.
    pub(crate) fn has_room(&self, redo_bytes: usize) -> bool {
        let (_, skipped, len) = self.place(redo_bytes);
        self.held + skipped + len <= self.blocks
    }

    /// Whether little is left until [`Ring::release`].
    pub(crate) fn is_filling(&self) -> bool {
        self.held >= self.blocks / 4 * 3
    }

    /// Writes a record in both copies; on the disk when it returns, unless syncing is off.
    /// `redo` is empty or a group that has room. Gives the number of syncs.
    pub(crate) fn write(&mut self, says: Testimony, redo: &[u8]) -> io::Result<u64> {
        if redo.len() > self.redo_bytes_max() || !self.has_room(redo.len()) {
            return Err(io::Error::other("no room in the witness"));
        }
        let (start, skipped, len) = self.place(redo.len());
        // Counted first: a write that fails may have left blocks of this generation.
        self.generation += 1;
        let record = record(self.generation, says, redo.len());
        let blocks = self.memory.take(len as usize * BLOCK_BYTES);
        encode(blocks, self.blocks, start, record, redo);
        let offset = u64::from(start) * BLOCK_BYTES as u64;
        let syncs = self.file.write(blocks, offset)?;
        self.next = start + len;
        self.newest = len;
        self.held += skipped + len;
        Ok(syncs)
    }

    /// Sled has synced all groups so far: all records but the newest may be overwritten.
    pub(crate) fn release(&mut self) {
        self.held = self.newest;
    }

    /// Where a record of that size begins, how many blocks it leaves out before that, and how
    /// many it takes.
    fn place(&self, redo_bytes: usize) -> (u32, u32, u32) {
        let len = 2 * block::parts(redo_bytes);
        if self.next + len <= self.blocks {
            (self.next, 0, len)
        } else {
            (0, self.blocks - self.next, len)
        }
    }
}

fn record(generation: u64, says: Testimony, redo_bytes: usize) -> Record {
    Record {
        generation,
        store_id: says.store_id,
        head: says.head,
        previous: says.previous,
        redo_bytes: redo_bytes as u32,
    }
}

/// Writes both copies of a record that begins with block `start` of a ring of `blocks`.
fn encode(out: &mut [u8], blocks: u32, start: u32, record: Record, redo: &[u8]) {
    let parts = record.parts();
    for (index, block) in out.chunks_mut(BLOCK_BYTES).enumerate() {
        let index = index as u32;
        let label = Label {
            blocks,
            position: start + index,
            copy: index / parts,
            part: index % parts,
            record,
        };
        let from = (label.part as usize * PAYLOAD_BYTES).min(redo.len());
        let to = (from + PAYLOAD_BYTES).min(redo.len());
        block::encode(block, label, &redo[from..to]);
    }
}

/// First block of a record, and blocks of one copy of it.
#[cfg(test)]
pub(crate) fn place_of(whole: &survey::Whole) -> (usize, usize) {
    (whole.start as usize, whole.record.parts() as usize)
}
