//! The executor on a real store, the local bus, and real processes.

mod claims;
mod environment;
mod health;
mod in_process;
mod ledger;
mod outcomes;
mod outputs;
mod races;
mod seals;
mod slots;
mod support;
