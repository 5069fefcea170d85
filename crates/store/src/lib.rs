//! One node's store: ordered byte tables in sled behind a narrow API.
//!
//! What it is for: the journal of the one-process bus, where every commit must be
//! durable and rot must be found, and a node's cache and ledger.
//!
//! What it promises:
//! - a [`Store::commit`] that returned is on the disk, in sled and in the witness (one
//!   fdatasync of the data, one synchronous write of the witness, at the same time when the
//!   group is small; shared by all transactions of a group);
//! - a transaction is atomic over all its tables, and its conditions are evaluated
//!   serially, so compare-and-swap is exact;
//! - reads see only what is durable;
//! - no row is lost, altered or brought back in silence: sled drops the tail of its log
//!   after a flipped byte without a word, so each row carries a checksum, each group a
//!   running count and digest of the live rows, and a witness file beside sled the last
//!   commit. [`Store::open`] compares them and refuses with [`StoreError::Corrupt`]. A last
//!   group that sled lost and the witness kept whole is put back instead;
//! - after a failed write the store refuses further commits until it is opened again,
//!   because what reached the disk is not known any more; reads go on.
//!
//! What it must not know: what the bytes mean. No other crate names sled.

mod codec;
mod committer;
mod counters;
mod error;
mod files;
mod frame;
mod group;
mod hash;
mod key;
mod meta;
mod open;
mod options;
mod redo;
mod room;
mod row;
mod scan;
mod shared;
mod store;
mod txn;
mod verify;
mod view;
mod watchdog;
mod witness;
mod witness_writer;

#[cfg(test)]
mod fault;
#[cfg(test)]
mod tests;

pub use counters::StoreCounters;
pub use error::StoreError;
pub use options::{StoreOptions, SyncMode, VerifyOnOpen};
pub use scan::Scan;
pub use store::{CommitSeq, Store, StoreStatus};
pub use txn::{
    KEY_BYTES_MAX, TABLE_NAME_BYTES_MAX, TXN_BYTES_MAX, TXN_WRITES_MAX, Table, Txn, VALUE_BYTES_MAX,
};
