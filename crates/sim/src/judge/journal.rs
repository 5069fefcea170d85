//! What a goal's journal says about itself: I1, I2, I5, I9, I10, I15.

use super::history::History;
use super::{Facts, Verdict};
use detent_orchestrator::GoalState;
use detent_protocol::StepId;
use detent_protocol::effect::Effect;
use detent_protocol::json::Digest;
use detent_protocol::record::{Body, CHOICE_ABSENT, Seal, ToolOutcome};
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn check(facts: &Facts, history: &History, verdict: &mut Verdict<'_>) {
    one_end(facts, history, verdict);
    nothing_is_lost(history, verdict);
    one_owner(history, verdict);
    once_is_not_repeated(facts, history, verdict);
    sealed_before_proven(history, verdict);
    the_fold(history, verdict);
}

/// I1: exactly one terminal record, and nothing after it.
fn one_end(facts: &Facts, history: &History, verdict: &mut Verdict<'_>) {
    let ends = history.bodies();
    let ends = ends.filter(|(_, _, body)| matches!(body, Body::Ended { .. }));
    let ends: Vec<u64> = ends.map(|(_, record, _)| record.n).collect();
    let last = history.last.n - u64::from(history.last.forgotten.is_some());
    match ends.as_slice() {
        // Its tombstone alone: what else there was is gone.
        [] if history.last.forgotten.is_some() => {}
        [] if facts.all_must_have_ended => {
            let last = &history.last;
            let waits = last.waiting();
            let waits: Vec<_> = waits.iter().map(|w| w.what.as_str()).collect();
            let phase = last.phase();
            verdict.breaks(
                "I1",
                format!("it has not ended: {phase:?}, waits for {waits:?}"),
            );
        }
        [] => {}
        [n] if *n == last => {}
        ends => verdict.breaks("I1", format!("ends at {ends:?} of {last}")),
    }
}

/// I1: whatever a tombstone stands for is in its archive. (That it says the same is the
/// fold's to find.)
fn nothing_is_lost(history: &History, verdict: &mut Verdict<'_>) {
    let Some(goal) = &history.last.forgotten else {
        return;
    };
    let (there, said) = (history.entries.len() as u64 - 1, goal.archive.entries);
    if there != said {
        verdict.breaks(
            "I1",
            format!("forgotten: {there} of {said} entries are archived"),
        );
    }
}

/// I2: epochs only rise, and each begins with its owner.
fn one_owner(history: &History, verdict: &mut Verdict<'_>) {
    let mut epoch = 0;
    for entry in &history.entries {
        let owned = entry.records.iter().any(|r| {
            matches!(
                &r.said,
                detent_protocol::record::Said::Known(Body::Owned { .. })
            )
        });
        if entry.epoch < epoch || (entry.epoch > epoch) != owned {
            let (now, n) = (entry.epoch, entry.records.first().map_or(0, |r| r.n));
            let text = format!("record {n}: epoch {now} after {epoch}, owner said: {owned}");
            verdict.breaks("I2", text);
        }
        epoch = entry.epoch;
    }
}

/// I5: an open `once` effect is not tried again before it is proven absent or a person
/// has decided.
fn once_is_not_repeated(facts: &Facts, history: &History, verdict: &mut Verdict<'_>) {
    // By identity: what is open, and the step's identity.
    let mut open: BTreeMap<Digest, (StepId, u32)> = BTreeMap::new();
    let mut identities: BTreeMap<StepId, Digest> = BTreeMap::new();
    let mut asked: BTreeMap<String, StepId> = BTreeMap::new();
    for (_, record, body) in history.bodies() {
        let closed = match body {
            Body::Intended {
                step,
                attempt,
                tool,
                identity: Some(identity),
                ..
            } => {
                identities.insert(step.clone(), *identity);
                if facts.tools.get(tool) == Some(&Effect::Once) {
                    let earlier = open.insert(*identity, (step.clone(), *attempt));
                    if let Some((by, attempt)) = earlier {
                        let n = record.n;
                        let text = format!("record {n}: {tool} again; {by}/{attempt} is open");
                        verdict.breaks("I5", text);
                    }
                }
                None
            }
            Body::Inherited { step, identity, .. } => {
                identities.insert(step.clone(), *identity);
                None
            }
            Body::Asked { question } => {
                asked.insert(question.id.to_string(), question.step.clone());
                None
            }
            Body::Answered {
                question,
                choice: Some(choice),
                ..
            } if choice == CHOICE_ABSENT => asked.get(question.as_str()),
            body => proves_absence(body),
        };
        if let Some(identity) = closed.and_then(|step| identities.get(step)) {
            open.remove(identity);
        }
    }
}

/// The step whose effect this record says not to be there.
fn proves_absence(body: &Body) -> Option<&StepId> {
    match body {
        Body::Sealed {
            step,
            seal: Seal::NeverStarted,
            ..
        }
        | Body::Sealed {
            step,
            seal:
                Seal::Ended {
                    outcome: Some(ToolOutcome::Failed { started: false, .. }),
                },
            ..
        }
        | Body::Outcome {
            step,
            outcome: ToolOutcome::Failed { started: false, .. },
            ..
        }
        | Body::Observed {
            step,
            proven_absent: true,
            ..
        } => Some(step),
        _ => None,
    }
}

/// I5: absence is proven only of an attempt that has ended or was sealed: what was seen
/// before that says nothing about what came after.
fn sealed_before_proven(history: &History, verdict: &mut Verdict<'_>) {
    let mut over: BTreeSet<(&StepId, u32)> = BTreeSet::new();
    for (_, record, body) in history.bodies() {
        match body {
            Body::Sealed { step, attempt, .. } | Body::Outcome { step, attempt, .. } => {
                over.insert((step, *attempt));
            }
            Body::Observed {
                step,
                attempt,
                proven_absent: true,
                ..
            } if *attempt > 0 && !over.contains(&(step, *attempt)) => {
                let text = format!("record {}: {step}/{attempt} was not sealed", record.n);
                verdict.breaks("I5", format!("{text}, and is said to be proven absent"));
            }
            _ => {}
        }
    }
}

/// I9, I10, I15: the fold, entry by entry.
fn the_fold(history: &History, verdict: &mut Verdict<'_>) {
    let last = &history.last;
    if let Some(parked) = &last.parked {
        verdict.breaks("I10", format!("the journal can't be folded: {parked}"));
        return;
    }
    let mut state = GoalState::new(last.tenant.clone(), last.goal);
    for entry in &history.entries {
        // In pieces: each record onto a copy of what came before it.
        for record in &entry.records {
            let mut next = state.clone();
            next.fold(entry.epoch, entry.at_ms, record);
            state = next;
            if let Some(part) = state.budget.committed.over(&state.budget.limits) {
                let text = format!("record {}: {part} is over its limit", record.n);
                verdict.breaks("I9", text);
            }
        }
        if state.ended.is_none() && state.waiting().is_empty() {
            let (n, phase) = (state.n, state.phase());
            verdict.breaks(
                "I15",
                format!("after record {n} ({phase:?}) it waits for nothing"),
            );
        }
    }
    if state != *last {
        verdict.breaks("I10", "folding in pieces gives another state");
    }
}
