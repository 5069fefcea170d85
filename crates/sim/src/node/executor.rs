//! The twin of the tool executor.
//!
//! The real one keeps its ledger in a store whose writer is a thread; a paused clock
//! does not wait for threads, so it can't run here. This one keeps the same protocol,
//! in the same order: the attempt goes on the table of runs, *then* the seals are
//! looked at, then the slot is won with a nonce of its own, then the start deadline is
//! checked, then it runs, then the ledger is written, and only then it leaves the table.
//! A seal marks first and looks at the table afterwards.

use super::ledger::{Attempt, Ledger};
use super::runs::{Ending, KillWhy, Kind, Reply, Run, Runs};
use crate::bus::{Port, lock};
use crate::world::{Ended, Job, Process, World};
use async_trait::async_trait;
use bytes::Bytes;
use detent_bus::{BusError, GoalKey, Handler, Messages, ServeOptions, Served, SlotKey, Slots};
use detent_protocol::agent::CompiledTool;
use detent_protocol::effect::SlotMark;
use detent_protocol::envelope::{self, Message};
use detent_protocol::json::Digest;
use detent_protocol::messages::{AttemptSealed, GoalSealed, SealAttempt, SealGoal, ToolCall};
use detent_protocol::record::{RunFacts, Seal, ToolOutcome};
use detent_protocol::{Code, Fault, NodeId, TenantId, ToolName, subject};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

/// Tools by name and version.
pub(crate) type Registry = Arc<BTreeMap<(ToolName, Digest), CompiledTool>>;

/// The executor of one life of a node.
pub(crate) struct Executor {
    port: Port,
    world: Arc<World>,
    registry: Registry,
    ledger: Ledger,
    runs: Runs,
    /// Attempts sealed in this life, for tools without a slot.
    sealed: Mutex<BTreeSet<Attempt>>,
}

/// Whose a slot is.
enum Claim {
    Won,
    Revoked,
    StartedBy(NodeId),
}

impl Executor {
    /// Sweeps what earlier lives left, then serves calls and seals.
    pub(crate) async fn start(
        port: Port,
        world: Arc<World>,
        registry: Registry,
    ) -> Result<Vec<Served>, BusError> {
        world.sweep(port.life.node()).await;
        let me = Arc::new(Self {
            ledger: Ledger::new(port.clone()),
            port: port.clone(),
            world,
            registry,
            runs: Runs::default(),
            sealed: Mutex::default(),
        });
        let alone = ServeOptions {
            group: String::new(),
            ..ServeOptions::default()
        };
        let seals = subject::executor(port.life.node());
        let calls = Arc::new(Calls(me.clone()));
        // Seals first: who can be called can be sealed.
        Ok(vec![
            port.serve(&seals, alone, Arc::new(Seals(me))).await?,
            port.serve(
                &subject::tools_of(port.life.node()),
                ServeOptions::default(),
                calls,
            )
            .await?,
        ])
    }

    async fn call(&self, call: &ToolCall) -> Reply {
        let attempt = Attempt {
            goal: call.goal,
            step: call.step.clone(),
            attempt: call.attempt,
        };
        let (run, leads) = self.runs.join(&attempt);
        if !leads {
            return run.ended().await.reply;
        }
        let ending = self.lead(call, &attempt, &run).await;
        let reply = ending.reply.clone();
        self.runs.finish(&attempt, &run, ending);
        reply
    }

    async fn lead(&self, call: &ToolCall, attempt: &Attempt, run: &Run) -> Ending {
        let came = Instant::now();
        let version = (call.tool.clone(), call.tool_digest);
        let Some(tool) = self.registry.get(&version) else {
            let fault = Fault::new(Code::ToolUnavailable, "no such tool here");
            return self.refuse(call, true, fault).await;
        };
        let has_slot = tool.def.effect.has_slot();
        if has_slot && let Some(outcome) = self.ledger.entry(attempt) {
            return over_already(outcome, self.port.life.node());
        }
        if let Some(why) = self.sealed_already(attempt, run) {
            return self.refuse(call, has_slot, why.fault()).await;
        }
        if let Err(fault) = tool.input.check_as(Code::InputInvalid, &call.args) {
            return self.refuse(call, has_slot, fault).await;
        }
        if has_slot {
            let nonce = self.port.fabric.chance.bits();
            match self.claim(&slot_of(call), nonce).await {
                Ok(Claim::Won) => {}
                Ok(Claim::Revoked) => return not_started(KillWhy::Attempt.fault()),
                Ok(Claim::StartedBy(node)) => return unclear(started_elsewhere(&node)),
                Err(fault) => return unclear(fault),
            }
        }
        let (outcome, kind) = self.execute(call, tool, came, run).await;
        self.conclude(attempt, has_slot, outcome, kind).await
    }

