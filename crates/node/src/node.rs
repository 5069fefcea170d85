//! A node: puts the parts together, starts and stops them.

use crate::alerts::Told;
use crate::audit::{Audit, AuditOptions};
use crate::broker;
use crate::config::Config;
use crate::http::{self, Status};
use crate::leftovers::Leftovers;
use crate::membership::Membership;
use crate::metrics::{Metrics, Sampled};
use crate::storage::Storage;
use crate::supervisor::{Part, Root};
use crate::{definitions, supervisor};
use async_trait::async_trait;
use detent_bus::env::{SharedEnv, SystemEnv};
use detent_bus::local::socket::{SocketOptions, SocketServer};
use detent_bus::local::{LocalBus, LocalOptions};
use detent_bus::nats::{NatsBus, NatsHandle};
use detent_bus::{Bus, GoalKey};
use detent_observer::probes::{self, ProcessProbeOptions};
use detent_observer::{Observer, ObserverHandle, ObserverOptions};
use detent_orchestrator::{Definitions, Hooks, Orchestrator, Retention, Transition};
use detent_protocol::redact::Redactor;
use detent_protocol::result::GoalResult;
use detent_protocol::tombstone::Archive;
use detent_protocol::{Code, Fault, NodeId};
use detent_reasoner::{Reasoner, ReasonerHandle, ReasonerOptions};
use detent_sandbox::{Confine, KeeperCommand, TreeConfine};
use detent_store::{Store, StoreError, StoreOptions, SyncMode, Table, Txn};
use detent_tool_executor::{
    ExecutorHandle, ExecutorMemory, ExecutorOptions, Ledger, ProcessKind, Registry, ToolExecutor,
    ToolKind, secret_variables,
};
use ractor::{ActorCell, ActorRef};
use rustix::io::Errno;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Name of the socket in the data directory.
pub const SOCKET: &str = "detent.sock";

/// Folder of the goals' work folders in the data directory.
const WORK: &str = "work";

/// What a node is made of.
pub struct NodeParts {
    /// Its configuration.
    pub config: Config,
    /// Its data directory; made if it is missing.
    pub data_dir: PathBuf,
    /// How the keeper of process trees is started.
    pub keeper: KeeperCommand,
    /// Kinds of tools beside `process`, for programs that embed a node.
    pub kinds: Vec<Arc<dyn ToolKind>>,
    /// Listen on the socket in the data directory.
    pub socket: bool,
}

/// Handles of the actors; replaced when one is started again.
#[derive(Default)]
struct Handles {
    executor: Option<ExecutorHandle>,
    observer: Option<ObserverHandle>,
    reasoner: Option<ReasonerHandle>,
    orchestrator: Option<detent_orchestrator::Handle>,
}

/// All that the parts are started from.
pub(crate) struct Assembly {
    config: Config,
    data_dir: PathBuf,
    name: NodeId,
    owner_tag: String,
    bus: Bus,
    store: Store,
    env: SharedEnv,
    confine: Arc<dyn Confine>,
    definitions: Definitions,
    registry: Registry,
    kinds: Vec<Arc<dyn ToolKind>>,
    redactor: Redactor,
    /// Outlives the executor's actor, so that what it had in hand still counts after a
    /// restart of it.
    executor_memory: ExecutorMemory,
    hooks: Arc<NodeHooks>,
    /// The connection to the broker, where the bus has one.
    broker: Option<NatsHandle>,
    handles: Mutex<Handles>,
    stopping: AtomicBool,
}

/// A running node.
pub struct Node {
    assembly: Arc<Assembly>,
    root: ActorRef<supervisor::Msg>,
    socket: Option<SocketServer>,
    http: Option<http::Server>,
    membership: Option<Membership>,
}

impl Node {
    /// Opens the data directory, ends what an earlier life left running, starts the
    /// actors, and takes every open goal up again.
    ///
    /// Fails with a coded fault: `DATA_DIR_LOCKED`, `JOURNAL_CORRUPT`,
    /// `JOURNAL_STORAGE`, `PORT_TAKEN`, `CONFIG_INVALID`.
    pub async fn start(parts: NodeParts) -> Result<Self, Fault> {
        let assembly = Arc::new(
            Assembly::open(parts.config, parts.data_dir, parts.keeper, parts.kinds).await?,
        );
        // The port first: a node that can't listen must not touch a single goal.
        let listen = assembly.config.text("node.http_listen").to_owned();
        let http = if listen.is_empty() {
            None
        } else {
            let metrics = assembly.hooks.metrics.clone();
            Some(http::serve(&listen, metrics, assembly.clone()).await?)
        };
        // Before any goal is taken up: two nodes of one name would take up the same.
        let membership = assembly.join().await?;
        let failed = |m: String| Fault::new(Code::InternalLogicError, m);
        let root = Root::start(assembly.clone()).await.map_err(failed)?;
        assembly.sweep_probes().await?;
        for part in Part::ALL {
            assembly.start_part(part, root.get_cell()).await?;
        }
        let socket = if parts.socket {
            let path = assembly.data_dir.join(SOCKET);
            let messages = assembly.bus.messages.clone();
            Some(SocketServer::bind(path, messages, SocketOptions::default()).await?)
        } else {
            None
        };
        Ok(Self {
            assembly,
            root,
            socket,
            http,
            membership,
        })
    }

