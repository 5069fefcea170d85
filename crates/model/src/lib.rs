//! The protocol as a model that is checked whole.
//!
//! One goal with a plan of one step, two nodes with an executor each, a journal and
//! slots that do not always answer the truth, messages that are lost, late or doubled,
//! processes that die or are taken for dead, and a world that does what it is sent. The
//! checker visits every state that a bounded number of faults can lead to, and in each
//! the invariants have to hold.
//!
//! | module | what it is |
//! |---|---|
//! | [`fold`], [`decide`] | what a goal's journal says, and the rules of the loop |
//! | [`state`], [`action`], [`model`] | everything else, and what can happen |
//! | [`invariant`] | what has to hold, by the numbers of `ARCHITECTURE.md` |
//! | [`mutation`] | mistakes that have to be caught |
//! | [`config`], [`check`] | what is checked, and how |
//!
//! Promises: a configuration's number of states is the same on every machine; a
//! violation comes with the shortest way to it. `docs/explanation/model.md` says what is
//! left out, and which code each action stands for.
//!
//! Must not know: the product's code. A model that calls what it is to check proves
//! nothing about what was meant.

pub mod action;
pub mod check;
pub mod config;
pub mod decide;
mod executor;
pub mod fold;
mod hash;
pub mod invariant;
pub mod model;
pub mod mutation;
mod owner;
pub mod pack;
mod publisher;
mod quiet;
mod reduce;
pub mod state;

pub use check::{Report, check};
pub use config::{Configuration, Setting};
pub use invariant::Invariant;
pub use mutation::Mutation;
