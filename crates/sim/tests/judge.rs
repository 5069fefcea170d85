//! The judge finds each invariant broken: facts of a good run, and one thing changed.

use bytes::Bytes;
use detent_protocol::effect::Effect;
use detent_protocol::journal::{Entry, GENESIS};
use detent_protocol::json::Digest;
use detent_protocol::record::{Body, Said};
use detent_protocol::result::GoalResult;
use detent_protocol::{GoalId, ToolName};
use detent_sim::chance::Faults;
use detent_sim::judge::{Facts, judge};
use detent_sim::{Forget, Options, run};

/// Facts of the first good run that has what the test needs.
fn facts(has: impl Fn(&Facts) -> bool) -> Facts {
    let options = Options {
        faults: Some(Faults::NONE),
        forget: Forget::Never,
        ..Options::default()
    };
    facts_of(&options, has)
}

fn facts_of(options: &Options, has: impl Fn(&Facts) -> bool) -> Facts {
    let runs = (0..40).map(|seed| run(seed, options).expect("a runtime").facts);
    let mut fitting = runs.filter(|facts| has(facts));
    let facts = fitting.next().expect("a run that has it");
    assert_eq!(judge(&facts), []);
    facts
}

fn any(_: &Facts) -> bool {
    true
}

/// Exactly this invariant is said to be broken, for this goal.
fn breaks(facts: &Facts, invariant: &str, goal: GoalId) {
    let found = judge(facts);
    let named = found
        .iter()
        .any(|v| v.invariant == invariant && v.goal == Some(goal));
    assert!(named, "{invariant} of {goal}: {found:?}");
}

fn entries(facts: &Facts, journal: usize) -> Vec<Entry> {
    let mut hash = GENESIS;
    let raw = facts.journals[journal].1.iter();
    raw.map(|bytes| {
        let (entry, next) = Entry::decode(bytes, &hash).unwrap();
        hash = next;
        entry
    })
    .collect()
}

/// Writes a journal anew, its chain whole and its records numbered.
fn rewrite(facts: &mut Facts, journal: usize, mut change: impl FnMut(usize, &mut Entry)) -> GoalId {
    let mut entries = entries(facts, journal);
    let (mut hash, mut n, mut raw) = (GENESIS, 0, Vec::<Bytes>::new());
    for (i, entry) in entries.iter_mut().enumerate() {
        change(i, entry);
        for record in &mut entry.records {
            n += 1;
            record.n = n;
        }
        let (bytes, next) = entry.encode(&hash).unwrap();
        hash = next;
        raw.push(bytes);
    }
    facts.journals[journal].1 = raw;
    facts.journals[journal].0.goal
}

fn effect_of(facts: &Facts, tool: &ToolName) -> Effect {
    facts.tools[tool]
}

#[test]
fn i1_an_accepted_goal_that_is_lost() {
    let mut facts = facts(any);
    let goal = facts.journals.remove(0).0.goal;
    breaks(&facts, "I1", goal);
}

#[test]
fn i1_a_goal_that_does_not_end() {
    let mut facts = facts(any);
    facts.journals[0].1.pop();
    breaks(&facts, "I1", facts.journals[0].0.goal);
    // Unless it still may.
    facts.all_must_have_ended = false;
    facts.results.clear();
    facts.submissions.retain(|s| s.key.is_none());
    assert_eq!(judge(&facts), []);
}

#[test]
fn i1_another_result_than_the_journal_s() {
    let mut facts = facts(|f| f.results.iter().any(|r| r.result.status() == "succeeded"));
    let told = facts.results.iter_mut();
    let mut told = told.filter(|r| r.result.status() == "succeeded");
    let told = told.next().unwrap();
    let goal = told.goal;
    if let GoalResult::Succeeded { stale, .. } = &mut told.result {
        *stale = !*stale;
    }
    breaks(&facts, "I1", goal);
}

#[test]
fn i1_a_result_before_its_end() {
    let mut facts = facts(|f| !f.results.is_empty());
    facts.results[0].was_journaled = Some(false);
    breaks(&facts, "I1", facts.results[0].goal);
}

