//! What the tests share: a node's executor with all that it stands on.

use detent_bus::env::SystemEnv;
use detent_bus::local::{LocalBus, LocalOptions};
use detent_bus::{Bus, GoalKey, SlotKey, call};
use detent_protocol::agent::CompiledTool;
use detent_protocol::effect::SlotMark;
use detent_protocol::json::Digest;
use detent_protocol::messages::{AttemptSealed, GoalSealed, SealAttempt, SealGoal, ToolCall};
use detent_protocol::record::{RunFacts, Seal, ToolOutcome};
use detent_protocol::{Code, Fault, GoalId, NodeId, StepId, TenantId, subject};
use detent_sandbox::{KeeperCommand, TreeConfine};
use detent_store::{Store, StoreOptions};
use detent_tool_executor::{
    ExecutorHandle, ExecutorMemory, ExecutorOptions, Ledger, ProcessKind, Registry, ToolExecutor,
    ToolKind,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Far more than anything here takes, also on a loaded machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
/// What tools may take that are to end by themselves.
const TOOL_MS: u64 = 60_000;
pub(crate) const SECRET: &str = "correct-horse-battery-staple";

pub(crate) struct World {
    pub(crate) dir: TempDir,
    pub(crate) store: Store,
    pub(crate) bus: Bus,
    pub(crate) ledger: Ledger,
    pub(crate) registry: Registry,
    pub(crate) options: ExecutorOptions,
    pub(crate) handle: ExecutorHandle,
    pub(crate) goal: GoalId,
    kinds: Vec<Arc<dyn ToolKind>>,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(vec![], |_| {}, |bus| bus).await
    }

    pub(crate) async fn with_kind(kind: impl ToolKind) -> Self {
        Self::with(vec![Arc::new(kind)], |_| {}, |bus| bus).await
    }

    pub(crate) async fn with(
        mut kinds: Vec<Arc<dyn ToolKind>>,
        change: impl FnOnce(&mut ExecutorOptions),
        wrap: impl FnOnce(Bus) -> Bus,
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("config")).unwrap();
        let mut options = ExecutorOptions::new(
            node("n1"),
            dir.path().join("config"),
            dir.path().join("data"),
            fresh_owner(),
        );
        options.concurrency_max = 64;
        change(&mut options);
        kinds.push(Arc::new(process_kind(&options)));
        let (store, bus) = open(&dir);
        let bus = wrap(bus);
        let (ledger, registry) = (Ledger::new(store.clone()), Registry::new());
        let handle = spawn(&options, &bus, &ledger, &registry, &kinds).await;
        Self {
            dir,
            store,
            bus,
            ledger,
            registry,
            options,
            handle,
            goal: goal(1),
            kinds,
        }
    }

    /// Everything is closed and opened again, as after a restart of the node.
    pub(crate) async fn restart(mut self) -> Self {
        self.handle.stop(Duration::ZERO).await;
        self.store.close().await.unwrap();
        (self.store, self.bus) = open(&self.dir);
        self.ledger = Ledger::new(self.store.clone());
        self.options.memory = ExecutorMemory::default();
        self.handle = spawn(
            &self.options,
            &self.bus,
            &self.ledger,
            &self.registry,
            &self.kinds,
        )
        .await;
        self
    }

    /// The executor's actor fails and another takes its place, as under a supervisor.
    pub(crate) async fn replace_actor(&mut self) {
        let cell = self.handle.cell();
        cell.kill();
        cell.wait(None).await.unwrap();
        self.handle = spawn(
            &self.options,
            &self.bus,
            &self.ledger,
            &self.registry,
            &self.kinds,
        )
        .await;
    }

    /// Registers a tool; `more` is merged into its entry.
    pub(crate) fn tool(&self, name: &str, effect: &str, run: Value, more: Value) -> CompiledTool {
        let mut def = json!({
            "name": name, "effect": effect, "kind": "process", "run": run, "timeout_ms": TOOL_MS,
        });
        def.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let tool = CompiledTool::compile(&serde_json::from_value(def).unwrap()).unwrap();
        self.registry.insert(tool.clone());
        tool
    }

    pub(crate) fn sh(&self, effect: &str, script: &str) -> CompiledTool {
        self.sh_with(effect, script, json!({}))
    }

    pub(crate) fn sh_with(&self, effect: &str, script: &str, more: Value) -> CompiledTool {
        self.tool(
            "tool",
            effect,
            json!({"command": ["sh", "-c", script]}),
            more,
        )
    }

    pub(crate) fn message(&self, tool: &CompiledTool, attempt: u32) -> ToolCall {
        ToolCall {
            tenant: TenantId::default(),
            goal: self.goal,
            step: step(),
            attempt,
            epoch: 1,
            tool: tool.def.name.clone(),
            tool_digest: tool.digest,
            args: json!({}),
            claims: vec![],
            identity: None,
            fencing_token: 7,
            start_within_ms: TOOL_MS,
        }
    }

    pub(crate) async fn send(&self, message: &ToolCall) -> Result<ToolOutcome, Fault> {
        let subject = subject::tool(&message.tool, &self.options.node);
        call(self.bus.messages.as_ref(), &subject, message, PATIENCE).await
    }

    /// Calls attempt 1 with no arguments.
    pub(crate) async fn call(&self, tool: &CompiledTool) -> ToolOutcome {
        self.send(&self.message(tool, 1)).await.unwrap()
    }

    /// Sends a call without waiting for its answer.
    pub(crate) fn sent(
        &self,
        message: ToolCall,
    ) -> tokio::task::JoinHandle<Result<ToolOutcome, Fault>> {
        let messages = Arc::clone(&self.bus.messages);
        let subject = subject::tool(&message.tool, &self.options.node);
        tokio::spawn(async move { call(messages.as_ref(), &subject, &message, PATIENCE).await })
    }

    pub(crate) async fn seal(&self, attempt: u32) -> Result<Seal, Fault> {
        let ask = SealAttempt {
            tenant: TenantId::default(),
            goal: self.goal,
            step: step(),
            attempt,
            epoch: 2,
        };
        let on = subject::executor(&self.options.node);
        let sealed: Result<AttemptSealed, _> =
            call(self.bus.messages.as_ref(), &on, &ask, PATIENCE).await;
        sealed.map(|s| s.seal)
    }

    pub(crate) async fn seal_goal(&self) -> GoalSealed {
        let ask = SealGoal {
            tenant: TenantId::default(),
            goal: self.goal,
        };
        let on = subject::executor(&self.options.node);
        call(self.bus.messages.as_ref(), &on, &ask, PATIENCE)
            .await
            .unwrap()
    }

    pub(crate) fn slot_key(&self, attempt: u32) -> SlotKey {
        SlotKey {
            goal: GoalKey {
                tenant: TenantId::default(),
                goal: self.goal,
            },
            step: step(),
            attempt,
        }
    }

    pub(crate) async fn slot(&self, attempt: u32) -> Option<SlotMark> {
        self.bus.slots.read(&self.slot_key(attempt)).await.unwrap()
    }

    pub(crate) fn work_dir(&self) -> PathBuf {
        self.options.work_root.join(self.goal.to_string())
    }

    /// Lines of a file that tools append to in the goal's directory.
    pub(crate) fn lines(&self, file: &str) -> usize {
        std::fs::read_to_string(self.work_dir().join(file)).map_or(0, |text| text.lines().count())
    }

    /// Waits until a tool has made this file; gives what it holds.
    pub(crate) async fn file(&self, file: &str) -> String {
        let path = self.work_dir().join(file);
        until(|| {
            let text = std::fs::read_to_string(&path).ok()?;
            text.ends_with('\n').then_some(text)
        })
        .await
    }
}

