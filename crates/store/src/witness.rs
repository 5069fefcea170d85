//! The witness: a small file beside sled that says how far the store has come.
//!
//! sled finds the end of its log by itself and takes a damaged record for the end, so it
//! cannot see that its tail is missing. The witness is written after sled's sync and before
//! the commit is answered: it may be one group behind sled, never ahead.
//!
//! Two slots of 4 KiB are written in turn, so a torn write leaves the other one. Slot:
//! `magic 8 | generation u64 | store id u64 | seq u64 | chain u64 | crc32 u32`, little-endian.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::io::{Errno, ReadWriteFlags};

use crate::SyncMode;
use crate::codec::Fields;
use crate::meta::Head;

const SLOT_BYTES: usize = 4096;
const MAGIC: &[u8; 8] = b"DTWITN01";
const CONTENT_BYTES: usize = 40;

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
        content[..SLOT_BYTES].copy_from_slice(&encode(0, says));
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
    pub(crate) fn open(path: &Path, sync: SyncMode) -> io::Result<Option<(Witness, Testimony)>> {
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
        Ok(newest.map(|(generation, says)| {
            (
                Witness {
                    file,
                    generation,
                    sync,
                },
                says,
            )
        }))
    }

    /// Writes the next slot; on the disk when it returns, unless syncing is off. Gives the
    /// number of syncs.
    pub(crate) fn write(&mut self, says: Testimony) -> io::Result<u64> {
        self.generation += 1;
        let offset = (self.generation % 2) * SLOT_BYTES as u64;
        let slot = encode(self.generation, says);
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

fn encode(generation: u64, says: Testimony) -> [u8; SLOT_BYTES] {
    let mut slot = [0; SLOT_BYTES];
    slot[..8].copy_from_slice(MAGIC);
    let fields = [generation, says.store_id, says.head.seq, says.head.chain];
    for (place, field) in slot[8..CONTENT_BYTES]
        .as_chunks_mut::<8>()
        .0
        .iter_mut()
        .zip(fields)
    {
        *place = field.to_le_bytes();
    }
    let crc = crc32fast::hash(&slot[..CONTENT_BYTES]);
    slot[CONTENT_BYTES..CONTENT_BYTES + 4].copy_from_slice(&crc.to_le_bytes());
    slot
}

fn decode(slot: &[u8]) -> Option<(u64, Testimony)> {
    let crc = crc32fast::hash(slot.get(..CONTENT_BYTES)?);
    let mut fields = Fields(slot);
    if fields.take(8)? != MAGIC {
        return None;
    }
    let (generation, store_id) = (fields.u64()?, fields.u64()?);
    let head = Head {
        seq: fields.u64()?,
        chain: fields.u64()?,
    };
    (fields.u32()? == crc).then_some((generation, Testimony { store_id, head }))
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
            assert_eq!(witness.write(says(seq)).unwrap(), 1);
        }
        let read = || {
            Witness::open(&path, SyncMode::Fdatasync)
                .unwrap()
                .map(|(_, says)| says)
        };
        assert_eq!(read(), Some(says(5)));

        // Generation 4 lies in slot 0: tear it, then its elder too.
        witness.file.write_all_at(&[0xff; 64], 0).unwrap();
        assert_eq!(read(), Some(says(4)));
        witness
            .file
            .write_all_at(&[0xff; 64], SLOT_BYTES as u64)
            .unwrap();
        assert_eq!(read(), None);
    }
}
