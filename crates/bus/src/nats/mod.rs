//! The bus on NATS with JetStream: what a cluster runs on.
//!
//! | part | where it is kept |
//! |---|---|
//! | messages | core NATS; services are micro services with queue groups |
//! | journal, slots | stream `DETENT_JOURNAL`, one subject for each goal, slots beside it |
//! | leases | key-value bucket `DETENT_LEASES` |
//! | bodies | object store `DETENT_BLOBS` |
//! | durable messages | streams `DETENT_INTAKE`, `DETENT_CONTROL`, `DETENT_DEAD` |
//!
//! Promises: what the traits promise, also while a server dies, a leader changes or the
//! connection is lost in the middle of a call. A refusal by a broker proves nothing, so
//! every unclear answer is settled by reading from the stream's leader. Streams that
//! stand with weaker settings than these promises need are refused, never used.
//!
//! Must never know: what the bytes mean.

mod api;
mod blobs;
mod bus;
mod connect;
mod fence;
mod handle;
mod inbox;
mod journal;
mod layout;
mod leases;
mod link;
mod listing;
mod messages;
mod open;
mod options;
mod replay;
mod replies;
pub mod server;
mod service;
mod slots;
mod streams;
mod subscription;
mod synced;
mod verdict;
mod weaker;

pub use blobs::BLOBS;
pub use bus::NatsBus;
pub(crate) use connect::Broker;
pub use handle::{NatsCheck, NatsHandle, NatsStatus};
pub use inbox::{CONTROL, DEAD, INTAKE};
pub use layout::JOURNAL;
pub use leases::LEASES;
pub use link::Link;
pub use options::{NatsAuth, NatsOptions, NatsTls};
pub use streams::SetUp;
pub use synced::Synced;
