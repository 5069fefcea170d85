//! Counts for metrics. They start at zero with each opening.

use std::sync::atomic::{AtomicU64, Ordering};

/// What the committer has done since the store was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoreCounters {
    /// Transactions committed.
    pub commits: u64,
    /// Group commits that carried them.
    pub groups: u64,
    /// Synchronous writes to the disk: writes of the witness and fdatasync of the data.
    pub syncs: u64,
    /// Times that the data was brought up to the witness, for many groups at once.
    pub checkpoints: u64,
    /// Transactions refused because a condition did not hold.
    pub conditions_failed: u64,
}

#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) commits: AtomicU64,
    pub(crate) groups: AtomicU64,
    pub(crate) syncs: AtomicU64,
    pub(crate) checkpoints: AtomicU64,
    pub(crate) conditions_failed: AtomicU64,
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn snapshot(&self) -> StoreCounters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        StoreCounters {
            commits: read(&self.commits),
            groups: read(&self.groups),
            syncs: read(&self.syncs),
            checkpoints: read(&self.checkpoints),
            conditions_failed: read(&self.conditions_failed),
        }
    }
}
