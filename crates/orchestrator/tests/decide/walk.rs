//! Random walks: whatever happens, the invariants hold after every turn, and as soon as
//! the world is kind the goal ends.

use crate::support::world::{Attempt, Walk};
use crate::support::*;
use detent_orchestrator::decide::{Legal, legal};
use detent_orchestrator::state::Status;
use detent_orchestrator::{Bug, Command, Decision, GoalState};
use detent_protocol::StepId;
use detent_protocol::effect::Effect;
use detent_protocol::expect::Verdict;
use detent_protocol::journal::{Entry, GENESIS};
use detent_protocol::json::Digest;
use detent_protocol::record::{
    Body, CHOICE_ABSENT, CHOICE_HAPPENED, Said, Seal, StepEnd, ToolOutcome,
};
use detent_protocol::result::GoalResult;
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use std::collections::BTreeMap;

/// Turns within which a goal ends once everything is kind.
const KIND_TURNS_MAX: usize = 400;

pub(crate) fn bodies(d: &Driver) -> impl Iterator<Item = &Body> {
    d.journal
        .iter()
        .flat_map(|e| &e.records)
        .filter_map(|r| match &r.said {
            Said::Known(body) => Some(body),
            Said::Unknown { .. } => None,
        })
}

/// I1: one end, and nothing after it.
fn one_end(d: &Driver) {
    let ends: Vec<_> = bodies(d)
        .enumerate()
        .filter(|(_, b)| matches!(b, Body::Ended { .. }))
        .collect();
    assert!(ends.len() <= 1, "I1: {} ends", ends.len());
    if let Some((i, _)) = ends.first() {
        assert_eq!(*i + 1, bodies(d).count(), "I1: a record after the end");
    }
}

/// I3: each command is intended by a record of its own turn, or is the goal's seal.
fn intended(decision: &Decision) {
    let said = |f: &dyn Fn(&Body) -> bool| {
        decision
            .records
            .iter()
            .any(|r| matches!(&r.said, Said::Known(b) if f(b)))
    };
    for command in &decision.commands {
        let justified = match command {
            Command::Plan { request, .. } => said(
                &|b| matches!(b, Body::PlanRequested { revision, .. } if *revision == request.revision),
            ),
            Command::Call { call, .. } => said(&|b| {
                matches!(b, Body::Intended { step, attempt, args, identity, .. }
                if (step, *attempt) == (&call.step, call.attempt)
                    && *args == Digest::of_json(&call.args) && *identity == call.identity)
            }),
            Command::Seal(s) => said(&|b| {
                matches!(b, Body::Sealing { step, attempt, .. }
                if (step, *attempt) == (&s.step, s.attempt))
            }),
            Command::Look {
                step: s,
                attempt: a,
                checks,
            } => {
                assert!(!checks.is_empty(), "a look at nothing");
                said(&|b| matches!(b, Body::Looking { step, attempt } if (step, attempt) == (s, a)))
            }
            Command::FetchResult { .. } => decision.next.awaits_result(),
            Command::SealGoal(_) => decision.next.closing.is_some(),
        };
        assert!(justified, "I3: {command:?}");
    }
}

/// I6: an effect is done only when it was seen, when a person said so, or when it is
/// another step's that was.
fn proven(d: &Driver) {
    let mut proven: BTreeMap<StepId, bool> = BTreeMap::new();
    let mut asked: BTreeMap<_, StepId> = BTreeMap::new();
    for body in bodies(d) {
        match body {
            Body::Intended { step, .. } => drop(proven.insert(step.clone(), false)),
            Body::Observed {
                step, observations, ..
            } => {
                let met = !observations.is_empty()
                    && observations.iter().all(|o| o.verdict == Verdict::Met);
                proven.insert(step.clone(), met);
            }
            Body::Asked { question } => {
                drop(asked.insert(question.id.clone(), question.step.clone()))
            }
            Body::Answered {
                question, choice, ..
            } => {
                let happened = choice.as_deref() == Some(CHOICE_HAPPENED);
                proven.insert(asked[question].clone(), happened);
            }
            Body::Bound { step, to, .. } => drop(proven.insert(step.clone(), proven[to])),
            Body::StepEnded {
                step,
                end: StepEnd::Done { .. },
            } => {
                let tool = &d.state.step(step).unwrap().tool;
                let effect = d.definition.tool(tool).unwrap().def.effect;
                assert!(
                    effect == Effect::Read || proven[step],
                    "I6: {step} is done unseen"
                );
            }
            _ => {}
        }
    }
}

