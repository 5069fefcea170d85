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
//! promise. [`super::forget`] has what becomes of a journal that is forgotten.

use super::forget::floor_of;
use super::keys;
use super::storage::{CommitError, Storage, blocking, fault, nonsense};
use crate::env::SharedEnv;
use crate::failpoint;
use crate::{Append, AppendError, ENTRY_BYTES_MAX, Forget, GoalKey, Journal, OpenGoal, Stored};
use async_trait::async_trait;
use bytes::Bytes;
use detent_protocol::{Code, Fault, GoalId, TenantId};
use detent_store::{Scan, Table, Txn};
use std::ops::Bound;
use std::sync::Arc;

pub(super) const ENTRY: Table = Table::new("journal.entry");
pub(super) const HEAD: Table = Table::new("journal.head");
pub(super) const OPEN: Table = Table::new("journal.open");

/// Most goals in one answer, whatever was asked for: the store's writer waits while it
/// is read.
const PAGE_GOALS_MAX: usize = 4096;

/// Journals of all goals of one node.
pub(crate) struct LocalJournal {
    pub(super) storage: Arc<Storage>,
    pub(super) env: SharedEnv,
}

impl LocalJournal {
    pub(crate) fn new(storage: Arc<Storage>, env: SharedEnv) -> Self {
        Self { storage, env }
    }
}

#[async_trait]
impl Journal for LocalJournal {
    async fn append(&self, append: Append) -> Result<u64, AppendError> {
        if append.entry.len() > ENTRY_BYTES_MAX {
            return Err(too_large(append.entry.len()));
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
        self.replace(forget).await
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
        loop {
            let seq = match last_seq(&self.storage, key)? {
                0 => return Ok(None),
                seq => seq,
            };
            match entry(&self.storage, key, seq)? {
                Some(tail) => return Ok(Some(tail)),
                None => was_forgotten(&self.storage, key, seq)?,
            }
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

    async fn tenants(
        &self,
        after: Option<&TenantId>,
        limit: usize,
    ) -> Result<Vec<TenantId>, Fault> {
        let mut found: Vec<TenantId> = Vec::new();
        let mut after = after.cloned();
        while found.len() < limit.min(PAGE_GOALS_MAX) {
            // Past all goals of the last one: its keys begin with its name and a NUL.
            let from = after.as_ref().and_then(|t| end_of_prefix(&keys::tenant(t)));
            let storage = Arc::clone(&self.storage);
            let first = blocking(move || {
                let from = from.as_deref().map_or(Bound::Unbounded, Bound::Included);
                let rows = storage
                    .store
                    .scan(HEAD, &Scan::range(from, Bound::Unbounded, 1));
                rows.map_err(|e| fault(&e))
            });
            let Some((key, _)) = first.await?.pop() else {
                break;
            };
            let tenant = keys::parse_tenant(&key).ok_or_else(|| nonsense("a goal's key"))?;
            found.push(tenant.clone());
            after = Some(tenant);
        }
        Ok(found)
    }

    async fn sweep(&self) -> Result<bool, Fault> {
        self.sweep_some().await
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

pub(super) fn too_large(bytes: usize) -> AppendError {
    let text = format!("an entry of {bytes} bytes; the journal takes {ENTRY_BYTES_MAX}");
    AppendError::Refused(Fault::new(Code::InputTooLarge, text))
}

/// What an append's commit means; its condition 0 is the head.
pub(super) fn refusal(error: CommitError) -> AppendError {
    match error {
        CommitError::Condition(_, head) => match seq_of(head.as_deref()) {
            Ok(last) => AppendError::Fenced { last },
            Err(fault) => AppendError::Refused(fault),
        },
        CommitError::NotWritten(fault) => AppendError::Refused(fault),
        CommitError::Unknown(fault) => AppendError::Unknown(fault),
    }
}

/// Entries after `after` up to `bytes_max`, at least one. Rows go only when their journal
/// is forgotten; a reader that meets that begins again at the floor.
fn page(
    storage: &Storage,
    key: &GoalKey,
    after: u64,
    bytes_max: usize,
) -> Result<Vec<Stored>, Fault> {
    loop {
        let last = last_seq(storage, key)?;
        let floor = floor_of(storage, key)?;
        if floor > last {
            // Forgotten between the two looks: the head that was read is gone.
            continue;
        }
        let first = after.saturating_add(1).max(floor);
        let mut found: Vec<Stored> = Vec::new();
        let mut bytes = 0;
        let missing = 'entries: {
            for seq in first..=last {
                let Some(stored) = entry(storage, key, seq)? else {
                    break 'entries seq;
                };
                bytes += stored.entry.len();
                if bytes > bytes_max && !found.is_empty() {
                    break;
                }
                found.push(stored);
            }
            return Ok(found);
        };
        was_forgotten(storage, key, missing)?;
    }
}

/// Nothing but forgetting takes an entry away: checks that this is what happened to `seq`
/// since the head was read.
fn was_forgotten(storage: &Storage, key: &GoalKey, seq: u64) -> Result<(), Fault> {
    if seq < floor_of(storage, key)? || seq > last_seq(storage, key)? {
        return Ok(());
    }
    let text = format!("entry {seq} of goal {} is missing", key.goal);
    Err(Fault::new(Code::JournalCorrupt, text))
}

pub(super) fn last_seq(storage: &Storage, key: &GoalKey) -> Result<u64, Fault> {
    let head = storage.store.get(HEAD, &keys::goal(key));
    seq_of(head.map_err(|e| fault(&e))?.as_deref())
}

pub(super) fn seq_of(head: Option<&[u8]>) -> Result<u64, Fault> {
    let Some(head) = head else { return Ok(0) };
    let bytes = head
        .try_into()
        .map_err(|_| nonsense("the head of a journal"))?;
    Ok(u64::from_be_bytes(bytes))
}

fn entry(storage: &Storage, key: &GoalKey, seq: u64) -> Result<Option<Stored>, Fault> {
    let row = storage.store.get(ENTRY, &keys::entry(key, seq));
    let entry = row.map_err(|e| fault(&e))?;
    Ok(entry.map(|entry| Stored { seq, entry }))
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
