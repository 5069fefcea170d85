//! The handle: what callers hold.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::sync::Arc;
use std::thread;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

use crate::committer::{Answer, Committer, Job, Pending};
use crate::counters::StoreCounters;
use crate::files::Paths;
use crate::inbox::Inbox;
use crate::open::{self, Opened};
use crate::room::Room;
use crate::shared::Shared;
use crate::view::View;
use crate::{
    KEY_BYTES_MAX, Scan, StoreError, StoreOptions, SyncMode, Table, Txn, key, row, watchdog,
};

/// The number of a commit: 1 for the store's first, each later one more, without a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommitSeq(pub u64);

/// A handle of one open store; clones are cheap and share it.
///
/// The store ends when [`Store::close`] is called on one handle or the last one is dropped;
/// only `close` waits until its files are free again.
#[derive(Clone)]
pub struct Store {
    pub(crate) shared: Arc<Shared>,
    queue: mpsc::Sender<Job>,
}

/// What a store holds and whether it still takes commits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreStatus {
    /// Live rows of all tables.
    pub rows: u64,
    /// Live rows of each table that has any.
    pub rows_by_table: BTreeMap<String, u64>,
    /// Commits since the store was made; the last one's [`CommitSeq`].
    pub commits: u64,
    /// Size of sled's files in bytes, with the room of up to 2 MiB that is kept ahead and
    /// without the witness.
    pub bytes_on_disk: u64,
    /// Why the store takes no more commits, when it does not.
    pub failed: Option<Arc<str>>,
}

impl Store {
    /// Opens the store in `options.dir`, or makes a new one there, and verifies it.
    ///
    /// Reads the whole store when [`crate::VerifyOnOpen::Full`] is set, and blocks meanwhile:
    /// in async code call it where blocking is allowed.
    ///
    /// # Errors
    /// [`StoreError::Locked`] while another opener has it, [`StoreError::Corrupt`] when what
    /// was committed is lost or altered, [`StoreError::Invalid`] for options out of bounds,
    /// [`StoreError::Full`] and [`StoreError::Io`] from the system.
    pub fn open(options: StoreOptions) -> Result<Store, StoreError> {
        options.validate()?;
        let paths = Paths::new(&options.dir);
        paths
            .create_dir()
            .map_err(|e| StoreError::io("creating the store's directory", e))?;
        let lock = paths.lock()?;
        let Opened { tree, ring, meta } = open::open(&paths, &options)?;
        let db_file =
            File::open(&paths.db).map_err(|e| StoreError::io("opening the data file", e))?;
        let room = match options.sync {
            SyncMode::Fdatasync => Room::new(&paths.db),
            SyncMode::Never => Ok(Room::none()),
        };
        let mut room = room.map_err(|e| StoreError::io("opening the data file", e))?;
        room.keep();
        let view = View::new(tree.clone(), meta);
        let shared = Arc::new(Shared::new(paths.dir, view));
        let (queue, jobs) = mpsc::channel(options.queue_writes_max);
        let committer = Committer {
            shared: Arc::clone(&shared),
            queue: Inbox::new(jobs),
            tree,
            db_file,
            db_path: paths.db,
            room,
            ring,
            gathered_bytes: 0,
            batch_writes_max: options.batch_writes_max,
            sync: options.sync,
            lock,
        };
        spawn(committer, options.stall_ms_max)
            .map_err(|e| StoreError::io("starting a thread", e))?;
        Ok(Store { shared, queue })
    }

