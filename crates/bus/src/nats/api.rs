//! Asking JetStream: requests to its API, messages into its streams, and what it says to
//! them.
//!
//! Promises: every question ends within the ack timeout; silence, a refusal and "never
//! sent" are three different things; what the leader of a stream has to answer is asked
//! where only the leader answers. Nothing is sent while the connection is known to be
//! lost: it would be queued and arrive long after everybody has given it up.
//!
//! Must not know: journals, slots, what a message means.

use super::Broker;
use async_nats::client::{PublishError, PublishErrorKind};
use async_nats::connection::State;
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::RawMessage;
use async_nats::{HeaderMap, StatusCode};
use bytes::Bytes;
use detent_protocol::{Code, Fault};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// First part of the subjects of JetStream's API.
pub(super) const API: &str = "$JS.API";

/// Error codes of JetStream that are told apart here.
pub(super) mod code {
    /// No such consumer.
    pub(crate) const CONSUMER_NOT_FOUND: u64 = 10014;
    /// No message where one was asked for.
    pub(crate) const NO_MESSAGE: u64 = 10037;
    /// No such stream; also said for a moment while servers are changing.
    pub(crate) const NO_STREAM: u64 = 10059;
    /// The fence does not hold.
    pub(crate) const WRONG_LAST: u64 = 10071;
    /// Another checked append to this subject is on its way through the replicas.
    pub(crate) const WRONG_LAST_BUSY: u64 = 10164;
    /// The check can't be made at the moment.
    pub(crate) const WRONG_LAST_NOT_READY: u64 = 10163;
    /// The stream is there, with other settings.
    pub(crate) const NAME_TAKEN: u64 = 10058;
    /// JetStream has no leader or is starting.
    pub(crate) const NOT_AVAILABLE: u64 = 10008;
    /// Not enough servers for the copies, as far as this one knows yet.
    pub(crate) const NO_PEERS: u64 = 10005;
}

/// What JetStream says when it says no.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub(super) struct Complaint {
    /// As in HTTP.
    #[serde(default)]
    pub(super) code: u16,
    /// Which one; see [`code`].
    #[serde(default)]
    pub(super) err_code: u64,
    /// For people.
    #[serde(default)]
    pub(super) description: String,
}

impl std::fmt::Display for Complaint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (JetStream {})", self.description, self.err_code)
    }
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Failed {
    /// It was never sent.
    NotSent(Fault),
    /// Nobody answered, or nothing that can be read. Whether it was carried out is not
    /// known.
    Silent(String),
    /// JetStream said no.
    Said(Complaint),
}

impl Failed {
    /// Is it this complaint?
    pub(super) fn is(&self, wanted: u64) -> bool {
        matches!(self, Failed::Said(complaint) if complaint.err_code == wanted)
    }

    /// As a fault of a question that changes nothing; `what` names it.
    pub(super) fn fault(self, what: &str) -> Fault {
        match self {
            Failed::NotSent(fault) => fault,
            Failed::Silent(why) => unreachable(format!("{what}: {why}")),
            // Also for what sounds final: a server that is starting says that it has no
            // JetStream, and one that lost its peers that it has no such stream.
            Failed::Said(complaint) => unreachable(format!("{what}: {complaint}")),
        }
    }
}

pub(super) fn unreachable(text: String) -> Fault {
    Fault::new(Code::BrokerUnreachable, text)
}

/// Asks JetStream's API, for instance `STREAM.INFO.DETENT_JOURNAL`.
pub(super) async fn ask<A: DeserializeOwned>(
    broker: &Broker,
    subject: &str,
    question: &impl Serialize,
) -> Result<A, Failed> {
    ask_within(broker, broker.options.ack_timeout, subject, question).await
}

/// The same, for what takes longer.
pub(super) async fn ask_within<A: DeserializeOwned>(
    broker: &Broker,
    wait: Duration,
    subject: &str,
    question: &impl Serialize,
) -> Result<A, Failed> {
    let payload = serde_json::to_vec(question)
        .map_err(|e| Failed::NotSent(Fault::new(Code::InternalLogicError, e.to_string())))?;
    let subject = format!("{API}.{subject}");
    let answer = send(broker, wait, subject, HeaderMap::new(), payload.into()).await?;
    read_answer(&answer)
}

/// Puts a message into the stream that keeps `subject`; gives its sequence. The stream's
/// name is checked, so that a confirmation by anything else counts for nothing.
pub(super) async fn publish(
    broker: &Broker,
    stream: &str,
    subject: String,
    headers: HeaderMap,
    payload: Bytes,
) -> Result<u64, Failed> {
    let wait = broker.options.ack_timeout;
    publish_within(broker, wait, stream, subject, headers, payload).await
}

/// The same, for what takes longer.
pub(super) async fn publish_within(
    broker: &Broker,
    wait: Duration,
    stream: &str,
    subject: String,
    mut headers: HeaderMap,
    payload: Bytes,
) -> Result<u64, Failed> {
    headers.insert(async_nats::header::NATS_EXPECTED_STREAM, stream);
    let answer = send(broker, wait, subject, headers, payload).await?;
    let ack: Ack = read_answer(&answer)?;
    confirmed(&ack, stream)
}

/// What JetStream says to a message that it has stored.
#[derive(Debug, Deserialize)]
struct Ack {
    stream: String,
    seq: u64,
    #[serde(default)]
    duplicate: bool,
}

/// A duplicate was *not* stored: somebody's broker deduplicates what must not be.
fn confirmed(ack: &Ack, stream: &str) -> Result<u64, Failed> {
    if ack.stream != stream || ack.seq == 0 || ack.duplicate {
        let why = format!("a confirmation that is none of {stream}: {ack:?}");
        return Err(Failed::Silent(why));
    }
    Ok(ack.seq)
}

