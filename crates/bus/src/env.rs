//! Where time and chance come from.
//!
//! Everything outside the pure core asks here, so that a simulation can give its own.

use std::sync::Arc;

/// Clock and random source of one node.
pub trait Env: Send + Sync + 'static {
    /// Wall clock, Unix milliseconds.
    fn now_ms(&self) -> u64;
    /// How far the wall clock may be off, milliseconds.
    fn clock_error_ms(&self) -> u64;
    /// Random bits.
    fn random(&self) -> u64;
}

impl std::fmt::Debug for dyn Env {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Env")
    }
}

/// Shared environment.
pub type SharedEnv = Arc<dyn Env>;

/// The machine's clock and the process's random source.
#[derive(Debug, Default)]
pub struct SystemEnv;

impl Env for SystemEnv {
    fn now_ms(&self) -> u64 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX))
    }
    fn clock_error_ms(&self) -> u64 {
        // Without a time service to ask, half a second is what NTP-less hosts drift
        // by in a day or so.
        500
    }
    fn random(&self) -> u64 {
        use std::hash::{BuildHasher, Hasher};
        // Keys of a fresh RandomState come from the system's random source once per
        // thread and are varied from then on.
        std::collections::hash_map::RandomState::new()
            .build_hasher()
            .finish()
    }
}
