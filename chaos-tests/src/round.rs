//! One round: goals, kills, restarts, until all goals have ended.

use crate::broker::Broker;
use crate::check::{self, Agent, Findings};
use crate::ghosts::{self, Process, Watch};
use crate::plan::{Mode, Plan};
use crate::process::{Armed, NodeProcess, Start, wait_for, was_killed};
use crate::site::{Order, Site, goal_id};
use crate::{Context, Result, binary};
use detent_protocol::messages::GoalLine;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::ExitStatus;

/// Sales of the quickstart's product in its quarter, cents; as the database has them.
const QUICKSTART_CENTS: i64 = 2_764_557;
/// How long the tool that posts takes, milliseconds: long enough for kills to fall in.
const HOLD_MS: u64 = 60;
/// Most lives of the node in one round, beyond the kills.
const LIVES_MAX: usize = 8;

/// A kill that came true.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kill {
    /// Where.
    pub point: &'static str,
    /// Goals that had been accepted and had not ended.
    pub in_flight: u64,
    /// Processes of the node that were still alive right after it.
    pub left: u64,
}

/// What a round gave.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Goals.
    pub goals: u64,
    /// The kills that came true.
    pub kills: Vec<Kill>,
    /// How often each failpoint was passed.
    pub passes: BTreeMap<String, u64>,
    /// Broken promises.
    pub findings: Findings,
}

/// Runs a round below `root`.
///
/// # Errors
/// The experiment itself failed, or a node did what leaves nothing to check. The folder
/// then shows what was.
pub fn run(plan: &Plan, root: &Path) -> Result<Outcome> {
    let prepared = prepare(plan, root)?;
    lives(plan, prepared)
}

/// The same with the journal on a NATS server, which outlives the node.
///
/// # Errors
/// As for [`run`].
pub fn run_on_nats(plan: &Plan, root: &Path) -> Result<Outcome> {
    let broker = Broker::start(&root.join("broker"))?;
    let (mut site, agent, orders) = prepare(plan, root)?;
    site.nats = Some(broker.url());
    lives(plan, (site, agent, orders))
}

fn lives(plan: &Plan, (mut site, agent, orders): (Site, Agent, Vec<Order>)) -> Result<Outcome> {
    site.forgets = plan.forgets;
    let mut round = Round {
        site,
        agent,
        orders,
        watch: Watch::default(),
        before: BTreeSet::new(),
        killed_at: None,
        outcome: Outcome {
            goals: plan.mode.goals(),
            ..Outcome::default()
        },
    };
    let mut kills = plan.kills.iter();
    for _ in 0..plan.kills.len() + LIVES_MAX {
        let armed = kills.next();
        let done = match plan.mode {
            Mode::Up => round.live_up(armed)?,
            Mode::Run | Mode::Quickstart => round.live_run(armed)?,
        };
        if done {
            return round.conclude();
        }
    }
    Err("the goals did not end in the lives that there were".to_owned())
}

fn prepare(plan: &Plan, root: &Path) -> Result<(Site, Agent, Vec<Order>)> {
    if plan.mode == Mode::Quickstart {
        let config = binary::workspace().join("config/quickstart");
        let site = Site::with_config(root, config.join("detent.toml"))?;
        let order = Order {
            key: format!("quickstart-{}", plan.round),
            file: config.join("goal.json"),
            amount: QUICKSTART_CENTS,
            goal: None,
        };
        return Ok((site, Agent::Quickstart, vec![order]));
    }
    let site = Site::new(root)?;
    let orders = (0..plan.mode.goals()).map(|n| site.order("chaos", n, HOLD_MS));
    let orders = orders.collect::<Result<_>>()?;
    Ok((site, Agent::Chaos, orders))
}

struct Round {
    site: Site,
    agent: Agent,
    orders: Vec<Order>,
    watch: Watch,
    /// Processes that the last kill left behind.
    before: BTreeSet<Process>,
    /// The last kill, until it is known what was in flight.
    killed_at: Option<Kill>,
    outcome: Outcome,
}

impl Round {
    /// A life of `detent up`; whether all goals have ended and it was stopped.
    fn live_up(&mut self, armed: Option<&Armed>) -> Result<bool> {
        let mut node = NodeProcess::up(&self.site, armed)?;
        match node.wait_line("ready")? {
            Start::Line(ready) => {
                self.haunted(&node)?;
                self.count_kill(ready["goals_in_flight"].as_u64().unwrap_or_default());
            }
            Start::Ended(status, fault) => return self.died(armed, status, fault.as_ref()),
        }
        let ended = match self.submit_all(&mut node)? {
            Some(()) => self.wait_all(&mut node)?,
            None => None,
        };
        if ended.is_none() || self.submit_again(&mut node)?.is_none() {
            let status = node.wait_end()?;
            return self.died(armed, status, None);
        }
        let status = node.terminate()?;
        if !status.success() {
            return self.died(armed, status, None);
        }
        Ok(true)
    }

    /// Submits what was not accepted yet; `None`: the node died.
    fn submit_all(&mut self, node: &mut NodeProcess) -> Result<Option<()>> {
        for order in &mut self.orders {
            if order.goal.is_some() {
                continue;
            }
            let site = &self.site;
            let accepted = wait_for(node, "an answer to a submission", || {
                Ok(site.submit(order)?.then_some(()))
            })?;
            if accepted.is_none() {
                return Ok(None);
            }
        }
        Ok(Some(()))
    }

