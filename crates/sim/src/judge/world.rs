//! What journals say against what the world counted: I3, I4, I6, I7, I9, I16.

use super::history::History;
use super::{Facts, Start, Verdict, Violation};
use detent_orchestrator::state::{Status, StepState};
use detent_protocol::effect::Effect;
use detent_protocol::json::Digest;
use detent_protocol::record::Body;
use detent_protocol::result::GoalResult;
use detent_protocol::{GoalId, StepId, ToolName};
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn check(facts: &Facts, history: &History, verdict: &mut Verdict<'_>) {
    let goal = history.last.goal;
    let starts: Vec<&Start> = facts.starts.iter().filter(|s| s.goal == goal).collect();
    intended_first(history, &starts, verdict);
    started_once(facts, &starts, verdict);
    calls_are_paid(history, &starts, verdict);
    nothing_after_the_receipt(facts, history, &starts, verdict);
    claims_are_true(facts, history, verdict);
}

/// I3: no start without a confirmed intent before it.
fn intended_first(history: &History, starts: &[&Start], verdict: &mut Verdict<'_>) {
    let mut intents = BTreeMap::new();
    for (number, entry) in (1u64..).zip(&history.entries) {
        for record in &entry.records {
            if let detent_protocol::record::Said::Known(Body::Intended { step, attempt, .. }) =
                &record.said
            {
                intents.insert((step, *attempt), number);
            }
        }
    }
    for start in starts {
        let intent = intents.get(&(&start.step, start.attempt));
        let before = start.entries_before;
        let text = match (intent, before) {
            (None, _) => "was never intended".to_owned(),
            (Some(entry), Some(had)) if *entry > had => {
                format!("started with {had} entries in the journal, its intent is entry {entry}")
            }
            _ => continue,
        };
        verdict.breaks("I3", format!("{} {text}", named(start)));
    }
}

fn named(start: &Start) -> String {
    format!("{}/{} ({})", start.step, start.attempt, start.tool)
}

/// I4: an attempt with an effect starts at most once.
fn started_once(facts: &Facts, starts: &[&Start], verdict: &mut Verdict<'_>) {
    let mut seen: BTreeMap<_, u32> = BTreeMap::new();
    for start in starts {
        let effect = facts.tools.get(&start.tool);
        if effect.is_some_and(|e| e.has_slot()) {
            *seen.entry((&start.step, start.attempt)).or_default() += 1;
        }
    }
    for ((step, attempt), times) in seen.into_iter().filter(|(_, times)| *times > 1) {
        verdict.breaks("I4", format!("{step}/{attempt} started {times} times"));
    }
}

/// I9: what was started was reserved. (A `read` attempt may be delivered twice.)
fn calls_are_paid(history: &History, starts: &[&Start], verdict: &mut Verdict<'_>) {
    let mut attempts: Vec<_> = starts.iter().map(|s| (&s.step, s.attempt)).collect();
    attempts.sort();
    attempts.dedup();
    let paid = history.last.budget.committed.tool_calls as usize;
    if attempts.len() > paid {
        let text = format!(
            "{} attempts started, {paid} tool calls reserved",
            attempts.len()
        );
        verdict.breaks("I9", text);
    }
}

/// I7: after the receipt of a cancel nothing of the goal is alive and nothing starts.
fn nothing_after_the_receipt(
    facts: &Facts,
    history: &History,
    starts: &[&Start],
    verdict: &mut Verdict<'_>,
) {
    let Some((entry, GoalResult::Cancelled { receipt })) = history.end() else {
        return;
    };
    let receipt_ms = entry.at_ms.saturating_add(facts.clock_error_ms);
    for start in starts {
        if receipt.unconfirmed.contains(&start.node) {
            continue;
        }
        let alive = start.ended_ms.is_none_or(|end| end > receipt_ms);
        if alive || start.at_ms > receipt_ms {
            let (at, end) = (start.at_ms, start.ended_ms);
            let text = format!("receipt at {receipt_ms}; it lived from {at} to {end:?}");
            verdict.breaks("I7", format!("{} {text}", named(start)));
        }
    }
}

