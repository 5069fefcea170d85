//! Queries: answered from the journal, and from the archive of a goal that was forgotten.

use super::archive::{self, read_tombstone};
use super::{Shared, load};
use crate::state::GoalState;
use crate::view::fold_with_events;
use detent_bus::{Blobs, Bus, GoalKey, Journal};
use detent_protocol::envelope::to_msgpack;
use detent_protocol::journal::{Entry, GENESIS};
use detent_protocol::json::Digest;
use detent_protocol::messages::{Answer, Ask, GoalEvent, Query};
use detent_protocol::tombstone::Archive;
use detent_protocol::{Code, Fault};
use serde_bytes::ByteBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Most bytes of a page of entries or of events, as they travel; one that is larger
/// comes alone, and fits into a message because an entry does.
const PAGE_BYTES: usize = 512 * 1024;
/// Most events of one answer.
const EVENTS_MAX: usize = 512;
/// Longest wait for an event, milliseconds.
const WAIT_MS_MAX: u64 = 30_000;

pub(crate) async fn answer(shared: &Arc<Shared>, query: &Query) -> Result<Answer, Fault> {
    // Taken before the journal is read: what is confirmed in between is then seen as
    // a change.
    let progress = match &query.ask {
        Ask::Events { goal, .. } => shared.with_goals(|g| {
            let key = GoalKey {
                tenant: query.tenant.clone(),
                goal: *goal,
            };
            g.get(&key).map(|a| a.progress.clone())
        }),
        _ => None,
    };
    answer_from(&shared.bus, query, progress).await
}

/// Answers a query from a bus on which no orchestrator works, as after a node was
/// stopped. `Events` does not wait.
pub async fn answer_offline(bus: &Bus, query: &Query) -> Result<Answer, Fault> {
    answer_from(bus, query, None).await
}

async fn answer_from(
    bus: &Bus,
    query: &Query,
    progress: Option<watch::Receiver<u64>>,
) -> Result<Answer, Fault> {
    let journal = &*bus.journal;
    let key = |goal| GoalKey {
        tenant: query.tenant.clone(),
        goal,
    };
    match &query.ask {
        Ask::List {
            open_only,
            after,
            limit,
        } => list(journal, query, *open_only, *after, *limit).await,
        Ask::Show { goal } => {
            let key = key(*goal);
            let loaded = load(journal, &key).await?;
            let view = loaded.and_then(|l| l.state.view());
            let goal = view.ok_or_else(|| unknown(&key))?;
            Ok(Answer::Goal {
                goal: Box::new(goal),
            })
        }
        Ask::Export { goal, from } => {
            let key = key(*goal);
            export(bus, &key, *from).await
        }
        Ask::Events {
            goal,
            from,
            wait_ms,
        } => {
            events(
                bus,
                &key(*goal),
                *from,
                (*wait_ms).min(WAIT_MS_MAX),
                progress,
            )
            .await
        }
    }
}

fn unknown(key: &GoalKey) -> Fault {
    Fault::new(Code::GoalUnknown, format!("no goal {}", key.goal)).at("/goal")
}

async fn list(
    journal: &dyn Journal,
    query: &Query,
    open_only: bool,
    after: Option<detent_protocol::GoalId>,
    limit: u32,
) -> Result<Answer, Fault> {
    let limit = limit.clamp(1, 1000) as usize;
    let mut goals = Vec::new();
    let mut after = after;
    while goals.len() < limit {
        let want = limit - goals.len();
        let page = journal.goals(&query.tenant, after.as_ref(), want).await?;
        let Some(last) = page.last() else { break };
        after = Some(last.goal);
        for key in &page {
            let line = match load(journal, key).await {
                Ok(loaded) => loaded.and_then(|l| l.state.line()),
                // One damaged goal must not hide the others; `show` says what it has.
                Err(_) => None,
            };
            let wanted = line.filter(|l| !open_only || l.status.is_none());
            goals.extend(wanted);
        }
    }
    Ok(Answer::Goals { goals })
}

/// Entries of one answer: those from number `from` on that fit.
struct Page {
    from: u64,
    number: u64,
    bytes: usize,
    entries: Vec<ByteBuf>,
}

impl Page {
    fn new(from: u64) -> Self {
        Self {
            from: from.max(1),
            number: 0,
            bytes: 0,
            entries: Vec::new(),
        }
    }

    /// Takes the next entry if it is wanted; whether there is room for more.
    fn take(&mut self, entry: &[u8]) -> bool {
        self.number += 1;
        if self.number < self.from {
            return true;
        }
        if !self.entries.is_empty() && self.bytes + entry.len() > PAGE_BYTES {
            return false;
        }
        self.bytes += entry.len();
        self.entries.push(ByteBuf::from(entry.to_vec()));
        self.bytes < PAGE_BYTES
    }

