//! Which goals are open.
//!
//! A goal is open while its last entry does not carry the mark of an end. One look at a
//! shard is one consumer that is given the headers of the last entry of each goal, and no
//! bodies. What was read is kept as a view; the next look asks the leader for the shard's
//! last entry, and reads only what came since the view. So goals that have ended cost
//! something once.
//!
//! On the way tombstones are seen. Those of the last hour are remembered: if their writer
//! died, slots of theirs may be left ([`OpenViews::take_left`]).
//!
//! A consumer may sit on a replica that is behind, and may come back short. So the end of
//! a look is not "nothing is pending": it is the entry which the leader named as the
//! shard's last one, and everything before it lies before it.
//!
//! Promises: whatever was accepted before the question is in the answer; an answer that
//! can't be complete is an error. A shard holds at most [`OPEN_MAX`] open goals.
//!
//! Must not know: what an entry means.

use super::Broker;
use super::api::{self, Which};
use super::layout::{self, JOURNAL};
use super::listing::PAGE_GOALS_MAX;
use crate::{GoalKey, OpenGoal};
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, pull};
use async_nats::jetstream::{self, consumer::Consumer};
use detent_protocol::ids::SHARDS;
use detent_protocol::{Code, Fault, NodeId};
use futures::StreamExt;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::Mutex;

/// Most open goals of one shard.
const OPEN_MAX: usize = 100_000;
/// Headers asked for at once.
const BATCH: usize = 500;
/// How often a look that came back short is made again.
const LOOKS_MAX: u32 = 3;
/// A view that is older is made anew from everything: should it ever be wrong, then not
/// for long.
const VIEW_AGE_MAX: Duration = Duration::from_secs(600);
/// How long it is looked whether a tombstone has left slots.
const TOMBSTONE_AGE: Duration = Duration::from_secs(3600);
/// Most forgotten goals whose slots may be left; further ones are looked at when the view
/// is made anew.
const LEFT_MAX: usize = 10_000;
/// A consumer that nobody deletes, because its maker died, goes by itself.
const CONSUMER_IDLE: Duration = Duration::from_secs(30);

/// Open goals of each shard, as last seen.
pub(super) struct OpenViews {
    shards: Vec<Mutex<Option<View>>>,
    left: Mutex<BTreeSet<GoalKey>>,
}

impl Default for OpenViews {
    fn default() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::new(None)).collect(),
            left: Mutex::default(),
        }
    }
}

/// Open goals of a shard, after all entries up to `seen`.
struct View {
    seen: u64,
    open: BTreeMap<GoalKey, Option<NodeId>>,
    /// Goals that were forgotten lately.
    tombstones: Vec<GoalKey>,
    made: Instant,
}

impl View {
    fn new() -> Self {
        Self {
            seen: 0,
            open: BTreeMap::new(),
            tombstones: Vec::new(),
            made: Instant::now(),
        }
    }

    fn apply(&mut self, seq: u64, head: Option<Head>) -> Result<(), Fault> {
        self.seen = self.seen.max(seq);
        let Some(head) = head else { return Ok(()) };
        if head.tombstone && self.tombstones.len() < LEFT_MAX {
            self.tombstones.push(head.key.clone());
        }
        if head.ends {
            self.open.remove(&head.key);
        } else if self.open.len() < OPEN_MAX || self.open.contains_key(&head.key) {
            self.open.insert(head.key, head.by);
        } else {
            let text = format!(
                "shard {}: over {OPEN_MAX} open goals",
                head.key.goal.shard()
            );
            return Err(Fault::new(Code::IntakeOverloaded, text));
        }
        Ok(())
    }

    fn page(&self, after: Option<&GoalKey>, limit: usize) -> Vec<OpenGoal> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let open = self.open.range((from, Bound::Unbounded));
        open.take(limit.min(PAGE_GOALS_MAX))
            .map(|(key, by)| OpenGoal {
                key: key.clone(),
                by: by.clone(),
            })
            .collect()
    }
}

impl OpenViews {
    /// Open goals of a shard in key order, after `after`, at most `limit`.
    pub(super) async fn list(
        &self,
        broker: &Broker,
        shard: u16,
        after: Option<&GoalKey>,
        limit: usize,
    ) -> Result<Vec<OpenGoal>, Fault> {
        let Some(shared) = self.shards.get(usize::from(shard)) else {
            return Ok(Vec::new());
        };
        let mut slot = shared.lock().await;
        // Taken out: a look that is given up half-way leaves no half view.
        let mut view = look(broker, shard, slot.take()).await?;
        for key in std::mem::take(&mut view.tombstones) {
            self.left(key).await;
        }
        let page = view.page(after, limit);
        *slot = Some(view);
        Ok(page)
    }

    /// Remembers a forgotten goal that may have slots left.
    pub(super) async fn left(&self, key: GoalKey) {
        let mut left = self.left.lock().await;
        if left.len() < LEFT_MAX {
            left.insert(key);
        }
    }

    /// A forgotten goal that may have slots left.
    pub(super) async fn take_left(&self) -> Option<GoalKey> {
        self.left.lock().await.pop_first()
    }
}

