//! The bus of one process: channels for messages, the node's store for what is kept.
//!
//! What it is for: one binary that runs goals with nothing installed.
//!
//! What it promises: the five traits as the [`crate::conformance`] suite states them. A
//! request costs a task and a channel, an append one row and one head in a group commit.
//! Nothing waits without a bound: see [`LocalOptions`].
//!
//! What it must not know: what the bytes mean, and that there are other nodes. Other
//! processes of the same machine come in through [`socket`].

mod blobs;
mod forget;
mod journal;
mod keys;
mod leases;
mod messages;
mod routes;
mod service;
mod slots;
pub mod socket;
mod storage;
mod subscription;

use crate::Bus;
use crate::env::{SharedEnv, SystemEnv};
use detent_protocol::{Code, Fault, MESSAGE_BYTES_MAX};
use detent_store::Store;
use std::path::PathBuf;
use std::sync::Arc;
use storage::Storage;

/// Settings of a local bus.
#[derive(Debug, Clone)]
pub struct LocalOptions {
    /// Keeps the journals and the slots.
    pub store: Store,
    /// Folder of the bodies; made if it is missing. Belongs to this bus alone: whoever
    /// has the store has it too.
    pub blobs_dir: PathBuf,
    /// Largest request, answer or event, bytes. As on a network if not changed, so that
    /// nothing works here that fails there.
    pub message_bytes_max: usize,
    /// Services at the same time; one more is [`crate::BusError::Busy`].
    pub services_max: usize,
    /// Subscriptions at the same time; one more is [`crate::BusError::Busy`].
    pub subscriptions_max: usize,
    /// Bytes of events that one subscription holds; beyond it events are dropped and
    /// counted, as beyond its `queue_max`.
    pub subscription_bytes_max: usize,
    /// Leases held at the same time; one more is refused.
    pub leases_max: usize,
    /// Bodies that are read or written at the same time; further ones wait.
    pub blobs_at_once_max: usize,
    /// Tells how long tombstones were kept.
    pub env: SharedEnv,
}

impl LocalOptions {
    /// 1 MiB a message ([`MESSAGE_BYTES_MAX`]), 4,096 services, 65,536 subscriptions of 16 MiB, 65,536 leases, 8
    /// bodies at once.
    pub fn new(store: Store, blobs_dir: impl Into<PathBuf>) -> Self {
        Self {
            store,
            blobs_dir: blobs_dir.into(),
            message_bytes_max: MESSAGE_BYTES_MAX,
            services_max: 4096,
            subscriptions_max: 65_536,
            subscription_bytes_max: 16 << 20,
            leases_max: 65_536,
            blobs_at_once_max: 8,
            env: Arc::new(SystemEnv),
        }
    }

    fn validate(&self) -> Result<(), Fault> {
        let bounds = [
            ("message_bytes_max", self.message_bytes_max),
            ("services_max", self.services_max),
            ("subscriptions_max", self.subscriptions_max),
            ("subscription_bytes_max", self.subscription_bytes_max),
            ("leases_max", self.leases_max),
            ("blobs_at_once_max", self.blobs_at_once_max),
        ];
        match bounds.into_iter().find(|(_, bound)| *bound == 0) {
            Some((name, _)) => Err(Fault::new(
                Code::ConfigInvalid,
                format!("{name} must be at least 1"),
            )),
            None => Ok(()),
        }
    }
}

/// Makes a bus that lives in this process.
#[derive(Debug)]
pub struct LocalBus;

impl LocalBus {
    /// Opens the five parts over `options.store`. Makes the folder of the bodies and
    /// removes what a killed process left half-written there: short blocking I/O.
    ///
    /// The store outlives the bus: closing it is up to who opened it.
    ///
    /// # Errors
    /// `CONFIG_INVALID` for a bound of 0, `JOURNAL_STORAGE` where the folder of the bodies
    /// can't be made.
    pub fn open(options: LocalOptions) -> Result<Bus, Fault> {
        options.validate()?;
        let storage = Arc::new(Storage::new(options.store.clone()));
        Ok(Bus {
            messages: Arc::new(messages::LocalMessages::new(&options)),
            journal: Arc::new(journal::LocalJournal::new(
                Arc::clone(&storage),
                Arc::clone(&options.env),
            )),
            slots: Arc::new(slots::LocalSlots::new(storage)),
            leases: Arc::new(leases::LocalLeases::new(options.leases_max)),
            blobs: Arc::new(blobs::LocalBlobs::open(
                options.blobs_dir,
                options.blobs_at_once_max,
            )?),
            inbox: None,
        })
    }
}
