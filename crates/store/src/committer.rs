//! The committer: the one thread that writes.
//!
//! It takes what waits in the queue as one group: conditions and writes, one synchronous write
//! of the witness, answers. One write for many transactions is what makes commits cheap.
//!
//! sled gets the groups later, many at once, in a *checkpoint*: one batch, flush, fdatasync.
//! That happens when nothing came for a moment, when enough has gathered, and at the end. Until
//! then they lie in memory, over the tree. So sled works in checkpoints only, and all of it
//! under the eyes of this thread; its own `flush_async` deadlocks under load. A group that the
//! witness can't hold is a checkpoint of its own, before the witness hears of it.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::counters::Counters;
use crate::fault::Point;
use crate::group::{Change, Changes, Group, Prepared};
use crate::inbox::{Inbox, Waited};
use crate::meta::Meta;
use crate::ring::{Ring, Testimony};
use crate::room::{self, Room};
use crate::shared::{Shared, panic_text};
use crate::txn::Txn;
use crate::view::{Overlay, Tree, View};
use crate::{CommitSeq, StoreError, SyncMode, key};

/// Bytes of transactions after which a group takes no further one.
const GROUP_BYTES_MAX: usize = 4 << 20;

/// How long the queue must be empty before a checkpoint, in milliseconds.
const QUIET_MS: u64 = 20;
/// Bytes of keys and values after which there is a checkpoint in any case. It bounds the memory
/// they take, and how long the commits behind it wait.
const GATHERED_BYTES_MAX: usize = 128 << 10;
/// What a row takes beside its key and value, in bytes, about.
const ROW_BYTES: usize = 64;

/// How long a closing store waits for sled's threads in milliseconds.
const RELEASE_WAIT_MS: u64 = 500;

pub(crate) type Answer = Result<CommitSeq, StoreError>;

/// A transaction that waits for its answer.
pub(crate) struct Pending {
    pub(crate) txn: Txn,
    pub(crate) answer: oneshot::Sender<Answer>,
}

/// What the handles send.
pub(crate) enum Job {
    Commit(Pending),
    Close(oneshot::Sender<()>),
}

/// Everything the thread owns. The lock file goes last: it is what keeps others out.
pub(crate) struct Committer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) queue: Inbox<Job>,
    pub(crate) tree: Tree,
    pub(crate) db_file: File,
    pub(crate) db_path: PathBuf,
    pub(crate) room: Room,
    pub(crate) ring: Ring,
    /// Bytes of the groups that sled does not have yet; 0 when it has all.
    pub(crate) gathered_bytes: usize,
    pub(crate) batch_writes_max: usize,
    pub(crate) sync: SyncMode,
    pub(crate) lock: File,
}

impl Committer {
    /// Runs until the store is closed or the last handle is gone.
    pub(crate) fn run(mut self) {
        let mut closer = None;
        while closer.is_none() {
            let quiet = (self.gathered_bytes > 0).then_some(Duration::from_millis(QUIET_MS));
            let job = match self.queue.wait(quiet) {
                Waited::Got(job) => job,
                Waited::Quiet => {
                    self.try_checkpoint();
                    continue;
                }
                Waited::Ended => break,
            };
            let (group, close) = self.gather(job);
            closer = close;
            if !group.is_empty() {
                self.serve(group);
            }
        }
        self.end(closer);
    }

    /// The job and what waits behind it, up to the bounds of a group or a wish to close.
    fn gather(&mut self, job: Job) -> (Vec<Pending>, Option<oneshot::Sender<()>>) {
        let mut group = Vec::new();
        let mut bytes = 0;
        let mut next = Some(job);
        while let Some(job) = next {
            match job {
                Job::Close(closer) => return (group, Some(closer)),
                Job::Commit(pending) => {
                    bytes += pending.txn.bytes();
                    group.push(pending);
                }
            }
            let full = group.len() >= self.batch_writes_max || bytes >= GROUP_BYTES_MAX;
            next = if full { None } else { self.queue.take() };
        }
        (group, None)
    }

