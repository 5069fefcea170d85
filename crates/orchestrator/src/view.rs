//! Views of the state: what a goal waits for, when it has to be looked at next, and
//! what people and followers see. All derived; nothing here is stored.

use crate::decide::view as step_view;
use crate::state::{GoalState, Status, StepState};
use detent_protocol::StepId;
use detent_protocol::claim::Claim;
use detent_protocol::journal::Entry;
use detent_protocol::json;
use detent_protocol::messages::{GoalEvent, GoalLine, GoalView, Phase, WaitingFor};
use detent_protocol::record::{
    Body, CloseWhy, PlanNext, Record, Said, Seal, StepEnd, ToolOutcome, WaitWhy,
};
use detent_protocol::result::GoalResult;
use serde_json::{Value, json};

/// Largest output of a step that `show` gives whole, bytes.
const SHOWN_BYTES_MAX: usize = 8 * 1024;
/// All outputs together that `show` gives whole, bytes. With the largest result it still
/// fits into one message.
const ALL_SHOWN_BYTES_MAX: usize = 64 * 1024;
/// Largest input that `show` gives whole, bytes.
const INPUT_SHOWN_BYTES_MAX: usize = 128 * 1024;

fn shown(value: &Value, left: &mut usize) -> Value {
    shown_up_to(value, SHOWN_BYTES_MAX, left)
}

fn shown_output(output: &Value, left: &mut usize) -> Value {
    match Claim::of(output) {
        Some(claim) => shown(&claim.summary(), left),
        None => shown(output, left),
    }
}

/// The value, or how large it is.
fn shown_up_to(value: &Value, max: usize, left: &mut usize) -> Value {
    let bytes = json::size_bytes(value);
    if bytes > max.min(*left) {
        return json!({"pruned_bytes": bytes});
    }
    *left -= bytes;
    value.clone()
}

impl GoalState {
    /// The next moment at which time alone changes something, Unix milliseconds.
    pub fn next_wake_ms(&self) -> Option<u64> {
        if self.ended.is_some() || self.parked.is_some() || self.agent.is_none() {
            return None;
        }
        let going = self.paused.is_none();
        let running = self.steps.values().any(|s| s.status == Status::Running);
        let deadline = (self.closing.is_none() || running).then_some(self.deadline_ms);
        let plan = self.planning.as_ref().and_then(|p| p.wait_until_ms);
        let plan = plan.filter(|_| going);
        let waits = self.steps.values().filter_map(|s| match s.status {
            Status::Waiting { until_ms, why } => {
                let look = matches!(why, WaitWhy::Settle | WaitWhy::Probe);
                // What was due at the last record had its chance then: it is started
                // by whatever makes room for it, not by time.
                let start = going && self.halt.is_none() && until_ms > self.at_ms;
                (look || start).then_some(until_ms)
            }
            _ => None,
        });
        let questions = self.questions.values().map(|q| q.until_ms);
        deadline
            .into_iter()
            .chain(plan)
            .chain(waits)
            .chain(questions)
            .min()
    }

    /// What it waits for (I15): never empty for a goal that has not ended.
    pub fn waiting(&self) -> Vec<WaitingFor> {
        if self.ended.is_some() || self.agent.is_none() {
            return Vec::new();
        }
        let mut all: Vec<WaitingFor> = self.goal_waits();
        all.extend(self.steps.iter().filter_map(|(id, s)| {
            let (what, until) = self.step_waits(s)?;
            Some(waiting_for(what, Some(id), s.since_ms, until))
        }));
        if self.steps.values().all(|s| s.status.is_end())
            && matches!(self.closing, Some(CloseWhy::Cancelled { .. }))
        {
            all.push(waiting_for("executors", None, self.at_ms, self.deadline_ms));
        }
        all
    }

    /// What the goal as a whole waits for.
    fn goal_waits(&self) -> Vec<WaitingFor> {
        let mut all = Vec::new();
        if self.parked.is_some() {
            all.push(waiting_for("repair", None, self.at_ms, self.deadline_ms));
        }
        if let Some(p) = &self.planning {
            let until = p.wait_until_ms.unwrap_or(self.deadline_ms);
            let what = if p.wait_until_ms.is_some() {
                "planner"
            } else {
                "plan"
            };
            all.push(waiting_for(what, None, p.since_ms, until));
        }
        if self.awaits_result() {
            all.push(waiting_for("result", None, self.at_ms, self.deadline_ms));
        }
        if self.paused.is_some() {
            all.push(waiting_for("resume", None, self.at_ms, self.deadline_ms));
        }
        all
    }

    fn step_waits(&self, s: &StepState) -> Option<(&'static str, u64)> {
        Some(match &s.status {
            Status::Running => ("tool", self.deadline_ms),
            Status::Sealing { .. } => ("seal", self.deadline_ms),
            Status::Looking => ("observation", self.deadline_ms),
            Status::Asking { question } => {
                let question = self.questions.get(question);
                ("answer", question.map_or(self.deadline_ms, |q| q.until_ms))
            }
            Status::Waiting { until_ms, why } => {
                let what = match why {
                    WaitWhy::Delay => "delay",
                    WaitWhy::Backoff => "backoff",
                    WaitWhy::Settle => "settling",
                    WaitWhy::Probe => "probe",
                };
                (what, *until_ms)
            }
            Status::Pending | Status::Between => ("predecessors", self.deadline_ms),
            _ => return None,
        })
    }

