//! Processes of tools: they take time, fail, hang, lie, and send bytes that can't be
//! called back.

use super::{EffectKey, ProcessRow, World};
use crate::bus::lock;
use detent_bus::GoalKey;
use detent_protocol::agent::ToolDef;
use detent_protocol::effect::Effect;
use detent_protocol::json::Digest;
use detent_protocol::messages::ToolCall;
use detent_protocol::{Code, Fault, NodeId, StepId, ToolName};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Nearest to the declared settling time that bytes arrive, milliseconds: the declared
/// time is the provider's promise, which has a margin of its own.
const SETTLE_MARGIN_MS: u64 = 50;
/// Longest way of bytes where no settling time is declared, milliseconds.
const FLIGHT_MS_MAX: u64 = 9_000;

/// What a process is started for.
#[derive(Debug, Clone)]
pub struct Job {
    /// Whose goal.
    pub goal: GoalKey,
    /// The step.
    pub step: StepId,
    /// The attempt.
    pub attempt: u32,
    /// The tool.
    pub tool: ToolName,
    /// Its effect.
    pub effect: Effect,
    /// The arguments.
    pub args: Value,
    /// Idempotency key.
    pub identity: Option<Digest>,
    /// Fencing token.
    pub fencing_token: u64,
    /// How long the world honours the key.
    pub key_valid_for_ms: u64,
    /// Within which time what was sent arrives.
    pub settles_within_ms: Option<u64>,
    /// Longest time that an honest run takes.
    pub run_ms_max: u64,
}

impl Job {
    /// From a call and the tool's entry.
    pub fn new(call: &ToolCall, def: &ToolDef) -> Self {
        Self {
            goal: GoalKey {
                tenant: call.tenant.clone(),
                goal: call.goal,
            },
            step: call.step.clone(),
            attempt: call.attempt,
            tool: call.tool.clone(),
            effect: def.effect,
            args: call.args.clone(),
            identity: call.identity,
            fencing_token: call.fencing_token,
            key_valid_for_ms: def.key_valid_for_ms,
            settles_within_ms: def.settles_within_ms,
            run_ms_max: def.timeout_ms / 2,
        }
    }

    fn key(&self) -> Option<EffectKey> {
        if !self.effect.has_slot() {
            return None;
        }
        Some(EffectKey {
            goal: self.goal.goal,
            tool: self.tool.clone(),
            item: self.args["item"].as_str().unwrap_or_default().to_owned(),
        })
    }

    /// What a run of it gives.
    pub(super) fn output(&self) -> Value {
        json!({"done": true, "item": self.args["item"]})
    }
}

/// How a process ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Ended {
    /// By itself, well.
    Done(Value),
    /// By itself, badly.
    Failed(Fault),
    /// By a signal.
    Killed,
}

/// A process that was started.
#[derive(Clone)]
pub struct Process {
    number: usize,
    ended: watch::Receiver<Option<Ended>>,
}

impl Process {
    /// Waits for its end.
    pub async fn ended(&mut self) -> Ended {
        match self.ended.wait_for(Option::is_some).await {
            Ok(ended) => ended.clone().unwrap_or(Ended::Killed),
            // Its task was aborted: that is what being killed is here.
            Err(_) => Ended::Killed,
        }
    }
}

/// What a process will do.
struct Script {
    /// Until the bytes are sent; `None`: it never sends any.
    send_after_ms: Option<u64>,
    /// How long they are on their way.
    flight_ms: u64,
    /// From there to the end; `None`: it hangs.
    rest_ms: Option<u64>,
    end: Ended,
}

impl World {
    /// Starts a process on `node`.
    pub fn start(self: &Arc<Self>, node: &NodeId, job: Job) -> Process {
        let script = self.script(&job);
        let (sender, ended) = watch::channel(None);
        let number = self.enter(node, &job);
        let world = self.clone();
        let task = tokio::spawn(async move {
            let end = world.play(script, job).await;
            world.leave(number, "ended");
            sender.send_replace(Some(end));
        });
        lock(&self.state).processes[number].task = Some(task.abort_handle());
        Process { number, ended }
    }

    /// Kills a process and waits until it is gone.
    pub async fn kill(&self, process: &Process) {
        self.chance().delay_us(0, 20_000).await;
        self.kill_now(process.number);
    }

    fn kill_now(&self, number: usize) {
        if let Some(task) = lock(&self.state).processes[number].task.take() {
            task.abort();
        }
        self.leave(number, "killed");
    }

