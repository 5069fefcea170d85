//! What is left after a round, held against what was promised.

use crate::ghosts::lived_past;
use crate::site::{Order, Replayed, Site};
use crate::{Context, Result};
use detent_protocol::GoalId;
use detent_protocol::result::GoalResult;
use rusqlite::{Connection, OpenFlags};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Broken promises, one sentence each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings {
    /// Goals that did not end, or not with the right result.
    pub lost: Vec<String>,
    /// Goals, rows or effects that are there twice.
    pub duplicated: Vec<String>,
    /// Processes of a dead node that were alive when its work was taken up.
    pub orphans: Vec<String>,
    /// Questions to a person that the probes should have made unnecessary.
    pub asked: Vec<String>,
}

impl Findings {
    /// Nothing was found.
    pub fn is_clean(&self) -> bool {
        self.all().next().is_none()
    }

    /// Every sentence.
    pub fn all(&self) -> impl Iterator<Item = &String> {
        let lists = [&self.lost, &self.duplicated, &self.orphans, &self.asked];
        lists.into_iter().flatten()
    }

    /// Takes over what another has found.
    pub fn add(&mut self, other: Findings) {
        self.lost.extend(other.lost);
        self.duplicated.extend(other.duplicated);
        self.orphans.extend(other.orphans);
        self.asked.extend(other.asked);
    }
}

/// Whose goals they are: decides what the right result is and where the ledger lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Agent {
    /// This crate's `chaos`.
    Chaos,
    /// This crate's `light`.
    Light,
    /// The quickstart's `sales-report`.
    Quickstart,
}

impl Agent {
    fn ledger(self, site: &Site) -> PathBuf {
        match self {
            Agent::Chaos | Agent::Light => site.home.join("ledger.db"),
            Agent::Quickstart => site.data.join("ledger.db"),
        }
    }

    fn amount_column(self) -> &'static str {
        match self {
            Agent::Chaos | Agent::Light => "amount",
            Agent::Quickstart => "total_cents",
        }
    }

    /// What has to stand in the result beside the ledger's entry.
    fn expected(self, amount: i64) -> Vec<(&'static str, Value)> {
        match self {
            Agent::Chaos => ["amount", "note", "second"]
                .map(|n| (n, amount.into()))
                .into(),
            Agent::Light => vec![("amount", amount.into())],
            Agent::Quickstart => vec![
                ("total_cents", amount.into()),
                ("targets_stale", true.into()),
            ],
        }
    }

    fn entry_name(self) -> &'static str {
        match self {
            Agent::Chaos | Agent::Light => "entry_id",
            Agent::Quickstart => "ledger_entry",
        }
    }
}

/// A row of the ledger: entry and amount.
type Rows = BTreeMap<String, Vec<(i64, i64)>>;

/// Looks at a site whose node has been stopped and whose `orders` should all have ended
/// well: the list, each goal's result and journal, the ledger, the tools' own logs.
///
/// # Errors
/// Something can't be looked at.
pub fn after(site: &Site, agent: Agent, orders: &[Order]) -> Result<Findings> {
    let mut found = Findings::default();
    let rows = ledger(&agent.ledger(site), agent.amount_column())?;
    let mut takeovers_ms = BTreeSet::new();
    let mut known = BTreeSet::new();
    for order in orders {
        let Some(goal) = order.goal else {
            let sentence = format!("{} was never accepted", order.key);
            found.lost.push(sentence);
            continue;
        };
        known.insert(goal);
        let replayed = site.export_and_replay(goal)?;
        takeovers_ms.extend(&replayed.takeovers_ms);
        journal(goal, &replayed, &mut found);
        let shown = site.show(goal)?.result;
        if shown != replayed.result {
            let sentence = format!("{goal}: shown {shown:?}, replayed {:?}", replayed.result);
            found.lost.push(sentence);
        }
        let wanted = Wanted {
            agent,
            goal,
            amount: order.amount,
            rows: rows.get(&goal.to_string()).map_or(&[], Vec::as_slice),
        };
        wanted.result(shown.as_ref(), &mut found);
        if agent == Agent::Chaos {
            note(site, &wanted, &mut found);
        }
    }
    listed(site, &known, &mut found)?;
    strangers(&rows, &known, &mut found);
    starts(&site.home.join("starts.log"), &mut found)?;
    let past = lived_past(&site.home, &takeovers_ms)?;
    if past > 0 {
        let sentence = format!("{past} processes of a dead node wrote on after a takeover");
        found.orphans.push(sentence);
    }
    Ok(found)
}

fn listed(site: &Site, known: &BTreeSet<GoalId>, found: &mut Findings) -> Result<()> {
    let list = site.list()?;
    for line in &list {
        if line.status.as_deref() != Some("succeeded") {
            let status = line.status.as_deref().unwrap_or("open");
            found
                .lost
                .push(format!("{} is listed as {status}", line.goal));
        }
    }
    let ids: BTreeSet<_> = list.iter().map(|l| l.goal).collect();
    if ids.len() != list.len() || !ids.is_subset(known) {
        let (lines, known) = (list.len(), known.len());
        let sentence = format!("{lines} goals are listed for {known} orders");
        found.duplicated.push(sentence);
    }
    for missing in known.difference(&ids) {
        found.lost.push(format!("{missing} is not listed"));
    }
    Ok(())
}

fn journal(goal: GoalId, replayed: &Replayed, found: &mut Findings) {
    for (kind, wanted) in [("accepted", 1), ("ended", 1)] {
        let count = replayed.count(kind);
        if count != wanted {
            let sentence = format!("{goal}: {count} records {kind}");
            found.duplicated.push(sentence);
        }
    }
    if replayed.events.last().is_none_or(|e| e.kind != "ended") {
        found
            .lost
            .push(format!("{goal}: its journal does not end with the end"));
    }
    if replayed.count("asked") > 0 {
        found.asked.push(format!("{goal}: a person was asked"));
    }
}

