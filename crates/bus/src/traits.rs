//! The traits and their errors.

use async_trait::async_trait;
use bytes::Bytes;
use detent_protocol::effect::SlotMark;
use detent_protocol::json::Digest;
use detent_protocol::{Code, Fault, GoalId, NodeId, StepId, TenantId};
use std::sync::Arc;
use std::time::Duration;

/// Why a message was not delivered or not answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BusError {
    /// Nobody serves this subject.
    #[error("nobody answers on {0}")]
    NoResponders(String),
    /// No answer in time. Whether the request was carried out is not known.
    #[error("no answer on {subject} within {timeout_ms} ms")]
    Timeout {
        /// The subject.
        subject: String,
        /// How long was waited.
        timeout_ms: u64,
    },
    /// Larger than the bus carries.
    #[error("a message of {bytes} bytes; the bus carries {max}")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The bound.
        max: usize,
    },
    /// The serving side's queue is full.
    #[error("the queue of {0} is full")]
    Busy(String),
    /// The bus is closed or the connection lost.
    #[error("the bus is closed")]
    Closed,
    /// The broker does not allow this subject; its words. Where several asked at the same
    /// time it may have been another's request: whether this one was carried out is not
    /// known.
    #[error("denied by the broker: {0}")]
    Denied(String),
}

impl From<BusError> for Fault {
    fn from(e: BusError) -> Self {
        let code = match e {
            BusError::TooLarge { .. } => Code::InputTooLarge,
            BusError::Denied(_) => Code::BrokerRefused,
            _ => Code::NodeUnreachable,
        };
        Fault::new(code, e.to_string())
    }
}

/// Answers requests.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// Answers one request. Has to end by itself; the asker may have stopped waiting.
    async fn handle(&self, subject: &str, payload: Bytes) -> Bytes;
}

/// How a subject is served.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// Servers with the same group share the requests. Empty: each gets every one.
    pub group: String,
    /// Requests handled at the same time.
    pub concurrency_max: usize,
    /// Requests that wait beyond these; one more is answered [`BusError::Busy`].
    pub queue_max: usize,
}

impl Default for ServeOptions {
    /// Group `detent`, 256 at a time, 4,096 waiting.
    fn default() -> Self {
        Self {
            group: "detent".into(),
            concurrency_max: 256,
            queue_max: 4096,
        }
    }
}

/// Keeps a subject served; dropping it stops the service (requests that are being
/// handled are finished).
pub struct Served(Option<Box<dyn FnOnce() + Send + Sync>>);

impl Served {
    /// Calls `stop` when it is dropped.
    pub fn new(stop: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self(Some(Box::new(stop)))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(stop) = self.0.take() {
            stop();
        }
    }
}

/// An event as a subscriber gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A message.
    Message {
        /// Its subject.
        subject: String,
        /// Its bytes.
        payload: Bytes,
    },
    /// The subscriber was too slow: this many events were dropped before the next.
    Missed(u64),
}

/// A stream of events.
#[async_trait]
pub trait Subscription: Send {
    /// The next event; `None` once the bus is closed.
    async fn next(&mut self) -> Option<Event>;
}

/// Requests with one answer, and events.
#[async_trait]
pub trait Messages: Send + Sync + 'static {
    /// Sends a request to one server of `subject` and waits for its answer.
    async fn request(
        &self,
        subject: &str,
        payload: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, BusError>;

    /// Tells everybody who subscribed; never waits for them.
    async fn publish(&self, subject: &str, payload: Bytes) -> Result<(), BusError>;

    /// Answers requests on `pattern` until the guard is dropped.
    async fn serve(
        &self,
        pattern: &str,
        options: ServeOptions,
        handler: Arc<dyn Handler>,
    ) -> Result<Served, BusError>;

    /// Listens to events on `pattern`; holds at most `queue_max` that were not taken.
    async fn subscribe(
        &self,
        pattern: &str,
        queue_max: usize,
    ) -> Result<Box<dyn Subscription>, BusError>;
}

/// Names a goal's journal.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GoalKey {
    /// Its tenant.
    pub tenant: TenantId,
    /// The goal.
    pub goal: GoalId,
}

/// One append. All records of one transition travel in one entry.
#[derive(Debug, Clone)]
pub struct Append {
    /// Which journal.
    pub key: GoalKey,
    /// The fence: sequence of the journal's last entry; 0 is "must be first".
    pub after: u64,
    /// The entry; opaque.
    pub entry: Bytes,
    /// Who appends. A bus that several nodes share tells it with the open goals.
    pub by: NodeId,
    /// It is the goal's last: the goal leaves the list of open goals in the same
    /// commit.
    pub ends: bool,
}

/// A goal that is accepted and has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenGoal {
    /// The goal.
    pub key: GoalKey,
    /// Who appended last. `None`: this bus has one node only, and does not say.
    pub by: Option<NodeId>,
}

