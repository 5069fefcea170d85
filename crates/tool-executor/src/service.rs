//! The shell: the actor that keeps the subjects served, and the handle on it.

use crate::core::{Core, by_name};
use crate::kind::ToolKind;
use crate::ledger::Ledger;
use crate::options::{ExecutorError, ExecutorOptions};
use crate::registry::{Registry, ToolHealth};
use crate::runs::KillWhy;
use async_trait::async_trait;
use bytes::Bytes;
use detent_bus::claim::ClaimCheck;
use detent_bus::env::SharedEnv;
use detent_bus::{Bus, BusError, Handler, ServeOptions, Served};
use detent_protocol::envelope::{self, Message};
use detent_protocol::messages::{SealAttempt, SealGoal, ToolCall};
use detent_protocol::{Code, Fault, NodeId, subject};
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef};
use std::sync::Arc;
use std::time::Duration;

/// The executor as a service.
pub struct ToolExecutor;

impl ToolExecutor {
    /// Lets each kind end what an earlier life left running, then serves the calls of
    /// all tools (shared with the executors of other nodes) and the seals for this node,
    /// until it is stopped.
    ///
    /// # Errors
    /// [`ExecutorError`]; nothing is served then.
    pub async fn spawn(
        options: ExecutorOptions,
        bus: Bus,
        ledger: Ledger,
        registry: Registry,
        kinds: Vec<Arc<dyn ToolKind>>,
        env: SharedEnv,
        supervisor: Option<ActorCell>,
    ) -> Result<ExecutorHandle, ExecutorError> {
        options.validate()?;
        let kinds = by_name(kinds)?;
        for (name, kind) in &kinds {
            kind.prepare()
                .await
                .map_err(|fault| ExecutorError::Prepare {
                    kind: name.clone(),
                    fault,
                })?;
        }
        let memory = options.memory.clone();
        let core = Arc::new(Core {
            options,
            claims: ClaimCheck::new(bus.blobs.clone()),
            bus,
            ledger,
            registry,
            kinds,
            env,
            runs: memory.runs,
            sealed: memory.sealed,
        });
        let args = Arc::clone(&core);
        let spawned = match supervisor {
            Some(parent) => Actor::spawn_linked(None, Shell, args, parent).await,
            None => Actor::spawn(None, Shell, args).await,
        };
        let (actor, _) = spawned.map_err(|e| ExecutorError::Start(e.to_string()))?;
        Ok(ExecutorHandle { actor, core })
    }
}

/// A handle on a running executor. Cheap to clone; dropping it stops nothing.
#[derive(Clone)]
pub struct ExecutorHandle {
    actor: ActorRef<()>,
    core: Arc<Core>,
}

impl ExecutorHandle {
    /// The actor, for whoever supervises it.
    pub fn cell(&self) -> ActorCell {
        self.actor.get_cell()
    }

    /// Whether each tool of the registry could be run now. Touches the disk.
    pub fn health(&self) -> Vec<ToolHealth> {
        self.core.health()
    }

    /// Attempts that are in hand now.
    pub fn running(&self) -> usize {
        self.core.runs.len()
    }

    /// Takes no more calls, gives those in hand `grace` to end by themselves, kills the
    /// rest, and returns when nothing runs any more.
    pub async fn stop(&self, grace: Duration) {
        // Fails only for an actor that is gone already.
        let _ = self.actor.stop_and_wait(None, None).await;
        if tokio::time::timeout(grace, self.core.runs.idle())
            .await
            .is_ok()
        {
            return;
        }
        let left = self.core.runs.all();
        left.iter().for_each(|run| run.end(KillWhy::Stopping));
        self.core.runs.idle().await;
    }
}

/// Keeps the subjects served while it lives. Calls are handled by the bus's own tasks.
struct Shell;

struct Guards {
    _calls: Served,
    _seals: Served,
}

impl Actor for Shell {
    type Msg = ();
    type State = Guards;
    type Arguments = Arc<Core>;

    async fn pre_start(
        &self,
        _myself: ActorRef<()>,
        core: Arc<Core>,
    ) -> Result<Guards, ActorProcessingErr> {
        // Seals first: who can be called can be sealed.
        let seals = serve_seals(&core).await?;
        let calls = serve_calls(&core).await?;
        Ok(Guards {
            _calls: calls,
            _seals: seals,
        })
    }
}

async fn serve_calls(core: &Arc<Core>) -> Result<Served, BusError> {
    let options = ServeOptions {
        concurrency_max: core.options.concurrency_max,
        queue_max: core.options.queue_max,
        ..ServeOptions::default()
    };
    let handler = Arc::new(Calls(Arc::clone(core)));
    core.bus
        .messages
        .serve(&subject::tools_of(&core.options.node), options, handler)
        .await
}

async fn serve_seals(core: &Arc<Core>) -> Result<Served, BusError> {
    let options = ServeOptions {
        group: String::new(),
        concurrency_max: core.options.seals_max,
        queue_max: core.options.queue_max,
    };
    let handler = Arc::new(Seals(Arc::clone(core)));
    let subject = subject::executor(&core.options.node);
    core.bus.messages.serve(&subject, options, handler).await
}

struct Calls(Arc<Core>);

#[async_trait]
impl Handler for Calls {
    async fn handle(&self, subject: &str, payload: Bytes) -> Bytes {
        let node = &self.0.options.node;
        let call = envelope::expect::<ToolCall>(&payload);
        let call = call.and_then(|call| addressed(subject, node, call));
        envelope::reply(match call {
            Ok(call) => self.0.call(&call).await,
            Err(fault) => Err(fault),
        })
    }
}

/// Permissions are given by subject, so the subject and the message must agree.
fn addressed(on: &str, node: &NodeId, call: ToolCall) -> Result<ToolCall, Fault> {
    if on == subject::tool(&call.tool, node) {
        return Ok(call);
    }
    let message = format!("a call of tool {} came on {on}", call.tool);
    Err(Fault::new(Code::InputInvalid, message).at("/body/tool"))
}

struct Seals(Arc<Core>);

#[async_trait]
impl Handler for Seals {
    async fn handle(&self, _subject: &str, payload: Bytes) -> Bytes {
        let kind = envelope::head(&payload).map(|head| head.kind);
        match kind.as_deref() {
            Ok(SealGoal::KIND) => envelope::reply(match envelope::expect(&payload) {
                Ok(ask) => self.0.seal_goal(&ask).await,
                Err(fault) => Err(fault),
            }),
            // Everything else is none, and is told so.
            _ => envelope::reply(match envelope::expect::<SealAttempt>(&payload) {
                Ok(ask) => self.0.seal_attempt(&ask).await,
                Err(fault) => Err(fault),
            }),
        }
    }
}
