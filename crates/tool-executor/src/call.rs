//! One call from its delivery to its answer.
//!
//! The order is what makes "at most once" true: the attempt is put on the table of
//! runs, *then* the seals are looked at (a seal marks first and looks at the table
//! then), then the slot is won, then it runs, then the ledger is written, and only then
//! it leaves the table.

use crate::core::Core;
use crate::kind::{Invocation, KindOutcome, ToolKind};
use crate::ledger::{Attempt, Entry};
use crate::runs::{Ending, EndingKind, Joined, KillWhy, Reply, Run};
use crate::slot::{Claim, key_of_call, started_elsewhere};
use detent_bus::failpoint;
use detent_protocol::agent::CompiledTool;
use detent_protocol::messages::ToolCall;
use detent_protocol::record::{RunFacts, ToolOutcome};
use detent_protocol::{Code, Fault};
use detent_sandbox::BootInstant;
use serde_json::Value;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// When a call came, on the boot clock (which a tool's keeper reads too) and on the
/// runtime's (which a simulation can turn).
#[derive(Clone, Copy)]
struct Came {
    boot: BootInstant,
    tokio: Instant,
}

impl Came {
    fn now() -> Self {
        Self {
            boot: BootInstant::now(),
            tokio: Instant::now(),
        }
    }

    fn is_past(&self, within: Duration) -> bool {
        BootInstant::now() >= self.boot.plus(within) || self.tokio.elapsed() >= within
    }
}

impl Core {
    /// Answers one delivery of a call.
    pub(crate) async fn call(&self, call: &ToolCall) -> Reply {
        let attempt = Attempt {
            goal: call.goal,
            step: call.step.clone(),
            attempt: call.attempt,
        };
        match self.runs.join(&attempt) {
            Joined::Attached(run) => run.ended().await.reply,
            Joined::Leads(lead) => {
                let ending = self.lead(call, &attempt, &lead.run).await;
                let reply = ending.reply.clone();
                lead.finish(ending);
                reply
            }
        }
    }

    async fn lead(&self, call: &ToolCall, attempt: &Attempt, run: &Run) -> Ending {
        let came = Came::now();
        let tool = self.registry.get(&call.tool, &call.tool_digest);
        if let Some(ending) = self.over_already(tool.as_deref().ok(), attempt) {
            return ending;
        }
        match self.sealed_already(attempt, run) {
            Ok(None) => {}
            Ok(Some(why)) => return self.refuse(call, why.fault()).await,
            Err(fault) => return unclear(fault),
        }
        let ready = match tool {
            Ok(tool) => self.fit(call, &tool, came).await.map(|args| (tool, args)),
            Err(fault) => Err(fault),
        };
        let (tool, args) = match ready {
            Ok(ready) => ready,
            Err(fault) => return self.refuse(call, fault).await,
        };
        let nonce = self.env.random();
        if tool.def.effect.has_slot() {
            match self.claim(&key_of_call(call), nonce).await {
                Ok(Claim::Won) => {}
                Ok(Claim::Revoked) => return not_started(KillWhy::AttemptSealed.fault()),
                Ok(Claim::StartedBy(node)) => return unclear(started_elsewhere(&node)),
                Err(fault) => return unclear(fault),
            }
        }
        let invocation = self.invocation(call, (tool, args), came, nonce);
        let ended = self
            .execute(&invocation, came, call.start_within_ms, run)
            .await;
        self.conclude(&invocation, attempt, ended, run).await
    }

    /// What the ledger says about an attempt with an effect that is over. A ledger that
    /// can't be read says nothing, and then the slot decides.
    fn over_already(&self, tool: Option<&CompiledTool>, attempt: &Attempt) -> Option<Ending> {
        if !tool?.def.effect.has_slot() {
            return None;
        }
        let entry = self.ledger.entry(attempt).unwrap_or_else(|fault| {
            tracing::warn!(%fault, "the ledger can't be read");
            None
        })?;
        Some(match entry.outcome {
            Some(outcome) => Ending {
                reply: Ok(outcome),
                kind: EndingKind::Over,
            },
            None => Ending {
                reply: Err(started_elsewhere(&self.options.node)),
                kind: EndingKind::Killed,
            },
        })
    }

    fn sealed_already(&self, attempt: &Attempt, run: &Run) -> Result<Option<KillWhy>, Fault> {
        if self.ledger.is_sealed(&attempt.goal)? {
            return Ok(Some(KillWhy::GoalSealed));
        }
        if self.sealed.contains(attempt) {
            return Ok(Some(KillWhy::AttemptSealed));
        }
        Ok(run.why())
    }

    /// The call's arguments, with what has to be fetched for them, if the tool can take
    /// them. The check is the only one of arguments that had to be fetched.
    async fn fit(&self, call: &ToolCall, tool: &CompiledTool, came: Came) -> Result<Value, Fault> {
        self.kind_of(&tool.def)?;
        let mut args = call.args.clone();
        if !call.claims.is_empty() {
            let max = self.options.args_bytes_max;
            let fetched = self.claims.fetch(&call.goal, &mut args, &call.claims, max);
            let within = Duration::from_millis(call.start_within_ms);
            let left = within.saturating_sub(came.tokio.elapsed());
            let fetched = tokio::time::timeout(left, fetched).await;
            fetched.unwrap_or_else(|_| Err(start_deadline_passed()))?;
        }
        tool.input.check_as(Code::InputInvalid, &args)?;
        Ok(args)
    }

