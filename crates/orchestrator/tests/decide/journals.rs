//! Journals that version 1 wrote replay for ever to the same state.
//!
//! A file is the entries of one goal, each behind its length (32 bits, little endian).
//! Beside it stands what a person would be shown after each entry and at the end. Both
//! were written once, with `DETENT_UPDATE_GOLDEN=1`; that never touches a file that is
//! there. The last two are a goal that was forgotten: with its archived entries, and alone.

use super::walk::{bodies, numbers, walk};
use crate::support::*;
use bytes::Bytes;
use detent_orchestrator::GoalState;
use detent_orchestrator::view::fold_with_events;
use detent_protocol::journal::{Entry, GENESIS};
use detent_protocol::json::Digest;
use detent_protocol::record::{Body, Record, Said};
use detent_protocol::tombstone::Archive;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Walks whose journals together hold every kind of record.
const SEEDS: [u64; 4] = [171, 5, 349, 391];
/// All files.
const FILES: usize = SEEDS.len() + 2;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../protocol/tests/journals")
}

fn entries(bytes: &[u8]) -> Vec<&[u8]> {
    let (mut rest, mut all) = (bytes, Vec::new());
    while let Some((length, tail)) = rest.split_first_chunk::<4>() {
        let (entry, tail) = tail.split_at(u32::from_le_bytes(*length) as usize);
        all.push(entry);
        rest = tail;
    }
    assert!(rest.is_empty(), "the file is cut off");
    all
}

/// Folds a file; gives the state and what it says, and checks its own encoding.
fn replay(bytes: &[u8]) -> (GoalState, Value) {
    let (mut state, mut hash, mut history) = (empty_state(), GENESIS, Vec::new());
    for raw in entries(bytes) {
        let (entry, next) = Entry::decode(raw, &hash).unwrap();
        let (written, _) = match Entry::is_tombstone(raw) {
            true => entry.encode_tombstone(&replaced(raw)).unwrap(),
            false => entry.encode(&hash).unwrap(),
        };
        assert_eq!(written, raw, "written as it was read");
        hash = next;
        let events = fold_with_events(&mut state, &entry);
        let said: Vec<_> = events
            .iter()
            .map(|e| format!("{} {}: {}", e.n, e.kind, e.text))
            .collect();
        history.push(
            json!({"phase": state.phase(), "wake_ms": state.next_wake_ms(),
            "waiting": state.waiting(), "said": said}),
        );
    }
    let effects = state
        .effects
        .iter()
        .map(|(id, e)| json!({"identity": id, "step": e.step, "is": format!("{:?}", e.is)}));
    let says = json!({
        "history": history,
        "view": state.view(),
        "budget": state.budget,
        "effects": effects.collect::<Vec<_>>(),
        "revision": state.revision,
        "replans": state.replans,
    });
    (state, says)
}

/// The hash that a tombstone names.
fn replaced(raw: &[u8]) -> Digest {
    Digest(raw[39..71].try_into().unwrap())
}

/// The tombstone of a goal that has ended, and its entry after the one with this hash.
fn tombstone(state: &GoalState, hash: &Digest) -> (Entry, Bytes) {
    let archive = Archive {
        parts: vec![*hash],
        entries: 1,
        bytes: 1,
    };
    let goal = Box::new(state.tombstone(archive).unwrap());
    let record = Record {
        n: state.n + 1,
        cause: "retention".into(),
        said: Said::Known(Body::Forgotten { goal }),
    };
    let entry = Entry {
        tenant: state.tenant.clone(),
        goal: state.goal,
        epoch: state.epoch,
        at_ms: state.at_ms + 1_000,
        at_error_ms: 0,
        records: vec![record],
    };
    let (bytes, _) = entry.encode_tombstone(hash).unwrap();
    (entry, bytes)
}

/// Is all of `expected` in `says`? A later version may say more, never less.
fn says_at_least(says: &Value, expected: &Value) -> bool {
    match (says, expected) {
        (Value::Object(says), Value::Object(expected)) => expected
            .iter()
            .all(|(k, v)| says.get(k).is_some_and(|s| says_at_least(s, v))),
        (Value::Array(says), Value::Array(expected)) => {
            says.len() == expected.len()
                && says.iter().zip(expected).all(|(s, e)| says_at_least(s, e))
        }
        _ => says == expected,
    }
}

fn write_once() {
    for (i, seed) in SEEDS.iter().enumerate() {
        let (file, _) = journal(*seed);
        write_file(i, &file);
    }
    let (mut file, hash) = journal(SEEDS[0]);
    let (_, tombstone) = tombstone(&replay(&file).0, &hash);
    put(&mut file, &tombstone);
    write_file(SEEDS.len(), &file);
    let mut alone = Vec::new();
    put(&mut alone, &tombstone);
    write_file(SEEDS.len() + 1, &alone);
}

/// The journal of a walk, and the hash of its last entry.
fn journal(seed: u64) -> (Vec<u8>, Digest) {
    let (mut file, mut hash) = (Vec::new(), GENESIS);
    for entry in &walk(numbers(seed, 200)).d.journal {
        let (bytes, next) = entry.encode(&hash).unwrap();
        hash = next;
        put(&mut file, &bytes);
    }
    (file, hash)
}

fn put(file: &mut Vec<u8>, entry: &[u8]) {
    file.extend(u32::try_from(entry.len()).unwrap().to_le_bytes());
    file.extend_from_slice(entry);
}

