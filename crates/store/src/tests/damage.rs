//! A killed store whose witness is damaged: what sled does not have yet is made good from the
//! other copy, or its loss is said.

use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tempfile::TempDir;

use super::{T, copy_dir, hold, wait_for, wait_for_checkpoint};
use crate::fault::Point;
use crate::{Scan, Store, StoreError, StoreOptions, Txn, ring};

const BLOCK_BYTES: usize = 4096;
/// Few enough that the witness holds all of them.
const COMMITS: u32 = 6;

/// What a kill left of a store with commits that only the witness has, behind some that
/// sled has.
struct Killed {
    dir: TempDir,
    rows: Vec<(Bytes, Bytes)>,
    witness: Vec<u8>,
    /// First block and blocks of one copy, of each record that sled is without.
    records: Vec<(usize, usize)>,
}

fn options(dir: &Path) -> StoreOptions {
    StoreOptions {
        witness_bytes_max: 128 << 10,
        ..StoreOptions::journal(dir)
    }
}

fn rows(store: &Store) -> Vec<(Bytes, Bytes)> {
    store.scan(T, &Scan::prefix("", 1000)).unwrap()
}

impl Killed {
    async fn new() -> Killed {
        let dir = tempfile::tempdir().unwrap();
        let live = dir.path().join("live");
        let store = Store::open(options(&live)).unwrap();
        let put =
            |n: u32, bytes: usize| Txn::new().put(T, n.to_be_bytes().to_vec(), vec![7; bytes]);
        for n in 100..103 {
            store.commit(put(n, 2_000)).await.unwrap();
        }
        wait_for_checkpoint(&store, 0).await;
        store.commit(put(0, 900)).await.unwrap();
        store.close().await.unwrap();
        let old_witness = fs::read(live.join("WITNESS")).unwrap();
        fs::write(dir.path().join("old"), old_witness).unwrap();

        let store = Store::open(options(&live)).unwrap();
        let (there, release) = hold(&store, Point::BeforeApply);
        for n in 1..=COMMITS {
            let txn = put(n, n as usize * 1300).delete(T, (n - 1).to_be_bytes().to_vec());
            store.commit(txn).await.unwrap();
        }
        wait_for(there).await;
        copy_dir(&live, &dir.path().join("left"));
        release.send(()).unwrap();
        let rows = rows(&store);
        store.close().await.unwrap();
        let left = dir.path().join("left/WITNESS");
        let survey = ring::read(&fs::File::open(&left).unwrap())
            .unwrap()
            .unwrap();
        let from = survey.whole.len() - COMMITS as usize;
        let records = survey.whole[from..].iter();
        let records = records.map(ring::place_of).collect();
        Killed {
            witness: fs::read(left).unwrap(),
            dir,
            rows,
            records,
        }
    }

    /// A copy with another witness.
    fn with(&self, witness: &[u8]) -> PathBuf {
        let copy = self.dir.path().join("copy");
        let _ = fs::remove_dir_all(&copy);
        copy_dir(&self.dir.path().join("left"), &copy);
        fs::write(copy.join("WITNESS"), witness).unwrap();
        copy
    }

    fn opened(&self, witness: &[u8]) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        let copy = self.with(witness);
        let opened = Store::open(options(&copy)).map(|store| rows(&store));
        if let Err(error) = &opened {
            assert!(error.is_corrupt(), "{error}");
            // Said once is said always: opening again does not make it good.
            let again = Store::open(options(&copy)).unwrap_err();
            assert!(again.is_corrupt(), "{again}");
        }
        opened
    }

    fn zeroed(&self, blocks: impl IntoIterator<Item = usize>) -> Vec<u8> {
        let mut witness = self.witness.clone();
        for block in blocks {
            witness[block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES].fill(0);
        }
        witness
    }
}

