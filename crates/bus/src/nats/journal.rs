//! Journals in the stream `DETENT_JOURNAL`.
//!
//! What it promises: an append is confirmed only by the stream's own acknowledgement,
//! which a stream of several copies gives after most of them have it; its fence is
//! checked by the stream's leader in the same step. What is not confirmed is
//! [`AppendError::Unknown`] unless JetStream refused before it proposed anything. Heads
//! and tails are read from the leader; pages may come from any replica, up to the tail
//! that the leader has named ([`super::replay`]).
//!
//! A leader that is cut off from the others goes on answering reads for some seconds, with
//! what was confirmed until then. So a read can be old, never wrong; what depends on
//! being the last is an append, whose fence no such leader can confirm.
//!
//! What it must not know: what the bytes mean.

use super::Broker;
use super::api::{self, Which};
use super::layout::{self, JOURNAL};
use super::listing;
use super::open::OpenViews;
use super::replay;
use super::verdict::{Verdict, judge};
use crate::failpoint;
use crate::{Append, AppendError, ENTRY_BYTES_MAX, Forget, GoalKey, Journal, OpenGoal, Stored};
use async_nats::HeaderMap;
use async_nats::jetstream::message::StreamMessage;
use async_trait::async_trait;
use bytes::Bytes;
use detent_protocol::{Code, Fault, GoalId, TenantId};
use std::time::Duration;

/// Most tries of an append while others of the same subject are on their way. With the
/// pauses between them: about 150 ms.
const BUSY_TRIES: u32 = 32;

/// Journals of all goals of a cluster.
pub(crate) struct NatsJournal {
    broker: Broker,
    open: OpenViews,
}

impl NatsJournal {
    /// Journals over a connection. The stream has to be there.
    pub(crate) fn new(broker: Broker) -> Self {
        Self {
            broker,
            open: OpenViews::default(),
        }
    }

    /// Puts an entry on its subject under the fence that the headers carry.
    async fn write(
        &self,
        key: &GoalKey,
        after: u64,
        headers: HeaderMap,
        entry: Bytes,
    ) -> Result<u64, AppendError> {
        let subject = layout::entries(key);
        match fenced_write(&self.broker, &subject, headers, entry).await {
            Ok(seq) => Ok(seq),
            Err(Verdict::Fenced) => Err(self.fenced(key, after).await),
            Err(Verdict::Refused(fault)) => Err(AppendError::Refused(fault)),
            Err(Verdict::Unknown(fault)) => Err(AppendError::Unknown(fault)),
            Err(Verdict::Busy) => Err(AppendError::Unknown(busy(&subject))),
        }
    }

    /// What a wrong fence means: the refusing server's own word proves nothing, so the
    /// last sequence is asked from the leader.
    async fn fenced(&self, key: &GoalKey, after: u64) -> AppendError {
        match self.last(key).await {
            Ok(last) if seq_of(last.as_ref()) == after => {
                let text = format!("{JOURNAL}: refused, but the last sequence is {after}");
                AppendError::Unknown(Fault::new(Code::JournalUnknown, text))
            }
            Ok(last) => AppendError::Fenced {
                last: seq_of(last.as_ref()),
            },
            Err(fault) => AppendError::Unknown(fault),
        }
    }

    async fn last(&self, key: &GoalKey) -> Result<Option<StreamMessage>, Fault> {
        let subject = layout::entries(key);
        api::from_leader(&self.broker, JOURNAL, Which::Last(&subject)).await
    }

    /// Removes the slots of a goal that was forgotten.
    async fn purge_slots(&self, key: &GoalKey) -> Result<(), Fault> {
        let filter = layout::slots(key);
        let standing = api::from_leader(&self.broker, JOURNAL, Which::Last(&filter)).await?;
        if standing.is_none() {
            return Ok(());
        }
        let question = serde_json::json!({ "filter": filter });
        let subject = format!("STREAM.PURGE.{JOURNAL}");
        match api::ask::<Purged>(&self.broker, &subject, &question).await {
            Ok(purged) if purged.success => Ok(()),
            Ok(_) => Err(api::unreachable(format!("{filter} was not purged"))),
            Err(failed) => Err(failed.fault(&format!("purging {filter}"))),
        }
    }
}

#[derive(serde::Deserialize)]
struct Purged {
    success: bool,
}

fn seq_of(message: Option<&StreamMessage>) -> u64 {
    message.map_or(0, |message| message.sequence)
}

fn busy(subject: &str) -> Fault {
    let text = format!("{subject}: other appends were on their way {BUSY_TRIES} times");
    Fault::new(Code::JournalUnknown, text)
}

