//! Bodies in memory.

use super::{Port, lock};
use async_trait::async_trait;
use bytes::Bytes;
use detent_bus::{BLOB_BYTES_MAX, Blobs};
use detent_protocol::json::Digest;
use detent_protocol::{Code, Fault};

#[async_trait]
impl Blobs for Port {
    async fn put(&self, body: Bytes) -> Result<Digest, Fault> {
        self.point("blob").await;
        if body.len() > BLOB_BYTES_MAX {
            let text = format!("{} bytes; a body has {BLOB_BYTES_MAX}", body.len());
            return Err(Fault::new(Code::InputTooLarge, text));
        }
        let digest = Digest::of_bytes(&body);
        lock(&self.fabric.blobs).insert(digest, body);
        self.point("blob kept").await;
        Ok(digest)
    }

    async fn get(&self, digest: &Digest) -> Result<Option<Bytes>, Fault> {
        self.point("blob read").await;
        Ok(lock(&self.fabric.blobs).get(digest).cloned())
    }

    async fn remove(&self, digest: &Digest) -> Result<(), Fault> {
        self.point("blob removed").await;
        lock(&self.fabric.blobs).remove(digest);
        Ok(())
    }
}
