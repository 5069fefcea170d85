//! Queries: answered from the journal alone.

use super::{Shared, load};
use crate::state::GoalState;
use crate::view::fold_with_events;
use detent_bus::{GoalKey, Journal};
use detent_protocol::envelope::to_msgpack;
use detent_protocol::journal::{Entry, GENESIS};
use detent_protocol::messages::{Answer, Ask, GoalEvent, Query};
use detent_protocol::{Code, Fault};
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
    answer_from(&*shared.bus.journal, query, progress).await
}

/// Answers a query from a journal that no orchestrator works on, as after a node was
/// stopped. `Events` does not wait.
pub async fn answer_offline(journal: &dyn Journal, query: &Query) -> Result<Answer, Fault> {
    answer_from(journal, query, None).await
}

async fn answer_from(
    journal: &dyn Journal,
    query: &Query,
    progress: Option<watch::Receiver<u64>>,
) -> Result<Answer, Fault> {
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
            export(journal, &key, *from).await
        }
        Ask::Events {
            goal,
            from,
            wait_ms,
        } => {
            events(
                journal,
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

async fn export(journal: &dyn Journal, key: &GoalKey, from: u64) -> Result<Answer, Fault> {
    // Entries are counted from 1 here; sequences may have gaps.
    let mut entries = Vec::new();
    let (mut seq, mut number, mut bytes) = (0, 0, 0);
    while bytes < PAGE_BYTES {
        let page = journal.read(key, seq, PAGE_BYTES).await?;
        let Some(last) = page.last() else { break };
        seq = last.seq;
        for stored in page {
            number += 1;
            if number >= from.max(1) && (bytes == 0 || bytes + stored.entry.len() <= PAGE_BYTES) {
                bytes += stored.entry.len();
                entries.push(serde_bytes::ByteBuf::from(stored.entry.to_vec()));
            } else if number >= from.max(1) {
                return Ok(Answer::Entries { entries });
            }
        }
    }
    if number == 0 {
        return Err(unknown(key));
    }
    Ok(Answer::Entries { entries })
}

async fn events(
    journal: &dyn Journal,
    key: &GoalKey,
    from: u64,
    wait_ms: u64,
    progress: Option<watch::Receiver<u64>>,
) -> Result<Answer, Fault> {
    let (found, ended) = read_events(journal, key, from).await?;
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
    let (events, ended) = read_events(journal, key, from).await?;
    Ok(Answer::Events { events, ended })
}

async fn read_events(
    journal: &dyn Journal,
    key: &GoalKey,
    from: u64,
) -> Result<(Vec<GoalEvent>, bool), Fault> {
    let mut state = GoalState::new(key.tenant.clone(), key.goal);
    let (mut seq, mut hash) = (0, GENESIS);
    let (mut events, mut bytes) = (Vec::new(), 0);
    loop {
        let page = journal.read(key, seq, PAGE_BYTES).await?;
        if page.is_empty() {
            break;
        }
        for stored in page {
            let (entry, next) = Entry::decode(&stored.entry, &hash)?;
            (seq, hash) = (stored.seq, next);
            let new = fold_with_events(&mut state, &entry);
            for event in new.into_iter().filter(|e| e.n >= from) {
                bytes += to_msgpack(&event)?.len();
                if !events.is_empty() && (bytes > PAGE_BYTES || events.len() >= EVENTS_MAX) {
                    return Ok((events, false));
                }
                events.push(event);
            }
        }
    }
    if state.n == 0 {
        return Err(unknown(key));
    }
    Ok((events, state.ended.is_some()))
}
