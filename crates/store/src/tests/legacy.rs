//! A store with the witness file of former versions opens, and has a ring from then on.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use super::{T, copy_dir};
use crate::meta::{Head, Meta};
use crate::view::Tree;
use crate::{Store, StoreError, StoreOptions, Txn, key, legacy, ring, row};

fn open(dir: &Path) -> Result<Store, StoreError> {
    Store::open(StoreOptions::journal(dir))
}

/// A store with one commit, `one`, and the same store one commit later, `two`.
struct Sample {
    dir: TempDir,
    one: Meta,
    two: Meta,
    /// The second commit, as a witness keeps it.
    redo: Vec<u8>,
}

impl Sample {
    async fn new() -> Sample {
        let dir = tempfile::tempdir().unwrap();
        let [one, two] = ["one", "two"].map(|name| dir.path().join(name));
        let store = open(&one).unwrap();
        store.commit(Txn::new().put(T, "a", "1")).await.unwrap();
        store.close().await.unwrap();
        copy_dir(&one, &two);
        let store = open(&two).unwrap();
        let txn = Txn::new().put(T, "b", vec![7; 20_000]).delete(T, "a");
        store.commit(txn).await.unwrap();
        store.close().await.unwrap();
        let file = fs::File::open(two.join("WITNESS")).unwrap();
        let survey = ring::read(&file).unwrap().unwrap();
        let redo = ring::redo(&file, survey.newest()).unwrap().unwrap();
        Sample {
            one: meta(&one),
            two: meta(&two),
            redo,
            dir,
        }
    }

    /// A copy of one of the stores with a witness file of two slots.
    fn with(&self, name: &str, slots: [Vec<u8>; 2]) -> std::path::PathBuf {
        let copy = self.dir.path().join("copy");
        let _ = fs::remove_dir_all(&copy);
        copy_dir(&self.dir.path().join(name), &copy);
        fs::write(copy.join("WITNESS"), slots.concat()).unwrap();
        copy
    }

    fn slot(&self, generation: u64, head: Head, redo: &[u8]) -> Vec<u8> {
        legacy::encode(generation, self.one.store_id, head, redo)
    }
}

fn meta(dir: &Path) -> Meta {
    let db = sled::Config::new()
        .path(dir)
        .segment_size(row::SEGMENT_BYTES)
        .open()
        .unwrap();
    let tree = Tree::new(db, dir.to_owned());
    Meta::decode(&tree.get(key::META).unwrap().unwrap()).unwrap()
}

/// Opens it, goes on, and opens it again.
async fn is_taken_over(dir: &Path, second: bool) {
    for round in 0..2 {
        let store = open(dir).unwrap();
        assert_eq!(store.get(T, b"a").unwrap().is_none(), second);
        assert_eq!(store.get(T, b"b").unwrap().is_some(), second);
        let (commits, next) = (1 + u64::from(second) + round, format!("next {round}"));
        assert_eq!(store.status().unwrap().commits, commits);
        let txn = Txn::new().put(T, next, "v");
        store.commit(txn).await.unwrap();
        store.close().await.unwrap();
        let file = fs::File::open(dir.join("WITNESS")).unwrap();
        assert!(ring::read(&file).unwrap().is_ok(), "it is a ring");
    }
}

#[tokio::test]
async fn an_old_witness_is_read_as_it_was_and_replaced() {
    let s = Sample::new().await;
    let (one, two) = (s.one.head, s.two.head);
    let elder = s.slot(4, s.one.previous, &[]);
    // Level with sled, with and without the group; a crash left it one behind, or one ahead.
    let level = s.with("two", [elder.clone(), s.slot(5, two, &s.redo)]);
    is_taken_over(&level, true).await;
    let no_redo = s.with("two", [s.slot(6, two, &[]), s.slot(5, one, &[])]);
    is_taken_over(&no_redo, true).await;
    let behind = s.with("two", [elder.clone(), s.slot(5, one, &[])]);
    is_taken_over(&behind, true).await;
    let ahead = s.with("one", [s.slot(6, two, &s.redo), s.slot(5, one, &[])]);
    is_taken_over(&ahead, true).await;
    // The newest slot torn: the elder counts.
    let mut torn = s.slot(6, two, &s.redo);
    torn[9_000] ^= 1;
    let torn = s.with("one", [torn, s.slot(5, one, &[])]);
    is_taken_over(&torn, false).await;
    // A crash in the middle of the replacement.
    let draft = s.with("two", [elder, s.slot(5, two, &s.redo)]);
    fs::write(draft.join("WITNESS.new"), vec![3; 5_000]).unwrap();
    is_taken_over(&draft, true).await;
}

#[tokio::test]
async fn an_old_witness_that_does_not_fit_is_refused_and_left_alone() {
    let s = Sample::new().await;
    let (one, two) = (s.one.head, s.two.head);
    let blank = vec![0; 32 << 10];
    let foreign = legacy::encode(2, s.one.store_id ^ 1, one, &[]);
    let mut damaged = s.slot(2, one, &[]);
    damaged[20] ^= 1;
    let cases = [
        ("behind its witness", [s.slot(2, two, &[]), blank.clone()]),
        ("another store", [foreign, blank.clone()]),
        ("no valid block", [damaged, blank.clone()]),
        // In the wrong slot.
        ("no valid block", [s.slot(3, one, &[]), blank]),
    ];
    for (expected, slots) in cases {
        let copy = s.with("one", slots);
        let before = fs::read(copy.join("WITNESS")).unwrap();
        for _ in 0..2 {
            let error = open(&copy).unwrap_err();
            assert!(
                error.is_corrupt() && error.to_string().contains(expected),
                "{error}"
            );
        }
        assert_eq!(fs::read(copy.join("WITNESS")).unwrap(), before);
    }
}
