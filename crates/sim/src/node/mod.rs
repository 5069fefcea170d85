//! A node of the simulated cluster: assembled, crashed, started again.
//!
//! | part | here |
//! |---|---|
//! | orchestrator | the real one: actors, journal fold, recovery |
//! | reasoner | the real one, with its playbook provider |
//! | observer | the real one, with a probe that looks at the simulated world |
//! | tool executor | a twin that keeps the same protocol (its store has a thread) |
//!
//! What it promises: a crash ends all of a life at once, at the call where it was drawn;
//! what was durable is found again by the next life, what was not is gone.

mod executor;
mod ledger;
mod runs;

pub(crate) use executor::Registry;
pub(crate) use ledger::LedgerRows;

use crate::bus::{Fabric, Port, lock};
use crate::env::SimEnv;
use crate::judge::Violation;
use crate::life::Life;
use crate::world::{World, WorldProbe};
use async_trait::async_trait;
use detent_bus::env::SharedEnv;
use detent_bus::{GoalKey, Served};
use detent_observer::{Observer, ObserverHandle, ObserverOptions};
use detent_orchestrator::{Bug, Definitions, Handle, Hooks, Options, Orchestrator, Retention};
use detent_protocol::{Fault, NodeId};
use detent_reasoner::{Reasoner, ReasonerHandle, ReasonerOptions};
use executor::Executor;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What all nodes of a run share.
pub(crate) struct Cluster {
    pub(crate) fabric: Arc<Fabric>,
    pub(crate) world: Arc<World>,
    pub(crate) definitions: Definitions,
    pub(crate) registry: Registry,
    pub(crate) bug: Option<Bug>,
    /// How long after their end goals are forgotten; `None`: never.
    pub(crate) forget_after_ms: Option<u64>,
    /// What orchestrators found wrong with themselves.
    pub(crate) alerts: Arc<Mutex<Vec<String>>>,
    pub(crate) lives: AtomicU64,
}

/// One assembled life.
struct Assembled {
    orchestrator: Handle,
    observer: ObserverHandle,
    reasoner: ReasonerHandle,
    _executor: Vec<Served>,
}

impl Assembled {
    /// Kills the actors. Whatever of them is left hangs at its next call.
    fn kill(&self) {
        self.orchestrator.cell().kill();
        self.observer.cell().kill();
        self.reasoner.cell().kill();
    }
}

/// Writes the orchestrator's alerts into the trace; what depends on the machine's speed
/// stays out.
struct Told {
    port: Port,
    alerts: Arc<Mutex<Vec<String>>>,
}

/// Alerts that say that the orchestrator broke a rule of its own.
const BUGS: [&str; 3] = ["invariant", "internal-logic-error", "replay-mismatch"];

#[async_trait]
impl Hooks for Told {
    /// Like the node's: what the executor holds of the goal goes.
    async fn forgotten(&self, goal: &GoalKey) -> Result<(), Fault> {
        ledger::Ledger::new(self.port.clone())
            .forget(goal.goal)
            .await
    }

    fn alert(&self, kind: &str, text: &str) {
        if kind == "slow-turn" {
            return;
        }
        let text = format!("alert {kind}: {text}");
        self.port.fabric.trace.say(&text);
        if BUGS.contains(&kind) {
            lock(&self.alerts).push(text);
        }
    }
}

impl Cluster {
    /// Lives that nodes have had.
    pub(crate) fn lives(&self) -> u64 {
        self.lives.load(Ordering::Relaxed)
    }

    /// What orchestrators found wrong with themselves, as violations.
    pub(crate) fn alerts(&self) -> Vec<Violation> {
        let alerts = lock(&self.alerts);
        let violations = alerts.iter().map(|text| Violation {
            invariant: "I10",
            goal: None,
            evidence: text.clone(),
        });
        violations.collect()
    }

