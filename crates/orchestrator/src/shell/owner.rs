//! Where several nodes share a journal: what is asked about a goal is answered by the
//! node that owns it.
//!
//! Whoever gets the request looks the owner up in the journal and passes it on. A node
//! answers for goals that are its own or nobody's, and never passes on what was passed
//! on to it, so no request goes in circles.

use super::intake::{CONTROL_WAIT, RETRY_AFTER_MS, control as control_here};
use super::{Shared, load};
use bytes::Bytes;
use detent_bus::{BusError, GoalKey};
use detent_protocol::envelope::{self, Message, expect, read_reply, reply, seal};
use detent_protocol::messages::{Answer, Ask, Control, Controlled, Query};
use detent_protocol::{Code, Fault, NodeId, subject};
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::Duration;

/// What an owner may take to answer beyond the wait that it was asked for.
const MARGIN: Duration = Duration::from_secs(5);

/// Does what a control message says, here or where its goal is owned.
pub(super) async fn control(shared: &Shared, control: Control) -> Result<Controlled, Fault> {
    let key = GoalKey {
        tenant: control.tenant.clone(),
        goal: control.goal,
    };
    match other_owner(shared, &key).await? {
        Some(owner) => pass_on(shared, &owner, &control, CONTROL_WAIT + MARGIN).await,
        None => control_here(shared, control).await,
    }
}

/// Answers a query; one that waits for events where they happen.
pub(super) async fn query(shared: &Arc<Shared>, query: &Query) -> Result<Answer, Fault> {
    let Ask::Events { goal, wait_ms, .. } = &query.ask else {
        return super::query::answer(shared, query).await;
    };
    let key = GoalKey {
        tenant: query.tenant.clone(),
        goal: *goal,
    };
    let Some(owner) = other_owner(shared, &key).await? else {
        return super::query::answer(shared, query).await;
    };
    let wait = Duration::from_millis(*wait_ms);
    match pass_on(shared, &owner, query, wait + MARGIN).await {
        // The journal has what there is; only the wait is left out.
        Err(fault) if fault.code == Code::NodeUnreachable => {
            tokio::time::sleep(wait.min(Duration::from_secs(1))).await;
            super::query::answer(shared, query).await
        }
        answered => answered,
    }
}

/// Answers what another node passed on.
pub(super) async fn answer(shared: &Arc<Shared>, payload: &Bytes) -> Bytes {
    let kind = envelope::head(payload).map(|head| head.kind);
    if kind.as_deref() == Ok(Query::KIND) {
        let answer = match expect(payload) {
            Ok(query) => super::query::answer(shared, &query).await,
            Err(fault) => Err(fault),
        };
        return reply(answer);
    }
    // Everything else is no control message, and is told so.
    reply(match expect(payload) {
        Ok(control) => control_here(shared, control).await,
        Err(fault) => Err(fault),
    })
}

/// The node that owns an open goal, where that is another one.
async fn other_owner(shared: &Shared, key: &GoalKey) -> Result<Option<NodeId>, Fault> {
    if !shared.options.shared_journal || shared.with_goals(|g| g.contains_key(key)) {
        return Ok(None);
    }
    let loaded = load(&*shared.bus.journal, key).await?;
    let open = loaded.filter(|l| l.state.ended.is_none());
    let owner = open.and_then(|l| l.state.owner);
    Ok(owner.filter(|owner| *owner != shared.options.node))
}

async fn pass_on<Q: Message, A: DeserializeOwned>(
    shared: &Shared,
    owner: &NodeId,
    question: &Q,
    wait: Duration,
) -> Result<A, Fault> {
    let subject = subject::owner(owner);
    let messages = &shared.bus.messages;
    match messages.request(&subject, seal(question)?, wait).await {
        Ok(answer) => read_reply(&answer),
        Err(BusError::NoResponders(_)) => {
            let message = format!(
                "the goal is owned by node {owner}, which is not there; what is sent on the \
                 goal's `control` subject is kept until it is back"
            );
            Err(Fault::new(Code::NodeUnreachable, message).retry_after_ms(RETRY_AFTER_MS))
        }
        Err(error) => Err(error.into()),
    }
}