    fn serve(&mut self, group: Vec<Pending>) {
        if self.shared.failure().is_some() {
            return answer_all(group, &self.shared.refusal());
        }
        self.shared.begin_group();
        let outcome = catch_unwind(AssertUnwindSafe(|| self.commit(&group)));
        self.shared.end_group();
        match outcome {
            Ok(Ok(answers)) => {
                self.answer(group, answers);
                // After the answers, so that nobody waits for it.
                if self.ring.is_filling() || self.gathered_bytes > GATHERED_BYTES_MAX {
                    self.try_checkpoint();
                }
            }
            Ok(Err(error)) => {
                // Before the answers: who is told of the failure must find it in the status.
                self.shared.fail(&error.to_string());
                answer_all(group, &error);
            }
            Err(panic) => {
                self.shared
                    .fail(&format!("panic while committing: {}", panic_text(&*panic)));
                answer_all(group, &self.shared.refusal());
            }
        }
    }

    /// Commits a group. An error means that what reached the disk is not known.
    fn commit(&mut self, group: &[Pending]) -> Result<Vec<Answer>, StoreError> {
        let redo_bytes_max = self.ring.redo_bytes_max();
        let (answers, prepared) = self.shared.read(|view| {
            let mut admitted = Group::new(view);
            let admit = |pending: &Pending| admitted.admit(&pending.txn);
            let answers: Vec<_> = group.iter().map(admit).collect();
            Ok((answers, admitted.finish(redo_bytes_max)))
        })?;
        if let Some(prepared) = prepared {
            self.make_durable(prepared)?;
        }
        Ok(answers)
    }

    fn make_durable(&mut self, prepared: Prepared) -> Result<(), StoreError> {
        let Prepared {
            changes,
            meta,
            redo,
        } = prepared;
        let says = Testimony {
            store_id: meta.store_id,
            head: meta.head,
            previous: meta.previous,
        };
        self.strike(Point::BeforeWitness)?;
        let commits = match redo {
            Some(redo) => {
                if !self.ring.has_room(redo.len()) {
                    self.checkpoint()?;
                }
                self.write_witness(says, &redo)?;
                self.strike(Point::BeforePublish)?;
                self.gathered_bytes += redo.len() + changes.len() * ROW_BYTES;
                let new = |(key, change): (_, Change)| (key, change.new);
                self.publish(meta, |over| over.extend(changes.into_iter().map(new)))
            }
            None => {
                self.apply_hidden(changes, &meta)?;
                self.write_witness(says, &[])?;
                self.strike(Point::BeforePublish)?;
                self.publish(meta, Overlay::clear)
            }
        };
        Counters::add(&self.shared.counters.groups, 1);
        Counters::add(&self.shared.counters.commits, commits);
        self.strike(Point::BeforeAnswer)
    }

    /// Shows a group, now that it is durable. Gives the number of its commits.
    fn publish(&self, meta: Meta, over: impl FnOnce(&mut Overlay)) -> u64 {
        let publish = |view: &mut View| {
            let commits = meta.head.seq - view.meta.head.seq;
            over(&mut view.over);
            view.meta = meta;
            commits
        };
        self.shared.change(publish).unwrap_or_default()
    }

    /// Brings a group into sled, with all that gathered before it. The values before the group
    /// hide it.
    fn apply_hidden(&mut self, changes: Changes, meta: &Meta) -> Result<(), StoreError> {
        self.strike(Point::BeforeApply)?;
        let mut batch = self.shared.read(|view| Ok(view.batch()))?;
        let mut before = Overlay::new();
        for (key, change) in changes {
            match change.new {
                Some(new) => batch.insert(key.as_slice(), new),
                None => batch.remove(key.as_slice()),
            }
            before.insert(key, change.old);
        }
        batch.insert(key::META, meta.encode());
        self.shared.change(|view| view.over.extend(before));
        self.sync_batch(batch)?;
        self.settled();
        Ok(())
    }

