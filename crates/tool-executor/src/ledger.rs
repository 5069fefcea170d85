//! An executor's own record of its runs: how attempts with an effect ended, and which
//! goals are sealed.
//!
//! Promises: what was recorded is durable when the call returns, given a store that
//! syncs. Losing it means that outcomes are unknown, never that nothing happened: the
//! effect slots, which are elsewhere, still say what was started.
//!
//! Grows with the attempts of goals that are not forgotten ([`Ledger::forget`]). A goal
//! that was forgotten stays refused for a while, because calls of it may still wait in a
//! queue; then its seal goes too.

use detent_protocol::envelope::{from_msgpack, to_msgpack};
use detent_protocol::record::ToolOutcome;
use detent_protocol::{Code, Fault, GoalId, StepId};
use detent_store::{Scan, Store, StoreError, Table, Txn};
use serde::{Deserialize, Serialize};
use std::ops::Bound;

const RUNS: Table = Table::new("executor.run");
const SEALED: Table = Table::new("executor.sealed");
/// When a goal was forgotten (Unix milliseconds, u64 BE) and the goal.
const FORGOTTEN: Table = Table::new("executor.forgotten");
/// How long a forgotten goal stays refused, milliseconds: longer than any call waits.
pub const REFUSED_FOR_MS: u64 = 600_000;
/// Rows that one round of forgetting takes out.
const FORGET_ROWS: usize = 512;

/// Names one attempt of one step.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Attempt {
    /// The goal.
    pub goal: GoalId,
    /// The step.
    pub step: StepId,
    /// The attempt, from 1.
    pub attempt: u32,
}

impl Attempt {
    fn row(&self) -> Vec<u8> {
        let mut key = self.goal.as_bytes().to_vec();
        key.extend_from_slice(self.step.as_str().as_bytes());
        // A step's name holds no NUL, so no two attempts share a key.
        key.push(0);
        key.extend_from_slice(&self.attempt.to_be_bytes());
        key
    }
}

/// What the ledger holds about an attempt that is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The nonce with which its slot was won.
    pub nonce: u64,
    /// How it ended; `None`: it was killed, and what it had done by then is unknown.
    #[serde(default)]
    pub outcome: Option<ToolOutcome>,
    /// When, Unix milliseconds.
    pub at_ms: u64,
}

/// The ledger. Clones share it.
#[derive(Debug, Clone)]
pub struct Ledger {
    store: Store,
}

impl Ledger {
    /// A ledger in two tables of `store`, which has to sync its commits.
    pub fn new(store: Store) -> Self {
        Self { store }
    }

    /// What is known about an attempt that is over.
    ///
    /// # Errors
    /// [`Code::JournalStorage`] or [`Code::JournalCorrupt`]: nothing is known.
    pub fn entry(&self, attempt: &Attempt) -> Result<Option<Entry>, Fault> {
        let row = self.store.get(RUNS, &attempt.row()).map_err(fault)?;
        row.map(|bytes| from_msgpack(&bytes)).transpose()
    }

    /// Records how an attempt ended; durable when it returns.
    ///
    /// # Errors
    /// [`Code::JournalStorage`]: whether it was recorded is not known.
    pub async fn record(&self, attempt: &Attempt, entry: &Entry) -> Result<(), Fault> {
        let txn = Txn::new().put(RUNS, attempt.row(), to_msgpack(entry)?);
        self.store.commit(txn).await.map(drop).map_err(fault)
    }

    /// Is this goal sealed here?
    ///
    /// # Errors
    /// [`Code::JournalStorage`] or [`Code::JournalCorrupt`]: not known.
    pub fn is_sealed(&self, goal: &GoalId) -> Result<bool, Fault> {
        let row = self.store.get(SEALED, goal.as_bytes()).map_err(fault)?;
        Ok(row.is_some())
    }

    /// Seals a goal for ever, or until it is forgotten; durable when it returns.
    ///
    /// # Errors
    /// [`Code::JournalStorage`]: whether it is sealed is not known.
    pub async fn seal(&self, goal: &GoalId, at_ms: u64) -> Result<(), Fault> {
        if self.is_sealed(goal)? {
            return Ok(());
        }
        let mark = at_ms.to_be_bytes().to_vec();
        let txn = Txn::new().put(SEALED, goal.as_bytes().to_vec(), mark);
        self.store.commit(txn).await.map(drop).map_err(fault)
    }

    /// Is anything held about this goal?
    ///
    /// # Errors
    /// [`Code::JournalStorage`] or [`Code::JournalCorrupt`]: not known.
    pub fn knows(&self, goal: &GoalId) -> Result<bool, Fault> {
        let rows = self.store.scan(RUNS, &Scan::prefix(goal.as_bytes(), 1));
        Ok(!rows.map_err(fault)?.is_empty() || self.is_sealed(goal)?)
    }

    /// Takes out how the attempts of a goal ended, which has been forgotten. It stays
    /// sealed for [`REFUSED_FOR_MS`] from `now_ms` on; the seals of goals that have been
    /// for so long go, a bounded number each time.
    ///
    /// # Errors
    /// [`Code::JournalStorage`]: some of it may still be there; ask again.
    pub async fn forget(&self, goal: &GoalId, now_ms: u64) -> Result<(), Fault> {
        self.lift_seals(now_ms).await?;
        let mark = now_ms.to_be_bytes();
        let since = [&mark[..], goal.as_bytes()].concat();
        // First, so that a goal that is half forgotten is refused.
        let txn = Txn::new()
            .put(SEALED, goal.as_bytes().to_vec(), mark.to_vec())
            .put(FORGOTTEN, since, Vec::new());
        self.store.commit(txn).await.map_err(fault)?;
        let scan = Scan::prefix(goal.as_bytes(), FORGET_ROWS);
        loop {
            let rows = self.store.scan(RUNS, &scan).map_err(fault)?;
            if rows.is_empty() {
                return Ok(());
            }
            let txn = rows
                .into_iter()
                .fold(Txn::new(), |txn, (key, _)| txn.delete(RUNS, key));
            self.store.commit(txn).await.map_err(fault)?;
        }
    }

    async fn lift_seals(&self, now_ms: u64) -> Result<(), Fault> {
        let before = now_ms.saturating_sub(REFUSED_FOR_MS).to_be_bytes();
        let scan = Scan::range(Bound::Unbounded, Bound::Excluded(&before), FORGET_ROWS);
        let rows = self.store.scan(FORGOTTEN, &scan).map_err(fault)?;
        if rows.is_empty() {
            return Ok(());
        }
        let txn = rows.into_iter().fold(Txn::new(), |txn, (since, _)| {
            let goal = since.slice(size_of::<u64>().min(since.len())..);
            txn.delete(FORGOTTEN, since).delete(SEALED, goal)
        });
        self.store.commit(txn).await.map(drop).map_err(fault)
    }
}

fn fault(error: StoreError) -> Fault {
    let code = if error.is_corrupt() {
        Code::JournalCorrupt
    } else {
        Code::JournalStorage
    };
    Fault::new(code, format!("the executor's ledger: {error}"))
}
