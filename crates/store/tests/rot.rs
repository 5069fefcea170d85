//! Rot: flipped bytes, cut files, swapped witnesses. Nothing may be lost in silence.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{OTHER, ROWS, Rows, contents, copy_dir, open, open_small, seeded};
use detent_store::{Store, StoreError, StoreOptions, Txn, VerifyOnOpen};
use rand::RngExt;
use tempfile::TempDir;

/// A closed store with rows written, overwritten and deleted, and what it holds. Its witness
/// has the last few commits only.
struct Sample {
    dir: TempDir,
    rows: Rows,
    other: Rows,
}

impl Sample {
    async fn new() -> Sample {
        let dir = tempfile::tempdir().unwrap();
        let mut store = open_small(&dir.path().join("store"));
        for n in 0..400_u32 {
            if n == 300 {
                // Opening writes sled's snapshot, which later openings start from.
                store.close().await.unwrap();
                store = open(&dir.path().join("store"));
            }
            let key = (n % 300).to_be_bytes().to_vec();
            let mut txn = Txn::new().put(ROWS, key, format!("{n:0300}")).put(
                OTHER,
                "last",
                n.to_be_bytes().to_vec(),
            );
            if n % 7 == 0 {
                txn = txn.delete(ROWS, (n / 2).to_be_bytes().to_vec());
            }
            store.commit(txn).await.unwrap();
        }
        store
            .commit(Txn::new().put(OTHER, "large", vec![9; 100_000]))
            .await
            .unwrap();
        let (rows, other) = (contents(&store, ROWS), contents(&store, OTHER));
        store.close().await.unwrap();
        Sample { dir, rows, other }
    }

    fn store(&self) -> PathBuf {
        self.dir.path().join("store")
    }

    fn copy(&self, name: &str) -> PathBuf {
        let copy = self.dir.path().join(name);
        copy_dir(&self.store(), &copy);
        copy
    }
}

/// Damages a copy and opens it: `true` when that was found, `false` when nothing is lost.
async fn is_found(sample: &Sample, name: &str, damage: impl FnOnce(&Path)) -> bool {
    let copy = sample.copy(name);
    damage(&copy);
    let found = match Store::open(StoreOptions::journal(&copy)) {
        Err(error) => {
            println!("{name}: {error}");
            assert!(error.is_corrupt(), "{name}: {error}");
            // Said once is said always: opening again does not make it good.
            let again = Store::open(StoreOptions::journal(&copy)).unwrap_err();
            assert!(again.is_corrupt(), "{name}: {again}");
            true
        }
        Ok(store) => {
            assert_eq!(
                contents(&store, ROWS),
                sample.rows,
                "{name}: rows lost in silence"
            );
            assert_eq!(
                contents(&store, OTHER),
                sample.other,
                "{name}: rows lost in silence"
            );
            store.close().await.unwrap();
            false
        }
    };
    fs::remove_dir_all(copy).unwrap();
    found
}

fn flip(file: &Path, offset: usize, bit: u8) {
    let mut content = fs::read(file).unwrap();
    content[offset] ^= 1 << bit;
    fs::write(file, content).unwrap();
}

#[tokio::test]
async fn a_flipped_bit_anywhere_in_the_data_is_found_or_harmless() {
    let mut random = seeded();
    let sample = Sample::new().await;
    let bytes = fs::metadata(sample.store().join("db")).unwrap().len() as usize;
    let twice = |dir: &Path| (0..2).for_each(|_| flip(&dir.join("db"), bytes / 2, 3));
    assert!(!is_found(&sample, "flipped there and back", twice).await);
    let mut found = 0;
    for round in 0..120 {
        let (offset, bit) = (random.random_range(0..bytes), random.random_range(0..8));
        let name = format!("flip {round}: byte {offset} bit {bit}");
        found +=
            usize::from(is_found(&sample, &name, |dir| flip(&dir.join("db"), offset, bit)).await);
    }
    println!("{found} of 120 flips were found, the others harmless");
    assert!(found > 0);
}

#[tokio::test]
async fn a_flipped_bit_in_the_other_files_is_found_or_harmless() {
    let mut random = seeded();
    let sample = Sample::new().await;
    let names = fs::read_dir(sample.store())
        .unwrap()
        .map(|entry| entry.unwrap());
    let files: Vec<_> = names
        .filter(|entry| entry.file_type().unwrap().is_file())
        .collect();
    assert!(files.len() >= 4, "db, conf, LOCK, WITNESS");
    for file in files.iter().filter(|file| file.file_name() != "db") {
        let bytes = file.metadata().unwrap().len() as usize;
        for round in 0..15 {
            let (offset, bit) = (random.random_range(0..bytes), random.random_range(0..8));
            let file = file.file_name();
            let name = format!("{} {round}: byte {offset} bit {bit}", file.display());
            is_found(&sample, &name, |dir| flip(&dir.join(&file), offset, bit)).await;
        }
    }
}

