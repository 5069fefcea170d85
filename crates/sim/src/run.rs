//! One run: faults for a while, then quiet, then everything must end, then the judge.

use crate::bus::Fabric;
use crate::chance::{Chance, Faults};
use crate::judge::{EffectFact, Facts, Start, Violation, judge};
use crate::node::Cluster;
use crate::publisher::Publishers;
use crate::trace::Trace;
use crate::workload::{DEADLINE_MS, workload};
use crate::world::World;
use detent_orchestrator::Bug;
use detent_protocol::NodeId;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use tokio::task::JoinSet;

/// How a run is set up.
#[derive(Debug, Clone)]
pub struct Options {
    /// A mistake planted in the orchestrator.
    pub bug: Option<Bug>,
    /// The faults; `None` draws a mix from the seed.
    pub faults: Option<Faults>,
    /// Goals that are submitted.
    pub goals: u64,
    /// How long faults are drawn, simulated seconds.
    pub faults_for_s: u64,
    /// When goals that have ended are forgotten.
    pub forget: Forget,
    /// Keep the lines of the trace.
    pub keep_trace: bool,
}

/// When goals that have ended are forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forget {
    /// As the seed says: never under every second one.
    Drawn,
    /// Never.
    Never,
    /// So long after their end, milliseconds.
    AfterMs(u64),
}

impl Forget {
    fn after_ms(self, seed: u64) -> Option<u64> {
        match self {
            Forget::Never => None,
            Forget::AfterMs(ms) => Some(ms),
            Forget::Drawn => match seed % 4 {
                1 => Some(0),
                3 => Some(4_000),
                _ => None,
            },
        }
    }
}

impl Default for Options {
    /// No bug, drawn faults, 8 goals, 90 s of faults, drawn forgetting, no lines kept.
    fn default() -> Self {
        Self {
            bug: None,
            faults: None,
            goals: 8,
            faults_for_s: 90,
            forget: Forget::Drawn,
            keep_trace: false,
        }
    }
}

/// What came of a run.
#[derive(Debug, Clone)]
pub struct Report {
    /// Its seed.
    pub seed: u64,
    /// Hash over all that happened, with its simulated time.
    pub trace_hash: u64,
    /// How much that was.
    pub events: u64,
    /// Invariants that do not hold.
    pub violations: Vec<Violation>,
    /// Goals by how they ended; `open` for those that have not.
    pub ended: BTreeMap<String, u64>,
    /// Processes that were started.
    pub starts: u64,
    /// Lives of nodes.
    pub lives: u64,
    /// Simulated time, milliseconds.
    pub simulated_ms: u64,
    /// The lines, where they were kept.
    pub trace: Vec<String>,
    /// What the judge went by.
    pub facts: Facts,
}

/// Longest that anything is still on its way after the last fault: late requests,
/// appends and bytes.
const LATE: Duration = Duration::from_secs(45);
/// Time beyond the deadline that the last goal may take to end: seals that wait, looks
/// that back off.
const ENDING_S: u64 = 240;

/// Time that forgetting the last goals may take: what failed is tried again, seconds.
const FORGETTING_S: u64 = 120;

/// Runs the seed. Blocks; makes a runtime of its own.
///
/// # Errors
/// Where no runtime can be made.
pub fn run(seed: u64, options: &Options) -> std::io::Result<Report> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()?;
    Ok(runtime.block_on(go(seed, options)))
}

