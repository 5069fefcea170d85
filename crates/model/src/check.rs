//! Runs the checker and says what came out.

use crate::action::Action;
use crate::config::Setting;
use crate::invariant::{Invariant, waits_for};
use crate::model::GOALS;
use crate::state::State;
use stateright::{Checker, HasDiscoveries, Model, Path};
use std::time::{Duration, Instant};

/// A counterexample: the shortest way to a state that breaks an invariant.
#[derive(Debug, Clone)]
pub struct Counterexample {
    /// The invariant.
    pub invariant: Invariant,
    /// The states on the way with the action that each is left by.
    pub steps: Vec<(State, Option<Action>)>,
}

impl Counterexample {
    /// Actions on the way.
    pub fn depth(&self) -> usize {
        self.steps.len().saturating_sub(1)
    }

    /// As text: an action a line, with what is waited for before it.
    pub fn text(&self) -> String {
        let mut text = format!("{}\n", self.invariant.name());
        for (i, (state, action)) in self.steps.iter().enumerate() {
            let what = action.map_or("broken".to_owned(), |a| format!("{a:?}"));
            text += &format!(
                "  {:>2}. {what}   (waits for {})\n",
                i + 1,
                waits_for(state)
            );
        }
        if let Some((last, _)) = self.steps.last() {
            text += &format!(
                "  journal: {:?}\n  attempts: {:?}\n",
                last.journal, last.runs
            );
            text += &format!("  world: {:?}\n  told: {:?}\n", last.world, last.publisher);
        }
        text
    }
}

/// What a check found.
#[derive(Debug, Clone)]
pub struct Report {
    /// States that differ.
    pub states: usize,
    /// Actions on the longest way.
    pub depth: usize,
    /// How long it took.
    pub took: Duration,
    /// Every state was visited.
    pub complete: bool,
    /// Invariants that do not hold.
    pub broken: Vec<Counterexample>,
    /// Which of [`GOALS`] are reached.
    pub reached: Vec<usize>,
}

/// Explores a setting: to its end, or until an invariant breaks.
pub fn check(setting: &Setting, threads: usize) -> Report {
    let began = Instant::now();
    let checker = setting
        .model()
        .checker()
        .threads(threads)
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    let mut broken = Vec::new();
    let mut reached = Vec::new();
    for (name, path) in checker.discoveries() {
        if let Some(goal) = GOALS.iter().position(|g| *g == name) {
            reached.push(goal);
        } else if let Some(invariant) = Invariant::ALL.into_iter().find(|i| i.name() == name) {
            broken.push(Counterexample {
                invariant,
                steps: steps(path),
            });
        }
    }
    broken.sort_by_key(|b| (b.depth(), b.invariant));
    reached.sort_unstable();
    Report {
        states: checker.unique_state_count(),
        depth: checker.max_depth(),
        took: began.elapsed(),
        complete: broken.is_empty(),
        broken,
        reached,
    }
}

fn steps(path: Path<State, Action>) -> Vec<(State, Option<Action>)> {
    path.into_vec()
}
