//! How a store is opened: where it lies, its bounds, how hard it syncs and verifies.

use std::path::PathBuf;

use crate::StoreError;
use crate::ring::{RING_BYTES_CEILING, RING_BYTES_FLOOR};

/// Most transactions one group commit may take.
pub(crate) const BATCH_WRITES_CEILING: usize = 256;

/// Settings of one store. All bounds are checked by [`crate::Store::open`].
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// Directory of the store; created with its parents when missing.
    pub dir: PathBuf,
    /// Page cache of sled in bytes; at least 1 MiB. Without it a full scan takes hundreds of MiB.
    pub cache_bytes_max: u64,
    /// Transactions that may wait for the committer, at least 1; beyond it
    /// [`crate::Store::commit`] waits.
    pub queue_writes_max: usize,
    /// Transactions in one group commit, 1 to 256.
    pub batch_writes_max: usize,
    /// Time in milliseconds after which a group commit that does not come back counts as
    /// failed, at least 1,000: a panic in sled's own I/O threads leaves its callers waiting
    /// for ever.
    pub stall_ms_max: u64,
    /// Size of the witness file of a new store in bytes, 128 KiB to 16 MiB; a store that exists
    /// keeps what it has. It bounds what is put back when a killed store is opened. A group
    /// that takes more than an eighth of it is answered later, when sled has it. On a disk with
    /// little space the file is made smaller, down to 128 KiB.
    pub witness_bytes_max: u64,
    /// Whether commits reach the disk before they return.
    pub sync: SyncMode,
    /// What is compared when the store is opened.
    pub verify: VerifyOnOpen,
}

/// Whether a commit is on the disk when it returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncMode {
    /// Every group is on the disk before it is answered: survives a power cut.
    Fdatasync,
    /// Nothing is synced: what was answered is with the operating system, so it survives a
    /// killed process, not a power cut. For caches that may be lost; after a power cut such a
    /// store may open as corrupt and is then rebuilt.
    Never,
}

/// What [`crate::Store::open`] compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VerifyOnOpen {
    /// Every row's checksum, and count and digest of all rows, beside the witness.
    Full,
    /// The witness only: finds a lost tail; rows are checked when they are read.
    Witness,
}

impl StoreOptions {
    /// Settings for a journal in `dir`: synced, fully verified, 64 MiB of cache, a queue of
    /// 1,024 and groups of 256 transactions, 30 seconds until a commit counts as stalled, a
    /// witness of 2 MiB.
    pub fn journal(dir: impl Into<PathBuf>) -> StoreOptions {
        StoreOptions {
            dir: dir.into(),
            cache_bytes_max: 64 << 20,
            queue_writes_max: 1024,
            batch_writes_max: BATCH_WRITES_CEILING,
            stall_ms_max: 30_000,
            witness_bytes_max: 2 << 20,
            sync: SyncMode::Fdatasync,
            verify: VerifyOnOpen::Full,
        }
    }

    /// Settings for a cache in `dir` that may be lost and rebuilt: not synced, witness only,
    /// which has 1 MiB.
    pub fn cache(dir: impl Into<PathBuf>) -> StoreOptions {
        StoreOptions {
            sync: SyncMode::Never,
            verify: VerifyOnOpen::Witness,
            witness_bytes_max: 1 << 20,
            ..StoreOptions::journal(dir)
        }
    }

    pub(crate) fn validate(&self) -> Result<(), StoreError> {
        let complaint = if self.cache_bytes_max < 1 << 20 {
            "cache_bytes_max must be at least 1 MiB"
        } else if self.queue_writes_max == 0 {
            "queue_writes_max must be at least 1"
        } else if !(1..=BATCH_WRITES_CEILING).contains(&self.batch_writes_max) {
            "batch_writes_max must be 1 to 256"
        } else if self.stall_ms_max < 1000 {
            "stall_ms_max must be at least 1000"
        } else if !(RING_BYTES_FLOOR..=RING_BYTES_CEILING).contains(&self.witness_bytes_max) {
            "witness_bytes_max must be 128 KiB to 16 MiB"
        } else {
            return Ok(());
        };
        Err(StoreError::Invalid {
            what: complaint.to_owned(),
        })
    }
}
