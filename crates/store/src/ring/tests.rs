//! What a crash or rot may do to a ring, block by block and byte by byte, and what is read.

use std::fs::{self, File, OpenOptions};
use std::path::PathBuf;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tempfile::TempDir;

use super::block::{BLOCK_BYTES, PAYLOAD_BYTES};
use super::survey::{self, read_blocks};
use super::*;
use crate::meta::Meta;

const RING_BYTES: u64 = RING_BYTES_FLOOR;

/// A ring and the history of the store that it belongs to.
struct Sample {
    dir: TempDir,
    ring: Ring,
    meta: Meta,
    /// The store's meta row when sled was synced last.
    synced: Meta,
    /// The groups since then.
    groups: Vec<(Head, Vec<u8>)>,
}

impl Sample {
    fn new() -> Sample {
        let dir = tempfile::tempdir().unwrap();
        let meta = Meta::new(9);
        let path = dir.path().join("WITNESS");
        let ring = Ring::create(&path, RING_BYTES, says(&meta), SyncMode::Never).unwrap();
        Sample {
            dir,
            ring,
            synced: meta.clone(),
            meta,
            groups: Vec::new(),
        }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("WITNESS")
    }

    fn bytes(&self) -> Vec<u8> {
        fs::read(self.path()).unwrap()
    }

    fn file(&self) -> File {
        let options = OpenOptions::new().read(true).write(true).clone();
        options.open(self.path()).unwrap()
    }

    /// Writes a group of so many bytes.
    fn write(&mut self, redo_bytes: usize) {
        self.meta.advance(self.meta.head.seq + 1);
        let redo = vec![self.meta.head.seq as u8; redo_bytes];
        self.ring.write(says(&self.meta), &redo).unwrap();
        self.groups.push((self.meta.head, redo));
    }

    /// Sled is synced.
    fn sync(&mut self) {
        self.ring.release();
        self.synced = self.meta.clone();
        self.groups.clear();
    }

    /// Groups of one, two and four parts that sled has not synced, behind some that it has.
    fn unsynced() -> Sample {
        let mut sample = Sample::new();
        for _ in 0..5 {
            sample.write(100);
        }
        sample.sync();
        for redo_bytes in [PAYLOAD_BYTES, PAYLOAD_BYTES + 1, 3 * PAYLOAD_BYTES + 1] {
            sample.write(redo_bytes);
        }
        sample
    }

    fn plan(&self, bytes: &[u8]) -> Result<Plan, String> {
        read(bytes).map_or_else(
            |unusable| Err(format!("{unusable:?}")),
            |survey| plan(&survey, &self.synced),
        )
    }

    /// The groups that come back from these bytes.
    fn redone(&self, bytes: &[u8]) -> Result<Vec<(Head, Vec<u8>)>, String> {
        let plan = self.plan(bytes)?;
        let path = self.dir.path().join("copy");
        fs::write(&path, bytes).unwrap();
        let file = File::open(path).unwrap();
        let redo = |whole| survey::redo(&file, whole).unwrap().unwrap();
        Ok(plan.redo.iter().map(|w| (w.record.head, redo(w))).collect())
    }

    /// The blocks of the groups that sled has not synced: per group, first block and parts.
    fn rows(&self) -> Vec<(usize, usize)> {
        let plan = self.plan(&self.bytes()).unwrap();
        let row =
            |whole: &super::survey::Whole| (whole.start as usize, whole.record.parts() as usize);
        plan.redo.iter().map(row).collect()
    }
}

fn says(meta: &Meta) -> Testimony {
    Testimony {
        store_id: meta.store_id,
        head: meta.head,
        previous: meta.previous,
    }
}

fn read(bytes: &[u8]) -> Result<Survey, Unusable> {
    read_blocks(bytes, bytes.len() as u64).unwrap()
}

fn block_mut(bytes: &mut [u8], block: usize) -> &mut [u8] {
    &mut bytes[block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES]
}

