//! Kinds of tools: what stands between a call and the thing that carries it out.

use async_trait::async_trait;
use detent_bus::failpoint;
use detent_protocol::agent::{CompiledTool, ToolDef};
use detent_protocol::json::Digest;
use detent_protocol::record::RunFacts;
use detent_protocol::{Fault, GoalId, StepId, TenantId};
use detent_sandbox::BootInstant;
pub use detent_sandbox::KillSwitch as Kill;
use serde_json::Value;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// One call of a tool, ready to run: its slot is won and its arguments are checked.
#[derive(Clone)]
pub struct Invocation {
    /// The tool, from this node's registry.
    pub tool: Arc<CompiledTool>,
    /// Whose goal.
    pub tenant: TenantId,
    /// The goal.
    pub goal: GoalId,
    /// The step.
    pub step: StepId,
    /// The attempt, from 1.
    pub attempt: u32,
    /// Arguments; they meet the tool's input schema.
    pub args: Value,
    /// Idempotency key for the world, where the effect has an identity.
    pub identity: Option<Digest>,
    /// Fencing token for the world.
    pub fencing_token: u64,
    /// The goal's directory. Not made yet: a kind that uses it makes it.
    pub work_dir: PathBuf,
    /// The moment from which it may no longer start. The executor has looked at it just
    /// before; a kind that takes time to start looks again.
    pub start_deadline: BootInstant,
    /// How long it may take once it has started.
    pub timeout: Duration,
    /// Chosen anew for each run on this node; also stands in the effect slot.
    pub nonce: u64,
    pub(crate) started: Arc<AtomicBool>,
}

impl Invocation {
    /// To be called by the kind once the effect may begin; later calls do nothing.
    pub fn mark_started(&self) {
        if !self.started.swap(true, Ordering::SeqCst) {
            failpoint::hit("spawn.after");
        }
    }

    /// Was [`Invocation::mark_started`] called?
    pub fn is_started(&self) -> bool {
        self.started.load(Ordering::SeqCst)
    }
}

impl fmt::Debug for Invocation {
    /// Leaves the arguments out: they may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Invocation")
            .field("tool", &self.tool.def.name)
            .field("goal", &self.goal)
            .field("step", &self.step)
            .field("attempt", &self.attempt)
            .finish_non_exhaustive()
    }
}

/// How a run ended, as its kind tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KindOutcome {
    /// It ended well.
    Done {
        /// Its output, not yet checked against the output schema.
        output: Value,
        /// What it cost; `node` is filled in by the executor.
        facts: RunFacts,
    },
    /// It failed by itself.
    Failed {
        /// Why.
        fault: Fault,
        /// May it have had an effect? `false` only where that is certain.
        started: bool,
        /// What it cost.
        facts: RunFacts,
    },
    /// It was ended by the [`Kill`] it was given, and nothing of it is alive.
    Killed {
        /// May it have had an effect? `false` only where that is certain.
        started: bool,
        /// What it cost until then.
        facts: RunFacts,
    },
}

/// A way to run tools. Embedding programs add their own, see also [`crate::FnKind`].
#[async_trait]
pub trait ToolKind: Send + Sync + 'static {
    /// The name that `kind` of a tool's entry refers to.
    fn kind(&self) -> &str;

    /// Could this tool be run here now? Looks at its `run` and at what that needs of
    /// the machine; may touch the disk, starts nothing. Used to lint a configuration
    /// and by the doctor.
    ///
    /// # Errors
    /// [`Code::ConfigInvalid`](detent_protocol::Code::ConfigInvalid) with the place in
    /// the entry, or [`Code::ToolUnavailable`](detent_protocol::Code::ToolUnavailable)
    /// naming what is missing.
    fn check(&self, def: &ToolDef) -> Result<(), Fault>;

    /// Called once, before the first run: ends what an earlier life of this node left
    /// running. When it returns nothing of that life is alive.
    ///
    /// # Errors
    /// Any fault keeps the executor from starting.
    async fn prepare(&self) -> Result<(), Fault> {
        Ok(())
    }

    /// Runs one call and returns when nothing of it runs any more. Keeps
    /// [`Invocation::timeout`] and obeys `kill` by itself, and calls
    /// [`Invocation::mark_started`] once the effect may begin. Dropping the future ends
    /// the run too.
    async fn run(&self, call: &Invocation, kill: Kill) -> KindOutcome;
}
