//! Retention: goals that ended long ago are archived and forgotten, and archives that
//! were kept long enough removed.
//!
//! What it promises: nothing is lost. A goal's entries are durable in its archive before
//! its journal is replaced, under the fence, by its tombstone; the tombstone stays at
//! least as long as the archive that it names and as its key may come again (I14). What
//! fails is tried again. It works beside the goals, a few at a time, and holds a bounded
//! list; what does not fit is found by looking through the journals again.
//!
//! What it must not know: what a goal's records mean beyond its end.

mod waiting;

pub(crate) use waiting::Waiting;

use super::archive::{self, Writer};
use super::intake::AHEAD_MS_MAX;
use super::{Shared, Transition, load};
use crate::state::GoalState;
use detent_bus::{Forget, GoalKey, failpoint};
use detent_protocol::journal::{Entry, GENESIS};
use detent_protocol::json::Digest;
use detent_protocol::messages::Phase;
use detent_protocol::record::{Body, Record, Said};
use detent_protocol::tombstone::{Archive, Tombstone};
use detent_protocol::{Code, Fault, TenantId};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long things are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// A goal's journal after its end, milliseconds; then it is archived and forgotten.
    pub journal_ms: u64,
    /// Its archive after its end, milliseconds.
    pub archive_ms: u64,
}

impl Default for Retention {
    /// A journal for a day, an archive for 30 days.
    fn default() -> Self {
        Self {
            journal_ms: DAY_MS,
            archive_ms: 30 * DAY_MS,
        }
    }
}

const DAY_MS: u64 = 86_400_000;
/// Goals that are dealt with at the same time.
const AT_ONCE: usize = 8;
/// Pause after each such handful and, while journals are looked through, after each page,
/// milliseconds: the goals in flight come first.
const PAUSE_MS: u64 = 10;
/// Goals of a page.
const PAGE: usize = 64;
/// Bytes of a journal that are read at a time.
const READ_BYTES: usize = 1024 * 1024;
/// When what failed is tried again, milliseconds.
const RETRY_MS: u64 = 10_000;
/// How often the bus is asked to tidy up, milliseconds.
const SWEEP_MS: u64 = 60_000;
/// How long at least between two looks through all journals, milliseconds.
const LOOK_MS: u64 = 600_000;
/// How much later a goal that another node may have ended is dealt with, milliseconds.
const OTHERS_MS: u64 = 3_600_000;

impl Shared {
    /// A goal has its result; its actor is gone.
    pub(crate) fn retire(&self, key: &GoalKey, ended_at_ms: u64) {
        if let Some(keep) = &self.options.retention {
            let at_ms = ended_at_ms.saturating_add(keep.journal_ms);
            self.waiting.add(at_ms, key.clone());
        }
    }
}

/// Ends the work when it is dropped.
pub(crate) struct Working(tokio::task::JoinHandle<()>);

impl Drop for Working {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Starts the work, where something is to be forgotten.
pub(crate) fn start(shared: &Arc<Shared>) -> Option<Working> {
    let keep = shared.options.retention?;
    let keeper = Keeper {
        shared: shared.clone(),
        keep,
    };
    Some(Working(tokio::spawn(keeper.work())))
}

struct Keeper {
    shared: Arc<Shared>,
    keep: Retention,
}

/// A goal that has ended, with its journal in an archive.
struct Archived {
    tombstone: Tombstone,
    epoch: u64,
    /// Number of its last record, and the fence and the hash of its last entry.
    n: u64,
    seq: u64,
    hash: Digest,
}

impl Keeper {
    async fn work(self) {
        let (mut looked_ms, mut swept_ms) = (None, None);
        let overdue = |last: Option<u64>, every, now| last.is_none_or(|at| at + every <= now);
        while !self.shared.is_draining() {
            let now = self.shared.env.now_ms();
            // Looks come before the first sweep: a tombstone that goes must not leave its
            // archive.
            let again = overdue(looked_ms, LOOK_MS, now) && self.shared.waiting.missed();
            if looked_ms.is_none() || again {
                let looked = self.look_through().await;
                match looked.is_ok() {
                    true => looked_ms = Some(now),
                    false => tokio::time::sleep(Duration::from_millis(RETRY_MS)).await,
                }
                self.tell(looked);
            } else if overdue(swept_ms, SWEEP_MS, now) {
                swept_ms = Some(now);
                self.tell(self.sweep().await);
            } else if !self.deal_with_due(now).await {
                self.idle(now).await;
            }
        }
    }

    /// Deals with a handful of goals that are due; whether there was one.
    async fn deal_with_due(&self, now_ms: u64) -> bool {
        let due = self.shared.waiting.take(now_ms);
        if due.is_empty() {
            return false;
        }
        let work = due.into_iter().map(|key| self.deal(key));
        futures::future::join_all(work).await;
        pause().await;
        true
    }