fn write_file(number: usize, file: &[u8]) {
    std::fs::create_dir_all(folder()).unwrap();
    let path = folder().join(format!("v1-{number}.bin"));
    if path.exists() {
        return;
    }
    let says = serde_json::to_string_pretty(&replay(file).1).unwrap() + "\n";
    std::fs::write(path.with_extension("json"), says).unwrap();
    std::fs::write(path, file).unwrap();
}

#[test]
fn journals_of_version_1_replay_to_the_same_state() {
    if std::env::var_os("DETENT_UPDATE_GOLDEN").is_some() {
        write_once();
    }
    let mut kinds = BTreeSet::new();
    for i in 0..FILES {
        let path = folder().join(format!("v1-{i}.bin"));
        let bytes = std::fs::read(&path).unwrap();
        let (state, says) = replay(&bytes);
        assert_eq!(state.parked, None);
        let text = std::fs::read_to_string(path.with_extension("json")).unwrap();
        let expected: Value = serde_json::from_str(&text).unwrap();
        let same = says_at_least(&says, &expected);
        assert!(same, "{} says now: {says:#}", path.display());
        let mut d = Driver::fresh(shop(json!({})));
        d.journal = entries(&bytes)
            .into_iter()
            .map(|raw| Entry::decode_alone(raw).unwrap().0)
            .collect();
        kinds.extend(bodies(&d).map(Body::kind));
    }
    assert_eq!(
        kinds,
        Body::KINDS.iter().copied().collect(),
        "a kind is in no journal"
    );
}

#[test]
fn a_damaged_journal_is_refused_at_the_entry() {
    let bytes = std::fs::read(folder().join("v1-0.bin")).unwrap();
    let all = entries(&bytes);
    let mut hash = GENESIS;
    for (i, raw) in all.iter().enumerate() {
        let mut bad = raw.to_vec();
        let middle = bad.len() / 2;
        bad[middle] ^= 1;
        assert!(
            Entry::decode(&bad, &hash).is_err(),
            "entry {i} with a flipped bit"
        );
        if i + 1 < all.len() {
            assert!(
                Entry::decode(all[i + 1], &hash).is_err(),
                "entry {i} left out"
            );
        }
        hash = Entry::decode(raw, &hash).unwrap().1;
    }
}

#[test]
fn a_record_of_a_newer_version_parks_the_goal_and_nothing_more_is_folded() {
    let bytes = std::fs::read(folder().join("v1-0.bin")).unwrap();
    let all = entries(&bytes);
    let mut state = empty_state();
    state.fold_entry(&Entry::decode_alone(all[0]).unwrap().0);
    let mut newer = Entry::decode_alone(all[1]).unwrap().0;
    newer.records[0].said = detent_protocol::record::Said::Unknown {
        kind: "teleported".into(),
        raw: vec![0x80],
    };
    state.fold_entry(&newer);
    let parked = state.parked.clone().unwrap();
    assert_eq!(parked.code, detent_protocol::Code::JournalUnreadable);
    let before = state.clone();
    state.fold_entry(&Entry::decode_alone(all[2]).unwrap().0);
    assert_eq!(state, before);
    assert_eq!(state.next_wake_ms(), None);
    assert_eq!(state.waiting()[0].what, "repair");
}

#[test]
fn a_tombstone_says_of_a_goal_what_was_known_of_it() {
    for seed in SEEDS {
        let (mut file, hash) = journal(seed);
        let ended = replay(&file).0;
        let (entry, bytes) = tombstone(&ended, &hash);
        let mut alone = empty_state();
        alone.fold_entry(&entry);
        put(&mut file, &bytes);
        let whole = replay(&file).0;
        for forgotten in [&alone, &whole] {
            assert_eq!(forgotten.parked, None);
            assert_eq!(forgotten.n, ended.n + 1);
            assert_eq!(forgotten.epoch, ended.epoch);
            assert_eq!(forgotten.ended, ended.ended);
            assert_eq!(forgotten.submission, ended.submission);
            assert_eq!(forgotten.key, ended.key);
            assert_eq!(forgotten.at_ms, ended.at_ms);
            let mut line = ended.line().unwrap();
            line.archived = true;
            assert_eq!(forgotten.line(), Some(line));
            assert_eq!(
                (forgotten.next_wake_ms(), forgotten.waiting()),
                (None, vec![])
            );
            assert_eq!(forgotten.tombstone(Archive::default()), None);
        }
    }
}

#[test]
fn a_tombstone_of_something_else_parks_the_goal() {
    let (file, hash) = journal(SEEDS[0]);
    let ended = replay(&file).0;
    let (entry, _) = tombstone(&ended, &hash);
    let parks = |state: &GoalState, entry: &Entry| {
        let mut state = state.clone();
        state.fold_entry(entry);
        state.parked.is_some()
    };
    assert!(!parks(&ended, &entry));
    let change = |f: &dyn Fn(&mut Entry)| {
        let mut entry = entry.clone();
        f(&mut entry);
        entry
    };
    let another = change(&|entry| {
        if let Said::Known(Body::Forgotten { goal }) = &mut entry.records[0].said {
            goal.steps += 1;
        }
    });
    assert!(parks(&ended, &another));
    assert!(parks(&ended, &change(&|entry| entry.records[0].n += 1)));
    assert!(parks(&ended, &change(&|entry| entry.epoch += 1)));
    // Of a goal that has not ended, and twice.
    let mut open = empty_state();
    open.fold_entry(&Entry::decode_alone(entries(&file)[0]).unwrap().0);
    assert!(parks(
        &open,
        &change(&|entry| entry.records[0].n = open.n + 1)
    ));
    let mut twice = ended.clone();
    twice.fold_entry(&entry);
    assert!(parks(&twice, &change(&|entry| entry.records[0].n += 1)));
}
