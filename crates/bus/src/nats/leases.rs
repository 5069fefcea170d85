//! Leases as entries of a key-value bucket that lapse by themselves.
//!
//! Promises: a lease is taken, renewed and given back under the sequence that was seen
//! last, so of two one wins, and a holder that lost it is refused. Its end is the
//! broker's: a node's clock has no part in it. An unclear answer is settled by reading
//! from the leader; what is still unclear then is an error, and the lease counts as not
//! held.
//!
//! The time to live is counted in whole seconds, 1 s at least, rounded up.
//!
//! Must not know: what the names mean.

use super::api::{self, Failed, Which, unreachable};
use super::fence::{PAUSE, TRIES, passes};
use super::{Broker, NatsOptions};
use crate::{Lease, Leases};
use async_nats::HeaderMap;
use async_nats::header::{NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, NATS_MESSAGE_TTL};
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::{Config, DiscardPolicy, StorageType};
use async_trait::async_trait;
use bytes::Bytes;
use detent_protocol::{Code, Fault, NodeId};
use std::fmt::Write as _;
use std::time::Duration;

/// The bucket's stream.
pub const LEASES: &str = "KV_DETENT_LEASES";
const SUBJECT: &str = "$KV.DETENT_LEASES.";
/// On an entry that ends another, as the key-value clients know it.
const OPERATION: &str = "KV-Operation";
const DELETED: &str = "DEL";
/// On an entry that the broker itself puts where one has lapsed.
const MARKER: &str = "Nats-Marker-Reason";
/// Unlike any other attempt's.
const NONCE: &str = "Detent-Nonce";
/// Longest name, bytes.
const NAME_BYTES_MAX: usize = 512;
/// Most bytes of all leases.
const BYTES_MAX: i64 = 16 << 20;
/// How long a trace of a lapsed or released lease stays.
const MARKER_KEPT: Duration = Duration::from_secs(60);
/// Longest time to live, seconds: 10 years.
const TTL_S_MAX: u64 = 10 * 365 * 24 * 3600;
/// Settings of the bucket's stream.
pub(super) fn stream(options: &NatsOptions) -> Config {
    Config {
        name: LEASES.into(),
        description: Some("Leases of Detent's nodes".into()),
        subjects: vec![format!("{SUBJECT}>")],
        storage: StorageType::File,
        num_replicas: options.replicas,
        discard: DiscardPolicy::New,
        max_messages: -1,
        max_messages_per_subject: 1,
        max_bytes: BYTES_MAX,
        max_message_size: 4096,
        deny_delete: true,
        allow_rollup: true,
        allow_direct: true,
        allow_message_ttl: true,
        subject_delete_marker_ttl: Some(MARKER_KEPT),
        ..Config::default()
    }
}

/// Leases of all nodes of a cluster.
pub(crate) struct NatsLeases {
    broker: Broker,
}

/// What stands under a name.
enum Standing {
    /// Nothing; the sequence that a new one has to follow.
    Free(u64),
    /// A lease, and the nonce of the attempt that made it.
    Held(Lease, Option<String>),
}

/// What came of a write.
enum Written {
    /// It stands, with this sequence.
    Done(u64),
    /// It does not: this does.
    Lost(Standing),
}

impl NatsLeases {
    /// Leases over a connection. The stream has to be there.
    pub(crate) fn new(broker: Broker) -> Self {
        Self { broker }
    }

    async fn standing(&self, name: &str) -> Result<Standing, Fault> {
        let subject = subject(name);
        let last = api::from_leader(&self.broker, LEASES, Which::Last(&subject)).await?;
        Ok(last.map_or(Standing::Free(0), |message| standing(name, &message)))
    }

    /// Writes where `after` stands; settles an unclear answer.
    async fn write(
        &self,
        name: &str,
        after: u64,
        mut headers: HeaderMap,
        value: &str,
    ) -> Result<Written, Fault> {
        let nonce = self.broker.client.new_inbox();
        headers.insert(NONCE, nonce.as_str());
        headers.insert(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, after.to_string());
        let payload = Bytes::copy_from_slice(value.as_bytes());
        let mut pause = PAUSE;
        let mut failed = None;
        for _ in 0..TRIES {
            let (headers, payload) = (headers.clone(), payload.clone());
            let sent = api::publish(&self.broker, LEASES, subject(name), headers, payload);
            let why = match sent.await {
                Ok(sequence) => return Ok(Written::Done(sequence)),
                Err(Failed::NotSent(fault)) => return Err(fault),
                Err(why) => why,
            };
            let standing = self.standing(name).await?;
            match &standing {
                Standing::Held(lease, by) if by.as_ref() == Some(&nonce) => {
                    return Ok(Written::Done(lease.revision));
                }
                Standing::Held(lease, _) if lease.revision != after => {
                    return Ok(Written::Lost(standing));
                }
                Standing::Free(last) if *last != after => return Ok(Written::Lost(standing)),
                // What it should follow still stands: it was refused for a moment, or is
                // on its way, or was lost.
                _ => {}
            }
            if !passes(&why) {
                return Err(why.fault(&format!("the lease {name:?}")));
            }
            failed = Some(why);
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
        let why = failed.map(|why| why.fault(&format!("the lease {name:?}")));
        Err(why.unwrap_or_else(|| unreachable(format!("the lease {name:?}"))))
    }
}

fn standing(name: &str, message: &StreamMessage) -> Standing {
    let headers = &message.headers;
    let ended = headers.get(OPERATION).is_some() || headers.get(MARKER).is_some();
    let holder = std::str::from_utf8(&message.payload).ok();
    let holder = holder.and_then(|holder| NodeId::new(holder).ok());
    match holder {
        Some(holder) if !ended => {
            let lease = Lease {
                name: name.to_owned(),
                holder,
                revision: message.sequence,
            };
            let nonce = headers.get(NONCE).map(|nonce| nonce.as_str().to_owned());
            Standing::Held(lease, nonce)
        }
        _ => Standing::Free(message.sequence),
    }
}

fn live_for(ttl: Duration) -> HeaderMap {
    let more = u64::from(ttl.subsec_nanos() > 0);
    let whole = ttl.as_secs().saturating_add(more);
    let mut headers = HeaderMap::new();
    headers.insert(NATS_MESSAGE_TTL, format!("{}s", whole.clamp(1, TTL_S_MAX)));
    headers
}

fn subject(name: &str) -> String {
    let mut subject = String::from(SUBJECT);
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'/' => {
                subject.push(char::from(byte));
            }
            // One token whatever the name is. Writing to a string does not fail.
            _ => {
                let _ = write!(subject, "={byte:02X}");
            }
        }
    }
    subject
}

