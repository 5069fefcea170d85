//! Runs one attempt of a tool, and can say afterwards what it knows about it.
//!
//! What it promises:
//! - **At most once.** An attempt of a tool with an effect starts only after its effect
//!   slot was won with `started`; whatever else stands there, nothing starts
//!   (invariant I4). A dispatch that is delivered twice attaches to the run that is
//!   going on, or gets the outcome that the ledger holds.
//! - **A seal is final.** [`SealAttempt`](detent_protocol::messages::SealAttempt) and
//!   [`SealGoal`](detent_protocol::messages::SealGoal) are answered only when nothing of
//!   the attempt or goal runs here any more, and nothing of it starts here afterwards
//!   (invariant I7), also after a restart.
//! - **"Not started" is only said of what can't start.** A call that is refused before
//!   it took its slot has its slot revoked, so that another delivery of it can't start
//!   elsewhere while its owner believes that there is no effect. Where that is not
//!   clear the answer is a fault, which says nothing about the effect: seal it.
//! - What a tool says is bounded, redacted, and meets the tool's output schema.
//!
//! What it must not know: plans, the journal, why an attempt is made or given up; other
//! actors. It runs what its own [`Registry`] holds under a digest, never what a message
//! says.
//!
//! A component is options ([`ExecutorOptions`]), a service (the actor that
//! [`ToolExecutor::spawn`] starts), a handle ([`ExecutorHandle`]) and an error
//! ([`ExecutorError`]).

mod answer;
mod call;
mod core;
mod fn_kind;
mod kind;
mod ledger;
mod memory;
mod options;
mod process;
mod refused;
mod registry;
mod runs;
mod seal;
mod sealed;
mod service;
mod slot;

pub use fn_kind::FnKind;
pub use kind::{Invocation, Kill, KindOutcome, ToolKind};
pub use ledger::{Attempt, Entry, Ledger, REFUSED_FOR_MS};
pub use memory::ExecutorMemory;
pub use options::{ExecutorError, ExecutorOptions};
pub use process::{PROCESS_KIND, ProcessKind, secret_variables};
pub use refused::REFUSED_DIR;
pub use registry::{Registry, ToolHealth};
pub use service::{ExecutorHandle, ToolExecutor};