struct Wanted<'a> {
    agent: Agent,
    goal: GoalId,
    amount: i64,
    rows: &'a [(i64, i64)],
}

impl Wanted<'_> {
    fn result(&self, result: Option<&GoalResult>, found: &mut Findings) {
        let goal = self.goal;
        let Some(GoalResult::Succeeded { data, .. }) = result else {
            found.lost.push(format!("{goal}: ended with {result:?}"));
            return;
        };
        for (name, value) in self.agent.expected(self.amount) {
            if data[name] != value {
                let sentence = format!("{goal}: {name} is {}, not {value}", data[name]);
                found.lost.push(sentence);
            }
        }
        match self.rows {
            [(entry, amount)] => {
                let said = &data[self.agent.entry_name()];
                if *amount != self.amount || said.as_i64() != Some(*entry) {
                    let sentence = format!("{goal}: result {data}, ledger {:?}", self.rows);
                    found.lost.push(sentence);
                }
            }
            [] => found.lost.push(format!("{goal}: no row in the ledger")),
            rows => {
                let sentence = format!("{goal}: {} rows in the ledger", rows.len());
                found.duplicated.push(sentence);
            }
        }
    }
}

fn note(site: &Site, wanted: &Wanted<'_>, found: &mut Findings) {
    let goal = wanted.goal.to_string();
    let file = site.data.join("work").join(&goal).join("note.json");
    // Its work folder goes with it.
    if site.forgets && !file.exists() {
        return;
    }
    let text = std::fs::read(&file).unwrap_or_default();
    let note: Value = serde_json::from_slice(&text).unwrap_or_default();
    if note["amount"].as_i64() != Some(wanted.amount) {
        found.lost.push(format!("{goal}: its note says {note}"));
    }
}

fn strangers(rows: &Rows, known: &BTreeSet<GoalId>, found: &mut Findings) {
    let known: BTreeSet<_> = known.iter().map(ToString::to_string).collect();
    for reference in rows.keys().filter(|r| !known.contains(*r)) {
        let sentence = format!("the ledger has a row for {reference}, which nobody ordered");
        found.duplicated.push(sentence);
    }
}

fn ledger(file: &Path, amount: &str) -> Result<Rows> {
    let mut rows = Rows::new();
    // No tool came so far.
    if !file.exists() {
        return Ok(rows);
    }
    // Not read-only: what a killed tool left half done has to be rolled back first.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
    let database = Connection::open_with_flags(file, flags).context("the ledger")?;
    let query = format!("SELECT reference, entry_id, {amount} FROM ledger");
    // A tool that was killed before its first commit leaves a database without a table.
    let Ok(mut statement) = database.prepare(&query) else {
        return Ok(rows);
    };
    let read = statement.query_map([], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?)));
    for row in read.context("the ledger")? {
        let (reference, entry, amount): (String, i64, i64) = row.context("the ledger")?;
        rows.entry(reference).or_default().push((entry, amount));
    }
    Ok(rows)
}

/// One attempt of a tool with an effect starts once.
fn starts(log: &Path, found: &mut Findings) -> Result<()> {
    let mut seen = BTreeSet::new();
    for line in started(log)? {
        if !seen.insert(line.clone()) {
            found.duplicated.push(format!("started twice: {line}"));
        }
    }
    Ok(())
}

/// `GOAL STEP ATTEMPT` of each start that tools with an effect have logged.
///
/// # Errors
/// The log can't be read.
pub fn started(log: &Path) -> Result<Vec<String>> {
    logged(log, "start ")
}

/// The same for each end.
///
/// # Errors
/// The log can't be read.
pub fn finished(log: &Path) -> Result<Vec<String>> {
    logged(log, "end ")
}

fn logged(log: &Path, word: &str) -> Result<Vec<String>> {
    if !log.exists() {
        return Ok(Vec::new());
    }
    let text = std::fs::read_to_string(log).context(log.display())?;
    let lines = text.lines().filter_map(|l| l.strip_prefix(word));
    Ok(lines.map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clean() -> Findings {
        Findings::default()
    }

    #[test]
    fn a_second_start_of_an_attempt_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("starts.log");
        let mut found = clean();
        std::fs::write(&log, "start g post 1\nend g post 1\nstart g post 2\n").unwrap();
        starts(&log, &mut found).unwrap();
        assert!(found.is_clean());
        std::fs::write(&log, "start g post 1\nstart g post 1\n").unwrap();
        starts(&log, &mut found).unwrap();
        assert_eq!(found.duplicated, ["started twice: g post 1"]);
    }

    #[test]
    fn a_second_row_and_a_wrong_result_are_found() {
        let goal: GoalId = "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap();
        let result = |amount: i64| GoalResult::Succeeded {
            data: serde_json::json!({"amount": amount, "entry_id": 3}),
            evidence: Vec::new(),
            stale: false,
        };
        let look = |amount, rows: &[(i64, i64)]| {
            let mut found = clean();
            let agent = Agent::Light;
            let wanted = Wanted {
                agent,
                goal,
                amount: 5,
                rows,
            };
            wanted.result(Some(&result(amount)), &mut found);
            (found.lost.len(), found.duplicated.len())
        };
        assert_eq!(look(5, &[(3, 5)]), (0, 0));
        assert_eq!(look(6, &[(3, 5)]), (1, 0));
        assert_eq!(look(5, &[(4, 5)]), (1, 0));
        assert_eq!(look(5, &[]), (1, 0));
        assert_eq!(look(5, &[(3, 5), (4, 5)]), (0, 1));
    }
}