fn name(subject: &str) -> Option<String> {
    let mut bytes = subject.strip_prefix(SUBJECT)?.bytes();
    let mut name = Vec::new();
    while let Some(byte) = bytes.next() {
        name.push(match byte {
            b'=' => {
                let digits = [bytes.next()?, bytes.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(name).ok()
}

#[async_trait]
impl Leases for NatsLeases {
    async fn acquire(
        &self,
        name: &str,
        holder: &NodeId,
        ttl: Duration,
    ) -> Result<Result<Lease, NodeId>, Fault> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            let text = format!("a lease's name has 1 to {NAME_BYTES_MAX} bytes");
            return Err(Fault::new(Code::InputInvalid, text));
        }
        let mut after = 0;
        for _ in 0..TRIES {
            let written = self.write(name, after, live_for(ttl), holder.as_str());
            match written.await? {
                Written::Done(revision) => {
                    return Ok(Ok(Lease {
                        name: name.to_owned(),
                        holder: holder.clone(),
                        revision,
                    }));
                }
                Written::Lost(Standing::Held(lease, _)) => return Ok(Err(lease.holder)),
                Written::Lost(Standing::Free(last)) => after = last,
            }
        }
        let text = format!("the lease {name:?} changed {TRIES} times while it was asked for");
        Err(unreachable(text))
    }

    async fn renew(&self, lease: &Lease, ttl: Duration) -> Result<Option<Lease>, Fault> {
        let (name, holder) = (&lease.name, lease.holder.as_str());
        let written = self.write(name, lease.revision, live_for(ttl), holder);
        Ok(match written.await? {
            Written::Done(revision) => Some(Lease {
                revision,
                ..lease.clone()
            }),
            Written::Lost(_) => None,
        })
    }

    async fn release(&self, lease: &Lease) -> Result<(), Fault> {
        let mut headers = live_for(MARKER_KEPT);
        headers.insert(OPERATION, DELETED);
        // Lost before: then there is nothing to give back.
        let written = self.write(&lease.name, lease.revision, headers, "");
        written.await.map(drop)
    }

    async fn held(&self, prefix: &str) -> Result<Vec<Lease>, Fault> {
        let all = format!("{SUBJECT}>");
        let mut held = Vec::new();
        let mut next = 1;
        while let Some(message) =
            api::from_leader(&self.broker, LEASES, Which::From(&all, next)).await?
        {
            next = message.sequence + 1;
            let name = name(&message.subject).filter(|name| name.starts_with(prefix));
            if let Some(name) = name
                && let Standing::Held(lease, _) = standing(&name, &message)
            {
                held.push(lease);
            }
        }
        held.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_is_one_token() {
        for wanted in ["shard-10", "a.b", "*", ">", "ä =", "node/x", "="] {
            let subject = subject(wanted);
            let token = subject.strip_prefix(SUBJECT).unwrap();
            let fits = |c: char| c.is_ascii_alphanumeric() || "-_/=".contains(c);
            assert!(token.chars().all(fits), "{subject}");
            assert_eq!(name(&subject).as_deref(), Some(wanted));
        }
        assert_eq!(subject("shard-10"), "$KV.DETENT_LEASES.shard-10");
    }

    #[test]
    fn a_time_to_live_is_rounded_up_to_whole_seconds() {
        let ttl = |ttl| {
            live_for(ttl)
                .get(NATS_MESSAGE_TTL)
                .map(|v| v.as_str().to_owned())
        };
        assert_eq!(ttl(Duration::ZERO).as_deref(), Some("1s"));
        assert_eq!(ttl(Duration::from_millis(2001)).as_deref(), Some("3s"));
        assert_eq!(ttl(Duration::MAX).as_deref(), Some("315360000s"));
    }
}
