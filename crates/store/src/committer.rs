//! The committer: the one thread that writes.
//!
//! It takes what waits in the queue as one group: conditions and writes, one sled batch,
//! flush and fdatasync, beside it or after it the witness, answers. sled's own
//! `flush_async` deadlocks under load, and one fdatasync for many transactions is what
//! makes commits cheap.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};

use crate::counters::Counters;
use crate::group::{Group, Prepared};
use crate::meta::Meta;
use crate::room::{self, Room};
use crate::shared::{Shared, panic_text};
use crate::txn::Txn;
use crate::view::Tree;
use crate::witness::Testimony;
use crate::witness_writer::WitnessWriter;
use crate::{CommitSeq, StoreError, SyncMode};

/// Bytes of transactions after which a group takes no further one.
const GROUP_BYTES_MAX: usize = 4 << 20;

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
    pub(crate) queue: mpsc::Receiver<Job>,
    pub(crate) tree: Tree,
    pub(crate) db_file: File,
    pub(crate) db_path: PathBuf,
    pub(crate) room: Room,
    pub(crate) witness: WitnessWriter,
    pub(crate) meta: Meta,
    pub(crate) batch_writes_max: usize,
    pub(crate) sync: SyncMode,
    pub(crate) lock: File,
}

impl Committer {
    /// Runs until the store is closed or the last handle is gone.
    pub(crate) fn run(mut self) {
        let mut closer = None;
        while closer.is_none() {
            let Some(job) = self.queue.blocking_recv() else {
                break;
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
            next = if full {
                None
            } else {
                self.queue.try_recv().ok()
            };
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
                self.room.after_group();
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
        let mut admitted = Group::new(&self.tree, self.meta.clone());
        let answers: Vec<_> = group
            .iter()
            .map(|pending| admitted.admit(&pending.txn))
            .collect();
        if let Some(prepared) = admitted.finish() {
            self.make_durable(prepared)?;
        }
        Ok(answers)
    }

    fn make_durable(&mut self, prepared: Prepared) -> Result<(), StoreError> {
        let Prepared {
            batch,
            before,
            meta,
            redo,
        } = prepared;
        let says = Testimony {
            store_id: meta.store_id,
            head: meta.head,
        };
        self.shared.hide(before);
        // What the witness keeps whole need not be in sled first.
        let redo = redo.filter(|_| self.witness.can_begin());
        let begun = redo.is_some();
        if let Some(redo) = redo {
            self.witness.begin(says, redo);
        }
        self.tree.apply(batch)?;
        #[cfg(test)]
        crate::fault::strike(&self.shared.fault)?;
        self.sync_data()?;
        let syncs = if begun {
            self.witness.wait()
        } else {
            self.witness.write(says)
        };
        let syncs = syncs.map_err(|e| StoreError::io("writing the witness", e))?;
        Counters::add(&self.shared.counters.syncs, syncs);
        Counters::add(&self.shared.counters.groups, 1);
        Counters::add(
            &self.shared.counters.commits,
            meta.head.seq - self.meta.head.seq,
        );
        self.shared.publish(meta.clone());
        self.meta = meta;
        Ok(())
    }

    fn sync_data(&self) -> Result<(), StoreError> {
        if self.sync == SyncMode::Fdatasync {
            self.db_file
                .sync_data()
                .map_err(|e| StoreError::io("syncing the data file", e))?;
            Counters::add(&self.shared.counters.syncs, 1);
        }
        Ok(())
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
        while let Ok(job) = self.queue.try_recv() {
            if let Job::Commit(pending) = job {
                let _ = pending.answer.send(Err(StoreError::Closed));
            }
        }
        // Letting go of sled joins its threads, which can hang as a commit can.
        self.shared.begin_group();
        self.shared.close();
        drop(self.tree);
        drop((self.room, self.witness));
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
