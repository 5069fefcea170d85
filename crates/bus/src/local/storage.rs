//! The store as the journal and the slots use it: what its errors mean for them.

use detent_protocol::{Code, Fault};
use detent_store::{Store, StoreError, Txn};
use std::sync::atomic::{AtomicBool, Ordering};

/// How a commit that was not confirmed ended.
#[derive(Debug)]
pub(crate) enum CommitError {
    /// The condition with this number, from 0, did not hold; the row's value at that
    /// moment.
    Condition(usize, Option<bytes::Bytes>),
    /// Nothing was written.
    NotWritten(Fault),
    /// It may be written: that shows when the store is opened again.
    Unknown(Fault),
}

/// A store, and whether it was seen to fail.
#[derive(Debug)]
pub(crate) struct Storage {
    pub(crate) store: Store,
    // Once the store has failed it takes nothing until it is opened again, so what is
    // asked for later is certainly not written.
    failed: AtomicBool,
}

impl Storage {
    pub(crate) fn new(store: Store) -> Self {
        Self {
            store,
            failed: AtomicBool::new(false),
        }
    }

    /// Commits; durable when it returns.
    pub(crate) async fn commit(&self, txn: Txn) -> Result<(), CommitError> {
        if self.failed.load(Ordering::Acquire) {
            let text = "the store takes no more until the node is started again";
            return Err(CommitError::NotWritten(Fault::new(
                Code::JournalStorage,
                text,
            )));
        }
        match self.store.commit(txn).await {
            Ok(_) => Ok(()),
            Err(error) => Err(self.judge(error)),
        }
    }

    fn judge(&self, error: StoreError) -> CommitError {
        match error {
            StoreError::ConditionFailed { index, current } => {
                CommitError::Condition(index, current)
            }
            StoreError::Invalid { .. } | StoreError::CorruptRow { .. } | StoreError::Closed => {
                CommitError::NotWritten(fault(&error))
            }
            // A disk error while the conditions are read writes nothing and leaves the
            // store usable; one while the group is written stops it. Which of them it
            // was shows in the status; where that can't be had, nobody knows.
            error => match self.store.status() {
                Ok(status) if status.failed.is_none() => CommitError::NotWritten(fault(&error)),
                _ => {
                    self.failed.store(true, Ordering::Release);
                    CommitError::Unknown(Fault::new(Code::JournalUnknown, error.to_string()))
                }
            },
        }
    }
}

/// The store's error as everybody else sees it.
pub(crate) fn fault(error: &StoreError) -> Fault {
    let code = match error {
        error if error.is_corrupt() => Code::JournalCorrupt,
        StoreError::Locked { .. } => Code::DataDirLocked,
        StoreError::Invalid { .. } => Code::InputTooLarge,
        _ => Code::JournalStorage,
    };
    Fault::new(code, error.to_string())
}

/// A row whose checksum is right and that still makes no sense.
pub(crate) fn nonsense(what: &str) -> Fault {
    Fault::new(Code::JournalCorrupt, format!("{what} is not what was kept"))
}

/// Runs reads that may go to the disk where they hold up nobody.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(Fault::new(Code::JournalStorage, error.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn open(dir: &std::path::Path) -> Storage {
        Storage::new(Store::open(detent_store::StoreOptions::journal(dir)).unwrap())
    }

    fn io() -> Arc<std::io::Error> {
        Arc::new(std::io::Error::other("test"))
    }

    #[tokio::test]
    async fn a_disk_error_of_a_store_that_goes_on_wrote_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let storage = open(dir.path());
        let op = "reading";
        let judged = storage.judge(StoreError::Io { op, source: io() });
        assert!(matches!(judged, CommitError::NotWritten(f) if f.code == Code::JournalStorage));
        assert!(storage.commit(Txn::new()).await.is_ok());
    }

    #[tokio::test]
    async fn after_an_unclear_write_everything_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let storage = open(dir.path());
        storage.store.clone().close().await.unwrap();
        // A closed store has no status: whether it failed can't be told.
        let op = "writing";
        let judged = storage.judge(StoreError::Full { op, source: io() });
        assert!(matches!(judged, CommitError::Unknown(f) if f.code == Code::JournalUnknown));
        let later = storage.commit(Txn::new()).await.unwrap_err();
        assert!(matches!(later, CommitError::NotWritten(f) if f.code == Code::JournalStorage));
    }

    #[test]
    fn damage_is_called_damage() {
        let detail = "checksum";
        let row = StoreError::CorruptRow {
            table: "t".into(),
            key: bytes::Bytes::new(),
            detail,
        };
        assert_eq!(fault(&row).code, Code::JournalCorrupt);
        assert_eq!(fault(&StoreError::Closed).code, Code::JournalStorage);
    }
}
