//! Carrying commands out: each in a task of its own, each ending in exactly one event.

use super::goal::GoalMsg;
use super::{CallOut, Shared};
use crate::command::Command;
use crate::decide::CALL_MARGIN_MS;
use crate::event::Event;
use detent_bus::{BusError, call};
use detent_protocol::claim::Claimed;
use detent_protocol::envelope::{read_reply, seal};
use detent_protocol::expect::{Observation, Verdict};
use detent_protocol::json::Digest;
use detent_protocol::messages::{
    AttemptSealed, GoalSealed, Observe, PlanAnswer, PlanRequest, SealAttempt, SealGoal, ToolCall,
};
use detent_protocol::record::{RunFacts, ToolOutcome};
use detent_protocol::{Code, Fault, GoalId, StepId, subject, template};
use ractor::ActorRef;
use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// Waits before each further try to seal, milliseconds.
const SEAL_WAITS_MS: [u64; 5] = [200, 500, 1_000, 2_000, 4_000];
/// Longest wait for the answer to a look before it is asked for again; a probe takes 10 s
/// unless it says otherwise.
const LOOK_TRY: Duration = Duration::from_secs(15);
/// Longest wait for one seal: an executor waits for the tree's end, milliseconds.
const SEAL_TIMEOUT_MS: u64 = 15_000;

/// Starts a command; its event is cast to `goal`. `out` counts a tool call as out until
/// the goal has dealt with the event.
pub(crate) fn carry(
    shared: &Arc<Shared>,
    goal: &ActorRef<GoalMsg>,
    command: Command,
    out: Option<CallOut>,
) -> JoinHandle<()> {
    let (shared, goal) = (shared.clone(), goal.clone());
    tokio::spawn(async move {
        let event = match command {
            Command::Plan { provider, request } => plan(&shared, &provider, &request).await,
            Command::Call { call, timeout_ms } => tool(&shared, &call, timeout_ms).await,
            Command::Seal(request) => seal_attempt(&shared, &request).await,
            Command::Look {
                step,
                attempt,
                checks,
            } => look(&shared, step, attempt, checks).await,
            Command::FetchResult { goal, data, claims } => {
                fetch_result(&shared, &goal, data, &claims).await
            }
            Command::SealGoal(request) => seal_goal(&shared, &request).await,
        };
        // A goal whose actor is gone is taken up from the journal: the event's effect
        // on the world is found there again.
        let _ = goal.cast(GoalMsg::Event(event, Instant::now(), out));
    })
}

async fn plan(shared: &Shared, provider: &str, request: &PlanRequest) -> Event {
    let revision = request.revision;
    let wait = Duration::from_millis(shared.options.plan_timeout_ms);
    let subject = subject::reason(provider);
    let answer = ask_for_plan(shared, &subject, request, wait).await;
    match answer {
        Ok(answer) => Event::PlanReceived { revision, answer },
        Err(fault) if fault.code == Code::NodeUnreachable => Event::PlanFailed {
            revision,
            fault: Fault::new(Code::ModelUnavailable, fault.message),
        },
        Err(fault) => Event::PlanFailed { revision, fault },
    }
}

async fn ask_for_plan(
    shared: &Shared,
    subject: &str,
    request: &PlanRequest,
    wait: Duration,
) -> Result<PlanAnswer, Fault> {
    let payload = seal(request)?;
    let sent = payload.len();
    match shared.bus.messages.request(subject, payload, wait).await {
        Ok(answer) => read_reply(&answer),
        Err(e) if is_refusal_of(&e, sent) => Err(Fault::new(Code::InputTooLarge, e.to_string())),
        Err(e @ BusError::TooLarge { .. }) => {
            Err(Fault::new(Code::ModelMalformed, format!("the answer: {e}")))
        }
        Err(e) => Err(e.into()),
    }
}

/// A bus says "too large" of a request, which then was not sent, and of an answer. Only
/// the size tells which.
fn is_refusal_of(error: &BusError, sent: usize) -> bool {
    matches!(error, BusError::TooLarge { bytes, max } if *bytes == sent && sent > *max)
}

