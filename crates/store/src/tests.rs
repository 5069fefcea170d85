//! What happens between sled's flush and the answer, with faults put there.

use std::sync::mpsc;
use std::time::Duration;

use bytes::Bytes;
use tempfile::TempDir;

use crate::fault::Fault;
use crate::{Scan, Store, StoreError, StoreOptions, Table, Txn};

const T: Table = Table::new("t");

fn put(key: &'static str, value: &'static str) -> Txn {
    Txn::new().put(T, key, value)
}

fn open(dir: &TempDir) -> Store {
    Store::open(StoreOptions::journal(dir.path())).unwrap()
}

fn set_fault(store: &Store, fault: Fault) {
    *store.shared.fault.lock().unwrap() = Some(fault);
}

/// Holds the committer in its next group; gives the sign that it is there and the way to let go.
fn hold(store: &Store) -> (mpsc::Receiver<()>, mpsc::Sender<()>) {
    let (arrived, is_there) = mpsc::channel();
    let (release, go) = mpsc::channel();
    set_fault(store, Fault::Hold { arrived, go });
    (is_there, release)
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

#[tokio::test]
async fn readers_do_not_see_what_is_not_durable_yet() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir);
    store
        .commit(put("a", "old").put(T, "b", "old").put(T, "z", "old"))
        .await
        .unwrap();

    let (there, release) = hold(&store);
    let txn = put("a", "new").delete(T, "b").put(T, "c", "new");
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
    assert_eq!(
        rows(&store, &Scan::prefix("", 10)),
        [pair("a", "new"), pair("c", "new"), pair("z", "old")]
    );
    assert_eq!(store.status().unwrap().commits, 2);
}

#[tokio::test]
async fn a_full_queue_makes_commit_wait_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let options = StoreOptions {
        queue_writes_max: 2,
        ..StoreOptions::journal(dir.path())
    };
    let store = Store::open(options).unwrap();
    let (there, release) = hold(&store);
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
async fn queued_transactions_share_one_group_and_two_syncs() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir);
    let (there, release) = hold(&store);
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
    let counters = store.counters();
    assert_eq!(
        (counters.commits, counters.groups, counters.syncs),
        (6, 2, 4)
    );
}

/// A failed sync: the commit's fate is unknown, the durable state stays readable, no commit
/// goes in, and opening again finds either the state before or the whole commit.
#[tokio::test]
async fn after_a_failed_sync_the_store_only_reads() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir);
    store.commit(put("a", "1")).await.unwrap();
    set_fault(&store, Fault::Io);
    let failed = store.commit(put("a", "2").put(T, "b", "2")).await;
    assert!(
        matches!(
            failed,
            Err(StoreError::Io {
                op: "syncing the data file",
                ..
            })
        ),
        "{failed:?}"
    );

    assert!(matches!(
        store.commit(put("c", "3")).await,
        Err(StoreError::Failed { .. })
    ));
    assert_eq!(rows(&store, &Scan::prefix("", 10)), [pair("a", "1")]);
    assert!(store.status().unwrap().failed.is_some());
    assert!(matches!(
        store.close().await,
        Err(StoreError::Failed { .. })
    ));

    let store = open(&dir);
    let now = rows(&store, &Scan::prefix("", 10));
    assert!(
        now == [pair("a", "1")] || now == [pair("a", "2"), pair("b", "2")],
        "{now:?}"
    );
    store.commit(put("c", "3")).await.unwrap();
}

#[tokio::test]
async fn a_panic_in_the_committer_is_an_answer() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir);
    set_fault(&store, Fault::Panic);
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
    let (_there, release) = hold(&store);
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
