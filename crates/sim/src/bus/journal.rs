//! Journals in memory, with the answers that a broker in trouble has given.

use super::{Port, lock};
use async_trait::async_trait;
use bytes::Bytes;
use detent_bus::{
    Append, AppendError, ENTRY_BYTES_MAX, Forget, GoalKey, Journal, OpenGoal, Stored,
};
use detent_protocol::{Code, Fault, GoalId, TenantId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// What is kept.
#[derive(Default)]
pub(crate) struct JournalStore {
    entries: BTreeMap<GoalKey, Vec<Bytes>>,
    open: BTreeSet<(u16, GoalKey)>,
}

impl JournalStore {
    /// Appends under the fence; sequences are 1, 2, 3, …
    fn append(&mut self, append: &Append) -> Result<u64, u64> {
        let key = &append.key;
        let last = self.last(key);
        if last != append.after {
            return Err(last);
        }
        let entries = self.entries.entry(key.clone()).or_default();
        entries.push(append.entry.clone());
        let place = (key.goal.shard(), key.clone());
        match (append.after == 0, append.ends) {
            (true, false) => drop(self.open.insert(place)),
            (false, true) => drop(self.open.remove(&place)),
            _ => {}
        }
        Ok(last + 1)
    }

    fn last(&self, key: &GoalKey) -> u64 {
        self.entries.get(key).map_or(0, |e| e.len() as u64)
    }

    /// All entries of a goal.
    pub(crate) fn entries(&self, key: &GoalKey) -> &[Bytes] {
        self.entries.get(key).map_or(&[], Vec::as_slice)
    }

    /// All goals.
    pub(crate) fn goals(&self) -> impl Iterator<Item = &GoalKey> {
        self.entries.keys()
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
        if append.entry.len() > ENTRY_BYTES_MAX {
            let text = format!(
                "{} bytes; an entry has {ENTRY_BYTES_MAX}",
                append.entry.len()
            );
            return Err(AppendError::Refused(Fault::new(Code::InputTooLarge, text)));
        }
        self.point("append").await;
        self.travel().await;
        self.fabric.check_journal().map_err(AppendError::Refused)?;
        if self.chance().fault(|f| f.append_unclear) {
            return self.unclear(append).await;
        }
        let applied = self.apply(&append);
        self.point("appended").await;
        self.travel().await;
        match applied {
            Ok(_) if self.chance().fault(|f| f.append_false_fence) => {
                self.fabric
                    .trace
                    .say("append answered: fenced, which is false");
                Err(AppendError::Fenced { last: append.after })
            }
            Ok(seq) => Ok(seq),
            Err(last) => Err(AppendError::Fenced { last }),
        }
    }

    async fn forget(&self, forget: Forget) -> Result<u64, AppendError> {
        let goal = forget.key.goal;
        let text = format!("goal {goal}: this journal keeps everything");
        Err(AppendError::Refused(Fault::new(Code::PolicyDenied, text)))
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
        let entries = store.entries(key);
        Ok(entries.last().map(|entry| Stored {
            seq: entries.len() as u64,
            entry: entry.clone(),
        }))
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
}

impl Port {
    fn apply(&self, append: &Append) -> Result<u64, u64> {
        let applied = lock(&self.fabric.journal).append(append);
        let (goal, after) = (append.key.goal, append.after);
        let text = match &applied {
            Ok(seq) => format!("append {goal} #{seq}"),
            Err(last) => format!("append {goal} after {after} refused, last is {last}"),
        };
        self.fabric.trace.say(text);
        applied
    }

    /// Gives no answer, or one that says nothing.
    async fn unclear(&self, append: Append) -> Result<u64, AppendError> {
        let what = match self.chance().below(4) {
            0 | 1 => Unclear::Applied,
            2 => Unclear::Lost,
            _ => Unclear::Late(Duration::from_millis(self.chance().between(500, 12_000))),
        };
        match what {
            Unclear::Lost => {}
            Unclear::Applied => {
                let _ = self.apply(&append);
            }
            Unclear::Late(wait) => {
                let port = self.clone();
                // What is on its way arrives whatever becomes of its sender.
                tokio::spawn(async move {
                    tokio::time::sleep(wait).await;
                    let _ = port.apply(&append);
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
        let skip = usize::try_from(after).unwrap_or(usize::MAX);
        let entries = store.entries(key).iter().zip(1..).skip(skip);
        let mut bytes = 0;
        let fits = |(entry, seq): &(&Bytes, u64)| {
            bytes += entry.len();
            bytes <= bytes_max || *seq == after + 1
        };
        let page = entries.take_while(fits).map(|(entry, seq)| Stored {
            seq,
            entry: entry.clone(),
        });
        page.collect()
    }
}

/// The journal as it lies, for those outside who judge.
impl super::Fabric {
    /// All goals with their entries, oldest first.
    pub(crate) fn journals(self: &Arc<Self>) -> Vec<(GoalKey, Vec<Bytes>)> {
        let store = lock(&self.journal);
        let all = store
            .goals()
            .map(|key| (key.clone(), store.entries(key).to_vec()));
        all.collect()
    }
}
