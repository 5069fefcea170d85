//! What is printed, and where.

use crate::args::Format;
use crate::exit;
use detent_protocol::messages::GoalEvent;
use detent_protocol::result::GoalResult;
use detent_protocol::{Code, Fault, GoalId};
use serde::Serialize;
use serde_json::{Value, json};
use std::io::{IsTerminal, Write};
use std::sync::OnceLock;

static FORMAT: OnceLock<Format> = OnceLock::new();

/// Sets the form, and sends the program's own log to stderr.
pub(crate) fn init(format: Format, verbose: u8) {
    // Set once, before anything is printed.
    let _ = FORMAT.set(format);
    let level = match verbose {
        0 => "warn",
        1 => "info,detent=debug",
        _ => "debug",
    };
    let filter = tracing_subscriber::EnvFilter::try_from_env("DETENT_LOG");
    let filter = filter.unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(level));
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_env_filter(filter)
        .init();
}

pub(crate) fn is_json() -> bool {
    FORMAT.get() == Some(&Format::Json)
}

/// Writes to stdout. A reader that went away (`| head`) ends the program quietly.
fn put(text: &str) {
    let mut out = std::io::stdout().lock();
    if out
        .write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .is_err()
    {
        std::process::exit(i32::from(exit::OK));
    }
}

/// A line of data.
pub(crate) fn line(text: impl AsRef<str>) {
    put(&format!("{}\n", text.as_ref()));
}

/// A JSON object on a line of its own.
pub(crate) fn json(value: &impl Serialize) {
    let text = serde_json::to_string(value);
    line(text.unwrap_or_else(|e| json!({"error": e.to_string()}).to_string()));
}

/// A fault: what, where, and what to do next. Gives the exit code.
pub(crate) fn fault(fault: &Fault) -> u8 {
    if is_json() {
        json(&json!({"type": "fault", "fault": fault, "next": fault.code.next()}));
    }
    eprintln!("detent: {fault}");
    if let Some(ms) = fault.retry_after_ms {
        eprintln!("  retry: in {ms} ms");
    }
    eprintln!("  next: {}", fault.code.next());
    eprintln!("  more: detent errors show {}", fault.code);
    exit::of_code(fault.code)
}

/// An event of a goal.
pub(crate) fn event(event: &GoalEvent) {
    if is_json() {
        return json(&json!({"type": "event", "event": event}));
    }
    let phase = json!(event.phase);
    let phase = phase.as_str().unwrap_or_default();
    let step = event
        .step
        .as_ref()
        .map(|s| format!("{s}: "))
        .unwrap_or_default();
    let (kind, text, n) = (&event.kind, &event.text, event.n);
    eprintln!("{n:>4} {phase:<9} {kind:<14} {step}{text}");
    if let Some(steps) = event.detail.get("steps").and_then(Value::as_array) {
        steps.iter().for_each(planned);
    }
}

fn planned(step: &Value) {
    let text = |name: &str| step[name].as_str().unwrap_or_default().to_owned();
    let needs: Vec<_> = step["needs"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let needs = if needs.is_empty() {
        String::new()
    } else {
        format!(" after {}", needs.join(", "))
    };
    eprintln!("{:>31} {} = {}{needs}", "", text("id"), text("tool"));
}

/// A goal's result, with its evidence. Gives the exit code.
pub(crate) fn result(goal: &GoalId, result: &GoalResult) -> u8 {
    if is_json() {
        json(&json!({"type": "result", "goal": goal, "result": result}));
        return exit::of_result(result);
    }
    line(format!("goal {goal}: {}", result.status()));
    match result {
        GoalResult::Succeeded {
            data,
            evidence,
            stale,
        } => {
            line(pretty(data));
            line("evidence:");
            for step in evidence {
                for seen in &step.seen {
                    let digest = seen.digest.short();
                    line(format!(
                        "  {:<14} {:<8} {} [{digest}]",
                        step.step.as_str(),
                        seen.probe,
                        seen.what
                    ));
                }
            }
            if *stale {
                line("note: a second-best source was used; see the steps marked stale");
            }
        }
        GoalResult::Failed {
            error_code,
            message,
            recovery_suggestion,
            steps,
            ..
        } => {
            line(format!("{error_code}: {message}"));
            steps.iter().for_each(report);
            eprintln!("  next: {recovery_suggestion}");
            eprintln!("  more: detent errors show {error_code}");
        }
        GoalResult::Cancelled { receipt } => {
            line(format!("by {}: {}", receipt.by, receipt.reason));
            receipt.steps.iter().for_each(report);
            let names = |nodes: &[detent_protocol::NodeId]| {
                let names: Vec<_> = nodes.iter().map(detent_protocol::NodeId::as_str).collect();
                names.join(", ")
            };
            line(format!("confirmed by: {}", names(&receipt.confirmed)));
            if !receipt.unconfirmed.is_empty() {
                line(format!("NOT confirmed by: {}", names(&receipt.unconfirmed)));
            }
        }
    }
    exit::of_result(result)
}

fn report(step: &detent_protocol::result::StepReport) {
    let state = json!(step.state);
    let fault = step
        .fault
        .as_ref()
        .map(|f| format!("  {f}"))
        .unwrap_or_default();
    let (id, tool) = (step.step.as_str(), step.tool.as_str());
    line(format!(
        "  {id:<14} {:<8} {tool}, {} attempts{fault}",
        state.as_str().unwrap_or_default(),
        step.attempts
    ));
}

/// JSON for people.
pub(crate) fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_else(|_| value.to_string())
}

/// A time for people.
pub(crate) fn time(at_ms: u64) -> String {
    let ms = i64::try_from(at_ms).unwrap_or(i64::MAX);
    match jiff::Timestamp::from_millisecond(ms) {
        Ok(at) => format!("{at:.3}"),
        Err(_) => format!("{at_ms} ms"),
    }
}

/// A fault of the command line's own making.
pub(crate) fn refuse(at: impl Into<String>, message: impl Into<String>) -> Fault {
    Fault::new(Code::InputInvalid, message).at(at)
}
