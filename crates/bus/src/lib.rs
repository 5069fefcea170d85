//! How things are said and kept: small traits and what implements them.
//!
//! | trait | what it is |
//! |---|---|
//! | [`Messages`] | requests with one answer, and events |
//! | [`Journal`] | one append-only journal for each goal, fenced by sequence |
//! | [`Slots`] | places that can be written once: effect slots |
//! | [`Leases`] | names held for a time: hints, never the authority |
//! | [`Blobs`] | bodies by their hash |
//! | [`Inbox`] | messages kept until they were dealt with; only where a broker outlives the node |
//!
//! Promises: the same bytes travel whatever implements the traits; every queue has a
//! bound and says when it is full; an unclear answer is an error of its own
//! ([`AppendError::Unknown`]), never a success and never a refusal. What the
//! [`conformance`] suite does not test, no caller may rely on.
//!
//! Must never know: what the bytes mean. The one helper that does, [`claim`], stands on
//! the traits as any caller would, and is here because every actor needs it.

pub mod claim;
pub mod conformance;
pub mod env;
mod event_queue;
pub mod failpoint;
pub mod local;
pub mod nats;
mod traits;

pub use traits::*;
