//! Probes that look at the real world, and whether what they saw meets the expectation.
//!
//! | kind | looks at | sees |
//! |---|---|---|
//! | `file` | a file | `{exists, bytes, sha256, modified_ms, text?, json?}` |
//! | `sql` | a SQLite database, read only | `{rows, row_count, columns}` |
//! | `http` | an address, by GET or HEAD | `{status, body, bytes}` |
//! | `process` | whatever a program of the user's looks at | `{exit_code, output}` |
//! | `output` | a tool's output that is too large for its goal's owner to look at | it |
//!
//! A component as the others: [`ObserverOptions`], the service in an actor started by
//! [`Observer::spawn`], [`ObserverHandle`], [`ObserverError`]. It answers
//! [`detent_protocol::messages::Observe`] with an
//! [`detent_protocol::expect::Observation`].
//!
//! Promises:
//! - A probe only looks. It changes nothing (but that SQLite takes back what a killed
//!   writer left unfinished in a database, as the next reader would), and what it looks
//!   at can't hang it: every look ends within its bound.
//! - *Absent* is said only of what was looked at and found not to be there. A refused
//!   connection, a locked database, a status 503, a failing program are
//!   *unavailable*: they prove nothing, and taking them for absence would let an effect
//!   happen twice.
//! - With nothing there a probe sees exactly the forms of
//!   [`detent_protocol::expect::nothing_there`], by which trivial expectations are
//!   refused before a goal starts.
//! - No secret that the redactor knows is in an answer.
//!
//! Must never know: the journal, goals as a whole, tools, and the other actors.

mod actor;
mod contracts;
mod error;
mod judge;
mod options;
mod place;
mod probe;
pub mod probes;
mod service;
mod summary;

pub use actor::{Observer, ObserverHandle};
pub use error::ObserverError;
pub use options::{ObserverOptions, TIMEOUT_MS_MAX};
pub use place::Base;
pub use probe::{Look, Probe, ProbeContext};
pub use service::ObserverStats;
pub use summary::SUMMARY_BYTES_MAX;
