//! The tree level with real processes.

mod death;
mod keeper_lost;
mod limits;
mod outcomes;
mod refusals;
mod shell;
mod support;
mod sweep;
