//! Intake: goals are checked, journaled, and only then answered with "accepted".

use super::append::{Appended, append_once, legible};
use super::goal::{GoalMsg, Start};
use super::{Shared, Transition, check, kinds, load, owner, reason};
use crate::decide::{Bug, Context, decide};
use crate::event::{Event, NewGoal};
use crate::state::GoalState;
use async_trait::async_trait;
use bytes::Bytes;
use detent_bus::{GoalKey, Handler};
use detent_protocol::agent::Compiled;
use detent_protocol::envelope::{expect_either, is_json, reply_like};
use detent_protocol::goal::{Accepted, Submit};
use detent_protocol::journal::{Entry, GENESIS};
use detent_protocol::messages::{Answer, Control, Controlled, Query};
use detent_protocol::{Code, Fault, GOAL_BYTES_MAX, GoalId};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// What a desk answers.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Submit,
    Control,
    Query,
    /// What another node passes on about a goal that this one owns.
    Owner,
}

/// Answers requests from outside.
pub(crate) struct Desk {
    pub(crate) shared: Arc<Shared>,
    pub(crate) kind: Kind,
}

#[async_trait]
impl Handler for Desk {
    async fn handle(&self, subject: &str, payload: Bytes) -> Bytes {
        match self.kind {
            Kind::Submit => {
                let result = submit(&self.shared, subject, &payload).await;
                let result = result.map_err(hinted);
                self.shared.hooks.intake(result.as_ref().map(|_| ()));
                reply_like(&payload, result)
            }
            Kind::Control => {
                let result = steer(&self.shared, subject, &payload).await;
                reply_like(&payload, result.map_err(hinted))
            }
            Kind::Query => {
                let result = query(&self.shared, subject, &payload).await;
                reply_like(&payload, result.map_err(hinted))
            }
            Kind::Owner => owner::answer(&self.shared, &payload).await,
        }
    }
}

/// What may succeed later says when to come back: a client need not know every code.
fn hinted(fault: Fault) -> Fault {
    match fault.retry_after_ms {
        None if fault.code.retryable() => fault.retry_after_ms(RETRY_AFTER_MS),
        _ => fault,
    }
}

async fn query(shared: &Arc<Shared>, subject: &str, payload: &Bytes) -> Result<Answer, Fault> {
    let query: Query = expect_either(payload)?;
    check::addressed(subject, &query.tenant, None)?;
    owner::query(shared, &query).await
}

/// When to come back if the node is full, milliseconds.
pub(crate) const RETRY_AFTER_MS: u64 = 1_000;
/// How far a publisher's clock may be ahead, milliseconds.
pub(crate) const AHEAD_MS_MAX: u64 = 600_000;

/// Takes a goal, or says why not.
pub(super) async fn submit(
    shared: &Arc<Shared>,
    subject: &str,
    payload: &Bytes,
) -> Result<Accepted, Fault> {
    if payload.len() > GOAL_BYTES_MAX {
        let message = format!(
            "{} bytes; a goal has at most {GOAL_BYTES_MAX}",
            payload.len()
        );
        return Err(Fault::new(Code::InputTooLarge, message).at("/"));
    }
    let submit: Submit = expect_either(payload)?;
    let agent = Some((submit.agent.as_str(), "/agent"));
    check::addressed(subject, &submit.tenant, agent)?;
    submit.lint()?;
    check::submission(shared, &submit)?;
    let Some(definition) = shared.definitions.of_agent(&submit.agent).cloned() else {
        let known: Vec<_> = shared
            .definitions
            .agents()
            .iter()
            .map(|a| a.as_str())
            .collect();
        let message = format!("no agent {}; there are {}", submit.agent, known.join(", "));
        return Err(Fault::new(Code::AgentUnknown, message).at("/agent"));
    };
    definition
        .input()
        .check_as(Code::InputInvalid, &submit.input)
        .map_err(inside_input)?;
    let key = GoalKey {
        tenant: submit.tenant.clone(),
        goal: submit.keyed_id().unwrap_or_else(|| new_id(shared)),
    };
    if submit.key.is_some()
        && let Some(known) = known(shared, &key, &submit).await?
    {
        return Ok(known);
    }
    check_key_age(shared, &submit)?;
    if shared.is_draining() {
        let fault = Fault::new(Code::Draining, "the node is going down");
        return Err(fault.retry_after_ms(RETRY_AFTER_MS));
    }
    take(shared, key, submit, definition, is_json(payload)).await
}

