//! What the store's tests share.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::Path;

use detent_store::{Scan, Store, StoreOptions, Table};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

pub(crate) const ROWS: Table = Table::new("rows");
pub(crate) const OTHER: Table = Table::new("other");

pub(crate) type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

pub(crate) fn open(dir: &Path) -> Store {
    Store::open(StoreOptions::journal(dir)).unwrap()
}

/// A store whose witness holds the last few commits only.
pub(crate) fn open_small(dir: &Path) -> Store {
    let options = StoreOptions {
        witness_bytes_max: 128 << 10,
        ..StoreOptions::journal(dir)
    };
    Store::open(options).unwrap()
}

pub(crate) fn contents(store: &Store, table: Table) -> Rows {
    let rows = store.scan(table, &Scan::prefix("", usize::MAX)).unwrap();
    rows.into_iter()
        .map(|(key, value)| (key.to_vec(), value.to_vec()))
        .collect()
}

/// A generator whose seed is printed, and taken from `DETENT_SEED` when that is set.
pub(crate) fn seeded() -> ChaCha8Rng {
    let given = std::env::var("DETENT_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seed: u64 = given.unwrap_or_else(|| RandomState::new().build_hasher().finish());
    println!("DETENT_SEED={seed}");
    ChaCha8Rng::seed_from_u64(seed)
}

/// Copies a closed store.
pub(crate) fn copy_dir(from: &Path, to: &Path) {
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
