//! The witness: a small file beside sled that says how far the store has come.
//!
//! sled finds the end of its log by itself and takes a damaged record for the end, so it
//! cannot see that its tail is missing. A commit is answered when both have its group. A group
//! that fits is kept in the witness as a whole, and the two are written at once: after a crash
//! sled may be one group behind the witness, and the witness makes it good. A larger group goes
//! to sled first: then the witness may be one group behind sled, never ahead.
//!
//! Two slots of 32 KiB are written in turn, so a torn write leaves the other one. Slot:
//! `magic 8 | generation u64 | store id u64 | seq u64 | chain u64 | redo bytes u32 | redo |
//! crc32 u32`, little-endian. The file never grows, so a sync of it writes no metadata.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::io::{Errno, ReadWriteFlags};

use crate::SyncMode;
use crate::codec::Fields;
use crate::meta::Head;
use crate::redo::REDO_BYTES_MAX;

const SLOT_BYTES: usize = 32 << 10;
const MAGIC: &[u8; 8] = b"DTWITN02";
const HEADER_BYTES: usize = 44;
const CRC_BYTES: usize = 4;
/// What is written of a slot is a multiple of this.
const BLOCK_BYTES: usize = 4096;
const _: () = assert!(HEADER_BYTES + REDO_BYTES_MAX + CRC_BYTES <= SLOT_BYTES);

/// The open witness file.
pub(crate) struct Witness {
    file: File,
    generation: u64,
    sync: SyncMode,
}

/// What a slot says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Testimony {
    pub(crate) store_id: u64,
    pub(crate) head: Head,
}

/// What a witness file holds: the newest testimony, and its group when that was kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) says: Testimony,
    /// Empty when the group was too large.
    pub(crate) redo: Vec<u8>,
}

impl Witness {
    /// Makes the file whole or not at all: it appears under its name only when synced.
    pub(crate) fn create(path: &Path, says: Testimony, sync: SyncMode) -> io::Result<Witness> {
        let draft = path.with_extension("new");
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&draft)?;
        let mut content = vec![0; 2 * SLOT_BYTES];
        let slot = encode(0, says, &[]);
        content[..slot.len()].copy_from_slice(&slot);
        file.write_all_at(&content, 0)?;
        file.sync_all()?;
        std::fs::rename(&draft, path)?;
        Ok(Witness {
            file,
            generation: 0,
            sync,
        })
    }

    /// Reads the newest valid slot; the inner `None` says that there is none.
    pub(crate) fn open(path: &Path, sync: SyncMode) -> io::Result<Option<(Witness, Found)>> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let mut content = Vec::new();
        io::Read::read_to_end(
            &mut io::Read::take(&file, 4 * SLOT_BYTES as u64),
            &mut content,
        )?;
        if content.len() != 2 * SLOT_BYTES {
            return Ok(None);
        }
        let slots = content.chunks(SLOT_BYTES).enumerate();
        let valid = slots.filter_map(|(index, slot)| {
            decode(slot).filter(|(generation, _)| generation % 2 == index as u64)
        });
        let newest = valid.max_by_key(|(generation, _)| *generation);
        Ok(newest.map(|(generation, found)| {
            (
                Witness {
                    file,
                    generation,
                    sync,
                },
                found,
            )
        }))
    }

    /// Writes the next slot; on the disk when it returns, unless syncing is off. `redo` has at
    /// most [`REDO_BYTES_MAX`]. Gives the number of syncs.
    pub(crate) fn write(&mut self, says: Testimony, redo: &[u8]) -> io::Result<u64> {
        self.generation += 1;
        let offset = (self.generation % 2) * SLOT_BYTES as u64;
        let slot = encode(self.generation, says, redo);
        match self.sync {
            SyncMode::Never => self.file.write_all_at(&slot, offset).map(|()| 0),
            SyncMode::Fdatasync => self.write_synced(&slot, offset).map(|()| 1),
        }
    }

    /// One call that writes and syncs, where the filesystem has it.
    fn write_synced(&self, slot: &[u8], offset: u64) -> io::Result<()> {
        let buffers = [IoSlice::new(slot)];
        match rustix::io::pwritev2(&self.file, &buffers, offset, ReadWriteFlags::DSYNC) {
            Ok(written) if written == slot.len() => Ok(()),
            // A short write, or no such flag: the long way, which is idempotent.
            Ok(_) | Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                self.file.write_all_at(slot, offset)?;
                self.file.sync_data()
            }
            Err(error) => Err(error.into()),
        }
    }
}

fn encode(generation: u64, says: Testimony, redo: &[u8]) -> Vec<u8> {
    let mut slot = Vec::with_capacity(HEADER_BYTES + redo.len() + BLOCK_BYTES);
    slot.extend_from_slice(MAGIC);
    for field in [generation, says.store_id, says.head.seq, says.head.chain] {
        slot.extend_from_slice(&field.to_le_bytes());
    }
    slot.extend_from_slice(&(redo.len() as u32).to_le_bytes());
    slot.extend_from_slice(redo);
    let crc = crc32fast::hash(&slot);
    slot.extend_from_slice(&crc.to_le_bytes());
    slot.resize(slot.len().next_multiple_of(BLOCK_BYTES), 0);
    slot
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
    let says = Testimony { store_id, head };
    (fields.u32()? == crc).then_some((generation, Found { says, redo }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(seq: u64) -> Testimony {
        Testimony {
            store_id: 9,
            head: Head {
                seq,
                chain: seq * 31,
            },
        }
    }

    #[test]
    fn the_newest_slot_is_read_and_a_torn_one_leaves_the_other() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("WITNESS");
        let mut witness = Witness::create(&path, says(1), SyncMode::Fdatasync).unwrap();
        for seq in 2..=5 {
            let redo = vec![seq as u8; seq as usize * 2000];
            assert_eq!(witness.write(says(seq), &redo).unwrap(), 1);
        }
        let read = || {
            Witness::open(&path, SyncMode::Fdatasync)
                .unwrap()
                .map(|(_, found)| found)
        };
        let found = |seq: u64| {
            Some(Found {
                says: says(seq),
                redo: vec![seq as u8; seq as usize * 2000],
            })
        };
        assert_eq!(read(), found(5));

        // Generation 4 lies in slot 0: tear it in its last block, then its elder too.
        let torn = 2 * BLOCK_BYTES as u64;
        witness.file.write_all_at(&[0xff; 64], torn).unwrap();
        assert_eq!(read(), found(4));
        let elder = SLOT_BYTES as u64;
        witness.file.write_all_at(&[0xff; 64], elder).unwrap();
        assert_eq!(read(), None);
    }
}
