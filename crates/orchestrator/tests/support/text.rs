//! Turns as text: one line for the event, one for each record and command.

use detent_orchestrator::{Command, Decision, Event, GoalState};
use detent_protocol::Fault;
use detent_protocol::expect::{Observation, Verdict};
use detent_protocol::record::{
    Body, CloseWhy, PlanNext, PlanWhy, Said, Seal, StepEnd, ToolOutcome,
};
use detent_protocol::result::{GoalResult, StepReport};
use serde::Serialize;
use serde_json::Value;
use std::fmt::Write as _;

/// The turn: `event`, then what it led to, indented.
pub fn turn(event: &Event, decision: &Decision, before: &GoalState, now_ms: u64) -> String {
    let mut out = format!("{}\n", event.name());
    let now_ms = now_ms.max(before.at_ms);
    for record in &decision.records {
        let line = match &record.said {
            Said::Known(body) => self::body(body, now_ms),
            Said::Unknown { kind, .. } => format!("unknown {kind}"),
        };
        let _ = writeln!(out, "  {line}");
    }
    for command in &decision.commands {
        let _ = writeln!(out, "  > {}", self::command(command));
    }
    if let Some(fault) = &decision.refused {
        let _ = writeln!(out, "  refused {fault}");
    }
    out
}

/// A unit variant, or the tag of another one, as the journal has it.
fn tag(value: impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(s)) => s,
        Ok(Value::Object(map)) => map
            .values()
            .find_map(Value::as_str)
            .unwrap_or("?")
            .to_owned(),
        _ => "?".to_owned(),
    }
}

fn place(fault: &Fault) -> String {
    let at = fault.at.as_deref().map(|a| format!(" at {a}"));
    format!("{}{}", fault.code, at.unwrap_or_default())
}

pub fn verdict(v: &Verdict) -> &'static str {
    match v {
        Verdict::Met => "met",
        Verdict::Absent => "absent",
        Verdict::Mismatch { .. } => "mismatch",
        Verdict::Unavailable { .. } => "unavailable",
    }
}

fn verdicts(seen: &[Observation]) -> String {
    let all: Vec<_> = seen.iter().map(|o| verdict(&o.verdict)).collect();
    all.join(" ")
}

fn outcome(o: &ToolOutcome) -> String {
    match o {
        ToolOutcome::Done { .. } => "done".into(),
        ToolOutcome::Failed { fault, started, .. } => {
            let started = if *started { "started" } else { "not started" };
            format!("failed {} ({started})", fault.code)
        }
    }
}

fn steps(all: &[StepReport]) -> String {
    let all: Vec<_> = all
        .iter()
        .map(|s| format!("{}={}", s.step, tag(s.state)))
        .collect();
    all.join(" ")
}

fn result(r: &GoalResult) -> String {
    match r {
        GoalResult::Succeeded {
            data,
            evidence,
            stale,
        } => {
            let stale = if *stale { " stale" } else { "" };
            format!("succeeded {data} evidence={}{stale}", evidence.len())
        }
        GoalResult::Failed {
            error_code,
            message,
            steps: s,
            ..
        } => {
            format!("failed {error_code} \"{message}\" [{}]", steps(s))
        }
        GoalResult::Cancelled { receipt: r } => {
            let (yes, no) = (r.confirmed.len(), r.unconfirmed.len());
            format!(
                "cancelled by {} [{}] confirmed={yes} unconfirmed={no}",
                r.by,
                steps(&r.steps)
            )
        }
    }
}

