//! `detent submit`, and reading a goal's file.

use crate::args;
use crate::client::Client;
use crate::commands::goals::follow;
use crate::{exit, output};
use detent_protocol::goal::{Accepted, IdempotencyKey, Submit};
use detent_protocol::{Code, Fault, GOAL_BYTES_MAX};
use serde_json::{Value, json};
use std::io::Read;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

pub(crate) async fn submit(global: &args::Global, args: &args::Submit) -> Result<u8, Fault> {
    let submit = read(&args.file, args.key.as_deref())?;
    let client = Client::node(global).await?;
    let accepted = client.submit(&submit).await?;
    // The answer of `submit`; on the way to a result it is news like any other.
    tell(&accepted, !args.wait);
    if let Some(result) = &accepted.result {
        return Ok(output::result(&accepted.goal, result));
    }
    if args.wait {
        return follow(&client, accepted.goal, 1).await;
    }
    Ok(exit::OK)
}

/// Says that a goal was taken, as the answer or on the way to one.
pub(crate) fn tell(accepted: &Accepted, is_answer: bool) {
    if output::is_json() {
        let (goal, duplicate) = (accepted.goal, accepted.duplicate);
        return output::json(&json!({"type": "accepted", "goal": goal, "duplicate": duplicate}));
    }
    let known = if accepted.duplicate {
        " (known: same key)"
    } else {
        ""
    };
    let text = format!("accepted {}{known}", accepted.goal);
    if is_answer {
        output::line(text);
    } else {
        output::note(text);
    }
}

/// Reads a goal from a file or, for `-`, from stdin.
pub(crate) fn read(file: &Path, key: Option<&str>) -> Result<Submit, Fault> {
    let shown = file.display().to_string();
    let failed = |e: std::io::Error| output::refuse(&shown, format!("can't be read: {e}"));
    let mut text = Vec::new();
    let bound = GOAL_BYTES_MAX as u64 + 1;
    if file == Path::new("-") {
        std::io::stdin()
            .take(bound)
            .read_to_end(&mut text)
            .map_err(failed)?;
    } else {
        let file = std::fs::File::open(file).map_err(failed)?;
        file.take(bound).read_to_end(&mut text).map_err(failed)?;
    }
    if text.len() > GOAL_BYTES_MAX {
        let message = format!("more than {GOAL_BYTES_MAX} bytes");
        return Err(Fault::new(Code::InputTooLarge, message).at(shown));
    }
    let value: Value = serde_json::from_slice(&text).map_err(|e| {
        let at = format!("{shown}:{}:{}", e.line(), e.column());
        output::refuse(at, format!("not JSON: {e}"))
    })?;
    let mut submit: Submit = serde_json::from_value(value)
        .map_err(|e| output::refuse(&shown, format!("not a goal: {e}")))?;
    if let Some(key) = key {
        submit.key = Some(IdempotencyKey {
            key: key.to_owned(),
            issued_at_ms: now_ms(),
        });
    }
    submit.lint()?;
    Ok(submit)
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX))
}
