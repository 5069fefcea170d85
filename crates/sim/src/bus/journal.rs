//! Journals in memory, with the answers that a broker in trouble has given.

use super::{Port, lock};
use async_trait::async_trait;
use bytes::Bytes;
use detent_bus::{
    Append, AppendError, ENTRY_BYTES_MAX, Forget, GoalKey, Journal, OpenGoal, Stored,
};
use detent_protocol::journal::Entry;
use detent_protocol::record::{Body, Said};
use detent_protocol::tombstone::ArchivePart;
use detent_protocol::{Code, Fault, GoalId, TenantId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;

/// What is kept.
#[derive(Default)]
pub(crate) struct JournalStore {
    journals: BTreeMap<GoalKey, Kept>,
    open: BTreeSet<(u16, GoalKey)>,
}

/// One goal's journal.
#[derive(Default)]
struct Kept {
    /// Sequence before the first entry: not 0 once the goal was forgotten.
    base: u64,
    entries: Vec<Bytes>,
    /// How long its tombstone stays.
    until: Option<Instant>,
}

impl Kept {
    fn last(&self) -> u64 {
        self.base + self.entries.len() as u64
    }
}

/// A change to a journal, on its way.
#[derive(Debug, Clone)]
enum Change {
    Append(Append),
    Forget(Forget),
}

impl Change {
    fn key(&self) -> &GoalKey {
        match self {
            Change::Append(append) => &append.key,
            Change::Forget(forget) => &forget.key,
        }
    }

    fn after(&self) -> u64 {
        match self {
            Change::Append(append) => append.after,
            Change::Forget(forget) => forget.after,
        }
    }

    fn entry(&self) -> &Bytes {
        match self {
            Change::Append(append) => &append.entry,
            Change::Forget(forget) => &forget.tombstone,
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Change::Append(_) => "append",
            Change::Forget(_) => "forget",
        }
    }
}

impl JournalStore {
    /// Changes a journal under the fence; sequences are 1, 2, 3, …
    fn change(&mut self, change: &Change) -> Result<u64, u64> {
        let key = change.key();
        let last = self.last(key);
        let replaces = matches!(change, Change::Forget(_));
        if last != change.after() || (replaces && last == 0) {
            return Err(last);
        }
        let kept = self.journals.entry(key.clone()).or_default();
        if let Change::Forget(forget) = change {
            kept.entries.clear();
            kept.base = last;
            kept.until = Instant::now().checked_add(forget.keep);
        }
        kept.entries.push(change.entry().clone());
        let place = (key.goal.shard(), key.clone());
        let ends = match change {
            Change::Append(append) => append.ends,
            Change::Forget(_) => true,
        };
        match (last == 0, ends) {
            (true, false) => drop(self.open.insert(place)),
            (false, true) => drop(self.open.remove(&place)),
            _ => {}
        }
        Ok(last + 1)
    }

    /// Sequence of a goal's last entry, 0 where there is none.
    pub(crate) fn last(&self, key: &GoalKey) -> u64 {
        self.journals.get(key).map_or(0, Kept::last)
    }

    /// All entries of a goal that can be read, with their sequences.
    fn entries(&self, key: &GoalKey) -> impl Iterator<Item = (u64, &Bytes)> {
        let kept = self.journals.get(key).into_iter();
        kept.flat_map(|kept| (kept.base + 1..).zip(&kept.entries))
    }

    /// Was the goal forgotten?
    pub(super) fn is_forgotten(&self, key: &GoalKey) -> bool {
        self.journals.get(key).is_some_and(|kept| kept.base > 0)
    }

    /// Is there nothing but tombstones?
    pub(crate) fn all_forgotten(&self) -> bool {
        self.journals.values().all(|kept| kept.base > 0)
    }

    /// Takes out tombstones that were kept long enough.
    fn sweep(&mut self) {
        let now = Instant::now();
        // Something may have come after it.
        let alone = |kept: &Kept| kept.base > 0 && kept.entries.len() == 1;
        let over = |kept: &Kept| alone(kept) && kept.until.is_some_and(|until| until < now);
        self.journals.retain(|_, kept| !over(kept));
    }

    /// All goals.
    pub(crate) fn goals(&self) -> impl Iterator<Item = &GoalKey> {
        self.journals.keys()
    }

    /// Goals that have not ended.
    pub(crate) fn open(&self) -> impl Iterator<Item = &GoalKey> {
        self.open.iter().map(|(_, key)| key)
    }
}

/// What becomes of an append that gets no clear answer.
enum Unclear {
    /// It never arrived.
    Lost,
    /// It was applied.
    Applied,
    /// It is applied long after its asker gave up waiting.
    Late(Duration),
}

#[async_trait]
impl Journal for Port {
    async fn append(&self, append: Append) -> Result<u64, AppendError> {
        self.change(Change::Append(append)).await
    }

    async fn forget(&self, forget: Forget) -> Result<u64, AppendError> {
        let key = forget.key.clone();
        let forgotten = self.change(Change::Forget(forget)).await;
        if lock(&self.fabric.journal).is_forgotten(&key) {
            lock(&self.fabric.slots).retain(|slot, _| slot.goal != key);
        }
        forgotten
    }

    async fn read(
        &self,
        key: &GoalKey,
        after: u64,
        bytes_max: usize,
    ) -> Result<Vec<Stored>, Fault> {
        self.point("read").await;
        self.travel().await;
        self.fabric.check_journal()?;
        Ok(self.page(key, after, bytes_max))
    }

    async fn tail(&self, key: &GoalKey) -> Result<Option<Stored>, Fault> {
        self.point("tail").await;
        self.travel().await;
        self.fabric.check_journal()?;
        let store = lock(&self.fabric.journal);
        Ok(store.entries(key).last().map(stored))
    }

    async fn open_goals(
        &self,
        shard: u16,
        after: Option<&GoalKey>,
        limit: usize,
    ) -> Result<Vec<OpenGoal>, Fault> {
        self.life.alive().await;
        self.fabric.check_journal()?;
        let store = lock(&self.fabric.journal);
        let of_shard = store.open.iter().filter(|(s, _)| *s == shard);
        let later = of_shard.filter(|(_, key)| after.is_none_or(|a| key > a));
        let open = later.map(|(_, key)| OpenGoal {
            key: key.clone(),
            by: None,
        });
        Ok(open.take(limit).collect())
    }

    async fn goals(
        &self,
        tenant: &TenantId,
        after: Option<&GoalId>,
        limit: usize,
    ) -> Result<Vec<GoalKey>, Fault> {
        self.life.alive().await;
        self.fabric.check_journal()?;
        let store = lock(&self.fabric.journal);
        let of_tenant = store.goals().filter(|key| key.tenant == *tenant);
        let later = of_tenant.filter(|key| after.is_none_or(|a| key.goal > *a));
        Ok(later.take(limit).cloned().collect())
    }

    async fn tenants(
        &self,
        after: Option<&TenantId>,
        limit: usize,
    ) -> Result<Vec<TenantId>, Fault> {
        self.life.alive().await;
        self.fabric.check_journal()?;
        let store = lock(&self.fabric.journal);
        let mut all: Vec<_> = store.goals().map(|key| key.tenant.clone()).collect();
        all.dedup();
        all.retain(|tenant| after.is_none_or(|after| tenant > after));
        all.truncate(limit);
        Ok(all)
    }

    async fn sweep(&self) -> Result<bool, Fault> {
        self.life.alive().await;
        self.fabric.check_journal()?;
        lock(&self.fabric.journal).sweep();
        Ok(false)
    }
}

impl Port {
    async fn change(&self, change: Change) -> Result<u64, AppendError> {
        let bytes = change.entry().len();
        if bytes > ENTRY_BYTES_MAX {
            let text = format!("{bytes} bytes; an entry has {ENTRY_BYTES_MAX}");
            return Err(AppendError::Refused(Fault::new(Code::InputTooLarge, text)));
        }
        self.point(change.name()).await;
        self.travel().await;
        self.fabric.check_journal().map_err(AppendError::Refused)?;
        if self.chance().fault(|f| f.append_unclear) {
            return self.unclear(change).await;
        }
        let applied = self.apply(&change);
        self.point("appended").await;
        self.travel().await;
        match applied {
            Ok(_) if self.chance().fault(|f| f.append_false_fence) => {
                let text = format!("{} answered: fenced, which is false", change.name());
                self.fabric.trace.say(text);
                let last = change.after();
                Err(AppendError::Fenced { last })
            }
            Ok(seq) => Ok(seq),
            Err(last) => Err(AppendError::Fenced { last }),
        }
    }

    fn apply(&self, change: &Change) -> Result<u64, u64> {
        let applied = lock(&self.fabric.journal).change(change);
        let (name, goal, after) = (change.name(), change.key().goal, change.after());
        let text = match &applied {
            Ok(seq) => format!("{name} {goal} #{seq}"),
            Err(last) => format!("{name} {goal} after {after} refused, last is {last}"),
        };
        self.fabric.trace.say(text);
        applied
    }

    /// Gives no answer, or one that says nothing.
    async fn unclear(&self, change: Change) -> Result<u64, AppendError> {
        let what = match self.chance().below(4) {
            0 | 1 => Unclear::Applied,
            2 => Unclear::Lost,
            _ => Unclear::Late(Duration::from_millis(self.chance().between(500, 12_000))),
        };
        match what {
            Unclear::Lost => {}
            Unclear::Applied => {
                let _ = self.apply(&change);
            }
            Unclear::Late(wait) => {
                let port = self.clone();
                // What is on its way arrives whatever becomes of its sender.
                tokio::spawn(async move {
                    tokio::time::sleep(wait).await;
                    let _ = port.apply(&change);
                });
            }
        }
        self.point("append unclear").await;
        if self.chance().happens(500) {
            let fault = Fault::new(Code::JournalUnknown, "the connection was lost");
            return Err(AppendError::Unknown(fault));
        }
        std::future::pending().await
    }

    /// Entries after `after` that fit in `bytes_max`, at least one.
    fn page(&self, key: &GoalKey, after: u64, bytes_max: usize) -> Vec<Stored> {
        let store = lock(&self.fabric.journal);
        let entries = store.entries(key).filter(|(seq, _)| *seq > after);
        let mut bytes = 0;
        let mut found = Vec::new();
        for (seq, entry) in entries {
            bytes += entry.len();
            if bytes > bytes_max && !found.is_empty() {
                break;
            }
            found.push(stored((seq, entry)));
        }
        found
    }
}

fn stored((seq, entry): (u64, &Bytes)) -> Stored {
    Stored {
        seq,
        entry: entry.clone(),
    }
}

/// The journal as it lies, for those outside who judge.
impl super::Fabric {
    /// All goals with their entries, oldest first. Those of a forgotten goal are in its
    /// archive; its tombstone comes last. Where the archive lacks something the tombstone
    /// stands alone.
    pub(crate) fn journals(&self) -> Vec<(GoalKey, Vec<Bytes>)> {
        let store = lock(&self.journal);
        let all = store.journals.iter().map(|(key, kept)| {
            let mut entries = match kept.entries.first() {
                Some(tombstone) if kept.base > 0 => self.archived(key, tombstone),
                _ => Vec::new(),
            };
            entries.extend(kept.entries.iter().cloned());
            (key.clone(), entries)
        });
        all.collect()
    }

    fn archived(&self, key: &GoalKey, tombstone: &Bytes) -> Vec<Bytes> {
        let blobs = lock(&self.blobs);
        let Ok((entry, _)) = Entry::decode_alone(tombstone) else {
            return Vec::new();
        };
        let mut found = Vec::new();
        for record in &entry.records {
            let Said::Known(Body::Forgotten { goal }) = &record.said else {
                continue;
            };
            for part in &goal.archive.parts {
                let part = blobs.get(part);
                let part = part.map(|body| ArchivePart::decode(body, &key.tenant, &key.goal));
                let Some(Ok(part)) = part else {
                    return Vec::new();
                };
                let entries = part.entries.into_iter();
                found.extend(entries.map(|entry| Bytes::from(entry.into_vec())));
            }
        }
        found
    }
}
