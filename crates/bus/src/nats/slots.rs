//! Effect slots: one subject each, written under the fence "nothing stands here".
//!
//! Promises: of many writers one wins; what stands there is read from the stream's
//! leader. On an unclear answer it is read back; if nothing stands there then, the answer
//! is an error: the mark may still be on its way. Whoever wins a slot of a goal that was
//! forgotten is told no: the journal is looked at after the slot was written, so that a
//! tombstone that was there before is seen.
//!
//! Must not know: what a mark means.

use super::Broker;
use super::api::{self, Which};
use super::journal::fenced_write;
use super::layout::{self, JOURNAL};
use super::verdict::Verdict;
use crate::failpoint;
use crate::{GoalKey, SlotKey, Slots};
use async_trait::async_trait;
use detent_protocol::effect::SlotMark;
use detent_protocol::envelope::{from_msgpack, to_msgpack};
use detent_protocol::{Code, Fault};

/// Slots of all goals of a cluster.
pub(crate) struct NatsSlots {
    broker: Broker,
}

impl NatsSlots {
    /// Slots over a connection. The stream has to be there.
    pub(crate) fn new(broker: Broker) -> Self {
        Self { broker }
    }

    async fn write_or_read(&self, key: &SlotKey, mark: &SlotMark) -> Result<SlotMark, Fault> {
        let (subject, value) = (layout::slot(key), to_msgpack(mark)?);
        let headers = layout::entry_headers(0, None, false);
        failpoint::hit("slot.before");
        let unclear = match fenced_write(&self.broker, &subject, headers, value).await {
            Ok(_) => {
                failpoint::hit("slot.after");
                return Ok(mark.clone());
            }
            Err(Verdict::Refused(fault)) => return Err(fault),
            Err(Verdict::Unknown(fault)) => fault,
            Err(Verdict::Fenced | Verdict::Busy) => {
                let text = format!("{subject}: refused, but nothing stands there");
                Fault::new(Code::JournalUnknown, text)
            }
        };
        self.read(key).await?.ok_or(unclear)
    }

    async fn is_forgotten(&self, goal: &GoalKey) -> Result<bool, Fault> {
        let subject = layout::entries(goal);
        let last = api::from_leader(&self.broker, JOURNAL, Which::Last(&subject)).await?;
        Ok(last.is_some_and(|last| layout::is_tombstone(&last.headers)))
    }
}

#[async_trait]
impl Slots for NatsSlots {
    async fn win(&self, key: &SlotKey, mark: SlotMark) -> Result<SlotMark, Fault> {
        let stands = self.write_or_read(key, &mark).await?;
        if stands == mark && self.is_forgotten(&key.goal).await? {
            let goal = key.goal.goal;
            let text = format!("goal {goal} has ended and was forgotten: nothing of it starts");
            return Err(Fault::new(Code::OwnerFenced, text));
        }
        Ok(stands)
    }

    async fn read(&self, key: &SlotKey) -> Result<Option<SlotMark>, Fault> {
        let subject = layout::slot(key);
        let standing = api::from_leader(&self.broker, JOURNAL, Which::Last(&subject)).await?;
        standing
            .map(|message| read_mark(&message.payload))
            .transpose()
    }
}

fn read_mark(value: &[u8]) -> Result<SlotMark, Fault> {
    from_msgpack(value)
        .map_err(|e| Fault::new(Code::JournalUnreadable, format!("an effect slot: {e}")))
}
