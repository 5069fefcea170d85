//! Reading a goal's journal in pages.
//!
//! The leader names the tail; what lies before it is the same on every replica that has
//! it, so pages come from whichever replica answers, many entries at once. A replica may
//! be behind or miss something. That shows: each entry carries the sequence of the one
//! before it (its fence), and the page has to reach the tail. What a replica does not
//! give is read from the leader, one by one.
//!
//! Promises: strictly rising sequences with nothing missing in between; the leader's tail
//! is in the last page; at least one entry where there is one. A link that is broken on
//! the leader too is JOURNAL_CORRUPT, never skipped.
//!
//! Must not know: what the bytes mean.

use super::Broker;
use super::api::{self, API, Which};
use super::layout::{self, JOURNAL};
use crate::{GoalKey, Stored};
use async_nats::jetstream::message::StreamMessage;
use async_nats::{HeaderMap, Message};
use bytes::Bytes;
use detent_protocol::{Code, Fault};
use futures::StreamExt;

/// Most entries in one answer of a replica.
const BATCH_MAX: usize = 512;
/// Most bytes in one answer of a replica; it may pass this by one entry.
const BATCH_BYTES_MAX: usize = 4 << 20;

/// Entries after `after` up to `tail`, the leader's last one, as far as they fit.
pub(super) async fn page(
    broker: &Broker,
    key: &GoalKey,
    after: u64,
    bytes_max: usize,
    tail: StreamMessage,
) -> Result<Vec<Stored>, Fault> {
    let mut page = Page::new(after, bytes_max, tail.sequence);
    let tail = Entry::from(tail);
    // The usual question of somebody who has read everything else.
    if page.take(tail) || page.is_full() {
        return Ok(page.entries);
    }
    let subject = layout::entries(key);
    while !page.is_full() {
        if !from_replica(broker, &subject, &mut page).await {
            break;
        }
    }
    while !page.is_full() {
        from_leader(broker, &subject, &mut page).await?;
    }
    Ok(page.entries)
}

/// An entry with what links it to the one before.
struct Entry {
    seq: u64,
    /// Sequence of the entry before it; `None` where it does not say.
    follows: Option<u64>,
    /// What stood before it is gone, or about to go.
    tombstone: bool,
    entry: Bytes,
}

impl Entry {
    fn new(seq: u64, headers: &HeaderMap, entry: Bytes) -> Self {
        Self {
            seq,
            follows: layout::follows(headers),
            tombstone: layout::is_tombstone(headers),
            entry,
        }
    }
}

impl From<StreamMessage> for Entry {
    fn from(message: StreamMessage) -> Self {
        Self::new(message.sequence, &message.headers, message.payload)
    }
}

/// A page that is being filled.
struct Page {
    entries: Vec<Stored>,
    /// Everything up to here was taken or was not asked for.
    at: u64,
    bytes: usize,
    bytes_max: usize,
    /// The leader's tail.
    until: u64,
    full: bool,
}

impl Page {
    fn new(after: u64, bytes_max: usize, until: u64) -> Self {
        Self {
            entries: Vec::new(),
            at: after,
            bytes: 0,
            bytes_max,
            until,
            full: false,
        }
    }

    fn is_full(&self) -> bool {
        self.full || self.at >= self.until
    }

    /// Takes the entry if it is the next one; `false` if it is not, or the page is full.
    fn take(&mut self, entry: Entry) -> bool {
        if self.is_full() || entry.seq <= self.at || entry.seq > self.until {
            return false;
        }
        // Before the first entry of a page any sequence up to `at` may stand: `after`
        // need not be an entry's.
        let linked = match (entry.follows, self.entries.last()) {
            (Some(before), Some(last)) => before == last.seq,
            (Some(before), None) => before <= self.at,
            (None, _) => true,
        };
        if !linked && !entry.tombstone {
            return false;
        }
        let bytes = self.bytes.saturating_add(entry.entry.len());
        if bytes > self.bytes_max && !self.entries.is_empty() {
            self.full = true;
            return false;
        }
        if entry.tombstone {
            self.entries.clear();
        }
        self.bytes = bytes;
        self.at = entry.seq;
        self.entries.push(Stored {
            seq: entry.seq,
            entry: entry.entry,
        });
        true
    }
}

