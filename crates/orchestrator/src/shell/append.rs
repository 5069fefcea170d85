//! Appending under the fence, and finding out what an unclear answer meant.
//!
//! A refused append proves nothing and neither does silence: on any answer but a
//! confirmation the tail is read back from the authority and compared. The fence is
//! never refreshed: either the goal's last entry is the one this owner wrote, or it
//! steps down.

use super::Shared;
use bytes::Bytes;
use detent_bus::{Append, AppendError, GoalKey};
use detent_protocol::journal::Entry;
use detent_protocol::record::Said;
use detent_protocol::{Code, Fault};
use std::time::Duration;

/// How an append ended for its owner.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Appended {
    /// It is in the journal, at this sequence.
    Yes(u64),
    /// Another owner has written: step down.
    Fenced,
    /// It is not in the journal and never will be.
    Refused(Fault),
}

/// Longest pause between tries, milliseconds.
const PAUSE_MS_MAX: u64 = 5_000;

/// May the same append succeed later?
fn may_pass(fault: &Fault) -> bool {
    matches!(
        fault.code,
        Code::JournalStorage
            | Code::JournalUnknown
            | Code::NodeUnreachable
            | Code::BrokerUnreachable
    )
}

/// From this size on, bytes, a release build reads back what it is about to write too.
const READ_BACK_BYTES: usize = 64 * 1024;

/// Can a reader read this entry? A writer must not write what it can't: a goal with such
/// an entry would be lost to every later owner.
pub(crate) fn legible(entry: &Bytes) -> Result<(), Fault> {
    if !cfg!(debug_assertions) && entry.len() <= READ_BACK_BYTES {
        return Ok(());
    }
    let illegible = |why: String| {
        let message = format!("made a journal entry that can't be read: {why}");
        Fault::new(Code::InternalLogicError, message)
    };
    let (read, _) = Entry::decode_alone(entry).map_err(|f| illegible(f.message))?;
    let unknown = read.records.iter().find_map(|r| match &r.said {
        Said::Unknown { kind, .. } => Some(format!("record {} of kind {kind}", r.n)),
        Said::Known(_) => None,
    });
    unknown.map_or(Ok(()), |what| Err(illegible(what)))
}

/// Appends `entry` after `seq`. Ends only when it is known what happened: while the
/// store is away or full it goes on trying, and the node is told.
pub(crate) async fn append(
    shared: &Shared,
    key: &GoalKey,
    seq: u64,
    entry: &Bytes,
    ends: bool,
) -> Appended {
    let mut pause_ms = 20;
    loop {
        match append_once(shared, key, seq, entry, ends).await {
            Ok(done) => return done,
            Err(fault) => {
                tracing::warn!(goal = %key.goal, %fault, "append not confirmed; trying again");
                tokio::time::sleep(Duration::from_millis(pause_ms)).await;
                pause_ms = (pause_ms * 2).min(PAUSE_MS_MAX);
            }
        }
    }
}

/// One try. `Err`: it is not in the journal, or nobody could say; later it may be.
pub(crate) async fn append_once(
    shared: &Shared,
    key: &GoalKey,
    seq: u64,
    entry: &Bytes,
    ends: bool,
) -> Result<Appended, Fault> {
    let tried = try_append(shared, key, seq, entry, ends).await;
    tried.or_else(|fault| {
        if matches!(fault.code, Code::JournalStorage | Code::JournalCorrupt) {
            shared.hooks.storage_failed(&fault);
        }
        match may_pass(&fault) {
            true => Err(fault),
            false => Ok(Appended::Refused(fault)),
        }
    })
}

async fn try_append(
    shared: &Shared,
    key: &GoalKey,
    seq: u64,
    entry: &Bytes,
    ends: bool,
) -> Result<Appended, Fault> {
    let append = Append {
        key: key.clone(),
        after: seq,
        entry: entry.clone(),
        by: shared.options.node.clone(),
        ends,
    };
    let wait = Duration::from_millis(shared.options.append_timeout_ms);
    match tokio::time::timeout(wait, shared.bus.journal.append(append)).await {
        Ok(Ok(seq)) => return Ok(Appended::Yes(seq)),
        Ok(Err(AppendError::Refused(fault))) => return Err(fault),
        Ok(Err(AppendError::Fenced { .. } | AppendError::Unknown(_))) | Err(_) => {}
    }
    let tail = shared.bus.journal.tail(key).await?;
    match tail {
        // Ours: the answer was lost, or a stale leader's refusal was false.
        Some(tail) if tail.entry == *entry => Ok(Appended::Yes(tail.seq)),
        // Nothing since our last entry: it did not arrive; the same again.
        tail if tail.as_ref().map_or(0, |t| t.seq) == seq => {
            Err(Fault::new(Code::JournalUnknown, "not in the journal yet"))
        }
        _ => Ok(Appended::Fenced),
    }
}