/// I9: nothing is reserved past a limit.
fn within_budget(before: &GoalState, decision: &Decision) {
    let grew = decision.next.budget.committed != before.budget.committed;
    let out = |wanted: fn(&Command) -> bool| decision.commands.iter().any(wanted);
    let plans = out(|c| matches!(c, Command::Plan { .. }));
    if grew && (plans || out(|c| matches!(c, Command::Call { .. }))) {
        let budget = &decision.next.budget;
        let over = budget.committed.over(&budget.limits);
        // The answer that was under way may have cost more than was reserved for it; tools
        // go on then, and no further plan is asked for.
        let of_the_answer = over == Some("tokens") && !plans;
        assert!(over.is_none() || of_the_answer, "I9: {over:?}");
    }
}

/// I15: whatever is open waits for a command that is out, for a time, or for a person.
fn waits_for_something(d: &Driver) {
    let state = &d.state;
    if state.ended.is_some() {
        assert!(state.waiting().is_empty() && state.next_wake_ms().is_none());
        return;
    }
    assert!(!state.waiting().is_empty(), "I15");
    let out = |f: &dyn Fn(&Command) -> bool| d.out.iter().any(f);
    for (id, s) in &state.steps {
        let fine = match &s.status {
            Status::Running => out(
                &|c| matches!(c, Command::Call { call, .. } if (&call.step, call.attempt) == (id, s.attempts)),
            ),
            Status::Sealing { .. } => {
                out(&|c| matches!(c, Command::Seal(x) if (&x.step, x.attempt) == (id, s.attempts)))
            }
            Status::Looking => out(&|c| matches!(c, Command::Look { step, .. } if step == id)),
            Status::Asking { question } => state.questions.contains_key(question),
            _ => true,
        };
        assert!(
            fine,
            "I15: {id} is {:?}, and nothing is out for it",
            s.status
        );
    }
    if state
        .planning
        .as_ref()
        .is_some_and(|p| p.wait_until_ms.is_none())
    {
        assert!(
            out(&|c| matches!(c, Command::Plan { .. })),
            "I15: no plan was asked for"
        );
    }
    let time = state.next_wake_ms();
    assert!(
        !d.out.is_empty() || time.is_some() || state.paused.is_some(),
        "I15: stands still"
    );
}

/// I16: a `once` effect is called again only when the last attempt never started, its
/// effect was proven absent, or a person said so; and never with other arguments while
/// it may be there.
fn called_once(d: &Driver) {
    let mut free: BTreeMap<Digest, bool> = BTreeMap::new();
    let mut args_of: BTreeMap<Digest, Digest> = BTreeMap::new();
    let mut of_step: BTreeMap<StepId, Digest> = BTreeMap::new();
    let mut asked: BTreeMap<_, StepId> = BTreeMap::new();
    for body in bodies(d) {
        match body {
            Body::Intended {
                step,
                tool,
                args,
                identity: Some(identity),
                ..
            } => {
                let once = d.definition.tool(tool).unwrap().def.effect == Effect::Once;
                let may = free.get(identity).copied().unwrap_or(true);
                assert!(!once || may, "I16: {step} calls {tool} again");
                if !may {
                    assert_eq!(args_of[identity], *args, "I16: other arguments");
                }
                free.insert(*identity, false);
                args_of.insert(*identity, *args);
                of_step.insert(step.clone(), *identity);
            }
            Body::Inherited { step, identity, .. } => drop(of_step.insert(step.clone(), *identity)),
            Body::Outcome {
                step,
                outcome: ToolOutcome::Failed { started: false, .. },
                ..
            }
            | Body::Sealed {
                step,
                seal: Seal::NeverStarted,
                ..
            }
            | Body::Observed {
                step,
                proven_absent: true,
                ..
            } => {
                if let Some(identity) = of_step.get(step) {
                    free.insert(*identity, true);
                }
            }
            Body::Asked { question } => {
                drop(asked.insert(question.id.clone(), question.step.clone()))
            }
            Body::Answered {
                question,
                choice: Some(choice),
                ..
            } if choice == CHOICE_ABSENT => {
                free.insert(of_step[&asked[question]], true);
            }
            _ => {}
        }
    }
}

/// I5 and I16 in the world itself: no `once` effect took place twice.
fn happened_once(walk: &Walk) {
    // Every place has one tool, and no plan repeats on purpose: a place is an effect,
    // whatever identity it was given.
    let mut count: BTreeMap<String, Vec<&Attempt>> = BTreeMap::new();
    for attempt in walk
        .attempts
        .values()
        .filter(|a| a.started && a.lands_at_ms.is_some())
    {
        let effect = walk
            .d
            .definition
            .tool(&attempt.call.tool)
            .unwrap()
            .def
            .effect;
        if effect == Effect::Once {
            count
                .entry(attempt.call.args["path"].to_string())
                .or_default()
                .push(attempt);
        }
    }
    let twice = count.values().find(|all| all.len() > 1);
    assert!(
        twice.is_none(),
        "I5: it happened more than once: {twice:#?}"
    );
}