async fn go(seed: u64, options: &Options) -> Report {
    let faults = options.faults.unwrap_or_else(|| Faults::swarm(seed));
    let trace = Arc::new(Trace::new(options.keep_trace));
    trace.say(format!("seed {seed} {faults:?} {:?}", options.bug));
    let chance = Arc::new(Chance::new(seed, faults, true));
    let fabric = Fabric::new(chance.clone(), trace.clone());
    let world = World::new(fabric.clone());
    let workload = workload();
    let forget_after_ms = options.forget.after_ms(seed);
    let cluster = Arc::new(Cluster {
        fabric: fabric.clone(),
        world: world.clone(),
        definitions: workload.definitions.clone(),
        registry: workload.registry.clone(),
        bug: options.bug,
        forget_after_ms,
        alerts: Arc::default(),
        lives: AtomicU64::new(0),
    });
    let node = NodeId::new("n1").ok();
    let publishers = Publishers::new(fabric.clone(), world.clone(), forget_after_ms.is_some());
    let (Some(node), Some(publishers)) = (node, publishers) else {
        unreachable!("both names are valid");
    };
    tokio::spawn(cluster.clone().run_node(node));
    tokio::spawn(weather(fabric.clone(), world.clone()));
    tokio::spawn(publishers.clone().hear_results());
    let mut clients = JoinSet::new();
    let within_ms = options.faults_for_s * 1000 * 2 / 3;
    for number in 0..options.goals {
        clients.spawn(publishers.clone().publish(number, within_ms));
    }
    tokio::time::sleep(Duration::from_secs(options.faults_for_s)).await;
    chance.be_quiet();
    fabric.mend();
    world.mend();
    trace.say("quiet");
    tokio::time::sleep(LATE).await;
    let ended = wait_for_the_end(&fabric, &mut clients).await;
    tokio::time::sleep(LATE).await;
    if forget_after_ms.is_some() {
        wait_until_forgotten(&fabric).await;
    }
    clients.abort_all();
    if !ended {
        trace.say("not everything has ended");
    }
    let facts = facts(&fabric, &world, &publishers);
    let mut violations = judge(&facts);
    violations.extend(cluster.alerts());
    report(seed, facts, violations, &trace, cluster.lives())
}

/// Outages come and go.
async fn weather(fabric: Arc<Fabric>, world: Arc<World>) {
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        if fabric.chance.fault(|f| f.journal_outage) {
            fabric.trace.say("the journal is away for 9 s");
            fabric.journal_away_for(Duration::from_secs(9));
        }
        if fabric.chance.fault(|f| f.probe_outage) {
            let seconds = fabric.chance.between(1, 15);
            fabric.trace.say(format!("probes are away for {seconds} s"));
            world.probes_away_for(Duration::from_secs(seconds));
        }
    }
}

/// Waits until every goal has ended and every publisher knows; says whether so.
async fn wait_for_the_end(fabric: &Fabric, clients: &mut JoinSet<()>) -> bool {
    for _ in 0..DEADLINE_MS / 1000 + ENDING_S {
        while clients.try_join_next().is_some() {}
        let open = crate::bus::lock(&fabric.journal).open().count();
        if open == 0 && clients.is_empty() {
            return true;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    false
}

/// Waits until nothing is left to forget; what is not forgotten then never will be, which
/// the trace says and the facts show.
async fn wait_until_forgotten(fabric: &Fabric) {
    for _ in 0..FORGETTING_S {
        if crate::bus::lock(&fabric.journal).all_forgotten() {
            return;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    fabric.trace.say("not everything was forgotten");
}

fn facts(fabric: &Arc<Fabric>, world: &World, publishers: &Publishers) -> Facts {
    let told = publishers.take();
    let starts = world.processes().into_iter().map(|p| Start {
        node: p.node,
        goal: p.goal,
        step: p.step,
        attempt: p.attempt,
        tool: p.tool,
        at_ms: p.at_ms,
        ended_ms: p.ended_ms,
        entries_before: Some(p.entries),
    });
    let effects = world.effects().into_iter().map(|(key, row)| EffectFact {
        goal: key.goal,
        tool: key.tool,
        what: key.item,
        args: row.args,
        applied: row.applied,
    });
    Facts {
        tools: workload().effects.clone(),
        journals: fabric.journals(),
        submissions: told.submissions,
        results: told.results,
        controls: told.controls,
        events: told.events,
        starts: starts.collect(),
        effects: effects.collect(),
        all_must_have_ended: true,
        clock_error_ms: 0,
    }
}

fn report(
    seed: u64,
    facts: Facts,
    violations: Vec<Violation>,
    trace: &Trace,
    lives: u64,
) -> Report {
    let mut ended = BTreeMap::new();
    for status in facts.statuses() {
        *ended.entry(status).or_default() += 1;
    }
    let (trace_hash, events) = trace.hash();
    Report {
        seed,
        trace_hash,
        events,
        violations,
        ended,
        starts: facts.starts.len() as u64,
        lives,
        simulated_ms: trace.elapsed_us() / 1000,
        trace: trace.take_lines(),
        facts,
    }
}