    fn answer(self) -> Answer {
        Answer::Entries {
            entries: self.entries,
        }
    }
}

async fn export(bus: &Bus, key: &GoalKey, from: u64) -> Result<Answer, Fault> {
    // Entries are counted from 1 here; sequences may have gaps.
    let (mut answer, mut seq) = (Page::new(from), 0);
    loop {
        let page = bus.journal.read(key, seq, PAGE_BYTES).await?;
        let Some(last) = page.last() else { break };
        seq = last.seq;
        for stored in page {
            if let Some((_, goal)) = read_tombstone(&stored.entry)? {
                return export_archive(&*bus.blobs, key, &goal.archive, from).await;
            }
            if !answer.take(&stored.entry) {
                return Ok(answer.answer());
            }
        }
    }
    if answer.number == 0 {
        return Err(unknown(key));
    }
    Ok(answer.answer())
}

async fn export_archive(
    blobs: &dyn Blobs,
    key: &GoalKey,
    archive: &Archive,
    from: u64,
) -> Result<Answer, Fault> {
    let mut answer = Page::new(from);
    for digest in &archive.parts {
        let part = archive::part(blobs, key, digest).await?;
        if !part.entries.iter().all(|entry| answer.take(entry)) {
            break;
        }
    }
    Ok(answer.answer())
}

async fn events(
    bus: &Bus,
    key: &GoalKey,
    from: u64,
    wait_ms: u64,
    progress: Option<watch::Receiver<u64>>,
) -> Result<Answer, Fault> {
    let (found, ended) = read_events(bus, key, from).await?;
    let Some(mut progress) = progress else {
        return Ok(Answer::Events {
            events: found,
            ended,
        });
    };
    if !found.is_empty() || ended {
        return Ok(Answer::Events {
            events: found,
            ended,
        });
    }
    let news = progress.wait_for(|n| *n >= from);
    // Whether it came in time, the goal went, or nothing happened: the journal says.
    let _ = tokio::time::timeout(Duration::from_millis(wait_ms), news).await;
    let (events, ended) = read_events(bus, key, from).await?;
    Ok(Answer::Events { events, ended })
}

/// Events of one answer: those from number `from` on that fit.
struct Events {
    from: u64,
    state: GoalState,
    hash: Digest,
    bytes: usize,
    found: Vec<GoalEvent>,
}

impl Events {
    fn new(key: &GoalKey, from: u64) -> Self {
        Self {
            from,
            state: GoalState::new(key.tenant.clone(), key.goal),
            hash: GENESIS,
            bytes: 0,
            found: Vec::new(),
        }
    }

    /// Takes the next entry; whether there is room for more.
    fn take(&mut self, entry: &[u8]) -> Result<bool, Fault> {
        let (entry, hash) = Entry::decode(entry, &self.hash)?;
        self.hash = hash;
        for event in fold_with_events(&mut self.state, &entry) {
            if event.n < self.from {
                continue;
            }
            self.bytes += to_msgpack(&event)?.len();
            let full = self.bytes > PAGE_BYTES || self.found.len() >= EVENTS_MAX;
            if full && !self.found.is_empty() {
                return Ok(false);
            }
            self.found.push(event);
        }
        Ok(true)
    }

    /// All entries were taken.
    fn all(self) -> (Vec<GoalEvent>, bool) {
        (self.found, self.state.ended.is_some())
    }
}

async fn read_events(bus: &Bus, key: &GoalKey, from: u64) -> Result<(Vec<GoalEvent>, bool), Fault> {
    let (mut events, mut seq) = (Events::new(key, from), 0);
    loop {
        let page = bus.journal.read(key, seq, PAGE_BYTES).await?;
        if page.is_empty() {
            break;
        }
        for stored in page {
            if let Some((n, goal)) = read_tombstone(&stored.entry)? {
                // Its own record is no event: it is told by `show`, and nobody waits.
                if from >= n {
                    return Ok((Vec::new(), true));
                }
                return archived_events(&*bus.blobs, key, &goal.archive, from).await;
            }
            seq = stored.seq;
            if !events.take(&stored.entry)? {
                return Ok((events.found, false));
            }
        }
    }
    if events.state.n == 0 {
        return Err(unknown(key));
    }
    Ok(events.all())
}

async fn archived_events(
    blobs: &dyn Blobs,
    key: &GoalKey,
    archive: &Archive,
    from: u64,
) -> Result<(Vec<GoalEvent>, bool), Fault> {
    let mut events = Events::new(key, from);
    for digest in &archive.parts {
        for entry in archive::part(blobs, key, digest).await?.entries {
            if !events.take(&entry)? {
                return Ok((events.found, false));
            }
        }
    }
    Ok(events.all())
}
