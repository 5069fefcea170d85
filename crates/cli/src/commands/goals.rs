//! `detent goals …`

use crate::args::{Global, Goals};
use crate::client::Client;
use crate::commands::replay;
use crate::exit;
use crate::output::{self, refuse};
use detent_protocol::messages::{Answer, Ask, GoalLine, GoalView, Verb};
use detent_protocol::{Code, Fault, GoalId};
use serde_json::json;
use std::path::Path;

pub(crate) async fn run(global: &Global, command: Goals) -> Result<u8, Fault> {
    match command {
        Goals::List { open, limit } => list(global, open, limit).await,
        Goals::Show { goal } => show(global, goal).await,
        Goals::Watch { goal, from } => {
            let client = Client::any(global).await?;
            follow(&client, goal, from.max(1)).await
        }
        Goals::Cancel { goal, reason } => cancel(global, goal, reason).await,
        Goals::Answer {
            goal,
            question,
            choice,
        } => control(global, goal, Verb::Answer { question, choice }).await,
        Goals::Pause { goal } => control(global, goal, Verb::Pause).await,
        Goals::Resume { goal } => control(global, goal, Verb::Resume).await,
        Goals::Amend { goal, patch } => {
            let patch = serde_json::from_str(&patch)
                .map_err(|e| refuse("patch", format!("not JSON: {e}")))?;
            control(global, goal, Verb::Amend { patch }).await
        }
        Goals::Export { goal, to } => export(global, goal, to.as_deref()).await,
    }
}

fn unexpected() -> Fault {
    Fault::new(Code::InternalLogicError, "an answer to another question")
}

async fn list(global: &Global, open_only: bool, limit: u32) -> Result<u8, Fault> {
    let client = Client::any(global).await?;
    let (mut after, mut left) = (None, limit);
    while left > 0 {
        let ask = Ask::List {
            open_only,
            after,
            limit: left.min(PAGE_MAX),
        };
        let Answer::Goals { goals } = client.query(ask).await? else {
            return Err(unexpected());
        };
        let Some(last) = goals.last() else { break };
        after = Some(last.goal);
        goals.iter().for_each(listed);
        // A page holds no more than was asked for; the wider type keeps it checked.
        left = left.saturating_sub(u32::try_from(goals.len()).unwrap_or(u32::MAX));
    }
    if left == limit {
        output::note("detent: no goals");
    } else if left == 0 {
        output::note(format!("detent: the first {limit}; --limit gives more"));
    }
    Ok(exit::OK)
}

/// Goals of one answer.
const PAGE_MAX: u32 = 1000;

fn listed(g: &GoalLine) {
    if output::is_json() {
        return output::json(g);
    }
    let phase = json!(g.phase);
    let state = g.status.as_deref().or(phase.as_str()).unwrap_or_default();
    let at = output::time(g.accepted_at_ms);
    let (goal, done, all) = (g.goal, g.steps_done, g.steps);
    let steps = format!("{done}/{all}");
    let archived = if g.archived { "  archived" } else { "" };
    let agent = &g.agent;
    output::line(format!(
        "{goal}  {at}  {state:<9}  {steps:>5}  {agent}{archived}"
    ));
}

async fn show(global: &Global, goal: GoalId) -> Result<u8, Fault> {
    let client = Client::any(global).await?;
    let Answer::Goal { goal } = client.query(Ask::Show { goal }).await? else {
        return Err(unexpected());
    };
    if output::is_json() {
        output::json(&goal);
    } else {
        print(&goal);
    }
    Ok(exit::OK)
}