pub fn body(body: &Body, now_ms: u64) -> String {
    let kind = body.kind();
    let rest = match body {
        Body::Accepted {
            agent, deadline_ms, ..
        } => {
            format!("{agent} deadline=+{}", deadline_ms - now_ms)
        }
        Body::Owned { node } => node.to_string(),
        Body::PlanRequested {
            revision,
            provider,
            why,
            reserve,
        } => {
            let why = match why {
                PlanWhy::StepFailed { step, fault } => format!("{step} {}", fault.code),
                other => tag(other),
            };
            format!(
                "r{revision} of {provider} ({why}) tokens={}",
                reserve.tokens
            )
        }
        Body::Planned { revision, plan, .. } => {
            let ids: Vec<_> = plan.steps.iter().map(|s| s.id.as_str()).collect();
            format!("r{revision} [{}]", ids.join(" "))
        }
        Body::PlanRefused {
            revision,
            faults,
            next,
            ..
        } => {
            let faults: Vec<_> = faults.iter().map(place).collect();
            let next = match next {
                PlanNext::Wait { until_ms } => format!("wait +{}", until_ms - now_ms),
                other => tag(other),
            };
            format!("r{revision} [{}] then {next}", faults.join(", "))
        }
        Body::Intended {
            step,
            attempt,
            tool,
            ..
        } => format!("{step}#{attempt} {tool}"),
        Body::Bound { step, to, .. } => format!("{step} to {to}"),
        Body::Inherited { step, from, .. } => format!("{step} from {from}"),
        Body::Outcome {
            step,
            attempt,
            outcome: o,
        } => format!("{step}#{attempt} {}", outcome(o)),
        Body::Sealing { step, attempt, why } => format!("{step}#{attempt} ({})", tag(why)),
        Body::Sealed {
            step,
            attempt,
            seal,
        } => {
            let seal = match seal {
                Seal::NeverStarted => "never started".into(),
                Seal::Ended { outcome: None } => "ended, outcome lost".into(),
                Seal::Ended { outcome: Some(o) } => format!("ended, {}", outcome(o)),
            };
            format!("{step}#{attempt} {seal}")
        }
        Body::Looking { step, attempt } => format!("{step}#{attempt}"),
        Body::Observed {
            step,
            attempt,
            observations,
            proven_absent,
        } => {
            let proven = if *proven_absent { " proven absent" } else { "" };
            format!("{step}#{attempt} [{}]{proven}", verdicts(observations))
        }
        Body::Waiting {
            step,
            until_ms,
            why,
        } => {
            format!("{step} {} +{}", tag(why), until_ms - now_ms)
        }
        Body::FellBack { step, tool, fault } => format!("{step} to {tool} after {}", fault.code),
        Body::StepEnded { step, end } => match end {
            StepEnd::Done { stale: false } => format!("{step} done"),
            StepEnd::Done { stale: true } => format!("{step} done stale"),
            StepEnd::Failed { fault } => format!("{step} failed {}", fault.code),
            StepEnd::Skipped => format!("{step} skipped"),
            StepEnd::Unknown { fault } => format!("{step} unknown {}", fault.code),
        },
        Body::Asked { question } => {
            format!(
                "about {} until +{}",
                question.step,
                question.until_ms - now_ms
            )
        }
        Body::Answered { choice, by, .. } => {
            format!("{} by {by}", choice.as_deref().unwrap_or("nothing"))
        }
        Body::Amended { patch, by } => format!("{patch} by {by}"),
        Body::Paused { by } | Body::Resumed { by } => format!("by {by}"),
        Body::Closing { why } => match why {
            CloseWhy::Failed { fault } => place(fault),
            CloseWhy::Deadline => "deadline".into(),
            CloseWhy::Cancelled { by, .. } => format!("cancelled by {by}"),
        },
        Body::GoalSealed {
            confirmed,
            unconfirmed,
        } => {
            format!(
                "confirmed={} unconfirmed={}",
                confirmed.len(),
                unconfirmed.len()
            )
        }
        Body::Forgotten { goal } => format!("{} entries archived", goal.archive.entries),
        Body::Ended { result: r } => result(r),
    };
    format!("{kind} {rest}")
}

pub fn command(c: &Command) -> String {
    match c {
        Command::Plan { provider, request } => format!("plan r{} of {provider}", request.revision),
        Command::Call { call, .. } => {
            format!(
                "call {}#{} {} {}",
                call.step, call.attempt, call.tool, call.args
            )
        }
        Command::Seal(s) => format!("seal {}#{}", s.step, s.attempt),
        Command::Look {
            step,
            attempt,
            checks,
        } => {
            let checks: Vec<_> = checks
                .iter()
                .map(|c| format!("{}{}", c.probe, c.params))
                .collect();
            format!("look {step}#{attempt} {}", checks.join(" "))
        }
        Command::FetchResult { data, .. } => format!("fetch {data}"),
        Command::SealGoal(_) => "seal goal".into(),
    }
}
