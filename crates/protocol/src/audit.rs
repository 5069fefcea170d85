//! The audit record: one line of `audit.log`.

use crate::ids::{GoalId, TenantId};
use crate::messages::Phase;
use serde::{Deserialize, Serialize};

/// One transition, as it stands in `audit.log` (JSON lines).
///
/// Derived from the journal and never the source of truth; what it adds is the cost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditRecord {
    /// RFC 3339 time in UTC, with milliseconds.
    pub time: String,
    /// Whose goal.
    pub tenant: TenantId,
    /// The goal.
    pub goal: GoalId,
    /// Epoch of the owner.
    pub epoch: u64,
    /// Number of the last record of the transition.
    pub n: u64,
    /// State after it.
    pub state: Phase,
    /// The event that caused it.
    pub event: String,
    /// Kinds of the records it made.
    pub records: Vec<String>,
    /// From the event's arrival to the confirmed append, microseconds.
    pub duration_us: u64,
    /// Time the orchestrator spent deciding, microseconds.
    pub turn_us: u64,
    /// CPU time of the node so far, milliseconds.
    pub cpu_ms: u64,
    /// Resident memory of the node, bytes.
    pub memory_bytes: u64,
    /// Why, for people; a fault's code where there is one.
    pub reason: String,
}