    /// Refuses a call for good. Its slot is revoked, also where the tool and so its
    /// effect is not known here: another delivery of the same call may have started
    /// already, or may reach a node that could run it after the owner was told that
    /// there is no effect.
    async fn refuse(&self, call: &ToolCall, fault: Fault) -> Ending {
        let known = self.registry.get(&call.tool, &call.tool_digest);
        if known.is_ok_and(|tool| !tool.def.effect.has_slot()) {
            return not_started(fault);
        }
        match self.revoke(&key_of_call(call), call.epoch).await {
            Ok(Claim::StartedBy(node)) => unclear(started_elsewhere(&node)),
            Ok(_) => not_started(fault),
            Err(fault) => unclear(fault),
        }
    }

    fn invocation(
        &self,
        call: &ToolCall,
        (tool, args): (Arc<CompiledTool>, Value),
        came: Came,
        nonce: u64,
    ) -> Invocation {
        Invocation {
            timeout: Duration::from_millis(tool.def.timeout_ms),
            tool,
            tenant: call.tenant.clone(),
            goal: call.goal,
            step: call.step.clone(),
            attempt: call.attempt,
            args,
            identity: call.identity,
            fencing_token: call.fencing_token,
            work_dir: self.options.work_root.join(call.goal.to_string()),
            start_deadline: came.boot.plus(Duration::from_millis(call.start_within_ms)),
            nonce,
            started: Arc::default(),
        }
    }

    async fn execute(
        &self,
        invocation: &Invocation,
        came: Came,
        start_within_ms: u64,
        run: &Run,
    ) -> KindOutcome {
        let facts = RunFacts::default();
        let started = false;
        if run.kill.is_killed() {
            return KindOutcome::Killed { started, facts };
        }
        let refused = if came.is_past(Duration::from_millis(start_within_ms)) {
            Err(start_deadline_passed())
        } else {
            self.kind_of(&invocation.tool.def)
        };
        match refused {
            Ok(kind) => run_caught(kind.as_ref(), invocation, run).await,
            Err(fault) => KindOutcome::Failed {
                fault,
                started,
                facts,
            },
        }
    }

    /// Puts the end on record, where the tool has an effect, and words the answer.
    async fn conclude(
        &self,
        invocation: &Invocation,
        attempt: &Attempt,
        ended: KindOutcome,
        run: &Run,
    ) -> Ending {
        let why = run.why().unwrap_or(KillWhy::AttemptSealed);
        let (outcome, kind) = self.word(invocation, ended, why).await;
        if invocation.tool.def.effect.has_slot() {
            let entry = Entry {
                nonce: invocation.nonce,
                outcome: (kind == EndingKind::Over).then(|| outcome.clone()),
                at_ms: self.env.now_ms(),
            };
            // The owner is told all the same; what is lost is the answer to a second
            // delivery, for which the slot then says "unknown".
            if let Err(fault) = self.ledger.record(attempt, &entry).await {
                tracing::error!(%fault, step = %attempt.step, "an outcome is not in the ledger");
            }
        }
        failpoint::hit("outcome.before");
        Ending {
            reply: Ok(outcome),
            kind,
        }
    }
}

/// Runs the kind; a panic in it ends the call and not the executor.
async fn run_caught(kind: &dyn ToolKind, invocation: &Invocation, run: &Run) -> KindOutcome {
    failpoint::hit("spawn.before");
    let ended = {
        let mut running = pin!(kind.run(invocation, run.kill.clone()));
        std::future::poll_fn(|cx| {
            let polled = catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(cx)));
            polled.unwrap_or_else(|_| std::task::Poll::Ready(panicked(invocation)))
        })
        .await
    };
    failpoint::hit("effect.after");
    ended
}

fn panicked(invocation: &Invocation) -> KindOutcome {
    let def = &invocation.tool.def;
    let message = format!(
        "kind {:?} panicked while it ran tool {}",
        def.kind, def.name
    );
    KindOutcome::Failed {
        fault: Fault::new(Code::InternalLogicError, message),
        started: true,
        facts: RunFacts::default(),
    }
}

pub(crate) fn start_deadline_passed() -> Fault {
    let message = "the call's start deadline had passed, so nothing was started";
    Fault::new(Code::ToolUnavailable, message)
}

/// It did not start and never will.
fn not_started(fault: Fault) -> Ending {
    Ending {
        reply: Ok(ToolOutcome::Failed {
            fault,
            started: false,
            run: RunFacts::default(),
        }),
        kind: EndingKind::Refused,
    }
}

/// It did not start here; nothing is said about elsewhere or later.
fn unclear(fault: Fault) -> Ending {
    Ending {
        reply: Err(fault),
        kind: EndingKind::Refused,
    }
}
