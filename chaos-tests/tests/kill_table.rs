//! The kill table: the node dies by SIGKILL at each failpoint, with goals in flight, and
//! is started again; every goal ends once and with the right result.
//!
//! `DETENT_CHAOS_ROUNDS` gives the number of rounds (default 20), `DETENT_SEED` plays
//! the kills of an earlier run again.

use detent_chaos_tests::chance;
use detent_chaos_tests::plan::{POINTS, Plan};
use detent_chaos_tests::round::{self, Outcome};
use detent_chaos_tests::site::Site;
use detent_chaos_tests::table::Table;
use detent_chaos_tests::{Result, binary};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Rounds that run at the same time.
const PARALLEL: usize = 2;

fn rounds() -> u64 {
    match std::env::var("DETENT_CHAOS_ROUNDS") {
        Ok(text) => text.parse().expect("DETENT_CHAOS_ROUNDS is a number"),
        Err(_) => 20,
    }
}

/// `target` of this build: the program lies in `target/PROFILE/detent`.
fn target() -> PathBuf {
    let program = binary::detent().unwrap();
    program
        .ancestors()
        .nth(2)
        .unwrap_or(Path::new("target"))
        .to_path_buf()
}

#[test]
fn goals_end_once_whatever_is_killed() {
    let (seed, rounds) = (chance::seed().unwrap(), rounds());
    eprintln!("DETENT_SEED={seed}");
    let root = tempfile::Builder::new()
        .prefix("detent-kill-")
        .tempdir()
        .unwrap();
    let (next, table, broken) = (AtomicU64::new(0), Mutex::default(), Mutex::default());
    std::thread::scope(|scope| {
        for _ in 0..PARALLEL.min(rounds as usize) {
            scope.spawn(|| worker(seed, rounds, root.path(), &next, &table, &broken));
        }
    });
    let (table, broken): (Table, Vec<String>) =
        (table.into_inner().unwrap(), broken.into_inner().unwrap());
    println!("{}\n{}", table.markdown(), table.summary(seed));
    table.write(&target(), seed).unwrap();
    if !broken.is_empty() {
        let kept = root.keep();
        let all = broken.join("\n");
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

fn worker(
    seed: u64,
    rounds: u64,
    root: &Path,
    next: &AtomicU64,
    table: &Mutex<Table>,
    broken: &Mutex<Vec<String>>,
) {
    loop {
        let number = next.fetch_add(1, Ordering::SeqCst);
        if number >= rounds {
            return;
        }
        let plan = Plan::draw(seed, number);
        let dir = root.join(format!("round-{number}"));
        let outcome = round::run(&plan, &dir);
        let sentences = judge(&plan, &outcome);
        if sentences.is_empty() {
            // Two hundred rounds need not be kept at once.
            let _ = std::fs::remove_dir_all(&dir);
        }
        broken.lock().unwrap().extend(sentences);
        if let Ok(outcome) = outcome {
            table.lock().unwrap().add(outcome);
        }
    }
}

fn judge(plan: &Plan, outcome: &Result<Outcome>) -> Vec<String> {
    let mut sentences: Vec<String> = match outcome {
        Ok(outcome) => outcome.findings.all().cloned().collect(),
        Err(error) => vec![error.clone()],
    };
    // The first kill of a round is chosen so that it can't be missed.
    if outcome.as_ref().is_ok_and(|o| o.kills.is_empty()) {
        sentences.push("nothing was killed".to_owned());
    }
    let name = |s: String| format!("{plan:?}: {s}");
    sentences.into_iter().map(name).collect()
}

#[test]
fn the_list_is_the_programs() {
    let root = tempfile::tempdir().unwrap();
    let site = Site::new(root.path()).unwrap();
    let mut command = site.command(&["goals", "list"]).unwrap();
    let output = command.env("DETENT_FAILPOINT", "none").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    let (_, known) = said.split_once("there are ").unwrap();
    let known: Vec<_> = known.trim().split(", ").collect();
    assert_eq!(known, POINTS);
}