fn inside_input(fault: Fault) -> Fault {
    let at = fault.at.clone().unwrap_or_default();
    fault.at(format!("/input{}", if at == "/" { "" } else { &at }))
}

/// UUID version 7 from the node's clock and random source.
fn new_id(shared: &Shared) -> GoalId {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&shared.env.random().to_be_bytes());
    bytes[8..].copy_from_slice(&shared.env.random().to_be_bytes());
    bytes[..6].copy_from_slice(&shared.env.now_ms().to_be_bytes()[2..]);
    bytes[6] = bytes[6] & 0x0f | 0x70;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    GoalId::from_bytes(bytes)
}

/// The goal that this key made before, if it did.
async fn known(shared: &Shared, key: &GoalKey, submit: &Submit) -> Result<Option<Accepted>, Fault> {
    let Some(loaded) = load(&*shared.bus.journal, key).await? else {
        return Ok(None);
    };
    if loaded.state.submission != Some(submit.body_digest()) {
        let message = format!("the key made goal {} with another body", key.goal);
        return Err(Fault::new(Code::IdempotencyConflict, message).at("/key"));
    }
    Ok(Some(Accepted {
        goal: key.goal,
        duplicate: true,
        result: loaded.state.ended.as_deref().cloned(),
    }))
}

fn check_key_age(shared: &Shared, submit: &Submit) -> Result<(), Fault> {
    let Some(key) = &submit.key else {
        return Ok(());
    };
    let now = shared.env.now_ms();
    if key
        .issued_at_ms
        .saturating_add(shared.options.idempotency_keep_ms)
        < now
    {
        let days = shared.options.idempotency_keep_ms / 86_400_000;
        let message = format!("issued more than {days} days ago");
        return Err(Fault::new(Code::KeyExpired, message).at("/key/issued_at_ms"));
    }
    if key.issued_at_ms > now.saturating_add(AHEAD_MS_MAX) {
        let message = "issued in the future; check the publisher's clock";
        return Err(Fault::new(Code::InputInvalid, message).at("/key/issued_at_ms"));
    }
    Ok(())
}

/// Journals the goal, starts its actor, and only then says "accepted".
async fn take(
    shared: &Arc<Shared>,
    key: GoalKey,
    submit: Submit,
    definition: Compiled,
    json: bool,
) -> Result<Accepted, Fault> {
    let Ok(permit) = shared.permits.clone().try_acquire_owned() else {
        let max = shared.options.goals_in_flight_max;
        let fault = Fault::new(Code::IntakeOverloaded, format!("{max} goals are in flight"));
        return Err(fault.retry_after_ms(RETRY_AFTER_MS));
    };
    // Two submissions with one key at one moment would write the same bytes, and each
    // would take the other's entry for its own.
    let unclear = || {
        let fault = Fault::new(Code::JournalUnknown, "the key is being taken right now");
        fault.retry_after_ms(RETRY_AFTER_MS)
    };
    let _taking = shared.taking(&key).ok_or_else(unclear)?;
    if shared.with_goals(|g| g.contains_key(&key)) {
        return known(shared, &key, &submit).await?.ok_or_else(unclear);
    }
    let agent = definition.agent();
    let new = NewGoal {
        agent: submit.agent.clone(),
        definition: definition.digest(),
        submission: submit.body_digest(),
        key: submit.key.as_ref().map(|k| k.key.clone()),
        deadline_ms: submit
            .deadline_ms
            .unwrap_or(u64::MAX)
            .min(agent.deadline_ms),
        limits: submit
            .budget
            .map_or(agent.budget, |b| agent.budget.lowered_to(b)),
        trace: submit.trace.clone(),
        json,
        input: submit.input.clone(),
    };
    let accepted = Accepted {
        goal: key.goal,
        duplicate: false,
        result: None,
    };
    let began = Instant::now();
    let now_ms = shared.env.now_ms();
    let cx = Context {
        definition: &definition,
        node: &shared.options.node,
        epoch: 1,
        now_ms,
        bug: shared.options.bug,
    };
    let fresh = GoalState::new(key.tenant.clone(), key.goal);
    let decision = decide(&cx, &fresh, &Event::NewGoal(Box::new(new)));
    let entry = Entry {
        tenant: key.tenant.clone(),
        goal: key.goal,
        epoch: 1,
        at_ms: now_ms,
        at_error_ms: shared.env.clock_error_ms(),
        records: decision.records,
    };
    let (bytes, hash) = entry.encode(&GENESIS)?;
    legible(&bytes)?;
    let turn = began.elapsed();
    if shared.options.bug == Some(Bug::AckEarly) {
        let shared = shared.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(5)).await;
            let _ = append_once(&shared, &key, 0, &bytes, false).await;
        });
        return Ok(accepted);
    }
    let ends = decision.next.ended.is_some();
    let seq = match append_once(shared, &key, 0, &bytes, ends).await {
        Ok(Appended::Yes(seq)) => seq,
        // Somebody else's entry is first: the same key, at the same moment.
        Ok(Appended::Fenced) => {
            let known = known(shared, &key, &submit).await?;
            let unclear = || Fault::new(Code::JournalUnknown, "not in the journal yet");
            return known.ok_or_else(|| unclear().retry_after_ms(RETRY_AFTER_MS));
        }
        Ok(Appended::Refused(fault)) => return Err(fault),
        Err(fault) => return Err(fault.retry_after_ms(RETRY_AFTER_MS)),
    };
    shared.hooks.transition(Transition {
        tenant: key.tenant.clone(),
        goal: key.goal,
        epoch: 1,
        n: decision.next.n,
        phase: decision.next.phase(),
        event: "new_goal",
        records: kinds(&entry.records),
        duration: began.elapsed(),
        turn,
        reason: reason(&entry.records),
    });
    let start = Start::New {
        state: Box::new(decision.next),
        seq,
        hash,
        definition: definition.clone(),
        commands: decision.commands,
    };
    if let Err(fault) = shared.spawn_goal(key, start, Some(permit)).await {
        // It is accepted all the same: the next scan takes it up.
        shared.hooks.alert("spawn", &fault.to_string());
    }
    Ok(accepted)
}