fn with_zeroed(bytes: &[u8], blocks: impl IntoIterator<Item = usize>) -> Vec<u8> {
    let mut damaged = bytes.to_vec();
    for block in blocks {
        block_mut(&mut damaged, block).fill(0);
    }
    damaged
}

#[test]
fn groups_of_all_sizes_come_back_around_and_around_the_ring() {
    for seed in 0..40 {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut sample = Sample::new();
        let sizes = [200, PAYLOAD_BYTES, sample.ring.redo_bytes_max()];
        for step in 0..120 {
            let most = sizes[random.random_range(0..3)];
            let redo_bytes = random.random_range(1..=most);
            if !sample.ring.has_room(redo_bytes) || random.random_ratio(1, 12) {
                sample.sync();
            }
            assert!(sample.ring.has_room(redo_bytes), "after a sync there is");
            if random.random_ratio(1, 20) {
                // A group that sled got first.
                sample.sync();
                sample.write(0);
                sample.synced = sample.meta.clone();
                sample.groups.clear();
            } else {
                sample.write(redo_bytes);
            }
            if random.random_ratio(1, 30) {
                // Opened again: everything is synced first.
                sample.sync();
                let (path, file) = (sample.path(), sample.file());
                let survey = super::read(&file).unwrap().unwrap();
                sample.ring = Ring::resume(&path, file, &survey, SyncMode::Never);
                sample.ring.write(says(&sample.meta), &[]).unwrap();
            }
            if step % 7 == 0 {
                let redone = sample.redone(&sample.bytes());
                assert_eq!(
                    redone.as_ref(),
                    Ok(&sample.groups),
                    "seed {seed} step {step}"
                );
            }
        }
    }
}

#[test]
fn a_full_ring_takes_nothing_until_it_is_released() {
    let mut sample = Sample::new();
    let mut written = 0;
    while sample.ring.has_room(100) {
        assert_eq!(sample.ring.is_filling(), written >= 11, "{written}");
        sample.write(100);
        written += 1;
    }
    assert_eq!(written, RING_BYTES as usize / BLOCK_BYTES / 2 - 1);
    let before = sample.bytes();
    assert!(sample.ring.write(says(&sample.meta), &[1; 100]).is_err());
    assert_eq!(sample.bytes(), before);
    assert_eq!(sample.redone(&before).unwrap(), sample.groups);
    sample.sync();
    sample.write(100);
    let too_large = vec![1; sample.ring.redo_bytes_max() + 1];
    assert!(sample.ring.write(says(&sample.meta), &too_large).is_err());
}

/// Every byte of every copy of every record, one at a time.
#[test]
fn a_flipped_byte_anywhere_costs_nothing() {
    let sample = Sample::unsynced();
    let mut bytes = sample.bytes();
    let whole = sample.plan(&bytes).unwrap();
    assert_eq!((whole.redo.len(), whole.damaged), (3, 0));
    let heads = |plan: &Plan| plan.redo.iter().map(|w| w.record).collect::<Vec<_>>();
    let rows = sample.rows();
    let first = rows[0].0 * BLOCK_BYTES;
    let end = rows.iter().map(|(start, parts)| start + 2 * parts).max();
    let end = end.unwrap() * BLOCK_BYTES;
    for at in 0..end {
        bytes[at] ^= 1 << (at % 8);
        let plan = sample
            .plan(&bytes)
            .unwrap_or_else(|e| panic!("byte {at}: {e}"));
        assert_eq!(heads(&plan), heads(&whole), "byte {at}");
        assert_eq!(plan.damaged, u32::from(at >= first), "byte {at}");
        bytes[at] ^= 1 << (at % 8);
    }
}

