//! One process: configuration, supervision, the actors on their bus, and what
//! operators look at.
//!
//! Promises: a node that starts owns its data directory, has ended whatever an earlier
//! life left running, and takes every open goal up again; one that is told to stop
//! takes no more, lets tools end, and leaves the rest in the journal. An actor that
//! fails is started again.
//!
//! Must never know: how a goal is decided, a tool run or a plan made; it puts together
//! those that do.

mod alerts;
pub mod audit;
pub mod broker;
pub mod config;
mod definitions;
pub mod doctor;
mod http;
mod leftovers;
mod membership;
pub mod metrics;
mod node;
mod storage;
mod supervisor;

pub use config::{Config, Flags};
pub use node::{Node, NodeParts, SOCKET, open_offline};