#[test]
fn i1_a_control_message_that_was_confirmed_and_lost() {
    use detent_protocol::messages::Verb;
    let cancel = |v: &Verb| matches!(v, Verb::Cancel { .. });
    let mut facts = facts(|f| f.controls.iter().any(|c| cancel(&c.verb)));
    let told = facts.controls.iter_mut().find(|c| cancel(&c.verb)).unwrap();
    let uncancelled = facts.journals.iter().find(|(key, _)| key.goal != told.goal);
    told.goal = uncancelled.unwrap().0.goal;
    let goal = told.goal;
    breaks(&facts, "I1", goal);
}

#[test]
fn i2_an_epoch_without_its_owner() {
    let mut facts = facts(any);
    let goal = rewrite(&mut facts, 0, |i, entry| entry.epoch += u64::from(i > 0));
    breaks(&facts, "I2", goal);
}

#[test]
fn i3_a_start_before_its_intent() {
    let mut facts = facts(|f| !f.starts.is_empty());
    facts.starts[0].entries_before = Some(1);
    breaks(&facts, "I3", facts.starts[0].goal);
    facts.starts[0].entries_before = None;
    facts.starts[0].attempt = 99;
    breaks(&facts, "I3", facts.starts[0].goal);
}

#[test]
fn i4_an_attempt_that_starts_twice() {
    let mut facts = facts(any);
    let slotted = |f: &Facts, i: usize| effect_of(f, &f.starts[i].tool).has_slot();
    let place = (0..facts.starts.len()).find(|i| slotted(&facts, *i));
    let again = facts.starts[place.unwrap()].clone();
    let goal = again.goal;
    facts.starts.push(again);
    breaks(&facts, "I4", goal);
}

#[test]
fn i5_i16_an_effect_that_happens_twice() {
    for (effect, invariant) in [
        (Effect::Once, "I5"),
        (Effect::Idempotent, "I16"),
        (Effect::Fenced, "I16"),
    ] {
        let is = |f: &Facts, tool: &ToolName| f.tools[tool] == effect;
        let mut facts = facts(|f| f.effects.iter().any(|e| is(f, &e.tool)));
        let of_kind = facts.effects.iter().position(|e| is(&facts, &e.tool));
        let twice = &mut facts.effects[of_kind.unwrap()];
        twice.applied = 2;
        let goal = twice.goal;
        breaks(&facts, invariant, goal);
    }
}

#[test]
fn i6_a_success_without_its_effect() {
    let mut facts = facts(|f| f.effects.iter().any(|e| e.applied == 1));
    let there = facts.effects.iter_mut().find(|e| e.applied == 1).unwrap();
    there.applied = 0;
    let goal = there.goal;
    breaks(&facts, "I6", goal);
}

#[test]
fn i7_a_process_that_outlives_the_receipt() {
    let cancelled = |f: &Facts| {
        let result = f.results.iter();
        let mut cancelled = result.filter(|r| r.result.status() == "cancelled");
        cancelled.find_map(|r| f.starts.iter().position(|s| s.goal == r.goal))
    };
    let mut facts = facts(|f| cancelled(f).is_some());
    let place = cancelled(&facts).unwrap();
    facts.starts[place].ended_ms = None;
    breaks(&facts, "I7", facts.starts[place].goal);
    // One that starts, however shortly, is as bad.
    let late = facts.starts[place].at_ms + 3_600_000;
    (facts.starts[place].at_ms, facts.starts[place].ended_ms) = (late, Some(late));
    breaks(&facts, "I7", facts.starts[place].goal);
}

#[test]
fn i9_a_budget_that_is_passed() {
    let mut facts = facts(any);
    let goal = rewrite(&mut facts, 0, |_, entry| {
        for record in &mut entry.records {
            if let Said::Known(Body::Accepted { limits, .. }) = &mut record.said {
                limits.tool_calls = 0;
            }
        }
    });
    breaks(&facts, "I9", goal);
}

#[test]
fn i10_a_journal_that_does_not_hold() {
    let mut facts = facts(any);
    let mut bytes = facts.journals[0].1[1].to_vec();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    facts.journals[0].1[1] = bytes.into();
    breaks(&facts, "I10", facts.journals[0].0.goal);
}

