//! Journals that version 1 wrote replay for ever to the same state.
//!
//! A file is the entries of one goal, each behind its length (32 bits, little endian).
//! Beside it stands what a person would be shown after each entry and at the end. Both
//! were written once, with `DETENT_UPDATE_GOLDEN=1`; that never touches a file that is
//! there.

use super::walk::{bodies, numbers, walk};
use crate::support::*;
use detent_orchestrator::GoalState;
use detent_orchestrator::view::fold_with_events;
use detent_protocol::journal::{Entry, GENESIS};
use detent_protocol::record::Body;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Walks whose journals together hold every kind of record.
const SEEDS: [u64; 4] = [171, 5, 349, 391];

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
        assert_eq!(
            entry.encode(&hash).unwrap().0,
            raw,
            "written as it was read"
        );
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
    std::fs::create_dir_all(folder()).unwrap();
    for (i, seed) in SEEDS.iter().enumerate() {
        let path = folder().join(format!("v1-{i}.bin"));
        if path.exists() {
            continue;
        }
        let (mut file, mut hash) = (Vec::new(), GENESIS);
        for entry in &walk(numbers(*seed, 200)).d.journal {
            let (bytes, next) = entry.encode(&hash).unwrap();
            hash = next;
            file.extend(u32::try_from(bytes.len()).unwrap().to_le_bytes());
            file.extend_from_slice(&bytes);
        }
        let says = serde_json::to_string_pretty(&replay(&file).1).unwrap() + "\n";
        std::fs::write(path.with_extension("json"), says).unwrap();
        std::fs::write(path, file).unwrap();
    }
}

#[test]
fn journals_of_version_1_replay_to_the_same_state() {
    if std::env::var_os("DETENT_UPDATE_GOLDEN").is_some() {
        write_once();
    }
    let mut kinds = BTreeSet::new();
    for i in 0..SEEDS.len() {
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