    /// Its bus.
    pub fn bus(&self) -> &Bus {
        &self.assembly.bus
    }

    /// Where `/metrics` is, if anywhere.
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.http.as_ref().map(|h| h.address)
    }

    /// Syncs to the disk so far, and commits.
    pub fn store_counters(&self) -> detent_store::StoreCounters {
        self.assembly.store.counters()
    }

    /// Goals in flight.
    pub fn in_flight(&self) -> usize {
        self.assembly.with_handles(|h| {
            h.orchestrator
                .as_ref()
                .map_or(0, detent_orchestrator::Handle::in_flight)
        })
    }

    /// Makes a goal's actor panic, for the test that shows that this is a restart.
    pub fn fail_goal_actor(&self, goal: &GoalKey) -> bool {
        let orchestrator = self.assembly.with_handles(|h| h.orchestrator.clone());
        orchestrator.is_some_and(|o| o.fail_goal_actor(goal))
    }

    /// The answer that `/readyz` gives: why it takes no goals, if it does not.
    pub fn not_ready(&self) -> Option<String> {
        self.assembly.not_ready()
    }

    /// Takes no more goals, lets running tools end (as long as `node.drain_ms` says),
    /// stops the rest and closes the data directory. Goals that have not ended go on
    /// when a node is started on it again. Says whether every tool ended by itself.
    pub async fn stop(mut self) -> bool {
        self.assembly.stopping.store(true, Ordering::Release);
        let wait = Duration::from_millis(self.assembly.config.int("node.drain_ms"));
        let orchestrator = self.assembly.with_handles(|h| h.orchestrator.clone());
        let mut all_ended = true;
        if let Some(orchestrator) = orchestrator {
            all_ended = orchestrator.drain(wait).await;
            orchestrator.stop().await;
        }
        drop(self.socket.take());
        let handles = self.assembly.with_handles(std::mem::take);
        if let Some(executor) = handles.executor {
            executor.stop(Duration::ZERO).await;
        }
        if let Some(observer) = handles.observer {
            observer.stop().await;
        }
        if let Some(reasoner) = handles.reasoner {
            reasoner.stop().await;
        }
        // Has no handler that waits; a failure means that it is gone already.
        let _ = self.root.stop_and_wait(None, None).await;
        if let Some(audit) = &self.assembly.hooks.audit {
            audit.flush();
        }
        if let Some(membership) = self.membership.take() {
            membership.leave().await;
        }
        if let Err(error) = self.assembly.store.clone().close().await {
            tracing::warn!(%error, "the store did not close cleanly; the journal is complete all the same");
        }
        all_ended
    }
}

/// Opens a data directory that no node uses, for reading: the store and its bus.
pub fn open_offline(data_dir: &Path) -> Result<(Store, Bus), Fault> {
    if !data_dir.join("store").is_dir() {
        let message = format!("no data in {}", data_dir.display());
        return Err(Fault::new(Code::NodeUnreachable, message));
    }
    open_store(data_dir, StoreOptions::journal(data_dir.join("store")))
}

fn open_store(data_dir: &Path, options: StoreOptions) -> Result<(Store, Bus), Fault> {
    let store = Store::open(options).map_err(store_fault)?;
    let bus = LocalBus::open(LocalOptions::new(store.clone(), data_dir.join("blobs")))?;
    Ok((store, bus))
}

/// A store's error as a coded fault.
pub(crate) fn store_fault(e: StoreError) -> Fault {
    let code = match &e {
        StoreError::Locked { .. } => Code::DataDirLocked,
        e if e.is_corrupt() => Code::JournalCorrupt,
        _ => Code::JournalStorage,
    };
    Fault::new(code, e.to_string())
}