    /// Processes of `node` that are alive.
    fn alive_on(&self, node: &NodeId) -> Vec<usize> {
        let state = lock(&self.state);
        let all = state.processes.iter().enumerate();
        let alive = all.filter(|(_, p)| p.ended_ms.is_none() && p.node == *node);
        alive.map(|(number, _)| number).collect()
    }

    /// The node crashed: some of its processes die a little later, some live on until
    /// the next life sweeps them.
    pub fn orphan(self: &Arc<Self>, node: &NodeId) {
        for number in self.alive_on(node) {
            if self.chance().happens(400) {
                continue;
            }
            let (world, wait) = (self.clone(), self.chance().below(60));
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(wait)).await;
                world.kill_now(number);
            });
        }
    }

    /// Kills what earlier lives of `node` left; nothing of it is alive afterwards.
    pub async fn sweep(&self, node: &NodeId) {
        self.chance().delay_us(0, 30_000).await;
        for number in self.alive_on(node) {
            self.kill_now(number);
        }
    }

    fn enter(&self, node: &NodeId, job: &Job) -> usize {
        let entries = lock(&self.fabric.journal).last(&job.goal);
        let at_ms = self.now_ms();
        let mut state = lock(&self.state);
        let effect = job.key();
        if let Some(key) = &effect {
            let row = state.effects.entry(key.clone()).or_default();
            row.starts += 1;
            row.args.push(Digest::of_json(&job.args));
        }
        let number = state.processes.len();
        state.processes.push(ProcessRow {
            node: node.clone(),
            goal: job.goal.goal,
            step: job.step.clone(),
            attempt: job.attempt,
            tool: job.tool.clone(),
            effect,
            at_ms,
            ended_ms: None,
            entries,
            task: None,
        });
        drop(state);
        let (goal, step, attempt, tool) = (job.goal.goal, &job.step, job.attempt, &job.tool);
        let text = format!("process {number} starts: {goal} {step}/{attempt} {tool}");
        self.fabric.trace.say(text);
        number
    }

    fn leave(&self, number: usize, how: &str) {
        let now_ms = self.now_ms();
        let mut state = lock(&self.state);
        let ended = &mut state.processes[number].ended_ms;
        if ended.is_some() {
            return;
        }
        *ended = Some(now_ms);
        drop(state);
        self.fabric.trace.say(format!("process {number} {how}"));
    }

    fn script(&self, job: &Job) -> Script {
        let chance = self.chance();
        let send = chance.between(1, job.run_ms_max.max(2));
        let rest = chance.below((job.run_ms_max - send.min(job.run_ms_max)).max(1));
        let late = chance.fault(|f| f.settle_late);
        let flight_max = match job.settles_within_ms {
            Some(ms) => ms.saturating_sub(SETTLE_MARGIN_MS),
            None => FLIGHT_MS_MAX,
        };
        let mut script = Script {
            send_after_ms: Some(send),
            flight_ms: if late { chance.below(flight_max) } else { 0 },
            rest_ms: Some(rest),
            end: Ended::Done(job.output()),
        };
        if chance.fault(|f| f.tool) {
            self.spoil(&mut script);
        }
        script
    }

    fn spoil(&self, script: &mut Script) {
        let failed = Ended::Failed(Fault::new(Code::ToolFailed, "it ended with code 1"));
        match self.chance().below(6) {
            // Before its effect, and after it.
            0 => (script.send_after_ms, script.end) = (None, failed),
            1 => script.end = failed,
            // It hangs, before and after.
            2 => (script.send_after_ms, script.rest_ms) = (None, None),
            3 => script.rest_ms = None,
            // It says "done" and did nothing.
            4 => script.send_after_ms = None,
            _ => {
                let crashed = Fault::new(Code::ToolCrashed, "ended by signal 11");
                script.end = Ended::Failed(crashed);
            }
        }
    }

    async fn play(self: &Arc<Self>, script: Script, job: Job) -> Ended {
        let wait = |ms| tokio::time::sleep(Duration::from_millis(ms));
        if let Some(ms) = script.send_after_ms {
            wait(ms).await;
            self.send(job, script.flight_ms);
        }
        match script.rest_ms {
            Some(ms) => wait(ms).await,
            None => std::future::pending().await,
        }
        script.end
    }

    /// Bytes leave; nothing calls them back.
    fn send(self: &Arc<Self>, job: Job, flight_ms: u64) {
        let Some(key) = job.key() else { return };
        if let Some(row) = lock(&self.state).effects.get_mut(&key) {
            row.in_flight += 1;
        }
        if flight_ms == 0 {
            return self.apply(&key, &job);
        }
        let world = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(flight_ms)).await;
            world.apply(&key, &job);
        });
    }
}