/// How long a control message may wait for its turn.
pub(super) const CONTROL_WAIT: Duration = Duration::from_secs(20);

/// Does what a control message says, here or where its goal is owned.
pub(super) async fn steer(
    shared: &Arc<Shared>,
    subject: &str,
    payload: &Bytes,
) -> Result<Controlled, Fault> {
    let mut control: Control = expect_either(payload)?;
    let goal = control.goal.to_string();
    check::addressed(subject, &control.tenant, Some((&goal, "/goal")))?;
    check::control(shared, &mut control)?;
    owner::control(shared, control).await
}

/// Does it here: the goal is this node's or nobody's.
pub(super) async fn control(shared: &Shared, control: Control) -> Result<Controlled, Fault> {
    let key = GoalKey {
        tenant: control.tenant,
        goal: control.goal,
    };
    let found = shared.with_goals(|g| {
        let active = g.get(&key)?;
        Some((active.actor.clone(), active.controls.clone()))
    });
    let Some((actor, controls)) = found else {
        return Err(not_in_flight(shared, &key).await);
    };
    let Ok(place) = controls.try_acquire_owned() else {
        let fault = Fault::new(Code::IntakeOverloaded, "too many control messages wait");
        return Err(fault.retry_after_ms(RETRY_AFTER_MS));
    };
    let (reply, answer) = oneshot::channel();
    let message = GoalMsg::Control {
        verb: control.verb,
        by: control.by,
        reply,
        place,
    };
    let gone = || {
        let fault = Fault::new(Code::NodeUnreachable, "the goal is being taken up again");
        fault.retry_after_ms(RETRY_AFTER_MS)
    };
    actor.cast(message).map_err(|_| gone())?;
    match tokio::time::timeout(CONTROL_WAIT, answer).await {
        Ok(Ok(answer)) => answer,
        _ => Err(gone()),
    }
}

async fn not_in_flight(shared: &Shared, key: &GoalKey) -> Fault {
    match load(&*shared.bus.journal, key).await {
        Err(fault) => fault,
        Ok(None) => Fault::new(Code::GoalUnknown, format!("no goal {}", key.goal)).at("/goal"),
        Ok(Some(loaded)) => match loaded.state.ended {
            Some(result) => {
                let message = format!("the goal has ended: {}", result.status());
                Fault::new(Code::InputInvalid, message).at("/goal")
            }
            None => Fault::new(Code::NodeUnreachable, "the goal is being taken up again")
                .retry_after_ms(RETRY_AFTER_MS),
        },
    }
}
