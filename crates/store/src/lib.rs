//! One node's store: ordered byte tables in sled behind a narrow API.
//!
//! What it is for: the journal of the one-process bus, where every commit must be
//! durable and rot must be found, and a node's cache and ledger.
//!
//! What it promises:
//! - a [`Store::commit`] that returned is on the disk: one synchronous write of the witness, a
//!   ring of redo records beside sled, shared by all transactions of a group. sled is synced
//!   later, for many groups at once, and gets back what it lacks when the store is opened;
//! - a transaction is atomic over all its tables, and its conditions are evaluated
//!   serially, so compare-and-swap is exact;
//! - reads see only what is durable;
//! - no row is lost, altered or brought back in silence: sled drops the tail of its log
//!   after a flipped byte without a word, so each row carries a checksum, each group a
//!   running count and digest of the live rows, and the witness the last commits, each twice.
//!   [`Store::open`] compares them, puts back what only the witness has, and refuses with
//!   [`StoreError::Corrupt`] when something is missing. Damage to a single copy in the witness
//!   costs nothing;
//! - after a failed write the store refuses further commits until it is opened again,
//!   because what reached the disk is not known any more; reads go on.
//!
//! What it must not know: what the bytes mean. No other crate names sled.

mod codec;
mod committer;
mod counters;
mod error;
mod fault;
mod files;
mod frame;
mod group;
mod hash;
mod inbox;
mod key;
mod legacy;
mod meta;
mod open;
mod options;
mod redo;
mod ring;
mod room;
mod row;
mod scan;
mod shared;
mod store;
mod txn;
mod verify;
mod view;
mod watchdog;

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
