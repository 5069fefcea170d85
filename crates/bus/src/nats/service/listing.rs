//! Tells the tools of NATS what is served: `$SRV.PING`, `INFO` and `STATS`.

use super::{Broker, may_be_told};
use async_nats::datetime::DateTime;
use async_nats::{Client, Message, SubscribeError};
use bytes::Bytes;
use futures::stream::{StreamExt, select_all};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The service's name.
const NAME: &str = "detent";
const DESCRIPTION: &str = "Runs goals to a verified result";

/// What is served on one connection.
pub(super) struct Listing {
    id: String,
    node: String,
    started: String,
    entries: Mutex<Vec<Arc<Entry>>>,
}

/// One endpoint.
pub(super) struct Entry {
    subject: String,
    group: String,
    counts: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    requests: u64,
    errors: u64,
    took: Duration,
    last_error: String,
}

impl Listing {
    /// Answers until `open` ends.
    pub(super) async fn open(
        broker: &Broker,
        open: CancellationToken,
    ) -> Result<Arc<Self>, SubscribeError> {
        let client = &broker.client;
        // The last part of a new inbox is unlike any other.
        let inbox = client.new_inbox();
        let id = inbox.rsplit('.').next().unwrap_or(&inbox).to_owned();
        let mut questions = Vec::new();
        for to in [
            "$SRV.*".into(),
            format!("$SRV.*.{NAME}"),
            format!("$SRV.*.{NAME}.{id}"),
        ] {
            questions.push(client.subscribe(to).await?);
        }
        let listing = Arc::new(Self {
            id,
            node: broker.options.name.clone(),
            started: shown(async_nats::datetime::now()),
            entries: Mutex::default(),
        });
        let (answering, client) = (Arc::clone(&listing), client.clone());
        tokio::spawn(async move {
            let mut questions = select_all(questions);
            let answers = async {
                while let Some(question) = questions.next().await {
                    answering.answer(&client, question).await;
                }
            };
            open.run_until_cancelled(answers).await;
        });
        Ok(listing)
    }

    pub(super) fn add(&self, subject: &str, group: &str) -> Arc<Entry> {
        let entry = Arc::new(Entry {
            subject: subject.to_owned(),
            group: group.to_owned(),
            counts: Mutex::default(),
        });
        self.entries().push(Arc::clone(&entry));
        entry
    }

    pub(super) fn remove(&self, entry: &Arc<Entry>) {
        self.entries().retain(|other| !Arc::ptr_eq(other, entry));
    }

    async fn answer(&self, client: &Client, question: Message) {
        let verb = question.subject.split('.').nth(1).unwrap_or_default();
        let (Some(answer), Some(reply)) = (self.say(verb), question.reply) else {
            return;
        };
        if !may_be_told(&reply) {
            return;
        }
        // Who asked sees that nothing comes.
        let _ = client.publish(reply, Bytes::from(answer.to_string())).await;
    }

    fn say(&self, verb: &str) -> Option<Value> {
        let mut answer = json!({
            "name": NAME,
            "id": self.id,
            "version": env!("CARGO_PKG_VERSION"),
            "metadata": { "node": self.node },
        });
        let entries = self.entries();
        let kind = match verb {
            "PING" => "ping_response",
            "INFO" => {
                answer["description"] = DESCRIPTION.into();
                answer["endpoints"] = entries.iter().map(|entry| entry.info()).collect();
                "info_response"
            }
            "STATS" => {
                answer["started"] = self.started.as_str().into();
                answer["endpoints"] = entries.iter().map(|entry| entry.stats()).collect();
                "stats_response"
            }
            _ => return None,
        };
        answer["type"] = format!("io.nats.micro.v1.{kind}").into();
        Some(answer)
    }

    fn entries(&self) -> MutexGuard<'_, Vec<Arc<Entry>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A time as the tools read it (RFC 3339).
fn shown(time: DateTime) -> String {
    let (date, month) = (time.date(), u8::from(time.month()));
    let (hour, minute, second) = time.time().as_hms();
    let (year, day) = (date.year(), date.day());
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

impl Entry {
    /// A request was answered after `took`.
    pub(super) fn answered(&self, took: Duration) {
        let mut counts = self.counts();
        counts.requests += 1;
        counts.took += took;
    }

    /// A request was refused after `took`.
    pub(super) fn refused(&self, took: Duration, code: usize, text: &str) {
        let mut counts = self.counts();
        counts.requests += 1;
        counts.errors += 1;
        counts.took += took;
        counts.last_error = format!("{code}:{text}");
    }

    fn info(&self) -> Value {
        json!({
            "name": listed(&self.subject),
            "subject": self.subject,
            "queue_group": self.group,
            "metadata": {},
        })
    }

    fn stats(&self) -> Value {
        let counts = self.counts();
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let took = nanos(counts.took);
        json!({
            "name": listed(&self.subject),
            "subject": self.subject,
            "queue_group": self.group,
            "num_requests": counts.requests,
            "num_errors": counts.errors,
            "last_error": counts.last_error,
            "processing_time": took,
            "average_processing_time": took / counts.requests.max(1),
        })
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The name of an endpoint: only letters, digits, `-` and `_` are allowed.
fn listed(pattern: &str) -> String {
    let name = pattern.replace('*', "any").replace('>', "rest");
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    name.chars()
        .map(|c| if fits(c) { c } else { '-' })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_shown_as_the_tools_read_it() {
        let wanted = "2026-03-04T05:06:07Z";
        let time = async_nats::datetime::parse_rfc3339(wanted).unwrap();
        assert_eq!(shown(time), wanted);
    }

    #[test]
    fn names_in_the_listing_are_allowed_ones() {
        assert_eq!(listed("detent.*.submit.*"), "detent-any-submit-any");
        assert_eq!(listed("detent.tool.>"), "detent-tool-rest");
    }
}