/// Publishes under a fence; again for a while as long as nothing was decided.
pub(super) async fn fenced_write(
    broker: &Broker,
    subject: &str,
    headers: HeaderMap,
    payload: Bytes,
) -> Result<u64, Verdict> {
    let mut pause = Duration::from_micros(200);
    for _ in 0..BUSY_TRIES {
        let (headers, payload) = (headers.clone(), payload.clone());
        let sent = api::publish(broker, JOURNAL, subject.to_owned(), headers, payload).await;
        let failed = match sent {
            Ok(seq) => return Ok(seq),
            Err(failed) => failed,
        };
        match judge(failed, JOURNAL, broker.options.journal_bytes_max) {
            Verdict::Busy => tokio::time::sleep(pause).await,
            decided => return Err(decided),
        }
        pause = (pause * 2).min(Duration::from_millis(5));
    }
    Err(Verdict::Busy)
}

/// Goals whose slots one sweep removes.
const SWEEP_GOALS: usize = 64;

/// The largest sequence that a fence can name: JetStream reads it as a signed number.
const FENCE_MAX: u64 = i64::MAX as u64;

fn check_size(entry: &Bytes) -> Result<(), AppendError> {
    if entry.len() <= ENTRY_BYTES_MAX {
        return Ok(());
    }
    let bytes = entry.len();
    let text = format!("an entry of {bytes} bytes; the journal takes {ENTRY_BYTES_MAX}");
    Err(AppendError::Refused(Fault::new(Code::InputTooLarge, text)))
}

#[async_trait]
impl Journal for NatsJournal {
    async fn append(&self, append: Append) -> Result<u64, AppendError> {
        let Append {
            key,
            after,
            entry,
            by,
            ends,
        } = append;
        check_size(&entry)?;
        if after > FENCE_MAX {
            return Err(self.fenced(&key, after).await);
        }
        failpoint_before(after == 0, ends);
        let headers = layout::entry_headers(after, Some(&by), ends);
        let seq = self.write(&key, after, headers, entry).await?;
        failpoint_after(after == 0, ends);
        Ok(seq)
    }

    async fn forget(&self, forget: Forget) -> Result<u64, AppendError> {
        let Forget {
            key,
            after,
            tombstone,
            keep,
        } = forget;
        check_size(&tombstone)?;
        if after == 0 || after > FENCE_MAX {
            let last = self.last(&key).await.map_err(AppendError::Refused)?;
            let last = seq_of(last.as_ref());
            return Err(AppendError::Fenced { last });
        }
        failpoint::hit("forget.before");
        let headers = layout::tombstone_headers(after, keep);
        let seq = self.write(&key, after, headers, tombstone).await?;
        failpoint::hit("forget.after");
        // Not before the tombstone stands: until then a call that was long under way
        // could win a slot that has gone.
        if let Err(fault) = self.purge_slots(&key).await {
            tracing::warn!(goal = %key.goal, %fault, "slots of a forgotten goal are left");
            self.open.left(key).await;
        }
        Ok(seq)
    }

    async fn read(
        &self,
        key: &GoalKey,
        after: u64,
        bytes_max: usize,
    ) -> Result<Vec<Stored>, Fault> {
        let Some(tail) = self.last(key).await? else {
            return Ok(Vec::new());
        };
        replay::page(&self.broker, key, after, bytes_max, tail).await
    }

    async fn tail(&self, key: &GoalKey) -> Result<Option<Stored>, Fault> {
        let last = self.last(key).await?;
        Ok(last.map(|message| Stored {
            seq: message.sequence,
            entry: message.payload,
        }))
    }

    async fn open_goals(
        &self,
        shard: u16,
        after: Option<&GoalKey>,
        limit: usize,
    ) -> Result<Vec<OpenGoal>, Fault> {
        self.open.list(&self.broker, shard, after, limit).await
    }

    async fn goals(
        &self,
        tenant: &TenantId,
        after: Option<&GoalId>,
        limit: usize,
    ) -> Result<Vec<GoalKey>, Fault> {
        listing::goals(&self.broker, tenant, after, limit).await
    }

    async fn tenants(
        &self,
        after: Option<&TenantId>,
        limit: usize,
    ) -> Result<Vec<TenantId>, Fault> {
        listing::tenants(&self.broker, after, limit).await
    }

    /// Tombstones go by themselves. What may be left are slots, where whoever wrote the
    /// tombstone died or lost the broker before it could remove them.
    async fn sweep(&self) -> Result<bool, Fault> {
        for _ in 0..SWEEP_GOALS {
            let Some(key) = self.open.take_left().await else {
                return Ok(false);
            };
            if let Err(fault) = self.purge_slots(&key).await {
                self.open.left(key).await;
                return Err(fault);
            }
        }
        Ok(true)
    }
}

fn failpoint_before(first: bool, ends: bool) {
    if first {
        failpoint::hit("intake.append.before");
    }
    failpoint::hit("journal.append.before");
    if ends {
        failpoint::hit("end.append.before");
    }
}

fn failpoint_after(first: bool, ends: bool) {
    if first {
        failpoint::hit("intake.append.after");
    }
    failpoint::hit("journal.append.after");
    if ends {
        failpoint::hit("end.append.after");
    }
}