    /// Commits a transaction; it is durable when this returns (with [`crate::SyncMode`] as
    /// opened). Waits while the queue is full. Dropping the future does not take back a
    /// transaction that was queued already.
    ///
    /// # Errors
    /// [`StoreError::ConditionFailed`]: nothing was written. [`StoreError::Full`],
    /// [`StoreError::Io`]: whether it was written shows when the store is opened again, and
    /// until then every commit ends with [`StoreError::Failed`]. [`StoreError::CorruptRow`]:
    /// a row it depends on is damaged; nothing was written. [`StoreError::Invalid`]: beyond
    /// the bounds of [`Txn`].
    pub async fn commit(&self, txn: Txn) -> Answer {
        txn.validate()?;
        if let Some(cause) = self.shared.failure() {
            return Err(StoreError::Failed { cause });
        }
        let (answer, answered) = oneshot::channel();
        let job = Job::Commit(Pending { txn, answer });
        self.unless_stalled(async {
            self.queue
                .send(job)
                .await
                .map_err(|_| self.shared.refusal())?;
            answered
                .await
                .unwrap_or_else(|_| Err(self.shared.refusal()))
        })
        .await
    }

    /// The durable value of a row. May read from the disk, on the caller's thread.
    ///
    /// # Errors
    /// [`StoreError::CorruptRow`] when a checksum does not match, [`StoreError::Corrupt`] when
    /// sled finds a damaged page, [`StoreError::Closed`], [`StoreError::Io`].
    pub fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        if key.len() > KEY_BYTES_MAX {
            return Ok(None);
        }
        self.shared.read(|view| row::load(view, table, key))
    }

    /// Durable rows in key order. Commits wait while it runs, so keep the limit small.
    ///
    /// # Errors
    /// As [`Store::get`]; one damaged row fails the scan.
    pub fn scan(&self, table: Table, scan: &Scan) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        self.shared.read(|view| view.scan(table, scan))
    }

    /// What the store holds, as of the last durable commit.
    ///
    /// # Errors
    /// [`StoreError::Closed`], [`StoreError::Io`].
    pub fn status(&self) -> Result<StoreStatus, StoreError> {
        self.shared.read(|view| {
            let tables = view
                .meta
                .tables
                .iter()
                .filter(|(name, _)| *name != key::CHUNKS_NAME);
            let rows_by_table: BTreeMap<_, _> = tables
                .map(|(name, totals)| (name.clone(), totals.rows))
                .collect();
            Ok(StoreStatus {
                rows: rows_by_table.values().sum(),
                rows_by_table,
                commits: view.meta.head.seq,
                bytes_on_disk: view.tree.bytes_on_disk()?,
                failed: self.shared.failure(),
            })
        })
    }

    /// Counts since the store was opened.
    pub fn counters(&self) -> StoreCounters {
        self.shared.counters.snapshot()
    }

    /// Commits what is queued, closes the store for every handle, and frees its files.
    /// Closing a closed store does nothing.
    ///
    /// # Errors
    /// [`StoreError::Failed`] when a commit had failed, or the last sync of the data did: then
    /// what was committed is in the witness. The store is closed all the same, unless its
    /// committer hangs: then its files stay taken until the process ends.
    pub async fn close(self) -> Result<(), StoreError> {
        let (closer, closed) = oneshot::channel();
        self.unless_stalled(async {
            match self.queue.send(Job::Close(closer)).await {
                Ok(()) => closed.await.map_err(|_| self.shared.refusal()),
                Err(_) => Ok(()),
            }
        })
        .await?;
        self.shared
            .failure()
            .map_or(Ok(()), |cause| Err(StoreError::Failed { cause }))
    }

    async fn unless_stalled<T>(
        &self,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let mut stalled = self.shared.stalled.subscribe();
        tokio::select! {
            biased;
            result = work => result,
            _ = stalled.wait_for(|stalled| *stalled) => Err(self.shared.refusal()),
        }
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("dir", &self.shared.dir)
            .finish_non_exhaustive()
    }
}

fn spawn(committer: Committer, stall_ms_max: u64) -> std::io::Result<()> {
    let shared = Arc::clone(&committer.shared);
    thread::Builder::new()
        .name("store-committer".to_owned())
        .spawn(move || committer.run())?;
    watchdog::spawn(&shared, stall_ms_max)
}
