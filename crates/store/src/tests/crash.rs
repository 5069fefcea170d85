//! Killed between any two steps, the store has all that was answered and nothing in halves.

use std::path::{Path, PathBuf};

use super::{T, copy_dir, hold, wait_for, wait_for_checkpoint};
use crate::fault::{POINTS, Point};
use crate::{Scan, Store, StoreOptions, Table, Txn};

const OTHER: Table = Table::new("other");

fn open(dir: &Path) -> Store {
    Store::open(StoreOptions::journal(dir)).unwrap()
}

fn is_of_a_checkpoint(point: Point) -> bool {
    use Point::{AfterSync, BeforeApply, BeforeFlush, BeforeSync};
    matches!(point, BeforeApply | BeforeFlush | BeforeSync | AfterSync)
}

/// Runs one commit of `bytes` to `point`; gives what a kill there leaves.
async fn killed_at(point: Point, bytes: usize, root: &Path) -> PathBuf {
    let (live, left) = (root.join("live"), root.join("left"));
    let store = open(&live);
    for n in 0..3_u8 {
        let txn = Txn::new()
            .put(T, vec![n], "before")
            .put(OTHER, vec![n], "before");
        store.commit(txn).await.unwrap();
    }
    if is_of_a_checkpoint(point) {
        // Else the checkpoint of these would be the one that is held.
        wait_for_checkpoint(&store, 0).await;
    }
    let (there, release) = hold(&store, point);
    let txn = Txn::new()
        .put(T, "new", vec![7; bytes])
        .put(OTHER, "new", "twin")
        .delete(T, vec![0]);
    let commit = tokio::spawn({
        let store = store.clone();
        async move { store.commit(txn).await }
    });
    wait_for(there).await;
    copy_dir(&live, &left);
    release.send(()).unwrap();
    commit.await.unwrap().unwrap();
    store.close().await.unwrap();
    left
}

/// Whether the commit is there; it is never there in part.
fn has_commit(store: &Store, bytes: usize) -> bool {
    let new = store.get(T, b"new").unwrap();
    let is_there = new.is_some();
    assert!(new.is_none_or(|value| value == vec![7; bytes]));
    assert_eq!(store.get(OTHER, b"new").unwrap().is_some(), is_there);
    assert_eq!(store.get(T, &[0]).unwrap().is_none(), is_there);
    for n in 1..3_u8 {
        assert_eq!(store.get(T, &[n]).unwrap().unwrap(), "before");
        assert_eq!(store.get(OTHER, &[n]).unwrap().unwrap(), "before");
    }
    assert_eq!(store.status().unwrap().commits, 3 + u64::from(is_there));
    is_there
}

#[tokio::test]
async fn a_kill_at_any_step_leaves_all_that_was_answered_and_no_half() {
    for bytes in [100, 9_000, 400_000] {
        let fits_witness = bytes < 400_000;
        for point in POINTS {
            if point == Point::AfterSync && !fits_witness {
                continue;
            }
            let dir = tempfile::tempdir().unwrap();
            let left = killed_at(point, bytes, dir.path()).await;
            let must = match point {
                Point::BeforeWitness => Some(false),
                Point::BeforePublish | Point::BeforeAnswer => Some(true),
                // The witness has it already, or sled alone, which writes when it likes.
                _ if fits_witness => Some(true),
                _ => None,
            };
            let store = open(&left);
            let is_there = has_commit(&store, bytes);
            let says = format!("{point:?}, {bytes} bytes: there {is_there}");
            assert!(must.is_none_or(|must| must == is_there), "{says}");
            // It goes on from there, and a second kill changes nothing.
            let again = dir.path().join("again");
            copy_dir(&left, &again);
            store.commit(Txn::new().put(T, "next", "v")).await.unwrap();
            store.close().await.unwrap();
            assert_eq!(has_commit(&open(&again), bytes), is_there, "{says}");
            assert_eq!(open(&left).get(T, b"next").unwrap().unwrap(), "v", "{says}");
        }
    }
}

/// Killed while it puts groups back, or before it says so in the witness.
#[tokio::test]
async fn a_kill_while_opening_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let left = killed_at(Point::BeforeApply, 9_000, dir.path()).await;
    let witness = std::fs::read(left.join("WITNESS")).unwrap();
    let store = open(&left);
    assert!(has_commit(&store, 9_000));
    store.close().await.unwrap();
    // sled has the groups; the witness is as it was before.
    std::fs::write(left.join("WITNESS"), witness).unwrap();
    assert!(has_commit(&open(&left), 9_000));
}

/// Killed between the making of the witness and the first row in sled.
#[tokio::test]
async fn a_store_that_was_never_begun_is_begun() {
    let dir = tempfile::tempdir().unwrap();
    let (made, half) = (dir.path().join("made"), dir.path().join("half"));
    open(&made).close().await.unwrap();
    std::fs::create_dir(&half).unwrap();
    let db = sled::Config::new()
        .path(&half)
        .segment_size(crate::row::SEGMENT_BYTES)
        .open()
        .unwrap();
    drop(db);
    std::fs::copy(made.join("WITNESS"), half.join("WITNESS")).unwrap();
    let store = open(&half);
    store.commit(Txn::new().put(T, "k", "v")).await.unwrap();
    store.close().await.unwrap();
    assert_eq!(open(&half).get(T, b"k").unwrap().unwrap(), "v");
    // Once it has seen a commit, an empty sled is a loss.
    let witness = half.join("WITNESS");
    let emptied = dir.path().join("emptied");
    std::fs::create_dir(&emptied).unwrap();
    drop(sled::Config::new().path(&emptied).open().unwrap());
    std::fs::copy(witness, emptied.join("WITNESS")).unwrap();
    let error = Store::open(StoreOptions::journal(&emptied)).unwrap_err();
    assert!(error.is_corrupt(), "{error}");
}

/// More groups than the ring has room for, of all sizes, with copies taken in between.
#[tokio::test]
async fn copies_of_a_working_store_have_what_was_answered_before_them() {
    let dir = tempfile::tempdir().unwrap();
    let options = |path: &Path| StoreOptions {
        witness_bytes_max: 128 << 10,
        ..StoreOptions::journal(path)
    };
    let live = dir.path().join("live");
    let store = Store::open(options(&live)).unwrap();
    let size = |n: u32| [50, 500, 5_000, 15_000, 40_000][n as usize % 5] + n as usize;
    for n in 0..200_u32 {
        let txn = Txn::new().put(T, n.to_be_bytes().to_vec(), vec![n as u8; size(n)]);
        store.commit(txn).await.unwrap();
        if n % 9 != 0 {
            continue;
        }
        let copy = dir.path().join("copy");
        let _ = std::fs::remove_dir_all(&copy);
        // A kill stops all files at one moment, a copy does not: so nothing may be written.
        let (there, release) = hold(&store, Point::BeforeWitness);
        let probe = tokio::spawn({
            let store = store.clone();
            async move { store.commit(Txn::new().put(OTHER, "k", "v")).await }
        });
        wait_for(there).await;
        copy_dir(&live, &copy);
        release.send(()).unwrap();
        probe.await.unwrap().unwrap();
        let copied = Store::open(options(&copy)).unwrap();
        let rows = copied.scan(T, &Scan::prefix("", 1000)).unwrap();
        assert_eq!(rows.len(), n as usize + 1);
        for (index, (_, value)) in rows.iter().enumerate() {
            assert_eq!(value.len(), size(index as u32));
        }
    }
}
