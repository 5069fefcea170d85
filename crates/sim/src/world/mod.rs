//! The simulated real world: effects with an identity, and the processes that make them.
//!
//! What it promises: it counts honestly. An effect of an `idempotent` tool is applied
//! once for each key while the key is kept; one of a `fenced` tool is a register that
//! refuses lower tokens for ever; one of a `once` tool is applied as often as its bytes
//! arrive. A process that was killed does nothing more, but what it has sent still
//! arrives, within the tool's declared settling time where it declares one.
//!
//! What it must not know: goals' plans, the journal (but to note how far it was when a
//! process started), who asks.

mod probe;
mod process;

pub use probe::WorldProbe;
pub use process::{Ended, Job, Process};

use crate::bus::{Fabric, lock};
use crate::chance::Chance;
use detent_protocol::effect::Effect;
use detent_protocol::json::Digest;
use detent_protocol::{GoalId, NodeId, StepId, ToolName};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// What one effect is to the world: the thing that must happen once.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct EffectKey {
    /// The goal that wants it.
    pub goal: GoalId,
    /// The tool that makes it.
    pub tool: ToolName,
    /// Which thing.
    pub item: String,
}

/// What the world knows of one effect.
#[derive(Debug, Clone, Default)]
pub struct EffectRow {
    /// How often the world changed for it.
    pub applied: u32,
    /// Processes that were started for it.
    pub starts: u32,
    /// Sent and not arrived yet.
    pub in_flight: u32,
    /// Digests of the arguments that it was started with.
    pub args: Vec<Digest>,
    /// Idempotency keys, and when each was first honoured.
    keys: BTreeMap<Digest, Instant>,
    /// The highest fencing token.
    token: u64,
    /// Digest of the value, for a register.
    value: Option<Digest>,
    /// What the first application gave.
    pub(crate) output: Value,
}

/// A process, running or over.
#[derive(Debug, Clone)]
pub struct ProcessRow {
    /// The node that started it.
    pub node: NodeId,
    /// The goal.
    pub goal: GoalId,
    /// The step.
    pub step: StepId,
    /// The attempt.
    pub attempt: u32,
    /// The tool.
    pub tool: ToolName,
    /// Its effect; `None` for a tool that only reads.
    pub effect: Option<EffectKey>,
    /// When it started, Unix milliseconds.
    pub at_ms: u64,
    /// When it ended.
    pub ended_ms: Option<u64>,
    /// How many entries the goal's journal had when it started.
    pub entries: u64,
    task: Option<AbortHandle>,
}

#[derive(Default)]
struct State {
    processes: Vec<ProcessRow>,
    effects: BTreeMap<EffectKey, EffectRow>,
    probes_back_at: Option<Instant>,
}

/// The world of one run.
pub struct World {
    pub(crate) fabric: Arc<Fabric>,
    state: Mutex<State>,
}

/// What is true of an effect, for a person who goes and looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Truth {
    /// It happened.
    Happened,
    /// It did not, and nothing is on its way.
    Absent,
    /// Something is still running or on its way.
    Undecided,
}

impl World {
    /// An empty world beside `fabric`.
    pub fn new(fabric: Arc<Fabric>) -> Arc<Self> {
        Arc::new(Self {
            fabric,
            state: Mutex::default(),
        })
    }

    pub(crate) fn chance(&self) -> &Chance {
        &self.fabric.chance
    }

    fn now_ms(&self) -> u64 {
        crate::env::EPOCH_MS + self.fabric.trace.elapsed_us() / 1000
    }

    /// Bytes of an effect arrive.
    fn apply(&self, key: &EffectKey, job: &Job) {
        let mut state = lock(&self.state);
        let row = state.effects.entry(key.clone()).or_default();
        row.in_flight = row.in_flight.saturating_sub(1);
        let changes = row.takes(job);
        if changes {
            row.applied += 1;
            row.output = job.output();
        }
        let applied = row.applied;
        drop(state);
        let (goal, tool, item) = (key.goal, &key.tool, &key.item);
        let how = if changes {
            "applied"
        } else {
            "known or refused"
        };
        let text = format!("effect {goal} {tool} {item}: {how}, {applied} in all");
        self.fabric.trace.say(text);
    }

    /// Probes can't look for so long.
    pub(crate) fn probes_away_for(&self, time: Duration) {
        lock(&self.state).probes_back_at = Some(Instant::now() + time);
    }

    /// Probes can look from now on.
    pub(crate) fn mend(&self) {
        lock(&self.state).probes_back_at = None;
    }

    fn probes_away(&self) -> bool {
        let back_at = lock(&self.state).probes_back_at;
        back_at.is_some_and(|at| Instant::now() < at)
    }

    /// What a person finds out about the effect that the tool was to make with these
    /// arguments.
    pub fn truth(&self, goal: GoalId, tool: &ToolName, args: &Digest) -> Truth {
        let state = lock(&self.state);
        let found = state
            .effects
            .iter()
            .find(|(key, row)| key.goal == goal && key.tool == *tool && row.args.contains(args));
        let Some((key, row)) = found else {
            return Truth::Absent;
        };
        let alive = state.processes.iter();
        let mut alive = alive.filter(|p| p.ended_ms.is_none());
        let running = alive.any(|p| p.effect.as_ref() == Some(key));
        match (row.applied, row.in_flight) {
            (1.., _) => Truth::Happened,
            (0, 0) if !running => Truth::Absent,
            _ => Truth::Undecided,
        }
    }

    /// All processes there ever were, in the order of their start.
    pub fn processes(&self) -> Vec<ProcessRow> {
        lock(&self.state).processes.clone()
    }

    /// All effects that were ever tried.
    pub fn effects(&self) -> BTreeMap<EffectKey, EffectRow> {
        lock(&self.state).effects.clone()
    }
}

impl EffectRow {
    /// Does the world change for these bytes?
    fn takes(&mut self, job: &Job) -> bool {
        match job.effect {
            Effect::Read => false,
            Effect::Once => true,
            Effect::Idempotent => {
                let Some(key) = job.identity else { return true };
                let now = Instant::now();
                let kept = Duration::from_millis(job.key_valid_for_ms);
                let known = self.keys.get(&key);
                if known.is_some_and(|first| now < *first + kept) {
                    return false;
                }
                self.keys.insert(key, now);
                true
            }
            Effect::Fenced => {
                if job.fencing_token < self.token {
                    return false;
                }
                self.token = job.fencing_token;
                let value = Some(Digest::of_json(&job.args));
                std::mem::replace(&mut self.value, value) != value
            }
        }
    }
}