/// Brings a view up to what the leader has now.
async fn look(broker: &Broker, shard: u16, view: Option<View>) -> Result<View, Fault> {
    let filter = layout::entries_of(shard, None);
    let mut view = view.filter(|view| view.made.elapsed() < VIEW_AGE_MAX);
    for _ in 0..LOOKS_MAX {
        let last = api::from_leader(broker, JOURNAL, Which::Last(&filter)).await?;
        let until = last.map_or(0, |message| message.sequence);
        // The last entry is older than what was seen: a tombstone has gone, or the
        // stream is another one.
        let mut seen = match view.take() {
            Some(view) if view.seen <= until => view,
            _ => View::new(),
        };
        if seen.seen == until {
            return Ok(seen);
        }
        if read_heads(broker, &filter, until, &mut seen).await? {
            return Ok(seen);
        }
        tracing::debug!(shard, until, "a look at the open goals came back short");
    }
    let text = format!("{JOURNAL}: the open goals of shard {shard} came back incomplete");
    Err(api::unreachable(text))
}

/// Reads heads after `view.seen`; `true` once everything up to `until` was seen.
async fn read_heads(
    broker: &Broker,
    filter: &str,
    until: u64,
    view: &mut View,
) -> Result<bool, Fault> {
    let deliver_policy = match view.seen {
        0 => DeliverPolicy::LastPerSubject,
        seen => DeliverPolicy::ByStartSequence {
            start_sequence: seen + 1,
        },
    };
    let stream = broker.jetstream.get_stream_no_info(JOURNAL).await;
    let stream = stream.map_err(|e| failed(&e))?;
    let consumer = stream.create_consumer(pull::Config {
        deliver_policy,
        ack_policy: AckPolicy::None,
        filter_subject: filter.to_owned(),
        headers_only: true,
        memory_storage: true,
        num_replicas: 1,
        inactive_threshold: CONSUMER_IDLE,
        ..pull::Config::default()
    });
    let wait = broker.options.ack_timeout.saturating_mul(5);
    let consumer = tokio::time::timeout(wait, consumer).await;
    let consumer = consumer.map_err(|e| failed(&e))?.map_err(|e| failed(&e))?;
    let complete = drain(broker, &consumer, until, view).await;
    // It goes by itself if this fails.
    let name = consumer.cached_info().name.clone();
    let subject = format!("CONSUMER.DELETE.{JOURNAL}.{name}");
    let gone: Result<serde_json::Value, _> =
        api::ask(broker, &subject, &serde_json::json!({})).await;
    if let Err(why) = gone
        && !why.is(api::code::CONSUMER_NOT_FOUND)
    {
        tracing::debug!(?why, name, "a consumer was not deleted");
    }
    complete
}

async fn drain(
    broker: &Broker,
    consumer: &Consumer<pull::Config>,
    until: u64,
    view: &mut View,
) -> Result<bool, Fault> {
    let wait = broker.options.ack_timeout;
    let mut expected = 1;
    loop {
        let batch = consumer
            .batch()
            .max_messages(BATCH)
            .expires(wait)
            .messages();
        let mut batch = batch.await.map_err(|e| failed(&e))?;
        let before = expected;
        while let Ok(Some(Ok(message))) = tokio::time::timeout(wait, batch.next()).await {
            let info = message
                .info()
                .map_err(|e| api::unreachable(format!("{JOURNAL}: an unreadable delivery: {e}")))?;
            if info.consumer_sequence != expected {
                return Ok(false);
            }
            expected += 1;
            let age = SystemTime::now().duration_since(info.published.into());
            // Clocks differ: what is from the future is from lately.
            let lately = !age.is_ok_and(|age| age >= TOMBSTONE_AGE);
            view.apply(info.stream_sequence, head(&message, lately))?;
            if view.seen >= until {
                return Ok(true);
            }
        }
        if expected == before {
            return Ok(false);
        }
    }
}

/// The last entry of a goal, without its body.
struct Head {
    key: GoalKey,
    by: Option<NodeId>,
    ends: bool,
    /// It was forgotten lately.
    tombstone: bool,
}

fn head(message: &jetstream::Message, lately: bool) -> Option<Head> {
    let headers = message.headers.clone().unwrap_or_default();
    let Some(key) = layout::parse_entries(&message.subject) else {
        tracing::warn!(subject = %message.subject, "not a goal's journal; left alone");
        return None;
    };
    Some(Head {
        key,
        by: headers
            .get(layout::BY)
            .and_then(|by| NodeId::new(by.as_str()).ok()),
        ends: headers.get(layout::ENDS).is_some(),
        tombstone: lately && layout::is_tombstone(&headers),
    })
}

fn failed(e: &(dyn std::error::Error + Send + Sync)) -> Fault {
    api::unreachable(format!("{JOURNAL}: looking for open goals: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use detent_protocol::{GoalId, TenantId};

    fn head(seq: u64, goal: u8, ends: bool) -> Head {
        Head {
            key: GoalKey {
                tenant: TenantId::default(),
                goal: GoalId::from_bytes([goal; 16]),
            },
            by: NodeId::new(format!("n{seq}")).ok(),
            ends,
            tombstone: false,
        }
    }

    #[test]
    fn the_last_head_of_a_goal_decides() {
        let mut view = View::new();
        let entries = [
            (9, false),
            (5, false),
            (7, true),
            (5, false),
            (9, true),
            (2, false),
        ];
        for (seq, (goal, ends)) in (1..).zip(entries) {
            view.apply(seq, Some(head(seq, goal, ends))).unwrap();
        }
        view.apply(7, None).unwrap();
        let page = view.page(None, 10);
        let seen: Vec<_> = page
            .iter()
            .map(|open| (open.key.goal.as_bytes()[0], open.by.clone()))
            .collect();
        let by = |name| NodeId::new(name).ok();
        assert_eq!(seen, [(2, by("n6")), (5, by("n4"))]);
        assert_eq!(view.seen, 7);
        assert_eq!(view.page(Some(&page[0].key), 10), page[1..]);
        assert_eq!(view.page(None, 1), page[..1]);
    }
}
