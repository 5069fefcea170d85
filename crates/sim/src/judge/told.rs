//! What publishers were told: I1, I14.

use super::history::History;
use super::{Facts, Submission, ToldControl, ToldEvents, Verdict, Violation};
use detent_protocol::messages::Verb;
use detent_protocol::record::{Body, CloseWhy};
use detent_protocol::result::GoalResult;
use detent_protocol::{Code, GoalId};
use std::collections::BTreeMap;

type Histories = BTreeMap<GoalId, History>;

pub(super) fn check(facts: &Facts, histories: &Histories, found: &mut Vec<Violation>) {
    for submission in &facts.submissions {
        let Ok(accepted) = &submission.answer else {
            continue;
        };
        let goal = Some(accepted.goal);
        let mut verdict = Verdict { found, goal };
        match histories.get(&accepted.goal) {
            None => verdict.breaks("I1", "accepted, and not in the journal"),
            Some(history) => {
                the_right_goal(submission, history, &mut verdict);
                if let Some(result) = &accepted.result {
                    the_right_result(result, history, &mut verdict);
                }
            }
        }
    }
    for told in &facts.results {
        let goal = Some(told.goal);
        let mut verdict = Verdict { found, goal };
        if told.was_journaled == Some(false) {
            verdict.breaks("I1", "its result was told before its journal had it");
        }
        match histories.get(&told.goal) {
            None => verdict.breaks("I1", "a result, and no journal"),
            Some(history) => the_right_result(&told.result, history, &mut verdict),
        }
    }
    for control in &facts.controls {
        let goal = Some(control.goal);
        let history = histories.get(&control.goal);
        the_control_counts(control, history, &mut Verdict { found, goal });
    }
    for told in &facts.events {
        let goal = Some(told.goal);
        let history = histories.get(&told.goal);
        all_events(told, history, &mut Verdict { found, goal });
    }
    one_goal_for_a_key(facts, found);
}

/// Who followed a goal to its end was told every record, also once it was forgotten.
fn all_events(told: &ToldEvents, history: Option<&History>, verdict: &mut Verdict<'_>) {
    let last = history.map_or(0, |h| h.last.n - u64::from(h.last.forgotten.is_some()));
    if !told.numbers.iter().copied().eq(1..=last) {
        let numbers = &told.numbers;
        verdict.breaks("I1", format!("told the events {numbers:?} of {last}"));
    }
}

fn the_right_goal(submission: &Submission, history: &History, verdict: &mut Verdict<'_>) {
    if history.last.submission != Some(submission.body) {
        let key = submission.key.as_deref().unwrap_or("-");
        verdict.breaks(
            "I14",
            format!("key {key}: accepted as a goal with another body"),
        );
    }
}

fn the_right_result(told: &GoalResult, history: &History, verdict: &mut Verdict<'_>) {
    let journaled = history.end().map(|(_, result)| result);
    if journaled != Some(told) {
        let journaled = journaled.map(GoalResult::status);
        let text = format!("told {}, the journal has {journaled:?}", told.status());
        verdict.breaks("I1", text);
    }
}

/// Who was told that a message is in the journal finds it there.
fn the_control_counts(told: &ToldControl, history: Option<&History>, verdict: &mut Verdict<'_>) {
    let said = |body: &Body| match (&told.verb, body) {
        (Verb::Cancel { .. }, Body::Closing { why }) => matches!(why, CloseWhy::Cancelled { .. }),
        (Verb::Amend { patch }, Body::Amended { patch: p, .. }) => p == patch,
        (Verb::Answer { question, .. }, Body::Answered { question: q, .. }) => q == question,
        // A second pause and a resume of what is not paused are answered, and no news.
        (Verb::Pause | Verb::Resume, _) => true,
        _ => false,
    };
    let found = history.is_some_and(|h| h.bodies().any(|(_, _, body)| said(body)));
    if !found {
        let text = format!(
            "{:?} of {} was confirmed and is not there",
            told.verb, told.by
        );
        verdict.breaks("I1", text);
    }
}

/// I14: one key, one goal; another body is told so.
fn one_goal_for_a_key(facts: &Facts, found: &mut Vec<Violation>) {
    let mut by_key: BTreeMap<&str, Vec<&Submission>> = BTreeMap::new();
    for submission in &facts.submissions {
        if let Some(key) = &submission.key {
            by_key.entry(key).or_default().push(submission);
        }
    }
    for (key, all) in by_key {
        let accepted = all.iter().filter_map(|s| s.answer.as_ref().ok());
        let mut goals: Vec<GoalId> = accepted.map(|a| a.goal).collect();
        goals.sort();
        goals.dedup();
        let goal = goals.first().copied();
        let mut verdict = Verdict { found, goal };
        if goals.len() > 1 {
            verdict.breaks("I14", format!("key {key} made the goals {goals:?}"));
        }
        let conflicts = all.iter().filter(|s| {
            let fault = s.answer.as_ref().err();
            fault.is_some_and(|f| f.code == Code::IdempotencyConflict)
        });
        let bodies = all.iter().map(|s| s.body);
        let one_body = bodies.clone().all(|b| Some(b) == bodies.clone().next());
        if one_body && conflicts.count() > 0 {
            verdict.breaks("I14", format!("key {key}: a conflict, and only one body"));
        }
    }
}
