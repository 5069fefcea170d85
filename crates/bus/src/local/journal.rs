//! Journals in the store.
//!
//! | table | key | value |
//! |---|---|---|
//! | `journal.entry` | goal, sequence (u64 BE) | the entry |
//! | `journal.head` | goal | sequence of the last entry (u64 BE) |
//! | `journal.open` | shard (u16 BE), goal | nothing |
//!
//! The head is the fence: the committer compares it in the same transaction that writes
//! the entry. Within a goal the sequence has no gaps here, which [`Journal`] does not
//! promise.

use super::keys;
use super::storage::{CommitError, Storage, blocking, fault, nonsense};
use crate::failpoint;
use crate::{Append, AppendError, ENTRY_BYTES_MAX, Forget, GoalKey, Journal, OpenGoal, Stored};
use async_trait::async_trait;
use bytes::Bytes;
use detent_protocol::{Code, Fault, GoalId, TenantId};
use detent_store::{Scan, Table, Txn};
use std::ops::Bound;
use std::sync::Arc;

const ENTRY: Table = Table::new("journal.entry");
const HEAD: Table = Table::new("journal.head");
const OPEN: Table = Table::new("journal.open");

/// Most goals in one answer, whatever was asked for: the store's writer waits while it
/// is read.
const PAGE_GOALS_MAX: usize = 4096;

/// Journals of all goals of one node.
pub(crate) struct LocalJournal {
    storage: Arc<Storage>,
}

impl LocalJournal {
    pub(crate) fn new(storage: Arc<Storage>) -> Self {
        Self { storage }
    }
}

#[async_trait]
impl Journal for LocalJournal {
    async fn append(&self, append: Append) -> Result<u64, AppendError> {
        if append.entry.len() > ENTRY_BYTES_MAX {
            let bytes = append.entry.len();
            let text = format!("an entry of {bytes} bytes; the journal takes {ENTRY_BYTES_MAX}");
            return Err(AppendError::Refused(Fault::new(Code::InputTooLarge, text)));
        }
        // A fence that no head can equal: the last sequence there is has no successor.
        let Some(seq) = append.after.checked_add(1) else {
            let last = last_seq(&self.storage, &append.key).map_err(AppendError::Refused)?;
            return Err(AppendError::Fenced { last });
        };
        let (first, ends) = (append.after == 0, append.ends);
        hit_before(first, ends);
        self.storage
            .commit(transaction(append, seq))
            .await
            .map_err(refusal)?;
        hit_after(first, ends);
        Ok(seq)
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
        let (storage, key) = (Arc::clone(&self.storage), key.clone());
        blocking(move || page(&storage, &key, after, bytes_max)).await
    }

    async fn tail(&self, key: &GoalKey) -> Result<Option<Stored>, Fault> {
        match last_seq(&self.storage, key)? {
            0 => Ok(None),
            seq => entry(&self.storage, key, seq).map(Some),
        }
    }

    async fn open_goals(
        &self,
        shard: u16,
        after: Option<&GoalKey>,
        limit: usize,
    ) -> Result<Vec<OpenGoal>, Fault> {
        let prefix = keys::shard(shard);
        let after = after.map(|goal| [prefix.as_slice(), &keys::goal(goal)].concat());
        let open = self.list(OPEN, prefix, after, limit, keys::parse_open);
        let open = open.await?.into_iter();
        Ok(open.map(|key| OpenGoal { key, by: None }).collect())
    }

    async fn goals(
        &self,
        tenant: &TenantId,
        after: Option<&GoalId>,
        limit: usize,
    ) -> Result<Vec<GoalKey>, Fault> {
        let prefix = keys::tenant(tenant);
        let after = after.map(|goal| [prefix.as_slice(), goal.as_bytes()].concat());
        self.list(HEAD, prefix, after, limit, keys::parse_goal)
            .await
    }
}