    fn write_witness(&mut self, says: Testimony, redo: &[u8]) -> Result<(), StoreError> {
        let syncs = self
            .ring
            .write(says, redo)
            .map_err(|e| StoreError::io("writing the witness", e))?;
        Counters::add(&self.shared.counters.syncs, syncs);
        Ok(())
    }

    /// A checkpoint that nobody waits for. When it fails, what was answered is in the witness.
    fn try_checkpoint(&mut self) {
        if self.shared.failure().is_some() {
            self.gathered_bytes = 0;
            return;
        }
        self.shared.begin_group();
        let outcome = catch_unwind(AssertUnwindSafe(|| self.checkpoint()));
        self.shared.end_group();
        match outcome {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.shared.fail(&error.to_string()),
            Err(panic) => {
                let text = panic_text(&*panic);
                self.shared.fail(&format!("panic in a checkpoint: {text}"));
            }
        }
    }

    /// Brings sled up to the witness.
    fn checkpoint(&mut self) -> Result<(), StoreError> {
        if self.gathered_bytes == 0 {
            return Ok(());
        }
        self.strike(Point::BeforeApply)?;
        let batch = self.shared.read(|view| Ok(view.batch()))?;
        self.sync_batch(batch)?;
        self.shared.change(|view| view.over.clear());
        self.settled();
        self.strike(Point::AfterSync)
    }

    /// Sled has all that gathered.
    fn settled(&mut self) {
        self.gathered_bytes = 0;
        self.ring.release();
    }

    fn sync_batch(&mut self, batch: sled::Batch) -> Result<(), StoreError> {
        self.tree.apply(batch)?;
        self.strike(Point::BeforeFlush)?;
        self.tree.flush()?;
        self.strike(Point::BeforeSync)?;
        if self.sync == SyncMode::Fdatasync {
            self.room.keep();
            self.db_file
                .sync_data()
                .map_err(|e| StoreError::io("syncing the data file", e))?;
            Counters::add(&self.shared.counters.syncs, 1);
        }
        Counters::add(&self.shared.counters.checkpoints, 1);
        Ok(())
    }

    /// A place between two steps, where tests put faults.
    #[cfg(not(test))]
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "as in tests")]
    fn strike(&self, _: Point) -> Result<(), StoreError> {
        Ok(())
    }

    #[cfg(test)]
    fn strike(&self, point: Point) -> Result<(), StoreError> {
        crate::fault::strike(&self.shared.fault, point)
    }

    fn answer(&self, group: Vec<Pending>, answers: Vec<Answer>) {
        for (pending, answer) in group.into_iter().zip(answers) {
            if matches!(answer, Err(StoreError::ConditionFailed { .. })) {
                Counters::add(&self.shared.counters.conditions_failed, 1);
            }
            // A caller that went away does not want to know.
            let _ = pending.answer.send(answer);
        }
    }

    fn end(mut self, closer: Option<oneshot::Sender<()>>) {
        self.queue.close();
        while let Some(job) = self.queue.take() {
            if let Job::Commit(pending) = job {
                let _ = pending.answer.send(Err(StoreError::Closed));
            }
        }
        if self.gathered_bytes > 0 {
            self.try_checkpoint();
        }
        // Letting go of sled joins its threads, which can hang as a commit can.
        self.shared.begin_group();
        self.shared.close();
        drop(self.tree);
        drop((self.room, self.ring));
        cut_room(&self.db_path);
        self.shared.end_group();
        drop(self.lock);
        if let Some(closer) = closer {
            let _ = closer.send(());
        }
    }
}

/// Cuts off the unwritten end of the data file once sled's threads have let go of it. What
/// stays is cut when the store is opened again.
fn cut_room(db: &Path) {
    let deadline = Instant::now() + Duration::from_millis(RELEASE_WAIT_MS);
    while matches!(room::cut(db), Ok(false)) && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(1));
    }
}

fn answer_all(group: Vec<Pending>, error: &StoreError) {
    for pending in group {
        let _ = pending.answer.send(Err(error.clone()));
    }
}
