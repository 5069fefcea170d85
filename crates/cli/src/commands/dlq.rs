//! `detent dlq …`: messages that nobody could deal with.

use crate::args::{Dlq, Global};
use crate::commands::nats::connect;
use crate::{exit, output};
use detent_bus::{DeadLetter, Inbox};
use detent_protocol::{Code, Fault};
use serde_json::{Value, json};
use std::sync::Arc;

/// Dead letters of one answer.
const PAGE: usize = 100;

pub(crate) async fn run(global: &Global, command: Dlq) -> Result<u8, Fault> {
    let inbox = inbox(global).await?;
    match command {
        Dlq::List { limit } => list(&*inbox, limit as usize).await,
        Dlq::Show { number } => show(&*inbox, number).await,
        Dlq::Redrive { number } => redrive(&*inbox, number).await,
    }
}

async fn inbox(global: &Global) -> Result<Arc<dyn Inbox>, Fault> {
    let nats = connect(global, false).await?;
    nats.bus.inbox.ok_or_else(|| {
        let message = "this bus keeps no messages; dead letters are kept on NATS";
        Fault::new(Code::ConfigInvalid, message).at("nats.url")
    })
}

async fn list(inbox: &dyn Inbox, limit: usize) -> Result<u8, Fault> {
    let (mut after, mut left) = (0, limit);
    while left > 0 {
        let page = inbox.dead(after, left.min(PAGE)).await?;
        let Some(last) = page.last() else { break };
        after = last.number;
        left -= page.len().min(left);
        page.iter().for_each(listed);
    }
    if left == limit {
        output::note("detent: no dead letters");
    } else if left == 0 {
        output::note(format!("detent: the first {limit}; --limit gives more"));
    }
    Ok(exit::OK)
}

fn listed(letter: &DeadLetter) {
    if output::is_json() {
        return output::json(&shape(letter));
    }
    let (number, at) = (letter.number, output::time(letter.at_ms));
    output::line(format!(
        "{number:>6}  {at}  {}  {}",
        letter.subject, letter.fault
    ));
}

async fn show(inbox: &dyn Inbox, number: u64) -> Result<u8, Fault> {
    let letter = find(inbox, number).await?;
    if output::is_json() {
        let mut shape = shape(&letter);
        shape["says"] = says(&letter);
        output::json(&shape);
        return Ok(exit::OK);
    }
    output::line(format!("number   {}", letter.number));
    output::line(format!("subject  {}", letter.subject));
    output::line(format!("since    {}", output::time(letter.at_ms)));
    output::line(format!("tries    {}", letter.tries));
    output::line(format!("why      {}", letter.fault));
    output::line(format!("next     {}", letter.fault.code.next()));
    output::line(format!("says     {}", says(&letter)));
    Ok(exit::OK)
}

async fn redrive(inbox: &dyn Inbox, number: u64) -> Result<u8, Fault> {
    if !inbox.redrive(number).await? {
        return Err(none(number));
    }
    if output::is_json() {
        output::json(&json!({"type": "redriven", "number": number}));
    } else {
        output::line(format!("dead letter {number} is back in its queue"));
    }
    Ok(exit::OK)
}

async fn find(inbox: &dyn Inbox, number: u64) -> Result<DeadLetter, Fault> {
    let page = inbox.dead(number.saturating_sub(1), 1).await?;
    let letter = page.into_iter().next().filter(|l| l.number == number);
    letter.ok_or_else(|| none(number))
}

fn none(number: u64) -> Fault {
    Fault::new(Code::InputInvalid, format!("no dead letter {number}"))
}

fn shape(letter: &DeadLetter) -> Value {
    json!({"type": "dead_letter", "number": letter.number, "subject": letter.subject,
        "at_ms": letter.at_ms, "tries": letter.tries, "bytes": letter.payload.len(),
        "fault": letter.fault})
}

/// What it says, as far as it can be read.
fn says(letter: &DeadLetter) -> Value {
    let payload = &letter.payload;
    let read = serde_json::from_slice(payload).ok();
    let read = read.or_else(|| detent_protocol::envelope::from_msgpack(payload).ok());
    read.unwrap_or_else(|| json!({"unreadable_bytes": payload.len()}))
}