#[test]
fn a_zeroed_or_stale_block_costs_nothing_and_is_told() {
    let mut sample = Sample::new();
    for _ in 0..RING_BYTES as usize / BLOCK_BYTES {
        sample.sync();
        sample.write(10);
    }
    let stale = sample.bytes();
    sample.sync();
    for redo_bytes in [PAYLOAD_BYTES, 2 * PAYLOAD_BYTES, 3 * PAYLOAD_BYTES] {
        sample.write(redo_bytes);
    }
    let bytes = sample.bytes();
    for (start, parts) in sample.rows() {
        for block in start..start + 2 * parts {
            let mut old = bytes.clone();
            let before = &stale[block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES];
            block_mut(&mut old, block).copy_from_slice(before);
            for damaged in [with_zeroed(&bytes, [block]), old] {
                assert_eq!(sample.plan(&damaged).unwrap().damaged, 1, "block {block}");
                assert_eq!(sample.redone(&damaged).unwrap(), sample.groups);
            }
        }
        for copy in [start..start + parts, start + parts..start + 2 * parts] {
            let damaged = with_zeroed(&bytes, copy);
            assert_eq!(sample.redone(&damaged).unwrap(), sample.groups);
        }
        // Each part from another copy.
        let mixed = with_zeroed(&bytes, (0..parts).map(|n| start + n + n % 2 * parts));
        assert_eq!(sample.redone(&mixed).unwrap(), sample.groups);
    }
}

/// The one thing that can't be told from a write that a crash cut off is the newest record.
#[test]
fn a_part_lost_in_both_copies_is_a_gap_or_the_end() {
    let sample = Sample::unsynced();
    let bytes = sample.bytes();
    let rows = sample.rows();
    for (index, (start, parts)) in rows.iter().enumerate() {
        for part in 0..*parts {
            let damaged = with_zeroed(&bytes, [start + part, start + parts + part]);
            let redone = sample.redone(&damaged);
            if index == rows.len() - 1 {
                assert_eq!(redone.unwrap(), sample.groups[..index]);
            } else {
                let error = redone.unwrap_err();
                assert!(error.contains("behind its witness"), "{error}");
            }
        }
    }
    // All of it gone: the records behind it tell.
    let (start, parts) = rows[1];
    let damaged = with_zeroed(&bytes, start..start + 2 * parts);
    assert!(sample.redone(&damaged).is_err());
    // The last two gone but for one block of the last: it tells of the one before.
    let (start, parts) = rows[2];
    let lost = (rows[1].0..start).chain(start + 1..start + 2 * parts);
    assert!(sample.redone(&with_zeroed(&bytes, lost)).is_err());
}

/// Damage to what sled has already is of no account, even to both copies.
#[test]
fn records_that_are_synced_are_not_needed() {
    let mut sample = Sample::new();
    for _ in 0..4 {
        sample.write(PAYLOAD_BYTES + 1);
    }
    sample.sync();
    sample.write(10);
    let bytes = sample.bytes();
    let needed = sample.rows()[0].0;
    let damaged = with_zeroed(&bytes, 0..needed);
    assert_eq!(sample.plan(&damaged).unwrap().damaged, 0);
    assert_eq!(sample.redone(&damaged).unwrap(), sample.groups);
    // Sled lost its tail: what is left of the ring makes it good, or says that it can't.
    sample.synced = Meta::new(9);
    assert_eq!(sample.redone(&bytes).unwrap().len(), 5);
    let error = sample.redone(&with_zeroed(&bytes, [2, 4])).unwrap_err();
    assert!(error.contains("behind its witness"), "{error}");
}