/// I10: in one piece, in single records, and from its bytes the journal gives the same.
fn replays(d: &Driver) {
    assert_eq!(d.replayed(), d.state, "I10");
    let (mut state, mut written, mut read) = (empty_state(), GENESIS, GENESIS);
    for entry in &d.journal {
        let (bytes, hash) = entry.encode(&written).unwrap();
        let (back, seen) = Entry::decode(&bytes, &read).unwrap();
        (written, read) = (hash, seen);
        back.records
            .iter()
            .for_each(|r| state.fold(back.epoch, back.at_ms, r));
    }
    assert_eq!(state, d.state, "I10: from its bytes");
}

/// No event of any kind, whenever it comes, breaks anything.
fn takes_anything(d: &Driver, pick: usize) {
    for event in events::one_of_each(&d.definition, &d.state, pick) {
        let is = legal(
            d.state.agent.is_none(),
            d.state.parked.is_some(),
            d.state.phase(),
            &event,
        );
        let mut d = d.clone();
        let decision = d.on(event);
        if is != Legal::Yes {
            assert!(decision.records.is_empty() && decision.commands.is_empty());
        }
    }
}

fn judge(walk: &Walk, before: &GoalState, decision: &Decision) {
    intended(decision);
    within_budget(before, decision);
    waits_for_something(&walk.d);
}

/// What is certain at the end (I6, and I7 of the receipt).
fn judge_the_end(walk: &Walk) {
    let d = &walk.d;
    one_end(d);
    proven(d);
    called_once(d);
    happened_once(walk);
    replays(d);
    let GoalResult::Cancelled { receipt } = d.result() else {
        return;
    };
    let sealed = bodies(d).any(|b| matches!(b, Body::GoalSealed { .. }));
    assert!(
        sealed && receipt.confirmed.len() + receipt.unconfirmed.len() > 0,
        "I7"
    );
}

pub(crate) fn walk(choices: Vec<u16>) -> Walk {
    walk_with(choices, None)
}

fn walk_with(choices: Vec<u16>, bug: Option<Bug>) -> Walk {
    let mut walk = Walk::new(choices);
    walk.d.bug = bug;
    let (mut turns, mut kind) = (0, 0);
    while walk.d.state.ended.is_none() {
        let before = walk.d.state.clone();
        let decision = walk.step();
        judge(&walk, &before, &decision);
        turns += 1;
        if turns % 16 == 0 {
            takes_anything(&walk.d, turns / 16);
            replays(&walk.d);
        }
        kind += usize::from(walk.choices.kind);
        assert!(
            kind <= KIND_TURNS_MAX,
            "it does not end: {:?}\n{}",
            walk.d.state.waiting(),
            walk.d.log()
        );
    }
    takes_anything(&walk.d, 0);
    judge_the_end(&walk);
    walk
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
        max_shrink_iters: 4_000,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct("tests/regressions/walk.txt"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn whatever_happens_the_invariants_hold_and_the_goal_ends(
        choices in prop::collection::vec(any::<u16>(), 0..400)
    ) {
        walk(choices);
    }
}

#[test]
fn in_a_kind_world_a_goal_succeeds() {
    let walk = walk(Vec::new());
    assert_eq!(walk.d.result().status(), "succeeded");
}

/// Numbers that look random and are the same each time.
pub(crate) fn numbers(seed: u64, count: usize) -> Vec<u16> {
    let parts =
        (0..count as u64).map(|i| Digest::of_parts(&[&seed.to_le_bytes(), &i.to_le_bytes()]));
    parts
        .map(|d| u16::from_le_bytes([d.0[0], d.0[1]]))
        .collect()
}

#[test]
fn walks_come_by_everything() {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for seed in 0..250 {
        let walk = walk(numbers(seed, 200));
        bodies(&walk.d).for_each(|b| *seen.entry(b.kind()).or_default() += 1);
        *seen.entry(walk.d.result().status()).or_default() += 1;
    }
    // Goals are not forgotten by deciding.
    let made = Body::KINDS.iter().filter(|kind| **kind != "forgotten");
    for kind in made.chain(&["succeeded", "failed", "cancelled"]) {
        assert!(seen.contains_key(kind), "no walk made {kind}: {seen:?}");
    }
}

/// The judge is worth nothing if it does not find what is known to be wrong.
#[test]
fn planted_mistakes_are_found() {
    let bugs = [
        Bug::RetryOnOwnTimeout,
        Bug::ObserveBeforeSeal,
        Bug::KeyPerAttempt,
        Bug::ReplanNewIdentity,
    ];
    for bug in bugs {
        let found = (0..300).any(|seed| {
            let walked = std::panic::catch_unwind(|| walk_with(numbers(seed, 300), Some(bug)));
            walked.is_err()
        });
        assert!(found, "no walk finds {bug:?}");
    }
}