async fn send(
    broker: &Broker,
    wait: Duration,
    subject: String,
    headers: HeaderMap,
    payload: Bytes,
) -> Result<Bytes, Failed> {
    if broker.client.connection_state() != State::Connected {
        let text = format!("no connection to {}", broker.options.url);
        return Err(Failed::NotSent(unreachable(text)));
    }
    let mut place = broker.replies.place();
    let (to, reply) = (subject.clone(), place.subject.clone());
    let asked = async {
        let client = &broker.client;
        if headers.is_empty() {
            client.publish_with_reply(to, reply, payload).await?;
        } else {
            let sent = client.publish_with_reply_and_headers(to, reply, headers, payload);
            sent.await?;
        }
        Ok::<_, PublishError>(place.answer().await)
    };
    // The wait for room in the client's queue counts too.
    match tokio::time::timeout(wait, asked).await {
        Ok(Ok(Some(answer))) if answer.status == Some(StatusCode::NO_RESPONDERS) => {
            Err(Failed::Silent("nobody answers".into()))
        }
        Ok(Ok(Some(answer))) => Ok(answer.payload),
        Ok(Ok(None)) => Err(Failed::Silent("the connection is closed".into())),
        Ok(Err(e)) if e.kind() == PublishErrorKind::MaxPayloadExceeded => {
            let fault = Fault::new(Code::InputTooLarge, e.to_string());
            Err(Failed::NotSent(fault))
        }
        Ok(Err(e)) => Err(Failed::Silent(e.to_string())),
        Err(_) => {
            // A denial is told beside the request, which just gets no answer.
            let denied = broker.links.denied(&subject);
            let denied = denied.map_or(String::new(), |text| format!(" ({text})"));
            Err(Failed::Silent(format!("no answer within {wait:?}{denied}")))
        }
    }
}

fn read_answer<A: DeserializeOwned>(answer: &[u8]) -> Result<A, Failed> {
    #[derive(Deserialize)]
    struct Outcome {
        error: Option<Complaint>,
    }
    let unreadable = |e: serde_json::Error| Failed::Silent(format!("an unreadable answer: {e}"));
    let outcome: Outcome = serde_json::from_slice(answer).map_err(unreadable)?;
    match outcome.error {
        Some(complaint) => Err(Failed::Said(complaint)),
        None => serde_json::from_slice(answer).map_err(unreadable),
    }
}

/// Which message of a stream.
#[derive(Debug, Clone, Copy)]
pub(super) enum Which<'a> {
    /// The last one on a subject; wildcards are allowed.
    Last(&'a str),
    /// The first one on a subject with at least this sequence.
    From(&'a str, u64),
}

/// A message from the leader of a stream: no other replica answers this question.
pub(super) async fn from_leader(
    broker: &Broker,
    stream: &str,
    which: Which<'_>,
) -> Result<Option<StreamMessage>, Fault> {
    #[derive(Serialize)]
    struct Question<'a> {
        #[serde(skip_serializing_if = "Option::is_none")]
        last_by_subj: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        next_by_subj: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        seq: Option<u64>,
    }
    #[derive(Deserialize)]
    struct Answer {
        message: RawMessage,
    }
    let (last_by_subj, next_by_subj, seq) = match which {
        Which::Last(subject) => (Some(subject), None, None),
        Which::From(subject, seq) => (None, Some(subject), Some(seq)),
    };
    let question = Question {
        last_by_subj,
        next_by_subj,
        seq,
    };
    let asked: Result<Answer, _> =
        ask(broker, &format!("STREAM.MSG.GET.{stream}"), &question).await;
    match asked {
        Ok(answer) => StreamMessage::try_from(answer.message)
            .map(Some)
            .map_err(|e| unreachable(format!("{stream}: an unreadable message: {e}"))),
        Err(failed) if failed.is(code::NO_MESSAGE) => Ok(None),
        Err(failed) => Err(failed.fault(&format!("reading from {stream}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_told_from_complaints() {
        let ack: Ack = read_answer(br#"{"stream":"S","seq":7,"domain":"hub"}"#).unwrap();
        assert_eq!(confirmed(&ack, "S"), Ok(7));
        let said = br#"{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 5"},"stream":"S","seq":0}"#;
        let failed = read_answer::<Ack>(said).unwrap_err();
        assert!(failed.is(code::WRONG_LAST), "{failed:?}");
        let silent = |answer: &[u8]| matches!(read_answer::<Ack>(answer), Err(Failed::Silent(_)));
        assert!(silent(b"") && silent(b"-ERR") && silent(br#"{"stream":"S"}"#));
    }

    #[test]
    fn only_the_stream_itself_confirms() {
        let ack = |text: &str| read_answer::<Ack>(text.as_bytes()).unwrap();
        for other in [
            r#"{"stream":"OTHER","seq":7}"#,
            r#"{"stream":"S","seq":0}"#,
            r#"{"stream":"S","seq":7,"duplicate":true}"#,
        ] {
            assert!(confirmed(&ack(other), "S").is_err(), "{other}");
        }
    }

    #[test]
    fn a_question_that_failed_may_be_asked_again() {
        let said = |err_code| {
            let complaint = Complaint {
                err_code,
                ..Complaint::default()
            };
            Failed::Said(complaint).fault("reading").code
        };
        assert_eq!(said(code::NOT_AVAILABLE), Code::BrokerUnreachable);
        assert_eq!(said(code::NO_STREAM), Code::BrokerUnreachable);
        assert_eq!(said(10039), Code::BrokerUnreachable);
        let silent = Failed::Silent("no answer".into()).fault("reading");
        assert_eq!(silent.code, Code::BrokerUnreachable);
    }
}