    fn sealed_already(&self, attempt: &Attempt, run: &Run) -> Option<KillWhy> {
        if self.ledger.is_sealed(&attempt.goal) {
            return Some(KillWhy::Goal);
        }
        if lock(&self.sealed).contains(attempt) {
            return Some(KillWhy::Attempt);
        }
        run.why()
    }

    async fn execute(
        &self,
        call: &ToolCall,
        tool: &CompiledTool,
        came: Instant,
        run: &Run,
    ) -> (ToolOutcome, Kind) {
        if run.is_killed() {
            let why = run.why().unwrap_or(KillWhy::Attempt);
            return (failed(why.fault(), false), Kind::Over);
        }
        self.port.point("spawn").await;
        if came.elapsed() >= Duration::from_millis(call.start_within_ms) {
            let fault = Fault::new(Code::ToolUnavailable, "the start deadline has passed");
            return (failed(fault, false), Kind::Over);
        }
        let job = Job::new(call, &tool.def);
        let mut process = self.world.start(self.port.life.node(), job);
        self.port.point("spawned").await;
        let timeout = Duration::from_millis(tool.def.timeout_ms);
        let ended = tokio::select! {
            biased;
            ended = process.ended() => ended,
            () = run.killed() => return self.killed(&mut process, run).await,
            () = tokio::time::sleep(timeout) => self.timed_out(&mut process).await,
        };
        (word(ended), Kind::Over)
    }

    async fn killed(&self, process: &mut Process, run: &Run) -> (ToolOutcome, Kind) {
        self.world.kill(process).await;
        match process.ended().await {
            Ended::Killed => {
                let why = run.why().unwrap_or(KillWhy::Attempt);
                (failed(why.fault(), true), Kind::Killed)
            }
            // It ended by itself in the meantime.
            ended => (word(ended), Kind::Over),
        }
    }

    async fn timed_out(&self, process: &mut Process) -> Ended {
        self.world.kill(process).await;
        match process.ended().await {
            Ended::Killed => Ended::Failed(Fault::new(Code::ToolTimeout, "killed in time")),
            ended => ended,
        }
    }

    async fn conclude(
        &self,
        attempt: &Attempt,
        has_slot: bool,
        outcome: ToolOutcome,
        kind: Kind,
    ) -> Ending {
        if has_slot {
            let row = (kind == Kind::Over).then(|| outcome.clone());
            // The owner is told all the same.
            if let Err(fault) = self.ledger.record(attempt, row).await {
                self.port.fabric.trace.say(format!("ledger: {fault}"));
            }
        }
        self.port.point("outcome").await;
        let reply = Ok(outcome);
        Ending { reply, kind }
    }

    /// Refuses for good: the slot is revoked, so that another delivery can't start.
    async fn refuse(&self, call: &ToolCall, has_slot: bool, fault: Fault) -> Ending {
        if !has_slot {
            return not_started(fault);
        }
        match self.revoke(&slot_of(call), call.epoch).await {
            Ok(Claim::StartedBy(node)) => unclear(started_elsewhere(&node)),
            Ok(_) => not_started(fault),
            Err(fault) => unclear(fault),
        }
    }

    async fn claim(&self, key: &SlotKey, nonce: u64) -> Result<Claim, Fault> {
        let mine = SlotMark::Started {
            node: self.port.life.node().clone(),
            nonce,
        };
        Ok(match self.write_once(key, mine.clone()).await? {
            mark if mark == mine => Claim::Won,
            SlotMark::Revoked { .. } => Claim::Revoked,
            SlotMark::Started { node, .. } => Claim::StartedBy(node),
        })
    }

    async fn revoke(&self, key: &SlotKey, epoch: u64) -> Result<Claim, Fault> {
        let revoked = SlotMark::Revoked { epoch };
        Ok(match self.write_once(key, revoked).await? {
            SlotMark::Revoked { .. } => Claim::Revoked,
            SlotMark::Started { node, .. } => Claim::StartedBy(node),
        })
    }

    /// On an unclear answer the slot is read back; where it is empty then, the write may
    /// still be under way.
    async fn write_once(&self, key: &SlotKey, mark: SlotMark) -> Result<SlotMark, Fault> {
        match self.port.win(key, mark).await {
            Ok(there) => Ok(there),
            Err(unclear) => Slots::read(&self.port, key).await?.ok_or(unclear),
        }
    }