impl LocalJournal {
    /// Goals whose rows begin with `prefix` and lie after `after`.
    async fn list(
        &self,
        table: Table,
        prefix: Vec<u8>,
        after: Option<Vec<u8>>,
        limit: usize,
        parse: fn(&[u8]) -> Option<GoalKey>,
    ) -> Result<Vec<GoalKey>, Fault> {
        let limit = limit.min(PAGE_GOALS_MAX);
        if limit == 0 {
            return Ok(Vec::new());
        }
        let storage = Arc::clone(&self.storage);
        blocking(move || {
            let to = end_of_prefix(&prefix);
            let to = to.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            let from = match &after {
                // Below the prefix everything of it is after.
                Some(after) if *after >= prefix => Bound::Excluded(after.as_slice()),
                _ => Bound::Included(prefix.as_slice()),
            };
            let rows = storage.store.scan(table, &Scan::range(from, to, limit));
            rows.map_err(|e| fault(&e))?
                .iter()
                .map(|(key, _)| parse(key).ok_or_else(|| nonsense("a goal's key")))
                .collect()
        })
        .await
    }
}

/// The first key after all that begin with `prefix`; `None` when there is none.
fn end_of_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let keep = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut end = prefix[..=keep].to_vec();
    end[keep] += 1;
    Some(end)
}

fn transaction(append: Append, seq: u64) -> Txn {
    let Append {
        key,
        after,
        entry,
        by: _,
        ends,
    } = append;
    let head = Bytes::from(keys::goal(&key));
    let last = (after > 0).then(|| Bytes::copy_from_slice(&after.to_be_bytes()));
    let txn = Txn::new()
        .expect(HEAD, head.clone(), last)
        .put(ENTRY, keys::entry(&key, seq), entry)
        .put(HEAD, head, Bytes::copy_from_slice(&seq.to_be_bytes()));
    match (after == 0, ends) {
        (true, false) => txn.put(OPEN, keys::open(&key), Bytes::new()),
        (false, true) => txn.delete(OPEN, keys::open(&key)),
        _ => txn,
    }
}

fn refusal(error: CommitError) -> AppendError {
    match error {
        CommitError::Condition(head) => match seq_of(head.as_deref()) {
            Ok(last) => AppendError::Fenced { last },
            Err(fault) => AppendError::Refused(fault),
        },
        CommitError::NotWritten(fault) => AppendError::Refused(fault),
        CommitError::Unknown(fault) => AppendError::Unknown(fault),
    }
}

/// Entries after `after` up to `bytes_max`, at least one. Entries are never removed, so
/// reading them one by one sees the same as one look at all.
fn page(
    storage: &Storage,
    key: &GoalKey,
    after: u64,
    bytes_max: usize,
) -> Result<Vec<Stored>, Fault> {
    let last = last_seq(storage, key)?;
    let mut found: Vec<Stored> = Vec::new();
    let mut bytes = 0;
    for seq in after.saturating_add(1)..=last {
        let stored = entry(storage, key, seq)?;
        bytes += stored.entry.len();
        if bytes > bytes_max && !found.is_empty() {
            break;
        }
        found.push(stored);
    }
    Ok(found)
}

fn last_seq(storage: &Storage, key: &GoalKey) -> Result<u64, Fault> {
    let head = storage.store.get(HEAD, &keys::goal(key));
    seq_of(head.map_err(|e| fault(&e))?.as_deref())
}

fn seq_of(head: Option<&[u8]>) -> Result<u64, Fault> {
    let Some(head) = head else { return Ok(0) };
    let bytes = head
        .try_into()
        .map_err(|_| nonsense("the head of a journal"))?;
    Ok(u64::from_be_bytes(bytes))
}

fn entry(storage: &Storage, key: &GoalKey, seq: u64) -> Result<Stored, Fault> {
    let row = storage.store.get(ENTRY, &keys::entry(key, seq));
    let entry = row.map_err(|e| fault(&e))?.ok_or_else(|| {
        let text = format!("entry {seq} of goal {} is missing", key.goal);
        Fault::new(Code::JournalCorrupt, text)
    })?;
    Ok(Stored { seq, entry })
}

fn hit_before(first: bool, ends: bool) {
    if first {
        failpoint::hit("intake.append.before");
    }
    failpoint::hit("journal.append.before");
    if ends {
        failpoint::hit("end.append.before");
    }
}

fn hit_after(first: bool, ends: bool) {
    if first {
        failpoint::hit("intake.append.after");
    }
    failpoint::hit("journal.append.after");
    if ends {
        failpoint::hit("end.append.after");
    }
}