    /// Waits for what is due next, news, or the next sweep.
    async fn idle(&self, now_ms: u64) {
        let next = self.shared.waiting.next_ms().unwrap_or(u64::MAX);
        let wait = next.saturating_sub(now_ms).clamp(1, SWEEP_MS);
        let news = self.shared.waiting.news.notified();
        // Either way it is looked again.
        let _ = tokio::time::timeout(Duration::from_millis(wait), news).await;
    }

    fn tell(&self, done: Result<(), Fault>) {
        if let Err(fault) = done {
            tracing::warn!(%fault, "retention: tried again later");
            self.shared.hooks.retention_failed(&fault);
        }
    }

    async fn sweep(&self) -> Result<(), Fault> {
        while self.shared.bus.journal.sweep().await? {
            pause().await;
        }
        Ok(())
    }

    /// Looks through all journals for goals that have ended. What fails for one goal is
    /// told, and the others go on.
    async fn look_through(&self) -> Result<(), Fault> {
        let journal = &self.shared.bus.journal;
        let mut tenant: Option<TenantId> = None;
        loop {
            let page = journal.tenants(tenant.as_ref(), PAGE).await?;
            let Some(last) = page.last() else {
                return Ok(());
            };
            tenant = Some(last.clone());
            for tenant in &page {
                self.look_through_tenant(tenant).await?;
            }
        }
    }

    async fn look_through_tenant(&self, tenant: &TenantId) -> Result<(), Fault> {
        let journal = &self.shared.bus.journal;
        let mut after = None;
        loop {
            let page = journal.goals(tenant, after.as_ref(), PAGE).await?;
            let Some(last) = page.last() else {
                return Ok(());
            };
            after = Some(last.goal);
            for key in page {
                let looked = self.look(&key).await;
                if looked.as_ref().is_err_and(may_pass) {
                    self.shared.waiting.with(|due| due.missed = true);
                }
                self.tell(looked);
            }
            pause().await;
        }
    }

    async fn look(&self, key: &GoalKey) -> Result<(), Fault> {
        let Some(tail) = self.shared.bus.journal.tail(key).await? else {
            return Ok(());
        };
        if let Some((_, tombstone)) = archive::read_tombstone(&tail.entry)? {
            return self.forgotten(key, &tombstone).await;
        }
        let (entry, _) = Entry::decode_alone(&tail.entry)?;
        let ended = |r: &Record| matches!(&r.said, Said::Known(Body::Ended { .. }));
        if entry.records.iter().any(ended) {
            let others = match self.is_ours(key).await? {
                true => 0,
                // Whoever ended it deals with it first.
                false => OTHERS_MS,
            };
            self.shared.retire(key, entry.at_ms.saturating_add(others));
        }
        Ok(())
    }

    /// Did this node end it? The last entry does not say whose it is.
    async fn is_ours(&self, key: &GoalKey) -> Result<bool, Fault> {
        if !self.shared.options.shared_journal {
            return Ok(true);
        }
        let loaded = load(&*self.shared.bus.journal, key).await?;
        let owner = loaded.and_then(|l| l.state.owner);
        Ok(owner.as_ref() == Some(&self.shared.options.node))
    }

    /// Deals with a goal that is due; what fails is tried again. A journal that can't be
    /// understood stays as it is: nobody can say what it was.
    async fn deal(&self, key: GoalKey) {
        let dealt = self.forget(&key).await;
        if dealt.as_ref().is_err_and(may_pass) {
            let at_ms = self.shared.env.now_ms() + RETRY_MS;
            self.shared.waiting.add(at_ms, key);
        }
        self.tell(dealt);
    }

    async fn forget(&self, key: &GoalKey) -> Result<(), Fault> {
        let began = Instant::now();
        let Some(archived) = self.archive(key).await? else {
            return Ok(());
        };
        failpoint::hit("archive.after");
        let replaced = self.replace(key, &archived).await?;
        self.audit(key, &archived, began);
        self.shared.hooks.goal_forgotten(&replaced.archive);
        self.forgotten(key, &replaced).await
    }

    /// Archives a journal; `None`: there is nothing to be forgotten.
    async fn archive(&self, key: &GoalKey) -> Result<Option<Archived>, Fault> {
        let bus = &self.shared.bus;
        let mut state = GoalState::new(key.tenant.clone(), key.goal);
        let mut writer = Writer::new(&*bus.blobs, key);
        let (mut seq, mut hash) = (0, GENESIS);
        loop {
            let page = bus.journal.read(key, seq, READ_BYTES).await?;
            if page.is_empty() {
                break;
            }
            for stored in page {
                if let Some((_, tombstone)) = archive::read_tombstone(&stored.entry)? {
                    self.forgotten(key, &tombstone).await?;
                    return Ok(None);
                }
                let (entry, next) = Entry::decode(&stored.entry, &hash)?;
                state.fold_entry(&entry);
                (seq, hash) = (stored.seq, next);
                writer.add(&stored.entry).await?;
            }
        }
        if let Some(parked) = state.parked {
            return Err(parked);
        }
        if state.ended.is_none() {
            return Ok(None);
        }
        let archive = writer.finish().await?;
        let tombstone = state.tombstone(archive);
        Ok(tombstone.map(|tombstone| Archived {
            tombstone,
            epoch: state.epoch,
            n: state.n,
            seq,
            hash,
        }))
    }

