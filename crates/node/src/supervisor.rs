//! The supervision tree: one root, four actors beneath it, and beneath the
//! orchestrator one for each goal.
//!
//! An actor that fails is started again after a short wait; the others go on. What was
//! in its mailbox is lost, and found again: commands by their time limit, goals from
//! the journal.

use crate::node::Assembly;
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, SupervisionEvent};
use std::sync::Arc;
use std::time::Duration;

/// One of the actors beneath the root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Executor,
    Observer,
    Reasoner,
    Orchestrator,
}

impl Part {
    /// In the order in which they are started: who is asked stands before who asks.
    pub(crate) const ALL: [Part; 4] = [
        Part::Executor,
        Part::Observer,
        Part::Reasoner,
        Part::Orchestrator,
    ];
}

pub(crate) enum Msg {
    Restart(Part, u32),
}

/// The root of the tree.
pub(crate) struct Root;

impl Root {
    pub(crate) async fn start(assembly: Arc<Assembly>) -> Result<ActorRef<Msg>, String> {
        let spawned = Actor::spawn(None, Root, assembly).await;
        spawned.map(|(root, _)| root).map_err(|e| e.to_string())
    }
}

/// Wait before the first restart; doubles with each failure to start.
const WAIT_MS: u64 = 50;
/// Longest wait, milliseconds.
const WAIT_MS_MAX: u64 = 10_000;

fn later(root: &ActorRef<Msg>, part: Part, failures: u32) {
    let wait = (WAIT_MS << failures.min(10)).min(WAIT_MS_MAX);
    root.send_after(Duration::from_millis(wait), move || {
        Msg::Restart(part, failures)
    });
}

impl Actor for Root {
    type Msg = Msg;
    type State = Arc<Assembly>;
    type Arguments = Arc<Assembly>;

    async fn pre_start(
        &self,
        _me: ActorRef<Msg>,
        assembly: Arc<Assembly>,
    ) -> Result<Arc<Assembly>, ActorProcessingErr> {
        Ok(assembly)
    }

    async fn handle(
        &self,
        me: ActorRef<Msg>,
        Msg::Restart(part, failures): Msg,
        assembly: &mut Arc<Assembly>,
    ) -> Result<(), ActorProcessingErr> {
        if assembly.is_stopping() {
            return Ok(());
        }
        if let Err(fault) = assembly.start_part(part, me.get_cell()).await {
            assembly.alert("restart", &format!("{part:?}: {fault}"));
            later(&me, part, failures + 1);
        }
        Ok(())
    }

    /// The default would stop the whole node with any of its children.
    async fn handle_supervisor_evt(
        &self,
        me: ActorRef<Msg>,
        event: SupervisionEvent,
        assembly: &mut Arc<Assembly>,
    ) -> Result<(), ActorProcessingErr> {
        let failed: Option<(ActorCell, String)> = match event {
            SupervisionEvent::ActorFailed(cell, error) => Some((cell, error.to_string())),
            _ => None,
        };
        if let Some((cell, error)) = failed
            && let Some(part) = assembly.part_of(&cell)
            && !assembly.is_stopping()
        {
            assembly.alert("actor-failed", &format!("{part:?}: {error}"));
            later(&me, part, 0);
        }
        Ok(())
    }
}