#[tokio::test]
async fn a_cut_file_is_found_or_harmless() {
    let mut random = seeded();
    let sample = Sample::new().await;
    let bytes = fs::metadata(sample.store().join("db")).unwrap().len();
    for round in 0..20 {
        let left = random.random_range(0..bytes);
        let cut = |dir: &Path| {
            fs::OpenOptions::new()
                .write(true)
                .open(dir.join("db"))
                .unwrap()
                .set_len(left)
                .unwrap();
        };
        is_found(
            &sample,
            &format!("cut {round}: {left} of {bytes} bytes left"),
            cut,
        )
        .await;
    }
    let halved = |dir: &Path| {
        fs::OpenOptions::new()
            .write(true)
            .open(dir.join("db"))
            .unwrap()
            .set_len(bytes / 2)
            .unwrap();
    };
    assert!(is_found(&sample, "half", halved).await);
    let witness_cut = |dir: &Path| {
        fs::OpenOptions::new()
            .write(true)
            .open(dir.join("WITNESS"))
            .unwrap()
            .set_len(4000)
            .unwrap();
    };
    assert!(is_found(&sample, "witness", witness_cut).await);
}

#[tokio::test]
async fn missing_files_are_found() {
    let sample = Sample::new().await;
    assert!(
        is_found(&sample, "no witness", |dir| fs::remove_file(
            dir.join("WITNESS")
        )
        .unwrap())
        .await
    );
    assert!(
        is_found(&sample, "no data", |dir| fs::remove_file(dir.join("db"))
            .unwrap())
        .await
    );
    let empty = |dir: &Path| {
        for entry in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap()) {
            match entry.file_type().unwrap().is_dir() {
                true => fs::remove_dir_all(entry.path()).unwrap(),
                false if entry.file_name() == "WITNESS" => {}
                false => fs::remove_file(entry.path()).unwrap(),
            }
        }
    };
    assert!(is_found(&sample, "witness alone", empty).await);
}

/// The store as it was some commits ago, with the witness of now, and the other way round.
#[tokio::test]
async fn data_and_witness_of_different_times_do_not_fit() {
    let sample = Sample::new().await;
    let newer = sample.copy("newer");
    let store = open(&newer);
    // More than the witness holds.
    for n in 0..40_u8 {
        store
            .commit(Txn::new().put(ROWS, vec![n], "later"))
            .await
            .unwrap();
    }
    store.close().await.unwrap();

    let old_data = sample.copy("old data");
    fs::copy(newer.join("WITNESS"), old_data.join("WITNESS")).unwrap();
    let error = Store::open(StoreOptions::journal(&old_data)).unwrap_err();
    assert!(
        error.to_string().contains("store is behind its witness"),
        "{error}"
    );
    assert!(error.is_corrupt());

    fs::copy(sample.store().join("WITNESS"), newer.join("WITNESS")).unwrap();
    let error = Store::open(StoreOptions::journal(&newer)).unwrap_err();
    assert!(error.to_string().contains("do not fit"), "{error}");
}

#[tokio::test]
async fn the_witness_of_another_store_does_not_fit() {
    let (one, two) = (Sample::new().await, Sample::new().await);
    fs::copy(two.store().join("WITNESS"), one.store().join("WITNESS")).unwrap();
    let error = Store::open(StoreOptions::journal(one.store())).unwrap_err();
    assert!(
        error.to_string().contains("belongs to another store"),
        "{error}"
    );
}

/// What a crash between sled's sync of a large group and the witness leaves.
#[tokio::test]
async fn a_witness_one_group_behind_is_no_fault() {
    let dir = tempfile::tempdir().unwrap();
    let (store_dir, witness) = (dir.path().join("store"), dir.path().join("witness"));
    let store = open(&store_dir);
    store.commit(Txn::new().put(ROWS, "a", "1")).await.unwrap();
    fs::copy(store_dir.join("WITNESS"), &witness).unwrap();
    store.commit(Txn::new().put(ROWS, "b", "2")).await.unwrap();
    store.close().await.unwrap();
    fs::copy(&witness, store_dir.join("WITNESS")).unwrap();

    let store = open(&store_dir);
    assert_eq!(contents(&store, ROWS).len(), 2);
    store.close().await.unwrap();
    // It was brought up to date: the old one does not fit a second time after one more commit.
    let store = open(&store_dir);
    store.commit(Txn::new().put(ROWS, "c", "3")).await.unwrap();
    store.close().await.unwrap();
    fs::copy(&witness, store_dir.join("WITNESS")).unwrap();
    assert!(
        Store::open(StoreOptions::journal(&store_dir))
            .unwrap_err()
            .is_corrupt()
    );
}

