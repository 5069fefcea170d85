//! Tools that are functions of the embedding program.

use crate::kind::{Invocation, Kill, KindOutcome, ToolKind};
use async_trait::async_trait;
use detent_protocol::agent::ToolDef;
use detent_protocol::record::RunFacts;
use detent_protocol::{Code, Fault};
use serde_json::Value;
use std::future::Future;
use std::pin::Pin;
use tokio::time::{Instant, sleep};

type Answer = Pin<Box<dyn Future<Output = Result<Value, Fault>> + Send>>;

/// A kind whose tools are one async function. The function is dropped when the call is
/// killed or its time is up: it must hold nothing that goes on without it, such as a
/// spawned task. An `Err` counts as started.
pub struct FnKind {
    name: String,
    function: Box<dyn Fn(Invocation) -> Answer + Send + Sync>,
}

impl FnKind {
    /// A kind called `name` that answers calls with `function`.
    pub fn new<F, A>(name: impl Into<String>, function: F) -> Self
    where
        F: Fn(Invocation) -> A + Send + Sync + 'static,
        A: Future<Output = Result<Value, Fault>> + Send + 'static,
    {
        Self {
            name: name.into(),
            function: Box::new(move |call| Box::pin(function(call))),
        }
    }
}

#[async_trait]
impl ToolKind for FnKind {
    fn kind(&self) -> &str {
        &self.name
    }

    fn check(&self, _def: &ToolDef) -> Result<(), Fault> {
        Ok(())
    }

    async fn run(&self, call: &Invocation, kill: Kill) -> KindOutcome {
        if kill.is_killed() {
            let facts = RunFacts::default();
            return KindOutcome::Killed {
                started: false,
                facts,
            };
        }
        let begin = Instant::now();
        call.mark_started();
        // An answer that is there counts, also when the kill came at the same moment.
        let ended = tokio::select! {
            biased;
            answer = (self.function)(call.clone()) => Some(answer),
            () = kill.killed() => None,
            () = sleep(call.timeout) => Some(Err(timed_out(call))),
        };
        let facts = RunFacts {
            wall_ms: u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX),
            ..RunFacts::default()
        };
        let started = true;
        match ended {
            Some(Ok(output)) => KindOutcome::Done { output, facts },
            Some(Err(fault)) => KindOutcome::Failed {
                fault,
                started,
                facts,
            },
            None => KindOutcome::Killed { started, facts },
        }
    }
}

pub(crate) fn timed_out(call: &Invocation) -> Fault {
    let ms = call.timeout.as_millis();
    Fault::new(
        Code::ToolTimeout,
        format!(
            "tool {} did not end within {ms} ms and was killed",
            call.tool.def.name
        ),
    )
}
