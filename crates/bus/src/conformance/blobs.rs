//! Bodies.

use crate::{BLOB_BYTES_MAX, Bus};
use bytes::Bytes;
use detent_protocol::json::Digest;
use tokio::task::JoinSet;

pub(super) async fn a_body_comes_back(bus: Bus) {
    for len in [0, 1, 300_000, 5 << 20] {
        let body: Bytes = (0..len).map(|n: u32| n.to_le_bytes()[1]).collect();
        let digest = bus.blobs.put(body.clone()).await.expect("kept");
        assert_eq!(digest, Digest::of_bytes(&body));
        assert_eq!(bus.blobs.get(&digest).await, Ok(Some(body)));
    }
}

pub(super) async fn keeping_twice_is_keeping_once(bus: Bus) {
    let body = Bytes::from(vec![3; 100_000]);
    let mut writers = JoinSet::new();
    for _ in 0..16 {
        let (bus, body) = (bus.clone(), body.clone());
        writers.spawn(async move { bus.blobs.put(body).await });
    }
    let digest = Digest::of_bytes(&body);
    let kept = writers.join_all().await;
    assert!(kept.into_iter().all(|kept| kept == Ok(digest)));
    assert_eq!(bus.blobs.get(&digest).await, Ok(Some(body)));
}

pub(super) async fn an_unknown_hash_has_no_body(bus: Bus) {
    let unknown = Digest::of_bytes(b"never kept");
    assert_eq!(bus.blobs.get(&unknown).await, Ok(None));
}

pub(super) async fn a_body_has_a_bound(bus: Bus) {
    let beyond = Bytes::from(vec![0; BLOB_BYTES_MAX + 1]);
    let refused = bus.blobs.put(beyond).await;
    assert!(refused.is_err());
}

pub(super) async fn a_removed_body_is_gone(bus: Bus) {
    let stays = bus.blobs.put(Bytes::from_static(b"stays")).await;
    let stays = stays.expect("kept");
    let body = Bytes::from(vec![5; 700_000]);
    for _ in 0..2 {
        let digest = bus.blobs.put(body.clone()).await.expect("kept");
        // Also what is not there.
        for _ in 0..2 {
            bus.blobs.remove(&digest).await.expect("removed");
            assert_eq!(bus.blobs.get(&digest).await, Ok(None));
        }
    }
    assert!(matches!(bus.blobs.get(&stays).await, Ok(Some(_))));
}