    /// A line of the list; `None` before the first record.
    pub fn line(&self) -> Option<GoalLine> {
        let (steps_done, steps) = self.step_counts();
        Some(GoalLine {
            goal: self.goal,
            agent: self.agent.clone()?,
            phase: self.phase(),
            status: self.ended.as_ref().map(|r| r.status().to_owned()),
            accepted_at_ms: self.accepted_at_ms,
            steps_done,
            steps,
            archived: self.forgotten.is_some(),
        })
    }

    /// The goal as `show` gives it.
    pub fn view(&self) -> Option<GoalView> {
        let mut left = ALL_SHOWN_BYTES_MAX;
        let steps = self.steps_in_order().into_iter().map(|s| {
            let output = s.output.as_deref();
            step_view(
                s,
                output.map_or(Value::Null, |o| shown_output(o, &mut left)),
            )
        });
        let steps: Vec<_> = steps.collect();
        let mut left = INPUT_SHOWN_BYTES_MAX;
        Some(GoalView {
            line: self.line()?,
            input: shown_up_to(&self.effective, INPUT_SHOWN_BYTES_MAX, &mut left),
            epoch: self.epoch,
            owner: self.owner.clone(),
            deadline_ms: self.deadline_ms,
            waiting: self.waiting(),
            questions: self.questions.values().cloned().collect(),
            steps,
            result: self.ended.as_deref().cloned(),
            parked: self.parked.clone(),
            archive: self.forgotten.as_ref().map(|goal| goal.archive.clone()),
        })
    }
}

fn waiting_for(what: &str, step: Option<&StepId>, since_ms: u64, until_ms: u64) -> WaitingFor {
    WaitingFor {
        what: what.to_owned(),
        step: step.cloned(),
        since_ms,
        until_ms,
    }
}

/// Folds `entry` and gives the events that it makes visible.
pub fn fold_with_events(state: &mut GoalState, entry: &Entry) -> Vec<GoalEvent> {
    let mut events = Vec::with_capacity(entry.records.len());
    for record in &entry.records {
        state.fold(entry.epoch, entry.at_ms, record);
        events.push(event(state, entry.at_ms, record));
    }
    events
}

/// The event that a record is, `state` being the state after it.
pub fn event(state: &GoalState, at_ms: u64, record: &Record) -> GoalEvent {
    let (kind, step, text, detail) = match &record.said {
        Said::Known(body) => {
            let (step, text) = describe(body);
            (body.kind().to_owned(), step, text, detail(body))
        }
        Said::Unknown { kind, .. } => {
            let text = "written by a newer version".to_owned();
            (kind.clone(), None, text, Value::Null)
        }
    };
    GoalEvent {
        goal: state.goal,
        n: record.n,
        at_ms,
        kind,
        phase: state.phase(),
        step,
        text,
        detail,
    }
}

/// Details for programs: only what followers act on; the journal has the rest.
fn detail(body: &Body) -> Value {
    match body {
        Body::Ended { result } => json!(result),
        Body::Asked { question } => json!(question),
        Body::Planned { plan, .. } => json!({"steps": plan.steps.iter()
            .map(|s| json!({"id": s.id, "tool": s.tool, "needs": s.needs()})).collect::<Vec<_>>()}),
        Body::Observed { observations, .. } => json!(observations),
        Body::Outcome {
            outcome: ToolOutcome::Done { run, .. },
            ..
        } => json!({"run": run}),
        Body::Outcome {
            outcome: ToolOutcome::Failed { run, fault, .. },
            ..
        } => {
            json!({"run": run, "fault": fault})
        }
        Body::Waiting { why, until_ms, .. } => json!({"why": why, "until_ms": until_ms}),
        _ => Value::Null,
    }
}

