//! Committing and reading: round trips, conditions, atomicity, order, bounds.

mod common;

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use common::{OTHER, ROWS, Rows, contents, open, seeded};
use detent_store::{
    CommitSeq, KEY_BYTES_MAX, Scan, Store, StoreError, StoreOptions, SyncMode, Txn, VALUE_BYTES_MAX,
};
use rand::{Rng, RngExt};
use tokio::sync::Barrier;

#[tokio::test]
async fn what_is_committed_is_read_and_numbered_without_gaps() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let first = store
        .commit(Txn::new().put(ROWS, "k", "v").put(OTHER, "k", "w"))
        .await
        .unwrap();
    let second = store
        .commit(Txn::new().delete(ROWS, "k").put(ROWS, "", "empty key"))
        .await
        .unwrap();
    assert_eq!((first, second), (CommitSeq(1), CommitSeq(2)));
    assert_eq!(store.get(ROWS, b"k").unwrap(), None);
    assert_eq!(store.get(ROWS, b"").unwrap().unwrap(), "empty key");
    assert_eq!(store.get(OTHER, b"k").unwrap().unwrap(), "w");

    let status = store.status().unwrap();
    assert_eq!((status.rows, status.commits, status.failed), (2, 2, None));
    assert_eq!(status.rows_by_table["rows"], 1);
    assert!(status.bytes_on_disk > 0);
    store.close().await.unwrap();

    let store = open(dir.path());
    assert_eq!(store.get(OTHER, b"k").unwrap().unwrap(), "w");
    assert_eq!(
        store.commit(Txn::new().put(ROWS, "k", "v")).await.unwrap(),
        CommitSeq(3)
    );
}

#[tokio::test]
async fn random_writes_of_all_sizes_equal_a_map_and_survive_closing() {
    let mut random = seeded();
    let dir = tempfile::tempdir().unwrap();
    let mut expected = Rows::new();
    for _ in 0..4 {
        let store = open(dir.path());
        assert_eq!(contents(&store, ROWS), expected);
        for _ in 0..25 {
            let mut txn = Txn::new();
            for _ in 0..random.random_range(1..12) {
                let key = random.random_range(0..150_u32).to_be_bytes().to_vec();
                if random.random_ratio(1, 4) {
                    expected.remove(&key);
                    txn = txn.delete(ROWS, key);
                } else {
                    let value = random_value(&mut random);
                    expected.insert(key.clone(), value.clone());
                    txn = txn.put(ROWS, key, value);
                }
            }
            store.commit(txn).await.unwrap();
        }
        assert_eq!(contents(&store, ROWS), expected);
        assert_eq!(store.status().unwrap().rows, expected.len() as u64);
        store.close().await.unwrap();
    }
    // sled syncs its log file only: a value that got a file of its own would not be durable.
    assert_eq!(
        std::fs::read_dir(dir.path().join("blobs")).unwrap().count(),
        0
    );
}

fn random_value(random: &mut impl Rng) -> Vec<u8> {
    let most = [10, 300, 16 << 10, 200 << 10][random.random_range(0..4)];
    let mut value = vec![0; random.random_range(0..=most)];
    random.fill_bytes(&mut value);
    value
}

/// Pages at their largest: full leaves of the largest unsplit rows, full index pages of the
/// longest keys, which differ at their front so that sled cannot shorten them.
#[tokio::test]
async fn the_largest_pages_stay_in_the_synced_file() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let key = |n: u32| {
        let mut key = vec![b'k'; KEY_BYTES_MAX];
        key[..4].copy_from_slice(&n.wrapping_mul(0x9e37_79b1).to_be_bytes());
        key
    };
    for round in 0..12_u8 {
        let put = |txn: Txn, n: u32| txn.put(ROWS, key(n), vec![round; 4 << 10]);
        store.commit((0..120).fold(Txn::new(), put)).await.unwrap();
    }
    for first in (0..6000).step_by(500) {
        let put = |txn: Txn, n: u32| txn.put(OTHER, key(n), "v");
        store
            .commit((first..first + 500).fold(Txn::new(), put))
            .await
            .unwrap();
    }
    store
        .commit(Txn::new().put(OTHER, "big", vec![7; VALUE_BYTES_MAX]))
        .await
        .unwrap();
    store.close().await.unwrap();
    assert_eq!(
        std::fs::read_dir(dir.path().join("blobs")).unwrap().count(),
        0
    );
    let store = open(dir.path());
    assert_eq!(
        store.get(OTHER, b"big").unwrap().unwrap(),
        vec![7; VALUE_BYTES_MAX]
    );
    assert_eq!(store.status().unwrap().rows, 6121);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_64_that_compare_and_swap_one_key_one_wins() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    for round in 0..10_u8 {
        let start = Arc::new(Barrier::new(64));
        let old = (round > 0).then(|| Bytes::from(vec![round - 1]));
        let tasks: Vec<_> = (0..64_u8)
            .map(|task| {
                let (store, start, old) = (store.clone(), Arc::clone(&start), old.clone());
                tokio::spawn(async move {
                    start.wait().await;
                    let txn = Txn::new()
                        .expect(ROWS, "k", old)
                        .put(ROWS, "k", vec![round]);
                    store.commit(txn.put(OTHER, vec![round], vec![task])).await
                })
            })
            .collect();
        let mut winners = Vec::new();
        for (task, handle) in tasks.into_iter().enumerate() {
            match handle.await.unwrap() {
                Ok(_) => winners.push(task as u8),
                Err(StoreError::ConditionFailed { index: 0, current }) => {
                    assert_eq!(current.unwrap(), vec![round]);
                }
                Err(other) => panic!("{other}"),
            }
        }
        assert_eq!(winners.len(), 1, "round {round}");
        assert_eq!(store.get(OTHER, &[round]).unwrap().unwrap(), winners);
    }
    assert_eq!(store.status().unwrap().commits, 10);
    assert_eq!(store.counters().conditions_failed, 630);
}