/// One batch from any replica. `false`: it gave nothing that could be used.
async fn from_replica(broker: &Broker, subject: &str, page: &mut Page) -> bool {
    let inbox = broker.client.new_inbox();
    let Ok(mut answers) = broker.client.subscribe(inbox.clone()).await else {
        return false;
    };
    let room = page.bytes_max.saturating_sub(page.bytes);
    let question = serde_json::json!({
        "seq": page.at.saturating_add(1),
        "next_by_subj": subject,
        "batch": BATCH_MAX,
        "max_bytes": room.clamp(1, BATCH_BYTES_MAX),
    });
    let to = format!("{API}.DIRECT.GET.{JOURNAL}");
    let asked = broker
        .client
        .publish_with_reply(to, inbox, question.to_string().into());
    if asked.await.is_err() {
        return false;
    }
    let before = page.at;
    let wait = broker.options.ack_timeout;
    while !page.is_full() {
        match tokio::time::timeout(wait, answers.next()).await {
            // A status ends the batch: complete, nothing found, nobody there.
            Ok(Some(answer)) if answer.status.is_none() => {
                let Some(entry) = parse(answer, subject) else {
                    break;
                };
                if !page.take(entry) {
                    break;
                }
            }
            _ => break,
        }
    }
    page.at > before
}

fn parse(answer: Message, subject: &str) -> Option<Entry> {
    let headers = answer.headers?;
    if headers.get("Nats-Subject")?.as_str() != subject {
        return None;
    }
    let seq = headers.get("Nats-Sequence")?.as_str().parse().ok()?;
    Some(Entry::new(seq, &headers, answer.payload))
}

/// The next entry, from the leader.
async fn from_leader(broker: &Broker, subject: &str, page: &mut Page) -> Result<(), Fault> {
    let from = page.at.saturating_add(1);
    let next = api::from_leader(broker, JOURNAL, Which::From(subject, from)).await?;
    let corrupt = |what: String| {
        let text = format!("{JOURNAL}, {subject}, after {}: {what}", from - 1);
        Fault::new(Code::JournalCorrupt, text)
    };
    let Some(next) = next else {
        // Forgotten since the tail was read, and its tombstone's time is up.
        if api::from_leader(broker, JOURNAL, Which::Last(subject))
            .await?
            .is_none()
        {
            page.full = true;
            return Ok(());
        }
        let text = format!(
            "{JOURNAL}, {subject}: the leader has nothing after {}",
            page.at
        );
        return Err(api::unreachable(text));
    };
    let seq = next.sequence;
    if seq > page.until {
        // Forgotten since the tail was read: its tombstone is the journal now.
        page.until = seq;
    }
    if !page.take(Entry::from(next)) && !page.is_full() {
        return Err(corrupt(format!("entry {seq} follows another one")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(seq: u64, follows: Option<u64>) -> Entry {
        Entry {
            seq,
            follows,
            tombstone: false,
            entry: Bytes::from_static(b"0123456789"),
        }
    }

    fn seqs(page: &Page) -> Vec<u64> {
        page.entries.iter().map(|stored| stored.seq).collect()
    }

    #[test]
    fn a_gap_is_not_taken() {
        let mut page = Page::new(0, 1000, 30);
        assert!(page.take(entry(10, Some(0))));
        assert!(!page.take(entry(30, Some(20))), "20 is missing");
        assert!(page.take(entry(20, Some(10))));
        assert!(page.take(entry(30, Some(20))));
        assert!(page.is_full());
        assert_eq!(seqs(&page), [10, 20, 30]);
    }

    #[test]
    fn a_page_may_start_anywhere() {
        let mut page = Page::new(15, 1000, 30);
        assert!(!page.take(entry(30, Some(20))), "20 is after 15");
        assert!(page.take(entry(20, Some(10))));
    }

    #[test]
    fn it_ends_at_the_leaders_tail_and_at_its_size() {
        let mut page = Page::new(0, 25, 30);
        assert!(page.take(entry(10, Some(0))));
        assert!(page.take(entry(20, Some(10))));
        assert!(!page.take(entry(30, Some(20))), "30 bytes");
        assert!(page.is_full());
        let mut page = Page::new(0, 1, 20);
        assert!(page.take(entry(10, Some(0))), "at least one");
        assert!(!page.take(entry(21, Some(10))), "after the tail");
        let mut nothing = Page::new(20, 1000, 20);
        assert!(nothing.is_full() && !nothing.take(entry(20, Some(10))));
    }

    #[test]
    fn a_tombstone_stands_alone() {
        let mut page = Page::new(0, 1000, 30);
        assert!(page.take(entry(10, Some(0))));
        let tombstone = Entry {
            tombstone: true,
            ..entry(20, Some(15))
        };
        assert!(page.take(tombstone), "whatever was between is gone");
        assert_eq!(seqs(&page), [20]);
        assert!(page.take(entry(30, Some(20))));
        assert_eq!(seqs(&page), [20, 30]);
    }
}
