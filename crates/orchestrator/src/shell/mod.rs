//! The shell: actors, journal and clock around the pure half.
//!
//! One [`Orchestrator`] actor for each node supervises one actor for each goal in
//! flight. A goal's actor is its only writer: it takes one event at a time, appends
//! what [`crate::decide`] said, and lets the commands out after the confirmation.
//! When it panics, its messages are lost and nothing else: it is started again from
//! the journal, with a new epoch, like after a takeover.

mod append;
mod archive;
mod carry;
mod check;
mod definitions;
mod goal;
mod inbox;
mod intake;
mod journal;
mod owner;
mod query;
mod retention;
#[cfg(test)]
mod tests;

pub use definitions::Definitions;
pub use journal::{Loaded, load};
pub use query::answer_offline;
pub use retention::Retention;

use crate::decide::Bug;
use async_trait::async_trait;
use detent_bus::claim::ClaimCheck;
use detent_bus::env::SharedEnv;
use detent_bus::{Bus, GoalKey, OpenGoal, ServeOptions, Served};
use detent_protocol::ids::SHARDS;
use detent_protocol::messages::Phase;
use detent_protocol::record::{Body, Record, Said};
use detent_protocol::redact::Redactor;
use detent_protocol::result::GoalResult;
use detent_protocol::tombstone::Archive;
use detent_protocol::{Fault, GoalId, NodeId, TenantId, subject};
use goal::{GoalActor, GoalMsg, Start};
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, SupervisionEvent};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// How an orchestrator is set up.
#[derive(Debug, Clone)]
pub struct Options {
    /// This node.
    pub node: NodeId,
    /// Goals in flight; one more is refused with retry-after.
    pub goals_in_flight_max: usize,
    /// How long after its issue an idempotency key is taken, milliseconds.
    pub idempotency_keep_ms: u64,
    /// Longest wait for one append before the tail is read back, milliseconds.
    pub append_timeout_ms: u64,
    /// Longest wait for a plan, milliseconds.
    pub plan_timeout_ms: u64,
    /// Longest wait for an observation, milliseconds.
    pub look_timeout_ms: u64,
    /// Control messages of one goal that may wait; one more is refused.
    pub controls_max: usize,
    /// How often open goals that nobody works on are looked for, milliseconds.
    pub scan_every_ms: u64,
    /// Tell each transition on the goal's event subject as it happens. Followers that
    /// ask (`Query::Events`) need it not.
    pub publish_events: bool,
    /// Knows what is a secret: a goal that holds one is refused, for its input is kept.
    pub redactor: Redactor,
    /// Other nodes append to the same journal: only goals that are this node's own, or
    /// nobody's, are taken up.
    pub shared_journal: bool,
    /// How long what ended is kept; `None`: for ever.
    pub retention: Option<Retention>,
    /// A deliberate mistake, for the tests that must find it.
    pub bug: Option<Bug>,
}

impl Options {
    /// The defaults for a node of this name.
    pub fn new(node: NodeId) -> Self {
        Self {
            node,
            goals_in_flight_max: 10_000,
            idempotency_keep_ms: 30 * 86_400_000,
            append_timeout_ms: 10_000,
            plan_timeout_ms: 180_000,
            look_timeout_ms: 90_000,
            controls_max: 16,
            scan_every_ms: 30_000,
            publish_events: false,
            redactor: Redactor::default(),
            shared_journal: false,
            retention: Some(Retention::default()),
            bug: None,
        }
    }
}

/// One transition, for the audit log and the metrics.
#[derive(Debug, Clone)]
pub struct Transition {
    /// Tenant.
    pub tenant: TenantId,
    /// Goal.
    pub goal: GoalId,
    /// Epoch of this owner.
    pub epoch: u64,
    /// Number of its last record.
    pub n: u64,
    /// State after it.
    pub phase: Phase,
    /// Name of the event.
    pub event: &'static str,
    /// Kinds of its records.
    pub records: Vec<&'static str>,
    /// From the event's arrival to the confirmed append.
    pub duration: Duration,
    /// The orchestrator's own part of it.
    pub turn: Duration,
    /// Why: the first fault's text, or empty.
    pub reason: String,
}

