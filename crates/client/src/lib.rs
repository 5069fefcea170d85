//! A typed client: hands goals in, follows them, steers them, gets their results.
//!
//! What it is for: programs in Rust that publish goals, and the `detent` command. It
//! speaks over any [`Messages`]: a connection to NATS, or the socket of a node on this
//! machine.
//!
//! Promises: [`Client::follow`] gives every event once, in order, numbered without gaps,
//! also across lost connections and restarts of nodes; where events are gone it says so
//! with `EVENTS_GONE`. What may succeed later is tried again for as long as the caller
//! allows, and nothing that could be done twice is sent again without a key.
//!
//! Must not know: how goals are carried out.

mod follow;

pub use follow::Follow;

use detent_bus::{BusError, Messages, call};
use detent_protocol::envelope::{self, Message};
use detent_protocol::goal::{Accepted, Submit};
use detent_protocol::messages::{
    Answer, Ask, Control, Controlled, GoalLine, GoalView, Query, Verb,
};
use detent_protocol::result::GoalResult;
use detent_protocol::{Code, Fault, GoalId, TenantId, subject};
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Wait between two tries, where the fault names none.
const PAUSE: Duration = Duration::from_millis(500);

/// Longest wait for an answer before the same is asked again.
const TRY: Duration = Duration::from_secs(5);

/// How a client behaves.
#[derive(Debug, Clone)]
pub struct Options {
    /// Whose goals.
    pub tenant: TenantId,
    /// Who speaks, for control messages: at most 256 bytes.
    pub by: String,
    /// Longest wait for one answer.
    pub answer_timeout: Duration,
    /// For how long what may succeed later is tried again.
    pub patience: Duration,
}

impl Default for Options {
    /// Tenant `default`, 60 s for an answer, 60 s of patience.
    fn default() -> Self {
        Self {
            tenant: TenantId::default(),
            by: "client".into(),
            answer_timeout: Duration::from_secs(60),
            patience: Duration::from_secs(60),
        }
    }
}

/// A client. Clones share the connection.
#[derive(Clone)]
pub struct Client {
    messages: Arc<dyn Messages>,
    options: Arc<Options>,
}

impl Client {
    /// Speaks over `messages`.
    pub fn new(messages: Arc<dyn Messages>, options: Options) -> Self {
        Self {
            messages,
            options: Arc::new(options),
        }
    }

    /// Hands a goal in and waits until it is durable. With an idempotency key it is tried
    /// again while a node is away or full; without one, a lost answer is an error, for the
    /// goal may have been taken.
    ///
    /// # Errors
    /// The node's fault: the contract's violation, `INTAKE_OVERLOADED`, …
    pub async fn submit(&self, submit: &Submit) -> Result<Accepted, Fault> {
        let subject = subject::submit(&submit.tenant, &submit.agent);
        if submit.key.is_none() {
            let wait = self.options.answer_timeout;
            return call(&*self.messages, &subject, submit, wait).await;
        }
        let began = Instant::now();
        loop {
            let fault = match self.ask(&subject, submit, TRY).await {
                Ok(accepted) => return Ok(accepted),
                Err(fault) => fault,
            };
            if !fault.code.retryable() || began.elapsed() >= self.options.patience {
                return Err(fault);
            }
            tokio::time::sleep(pause(&fault)).await;
        }
    }

    /// Steers a goal.
    ///
    /// # Errors
    /// `GOAL_UNKNOWN`; `INPUT_INVALID` where the goal has ended or the message makes no
    /// sense; `NODE_UNREACHABLE` while its owner is away.
    pub async fn control(&self, goal: GoalId, verb: Verb) -> Result<Controlled, Fault> {
        let control = Control {
            tenant: self.options.tenant.clone(),
            goal,
            by: self.options.by.clone(),
            verb,
        };
        let subject = subject::steer(&control.tenant, &goal);
        call(
            &*self.messages,
            &subject,
            &control,
            self.options.answer_timeout,
        )
        .await
    }

    /// Asks about goals.
    ///
    /// # Errors
    /// The node's fault.
    pub async fn query(&self, ask: Ask) -> Result<Answer, Fault> {
        let query = Query {
            tenant: self.options.tenant.clone(),
            ask,
        };
        let subject = subject::query(&query.tenant);
        let asked_to_wait = match &query.ask {
            Ask::Events { wait_ms, .. } => Duration::from_millis(*wait_ms),
            _ => Duration::ZERO,
        };
        self.ask(&subject, &query, asked_to_wait + TRY).await
    }

    /// Asks what may be asked twice. Nobody says so when the node that got the question
    /// has died, so it is asked again long before the answer's time is over.
    async fn ask<Q: Message, A: DeserializeOwned>(
        &self,
        subject: &str,
        question: &Q,
        each: Duration,
    ) -> Result<A, Fault> {
        let payload = envelope::seal(question)?;
        let began = Instant::now();
        loop {
            let asked = self.messages.request(subject, payload.clone(), each);
            match asked.await {
                Ok(answer) => return envelope::read_reply(&answer),
                Err(BusError::Timeout { .. }) if began.elapsed() < self.options.answer_timeout => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// One goal as it stands.
    ///
    /// # Errors
    /// `GOAL_UNKNOWN`, or the node's fault.
    pub async fn show(&self, goal: GoalId) -> Result<GoalView, Fault> {
        match self.query(Ask::Show { goal }).await? {
            Answer::Goal { goal } => Ok(*goal),
            _ => Err(unexpected()),
        }
    }

    /// A page of goals in the order of their ids: after `after`, at most `limit` (1 to
    /// 1,000).
    ///
    /// # Errors
    /// The node's fault.
    pub async fn list(
        &self,
        open_only: bool,
        after: Option<GoalId>,
        limit: u32,
    ) -> Result<Vec<GoalLine>, Fault> {
        let ask = Ask::List {
            open_only,
            after,
            limit,
        };
        match self.query(ask).await? {
            Answer::Goals { goals } => Ok(goals),
            _ => Err(unexpected()),
        }
    }

    /// Follows a goal's events from number `from` (the first is 1).
    pub fn follow(&self, goal: GoalId, from: u64) -> Follow {
        Follow::new(self.clone(), goal, from)
    }

    /// Waits for a goal's result, however long it takes.
    ///
    /// # Errors
    /// `GOAL_UNKNOWN`, or, where nodes stay away for longer than the patience, their
    /// fault.
    pub async fn wait(&self, goal: GoalId) -> Result<GoalResult, Fault> {
        // No event has this number: what comes back is that the goal has ended.
        let mut end = self.follow(goal, u64::MAX);
        while end.next().await?.is_some() {}
        let view = self.show(goal).await?;
        view.result.ok_or_else(unexpected)
    }
}

fn pause(fault: &Fault) -> Duration {
    fault.retry_after_ms.map_or(PAUSE, Duration::from_millis)
}

fn unexpected() -> Fault {
    Fault::new(Code::InternalLogicError, "an answer to another question")
}
