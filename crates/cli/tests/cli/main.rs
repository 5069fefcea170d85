//! The `detent` binary as its user meets it: one process a test, a data directory of
//! its own for each, every wait bounded.

#![allow(missing_docs, unreachable_pub)]

mod bad_input;
mod bad_tools;
mod configuration;
mod docs;
mod goals;
mod journal_files;
mod node_life;
mod quickstart;
mod support;
