//! The third implementation of the bus: in memory, on the paused clock, with faults
//! drawn from the seed.
//!
//! [`Fabric`] is what is outside every node: the broker with what it keeps. A
//! [`Port`] is one node life's (or one publisher's) connection to it, and the place
//! where that life may crash: before or after each call.
//!
//! What it promises: with [`Faults::NONE`](crate::chance::Faults::NONE) it passes the
//! conformance suite. What was confirmed is kept whatever crashes; services and
//! subscriptions end with the life that made them.
//!
//! What it must not know: what the bytes mean.

mod blobs;
mod journal;
mod leases;
mod messages;
mod services;
mod slots;
mod subscription;

pub(crate) use journal::JournalStore;

use crate::chance::{Chance, Faults};
use crate::life::Life;
use crate::node::LedgerRows;
use crate::trace::Trace;
use detent_bus::{Bus, Lease, SlotKey};
use detent_protocol::effect::SlotMark;
use detent_protocol::json::Digest;
use detent_protocol::{Code, Fault, NodeId};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// What is outside every node: the broker, and each node's disk.
pub struct Fabric {
    pub(crate) chance: Arc<Chance>,
    pub(crate) trace: Arc<Trace>,
    pub(crate) journal: Mutex<JournalStore>,
    slots: Mutex<BTreeMap<SlotKey, SlotMark>>,
    leases: Mutex<LeaseTable>,
    blobs: Mutex<BTreeMap<Digest, bytes::Bytes>>,
    routes: Mutex<services::Routes>,
    pub(crate) ledgers: Mutex<BTreeMap<NodeId, LedgerRows>>,
    journal_back_at: Mutex<Option<Instant>>,
}

#[derive(Default)]
struct LeaseTable {
    revision: u64,
    held: BTreeMap<String, (Lease, Option<Instant>)>,
}

impl Fabric {
    /// An empty one.
    pub fn new(chance: Arc<Chance>, trace: Arc<Trace>) -> Arc<Self> {
        Arc::new(Self {
            chance,
            trace,
            journal: Mutex::default(),
            slots: Mutex::default(),
            leases: Mutex::default(),
            blobs: Mutex::default(),
            routes: Mutex::default(),
            ledgers: Mutex::default(),
            journal_back_at: Mutex::new(None),
        })
    }

    /// A bus on which nothing goes wrong and nothing takes time, for the conformance
    /// suite. To be called on a tokio runtime.
    pub fn reliable() -> Bus {
        let chance = Arc::new(Chance::new(0, Faults::NONE, false));
        let fabric = Self::new(chance, Arc::new(Trace::new(false)));
        // "sim" is a valid name.
        #[allow(clippy::expect_used)]
        let name = NodeId::new("sim").expect("a name");
        Port::new(fabric, Arc::new(Life::outside(name))).bus()
    }

    /// The journal and the slots take nothing and give nothing for so long.
    pub(crate) fn journal_away_for(&self, time: Duration) {
        *lock(&self.journal_back_at) = Some(Instant::now() + time);
    }

    /// Everything works from now on.
    pub(crate) fn mend(&self) {
        *lock(&self.journal_back_at) = None;
    }

    fn check_journal(&self) -> Result<(), Fault> {
        match *lock(&self.journal_back_at) {
            Some(at) if Instant::now() < at => {
                Err(Fault::new(Code::JournalStorage, "the journal is away"))
            }
            _ => Ok(()),
        }
    }
}

/// One life's connection. Clones are the same connection.
#[derive(Clone)]
pub struct Port {
    pub(crate) fabric: Arc<Fabric>,
    pub(crate) life: Arc<Life>,
}

impl Port {
    /// The connection of `life`.
    pub fn new(fabric: Arc<Fabric>, life: Arc<Life>) -> Self {
        Self { fabric, life }
    }

    /// As the five traits.
    pub fn bus(&self) -> Bus {
        let port = Arc::new(self.clone());
        Bus {
            messages: port.clone(),
            journal: port.clone(),
            slots: port.clone(),
            leases: port.clone(),
            blobs: port,
            inbox: None,
        }
    }

    /// A place at which the node may crash. In a life that is over nothing goes past it.
    pub(crate) async fn point(&self, place: &str) {
        self.life.alive().await;
        if self.life.is_mortal() && self.chance().fault(|f| f.crash) {
            let (node, number) = (self.life.node(), self.life.number());
            self.fabric
                .trace
                .say(format!("crash {node}/{number} at {place}"));
            self.life.end();
            self.life.alive().await;
        }
    }

    /// Takes a moment, in which the life may end.
    async fn travel(&self) {
        self.chance().delay_us(200, 4_000).await;
        self.life.alive().await;
    }

    fn chance(&self) -> &Chance {
        &self.fabric.chance
    }
}

/// Nothing here panics while it holds a lock; a poisoned one holds whole data.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
