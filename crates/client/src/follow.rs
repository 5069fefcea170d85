//! Following a goal's events.

use crate::{Client, PAUSE, pause, unexpected};
use detent_protocol::messages::{Answer, Ask, GoalEvent};
use detent_protocol::{Code, Fault, GoalId};
use std::collections::VecDeque;
use tokio::time::Instant;

/// How long a node is asked to wait for the next event, milliseconds.
const WAIT_MS: u64 = 20_000;

/// A goal's events, one after the other.
pub struct Follow {
    client: Client,
    goal: GoalId,
    /// Number of the next event.
    next: u64,
    /// Events that were read and not yet given.
    ahead: VecDeque<GoalEvent>,
    ended: bool,
}

impl Follow {
    pub(crate) fn new(client: Client, goal: GoalId, from: u64) -> Self {
        Self {
            client,
            goal,
            next: from.max(1),
            ahead: VecDeque::new(),
            ended: false,
        }
    }

    /// Number of the event that comes next: to go on from here later.
    pub fn position(&self) -> u64 {
        self.next
    }

    /// The next event; `None` once the goal has ended and every event was given. Waits
    /// for as long as it takes.
    ///
    /// # Errors
    /// `EVENTS_GONE` where the numbers asked for are no longer kept; `GOAL_UNKNOWN`; and
    /// what nodes say for longer than the client's patience.
    pub async fn next(&mut self) -> Result<Option<GoalEvent>, Fault> {
        let mut trouble: Option<Instant> = None;
        loop {
            if let Some(event) = self.ahead.pop_front() {
                self.next = event.n.saturating_add(1);
                return Ok(Some(event));
            }
            if self.ended {
                return Ok(None);
            }
            match self.read().await {
                Ok(()) => trouble = None,
                Err(fault) if fault.code.retryable() => {
                    let since = *trouble.get_or_insert_with(Instant::now);
                    if since.elapsed() >= self.client.options.patience {
                        return Err(fault);
                    }
                    tokio::time::sleep(pause(&fault).max(PAUSE)).await;
                }
                Err(fault) => return Err(fault),
            }
        }
    }

    async fn read(&mut self) -> Result<(), Fault> {
        let ask = Ask::Events {
            goal: self.goal,
            from: self.next,
            wait_ms: WAIT_MS,
        };
        let Answer::Events { events, ended } = self.client.query(ask).await? else {
            return Err(unexpected());
        };
        if let Some(first) = events.first()
            && first.n != self.next
        {
            let message = format!(
                "event {} was asked for; the first that is kept is {}",
                self.next, first.n
            );
            return Err(Fault::new(Code::EventsGone, message));
        }
        self.ended = ended && events.is_empty();
        self.ahead.extend(events);
        Ok(())
    }
}