/// A write that a crash cut off anywhere leaves the group as a whole or not at all.
#[test]
fn a_torn_write_is_the_whole_group_or_none() {
    for seed in 0..200 {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut sample = Sample::new();
        // So that old blocks lie under the torn ones.
        for _ in 0..random.random_range(0..30) {
            sample.sync();
            sample.write(random.random_range(1..3 * PAYLOAD_BYTES));
        }
        sample.sync();
        sample.write(random.random_range(1..PAYLOAD_BYTES));
        let before = sample.bytes();
        sample.write(random.random_range(1..4 * PAYLOAD_BYTES));
        let after = sample.bytes();
        // The blocks reach the disk in any order, and one of them in part.
        let mut torn = before.clone();
        for block in 0..torn.len() / BLOCK_BYTES {
            let kept = match random.random_range(0..3) {
                0 => 0,
                1 => BLOCK_BYTES,
                _ => random.random_range(0..BLOCK_BYTES / 512) * 512,
            };
            let from = block * BLOCK_BYTES;
            torn[from..from + kept].copy_from_slice(&after[from..from + kept]);
        }
        let redone = sample
            .redone(&torn)
            .unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        let both = sample.groups.len();
        assert!(redone.len() >= both - 1, "seed {seed}");
        assert_eq!(redone, sample.groups[..redone.len()], "seed {seed}");

        // Opened, the ring goes on, and what was torn never comes back.
        fs::write(sample.path(), &torn).unwrap();
        let survey = read(&torn).unwrap();
        sample.groups = redone;
        let reached = sample.groups.last().unwrap().0;
        if reached != sample.meta.head {
            sample.meta.head = reached;
        }
        sample.sync();
        let (path, file) = (sample.path(), sample.file());
        sample.ring = Ring::resume(&path, file, &survey, SyncMode::Never);
        sample.ring.write(says(&sample.meta), &[]).unwrap();
        sample.ring.release();
        for _ in 0..3 {
            sample.write(random.random_range(1..2 * PAYLOAD_BYTES));
            let redone = sample.redone(&sample.bytes());
            assert_eq!(redone.as_ref(), Ok(&sample.groups), "seed {seed}");
        }
    }
}

#[test]
fn a_file_of_another_length_is_refused() {
    let sample = Sample::unsynced();
    let bytes = sample.bytes();
    for len in (0..bytes.len()).step_by(1000).skip(1) {
        let unusable = read(&bytes[..len]).unwrap_err();
        let expected = if len < BLOCK_BYTES {
            Unusable::NoRing
        } else {
            Unusable::Length
        };
        assert_eq!(unusable, expected, "{len} bytes");
    }
    for more in [1, BLOCK_BYTES] {
        let longer = [&bytes[..], &vec![0; more]].concat();
        assert_eq!(read(&longer).unwrap_err(), Unusable::Length);
    }
    assert_eq!(read(&[]).unwrap_err(), Unusable::NoRing);
    assert_eq!(read(&vec![0; bytes.len()]).unwrap_err(), Unusable::NoRing);
}

#[test]
fn what_does_not_fit_is_said() {
    let sample = Sample::unsynced();
    let survey = read(&sample.bytes()).unwrap();
    let refused = |meta: &Meta| plan(&survey, meta).unwrap_err();
    assert!(refused(&Meta::new(8)).contains("another store"));

    let mut further = sample.meta.clone();
    further.advance(sample.meta.head.seq + 1);
    assert_eq!(plan(&survey, &further).unwrap().redo, [], "one group ahead");
    further.advance(sample.meta.head.seq + 2);
    assert!(refused(&further).contains("do not fit"), "two ahead");

    let mut other = sample.synced.clone();
    other.head.chain ^= 1;
    assert!(refused(&other).contains("they differ at commit 5"));
}

#[test]
fn a_ring_has_its_size_from_the_beginning_and_appears_whole() {
    let sample = Sample::new();
    let meta = fs::metadata(sample.path()).unwrap();
    assert_eq!(meta.len(), RING_BYTES);
    assert!(
        std::os::unix::fs::MetadataExt::blocks(&meta) * 512 >= RING_BYTES,
        "all of it was written"
    );
    assert_eq!(fs::read_dir(sample.dir.path()).unwrap().count(), 1);
    assert_eq!(read(&sample.bytes()).unwrap().proven, sample.meta.head);
}
