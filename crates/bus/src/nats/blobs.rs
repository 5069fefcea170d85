//! Bodies in an object store, named by their hash.
//!
//! The layout is the one of NATS's object stores, so that its tools list and read them. It
//! is written here and not by the client, whose `put` is no "once": of two at the same
//! time both stay for ever, and it throws away the chunks that a reader is just reading.
//!
//! Promises: keeping twice is keeping once; what is given back was compared with its hash.
//! What a put leaves behind that was broken off is chunks which nothing refers to.
//!
//! Must not know: what is in a body.

use super::api::{self, Failed, Which};
use super::fence::{PAUSE, TRIES, passes};
use super::verdict::{Verdict, judge};
use super::{Broker, NatsOptions};
use crate::{BLOB_BYTES_MAX, Blobs};
use async_nats::HeaderMap;
use async_nats::header::NATS_EXPECTED_LAST_SUBJECT_SEQUENCE;
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::object_store::{ObjectInfo, ObjectOptions};
use async_nats::jetstream::stream::{Config, DiscardPolicy, StorageType};
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use detent_protocol::json::Digest;
use detent_protocol::{Code, Fault};
use std::time::Duration;

/// The object store's stream.
pub const BLOBS: &str = "OBJ_DETENT_BLOBS";
const BUCKET: &str = "DETENT_BLOBS";
/// Bytes of a chunk: with JSON and base64 around it, as it is read, it fits into a message.
const CHUNK_BYTES: usize = 512 * 1024;

/// For the confirmation of a chunk.
const CHUNK_WAIT: Duration = Duration::from_secs(10);
/// How often a part is asked for, and the pause in between.
const READ_TRIES: u32 = 4;
const READ_PAUSE: Duration = Duration::from_millis(100);

/// Settings of the store's stream.
pub(super) fn stream(options: &NatsOptions) -> Config {
    Config {
        name: BLOBS.into(),
        description: Some("Bodies of Detent's goals".into()),
        subjects: vec![format!("$O.{BUCKET}.C.>"), format!("$O.{BUCKET}.M.>")],
        storage: StorageType::File,
        num_replicas: options.replicas,
        discard: DiscardPolicy::New,
        max_messages: -1,
        max_messages_per_subject: -1,
        max_bytes: i64::try_from(options.blobs_bytes_max).unwrap_or(i64::MAX),
        allow_rollup: true,
        allow_direct: true,
        ..Config::default()
    }
}

/// Bodies of a cluster.
pub(crate) struct NatsBlobs {
    broker: Broker,
}

/// The body's entry in the store.
struct Found {
    sequence: u64,
    info: ObjectInfo,
}

impl NatsBlobs {
    /// Bodies over a connection. The stream has to be there.
    pub(crate) fn new(broker: Broker) -> Self {
        Self { broker }
    }

    async fn find(&self, digest: &Digest) -> Result<Option<Found>, Fault> {
        let subject = entry(digest);
        let last = self.read(Which::Last(&subject)).await?;
        let Some(message) = last else { return Ok(None) };
        let info = serde_json::from_slice(&message.payload);
        let info: ObjectInfo = info.map_err(|e| damaged(digest, &format!("its entry: {e}")))?;
        let sequence = message.sequence;
        Ok(Some(Found { sequence, info }))
    }

    /// Writes the chunks; gives how many.
    async fn write_chunks(&self, id: &str, body: &Bytes) -> Result<usize, Fault> {
        let mut count = 0;
        // One after the other: their order is the body's.
        for chunk in body.chunks(CHUNK_BYTES) {
            let (subject, chunk) = (chunks(id), body.slice_ref(chunk));
            let (broker, headers) = (&self.broker, HeaderMap::new());
            let sent = api::publish_within(broker, CHUNK_WAIT, BLOBS, subject, headers, chunk);
            sent.await.map_err(not_kept)?;
            count += 1;
        }
        Ok(count)
    }

