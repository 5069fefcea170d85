//! The kill table with the journal on NATS: the node dies by SIGKILL at each failpoint,
//! with goals in flight, and is started again on the same broker.
//!
//! `DETENT_CHAOS_ROUNDS` gives the number of rounds (default 17: each point once),
//! `DETENT_SEED` plays the kills of an earlier run again.

use detent_chaos_tests::chance;
use detent_chaos_tests::plan::{POINTS, Plan};
use detent_chaos_tests::round::run_on_nats;
use detent_chaos_tests::table::Table;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Rounds that run at the same time.
const PARALLEL: u64 = 2;

fn rounds() -> u64 {
    match std::env::var("DETENT_CHAOS_ROUNDS") {
        Ok(text) => text.parse().expect("DETENT_CHAOS_ROUNDS is a number"),
        Err(_) => POINTS.len() as u64,
    }
}

#[test]
fn goals_on_nats_end_once_whatever_is_killed() {
    let (seed, rounds) = (chance::seed().unwrap(), rounds());
    eprintln!("DETENT_SEED={seed}");
    let root = tempfile::Builder::new()
        .prefix("detent-nats-kill-")
        .tempdir()
        .unwrap();
    let (next, table) = (AtomicU64::new(0), Mutex::new(Table::default()));
    let broken = Mutex::new(Vec::new());
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::SeqCst);
            if number >= rounds {
                return;
            }
            let plan = Plan::draw(seed, number).up();
            let dir = root.path().join(format!("round-{number}"));
            let mut sentences: Vec<String> = Vec::new();
            match run_on_nats(&plan, &dir) {
                Ok(outcome) => {
                    sentences.extend(outcome.findings.all().cloned());
                    if outcome.kills.is_empty() {
                        sentences.push("nothing was killed".to_owned());
                    }
                    table.lock().unwrap().add(outcome);
                }
                Err(error) => sentences.push(error),
            }
            if sentences.is_empty() {
                // Two hundred rounds need not be kept at once.
                let _ = std::fs::remove_dir_all(&dir);
            }
            let named = sentences.into_iter().map(|s| format!("{plan:?}: {s}"));
            broken.lock().unwrap().extend(named);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..PARALLEL.min(rounds) {
            scope.spawn(work);
        }
    });
    let (table, broken) = (table.into_inner().unwrap(), broken.into_inner().unwrap());
    println!("{}\n{}", table.markdown(), table.summary(seed));
    if !broken.is_empty() {
        let (kept, all) = (root.keep(), broken.join("\n"));
        panic!(
            "DETENT_SEED={seed}, data kept in {}:\n{all}",
            kept.display()
        );
    }
    if rounds >= POINTS.len() as u64 {
        let missed: Vec<_> = POINTS.iter().filter(|p| table.kills_at(p) == 0).collect();
        assert!(
            missed.is_empty(),
            "DETENT_SEED={seed}: no kill at {missed:?}"
        );
    }
}
