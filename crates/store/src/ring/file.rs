//! The ring's file and how a write gets on the disk: in one synchronous call.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::{Errno, ReadWriteFlags};

use super::block::BLOCK_BYTES;
use crate::SyncMode;

/// The open file. Owned by the one thread that commits.
pub(super) struct RingFile {
    file: File,
    /// The same file past the page cache, where the filesystem has that: it spares a synced
    /// write the detour.
    direct: Option<File>,
    sync: SyncMode,
}

impl RingFile {
    pub(super) fn new(path: &Path, file: File, sync: SyncMode) -> RingFile {
        let direct = match sync {
            SyncMode::Fdatasync => OpenOptions::new()
                .write(true)
                .custom_flags(OFlags::DIRECT.bits() as i32)
                .open(path)
                .ok(),
            SyncMode::Never => None,
        };
        RingFile { file, direct, sync }
    }

    /// Writes `blocks` whole; on the disk when it returns, unless syncing is off. Gives the
    /// number of syncs.
    pub(super) fn write(&mut self, blocks: &[u8], offset: u64) -> io::Result<u64> {
        if self.sync == SyncMode::Never {
            return self.file.write_all_at(blocks, offset).map(|()| 0);
        }
        if let Some(direct) = &self.direct {
            match write_synced(direct, blocks, offset) {
                Ok(written) if written == blocks.len() => return Ok(1),
                // A short one is written again as a whole below.
                Ok(_) => {}
                // Alignment that this disk does not take, or no such flag.
                Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => self.direct = None,
                Err(error) => return Err(error.into()),
            }
        }
        match write_synced(&self.file, blocks, offset) {
            Ok(written) if written == blocks.len() => return Ok(1),
            Ok(_) | Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => {}
            Err(error) => return Err(error.into()),
        }
        // The long way, which is idempotent.
        self.file.write_all_at(blocks, offset)?;
        self.file.sync_data().map(|()| 1)
    }
}

fn write_synced(file: &File, blocks: &[u8], offset: u64) -> Result<usize, Errno> {
    rustix::io::pwritev2(file, &[IoSlice::new(blocks)], offset, ReadWriteFlags::DSYNC)
}

/// What the memory of a write grows by.
const STEP_BYTES: usize = 64 << 10;

/// Memory at an address that direct writes take. It keeps its size, so that it is not asked
/// from the system again and again.
#[derive(Default)]
pub(super) struct Aligned {
    bytes: Vec<u8>,
}

impl Aligned {
    /// `len` bytes of any content.
    pub(super) fn take(&mut self, len: usize) -> &mut [u8] {
        if self.bytes.len() < len + BLOCK_BYTES {
            self.bytes = vec![0; (len + BLOCK_BYTES).next_multiple_of(STEP_BYTES)];
        }
        let skip = self.bytes.as_ptr().align_offset(BLOCK_BYTES);
        // `align_offset` may give up; then any place will do, and the write goes the long way.
        let skip = if skip < BLOCK_BYTES { skip } else { 0 };
        &mut self.bytes[skip..skip + len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligned_memory_is_aligned_whatever_its_size() {
        let mut memory = Aligned::default();
        for len in [4096, 8192, 1 << 20, 4096] {
            let bytes = memory.take(len);
            assert_eq!((bytes.len(), bytes.as_ptr().addr() % BLOCK_BYTES), (len, 0));
        }
    }

    /// Whether or not the filesystem takes direct writes, what was written is read.
    #[test]
    fn what_is_written_is_read_through_the_cache() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        for sync in [SyncMode::Fdatasync, SyncMode::Never] {
            std::fs::write(&path, vec![0; 8 * BLOCK_BYTES]).unwrap();
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .open(&path)
                .unwrap();
            let mut file = RingFile::new(&path, file, sync);
            let mut memory = Aligned::default();
            for n in 0..7_u8 {
                let blocks = memory.take(2 * BLOCK_BYTES);
                blocks.fill(n + 1);
                let syncs = file.write(blocks, u64::from(n) * BLOCK_BYTES as u64);
                assert_eq!(syncs.unwrap(), u64::from(sync == SyncMode::Fdatasync));
                let read = std::fs::read(&path).unwrap();
                let at = usize::from(n) * BLOCK_BYTES;
                assert_eq!(
                    read[at..at + 2 * BLOCK_BYTES],
                    *memory.take(2 * BLOCK_BYTES)
                );
            }
        }
    }

    #[test]
    fn unaligned_memory_is_written_all_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, vec![0; 4 * BLOCK_BYTES]).unwrap();
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        let mut file = RingFile::new(&path, file, SyncMode::Fdatasync);
        let memory: Vec<u8> = (0..3 * BLOCK_BYTES).map(|n| n as u8).collect();
        for from in [1, 2] {
            let blocks = &memory[from..from + 2 * BLOCK_BYTES];
            assert_eq!(file.write(blocks, 0).unwrap(), 1);
            assert_eq!(std::fs::read(&path).unwrap()[..2 * BLOCK_BYTES], *blocks);
        }
    }
}