#[test]
fn i10_a_record_that_does_not_fit() {
    let mut facts = facts(any);
    let goal = rewrite(&mut facts, 0, |i, entry| {
        if i == 1 {
            let planned = entry.records[0].clone();
            entry.records.insert(1, planned);
        }
    });
    breaks(&facts, "I10", goal);
}

#[test]
fn i14_a_key_that_makes_two_goals() {
    let keyed = |f: &Facts| {
        let submissions = f.submissions.iter();
        let mut keyed = submissions.filter(|s| s.key.is_some() && s.answer.is_ok());
        keyed.next().cloned()
    };
    let mut facts = facts(|f| keyed(f).is_some());
    let one = keyed(&facts).unwrap();
    let mut another = one.clone();
    let first = one.answer.unwrap().goal;
    let other = facts.journals.iter().find(|(key, _)| key.goal != first);
    let goal = other.unwrap().0.goal;
    if let Ok(accepted) = &mut another.answer {
        accepted.goal = goal;
        accepted.result = None;
    }
    facts.submissions.push(another);
    // It is accepted as a goal with another body, and as two goals.
    breaks(&facts, "I14", goal);
    breaks(&facts, "I14", first.min(goal));
}

#[test]
fn i14_another_body_for_an_old_key() {
    let mut facts = facts(|f| f.submissions.iter().any(|s| s.answer.is_ok()));
    let accepted = facts.submissions.iter_mut().find(|s| s.answer.is_ok());
    let accepted = accepted.unwrap();
    accepted.body = Digest([7; 32]);
    let goal = accepted.answer.as_ref().unwrap().goal;
    breaks(&facts, "I14", goal);
}

#[test]
fn i15_a_goal_that_waits_for_nothing() {
    let mut facts = facts(any);
    let goal = rewrite(&mut facts, 0, |i, entry| {
        if i == 0 {
            let kept = |b: &Said| !matches!(b, Said::Known(Body::PlanRequested { .. }));
            entry.records.retain(|r| kept(&r.said));
        }
    });
    // What follows does not fit any more; the judge looks at what came before, too.
    facts.journals[0].1.truncate(1);
    breaks(&facts, "I15", goal);
}

/// Facts of a run in which every goal was forgotten as soon as it had ended.
fn forgotten(has: impl Fn(&Facts) -> bool) -> Facts {
    let options = Options {
        faults: Some(Faults::NONE),
        forget: Forget::AfterMs(0),
        ..Options::default()
    };
    let facts = facts_of(&options, has);
    let tombstones = facts.journals.iter().filter_map(|(_, raw)| raw.last());
    assert!(tombstones.clone().count() > 0);
    assert!(tombstones.into_iter().all(|raw| Entry::is_tombstone(raw)));
    facts
}

/// Writes a tombstone anew, as it should not be.
fn another_tombstone(facts: &mut Facts, change: impl FnOnce(&mut Entry)) -> GoalId {
    let (key, raw) = &mut facts.journals[0];
    let (_, hash) = Entry::decode_alone(&raw[raw.len() - 2]).unwrap();
    let (mut entry, _) = Entry::decode_alone(&raw.pop().unwrap()).unwrap();
    change(&mut entry);
    raw.push(entry.encode_tombstone(&hash).unwrap().0);
    key.goal
}

#[test]
fn i1_a_forgotten_goal_without_its_archive() {
    let mut facts = forgotten(any);
    let (key, raw) = &mut facts.journals[0];
    let goal = key.goal;
    raw.drain(..raw.len() - 1);
    breaks(&facts, "I1", goal);
}

#[test]
fn i1_events_with_a_gap() {
    let mut facts = forgotten(|f| !f.events.is_empty());
    facts.events[0].numbers.remove(2);
    breaks(&facts, "I1", facts.events[0].goal);
}

#[test]
fn i10_a_tombstone_that_says_something_else() {
    let mut facts = forgotten(any);
    let goal = another_tombstone(&mut facts, |entry| {
        if let Said::Known(Body::Forgotten { goal }) = &mut entry.records[0].said {
            goal.steps_done += 1;
        }
    });
    breaks(&facts, "I10", goal);
}

#[test]
fn i10_a_tombstone_for_more_than_there_was() {
    let mut facts = forgotten(any);
    let goal = another_tombstone(&mut facts, |entry| entry.records[0].n += 1);
    breaks(&facts, "I10", goal);
}