/// Forgets a goal that has ended: what its journal held is replaced.
#[derive(Debug, Clone)]
pub struct Forget {
    /// Which journal.
    pub key: GoalKey,
    /// The fence: sequence of the journal's last entry, never 0.
    pub after: u64,
    /// What stays in its place; opaque.
    pub tombstone: Bytes,
    /// For how long it stays: until then nothing can be "first" in this journal. It may
    /// stay longer.
    pub keep: Duration,
}

/// Why an append was not confirmed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// The journal's last sequence is another one. On a cluster even this proves
    /// nothing about the entry: read the tail back.
    #[error("fenced: the journal's last sequence is {last}")]
    Fenced {
        /// Its last sequence, 0 where it is empty.
        last: u64,
    },
    /// It is not known whether the entry is in the journal.
    #[error("not known whether it was appended: {0}")]
    Unknown(Fault),
    /// It is certainly not in the journal, and the store takes no more.
    #[error("not appended: {0}")]
    Refused(Fault),
}

/// An entry with its sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Sequence: strictly rising within a goal, not without gaps.
    pub seq: u64,
    /// The entry.
    pub entry: Bytes,
}

/// Largest entry of a journal, bytes: with what is said around it, it fits into one
/// message ([`detent_protocol::MESSAGE_BYTES_MAX`]). A larger one is refused with
/// `INPUT_TOO_LARGE`.
pub const ENTRY_BYTES_MAX: usize = 900 * 1024;

/// One append-only journal for each goal.
#[async_trait]
pub trait Journal: Send + Sync + 'static {
    /// Appends under the fence; when it returns `Ok` the entry is durable. Gives its
    /// sequence.
    async fn append(&self, append: Append) -> Result<u64, AppendError>;

    /// Replaces a journal by one entry, its tombstone, under the fence. When it returns
    /// `Ok` this is durable: the goal is not open, [`Journal::read`] gives the tombstone
    /// alone, and its effect slots are gone or go soon. Gives the tombstone's sequence.
    async fn forget(&self, forget: Forget) -> Result<u64, AppendError>;

    /// Entries after sequence `after`, oldest first, as many as fit in `bytes_max`
    /// but at least one where there is one. Always from the authority.
    async fn read(&self, key: &GoalKey, after: u64, bytes_max: usize)
    -> Result<Vec<Stored>, Fault>;

    /// The last entry, from the authority.
    async fn tail(&self, key: &GoalKey) -> Result<Option<Stored>, Fault>;

    /// Open goals (accepted, not ended) of one shard, in key order, after `after`, at
    /// most `limit`.
    async fn open_goals(
        &self,
        shard: u16,
        after: Option<&GoalKey>,
        limit: usize,
    ) -> Result<Vec<OpenGoal>, Fault>;

    /// All goals of a tenant in key order, after `after`, at most `limit`; also those that
    /// were forgotten, while their tombstones stay.
    async fn goals(
        &self,
        tenant: &TenantId,
        after: Option<&GoalId>,
        limit: usize,
    ) -> Result<Vec<GoalKey>, Fault>;

    /// Tenants that have goals, in order, after `after`, at most `limit`. A bus that can't
    /// tell says `default`.
    async fn tenants(
        &self,
        after: Option<&TenantId>,
        limit: usize,
    ) -> Result<Vec<TenantId>, Fault> {
        let all = [TenantId::default()].into_iter();
        let later = all.filter(|tenant| after.is_none_or(|after| tenant > after));
        Ok(later.take(limit).collect())
    }

    /// Takes out a bounded piece of what is not needed any more: rows of forgotten goals,
    /// and tombstones that were kept long enough. Says whether there is more. A bus whose
    /// store does this by itself has nothing to do.
    async fn sweep(&self) -> Result<bool, Fault> {
        Ok(false)
    }
}

/// Names an effect slot: one attempt of one step.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SlotKey {
    /// The goal.
    pub goal: GoalKey,
    /// The step.
    pub step: StepId,
    /// The attempt.
    pub attempt: u32,
}

/// Places that can be written once. They live as long as the goal's journal holds its
/// entries. A slot of a goal that was forgotten can't be won any more: a call that was so
/// long under way must not start ([`Code::OwnerFenced`]).
#[async_trait]
pub trait Slots: Send + Sync + 'static {
    /// Writes `mark` if nothing stands there; gives what stands there now. It was won
    /// exactly if that equals `mark`. On an error nobody knows: read it back.
    async fn win(&self, key: &SlotKey, mark: SlotMark) -> Result<SlotMark, Fault>;

    /// What stands there, from the authority.
    async fn read(&self, key: &SlotKey) -> Result<Option<SlotMark>, Fault>;
}

/// A lease that is held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Its name.
    pub name: String,
    /// Who holds it.
    pub holder: NodeId,
    /// Rises with every change; a renewal needs it.
    pub revision: u64,
}