fn open(dir: &TempDir) -> (Store, Bus) {
    let store = Store::open(StoreOptions::journal(dir.path().join("store"))).unwrap();
    let bus = LocalBus::open(LocalOptions::new(store.clone(), dir.path().join("blobs"))).unwrap();
    (store, bus)
}

pub(crate) async fn spawn(
    options: &ExecutorOptions,
    bus: &Bus,
    ledger: &Ledger,
    registry: &Registry,
    kinds: &[Arc<dyn ToolKind>],
) -> ExecutorHandle {
    ToolExecutor::spawn(
        options.clone(),
        bus.clone(),
        ledger.clone(),
        registry.clone(),
        kinds.to_vec(),
        Arc::new(SystemEnv),
        None,
    )
    .await
    .unwrap()
}

pub(crate) fn process_kind(options: &ExecutorOptions) -> ProcessKind {
    let env = [
        ("PATH", "/usr/local/bin:/usr/bin:/bin"),
        ("SERVICE_TOKEN", SECRET),
        ("NOT_ASKED_FOR", "x"),
    ];
    let env = env.map(|(k, v)| (k.to_owned(), v.to_owned()));
    ProcessKind::new(Arc::new(confine()), options).node_env(BTreeMap::from(env))
}

fn confine() -> TreeConfine {
    let test = std::env::current_exe().unwrap();
    let built = test.parent().and_then(|deps| deps.parent()).unwrap();
    let program = built.join("examples/tool-keeper");
    assert!(program.exists(), "build the examples of this package first");
    TreeConfine::new(KeeperCommand {
        program,
        args: vec![],
    })
}

/// An owner that no other test has.
pub(crate) fn fresh_owner() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("executor-test-{}-{count}", std::process::id())
}

/// Looks again and again until there is something.
pub(crate) async fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begin.elapsed() < PATIENCE, "waited in vain");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) fn is_alive(pid: &str) -> bool {
    std::path::Path::new("/proc").join(pid.trim()).exists()
}

pub(crate) fn node(name: &str) -> NodeId {
    NodeId::new(name).unwrap()
}

pub(crate) fn step() -> StepId {
    StepId::new("s1").unwrap()
}

pub(crate) fn goal(n: u8) -> GoalId {
    GoalId::from_bytes([n; 16])
}

pub(crate) fn some_digest() -> Digest {
    Digest::of_bytes(b"another version")
}

pub(crate) fn done(outcome: ToolOutcome) -> (Value, RunFacts) {
    match outcome {
        ToolOutcome::Done { output, run } => (output, run),
        failed => panic!("{failed:?}"),
    }
}

/// The fault of an outcome that must have this code; and whether it started.
pub(crate) fn failed(outcome: ToolOutcome, with: Code) -> (Fault, bool) {
    match outcome {
        ToolOutcome::Failed { fault, started, .. } if fault.code == with => (fault, started),
        other => panic!("expected {with}: {other:?}"),
    }
}
