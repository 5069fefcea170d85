//! What happens between the steps of the committer, with faults put there.

mod crash;
mod damage;
mod legacy;

use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use bytes::Bytes;
use tempfile::TempDir;

use crate::fault::{Fault, Point};
use crate::{Scan, Store, StoreError, StoreOptions, Table, Txn};

const T: Table = Table::new("t");

fn put(key: &'static str, value: &'static str) -> Txn {
    Txn::new().put(T, key, value)
}

fn open(dir: &TempDir) -> Store {
    Store::open(StoreOptions::journal(dir.path())).unwrap()
}

fn set_fault(store: &Store, point: Point, fault: Fault) {
    *store.shared.fault.lock().unwrap() = Some((point, fault));
}

/// Holds the committer when it comes by next; gives the sign that it is there and the way to
/// let go.
fn hold(store: &Store, point: Point) -> (mpsc::Receiver<()>, mpsc::Sender<()>) {
    let (arrived, is_there) = mpsc::channel();
    let (release, go) = mpsc::channel();
    set_fault(store, point, Fault::Hold { arrived, go });
    (is_there, release)
}

/// Copies the files of a store. Of an open one, they are what a killed process leaves.
fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_dir(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Waits until sled has all that was committed.
async fn wait_for_checkpoint(store: &Store, since: u64) {
    while store.counters().checkpoints == since {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn wait_for(sign: mpsc::Receiver<()>) {
    tokio::task::spawn_blocking(move || sign.recv().unwrap())
        .await
        .unwrap();
}

fn rows(store: &Store, scan: &Scan) -> Vec<(Bytes, Bytes)> {
    store.scan(T, scan).unwrap()
}

fn pair(key: &'static str, value: &'static str) -> (Bytes, Bytes) {
    (key.into(), value.into())
}

/// Groups that lie in memory and groups that go to sled first, over rows that sled has and
/// rows that it does not have yet.
#[tokio::test]
async fn readers_do_not_see_what_is_not_durable_yet() {
    let cases = [(100, Point::BeforePublish), (300_000, Point::BeforePublish)];
    for (bytes, point) in cases.into_iter().chain([(300_000, Point::BeforeFlush)]) {
        for is_in_sled in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            let store = open(&dir);
            let old = put("a", "old").put(T, "b", "old").put(T, "z", "old");
            store.commit(old).await.unwrap();
            if is_in_sled {
                wait_for_checkpoint(&store, 0).await;
            }
            let (there, release) = hold(&store, point);
            let txn = put("a", "new").delete(T, "b").put(T, "c", "new");
            let txn = txn.put(Table::new("other"), "large", vec![7; bytes]);
            let commit = tokio::spawn({
                let store = store.clone();
                async move { store.commit(txn).await }
            });
            wait_for(there).await;
            let before = [pair("a", "old"), pair("b", "old"), pair("z", "old")];
            assert_eq!(store.get(T, b"a").unwrap().unwrap(), "old");
            assert_eq!(store.get(T, b"c").unwrap(), None);
            assert_eq!(rows(&store, &Scan::prefix("", 10)), before);
            assert_eq!(rows(&store, &Scan::prefix("", 2)), before[..2]);
            assert_eq!(
                rows(&store, &Scan::prefix("", 2).reversed()),
                [before[2].clone(), before[1].clone()]
            );
            assert_eq!(store.status().unwrap().commits, 1);

            release.send(()).unwrap();
            commit.await.unwrap().unwrap();
            let after = [pair("a", "new"), pair("c", "new"), pair("z", "old")];
            assert_eq!(rows(&store, &Scan::prefix("", 10)), after);
            assert_eq!(store.status().unwrap().commits, 2);
            store.close().await.unwrap();
            assert_eq!(rows(&open(&dir), &Scan::prefix("", 10)), after);
        }
    }
}

/// Rows in sled, over it, hidden by it: a scan is what one map would give.
#[tokio::test]
async fn scans_merge_what_sled_has_and_what_it_does_not_have_yet() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir);
    let key = |n: u32| format!("{n:02}");
    let in_sled = (0..40).step_by(2);
    let txn = in_sled.fold(Txn::new(), |txn, n| txn.put(T, key(n), "sled"));
    store.commit(txn).await.unwrap();
    wait_for_checkpoint(&store, 0).await;
    let (there, release) = hold(&store, Point::BeforeApply);
    let over = (0..40).step_by(3);
    let txn = over.fold(Txn::new(), |txn, n| match n % 4 {
        0 => txn.delete(T, key(n)),
        _ => txn.put(T, key(n), "over"),
    });
    store.commit(txn).await.unwrap();
    wait_for(there).await;
    let value = |n: u32| match (n % 3, n % 4, n % 2) {
        (0, 0, _) => None,
        (0, _, _) => Some("over"),
        (_, _, 0) => Some("sled"),
        _ => None,
    };
    let all: Vec<(Bytes, Bytes)> = (0..40)
        .filter_map(|n| Some((key(n).into(), value(n)?.into())))
        .collect();
    for limit in 0..all.len() + 2 {
        let upto = limit.min(all.len());
        assert_eq!(rows(&store, &Scan::prefix("", limit)), all[..upto]);
        let down: Vec<_> = all.iter().rev().take(limit).cloned().collect();
        assert_eq!(rows(&store, &Scan::prefix("", limit).reversed()), down);
    }
    let one = Scan::prefix("1", 100);
    let before = rows(&store, &one);
    release.send(()).unwrap();
    wait_for_checkpoint(&store, 1).await;
    assert_eq!(rows(&store, &one), before);
    assert_eq!(rows(&store, &Scan::prefix("", 100)), all);
}