/// Names held for a time. Hints about when to try; never the authority.
#[async_trait]
pub trait Leases: Send + Sync + 'static {
    /// Takes a free or lapsed name; gives the lease, or who holds it.
    async fn acquire(
        &self,
        name: &str,
        holder: &NodeId,
        ttl: Duration,
    ) -> Result<Result<Lease, NodeId>, Fault>;

    /// Holds it for another `ttl`; `None` when it was lost in between.
    async fn renew(&self, lease: &Lease, ttl: Duration) -> Result<Option<Lease>, Fault>;

    /// Gives it back.
    async fn release(&self, lease: &Lease) -> Result<(), Fault>;

    /// Leases held now whose names start with `prefix`, in order of name.
    async fn held(&self, prefix: &str) -> Result<Vec<Lease>, Fault>;
}

/// Largest body, bytes.
pub const BLOB_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Bodies by their hash.
#[async_trait]
pub trait Blobs: Send + Sync + 'static {
    /// Keeps a body (at most [`BLOB_BYTES_MAX`]); durable when it returns.
    async fn put(&self, body: Bytes) -> Result<Digest, Fault>;

    /// The body with this hash, checked against it.
    async fn get(&self, digest: &Digest) -> Result<Option<Bytes>, Fault>;

    /// Takes a body out; one that is not there is no error.
    async fn remove(&self, digest: &Digest) -> Result<(), Fault>;
}

/// Which durable messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Queue {
    /// Goals handed in without waiting for an answer
    /// ([`detent_protocol::subject::INTAKE_ALL`]).
    Intake,
    /// Control messages ([`detent_protocol::subject::CONTROL_ALL`]).
    Control,
}

/// A durable message on its way to whoever deals with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Its subject.
    pub subject: String,
    /// Its bytes.
    pub payload: Bytes,
    /// How often it was delivered, this time included.
    pub tries: u64,
}

/// What is to become of a durable message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Disposal {
    /// It was dealt with.
    Done,
    /// Not now: deliver it again after this time.
    Later(Duration),
    /// It can't be dealt with: keep it as a dead letter.
    Dead(Fault),
}

/// Deals with durable messages.
#[async_trait]
pub trait Dealer: Send + Sync + 'static {
    /// Deals with one. It may come again, also after `Done`: a lost confirmation looks
    /// like none.
    async fn deal(&self, delivery: Delivery) -> Disposal;
}

/// A message that nobody could deal with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// Its number.
    pub number: u64,
    /// The subject it came on.
    pub subject: String,
    /// Its bytes.
    pub payload: Bytes,
    /// Why.
    pub fault: Fault,
    /// How often it was tried.
    pub tries: u64,
    /// When it was given up, milliseconds since 1970.
    pub at_ms: u64,
}

/// Messages that are kept until somebody has dealt with them.
#[async_trait]
pub trait Inbox: Send + Sync + 'static {
    /// Keeps a message; durable when it returns. The subject decides the queue.
    async fn put(&self, subject: &str, payload: Bytes) -> Result<(), BusError>;

    /// Takes messages, at most `in_hand_max` at a time, until the guard is dropped. Those
    /// of one subject come one after the other, in order of arrival. Several takers share.
    async fn take(
        &self,
        queue: Queue,
        in_hand_max: usize,
        dealer: Arc<dyn Dealer>,
    ) -> Result<Served, BusError>;

    /// Dead letters with numbers above `after`, in order, at most `limit`.
    async fn dead(&self, after: u64, limit: usize) -> Result<Vec<DeadLetter>, Fault>;

    /// Puts a dead letter back into its queue, as new. `false`: there is none of this
    /// number.
    async fn redrive(&self, number: u64) -> Result<bool, Fault>;
}

/// The traits together.
#[derive(Clone)]
pub struct Bus {
    /// Requests and events.
    pub messages: Arc<dyn Messages>,
    /// Journals.
    pub journal: Arc<dyn Journal>,
    /// Effect slots.
    pub slots: Arc<dyn Slots>,
    /// Leases.
    pub leases: Arc<dyn Leases>,
    /// Bodies.
    pub blobs: Arc<dyn Blobs>,
    /// Durable messages; `None` on a bus that lives only as long as its one node, where
    /// a request that nobody could take is told so at once.
    pub inbox: Option<Arc<dyn Inbox>>,
}

/// Asks `subject` and reads the reply: the usual way from one actor to another.
pub async fn call<Q, A>(
    messages: &dyn Messages,
    subject: &str,
    question: &Q,
    timeout: Duration,
) -> Result<A, Fault>
where
    Q: detent_protocol::envelope::Message,
    A: serde::de::DeserializeOwned,
{
    let payload = detent_protocol::envelope::seal(question)?;
    let answer = messages.request(subject, payload, timeout).await?;
    detent_protocol::envelope::read_reply(&answer)
}