#[tokio::test]
async fn damage_to_one_copy_costs_nothing() {
    let killed = Killed::new().await;
    assert_eq!(killed.opened(&killed.witness).unwrap(), killed.rows);
    for &(start, parts) in &killed.records {
        for block in start..start + 2 * parts {
            let opened = killed.opened(&killed.zeroed([block]));
            assert_eq!(opened.unwrap(), killed.rows, "block {block}");
        }
        for copy in [start, start + parts] {
            let opened = killed.opened(&killed.zeroed(copy..copy + parts));
            assert_eq!(opened.unwrap(), killed.rows, "copy at {copy}");
        }
    }
    let mut random = ChaCha8Rng::seed_from_u64(7);
    for _ in 0..100 {
        let mut witness = killed.witness.clone();
        let at = random.random_range(0..witness.len());
        witness[at] ^= 1 << random.random_range(0..8);
        assert_eq!(killed.opened(&witness).unwrap(), killed.rows, "byte {at}");
    }
}

/// Damaged in each record at once, and gone on: what was repaired stays.
#[tokio::test]
async fn a_store_that_was_made_good_is_good() {
    let killed = Killed::new().await;
    let every = killed.records.iter().enumerate();
    let blocks = every.map(|(n, (start, parts))| start + n % 2 * parts);
    let copy = killed.with(&killed.zeroed(blocks));
    for round in 0..3 {
        let store = Store::open(options(&copy)).unwrap();
        assert_eq!(rows(&store).len(), killed.rows.len() + round);
        let key = 200_u32 + round as u32;
        let txn = Txn::new().put(T, key.to_be_bytes().to_vec(), "v");
        store.commit(txn).await.unwrap();
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn damage_to_both_copies_is_said_but_for_the_very_newest() {
    let killed = Killed::new().await;
    let (last, before) = killed.records.split_last().unwrap();
    for (start, parts) in before {
        let opened = killed.opened(&killed.zeroed([*start, start + parts]));
        let error = opened.unwrap_err().to_string();
        assert!(error.contains("behind its witness"), "{error}");
    }
    // Like a write that was cut off: the commit before it is the last.
    let (start, parts) = last;
    let opened = killed
        .opened(&killed.zeroed([*start, start + parts]))
        .unwrap();
    assert_eq!(opened.len(), killed.rows.len());
    assert_ne!(opened, killed.rows);
}

#[tokio::test]
async fn a_witness_that_is_cut_empty_or_gone_is_said() {
    let killed = Killed::new().await;
    let len = killed.witness.len();
    for left in [0, 1, 4000, 4096, len / 2, len - 4096, len - 1] {
        killed.opened(&killed.witness[..left]).unwrap_err();
    }
    killed.opened(&vec![0; len]).unwrap_err();
    killed.opened(&vec![0xff; len]).unwrap_err();
    killed.opened(&vec![0; 64 << 10]).unwrap_err();
    let copy = killed.with(&[]);
    fs::remove_file(copy.join("WITNESS")).unwrap();
    let error = Store::open(options(&copy)).unwrap_err();
    assert!(error.to_string().contains("witness is missing"), "{error}");
    assert!(error.is_corrupt());
}

/// An old copy of the witness, once sled has gone on.
#[tokio::test]
async fn an_old_witness_does_not_fit() {
    let killed = Killed::new().await;
    let old = fs::read(killed.dir.path().join("old")).unwrap();
    let copy = killed.with(&killed.witness);
    Store::open(options(&copy)).unwrap().close().await.unwrap();
    fs::write(copy.join("WITNESS"), old).unwrap();
    let error = Store::open(options(&copy)).unwrap_err();
    assert!(error.to_string().contains("do not fit"), "{error}");
    assert!(error.is_corrupt());
}

/// The loss of a brand new store's witness, before sled has any row.
#[tokio::test]
async fn the_first_commits_can_not_be_lost_with_the_witness_in_silence() {
    let dir = tempfile::tempdir().unwrap();
    let (live, left) = (dir.path().join("live"), dir.path().join("left"));
    let store = Store::open(options(&live)).unwrap();
    let (there, release) = hold(&store, Point::BeforeApply);
    store.commit(Txn::new().put(T, "k", "v")).await.unwrap();
    wait_for(there).await;
    copy_dir(&live, &left);
    release.send(()).unwrap();
    fs::remove_file(left.join("WITNESS")).unwrap();
    assert!(Store::open(options(&left)).unwrap_err().is_corrupt());
}