#[tokio::test]
async fn a_failed_condition_writes_nothing_and_names_itself() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    store
        .commit(Txn::new().put(ROWS, "taken", "v"))
        .await
        .unwrap();
    let txn = Txn::new()
        .expect(ROWS, "taken", Some("v".into()))
        .expect_absent(ROWS, "taken")
        .put(ROWS, "new", "x")
        .put(OTHER, "new", "x");
    match store.commit(txn).await {
        Err(StoreError::ConditionFailed { index, current }) => {
            assert_eq!((index, current.unwrap().as_ref()), (1, &b"v"[..]));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(store.get(ROWS, b"new").unwrap(), None);
    assert_eq!(store.get(OTHER, b"new").unwrap(), None);
    assert_eq!(store.commit(Txn::new()).await.unwrap(), CommitSeq(2));
}

#[tokio::test]
async fn scans_are_in_order_and_keep_to_their_table_and_bounds() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let keys: [&[u8]; 6] = [b"a/1", b"a/2", b"a/\xff", b"a/\xff\xff", b"b", b"\xff"];
    let put = |txn: Txn, key: &&'static [u8]| txn.put(ROWS, *key, *key).put(OTHER, *key, "other");
    store
        .commit(keys.iter().rev().fold(Txn::new(), put))
        .await
        .unwrap();
    let scan = |scan: Scan| -> Vec<Vec<u8>> {
        store
            .scan(ROWS, &scan)
            .unwrap()
            .into_iter()
            .map(|(key, value)| {
                assert_eq!(key, value);
                key.to_vec()
            })
            .collect()
    };
    assert_eq!(scan(Scan::prefix("", 100)), keys);
    assert_eq!(scan(Scan::prefix("a/", 100)), keys[..4]);
    assert_eq!(scan(Scan::prefix(b"a/\xff", 100)), keys[2..4]);
    assert_eq!(scan(Scan::prefix(b"\xff", 100)), keys[5..]);
    assert_eq!(scan(Scan::prefix("a/", 2).reversed()), [keys[3], keys[2]]);
    assert_eq!(
        scan(Scan::range(
            Bound::Excluded(b"a/1"),
            Bound::Included(b"b"),
            100
        )),
        keys[1..5]
    );
    assert_eq!(
        scan(Scan::range(Bound::Included(b"b"), Bound::Unbounded, 100)),
        keys[4..]
    );
    assert!(
        scan(Scan::range(
            Bound::Included(b"b"),
            Bound::Excluded(b"a"),
            100
        ))
        .is_empty()
    );
    assert!(
        scan(Scan::range(
            Bound::Excluded(b"b"),
            Bound::Excluded(b"b"),
            100
        ))
        .is_empty()
    );
    assert!(scan(Scan::prefix("nothing", 100)).is_empty());
}

#[tokio::test]
async fn requests_beyond_the_bounds_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let long_key = vec![0; KEY_BYTES_MAX + 1];
    let refused = [
        Txn::new().put(ROWS, long_key.clone(), "v"),
        Txn::new().expect_absent(ROWS, long_key.clone()),
        Txn::new().put(ROWS, "k", vec![0; VALUE_BYTES_MAX + 1]),
        (0..1025_u16).fold(Txn::new(), |txn, n| {
            txn.delete(ROWS, n.to_be_bytes().to_vec())
        }),
        (0..3_u8).fold(Txn::new(), |txn, n| {
            txn.put(ROWS, vec![n], vec![0; VALUE_BYTES_MAX])
        }),
    ];
    for txn in refused {
        let answer = store.commit(txn).await;
        assert!(
            matches!(answer, Err(StoreError::Invalid { .. })),
            "{answer:?}"
        );
    }
    assert_eq!(store.get(ROWS, &long_key).unwrap(), None);
    let options = StoreOptions {
        batch_writes_max: 257,
        ..StoreOptions::journal(dir.path())
    };
    assert!(matches!(
        Store::open(options),
        Err(StoreError::Invalid { .. })
    ));
}

#[tokio::test]
async fn a_closed_store_says_so_on_every_handle() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let other = store.clone();
    store.close().await.unwrap();
    assert!(matches!(
        other.commit(Txn::new()).await,
        Err(StoreError::Closed)
    ));
    assert!(matches!(other.get(ROWS, b"k"), Err(StoreError::Closed)));
    assert!(matches!(other.status(), Err(StoreError::Closed)));
    other.close().await.unwrap();
}

#[tokio::test]
async fn a_cache_syncs_nothing_and_still_survives_closing() {
    let dir = tempfile::tempdir().unwrap();
    let options = StoreOptions::cache(dir.path());
    assert_eq!(options.sync, SyncMode::Never);
    let store = Store::open(options.clone()).unwrap();
    store.commit(Txn::new().put(ROWS, "k", "v")).await.unwrap();
    assert_eq!(store.counters().syncs, 0);
    store.close().await.unwrap();
    assert_eq!(
        Store::open(options)
            .unwrap()
            .get(ROWS, b"k")
            .unwrap()
            .unwrap(),
        "v"
    );
}
