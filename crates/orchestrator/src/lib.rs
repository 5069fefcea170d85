//! The loop: from an accepted goal to its one verified result.
//!
//! Two halves. The pure one, [`decide`], takes a state and an event and says which
//! records are true now and which commands follow; it has no clock, no random source
//! and no I/O. The shell around it, [`Orchestrator`], appends the records first, with
//! the owner's fence, and only when the journal has confirmed them lets the commands
//! out.
//!
//! Promises: state is nothing but the fold of the journal, so a restart is a replay,
//! a test is a list of events, and a bug report is a file. A turn takes at most
//! [`TURN_MS_MAX`] of its own and says so in a metric.
//!
//! Must never know: how a plan is made, how a tool is run, how a probe looks, or what
//! carries its messages.

pub mod command;
pub mod decide;
pub mod event;
mod shell;
pub mod state;
pub mod view;

pub use command::Command;
pub use decide::{Bug, Context, Decision, decide};
pub use event::Event;
pub use shell::{
    Definitions, Handle, Hooks, Loaded, NoHooks, Options, Orchestrator, Retention, SpawnError,
    Transition, answer_offline, load,
};
pub use state::GoalState;

/// Longest turn of the orchestrator's own, milliseconds.
pub const TURN_MS_MAX: u64 = 200;