    /// Runs a node through one life after another, for ever.
    pub(crate) async fn run_node(self: Arc<Self>, node: NodeId) {
        for number in 1.. {
            let life = Arc::new(Life::of_node(node.clone(), number));
            self.lives.store(number, Ordering::Relaxed);
            self.fabric.trace.say(format!("start {node}/{number}"));
            self.live(&life).await;
            self.world.orphan(&node);
            let down = self.fabric.chance.between(20, 4_000);
            tokio::time::sleep(Duration::from_millis(down)).await;
        }
    }

    async fn live(&self, life: &Arc<Life>) {
        let assembled = tokio::select! {
            biased;
            () = life.over() => return,
            booted = self.boot(life.clone()) => booted,
        };
        let Some(assembled) = assembled else {
            // A node that does not come up ends, and is started again.
            return life.end();
        };
        tokio::select! {
            biased;
            () = life.over() => {}
            () = self.fate(life, &assembled.orchestrator) => life.end(),
        }
        assembled.kill();
    }

    /// Waits until the node is killed from outside. Until then actors of goals panic now
    /// and then, which is a restart of theirs alone.
    async fn fate(&self, life: &Life, orchestrator: &Handle) {
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            if self.fabric.chance.fault(|f| f.panic) {
                self.panic_one(orchestrator);
            }
            if self.fabric.chance.fault(|f| f.kill) {
                let (node, number) = (life.node(), life.number());
                return self.fabric.trace.say(format!("kill {node}/{number}"));
            }
        }
    }

    fn panic_one(&self, orchestrator: &Handle) {
        let open: Vec<_> = lock(&self.fabric.journal).open().cloned().collect();
        let chosen = self.fabric.chance.below(open.len() as u64);
        let chosen = usize::try_from(chosen).ok().and_then(|i| open.get(i));
        if let Some(key) = chosen
            && orchestrator.fail_goal_actor(key)
        {
            self.fabric.trace.say(format!("panic {}", key.goal));
        }
    }

    /// Assembles a life; the orchestrator last, because its recovery calls the others.
    async fn boot(&self, life: Arc<Life>) -> Option<Assembled> {
        let node = life.node().clone();
        let port = Port::new(self.fabric.clone(), life);
        let chance = self.fabric.chance.clone();
        let env: SharedEnv = Arc::new(SimEnv::new(chance, self.fabric.trace.clone()));
        let (world, registry) = (self.world.clone(), self.registry.clone());
        let executor = Executor::start(port.clone(), world, registry).await;
        let probe = WorldProbe::new(self.world.clone(), port.clone());
        let dir = std::env::temp_dir().join("detent-sim");
        let looks = ObserverOptions::new(port.life.node().clone(), &dir, &dir, &dir);
        let observer = Observer::spawn(looks, port.bus(), vec![Arc::new(probe)], env.clone(), None);
        let observer = self.came_up("observer", observer.await)?;
        let reasoner = Reasoner::spawn(ReasonerOptions::default(), port.bus(), None).await;
        let reasoner = self.came_up("reasoner", reasoner)?;
        let hooks = Arc::new(Told {
            port: port.clone(),
            alerts: self.alerts.clone(),
        });
        let definitions = self.definitions.clone();
        let options = self.options(node);
        let orchestrator =
            Orchestrator::spawn(options, port.bus(), env, definitions, hooks, None).await;
        Some(Assembled {
            _executor: self.came_up("executor", executor)?,
            orchestrator: self.came_up("orchestrator", orchestrator)?,
            observer,
            reasoner,
        })
    }

    fn options(&self, node: NodeId) -> Options {
        Options {
            append_timeout_ms: 2_000,
            plan_timeout_ms: 10_000,
            look_timeout_ms: 10_000,
            scan_every_ms: 10_000,
            bug: self.bug,
            retention: self.forget_after_ms.map(|journal_ms| Retention {
                journal_ms,
                ..Retention::default()
            }),
            ..Options::new(node)
        }
    }

    fn came_up<T, E: std::fmt::Display>(&self, what: &str, got: Result<T, E>) -> Option<T> {
        got.map_err(|e| self.fabric.trace.say(format!("{what} did not start: {e}")))
            .ok()
    }
}