    fn wait_all(&mut self, node: &mut NodeProcess) -> Result<Option<()>> {
        let (site, wanted) = (&self.site, self.orders.len());
        wait_for(node, "the end of all goals", || {
            let list = site.list()?;
            let over = |l: &&GoalLine| l.status.is_some() && (l.archived || !site.forgets);
            let ended = list.iter().filter(over).count();
            Ok((ended >= wanted).then_some(()))
        })
    }

    /// The same key names the same goal also after its end.
    fn submit_again(&mut self, node: &mut NodeProcess) -> Result<Option<()>> {
        for order in &mut self.orders {
            let site = &self.site;
            let again = wait_for(node, "an answer to a repeated submission", || {
                Ok(site.submit(order)?.then_some(()))
            })?;
            if again.is_none() {
                return Ok(None);
            }
        }
        Ok(Some(()))
    }

    /// A life of `detent run`; whether the goal ended and so did the program.
    fn live_run(&mut self, armed: Option<&Armed>) -> Result<bool> {
        let order = &self.orders[0];
        let file = order.file.display().to_string();
        let args = ["run", &file, "--key", &order.key.clone()];
        let mut node = NodeProcess::start(&self.site, &args, armed)?;
        match node.wait_line("accepted")? {
            Start::Line(accepted) => {
                self.haunted(&node)?;
                let goal = goal_id(&accepted["goal"])?;
                if self.orders[0].goal.replace(goal).is_some_and(|g| g != goal) {
                    let sentence = format!("key {} named two goals", self.orders[0].key);
                    self.outcome.findings.duplicated.push(sentence);
                }
            }
            Start::Ended(status, fault) => return self.died(armed, status, fault.as_ref()),
        }
        let status = node.wait_end()?;
        if status.success() {
            return Ok(true);
        }
        self.died(armed, status, None)
    }

    /// The node ended. Dying where it was armed is what was wanted; all else is not.
    fn died(
        &mut self,
        armed: Option<&Armed>,
        status: ExitStatus,
        fault: Option<&Value>,
    ) -> Result<bool> {
        match armed {
            Some(armed) if was_killed(status) => {
                self.before = self.watch.alive(&self.site)?;
                // A start that was killed before it was ready did not say what the kill
                // before it had left; no goal ended in between.
                let kill = Kill {
                    point: armed.point,
                    in_flight: 0,
                    left: self.before.len() as u64,
                };
                let earlier = self.killed_at.replace(kill);
                self.outcome.kills.extend(earlier);
                let alone = self.agent == Agent::Quickstart || self.orders.len() == 1;
                if alone && self.site.nats.is_none() {
                    let open = self.open_offline()?;
                    self.count_kill(open);
                }
                Ok(false)
            }
            _ => {
                let code = fault.map(|f| f["fault"].to_string()).unwrap_or_default();
                Err(format!("the node ended by itself: {status} {code}"))
            }
        }
    }

    /// Goals that have not ended, asked of the data directory without a node.
    fn open_offline(&self) -> Result<u64> {
        let said = self.site.say(&["goals", "list", "--open"])?;
        // Nothing was there yet when it was killed.
        if said.code != Some(0) && said.fault_code() != Some("NODE_UNREACHABLE") {
            return Err(format!("goals list --open: {}", said.errors));
        }
        let goals = said.lines.iter().filter(|l| l["goal"].is_string());
        Ok(goals.count() as u64)
    }

    fn count_kill(&mut self, in_flight: u64) {
        let kill = self.killed_at.take();
        let kill = kill.map(|kill| Kill { in_flight, ..kill });
        self.outcome.kills.extend(kill);
    }

    /// Right after a start nothing of an earlier life may be alive.
    fn haunted(&mut self, node: &NodeProcess) -> Result<()> {
        let now = self.watch.alive(&self.site)?;
        let left = ghosts::left_over(&now, &self.before, ghosts::living(node.id()));
        if left > 0 {
            let sentence = format!("{left} processes outlived their node: {now:?}");
            self.outcome.findings.orphans.push(sentence);
        }
        self.before.clear();
        Ok(())
    }

    fn conclude(mut self) -> Result<Outcome> {
        // A broker answers no questions about goals: only a node does.
        let answers = match self.site.nats {
            Some(_) => Some(NodeProcess::up_ready(&self.site)?),
            None => None,
        };
        let found = check::after(&self.site, self.agent, &self.orders)?;
        if let Some(mut node) = answers {
            node.terminate()?;
        }
        self.outcome.findings.add(found);
        let left = self.watch.alive(&self.site)?;
        if !left.is_empty() {
            let sentence = format!("{} processes outlived a stopped node", left.len());
            self.outcome.findings.orphans.push(sentence);
        }
        let log = self.site.root.join("failpoints.log");
        let log = std::fs::read_to_string(log).context("failpoints.log")?;
        for point in log.lines() {
            *self.outcome.passes.entry(point.to_owned()).or_default() += 1;
        }
        Ok(self.outcome)
    }
}
