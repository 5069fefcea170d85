//! The judge of the invariants: from outside, from what can be seen.
//!
//! It takes journals as they lie, what publishers were told, and what the world counted:
//! plain data, so that a simulated and a real cluster are judged alike.
//!
//! | invariant | judged by |
//! |---|---|
//! | I1 | [`told`]: accepted means journaled, events without gaps; [`ledger`](mod@journal): one end, at the end; what was forgotten is archived |
//! | I2, I9, I10, I15 | [`mod@journal`]: epochs, budgets, the fold in pieces, what a goal waits for |
//! | I3, I4, I7 | [`world`]: starts against intents, attempts, receipts |
//! | I5, I6, I16 | [`world`]: applications against what journals claim |
//! | I14 | [`told`]: keys |
//!
//! What it promises: a verdict names the invariant, the goal and the evidence.
//!
//! What it must not know: how any of it was done.

mod history;
mod journal;
mod told;
mod world;

use bytes::Bytes;
use detent_bus::GoalKey;
use detent_protocol::effect::Effect;
use detent_protocol::goal::Accepted;
use detent_protocol::json::Digest;
use detent_protocol::messages::Verb;
use detent_protocol::result::GoalResult;
use detent_protocol::{Fault, GoalId, NodeId, StepId, ToolName};
use history::History;
use std::collections::BTreeMap;
use std::fmt;

/// All that the judge goes by.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// What each tool does to the world.
    pub tools: BTreeMap<ToolName, Effect>,
    /// Every goal's journal: its entries as they lie, oldest first. Of one that was
    /// forgotten: the entries of its archive, and its tombstone last.
    pub journals: Vec<(GoalKey, Vec<Bytes>)>,
    /// Every answer to a submission.
    pub submissions: Vec<Submission>,
    /// Every result that somebody was told.
    pub results: Vec<ToldResult>,
    /// Every control message that was answered with "done".
    pub controls: Vec<ToldControl>,
    /// Every goal's events that somebody was told from the first on to the last.
    pub events: Vec<ToldEvents>,
    /// Every process that was started for a tool.
    pub starts: Vec<Start>,
    /// Every effect that was tried or is there.
    pub effects: Vec<EffectFact>,
    /// It has been quiet for so long that every accepted goal must have ended.
    pub all_must_have_ended: bool,
    /// How far clocks that stamped these facts may differ, milliseconds.
    pub clock_error_ms: u64,
}

/// What a publisher asked and was told.
#[derive(Debug, Clone)]
pub struct Submission {
    /// Its idempotency key.
    pub key: Option<String>,
    /// What makes submissions with one key the same.
    pub body: Digest,
    /// The answer.
    pub answer: Result<Accepted, Fault>,
}

/// A result that somebody was told.
#[derive(Debug, Clone)]
pub struct ToldResult {
    /// Of which goal.
    pub goal: GoalId,
    /// The result.
    pub result: GoalResult,
    /// Had the journal its end when it was told, where that is known?
    pub was_journaled: Option<bool>,
}

/// A control message whose sender was told that it is in the journal.
#[derive(Debug, Clone)]
pub struct ToldControl {
    /// To which goal.
    pub goal: GoalId,
    /// Who sent it.
    pub by: String,
    /// What it wanted.
    pub verb: Verb,
}

/// A goal's events as somebody was told them, until no more were to come.
#[derive(Debug, Clone)]
pub struct ToldEvents {
    /// Of which goal.
    pub goal: GoalId,
    /// Their numbers.
    pub numbers: Vec<u64>,
}

/// A process that was started for an attempt.
#[derive(Debug, Clone)]
pub struct Start {
    /// Where.
    pub node: NodeId,
    /// The goal.
    pub goal: GoalId,
    /// The step.
    pub step: StepId,
    /// The attempt.
    pub attempt: u32,
    /// The tool.
    pub tool: ToolName,
    /// When, Unix milliseconds.
    pub at_ms: u64,
    /// When it ended; `None` where it lives.
    pub ended_ms: Option<u64>,
    /// Entries that the goal's journal had at that moment, where that is known.
    pub entries_before: Option<u64>,
}

/// An effect as the world counts it.
#[derive(Debug, Clone)]
pub struct EffectFact {
    /// For which goal.
    pub goal: GoalId,
    /// Made by which tool.
    pub tool: ToolName,
    /// Which thing, for people.
    pub what: String,
    /// Digests of the arguments of all attempts at it.
    pub args: Vec<Digest>,
    /// How often it happened.
    pub applied: u32,
}

/// An invariant that does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Its number, e.g. `I4`.
    pub invariant: &'static str,
    /// The goal, where it is one's.
    pub goal: Option<GoalId>,
    /// What shows it.
    pub evidence: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let goal = self.goal.map(|g| format!(" goal {g}")).unwrap_or_default();
        write!(f, "{}{goal}: {}", self.invariant, self.evidence)
    }
}

/// Collects violations of one goal.
struct Verdict<'a> {
    found: &'a mut Vec<Violation>,
    goal: Option<GoalId>,
}

impl Verdict<'_> {
    fn breaks(&mut self, invariant: &'static str, evidence: impl Into<String>) {
        self.found.push(Violation {
            invariant,
            goal: self.goal,
            evidence: evidence.into(),
        });
    }
}

/// Judges a run. Empty: everything held.
pub fn judge(facts: &Facts) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut histories = BTreeMap::new();
    for (key, entries) in &facts.journals {
        let mut verdict = Verdict {
            found: &mut found,
            goal: Some(key.goal),
        };
        match History::read(key, entries) {
            Ok(history) => {
                journal::check(facts, &history, &mut verdict);
                world::check(facts, &history, &mut verdict);
                histories.insert(key.goal, history);
            }
            Err(fault) => verdict.breaks("I10", format!("its journal does not hold: {fault}")),
        }
    }
    told::check(facts, &histories, &mut found);
    world::check_strays(facts, &histories, &mut found);
    found
}

impl Facts {
    /// A goal's journal in words, one line for each record.
    pub fn story(&self, goal: GoalId) -> Vec<String> {
        let of_goal = self.journals.iter().filter(|(key, _)| key.goal == goal);
        let told = of_goal.flat_map(|(key, entries)| match History::read(key, entries) {
            Ok(history) => history.story(),
            Err(fault) => vec![fault.to_string()],
        });
        told.collect()
    }

    /// How often each kind of record stands in the journals.
    pub fn kinds(&self) -> BTreeMap<&'static str, u64> {
        let mut kinds = BTreeMap::new();
        for (key, entries) in &self.journals {
            if let Ok(history) = History::read(key, entries) {
                for (_, _, body) in history.bodies() {
                    *kinds.entry(body.kind()).or_default() += 1;
                }
            }
        }
        kinds
    }

    /// How each goal ended; `open` where it has not, `unreadable` where nobody can say.
    pub fn statuses(&self) -> Vec<String> {
        let status = |(key, entries): &(GoalKey, Vec<Bytes>)| match History::read(key, entries) {
            Err(_) => "unreadable".to_owned(),
            Ok(history) => match history.end() {
                None => "open".to_owned(),
                Some((_, GoalResult::Failed { error_code, .. })) => {
                    format!("failed {error_code}")
                }
                Some((_, result)) => result.status().to_owned(),
            },
        };
        self.journals.iter().map(status).collect()
    }
}