/// What a crash between the witness and sled's sync leaves, or rot of sled's last record: the
/// store is behind. A group that the witness kept is put back, rows and deletes; one that was
/// too large for it is missed.
#[tokio::test]
async fn a_last_group_that_sled_lost_comes_from_the_witness_or_is_missed() {
    let sample = Sample::new().await;
    for (value_bytes, kept) in [(2_000, true), (14_000, true), (40_000, false)] {
        let (ahead, behind) = (sample.copy("ahead"), sample.copy("behind"));
        let store = open(&ahead);
        let txn = Txn::new()
            .put(ROWS, "last", vec![5; value_bytes])
            .delete(OTHER, "last");
        store.commit(txn).await.unwrap();
        let (rows, other) = (contents(&store, ROWS), contents(&store, OTHER));
        store.close().await.unwrap();
        fs::copy(ahead.join("WITNESS"), behind.join("WITNESS")).unwrap();

        match Store::open(StoreOptions::journal(&behind)) {
            Ok(store) => {
                assert!(kept, "{value_bytes} bytes");
                assert_eq!(contents(&store, ROWS), rows);
                assert_eq!(contents(&store, OTHER), other);
                store
                    .commit(Txn::new().put(ROWS, "next", "v"))
                    .await
                    .unwrap();
                store.close().await.unwrap();
                open(&behind).close().await.unwrap();
            }
            Err(error) => {
                assert!(!kept, "{value_bytes} bytes: {error}");
                assert!(error.to_string().contains("behind its witness"), "{error}");
            }
        }
        fs::remove_dir_all(ahead).unwrap();
        fs::remove_dir_all(behind).unwrap();
    }
}

/// The witness puts back the groups after the store's last, one after the other, and no others.
#[tokio::test]
async fn groups_of_another_history_are_not_put_back() {
    let sample = Sample::new().await;
    let (one, two) = (sample.copy("one"), sample.copy("two"));
    let mut expected = Rows::new();
    for (dir, commits) in [(&one, 1), (&two, 5)] {
        let store = open(dir);
        for n in 0..commits {
            let value = format!("{commits} {n}");
            store
                .commit(Txn::new().put(ROWS, "k", value))
                .await
                .unwrap();
        }
        expected = contents(&store, ROWS);
        store.close().await.unwrap();
    }
    // Five behind; then four behind, but with another history.
    let behind = sample.copy("behind");
    fs::copy(two.join("WITNESS"), behind.join("WITNESS")).unwrap();
    let store = open(&behind);
    assert_eq!(contents(&store, ROWS), expected);
    store.close().await.unwrap();
    fs::copy(two.join("WITNESS"), one.join("WITNESS")).unwrap();
    let error = Store::open(StoreOptions::journal(&one)).unwrap_err();
    assert!(error.is_corrupt());
    assert!(error.to_string().contains("do not fit"), "{error}");
}

/// A store copied while it is open is one whose process was killed: the data file goes on
/// behind what is written. Damage at its end is found, or made good, as anywhere else.
#[tokio::test]
async fn damage_before_the_unwritten_end_is_found_or_harmless() {
    let mut random = seeded();
    let dir = tempfile::tempdir().unwrap();
    let store = open_small(&dir.path().join("store"));
    let db = dir.path().join("store/db");
    for n in 0..200_u32 {
        let key = n.to_be_bytes().to_vec();
        store
            .commit(Txn::new().put(ROWS, key, vec![3; 700]).put(OTHER, "n", "v"))
            .await
            .unwrap();
    }
    let sample = Sample {
        rows: contents(&store, ROWS),
        other: contents(&store, OTHER),
        dir,
    };
    let live = fs::read(&db).unwrap();
    let written = live.iter().rposition(|byte| *byte != 0).unwrap();
    assert!(live.len() > written + (1 << 20), "there is room");
    let mut found = 0;
    for round in 0..60 {
        // Half of the damage lies in the last records.
        let from = if round % 2 == 0 { written - 4000 } else { 0 };
        let at = random.random_range(from..written);
        let name = format!("round {round}: byte {at} of {written}");
        let damage = |copy: &Path| match round % 3 {
            0 => cut(&copy.join("db"), at as u64),
            1 => {
                cut(&copy.join("db"), at as u64);
                cut(&copy.join("db"), live.len() as u64);
            }
            _ => flip(&copy.join("db"), at, round as u8 % 8),
        };
        found += usize::from(is_found(&sample, &name, damage).await);
    }
    assert!(found > 0);
    assert!(!is_found(&sample, "killed", |_| ()).await);
    store.close().await.unwrap();
}

