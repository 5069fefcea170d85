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
use std::sync::atomic::{AtomicBool, Ordering};

static FORMAT: OnceLock<Format> = OnceLock::new();
/// Texts are shown whole, however long.
static WHOLE: AtomicBool = AtomicBool::new(false);
/// The work goes on when nobody reads stdout any more.
static UNREAD: AtomicBool = AtomicBool::new(false);

/// Longest text of an event or of evidence, characters; `-v` shows it whole.
const TEXT_CHARS_MAX: usize = 120;
/// Folders at the end of a path that are shown.
const PATH_PARTS_MAX: usize = 3;

/// Sets the form, and sends the program's own log to stderr.
pub(crate) fn init(format: Format, verbose: u8) {
    // Set once, before anything is printed.
    let _ = FORMAT.set(format);
    WHOLE.store(verbose > 0, Ordering::Relaxed);
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

/// For a program whose work is more than what it prints: it goes on when nobody reads
/// stdout any more.
pub(crate) fn work_goes_on() {
    UNREAD.store(true, Ordering::Relaxed);
}

/// Writes to stdout. A reader that went away (`| head`) ends the program quietly,
/// unless it has [work of its own](work_goes_on).
fn put(text: &str) {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    if written.is_err() && !UNREAD.load(Ordering::Relaxed) {
        std::process::exit(i32::from(exit::OK));
    }
}

/// A line for people, on stderr; whether anybody reads it changes nothing.
pub(crate) fn note(text: impl AsRef<str>) {
    let _ = writeln!(std::io::stderr(), "{}", text.as_ref());
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
    note(format!("detent: {fault}"));
    if let Some(ms) = fault.retry_after_ms {
        note(format!("  retry: in {ms} ms"));
    }
    note(format!("  next: {}", fault.code.next()));
    note(format!("  more: detent errors show {}", fault.code));
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
    let (kind, n) = (&event.kind, event.n);
    let text = brief(&words(event));
    note(format!("{n:>4} {phase:<9} {kind:<14} {step}{text}"));
    if event.kind == "planned" {
        let steps = event.detail["steps"].as_array();
        steps.into_iter().flatten().for_each(planned);
    }
}

/// An event's text without what its kind says already; waits as a time from now on.
fn words(event: &GoalEvent) -> String {
    let detail = &event.detail;
    if let (Some(why), Some(until)) = (detail["why"].as_str(), detail["until_ms"].as_u64()) {
        let wait = span(until.saturating_sub(event.at_ms));
        return format!("{wait} ({why})");
    }
    let said = format!("{}: ", event.kind);
    let text = event.text.strip_prefix(&said).unwrap_or(&event.text);
    text.to_owned()
}

/// A length of time for people.
fn span(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..120_000 => format!("{:.1} s", ms as f64 / 1_000.0),
        120_000..7_200_000 => format!("{} min", ms / 60_000),
        _ => format!("{:.1} h", ms as f64 / 3_600_000.0),
    }
}

/// One line of bounded length, long paths by their ends.
fn brief(text: &str) -> String {
    if WHOLE.load(Ordering::Relaxed) {
        return text.to_owned();
    }
    let words: Vec<_> = text.split_whitespace().map(short_path).collect();
    let text = words.join(" ");
    match text.char_indices().nth(TEXT_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

fn short_path(word: &str) -> String {
    let parts: Vec<_> = word.split('/').collect();
    if !word.starts_with('/') || parts.len() <= PATH_PARTS_MAX + 1 {
        return word.to_owned();
    }
    format!("…/{}", parts[parts.len() - PATH_PARTS_MAX..].join("/"))
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
    note(format!(
        "{:>30}{} = {}{needs}",
        "",
        text("id"),
        text("tool")
    ));
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
                    let (id, what) = (step.step.as_str(), brief(&seen.what));
                    line(format!("  {id:<14} {:<8} {digest}  {what}", seen.probe));
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
            note(format!("  next: {recovery_suggestion}"));
            note(format!("  more: detent errors show {error_code}"));
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
    let (state, n) = (state.as_str().unwrap_or_default(), step.attempts);
    let attempts = if n == 1 { "attempt" } else { "attempts" };
    line(format!(
        "  {id:<14} {state:<8} {tool}, {n} {attempts}{fault}"
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_in_the_unit_that_fits() {
        let told: Vec<_> = [0, 999, 1_000, 61_500, 120_000, 3_600_000, 9_000_000]
            .map(span)
            .into();
        let expected = [
            "0 ms", "999 ms", "1.0 s", "61.5 s", "2 min", "60 min", "2.5 h",
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn long_texts_are_cut_and_long_paths_shown_by_their_ends() {
        assert_eq!(
            brief("/var/lib/detent/data/ledger.db: SELECT  1"),
            "…/detent/data/ledger.db: SELECT 1"
        );
        assert_eq!(brief("/etc/detent a/b/c/d/e/f"), "/etc/detent a/b/c/d/e/f");
        let long = brief(&"ü ".repeat(200));
        assert_eq!(long.chars().count(), TEXT_CHARS_MAX + 1);
        assert!(long.ends_with('…'));
    }
}
