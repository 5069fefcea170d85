//! Tests of the pure state machine: given a journal, an event, the expected records.
#![allow(missing_docs)]

#[path = "../support/mod.rs"]
mod support;

mod bounds;
mod claims;
mod control;
mod effects;
mod identity;
mod journals;
mod planning;
mod steps;
mod table;
mod walk;