    async fn seal_attempt(&self, ask: &SealAttempt) -> Result<AttemptSealed, Fault> {
        let attempt = Attempt {
            goal: ask.goal,
            step: ask.step.clone(),
            attempt: ask.attempt,
        };
        lock(&self.sealed).insert(attempt.clone());
        if let Some(seal) = self.over_here(&attempt).await {
            return Ok(AttemptSealed { seal });
        }
        let key = slot_key(&ask.tenant, ask.goal, &ask.step, ask.attempt);
        let seal = match self.revoke(&key, ask.epoch).await? {
            Claim::StartedBy(node) if node == *self.port.life.node() => {
                // What neither the table nor the ledger has is of an earlier life, whose
                // processes were swept.
                let found = self.over_here(&attempt).await;
                found.unwrap_or(Seal::Ended { outcome: None })
            }
            Claim::StartedBy(node) => return Err(started_elsewhere(&node)),
            Claim::Won | Claim::Revoked => Seal::NeverStarted,
        };
        Ok(AttemptSealed { seal })
    }

    /// Ends the attempt if it runs; what is known about it if it is over.
    async fn over_here(&self, attempt: &Attempt) -> Option<Seal> {
        if let Some(run) = self.runs.get(attempt) {
            run.end(KillWhy::Attempt);
            let ending = run.ended().await;
            match ending.kind {
                Kind::Refused => {}
                Kind::Killed => return Some(Seal::Ended { outcome: None }),
                Kind::Over => {
                    let outcome = ending.reply.ok();
                    return Some(Seal::Ended { outcome });
                }
            }
        }
        let outcome = self.ledger.entry(attempt)?;
        Some(Seal::Ended { outcome })
    }

    async fn seal_goal(&self, ask: &SealGoal) -> Result<GoalSealed, Fault> {
        self.ledger.seal(ask.goal).await?;
        let runs = self.runs.of_goal(&ask.goal);
        runs.iter().for_each(|run| run.end(KillWhy::Goal));
        let mut ended = 0;
        for run in runs {
            ended += u32::from(run.ended().await.kind != Kind::Refused);
        }
        let node = self.port.life.node().clone();
        Ok(GoalSealed { node, ended })
    }
}

fn slot_of(call: &ToolCall) -> SlotKey {
    slot_key(&call.tenant, call.goal, &call.step, call.attempt)
}

fn slot_key(
    tenant: &TenantId,
    goal: detent_protocol::GoalId,
    step: &detent_protocol::StepId,
    attempt: u32,
) -> SlotKey {
    let tenant = tenant.clone();
    SlotKey {
        goal: GoalKey { tenant, goal },
        step: step.clone(),
        attempt,
    }
}

fn started_elsewhere(node: &NodeId) -> Fault {
    let text = format!("started before, on node {node}; its end is not known here");
    Fault::new(Code::OwnerFenced, text)
}

fn failed(fault: Fault, started: bool) -> ToolOutcome {
    ToolOutcome::Failed {
        fault,
        started,
        run: RunFacts::default(),
    }
}

fn word(ended: Ended) -> ToolOutcome {
    match ended {
        Ended::Done(output) => ToolOutcome::Done {
            output,
            run: RunFacts::default(),
        },
        Ended::Failed(fault) => failed(fault, true),
        Ended::Killed => failed(Fault::new(Code::ToolCrashed, "ended by a signal"), true),
    }
}

fn over_already(outcome: Option<ToolOutcome>, node: &NodeId) -> Ending {
    match outcome {
        Some(outcome) => Ending {
            reply: Ok(outcome),
            kind: Kind::Over,
        },
        None => Ending {
            reply: Err(started_elsewhere(node)),
            kind: Kind::Killed,
        },
    }
}

fn not_started(fault: Fault) -> Ending {
    Ending {
        reply: Ok(failed(fault, false)),
        kind: Kind::Refused,
    }
}

fn unclear(fault: Fault) -> Ending {
    Ending {
        reply: Err(fault),
        kind: Kind::Refused,
    }
}

struct Calls(Arc<Executor>);

#[async_trait]
impl Handler for Calls {
    async fn handle(&self, _subject: &str, payload: Bytes) -> Bytes {
        envelope::reply(match envelope::expect::<ToolCall>(&payload) {
            Ok(call) => self.0.call(&call).await,
            Err(fault) => Err(fault),
        })
    }
}

struct Seals(Arc<Executor>);

#[async_trait]
impl Handler for Seals {
    async fn handle(&self, _subject: &str, payload: Bytes) -> Bytes {
        let kind = envelope::head(&payload).map(|head| head.kind);
        if kind.as_deref() == Ok(SealGoal::KIND) {
            return envelope::reply(match envelope::expect(&payload) {
                Ok(ask) => self.0.seal_goal(&ask).await,
                Err(fault) => Err(fault),
            });
        }
        envelope::reply(match envelope::expect(&payload) {
            Ok(ask) => self.0.seal_attempt(&ask).await,
            Err(fault) => Err(fault),
        })
    }
}