/// What the embedding node wants to hear. Called on the goal's own task: has to
/// return at once.
#[async_trait]
pub trait Hooks: Send + Sync + 'static {
    /// A transition is in the journal.
    fn transition(&self, _transition: Transition) {}
    /// A goal was taken, or refused with this fault.
    fn intake(&self, _result: Result<(), &Fault>) {}
    /// A goal has its result.
    fn ended(&self, _result: &GoalResult, _since_accepted: Duration) {}
    /// Open goals that wait for other nodes, which own them.
    fn owned_elsewhere(&self, _goals: usize) {}
    /// Goals in flight now.
    fn in_flight(&self, _goals: usize) {}
    /// A goal's journal was archived and replaced by its tombstone.
    fn goal_forgotten(&self, _archive: &Archive) {}
    /// A goal was forgotten, now or earlier: whatever the node holds of it can go. It may
    /// come again for the same goal; on an error it does. May take its time.
    async fn forgotten(&self, _goal: &GoalKey) -> Result<(), Fault> {
        Ok(())
    }
    /// Something could not be forgotten, and will be tried again.
    fn retention_failed(&self, _fault: &Fault) {}
    /// The journal takes no more.
    fn storage_failed(&self, _fault: &Fault) {}
    /// An invariant was broken, or a goal's actor failed: an operator has to look.
    fn alert(&self, _kind: &str, _text: &str) {}
}

/// Hears nothing.
#[derive(Debug)]
pub struct NoHooks;
impl Hooks for NoHooks {}

/// Why an orchestrator did not start.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// The actor did not start.
    #[error("the orchestrator did not start: {0}")]
    Actor(String),
}

/// What the actors and the handlers share.
pub struct Shared {
    pub(crate) options: Options,
    pub(crate) bus: Bus,
    pub(crate) claims: ClaimCheck,
    pub(crate) env: SharedEnv,
    pub(crate) definitions: Definitions,
    pub(crate) hooks: Arc<dyn Hooks>,
    goals: Mutex<BTreeMap<GoalKey, Active>>,
    /// Goals that are being journaled for the first time.
    taken: Mutex<BTreeSet<GoalKey>>,
    permits: Arc<Semaphore>,
    waiting: retention::Waiting,
    draining: AtomicBool,
    calls_out: AtomicUsize,
    me: OnceLock<ActorCell>,
}

/// A goal in flight.
pub(crate) struct Active {
    pub(crate) actor: ActorRef<GoalMsg>,
    pub(crate) progress: watch::Receiver<u64>,
    pub(crate) controls: Arc<Semaphore>,
    /// Held until the goal has ended, also while its actor is being restarted.
    permit: Option<OwnedSemaphorePermit>,
    /// Failures of its actor.
    failures: u32,
}

