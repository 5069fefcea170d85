//! Seeds: the same run each time, no invariant broken, every planted mistake found.

use detent_orchestrator::Bug;
use detent_sim::chance::Faults;
use detent_sim::{Options, Report, run};
use std::collections::BTreeMap;

fn seed(seed: u64, options: &Options) -> Report {
    run(seed, options).expect("a runtime")
}

/// What is wrong with a run, and how to see it again.
fn complaint(report: &Report) -> String {
    let violations = report.violations.iter().map(ToString::to_string);
    let violations: Vec<_> = violations.collect();
    let again = format!("DETENT_SEED={} detent-sim --seeds 1 --trace", report.seed);
    format!("{}\nagain: {again}", violations.join("\n"))
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let options = Options::default();
    let mut hashes = Vec::new();
    for number in 0..20 {
        let (one, two) = (seed(number, &options), seed(number, &options));
        assert_eq!(
            (one.trace_hash, one.events, one.simulated_ms),
            (two.trace_hash, two.events, two.simulated_ms),
            "seed {number}"
        );
        hashes.push(one.trace_hash);
    }
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), 20, "other seeds give other runs");
}

/// Without this, the next test could pass because nothing ever happens.
const SEEN: [&str; 25] = [
    "forgotten",
    "accepted",
    "owned",
    "plan_requested",
    "planned",
    "plan_refused",
    "intended",
    "bound",
    "outcome",
    "sealing",
    "sealed",
    "looking",
    "observed",
    "waiting",
    "step_ended",
    "asked",
    "answered",
    "amended",
    "paused",
    "resumed",
    "closing",
    "goal_sealed",
    "fell_back",
    "ended",
    "crashes",
];

/// Enough that the rarest kind of record is missing once in thousands of changes.
const SEEDS: u64 = 120;

#[test]
fn many_seeds_break_no_invariant_and_leave_nothing_out() {
    let options = Options::default();
    let mut seen: BTreeMap<&str, u64> = BTreeMap::new();
    let mut succeeded = 0;
    for number in 0..SEEDS {
        let report = seed(number, &options);
        assert!(report.violations.is_empty(), "{}", complaint(&report));
        for (kind, records) in report.facts.kinds() {
            *seen.entry(kind).or_default() += records;
        }
        *seen.entry("crashes").or_default() += report.lives - 1;
        succeeded += report.ended.get("succeeded").copied().unwrap_or(0);
    }
    for kind in SEEN {
        assert!(seen.get(kind).is_some_and(|n| *n > 0), "{kind}: {seen:?}");
    }
    // Faults cost some goals their success, not most of them.
    assert!(succeeded > SEEDS * options.goals / 2, "{succeeded}");
}

#[test]
fn without_faults_every_goal_that_nobody_stops_succeeds() {
    let options = Options {
        faults: Some(Faults::NONE),
        ..Options::default()
    };
    for number in 0..5 {
        let report = seed(number, &options);
        assert!(report.violations.is_empty(), "{}", complaint(&report));
        assert_eq!(report.lives, 1);
        let failed = report.ended.keys().filter(|k| k.starts_with("failed"));
        // Amending what was done already is a conflict, and the goal says so.
        let failed: Vec<_> = failed.filter(|k| !k.contains("EFFECT_CONFLICT")).collect();
        assert!(failed.is_empty(), "seed {number}: {failed:?}");
    }
}

/// What these runs have in common.
const SOME: Faults = Faults {
    message_late: 60,
    append_false_fence: 10,
    ledger: 20,
    probe_outage: 20,
    settle_late: 100,
    ..Faults::NONE
};

fn stays_mended(number: u64, faults: Faults) {
    let options = Options {
        faults: Some(faults),
        ..Options::default()
    };
    let report = seed(number, &options);
    assert!(report.violations.is_empty(), "{}", complaint(&report));
}

/// Once an attempt was made again with a key that the world still knew then, and had
/// forgotten when the attempt's bytes arrived (I16).
#[test]
fn a_key_that_lapses_under_way_stays_mended() {
    let faults = Faults {
        crash: 3,
        append_unclear: 60,
        journal_outage: 40,
        tool: 100,
        ..SOME
    };
    stays_mended(194, faults);
}

/// Once two submissions at one moment with one key took each other's entry for their
/// own; and a cancel was confirmed by the one of the two actors that had lost (I1).
#[test]
fn a_cancel_confirmed_by_who_had_lost_the_goal_stays_mended() {
    let faults = Faults {
        message_lost: 10,
        append_unclear: 10,
        tool: 350,
        ..SOME
    };
    stays_mended(230, faults);
}

/// Once a goal whose actor had failed eight times, most of them only because the journal
/// was away, was left alone for ever (I1).
#[test]
fn an_actor_that_fails_while_the_journal_is_away_stays_mended() {
    let faults = Faults {
        message_lost: 10,
        message_twice: 150,
        message_late: 0,
        append_unclear: 60,
        journal_outage: 40,
        slot_unclear: 20,
        probe_outage: 60,
        tool: 100,
        panic: 100,
        ..SOME
    };
    stays_mended(208, faults);
}

/// Seeds in which a planted mistake has to be found.
const SEEDS_MAX: u64 = 300;

fn is_found(bug: Bug, invariants: &[&str]) {
    let options = Options {
        bug: Some(bug),
        ..Options::default()
    };
    let found = (0..SEEDS_MAX).find(|number| {
        let report = seed(*number, &options);
        let broken = report.violations.iter();
        broken.map(|v| v.invariant).any(|i| invariants.contains(&i))
    });
    assert!(found.is_some(), "{bug:?} is not found in {SEEDS_MAX} seeds");
    println!("{bug:?}: seed {found:?}");
}

#[test]
fn an_answer_before_the_journal_is_found() {
    is_found(Bug::AckEarly, &["I1"]);
}

#[test]
fn a_dispatch_before_its_intent_is_found() {
    is_found(Bug::DispatchBeforeIntent, &["I3"]);
}

#[test]
fn a_retry_on_ones_own_timeout_is_found() {
    is_found(Bug::RetryOnOwnTimeout, &["I5"]);
}

#[test]
fn a_key_for_each_attempt_is_found() {
    is_found(Bug::KeyPerAttempt, &["I16"]);
}

#[test]
fn a_look_before_the_seal_is_found() {
    is_found(Bug::ObserveBeforeSeal, &["I5"]);
}

#[test]
fn a_new_identity_for_each_plan_is_found() {
    is_found(Bug::ReplanNewIdentity, &["I5", "I16"]);
}
