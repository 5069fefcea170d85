//! The claim check: puts large values aside as bodies and gets their parts back.
//!
//! What it promises: a body is kept before its claim is told; what is fetched has a
//! bound, and so has what is held in memory for it: at most [`AT_ONCE`] bodies at a
//! time, and of each no more than the wanted part is built.
//!
//! What it must not know: who asks, and what a value is for.

use crate::Blobs;
use bytes::Bytes;
use detent_protocol::claim::{Claim, Claimed, OVER_BYTES, Part};
use detent_protocol::{Code, Fault, GoalId, json};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Bodies that one claim check has in memory at the same time. One is at most
/// [`crate::BLOB_BYTES_MAX`].
pub const AT_ONCE: usize = 4;
/// Waits before each further try to keep or fetch a body, milliseconds.
const WAITS_MS: [u64; 3] = [100, 400, 1_500];

const _: () = assert!(crate::BLOB_BYTES_MAX as u64 >= detent_protocol::claim::OUTPUT_BYTES_MAX);

/// Puts aside and gets back. Clones share their bound.
#[derive(Clone)]
pub struct ClaimCheck {
    blobs: Arc<dyn Blobs>,
    at_once: Arc<Semaphore>,
}

impl ClaimCheck {
    /// On these bodies.
    pub fn new(blobs: Arc<dyn Blobs>) -> Self {
        Self {
            blobs,
            at_once: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }

    /// The value itself, or, where it is larger than [`OVER_BYTES`], the claim on its body,
    /// which is durable by then.
    ///
    /// # Errors
    /// [`Code::ResponseTooLarge`] where no body is that large; what the bus says when a
    /// body can't be kept, after some tries.
    pub async fn keep(&self, goal: &GoalId, value: Value) -> Result<Value, Fault> {
        if json::size_bytes(&value) <= OVER_BYTES {
            return Ok(value);
        }
        let _room = self.at_once.acquire().await;
        let goal = *goal;
        let (claim, body) = apart(move || Claim::keep(&goal, &value)).await?;
        let kept = again(|| self.blobs.put(body.clone())).await;
        let digest = kept.map_err(|fault| match fault.code {
            Code::InputTooLarge => Fault::new(Code::ResponseTooLarge, fault.message),
            _ => fault,
        })?;
        if digest != claim.digest {
            let message = format!("body {} was kept as {digest}", claim.digest);
            return Err(Fault::new(Code::InternalLogicError, message));
        }
        Ok(claim.to_output())
    }

    /// Puts what is claimed into its places in `value`; with it the value is at most
    /// `bytes_max` of JSON text.
    ///
    /// # Errors
    /// With the place: [`Code::ReferenceMissing`] where the output has no such part,
    /// [`Code::InputTooLarge`], [`Code::ToolUnavailable`] where the body is not there (a
    /// copy of it may be under way), [`Code::JournalCorrupt`] where it is damaged or not
    /// the goal's, and what the bus says when it can't be asked, after some tries.
    pub async fn fetch(
        &self,
        goal: &GoalId,
        value: &mut Value,
        claims: &[Claimed],
        bytes_max: usize,
    ) -> Result<(), Fault> {
        let mut left = bytes_max.saturating_sub(json::size_bytes(value));
        for claimed in claims {
            let part = self.part(goal, &claimed.part, left).await;
            let part = part.map_err(|fault| fault.at(claimed.at.as_str()))?;
            left = left.saturating_sub(json::size_bytes(&part));
            let place = value.pointer_mut(&claimed.at).ok_or_else(|| {
                let message = "a place that is to be fetched is not there";
                Fault::new(Code::InputInvalid, message).at(claimed.at.as_str())
            })?;
            *place = part;
        }
        Ok(())
    }

    async fn part(&self, goal: &GoalId, part: &Part, bytes_max: usize) -> Result<Value, Fault> {
        if part.pointer.is_empty() && part.bytes > bytes_max as u64 {
            let message = format!(
                "an earlier output of {} bytes; {bytes_max} are left of what may be fetched",
                part.bytes
            );
            return Err(Fault::new(Code::InputTooLarge, message));
        }
        let _room = self.at_once.acquire().await;
        let body = self.body(part).await?;
        let (goal, part) = (*goal, part.clone());
        apart(move || part.take(&goal, &body, bytes_max)).await?
    }

    async fn body(&self, part: &Part) -> Result<Bytes, Fault> {
        again(|| async {
            let body = self.blobs.get(&part.digest).await?;
            body.ok_or_else(|| {
                let message = format!("the body {} of an earlier output is not there", part.digest);
                Fault::new(Code::ToolUnavailable, message)
            })
        })
        .await
    }
}

/// Tries again where that may help; a body is named by its hash, so twice is as once.
async fn again<T, F>(work: impl Fn() -> F) -> Result<T, Fault>
where
    F: Future<Output = Result<T, Fault>>,
{
    let mut waits = WAITS_MS.iter();
    loop {
        match (work().await, waits.next()) {
            (Err(fault), Some(ms)) if fault.code.retryable() => {
                tracing::warn!(%fault, "a body was not to be had; trying again");
                tokio::time::sleep(Duration::from_millis(*ms)).await;
            }
            (done, _) => return done,
        }
    }
}

/// Work on megabytes, on a thread where nothing else waits for it.
async fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Fault> {
    tokio::task::spawn_blocking(work).await.map_err(|e| {
        let message = format!("work on a body ended early: {e}");
        Fault::new(Code::InternalLogicError, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::{LocalBus, LocalOptions};
    use detent_store::{Store, StoreOptions};
    use serde_json::json;
    use tempfile::TempDir;

    fn goal() -> GoalId {
        GoalId::from_bytes([1; 16])
    }

    fn open() -> (TempDir, Arc<dyn Blobs>) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(StoreOptions::journal(dir.path().join("store"))).unwrap();
        let bus = LocalBus::open(LocalOptions::new(store, dir.path().join("blobs"))).unwrap();
        (dir, bus.blobs)
    }

    fn rows(n: usize) -> Value {
        json!({"count": n, "rows": vec![json!({"product": "tea"}); n]})
    }

    #[tokio::test]
    async fn what_is_small_stays_and_what_is_large_comes_back() {
        let (_dir, blobs) = open();
        let check = ClaimCheck::new(blobs);
        assert_eq!(check.keep(&goal(), rows(10)).await.unwrap(), rows(10));
        let kept = check.keep(&goal(), rows(100_000)).await.unwrap();
        let claim = Claim::of(&kept).unwrap();
        assert_eq!(claim.inline["count"], 100_000);
        let mut claims = claim.find("/rows/9").unwrap().claims;
        claims[0].at = "/row".into();
        let mut args = json!({"row": null, "n": 1});
        check
            .fetch(&goal(), &mut args, &claims, 1_000)
            .await
            .unwrap();
        assert_eq!(args, json!({"row": {"product": "tea"}, "n": 1}));
        let whole = claim.find("").unwrap();
        let mut value = whole.value;
        check
            .fetch(&goal(), &mut value, &whole.claims, 1 << 30)
            .await
            .unwrap();
        assert_eq!(value, rows(100_000));
    }

    #[tokio::test]
    async fn what_can_not_be_fetched_is_said_with_its_place() {
        let (_dir, blobs) = open();
        let check = ClaimCheck::new(Arc::clone(&blobs));
        let kept = check.keep(&goal(), rows(100_000)).await.unwrap();
        let claim = Claim::of(&kept).unwrap();
        let fetch = async |of: &GoalId, pointer: &str, max| {
            let mut claims = claim.find(pointer).unwrap().claims;
            claims[0].at = "/x".into();
            let mut args = json!({"x": null});
            let fetched = check.fetch(of, &mut args, &claims, max).await;
            let fault = fetched.unwrap_err();
            assert_eq!(fault.at.as_deref(), Some("/x"), "{fault}");
            fault.code
        };
        let other = GoalId::from_bytes([2; 16]);
        assert_eq!(
            fetch(&goal(), "/rows/no", 1 << 30).await,
            Code::ReferenceMissing
        );
        assert_eq!(fetch(&goal(), "/rows", 100_000).await, Code::InputTooLarge);
        assert_eq!(fetch(&goal(), "", 100_000).await, Code::InputTooLarge);
        assert_eq!(fetch(&other, "/rows", 1 << 30).await, Code::JournalCorrupt);
        blobs.remove(&claim.digest).await.unwrap();
        assert_eq!(
            fetch(&goal(), "/rows", 1 << 30).await,
            Code::ToolUnavailable
        );
    }

    #[tokio::test]
    async fn two_places_together_have_the_bound() {
        let (_dir, blobs) = open();
        let check = ClaimCheck::new(blobs);
        let kept = check.keep(&goal(), rows(100_000)).await.unwrap();
        let mut claims = Claim::of(&kept).unwrap().find("/rows").unwrap().claims;
        let bytes = json::size_bytes(&rows(100_000)["rows"]);
        claims[0].at = "/a".into();
        let fetch = async |claims: &[Claimed]| {
            let mut args = json!({"a": null, "b": null});
            let max = bytes + 100;
            check
                .fetch(&goal(), &mut args, claims, max)
                .await
                .map_err(|f| f.code)
        };
        assert_eq!(fetch(&claims).await, Ok(()));
        claims.push(Claimed {
            at: "/b".into(),
            ..claims[0].clone()
        });
        assert_eq!(fetch(&claims).await, Err(Code::InputTooLarge));
    }
}