impl Shared {
    pub(crate) fn with_goals<R>(&self, f: impl FnOnce(&mut BTreeMap<GoalKey, Active>) -> R) -> R {
        // A panic while the lock is held can only come from a hash map operation; the
        // map is then still usable.
        f(&mut self.goals.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn register(&self, key: &GoalKey, active: Active) {
        let count = self.with_goals(|g| {
            let old = g.insert(key.clone(), active);
            if let (Some(old), Some(new)) = (old, g.get_mut(key)) {
                // A restarted actor takes the place of the failed one.
                new.permit = new.permit.take().or(old.permit);
                new.failures = old.failures;
            }
            g.len()
        });
        self.hooks.in_flight(count);
    }

    pub(crate) fn unregister(&self, key: &GoalKey, actor: &ActorCell) {
        let count = self.with_goals(|g| {
            if g.get(key)
                .is_some_and(|a| a.actor.get_id() == actor.get_id())
            {
                g.remove(key);
            }
            g.len()
        });
        self.hooks.in_flight(count);
    }

    /// Marks a goal as being taken until the guard is dropped; `None` where it is.
    pub(crate) fn taking(self: &Arc<Self>, key: &GoalKey) -> Option<Taking> {
        let free = self.with_taken(|t| t.insert(key.clone()));
        free.then(|| Taking(self.clone(), key.clone()))
    }

    fn with_taken<R>(&self, f: impl FnOnce(&mut BTreeSet<GoalKey>) -> R) -> R {
        f(&mut self.taken.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    pub(crate) fn call_started(self: &Arc<Self>) -> CallOut {
        // One order with `draining`: a stop sees the call, or the call sees the stop.
        self.calls_out.fetch_add(1, Ordering::SeqCst);
        CallOut(self.clone())
    }

    /// Starts the actor of a goal. Where that fails nobody works on the goal, also not
    /// the actor that failed before, and the next scan takes it up.
    pub(crate) async fn spawn_goal(
        self: &Arc<Self>,
        key: GoalKey,
        start: Start,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Result<(), Fault> {
        let spawned = self.try_spawn_goal(key.clone(), start, permit).await;
        if spawned.is_err() {
            let count = self.with_goals(|g| {
                g.remove(&key);
                g.len()
            });
            self.hooks.in_flight(count);
        }
        spawned
    }

    async fn try_spawn_goal(
        self: &Arc<Self>,
        key: GoalKey,
        start: Start,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Result<(), Fault> {
        let fault = |m: String| Fault::new(detent_protocol::Code::InternalLogicError, m);
        let Some(me) = self.me.get().cloned() else {
            return Err(fault("the orchestrator is not running".into()));
        };
        let args = goal::Arguments {
            shared: self.clone(),
            key,
            start,
            permit,
        };
        // Without a name: names are global to the process, and nobody looks one up.
        let spawned = Actor::spawn_linked(None, GoalActor, args, me).await;
        spawned.map(|_| ()).map_err(|e| fault(e.to_string()))
    }
}

/// Counts a tool call that is out, until its outcome is in the journal.
pub(crate) struct CallOut(Arc<Shared>);
impl Drop for CallOut {
    fn drop(&mut self) {
        self.0.calls_out.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Marks a goal as being taken.
pub(crate) struct Taking(Arc<Shared>, GoalKey);
impl Drop for Taking {
    fn drop(&mut self) {
        self.0.with_taken(|t| t.remove(&self.1));
    }
}

/// The actor that takes goals and supervises theirs.
pub struct Orchestrator;

/// What the supervisor is told.
pub enum Msg {
    /// Look for open goals that nobody works on.
    Scan,
    /// Start a failed goal's actor again.
    Restart(GoalKey),
}

/// The supervisor's state.
pub struct Running {
    shared: Arc<Shared>,
    _served: Vec<Served>,
    _retention: Option<retention::Working>,
}

/// A running orchestrator.
#[derive(Clone)]
pub struct Handle {
    shared: Arc<Shared>,
    actor: ActorRef<Msg>,
}

impl Handle {
    /// Goals in flight.
    pub fn in_flight(&self) -> usize {
        self.shared.with_goals(|g| g.len())
    }

    /// Takes no more goals and starts no more tools; waits until the tools that run
    /// have ended and are in the journal, at most `timeout`. Says whether all did.
    pub async fn drain(&self, timeout: Duration) -> bool {
        self.shared.draining.store(true, Ordering::SeqCst);
        let ended = async {
            while self.shared.calls_out.load(Ordering::SeqCst) > 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(timeout, ended).await.is_ok()
    }

    /// Stops it and every goal's actor. The goals go on when one is started again.
    pub async fn stop(&self) {
        let actors = self.shared.with_goals(|g| {
            let actors: Vec<_> = g.values().map(|a| a.actor.clone()).collect();
            g.clear();
            actors
        });
        for actor in actors {
            actor.kill();
        }
        // Ends when the actor's last handler has returned; it has no long ones.
        let _ = self.actor.stop_and_wait(None, None).await;
    }

    /// The actor, for the node's supervisor.
    pub fn cell(&self) -> ActorCell {
        self.actor.get_cell()
    }

    /// Makes the actor of a goal panic, for the test that shows that this is a
    /// restart. Says whether there was one.
    pub fn fail_goal_actor(&self, goal: &GoalKey) -> bool {
        let actor = self
            .shared
            .with_goals(|g| g.get(goal).map(|a| a.actor.clone()));
        actor.is_some_and(|a| a.cast(GoalMsg::Panic).is_ok())
    }
}

impl Orchestrator {
    /// Starts it: serves submissions, control messages and queries, and takes up every
    /// open goal of the journal.
    pub async fn spawn(
        options: Options,
        bus: Bus,
        env: SharedEnv,
        definitions: Definitions,
        hooks: Arc<dyn Hooks>,
        supervisor: Option<ActorCell>,
    ) -> Result<Handle, SpawnError> {
        let shared = Arc::new(Shared {
            permits: Arc::new(Semaphore::new(options.goals_in_flight_max)),
            options,
            claims: ClaimCheck::new(bus.blobs.clone()),
            bus,
            env,
            definitions,
            hooks,
            goals: Mutex::default(),
            taken: Mutex::default(),
            waiting: retention::Waiting::default(),
            draining: AtomicBool::new(false),
            calls_out: AtomicUsize::new(0),
            me: OnceLock::new(),
        });
        let args = shared.clone();
        let spawned = match supervisor {
            Some(s) => Actor::spawn_linked(None, Orchestrator, args, s).await,
            None => Actor::spawn(None, Orchestrator, args).await,
        };
        let (actor, _) = spawned.map_err(|e| SpawnError::Actor(e.to_string()))?;
        Ok(Handle { shared, actor })
    }
}

impl Actor for Orchestrator {
    type Msg = Msg;
    type State = Running;
    type Arguments = Arc<Shared>;

    async fn pre_start(
        &self,
        me: ActorRef<Msg>,
        shared: Arc<Shared>,
    ) -> Result<Running, ActorProcessingErr> {
        // The first to start owns the cell; a restart makes a new Shared.
        let _ = shared.me.set(me.get_cell());
        scan(&shared).await.map_err(|f| f.to_string())?;
        let served = serve(&shared).await.map_err(|e| e.to_string())?;
        let every = Duration::from_millis(shared.options.scan_every_ms);
        me.send_interval(every, || Msg::Scan);
        Ok(Running {
            _retention: retention::start(&shared),
            shared,
            _served: served,
        })
    }

    async fn handle(
        &self,
        _me: ActorRef<Msg>,
        msg: Msg,
        state: &mut Running,
    ) -> Result<(), ActorProcessingErr> {
        match msg {
            Msg::Scan => {
                if let Err(fault) = scan(&state.shared).await {
                    state.shared.hooks.alert("scan", &fault.to_string());
                }
            }
            Msg::Restart(key) => {
                let start = Start::Recover;
                if let Err(fault) = state.shared.spawn_goal(key, start, None).await {
                    state.shared.hooks.alert("restart", &fault.to_string());
                }
            }
        }
        Ok(())
    }

    /// A goal's actor that fails is started again; the default would stop everything.
    async fn handle_supervisor_evt(
        &self,
        me: ActorRef<Msg>,
        event: SupervisionEvent,
        state: &mut Running,
    ) -> Result<(), ActorProcessingErr> {
        let SupervisionEvent::ActorFailed(cell, error) = event else {
            return Ok(());
        };
        let failed = state.shared.with_goals(|g| {
            let mut all = g.iter_mut();
            let (key, active) = all.find(|(_, a)| a.actor.get_id() == cell.get_id())?;
            active.failures += 1;
            Some((key.clone(), active.failures))
        });
        let Some((key, failures)) = failed else {
            return Ok(());
        };
        let text = format!("goal {}: its actor failed ({failures}): {error}", key.goal);
        state.shared.hooks.alert("actor-failed", &text);
        let wait = Duration::from_millis(50 << failures.min(RESTART_DOUBLINGS_MAX));
        me.send_after(wait, move || Msg::Restart(key));
        Ok(())
    }
}

/// The wait before a failed goal's actor is started again doubles so often, to 51 s. It
/// is never given up: its journal may only be away, and an accepted goal has to end (I1).
const RESTART_DOUBLINGS_MAX: u32 = 10;

/// Takes up every open goal that nobody works on. Where other nodes share the journal,
/// theirs are only counted: they go on when their owner is back.
async fn scan(shared: &Arc<Shared>) -> Result<(), Fault> {
    if shared.is_draining() {
        return Ok(());
    }
    let mut elsewhere = 0;
    for shard in 0..SHARDS {
        let mut after = None;
        loop {
            let page = shared
                .bus
                .journal
                .open_goals(shard, after.as_ref(), 256)
                .await?;
            let Some(last) = page.last().map(|open| open.key.clone()) else {
                break;
            };
            for OpenGoal { key, by } in page {
                if by.is_some_and(|owner| owner != shared.options.node) {
                    elsewhere += 1;
                    continue;
                }
                // One that is being taken gets its actor from whoever takes it.
                let taken = shared.with_taken(|t| t.contains(&key));
                if !taken && shared.with_goals(|g| !g.contains_key(&key)) {
                    let permit = shared.permits.clone().try_acquire_owned().ok();
                    shared.spawn_goal(key, Start::Recover, permit).await?;
                }
            }
            after = Some(last);
        }
    }
    shared.hooks.owned_elsewhere(elsewhere);
    Ok(())
}

async fn serve(shared: &Arc<Shared>) -> Result<Vec<Served>, detent_bus::BusError> {
    let serve = async |pattern: &str, kind, options| {
        let desk = intake::Desk {
            shared: shared.clone(),
            kind,
        };
        let messages = &shared.bus.messages;
        messages.serve(pattern, options, Arc::new(desk)).await
    };
    let submits = ServeOptions {
        concurrency_max: 1024,
        ..ServeOptions::default()
    };
    let owned = ServeOptions {
        group: String::new(),
        ..ServeOptions::default()
    };
    let others = ServeOptions::default;
    let mut served = vec![
        serve(
            &subject::owner(&shared.options.node),
            intake::Kind::Owner,
            owned,
        )
        .await?,
        serve(subject::STEER_ALL, intake::Kind::Control, others()).await?,
        serve(subject::QUERY_ALL, intake::Kind::Query, others()).await?,
        serve(subject::SUBMIT_ALL, intake::Kind::Submit, submits).await?,
    ];
    served.extend(inbox::take(shared).await?);
    Ok(served)
}

/// Kinds of the records of a transition.
pub(crate) fn kinds(records: &[Record]) -> Vec<&'static str> {
    records
        .iter()
        .map(|r| match &r.said {
            Said::Known(body) => body.kind(),
            Said::Unknown { .. } => "unknown",
        })
        .collect()
}

/// The first fault that a transition speaks of.
pub(crate) fn reason(records: &[Record]) -> String {
    use detent_protocol::record::{CloseWhy, StepEnd, ToolOutcome};
    let fault = records.iter().find_map(|r| match &r.said {
        Said::Known(Body::Outcome {
            outcome: ToolOutcome::Failed { fault, .. },
            ..
        }) => Some(fault),
        Said::Known(Body::PlanRefused { faults, .. }) => faults.first(),
        Said::Known(Body::StepEnded {
            end: StepEnd::Failed { fault } | StepEnd::Unknown { fault },
            ..
        }) => Some(fault),
        Said::Known(Body::Closing {
            why: CloseWhy::Failed { fault },
        }) => Some(fault),
        _ => None,
    });
    fault.map(ToString::to_string).unwrap_or_default()
}
