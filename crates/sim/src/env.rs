//! The clock and the random source of a simulated node.

use crate::chance::Chance;
use crate::trace::Trace;
use detent_bus::env::Env;
use std::sync::Arc;

/// When every run begins, Unix milliseconds.
pub const EPOCH_MS: u64 = 1_760_000_000_000;

/// Simulated time and seeded chance.
pub struct SimEnv {
    chance: Arc<Chance>,
    trace: Arc<Trace>,
}

impl SimEnv {
    /// The environment of the run with this chance and trace.
    pub fn new(chance: Arc<Chance>, trace: Arc<Trace>) -> Self {
        Self { chance, trace }
    }
}

impl Env for SimEnv {
    fn now_ms(&self) -> u64 {
        EPOCH_MS + self.trace.elapsed_us() / 1000
    }
    fn clock_error_ms(&self) -> u64 {
        0
    }
    fn random(&self) -> u64 {
        self.chance.bits()
    }
}