#[tokio::test]
async fn a_full_queue_makes_commit_wait_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let options = StoreOptions {
        queue_writes_max: 2,
        ..StoreOptions::journal(dir.path())
    };
    let store = Store::open(options).unwrap();
    let (there, release) = hold(&store, Point::BeforePublish);
    let commit = |key: &'static str| {
        let store = store.clone();
        Box::pin(async move { store.commit(put(key, "v")).await })
    };
    let first = tokio::spawn(commit("1"));
    wait_for(there).await;

    // Two fit into the queue, the third has no place: polled once, it has sent nothing.
    let mut waiting = [commit("2"), commit("3"), commit("4")];
    for future in &mut waiting {
        assert!(poll_once(future).await.is_none());
    }
    let [second, third, fourth] = waiting;
    drop(fourth);
    release.send(()).unwrap();
    first.await.unwrap().unwrap();
    second.await.unwrap();
    third.await.unwrap();
    commit("5").await.unwrap();
    let keys: Vec<_> = rows(&store, &Scan::prefix("", 10))
        .into_iter()
        .map(|(key, _)| key)
        .collect();
    assert_eq!(keys, ["1", "2", "3", "5"]);
}

async fn poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    tokio::select! { biased; output = future => Some(output), () = std::future::ready(()) => None }
}

#[tokio::test]
async fn queued_transactions_share_one_group_and_one_sync() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir);
    let (there, release) = hold(&store, Point::BeforePublish);
    let first = tokio::spawn({
        let store = store.clone();
        async move { store.commit(put("first", "v")).await }
    });
    wait_for(there).await;
    let keys = ["a", "b", "c", "d", "e"];
    let mut queued: Vec<_> = keys
        .iter()
        .map(|key| Box::pin(store.commit(put(key, "v"))))
        .collect();
    for future in &mut queued {
        assert!(poll_once(future).await.is_none());
    }
    release.send(()).unwrap();
    first.await.unwrap().unwrap();
    for (index, future) in queued.into_iter().enumerate() {
        assert_eq!(future.await.unwrap().0, index as u64 + 2);
    }
    let kept = store.clone();
    store.close().await.unwrap();
    let counters = kept.counters();
    assert_eq!((counters.commits, counters.groups), (6, 2));
    assert!(counters.checkpoints > 0, "closing makes one");
    assert_eq!(counters.syncs, counters.groups + counters.checkpoints);
}

