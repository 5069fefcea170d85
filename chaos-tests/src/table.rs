//! The kill table.

use crate::plan::POINTS;
use crate::round::{Kill, Outcome};
use crate::{Context, Result};
use std::fmt::Write;
use std::path::Path;

/// Sums over rounds.
#[derive(Debug, Clone, Default)]
pub struct Table {
    /// Rounds that came to their end.
    pub rounds: u64,
    /// What they gave together.
    pub total: Outcome,
}

impl Table {
    /// Adds a round.
    pub fn add(&mut self, outcome: Outcome) {
        self.rounds += 1;
        self.total.goals += outcome.goals;
        self.total.kills.extend(outcome.kills);
        for (point, passes) in outcome.passes {
            *self.total.passes.entry(point).or_default() += passes;
        }
        self.total.findings.add(outcome.findings);
    }

    /// How often the node was killed at a point.
    pub fn kills_at(&self, point: &str) -> u64 {
        self.total.kills.iter().filter(|k| k.point == point).count() as u64
    }

    fn sum_at(&self, point: &str, of: impl Fn(&Kill) -> u64) -> u64 {
        let kills = self.total.kills.iter().filter(|k| k.point == point);
        kills.map(of).sum()
    }

    /// The table, as Markdown.
    pub fn markdown(&self) -> String {
        let mut text = String::from(
            "| point | times passed | kills | goals in flight at the kills | processes left by the kills |\n|---|---:|---:|---:|---:|\n",
        );
        for point in POINTS {
            let passes = self.total.passes.get(point).copied().unwrap_or_default();
            let kills = self.kills_at(point);
            let (in_flight, left) = (
                self.sum_at(point, |k| k.in_flight),
                self.sum_at(point, |k| k.left),
            );
            // Writing to a String can't fail.
            let _ = writeln!(
                text,
                "| `{point}` | {passes} | {kills} | {in_flight} | {left} |"
            );
        }
        text
    }

    /// The line that sums up.
    pub fn summary(&self, seed: u64) -> String {
        let found = &self.total.findings;
        format!(
            "kill table: rounds {}, kills {}, goals {}, lost {}, duplicated {}, orphans {}, asked {}, seed {seed}",
            self.rounds,
            self.total.kills.len(),
            self.total.goals,
            found.lost.len(),
            found.duplicated.len(),
            found.orphans.len(),
            found.asked.len(),
        )
    }

    /// Writes table and summary to `chaos/kill-table.md` below `target`.
    ///
    /// # Errors
    /// It can't be written.
    pub fn write(&self, target: &Path, seed: u64) -> Result<()> {
        let dir = target.join("chaos");
        std::fs::create_dir_all(&dir).context(dir.display())?;
        let text = format!("{}\n{}\n", self.markdown(), self.summary(seed));
        std::fs::write(dir.join("kill-table.md"), text).context("kill-table.md")
    }
}
