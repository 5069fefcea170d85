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

mod options;

pub use options::{NatsAuth, NatsOptions, NatsTls};