    /// Removes what is on `subject` before sequence `before` (0: all of it).
    async fn purge(&self, subject: &str, before: u64) -> Result<(), Fault> {
        let api = format!("STREAM.PURGE.{BLOBS}");
        let mut question = serde_json::json!({ "filter": subject });
        if before > 0 {
            question["seq"] = before.into();
        }
        let asked = api::ask::<serde_json::Value>(&self.broker, &api, &question);
        asked
            .await
            .map(drop)
            .map_err(|failed| failed.fault("removing a body"))
    }

    /// Removes chunks that nothing refers to. They harm nobody: a failure is only logged.
    async fn remove_chunks(&self, id: &str) {
        if let Err(fault) = self.purge(&chunks(id), 0).await {
            tracing::warn!(%fault, id, "chunks of a body stay behind");
        }
    }

    /// Writes the entry of chunks that stand, where `after` stands; settles an unclear
    /// answer.
    async fn enter(&self, digest: &Digest, info: &ObjectInfo, after: u64) -> Result<(), Fault> {
        let mut pause = PAUSE;
        for tries in 1.. {
            let Err(failed) = self.write_entry(digest, info, after).await else {
                return Ok(());
            };
            match self.find(digest).await? {
                Some(found) if found.info.nuid == info.nuid => return Ok(()),
                // Somebody else was faster.
                Some(found) if !found.info.deleted => {
                    self.remove_chunks(&info.nuid).await;
                    return Ok(());
                }
                // The entry may still come, and then it needs the chunks.
                _ if tries == TRIES || !passes(&failed) => return Err(not_kept(failed)),
                _ => tokio::time::sleep(pause).await,
            }
            pause *= 2;
        }
        Ok(())
    }

    /// Reads from the leader, again for a while where it does not answer.
    async fn read(&self, which: Which<'_>) -> Result<Option<StreamMessage>, Fault> {
        let mut tries = 0;
        loop {
            tries += 1;
            match api::from_leader(&self.broker, BLOBS, which).await {
                Err(fault) if fault.code.retryable() && tries < READ_TRIES => {
                    tokio::time::sleep(READ_PAUSE).await;
                }
                done => return done,
            }
        }
    }

    async fn write_entry(
        &self,
        digest: &Digest,
        info: &ObjectInfo,
        after: u64,
    ) -> Result<(), Failed> {
        let payload = serde_json::to_vec(info)
            .map_err(|e| Failed::NotSent(Fault::new(Code::InternalLogicError, e.to_string())))?;
        let mut headers = HeaderMap::new();
        headers.insert(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, after.to_string());
        let subject = entry(digest);
        let sent = api::publish(&self.broker, BLOBS, subject, headers, payload.into());
        sent.await.map(drop)
    }
}

#[async_trait]
impl Blobs for NatsBlobs {
    async fn put(&self, body: Bytes) -> Result<Digest, Fault> {
        if body.len() > BLOB_BYTES_MAX {
            let text = format!(
                "a body of {} bytes; it can have {BLOB_BYTES_MAX}",
                body.len()
            );
            return Err(Fault::new(Code::InputTooLarge, text));
        }
        let digest = Digest::of_bytes(&body);
        let before = self.find(&digest).await?;
        let after = match before {
            Some(found) if !found.info.deleted => return Ok(digest),
            found => found.map_or(0, |found| found.sequence),
        };
        // The last part of a new inbox is unlike any other.
        let inbox = self.broker.client.new_inbox();
        let id = inbox.rsplit('.').next().unwrap_or(&inbox);
        let chunks = match self.write_chunks(id, &body).await {
            Ok(chunks) => chunks,
            Err(fault) => {
                self.remove_chunks(id).await;
                return Err(fault);
            }
        };
        let info = info(&digest, id, body.len(), chunks);
        self.enter(&digest, &info, after).await?;
        Ok(digest)
    }