/// I6: what the steps say of their effects is so. I16: one identity, one effect, also
/// where a fallback made it.
fn claims_are_true(facts: &Facts, history: &History, verdict: &mut Verdict<'_>) {
    let state = &history.last;
    let by_step = identities(history);
    let applied = applied(facts, history, &by_step);
    for (identity, times) in &applied {
        if *times > 1 {
            let short = identity.short();
            verdict.breaks("I16", format!("the effect {short} happened {times} times"));
        }
    }
    if state.ended.is_none() {
        return;
    }
    // Steps that say that an effect is there, or that they do not know.
    let mut admitted = BTreeSet::new();
    for (id, identity) in &by_step {
        if state.step(id).is_some_and(admits) {
            admitted.insert(*identity);
        }
    }
    for (id, identity) in &by_step {
        let Some(step) = state.step(id) else { continue };
        let there = applied.get(identity).is_some_and(|times| *times > 0);
        let status = &step.status;
        if *status == Status::Done && !there {
            verdict.breaks(
                "I6",
                format!("step {id} is done, and its effect is not there"),
            );
        }
        let denies = matches!(status, Status::Failed { .. } | Status::Skipped);
        if denies && there && !admitted.contains(identity) {
            let text = format!("step {id} says {status:?}, and its effect is there");
            verdict.breaks("I6", text);
        }
    }
}

fn admits(step: &StepState) -> bool {
    matches!(step.status, Status::Done | Status::Unknown { .. })
}

/// The identity of the effect of each step that has one.
fn identities(history: &History) -> BTreeMap<&StepId, Digest> {
    let found = history.bodies().filter_map(|(_, _, body)| match body {
        Body::Intended {
            step,
            identity: Some(identity),
            ..
        }
        | Body::Bound { step, identity, .. }
        | Body::Inherited { step, identity, .. } => Some((step, *identity)),
        _ => None,
    });
    found.collect()
}

/// How often each effect happened, over all tools that were to make it.
fn applied(
    facts: &Facts,
    history: &History,
    by_step: &BTreeMap<&StepId, Digest>,
) -> BTreeMap<Digest, u32> {
    let mut made_by: BTreeMap<Digest, BTreeSet<(&ToolName, Digest)>> = BTreeMap::new();
    for (_, _, body) in history.bodies() {
        if let Body::Intended {
            step, tool, args, ..
        } = body
            && let Some(identity) = by_step.get(step)
        {
            made_by.entry(*identity).or_default().insert((tool, *args));
        }
    }
    let goal = history.last.goal;
    let times = |made: &BTreeSet<(&ToolName, Digest)>| {
        let effects = facts.effects.iter().filter(|e| e.goal == goal);
        let mine = effects.filter(|e| e.args.iter().any(|a| made.contains(&(&e.tool, *a))));
        mine.map(|e| e.applied).sum()
    };
    made_by
        .iter()
        .map(|(id, made)| (*id, times(made)))
        .collect()
}

/// I16 (I5 for `once`): no effect happens twice. I3: no process without a journal.
pub(super) fn check_strays(
    facts: &Facts,
    histories: &BTreeMap<GoalId, History>,
    found: &mut Vec<Violation>,
) {
    for effect in facts.effects.iter().filter(|e| e.applied > 1) {
        let once = facts.tools.get(&effect.tool) == Some(&Effect::Once);
        found.push(Violation {
            invariant: if once { "I5" } else { "I16" },
            goal: Some(effect.goal),
            evidence: format!(
                "{} {} happened {} times",
                effect.tool, effect.what, effect.applied
            ),
        });
    }
    for start in facts.starts.iter() {
        if !histories.contains_key(&start.goal) {
            found.push(Violation {
                invariant: "I3",
                goal: Some(start.goal),
                evidence: format!("{} started, and there is no journal", named(start)),
            });
        }
    }
}