fn print(view: &GoalView) {
    let line = &view.line;
    let phase = json!(line.phase);
    output::line(format!("goal     {}", line.goal));
    output::line(format!("agent    {}", line.agent));
    output::line(format!(
        "state    {}",
        line.status
            .as_deref()
            .or(phase.as_str())
            .unwrap_or_default()
    ));
    output::line(format!(
        "taken    {}, deadline {}",
        output::time(line.accepted_at_ms),
        output::time(view.deadline_ms)
    ));
    let owner = view
        .owner
        .as_ref()
        .map(ToString::to_string)
        .unwrap_or_default();
    output::line(format!("owner    {owner}, epoch {}", view.epoch));
    match &view.archive {
        None => output::line(format!("input    {}", view.input)),
        Some(archive) => output::line(format!(
            "archived: {} entries, {} bytes; its steps are in: detent goals export {}",
            archive.entries, archive.bytes, line.goal
        )),
    }
    for w in &view.waiting {
        let step = w
            .step
            .as_ref()
            .map(|s| format!(" of {s}"))
            .unwrap_or_default();
        let (since, until) = (output::time(w.since_ms), output::time(w.until_ms));
        output::line(format!(
            "waits    for {}{step} since {since}, at most until {until}",
            w.what
        ));
    }
    for q in &view.questions {
        output::line(format!(
            "asks     {}: {} [{}] until {}",
            q.id,
            q.what,
            q.choices.join(" | "),
            output::time(q.until_ms)
        ));
    }
    for s in &view.steps {
        let fault = s
            .fault
            .as_ref()
            .map(|f| format!("  {f}"))
            .unwrap_or_default();
        output::line(format!(
            "step     {:<14} {:<9} {}{fault}",
            s.id.as_str(),
            s.state,
            s.tool
        ));
    }
    if let Some(parked) = &view.parked {
        output::line(format!("parked   {parked}"));
    }
    if let Some(result) = &view.result {
        output::result(&line.goal, result);
    }
}

/// Prints events until the goal ends; its result decides the exit code.
pub(crate) async fn follow(client: &Client, goal: GoalId, from: u64) -> Result<u8, Fault> {
    let mut next = from;
    loop {
        let (events, ended) = client.events(goal, next).await?;
        for event in &events {
            output::event(event);
            next = event.n + 1;
        }
        if ended && events.is_empty() {
            break;
        }
        if !ended && !client.is_live() {
            output::note("detent: no node works on it; it goes on with the next start");
            return Ok(exit::NOT_NOW);
        }
    }
    match client.query(Ask::Show { goal }).await? {
        Answer::Goal { goal: view } => match &view.result {
            Some(result) => Ok(output::result(&goal, result)),
            None => Err(unexpected()),
        },
        _ => Err(unexpected()),
    }
}

async fn control(global: &Global, goal: GoalId, verb: Verb) -> Result<u8, Fault> {
    let client = Client::node(global).await?;
    let controlled = client.control(goal, verb).await?;
    if output::is_json() {
        output::json(&json!({"type": "controlled", "goal": goal, "phase": controlled.phase}));
    } else {
        let phase = json!(controlled.phase);
        output::line(format!(
            "goal {goal}: {}",
            phase.as_str().unwrap_or_default()
        ));
    }
    Ok(exit::OK)
}

async fn cancel(global: &Global, goal: GoalId, reason: String) -> Result<u8, Fault> {
    let client = Client::node(global).await?;
    client.control(goal, Verb::Cancel { reason }).await?;
    // The receipt is the answer; a goal that ended otherwise in the meantime says so.
    follow(&client, goal, u64::MAX).await?;
    Ok(exit::OK)
}

async fn export(global: &Global, goal: GoalId, to: Option<&Path>) -> Result<u8, Fault> {
    let client = Client::any(global).await?;
    let mut entries = Vec::new();
    loop {
        let from = entries.len() as u64 + 1;
        let Answer::Entries { entries: page } = client.query(Ask::Export { goal, from }).await?
        else {
            return Err(unexpected());
        };
        if page.is_empty() {
            break;
        }
        entries.extend(page);
    }
    let default = format!("{goal}.detent");
    let path = to.unwrap_or_else(|| Path::new(&default));
    replay::write(path, &entries)?;
    if output::is_json() {
        let count = entries.len();
        output::json(&json!({"type": "exported", "goal": goal, "entries": count, "file": path}));
    } else {
        output::line(path.display().to_string());
    }
    output::note(format!(
        "detent: {} entries; look at them with: detent replay {}",
        entries.len(),
        path.display()
    ));
    Ok(exit::OK)
}