    async fn get(&self, digest: &Digest) -> Result<Option<Bytes>, Fault> {
        let found = self.find(digest).await?;
        let Some(info) = found.map(|found| found.info).filter(|info| !info.deleted) else {
            return Ok(None);
        };
        check(digest, &info)?;
        let subject = chunks(&info.nuid);
        let mut body = BytesMut::with_capacity(info.size);
        let mut next = 1;
        while body.len() < info.size {
            let chunk = self.read(Which::From(&subject, next)).await?;
            let Some(chunk) = chunk.filter(|chunk| !chunk.payload.is_empty()) else {
                let text = format!("{} of its {} bytes are there", body.len(), info.size);
                return Err(damaged(digest, &text));
            };
            next = chunk.sequence + 1;
            body.extend_from_slice(&chunk.payload);
        }
        match Digest::of_bytes(&body) == *digest {
            true => Ok(Some(body.freeze())),
            false => Err(damaged(digest, "its hash is another one")),
        }
    }

    async fn remove(&self, digest: &Digest) -> Result<(), Fault> {
        let Some(found) = self.find(digest).await? else {
            return Ok(());
        };
        check(digest, &found.info)?;
        // The entry first: without it nobody looks for the chunks.
        self.purge(&entry(digest), found.sequence + 1).await?;
        self.purge(&chunks(&found.info.nuid), 0).await
    }
}

/// What stands in the entry becomes a subject and a size.
fn check(digest: &Digest, info: &ObjectInfo) -> Result<(), Fault> {
    let fits = |c: char| c.is_ascii_alphanumeric();
    match !info.nuid.is_empty() && info.nuid.chars().all(fits) && info.size <= BLOB_BYTES_MAX {
        true => Ok(()),
        false => Err(damaged(digest, "its entry")),
    }
}

fn damaged(digest: &Digest, what: &str) -> Fault {
    let text = format!("a body in {BLOBS} is damaged: {what}");
    Fault::new(Code::JournalCorrupt, text).at(digest.to_string())
}

fn not_kept(failed: Failed) -> Fault {
    match judge(failed.clone(), BLOBS, 0) {
        Verdict::Refused(fault) if fault.code == Code::JournalStorage => {
            let text = format!("{BLOBS} is full; raise `nats.blobs_bytes_max` and its `max_bytes`");
            Fault::new(Code::JournalStorage, text)
        }
        Verdict::Refused(fault) => fault,
        _ => failed.fault("keeping a body"),
    }
}

fn info(digest: &Digest, id: &str, size: usize, chunks: usize) -> ObjectInfo {
    ObjectInfo {
        name: digest.to_string(),
        description: None,
        metadata: Default::default(),
        headers: None,
        options: Some(ObjectOptions {
            link: None,
            max_chunk_size: Some(CHUNK_BYTES),
        }),
        bucket: BUCKET.into(),
        nuid: id.into(),
        size,
        chunks,
        modified: Some(async_nats::datetime::now()),
        digest: Some(format!("SHA-256={}", base64(&bytes_of(digest)))),
        deleted: false,
    }
}

fn bytes_of(digest: &Digest) -> Vec<u8> {
    let hex = digest.to_string();
    let pairs = (0..hex.len()).step_by(2);
    let bytes = pairs.filter_map(|at| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok());
    bytes.collect()
}

fn entry(digest: &Digest) -> String {
    format!("$O.{BUCKET}.M.{}", base64(digest.to_string().as_bytes()))
}

fn chunks(id: &str) -> String {
    format!("$O.{BUCKET}.C.{id}")
}

/// As in URLs, padded.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let whole = group
            .iter()
            .fold(0, |all, byte| all << 8 | u32::from(*byte));
        let whole = whole << (8 * (3 - group.len()));
        for digit in 0..4 {
            let value = (whole >> (18 - 6 * digit)) as usize & 63;
            let filled = digit <= group.len();
            text.push(if filled {
                char::from(DIGITS[value])
            } else {
                '='
            });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_as_in_the_standard() {
        for (bytes, text) in [
            (&b""[..], ""),
            (b"f", "Zg=="),
            (b"fo", "Zm8="),
            (b"foo", "Zm9v"),
            (b"foob", "Zm9vYg=="),
            (b"\xfb\xff", "-_8="),
        ] {
            assert_eq!(base64(bytes), text);
        }
    }
}
