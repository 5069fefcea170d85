//! Dead letters: the message's own bytes, and in the headers what became of it.

use super::{KEPT_BYTES_MAX, kept};
use crate::DeadLetter;
use crate::nats::api::{self, Failed, Which, code};
use crate::nats::{Broker, NatsOptions};
use async_nats::HeaderMap;
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::Config;
use bytes::Bytes;
use detent_protocol::{Code, Fault, MESSAGE_BYTES_MAX};

/// Stream of dead letters.
pub const DEAD: &str = "DETENT_DEAD";
/// Not below `detent.`, where the second token is a tenant.
const SUBJECT: &str = "detent-dead";
/// The subject it came on.
const CAME_ON: &str = "Detent-Subject";
/// Why: the fault, as JSON.
const FAULT: &str = "Detent-Fault";
/// How often it was tried.
const TRIES: &str = "Detent-Tries";

/// JetStream's word for a message that is not there to be removed.
const NO_SEQUENCE: u64 = 10043;

/// Settings of the stream.
pub(super) fn stream(options: &NatsOptions) -> Config {
    Config {
        name: DEAD.into(),
        description: Some("Messages that nobody in Detent could deal with".into()),
        subjects: vec![SUBJECT.into()],
        max_age: options.dead_keep,
        max_message_size: i32::try_from(MESSAGE_BYTES_MAX).unwrap_or(i32::MAX),
        ..kept(options)
    }
}

/// Keeps a dead letter.
pub(super) async fn keep(
    broker: &Broker,
    subject: &str,
    payload: Bytes,
    fault: &Fault,
    tries: u64,
) -> Result<u64, Failed> {
    let mut headers = HeaderMap::new();
    headers.insert(CAME_ON, subject);
    headers.insert(TRIES, tries.to_string());
    // A text of at most 4 KiB, in which JSON leaves no line's end.
    let fault = serde_json::to_string(fault).unwrap_or_default();
    headers.insert(FAULT, fault);
    debug_assert!(payload.len() <= KEPT_BYTES_MAX);
    api::publish(broker, DEAD, SUBJECT.into(), headers, payload).await
}

/// Dead letters after number `after`, at most `limit`.
pub(super) async fn list(
    broker: &Broker,
    after: u64,
    limit: usize,
) -> Result<Vec<DeadLetter>, Fault> {
    let mut letters = Vec::new();
    let mut next = after.saturating_add(1);
    while letters.len() < limit {
        let which = Which::From(SUBJECT, next);
        let Some(message) = api::from_leader(broker, DEAD, which).await? else {
            break;
        };
        next = message.sequence.saturating_add(1);
        letters.push(letter(message));
    }
    Ok(letters)
}

/// The dead letter of this number.
pub(super) async fn find(broker: &Broker, number: u64) -> Result<Option<DeadLetter>, Fault> {
    let which = Which::From(SUBJECT, number.max(1));
    let found = api::from_leader(broker, DEAD, which).await?;
    Ok(found
        .filter(|message| message.sequence == number)
        .map(letter))
}

/// Removes it.
pub(super) async fn remove(broker: &Broker, number: u64) -> Result<(), Fault> {
    let subject = format!("STREAM.MSG.DELETE.{DEAD}");
    let question = serde_json::json!({ "seq": number, "no_erase": true });
    let asked = api::ask::<serde_json::Value>(broker, &subject, &question);
    match asked.await {
        Err(failed) if !failed.is(code::NO_MESSAGE) && !failed.is(NO_SEQUENCE) => {
            Err(failed.fault("removing a dead letter"))
        }
        _ => Ok(()),
    }
}

fn letter(message: StreamMessage) -> DeadLetter {
    let text = |name| message.headers.get(name).map(|value| value.as_str());
    let fault = text(FAULT).and_then(|fault| serde_json::from_str(fault).ok());
    let nanos = message.time.unix_timestamp_nanos();
    DeadLetter {
        number: message.sequence,
        subject: text(CAME_ON).unwrap_or_default().to_owned(),
        // Written by a newer version, or by hand.
        fault: fault.unwrap_or_else(|| {
            Fault::new(
                Code::JournalUnreadable,
                "the dead letter's fault can't be read",
            )
        }),
        tries: text(TRIES).and_then(|n| n.parse().ok()).unwrap_or(0),
        at_ms: u64::try_from(nanos / 1_000_000).unwrap_or(0),
        payload: message.payload,
    }
}
