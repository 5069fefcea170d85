//! The small configurations whole, and each mistake with the invariant that it breaks.
//! `cargo xtask model` has the large ones.

use detent_model::model::GOALS;
use detent_model::state::{Budget, State};
use detent_model::{Mutation, check, config};
use stateright::Model;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// States of a configuration that is small enough for every run of the tests.
const SMALL: usize = 600_000;

#[test]
fn small_configurations_hold_and_have_the_states_they_had() {
    let small = config::ALL.iter().filter(|c| c.states < SMALL);
    let mut checked = 0;
    for c in small {
        let report = check(&c.setting, 2);
        let broken: Vec<_> = report.broken.iter().map(|b| b.text()).collect();
        assert!(broken.is_empty(), "{}: {}", c.name, broken.join("\n"));
        assert_eq!(report.states, c.states, "{}", c.name);
        for goal in c.reaches {
            assert!(
                report.reached.contains(goal),
                "{}: {}",
                c.name,
                GOALS[*goal]
            );
        }
        checked += 1;
    }
    assert!(checked >= 3);
}

#[test]
fn every_way_to_end_is_asked_of_some_configuration() {
    for (goal, name) in GOALS.iter().enumerate() {
        assert!(
            config::ALL.iter().any(|c| c.reaches.contains(&goal)),
            "{name}"
        );
    }
}

#[test]
fn without_its_mistake_each_setting_of_a_mistake_holds() {
    for mutation in Mutation::ALL {
        let mut setting = mutation.setting();
        setting.rules.bug = None;
        let report = check(&setting, 1);
        assert!(
            report.broken.is_empty(),
            "{}: {}",
            mutation.name(),
            report.broken[0].text()
        );
    }
}

/// Pairs of faults, each with every kind of tool.
fn pairs() -> impl Iterator<Item = detent_model::Setting> {
    let kinds = [
        "crash", "zombie", "lose", "dup", "early", "lie", "tool", "cancel", "amend",
    ];
    let tools = config::ALL.iter().filter(|c| c.name.starts_with("faults"));
    tools.flat_map(move |c| {
        (0..kinds.len()).flat_map(move |a| {
            (0..a).map(move |b| {
                let mut setting = c.setting;
                setting.budget = Budget::default();
                assert!(setting.budget.set(kinds[a], 1) && setting.budget.set(kinds[b], 1));
                setting
            })
        })
    })
}

#[test]
fn what_is_left_out_makes_no_difference() {
    for reduced in pairs() {
        let whole = detent_model::Setting {
            reduced: false,
            ..reduced
        };
        let (reduced, whole) = (check(&reduced, 1), check(&whole, 1));
        assert!(reduced.broken.is_empty() && whole.broken.is_empty());
        assert!(reduced.states <= whole.states);
        assert_eq!(reduced.reached, whole.reached, "{:?}", whole);
    }
    for mutation in Mutation::ALL {
        let mut setting = mutation.setting();
        setting.reduced = false;
        let report = check(&setting, 1);
        assert_eq!(
            report.broken[0].invariant,
            mutation.breaks(),
            "{}",
            mutation.name()
        );
    }
}

#[test]
fn states_that_differ_are_hashed_as_different() {
    let small = config::ALL
        .iter()
        .find(|c| c.name.starts_with("restore, cancel"));
    let model = small.expect("a configuration").setting.model();
    let mut seen: HashMap<u64, State> = HashMap::new();
    let mut open = model.init_states();
    while let Some(state) = open.pop() {
        let mut hasher = DefaultHasher::new();
        state.hash(&mut hasher);
        if let Some(known) = seen.insert(hasher.finish(), state) {
            assert_eq!(known, state);
            continue;
        }
        let mut actions = Vec::new();
        model.actions(&state, &mut actions);
        open.extend(
            actions
                .into_iter()
                .filter_map(|a| model.next_state(&state, a)),
        );
    }
    assert!(seen.len() > 100_000, "{}", seen.len());
}

#[test]
fn a_counterexample_can_be_read() {
    let report = check(&Mutation::RetryOnOwnTimeout.setting(), 1);
    let text = report.broken[0].text();
    assert!(
        text.contains("ToolSilent") && text.contains("waits for a tool"),
        "{text}"
    );
}

macro_rules! caught {
    ($($test:ident: $mutation:ident,)*) => {
        $(#[test]
        fn $test() {
            let report = check(&Mutation::$mutation.setting(), 1);
            let first = report.broken.first().expect("a counterexample");
            assert_eq!(first.invariant, Mutation::$mutation.breaks(), "{}", first.text());
        })*
        #[test]
        fn every_mistake_has_its_test() {
            let tested = [$(Mutation::$mutation,)*];
            let missing: Vec<_> = Mutation::ALL.iter().filter(|m| !tested.contains(m)).collect();
            assert!(missing.is_empty(), "{missing:?}");
        }
    };
}

caught! {
    accepted_before_durable: AckEarly,
    an_acked_suffix_lost: SuffixLost,
    a_refreshed_fence: RefreshedFence,
    a_takeover_that_retries: TakeoverWithoutSeal,
    a_takeover_that_only_looks: TakeoverLooksOnly,
    a_retry_on_ones_own_timeout: RetryOnOwnTimeout,
    a_cancel_that_ends_at_once: CancelEndsAtOnce,
    a_dispatch_before_its_intent: DispatchBeforeIntent,
    a_key_with_the_attempt_in_it: KeyPerAttempt,
    an_unknown_outcome_not_escalated: NotEscalated,
    a_result_told_early: TellEarly,
    a_look_without_a_seal: LookWithoutSeal,
    a_look_before_the_seal: LookThenSeal,
    a_look_at_a_replica: LookAtReplica,
    absent_without_settling: AbsentWithoutSettling,
    absent_of_a_tool_that_declares_nothing: AbsentUndeclared,
    a_seal_that_counts_as_absent: SealedCountsAsAbsent,
    a_cancel_that_claims_nothing_was_done: CancelClaimsNothing,
    a_journal_purged_after_the_end: PurgeAfterEnd,
    a_gate_that_forgets: GateForgets,
    a_slot_without_its_nonce: SlotWithoutNonce,
    a_slot_deleted: SlotDeleted,
    no_slot_at_all: NoSlot,
    a_start_on_an_unclear_slot: StartOnUnclearSlot,
    a_slot_won_after_the_roll_up: SlotIgnoresTombstone,
    a_seal_that_does_not_wait: SealWithoutWaiting,
    a_question_before_the_deadlines_passed: AskBeforeWaitingOut,
    a_new_identity_on_replan: ReplanNewIdentity,
    a_lost_wake_up: WakeUpOnly,
    a_receipt_before_the_last_executor: ReceiptBeforeLast,
    a_cancel_acked_before_the_journal: CancelAckedEarly,
    a_claim_without_a_barrier: ClaimWithoutBarrier,
    a_tool_that_is_believed: BelieveTheTool,
    a_fenced_tool_that_adds_up: FencedAddsUp,
    a_restored_goal_that_goes_on: RestoredGoesOn,
    an_old_key_taken_anew_after_a_restore: OldKeyTakenAnew,
}
