//! Reading a goal's journal back into a state.

use crate::state::GoalState;
use detent_bus::{GoalKey, Journal};
use detent_protocol::Fault;
use detent_protocol::journal::{Entry, GENESIS};
use detent_protocol::json::Digest;

/// Bytes read at a time.
const PAGE_BYTES: usize = 1024 * 1024;

/// A goal as its journal gives it.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The state.
    pub state: GoalState,
    /// Sequence of the last entry: the fence.
    pub seq: u64,
    /// Hash of the last entry: the chain.
    pub hash: Digest,
}

/// Reads and folds a goal's journal. `None` where there is none. Of a goal that was
/// forgotten only what its tombstone says is known.
///
/// Fails with `JOURNAL_CORRUPT` or `JOURNAL_UNREADABLE` on the first entry that does
/// not hold: nothing may be dispatched from such a journal.
pub async fn load(journal: &dyn Journal, key: &GoalKey) -> Result<Option<Loaded>, Fault> {
    let mut loaded = Loaded {
        state: GoalState::new(key.tenant.clone(), key.goal),
        seq: 0,
        hash: GENESIS,
    };
    loop {
        let page = journal.read(key, loaded.seq, PAGE_BYTES).await?;
        if page.is_empty() {
            break;
        }
        for stored in page {
            if Entry::is_tombstone(&stored.entry) {
                // It stands for all that was read so far.
                loaded.state = GoalState::new(key.tenant.clone(), key.goal);
                loaded.hash = GENESIS;
            }
            let (entry, hash) = Entry::decode(&stored.entry, &loaded.hash).map_err(|f| Fault {
                at: Some(format!("goal {}", key.goal)),
                ..f
            })?;
            loaded.state.fold_entry(&entry);
            loaded.seq = stored.seq;
            loaded.hash = hash;
        }
    }
    Ok((loaded.seq > 0).then_some(loaded))
}