/// The step and a sentence.
fn describe(body: &Body) -> (Option<StepId>, String) {
    let at = |step: &StepId, text: String| (Some(step.clone()), text);
    match body {
        Body::Accepted { agent, .. } => (None, format!("accepted for agent {agent}")),
        Body::Owned { node } => (None, format!("owned by node {node}")),
        Body::PlanRequested {
            revision, provider, ..
        } => (None, format!("plan {revision} asked of {provider}")),
        Body::Planned { revision, plan, .. } => {
            (None, format!("plan {revision}: {} steps", plan.steps.len()))
        }
        Body::PlanRefused { faults, next, .. } => (None, refused_text(faults, next)),
        Body::Intended {
            step,
            attempt,
            tool,
            ..
        } => at(step, format!("attempt {attempt} with {tool}")),
        Body::Bound { step, to, .. } => at(step, format!("already done by step {to}")),
        Body::Inherited { step, from, .. } => {
            at(step, format!("step {from} may have done it: looking first"))
        }
        Body::Outcome { step, outcome, .. } => match outcome {
            ToolOutcome::Done { run, .. } => at(step, format!("tool ended in {} ms", run.wall_ms)),
            ToolOutcome::Failed { fault, .. } => at(step, format!("tool failed: {fault}")),
        },
        Body::Sealing { step, attempt, .. } => at(step, format!("sealing attempt {attempt}")),
        Body::Sealed { step, seal, .. } => match seal {
            Seal::NeverStarted => at(step, "sealed: it never started".into()),
            Seal::Ended { .. } => at(step, "sealed: it has ended".into()),
        },
        Body::Looking { step, .. } => at(step, "looking at the world".into()),
        Body::Observed {
            step,
            observations,
            proven_absent,
            ..
        } => at(step, observed_text(observations, *proven_absent)),
        Body::Waiting {
            step,
            why,
            until_ms,
        } => {
            let why = json!(why);
            at(
                step,
                format!(
                    "waiting ({}) until {until_ms}",
                    why.as_str().unwrap_or_default()
                ),
            )
        }
        Body::FellBack { step, tool, fault } => {
            at(step, format!("falling back to {tool} after {}", fault.code))
        }
        Body::StepEnded { step, end } => match end {
            StepEnd::Done { stale: false } => at(step, "done".into()),
            StepEnd::Done { stale: true } => at(step, "done (stale source)".into()),
            StepEnd::Failed { fault } => at(step, format!("failed: {fault}")),
            StepEnd::Skipped => at(step, "skipped".into()),
            StepEnd::Unknown { fault } => at(step, format!("outcome unknown: {fault}")),
        },
        Body::Asked { question } => at(&question.step, format!("asking: {}", question.what)),
        Body::Answered {
            question,
            choice,
            by,
        } => {
            let choice = choice.as_deref().unwrap_or("no answer");
            (None, format!("question {question}: {choice} by {by}"))
        }
        Body::Amended { by, .. } => (None, format!("amended by {by}")),
        Body::Paused { by } => (None, format!("paused by {by}")),
        Body::Resumed { by } => (None, format!("resumed by {by}")),
        Body::Closing { why } => (None, close_text(why)),
        Body::GoalSealed {
            confirmed,
            unconfirmed,
        } => {
            let (yes, no) = (confirmed.len(), unconfirmed.len());
            (None, format!("sealed by {yes} executors, {no} not reached"))
        }
        Body::Ended { result } => (None, ended_text(result)),
        Body::Forgotten { goal } => {
            let entries = goal.archive.entries;
            (None, format!("forgotten; {entries} entries were archived"))
        }
    }
}

fn refused_text(faults: &[detent_protocol::Fault], next: &PlanNext) -> String {
    let first = faults.first().map(ToString::to_string).unwrap_or_default();
    let next = match next {
        PlanNext::AskAgain => "asking again",
        PlanNext::Wait { .. } => "waiting for the planner",
        PlanNext::NextProvider => "asking the next planner",
        PlanNext::GiveUp => "giving up",
    };
    format!("plan refused ({first}); {next}")
}

fn observed_text(seen: &[detent_protocol::expect::Observation], proven_absent: bool) -> String {
    use detent_protocol::expect::Verdict;
    if proven_absent {
        return "observed: proven absent".into();
    }
    let bad = seen.iter().find(|o| o.verdict != Verdict::Met);
    match bad.map(|o| &o.verdict) {
        None => {
            let what = seen.iter().filter_map(|o| o.evidence.as_ref());
            let what: Vec<_> = what.map(|e| e.what.as_str()).collect();
            format!("observed: {}", what.join("; "))
        }
        Some(Verdict::Absent) => "observed: not there".into(),
        Some(Verdict::Mismatch { why }) => format!("observed: not as expected: {why}"),
        Some(Verdict::Unavailable { fault }) => format!("could not look: {}", fault.message),
        Some(Verdict::Met) => String::new(),
    }
}

fn close_text(why: &CloseWhy) -> String {
    match why {
        CloseWhy::Failed { fault } => format!("closing: {fault}"),
        CloseWhy::Deadline => "closing: the deadline passed".into(),
        CloseWhy::Cancelled { by, reason } => format!("closing: cancelled by {by}: {reason}"),
    }
}

fn ended_text(result: &GoalResult) -> String {
    match result {
        GoalResult::Succeeded {
            evidence, stale, ..
        } => {
            let stale = if *stale { " (with a stale source)" } else { "" };
            format!("succeeded, {} steps with evidence{stale}", evidence.len())
        }
        GoalResult::Failed {
            error_code,
            message,
            ..
        } => format!("failed: {error_code}: {message}"),
        GoalResult::Cancelled { receipt } => format!("cancelled by {}", receipt.by),
    }
}

/// Phases in the order of the table, for tests and docs.
pub const PHASES: [Phase; 5] = [
    Phase::Idle,
    Phase::Planning,
    Phase::Executing,
    Phase::Observing,
    Phase::Ended,
];