fn cut(file: &Path, bytes: u64) {
    let file = fs::OpenOptions::new().write(true).open(file).unwrap();
    file.set_len(bytes).unwrap();
}

/// Rows changed behind the store's back, by sled itself and thus with sound pages.
#[tokio::test]
async fn a_lost_an_altered_and_a_moved_row_are_found() {
    let sample = Sample::new().await;
    let stored_key = |n: u32| [&[1, 4], &b"rows"[..], &n.to_be_bytes()].concat();
    let tamper = |dir: &Path, change: &dyn Fn(&sled::Db)| {
        let db = sled::Config::new()
            .path(dir)
            .segment_size(512 << 10)
            .open()
            .unwrap();
        change(&db);
        db.flush().unwrap();
    };
    let key = stored_key(250);
    assert!(
        is_found(&sample, "lost", |dir| tamper(dir, &|db| {
            db.remove(&key).unwrap().expect("the row was there");
        }))
        .await
    );
    assert!(
        is_found(&sample, "altered", |dir| tamper(dir, &|db| {
            let mut value = db.get(&key).unwrap().unwrap().to_vec();
            value[20] ^= 1;
            db.insert(&key, value).unwrap();
        }))
        .await
    );
    assert!(
        is_found(&sample, "moved", |dir| tamper(dir, &|db| {
            let value = db.remove(&key).unwrap().unwrap();
            db.insert(stored_key(9999), value).unwrap();
        }))
        .await
    );
}

/// A row that was deleted comes back whole, checksum and all: only count and digest know.
#[tokio::test]
async fn a_resurrected_row_is_found() {
    let sample = Sample::new().await;
    let stored_key = b"\x01\x04rowsghost";
    let haunted = sample.copy("haunted");
    let store = open(&haunted);
    store
        .commit(Txn::new().put(ROWS, "ghost", "boo"))
        .await
        .unwrap();
    store.close().await.unwrap();
    let raw = |dir: &Path| {
        sled::Config::new()
            .path(dir)
            .segment_size(512 << 10)
            .open()
            .unwrap()
    };
    let framed = raw(&haunted)
        .get(stored_key)
        .unwrap()
        .expect("the row is there");
    let resurrect = |dir: &Path| {
        let db = raw(dir);
        db.insert(stored_key, framed).unwrap();
        db.flush().unwrap();
    };
    assert!(is_found(&sample, "resurrected", resurrect).await);
}

/// Without the full comparison a damaged row is found when it is read.
#[tokio::test]
async fn a_damaged_row_is_found_by_its_reader() {
    let sample = Sample::new().await;
    let key = [&[1, 4], &b"rows"[..], &250_u32.to_be_bytes()].concat();
    let db = sled::Config::new()
        .path(sample.store())
        .segment_size(512 << 10)
        .open()
        .unwrap();
    let mut value = db.get(&key).unwrap().unwrap().to_vec();
    value[20] ^= 1;
    db.insert(&key, value).unwrap();
    db.flush().unwrap();
    drop(db);

    let options = StoreOptions {
        verify: VerifyOnOpen::Witness,
        ..StoreOptions::journal(sample.store())
    };
    let store = Store::open(options).unwrap();
    assert!(store.get(ROWS, &249_u32.to_be_bytes()).unwrap().is_some());
    let error = store.get(ROWS, &250_u32.to_be_bytes()).unwrap_err();
    assert!(
        matches!(&error, StoreError::CorruptRow { table, .. } if table == "rows"),
        "{error}"
    );
    let refused = store
        .commit(Txn::new().put(ROWS, 250_u32.to_be_bytes().to_vec(), "new"))
        .await;
    assert!(
        matches!(refused, Err(StoreError::CorruptRow { .. })),
        "{refused:?}"
    );
    store
        .commit(Txn::new().put(ROWS, "fine", "v"))
        .await
        .unwrap();
}