fn make_dir(dir: &Path) -> Result<PathBuf, Fault> {
    let failed = |e: std::io::Error| {
        // A full or broken disk is damage; everything else is a folder badly chosen.
        let code = match e.raw_os_error() {
            Some(n)
                if [Errno::NOSPC, Errno::DQUOT, Errno::IO]
                    .contains(&Errno::from_raw_os_error(n)) =>
            {
                Code::JournalStorage
            }
            _ => Code::ConfigInvalid,
        };
        let message = format!(
            "the data directory can't be used: {e}; `--data` takes a folder that can be written"
        );
        Fault::new(code, message).at(dir.display().to_string())
    };
    std::fs::create_dir_all(dir).map_err(failed)?;
    dir.canonicalize().map_err(failed)
}

impl Assembly {
    async fn open(
        config: Config,
        data_dir: PathBuf,
        keeper: KeeperCommand,
        kinds: Vec<Arc<dyn ToolKind>>,
    ) -> Result<Self, Fault> {
        let data_dir = make_dir(&data_dir)?;
        let name = NodeId::new(config.text("node.name"))
            .map_err(|e| Fault::new(Code::ConfigInvalid, e.to_string()).at("node.name"))?;
        let mut options = StoreOptions::journal(data_dir.join("store"));
        options.cache_bytes_max = config.int("store.cache_bytes");
        if !config.on("store.sync") {
            options.sync = SyncMode::Never;
        }
        let (store, local) = open_store(&data_dir, options)?;
        let (bus, broker) = match broker::options(&config)? {
            Some(options) => {
                let NatsBus { bus, handle } = NatsBus::connect(options).await?;
                (bus, Some(handle))
            }
            None => (local, None),
        };
        let (definitions, registry) = definitions::keep(&store, &config.definitions).await?;
        let redactor = Redactor::new(secrets(&config, &registry)?);
        let env: SharedEnv = Arc::new(SystemEnv);
        let hooks = NodeHooks {
            metrics: Metrics::new(),
            audit: start_audit(&config, &data_dir, &redactor)?,
            storage: Storage::new(store.clone()),
            leftovers: Leftovers::new(Ledger::new(store.clone()), data_dir.join(WORK), env.clone()),
            told: broker
                .as_ref()
                .map(|_| Told::new(&name, bus.messages.clone())),
        };
        Ok(Self {
            owner_tag: owner_tag(&store).await?,
            confine: Arc::new(TreeConfine::new(keeper)),
            env,
            hooks: Arc::new(hooks),
            broker,
            handles: Mutex::default(),
            executor_memory: ExecutorMemory::default(),
            stopping: AtomicBool::new(false),
            config,
            data_dir,
            name,
            bus,
            store,
            definitions,
            registry,
            kinds,
            redactor,
        })
    }

