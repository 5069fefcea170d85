//! What is said in Detent: goals, plans, journal records, messages, error codes.
//!
//! Promises: every type here is plain data that means the same on every node and
//! version. Bytes written by one version are read by the next; what a reader does
//! not know it keeps, refuses or reports, but never guesses.
//!
//! Must never know: a runtime, a clock, a random source, a file or a socket. Time
//! and ids always come in as values.

pub mod agent;
pub mod audit;
pub mod budget;
pub mod claim;
pub mod contract;
pub mod effect;
pub mod envelope;
pub mod error;
pub mod expect;
pub mod goal;
pub mod ids;
pub mod journal;
pub mod json;
pub mod messages;
pub mod plan;
pub mod record;
pub mod redact;
pub mod result;
#[cfg(feature = "schema")]
pub mod schema;
pub mod subject;
pub mod template;
pub mod tombstone;

pub use error::{Code, Fault};
pub use ids::{AgentName, GoalId, NodeId, QuestionId, StepId, TenantId, ToolName};

/// Largest message that the bus carries, bytes: the broker's own default limit.
pub const MESSAGE_BYTES_MAX: usize = 1024 * 1024;
/// Largest goal (input with all its fields, as sent), bytes.
pub const GOAL_BYTES_MAX: usize = 256 * 1024;
