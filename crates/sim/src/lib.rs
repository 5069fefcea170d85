//! Whole clusters in one process under a seed.
//!
//! | module | what it is |
//! |---|---|
//! | [`chance`] | every decision of a run, drawn from its seed; how often faults are drawn |
//! | [`bus`] | the third implementation of the bus traits: in memory, with faults |
//! | [`world`] | effects with an identity, processes that make them, probes that look |
//! | [`life`], [`node`] | nodes that crash at any call and start again |
//! | [`run`](mod@run) | faults, then quiet, then everything must end, then the verdict |
//! | [`judge`](mod@judge) | the invariants, judged from outside and from plain data |
//!
//! What it promises: the same seed gives the same run, event by event; a violation is
//! replayed by its seed. What is real here and what is a twin stands in [`node`].
//!
//! What it must not know: a real clock, a file, a socket, another thread. (The observer
//! makes one empty directory.)

pub mod bus;
pub mod chance;
pub mod env;
pub mod judge;
pub mod life;
pub mod node;
mod publisher;
pub mod run;
pub mod trace;
mod workload;
pub mod world;

pub use run::{Forget, Options, Report, run};
