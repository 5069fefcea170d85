//! What is killed where: drawn from the seed before anything runs, so that the same
//! seed kills at the same places again.

use crate::chance::Chance;
use crate::process::Armed;

/// The failpoints of the program, in the order in which a goal meets them.
/// `the_list_is_the_programs` in the tests holds it against what the program says.
pub const POINTS: [&str; 17] = [
    "intake.append.before",
    "intake.append.after",
    "journal.append.before",
    "journal.append.after",
    "slot.before",
    "slot.after",
    "spawn.before",
    "spawn.after",
    "effect.after",
    "outcome.before",
    "observe.before",
    "observe.after",
    "end.append.before",
    "end.append.after",
    "archive.after",
    "forget.before",
    "forget.after",
];

/// Is it met only by a goal that is forgotten?
fn is_of_forgetting(point: &str) -> bool {
    point.starts_with("archive.") || point.starts_with("forget.")
}

/// Most kills of one round.
pub const KILLS_MAX: u64 = 3;

/// How the goals of a round are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// `detent up` and several goals of agent `chaos`, submitted by key.
    Up,
    /// `detent run --key` with agent `chaos`, run again until it ends well.
    Run,
    /// The same with the quickstart's goal.
    Quickstart,
}

impl Mode {
    fn of_round(round: u64) -> Self {
        match round % 5 {
            2 => Mode::Run,
            4 => Mode::Quickstart,
            _ => Mode::Up,
        }
    }

    /// Goals of one round.
    pub fn goals(self) -> u64 {
        match self {
            Mode::Up => 4,
            Mode::Run | Mode::Quickstart => 1,
        }
    }

    /// How often a life that is not killed passes this point at least.
    fn passes(self, point: &str) -> u64 {
        let quickstart = self == Mode::Quickstart;
        let each = match point.split('.').next() {
            Some("intake" | "end" | "archive" | "forget") => 1,
            Some("journal") => 9,
            // Tools with an effect, and looks at the world.
            Some("slot") => 2 + u64::from(quickstart),
            Some("observe") => 2 + u64::from(quickstart),
            // Tools.
            _ => 6,
        };
        each * self.goals()
    }
}

/// A round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Its number, from 0.
    pub round: u64,
    /// How its goals are run.
    pub mode: Mode,
    /// Goals are forgotten as soon as they have ended.
    pub forgets: bool,
    /// Where each life of the node is to die. The first comes true; a later one may find
    /// that too little is left to do.
    pub kills: Vec<Armed>,
}

impl Plan {
    /// The plan of round `round` under `seed`. The first kill of 17 rounds in a row takes
    /// every point once.
    pub fn draw(seed: u64, round: u64) -> Self {
        let mut chance = Chance::new(seed, round);
        let first = POINTS[(round % POINTS.len() as u64) as usize];
        // A program that runs one goal may be over before it forgets it.
        let (mode, forgets) = match is_of_forgetting(first) {
            true => (Mode::Up, true),
            false => (Mode::of_round(round), round.is_multiple_of(2)),
        };
        let mut kills = vec![Armed {
            point: first,
            count: chance.between(1, mode.passes(first)),
        }];
        for _ in 1..chance.between(1, KILLS_MAX) {
            let point = POINTS[chance.between(0, POINTS.len() as u64 - 1) as usize];
            // What is left is less with each life.
            let count = chance.between(1, mode.passes(point).div_ceil(4));
            kills.push(Armed { point, count });
        }
        Self {
            round,
            mode,
            forgets,
            kills,
        }
    }

    /// The same kills with `detent up`: a node on a broker is not embedded in a command.
    pub fn up(self) -> Self {
        let mode = Mode::Up;
        Self { mode, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_seed_gives_the_same_plan_and_twenty_rounds_take_every_point() {
        let draw = |seed| (0..20).map(|r| Plan::draw(seed, r)).collect::<Vec<_>>();
        assert_eq!(draw(5), draw(5));
        assert_ne!(draw(5), draw(6));
        let first: BTreeSet<_> = draw(5).iter().map(|p| p.kills[0].point).collect();
        assert_eq!(first.len(), POINTS.len());
        // A kill that comes first has to come true.
        let misses = |p: &Plan| is_of_forgetting(p.kills[0].point) && p.mode != Mode::Up;
        assert!(!draw(5).iter().any(misses));
        let most = draw(5).iter().map(|p| p.kills.len() as u64).max();
        assert_eq!(most, Some(KILLS_MAX));
    }
}