    /// Replaces the journal; gives what stands there now: this tombstone, or that of
    /// another node which was at it too.
    async fn replace(&self, key: &GoalKey, archived: &Archived) -> Result<Tombstone, Fault> {
        let shared = &self.shared;
        let goal = Box::new(archived.tombstone.clone());
        let record = Record {
            n: archived.n + 1,
            cause: "retention".into(),
            said: Said::Known(Body::Forgotten { goal }),
        };
        let entry = Entry {
            tenant: key.tenant.clone(),
            goal: key.goal,
            epoch: archived.epoch,
            at_ms: shared.env.now_ms(),
            at_error_ms: shared.env.clock_error_ms(),
            records: vec![record],
        };
        let (tombstone, _) = entry.encode_tombstone(&archived.hash)?;
        let forget = Forget {
            key: key.clone(),
            after: archived.seq,
            tombstone,
            keep: self.keep_from(archived.tombstone.ended_at_ms),
        };
        let wait = Duration::from_millis(shared.options.append_timeout_ms);
        match tokio::time::timeout(wait, shared.bus.journal.forget(forget)).await {
            Ok(Ok(_)) => return Ok(archived.tombstone.clone()),
            Ok(Err(detent_bus::AppendError::Refused(fault))) => return Err(fault),
            // Unclear, or a refusal that proves nothing: the authority says.
            _ => {}
        }
        let tail = shared.bus.journal.tail(key).await?;
        let there = tail.map(|tail| archive::read_tombstone(&tail.entry));
        match there.transpose()?.flatten() {
            Some((_, tombstone)) => Ok(tombstone),
            None => Err(Fault::new(Code::JournalUnknown, "not forgotten yet")),
        }
    }

    /// How long from now a tombstone stays: while its key can come again, and a day
    /// longer than the archive that only it names.
    fn keep_from(&self, ended_at_ms: u64) -> Duration {
        let keys = self.shared.options.idempotency_keep_ms;
        let archive = self.keep.archive_ms.saturating_add(DAY_MS);
        // A key may be issued by a clock that is ahead.
        let until_ms =
            ended_at_ms.saturating_add(keys.max(archive).saturating_add(2 * AHEAD_MS_MAX));
        Duration::from_millis(until_ms.saturating_sub(self.shared.env.now_ms()))
    }

    fn audit(&self, key: &GoalKey, archived: &Archived, began: Instant) {
        let archive = &archived.tombstone.archive;
        self.shared.hooks.transition(Transition {
            tenant: key.tenant.clone(),
            goal: key.goal,
            epoch: archived.epoch,
            n: archived.n + 1,
            phase: Phase::Ended,
            event: "forget",
            records: vec!["forgotten"],
            duration: began.elapsed(),
            turn: Duration::ZERO,
            reason: format!("{} entries archived", archive.entries),
        });
    }

    /// A goal was forgotten, now or earlier: what the node has of it goes, and its archive
    /// once its time is over.
    async fn forgotten(&self, key: &GoalKey, tombstone: &Tombstone) -> Result<(), Fault> {
        self.shared.hooks.forgotten(key).await?;
        let until_ms = tombstone.ended_at_ms.saturating_add(self.keep.archive_ms);
        if until_ms > self.shared.env.now_ms() {
            self.shared.waiting.add(until_ms, key.clone());
            return Ok(());
        }
        self.remove(key, &tombstone.archive).await
    }

    /// Outputs that were kept as bodies go before the entries that name them.
    async fn remove(&self, key: &GoalKey, archive: &Archive) -> Result<(), Fault> {
        let blobs = &*self.shared.bus.blobs;
        for part in &archive.parts {
            for claim in archive::claims(blobs, key, part).await? {
                blobs.remove(&claim.digest).await?;
            }
            blobs.remove(part).await?;
        }
        Ok(())
    }
}

/// May it go better later?
fn may_pass(fault: &Fault) -> bool {
    !matches!(fault.code, Code::JournalCorrupt | Code::JournalUnreadable)
}

async fn pause() {
    tokio::time::sleep(Duration::from_millis(PAUSE_MS)).await;
}

#[cfg(test)]
mod tests;