    fn with_handles<R>(&self, f: impl FnOnce(&mut Handles) -> R) -> R {
        // Nothing that can panic runs under the lock.
        f(&mut self.handles.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    pub(crate) fn alert(&self, kind: &str, text: &str) {
        self.hooks.alert(kind, text);
    }

    /// Which part an actor is.
    pub(crate) fn part_of(&self, cell: &ActorCell) -> Option<Part> {
        let id = cell.get_id();
        self.with_handles(|h| {
            let is = |c: Option<ActorCell>| c.is_some_and(|c| c.get_id() == id);
            if is(h.executor.as_ref().map(ExecutorHandle::cell)) {
                Some(Part::Executor)
            } else if is(h.observer.as_ref().map(|o| o.cell().clone())) {
                Some(Part::Observer)
            } else if is(h.reasoner.as_ref().map(ReasonerHandle::cell)) {
                Some(Part::Reasoner)
            } else if is(h
                .orchestrator
                .as_ref()
                .map(detent_orchestrator::Handle::cell))
            {
                Some(Part::Orchestrator)
            } else {
                None
            }
        })
    }

    /// Starts a part, for the first time or again.
    pub(crate) async fn start_part(&self, part: Part, root: ActorCell) -> Result<(), Fault> {
        match part {
            Part::Executor => self.start_executor(root).await,
            Part::Observer => self.start_observer(root).await,
            Part::Reasoner => self.start_reasoner(root).await,
            Part::Orchestrator => self.start_orchestrator(root).await,
        }
    }

    /// Probes are marked apart from tools: what ends a tool's leftovers must not end a
    /// look that is going on.
    fn probe_tag(&self) -> String {
        format!("{}-probe", self.owner_tag)
    }

    /// Ends the probes that an earlier life left running; tools are the executor's.
    async fn sweep_probes(&self) -> Result<(), Fault> {
        let swept = self.confine.sweep(&self.probe_tag()).await;
        swept.map(|_| ()).map_err(|e| not_started("observer", &e))
    }

    /// Takes the node's name, where other nodes share the broker.
    async fn join(&self) -> Result<Option<Membership>, Fault> {
        if self.broker.is_none() {
            return Ok(None);
        }
        let tag = NodeId::new(&self.owner_tag)
            .map_err(|e| Fault::new(Code::JournalCorrupt, e.to_string()))?;
        let hooks = self.hooks.clone();
        let alert = move |text: String| hooks.alert("node-name-taken", &text);
        let leases = self.bus.leases.clone();
        let joined = Membership::join(leases, &self.name, &tag, alert).await;
        joined.map(Some)
    }

    fn work_root(&self) -> PathBuf {
        self.data_dir.join(WORK)
    }

    async fn start_executor(&self, root: ActorCell) -> Result<(), Fault> {
        let mut options = ExecutorOptions::new(
            self.name.clone(),
            &self.config.dir,
            &self.data_dir,
            &self.owner_tag,
        );
        options.work_root = self.work_root();
        options.concurrency_max = self.config.size("node.tools_in_flight_max");
        options.queue_max = self.config.size("node.tools_waiting_max");
        options.redactor = self.redactor.clone();
        options.memory = self.executor_memory.clone();
        let mut kinds = self.kinds.clone();
        kinds.push(Arc::new(ProcessKind::new(self.confine.clone(), &options)));
        let ledger = Ledger::new(self.store.clone());
        let registry = self.registry.clone();
        let (bus, env) = (self.bus.clone(), self.env.clone());
        let started = ToolExecutor::spawn(options, bus, ledger, registry, kinds, env, Some(root));
        let handle = started.await.map_err(|e| not_started("executor", &e))?;
        self.with_handles(|h| h.executor = Some(handle));
        Ok(())
    }

    async fn start_observer(&self, root: ActorCell) -> Result<(), Fault> {
        let mut options = ObserverOptions::new(
            self.name.clone(),
            self.work_root(),
            &self.config.dir,
            &self.data_dir,
        );
        options.redactor = self.redactor.clone();
        let mut process = ProcessProbeOptions::new(self.probe_tag());
        if let Ok(path) = std::env::var("PATH") {
            process.path = path;
        }
        let probes = probes::all(self.confine.clone(), process);
        let probes = probes.map_err(|e| not_started("observer", &e))?;
        let (bus, env) = (self.bus.clone(), self.env.clone());
        let started = Observer::spawn(options, bus, probes, env, Some(root)).await;
        let handle = started.map_err(|e| not_started("observer", &e))?;
        self.with_handles(|h| h.observer = Some(handle));
        Ok(())
    }

    async fn start_reasoner(&self, root: ActorCell) -> Result<(), Fault> {
        let options = ReasonerOptions {
            providers: self.config.reasoners.clone(),
            concurrency_max: 256,
            redactor: self.redactor.clone(),
            ..ReasonerOptions::default()
        };
        let handle = Reasoner::spawn(options, self.bus.clone(), Some(root)).await?;
        self.with_handles(|h| h.reasoner = Some(handle));
        Ok(())
    }

    async fn start_orchestrator(&self, root: ActorCell) -> Result<(), Fault> {
        let mut options = detent_orchestrator::Options::new(self.name.clone());
        options.goals_in_flight_max = self.config.size("node.goals_in_flight_max");
        options.idempotency_keep_ms = self.config.int("node.idempotency_keep_days") * 86_400_000;
        options.plan_timeout_ms = self.config.int("node.plan_timeout_ms");
        options.scan_every_ms = self.config.int("node.scan_every_ms");
        options.retention = self.config.on("retention.on").then(|| Retention {
            journal_ms: self.config.int("retention.journal_ms"),
            archive_ms: self.config.int("retention.archive_ms"),
        });
        options.shared_journal = self.broker.is_some();
        options.publish_events = self.config.on(match self.broker {
            Some(_) => "nats.publish_events",
            None => "node.publish_events",
        });
        options.redactor = self.redactor.clone();
        let started = Orchestrator::spawn(
            options,
            self.bus.clone(),
            self.env.clone(),
            self.definitions.clone(),
            self.hooks.clone(),
            Some(root),
        );
        let handle = started.await.map_err(|e| not_started("orchestrator", &e))?;
        self.with_handles(|h| h.orchestrator = Some(handle));
        Ok(())
    }
}

fn not_started(part: &str, error: &dyn std::fmt::Display) -> Fault {
    Fault::new(
        Code::InternalLogicError,
        format!("the {part} did not start: {error}"),
    )
}

impl Status for Assembly {
    fn sampled(&self) -> Sampled {
        let counters = self.store.counters();
        Sampled {
            audit_lost: self.hooks.audit.as_ref().map_or(0, Audit::lost),
            store_commits: counters.commits,
            store_syncs: counters.syncs,
            tools_running: self
                .with_handles(|h| h.executor.as_ref().map_or(0, ExecutorHandle::running)),
            ready: self.not_ready().is_none(),
        }
    }

    fn not_ready(&self) -> Option<String> {
        if self.is_stopping() {
            return Some(Code::Draining.as_str().to_owned());
        }
        if !self.with_handles(|h| h.orchestrator.is_some()) {
            return Some("starting".to_owned());
        }
        if let Some(broker) = &self.broker
            && !broker.status().connected
        {
            return Some(Code::BrokerUnreachable.as_str().to_owned());
        }
        self.hooks.storage.trouble()
    }
}

fn start_audit(
    config: &Config,
    data_dir: &Path,
    redactor: &Redactor,
) -> Result<Option<Audit>, Fault> {
    if !config.on("audit.on") {
        return Ok(None);
    }
    let file = data_dir.join(config.text("audit.file"));
    let options = AuditOptions {
        rotate_bytes: config.int("audit.rotate_bytes"),
        files_max: config.int("audit.files_max"),
        queue_max: config.size("audit.queue_max"),
        redactor: redactor.clone(),
        file: file.clone(),
    };
    Audit::start(options).map(Some).map_err(|e| {
        let message = format!("{}: {e}", file.display());
        Fault::new(Code::ConfigInvalid, message).at("audit.file")
    })
}

/// Every secret that the node is given: the planners', and what tools of any version
/// take from its environment. A variable that is not set is the tool's own trouble.
fn secrets(config: &Config, registry: &Registry) -> Result<Vec<String>, Fault> {
    let tools = registry.tools();
    let names = tools.iter().flat_map(|tool| secret_variables(&tool.def));
    let mut secrets: Vec<_> = names.filter_map(|name| std::env::var(name).ok()).collect();
    for provider in config.reasoners.values() {
        secrets.extend(provider.secrets()?);
    }
    Ok(secrets)
}

/// Marks this data directory's processes; made once and kept.
async fn owner_tag(store: &Store) -> Result<String, Fault> {
    const TABLE: Table = Table::new("node");
    if let Some(tag) = store.get(TABLE, b"owner_tag").map_err(store_fault)? {
        return Ok(String::from_utf8_lossy(&tag).into_owned());
    }
    let tag = uuid::Uuid::now_v7().to_string();
    let txn = Txn::new().put(TABLE, &b"owner_tag"[..], tag.clone().into_bytes());
    store.commit(txn).await.map_err(store_fault)?;
    Ok(tag)
}

/// What the orchestrator tells the node.
struct NodeHooks {
    metrics: Metrics,
    audit: Option<Audit>,
    storage: Storage,
    leftovers: Leftovers,
    /// Where alerts are told beside the log.
    told: Option<Told>,
}

#[async_trait]
impl Hooks for NodeHooks {
    fn transition(&self, transition: Transition) {
        self.storage.took_one();
        self.metrics.transition(&transition);
        if let Some(audit) = &self.audit {
            audit.record(transition);
        }
    }
    fn intake(&self, result: Result<(), &Fault>) {
        self.metrics.intake(result);
    }
    fn ended(&self, result: &GoalResult, since_accepted: Duration) {
        self.metrics
            .ended(result.status(), since_accepted.as_secs_f64());
    }
    fn in_flight(&self, goals: usize) {
        self.metrics.in_flight(goals);
    }
    fn owned_elsewhere(&self, goals: usize) {
        self.metrics.owned_elsewhere(goals);
    }
    fn goal_forgotten(&self, archive: &Archive) {
        self.metrics.forgotten(archive.bytes);
    }
    async fn forgotten(&self, goal: &GoalKey) -> Result<(), Fault> {
        self.leftovers.remove(goal).await
    }
    fn retention_failed(&self, fault: &Fault) {
        self.metrics.retention_failed(fault);
    }
    fn storage_failed(&self, fault: &Fault) {
        tracing::error!(%fault, "the journal takes no more");
        self.storage.refused(fault);
    }
    fn alert(&self, kind: &str, text: &str) {
        tracing::error!(kind, "{text}");
        self.metrics.alert(kind);
        if let Some(told) = &self.told {
            told.alert(kind, text);
        }
    }
}