async fn tool(shared: &Shared, call: &ToolCall, timeout_ms: u64) -> Event {
    let (step, attempt) = (call.step.clone(), call.attempt);
    let not_started = |step, fault| Event::ToolFailed {
        step,
        attempt,
        fault,
        started: false,
        run: RunFacts::default(),
    };
    let payload = match seal(call) {
        Ok(payload) => payload,
        Err(fault) => return not_started(step, fault),
    };
    let sent = payload.len();
    let wait = call.start_within_ms + timeout_ms + CALL_MARGIN_MS;
    let wait = Duration::from_millis(wait);
    let subject = subject::tool(&call.tool, &shared.options.node);
    let answer = shared.bus.messages.request(&subject, payload, wait).await;
    let answer = match answer {
        Ok(answer) => answer,
        // The bus says that nobody has it. All else may have arrived.
        Err(e @ (BusError::NoResponders(_) | BusError::Busy(_))) => {
            return not_started(step, Fault::new(Code::ToolUnavailable, e.to_string()));
        }
        Err(e) if is_refusal_of(&e, sent) => {
            return not_started(step, Fault::new(Code::InputTooLarge, e.to_string()));
        }
        // An answer that is too large comes from a tool that ran.
        Err(
            BusError::Timeout { .. }
            | BusError::Closed
            | BusError::TooLarge { .. }
            | BusError::Denied(_),
        ) => {
            return Event::ToolSilent { step, attempt };
        }
    };
    match read_reply::<ToolOutcome>(&answer) {
        Ok(ToolOutcome::Done { output, run }) => Event::ToolCompleted {
            step,
            attempt,
            output,
            run,
        },
        Ok(ToolOutcome::Failed {
            fault,
            started,
            run,
        }) => Event::ToolFailed {
            step,
            attempt,
            fault,
            started,
            run,
        },
        // An executor that can't say how it went is like one that says nothing.
        Err(_) => Event::ToolSilent { step, attempt },
    }
}

async fn seal_attempt(shared: &Shared, request: &SealAttempt) -> Event {
    let (step, attempt) = (request.step.clone(), request.attempt);
    let subject = subject::executor(&shared.options.node);
    let wait = Duration::from_millis(SEAL_TIMEOUT_MS);
    let mut waits = SEAL_WAITS_MS.iter();
    loop {
        let sealed = call::<_, AttemptSealed>(&*shared.bus.messages, &subject, request, wait).await;
        match (sealed, waits.next()) {
            (Ok(AttemptSealed { seal }), _) => {
                return Event::AttemptSealed {
                    step,
                    attempt,
                    seal,
                };
            }
            (Err(_), Some(ms)) => tokio::time::sleep(Duration::from_millis(*ms)).await,
            (Err(fault), None) => {
                return Event::SealFailed {
                    step,
                    attempt,
                    fault,
                };
            }
        }
    }
}

async fn look(shared: &Shared, step: StepId, attempt: u32, checks: Vec<Observe>) -> Event {
    let looks = checks.iter().map(|check| look_once(shared, check));
    Event::Observed {
        observations: futures::future::join_all(looks).await,
        step,
        attempt,
    }
}

/// A look changes nothing, so it is asked for again long before its time is over: where
/// a broker dies with the answer, nobody says so.
async fn ask_again(
    shared: &Shared,
    subject: &str,
    check: &Observe,
    wait: Duration,
) -> Result<Observation, Fault> {
    let payload = seal(check)?;
    let mut left = wait;
    loop {
        let each = left.min(LOOK_TRY);
        let asked = shared.bus.messages.request(subject, payload.clone(), each);
        match asked.await {
            Ok(answer) => return read_reply(&answer),
            Err(BusError::Timeout { .. }) if left > each => left -= each,
            Err(error) => return Err(error.into()),
        }
    }
}

async fn look_once(shared: &Shared, check: &Observe) -> Observation {
    let wait = Duration::from_millis(shared.options.look_timeout_ms);
    let subject = subject::observe(&check.probe, &shared.options.node);
    let seen = ask_again(shared, &subject, check, wait).await;
    seen.unwrap_or_else(|fault| Observation {
        verdict: Verdict::Unavailable { fault },
        evidence: None,
        output: None,
    })
}

async fn fetch_result(
    shared: &Shared,
    goal: &GoalId,
    mut data: Value,
    claims: &[Claimed],
) -> Event {
    let of = Digest::of_json(&data);
    let max = template::RESOLVED_BYTES_MAX;
    let fetched = shared.claims.fetch(goal, &mut data, claims, max).await;
    Event::ResultFetched {
        of,
        data: fetched.map(|()| data),
    }
}

/// Executors that may hold something of a goal: on one node, its own.
async fn seal_goal(shared: &Shared, request: &SealGoal) -> Event {
    let subject = subject::executor(&shared.options.node);
    let wait = Duration::from_millis(SEAL_TIMEOUT_MS);
    for pause in SEAL_WAITS_MS {
        let sealed = call::<_, GoalSealed>(&*shared.bus.messages, &subject, request, wait).await;
        if let Ok(sealed) = sealed {
            return Event::GoalSealed {
                confirmed: vec![sealed.node],
                unconfirmed: Vec::new(),
            };
        }
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
    Event::GoalSealed {
        confirmed: Vec::new(),
        unconfirmed: vec![shared.options.node.clone()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_request_that_was_not_sent_is_refused() {
        let max = 100;
        let too_large = |bytes| BusError::TooLarge { bytes, max };
        assert!(is_refusal_of(&too_large(101), 101));
        // An answer was too large: whoever was asked has done it.
        assert!(!is_refusal_of(&too_large(500), 80));
        assert!(!is_refusal_of(&BusError::Closed, 101));
    }
}