/// A failed commit: its fate is unknown, the durable state stays readable, no commit goes in,
/// and opening again finds either the state before or the whole commit.
#[tokio::test]
async fn after_a_failed_commit_the_store_only_reads() {
    for (point, is_there) in [(Point::BeforeWitness, false), (Point::BeforePublish, true)] {
        let dir = tempfile::tempdir().unwrap();
        let store = open(&dir);
        store.commit(put("a", "1")).await.unwrap();
        set_fault(&store, point, Fault::Io);
        let failed = store.commit(put("a", "2").put(T, "b", "2")).await;
        assert!(matches!(failed, Err(StoreError::Io { .. })), "{failed:?}");

        let before = [pair("a", "1")];
        let refused = store.commit(put("c", "3")).await;
        assert!(matches!(refused, Err(StoreError::Failed { .. })));
        assert_eq!(rows(&store, &Scan::prefix("", 10)), before);
        assert!(store.status().unwrap().failed.is_some());
        let closed = store.close().await;
        assert!(matches!(closed, Err(StoreError::Failed { .. })));

        let store = open(&dir);
        let now = rows(&store, &Scan::prefix("", 10));
        let after = [pair("a", "2"), pair("b", "2")];
        assert_eq!(now == after, is_there, "{now:?}");
        assert!(is_there || now == before, "{now:?}");
        store.commit(put("c", "3")).await.unwrap();
    }
}

/// A failed checkpoint: what was answered stays readable and is there when the store is opened
/// again, and no commit goes in until then.
#[tokio::test]
async fn after_a_failed_checkpoint_nothing_that_was_answered_is_lost() {
    let points = [
        Point::BeforeApply,
        Point::BeforeFlush,
        Point::BeforeSync,
        Point::AfterSync,
    ];
    for point in points {
        for at_close in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let store = open(&dir);
            set_fault(&store, point, Fault::Io);
            store.commit(put("a", "1")).await.unwrap();
            while !at_close && store.status().unwrap().failed.is_none() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            if !at_close {
                let refused = store.commit(put("b", "2")).await;
                assert!(matches!(refused, Err(StoreError::Failed { .. })));
                assert_eq!(rows(&store, &Scan::prefix("", 10)), [pair("a", "1")]);
            }
            let closed = store.close().await;
            assert!(matches!(closed, Err(StoreError::Failed { .. })));
            let store = open(&dir);
            assert_eq!(rows(&store, &Scan::prefix("", 10)), [pair("a", "1")]);
            store.commit(put("b", "2")).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_panic_in_a_checkpoint_is_a_failure_and_costs_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir);
    set_fault(&store, Point::BeforeFlush, Fault::Panic);
    store.commit(put("a", "1")).await.unwrap();
    let failed = loop {
        match store.status().unwrap().failed {
            Some(failed) => break failed,
            None => tokio::time::sleep(Duration::from_millis(2)).await,
        }
    };
    assert!(
        failed.contains("panic in a checkpoint: injected"),
        "{failed}"
    );
    assert_eq!(store.get(T, b"a").unwrap().unwrap(), "1");
    store.close().await.unwrap_err();
    assert_eq!(open(&dir).get(T, b"a").unwrap().unwrap(), "1");
}

#[tokio::test]
async fn a_panic_in_the_committer_is_an_answer() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir);
    set_fault(&store, Point::BeforePublish, Fault::Panic);
    let failed = store.commit(put("a", "1")).await.unwrap_err();
    assert!(
        failed
            .to_string()
            .contains("panic while committing: injected"),
        "{failed}"
    );
    assert!(matches!(
        store.commit(put("b", "1")).await,
        Err(StoreError::Failed { .. })
    ));
    assert_eq!(store.get(T, b"a").unwrap(), None);
}

#[tokio::test]
async fn a_commit_that_does_not_come_back_is_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let options = StoreOptions {
        stall_ms_max: 1000,
        queue_writes_max: 1,
        ..StoreOptions::journal(dir.path())
    };
    let store = Store::open(options).unwrap();
    let (_there, release) = hold(&store, Point::BeforePublish);
    let commits = ["a", "b", "c"].map(|key| {
        let store = store.clone();
        tokio::spawn(async move { store.commit(put(key, "v")).await })
    });
    for commit in commits {
        let answer = tokio::time::timeout(Duration::from_secs(120), commit)
            .await
            .unwrap()
            .unwrap();
        assert!(
            matches!(answer, Err(StoreError::Failed { .. })),
            "{answer:?}"
        );
    }
    assert!(matches!(
        store.close().await,
        Err(StoreError::Failed { .. })
    ));
    release.send(()).unwrap();
}
