//! The store's one error type, and how errors of sled and of the system become it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use rustix::io::Errno;

/// What can go wrong with a store. Cheap to clone: one failed group answers many callers.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// Another opener, in this or another process, holds the store.
    #[error("store {dir} is in use by process {}", .pid.map_or_else(|| "(unknown)".to_owned(), |p| p.to_string()), dir = .dir.display())]
    Locked {
        /// The store's directory.
        dir: PathBuf,
        /// Process id of the holder, when it has written it already.
        pid: Option<u32>,
    },
    /// The files contradict one another: something that was committed is lost or altered.
    #[error(
        "store {dir} is corrupt: {detail}; copy the directory away before anything else, then restore or rebuild it",
        dir = .dir.display()
    )]
    Corrupt {
        /// The store's directory.
        dir: PathBuf,
        /// What does not fit.
        detail: String,
    },
    /// One row does not match its checksum.
    #[error("row {} of table {table} is corrupt: {detail}", .key.escape_ascii())]
    CorruptRow {
        /// The table.
        table: String,
        /// The row's key.
        key: Bytes,
        /// What does not fit.
        detail: &'static str,
    },
    /// A condition of the transaction did not hold; nothing of it was written.
    #[error("condition {index} of the transaction does not hold")]
    ConditionFailed {
        /// Position of the condition in the order it was added, from 0.
        index: usize,
        /// The row's value at that moment.
        current: Option<Bytes>,
    },
    /// The request is outside the store's documented bounds.
    #[error("invalid request: {what}")]
    Invalid {
        /// The bound that was broken.
        what: String,
    },
    /// No space (or quota, or file size limit) is left. From a commit: whether it is in the
    /// store is not known until the store is opened again.
    #[error("no space left while {op}: {source}")]
    Full {
        /// What the store was doing.
        op: &'static str,
        /// The system's error.
        source: Arc<io::Error>,
    },
    /// The system refused a read or a write. From a commit: whether it is in the store is
    /// not known until the store is opened again.
    #[error("I/O error while {op}: {source}")]
    Io {
        /// What the store was doing.
        op: &'static str,
        /// The system's error.
        source: Arc<io::Error>,
    },
    /// An earlier commit failed, so the store takes no more until it is opened again.
    #[error("store is read-only until it is opened again: {cause}")]
    Failed {
        /// What happened first.
        cause: Arc<str>,
    },
    /// The store was closed.
    #[error("store is closed")]
    Closed,
}

impl StoreError {
    /// Whether the error says that stored data is lost or altered.
    pub fn is_corrupt(&self) -> bool {
        matches!(
            self,
            StoreError::Corrupt { .. } | StoreError::CorruptRow { .. }
        )
    }

    pub(crate) fn corrupt(dir: &Path, detail: impl Into<String>) -> StoreError {
        StoreError::Corrupt {
            dir: dir.to_owned(),
            detail: detail.into(),
        }
    }

    pub(crate) fn io(op: &'static str, source: io::Error) -> StoreError {
        let full = is_full(&source);
        let source = Arc::new(source);
        if full {
            StoreError::Full { op, source }
        } else {
            StoreError::Io { op, source }
        }
    }

    pub(crate) fn sled(op: &'static str, dir: &Path, error: sled::Error) -> StoreError {
        match error {
            sled::Error::Io(source) => StoreError::io(op, source),
            sled::Error::Corruption { .. } => {
                StoreError::corrupt(dir, format!("sled reported a corrupt page while {op}"))
            }
            other => StoreError::Failed {
                cause: format!("sled, while {op}: {other}").into(),
            },
        }
    }
}

/// Whether space, quota or the limit of a file's size ran out.
pub(crate) fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    // sled hands on the kind only, so the kind decides, and the number where it is there.
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
        || error.raw_os_error() == Some(Errno::NOSPC.raw_os_error())
}
