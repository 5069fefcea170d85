//! Instants on CLOCK_BOOTTIME: shared by all processes of one boot, never set
//! back, and counting the time the machine was suspended. It must not know the
//! wall clock.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// A point in time in nanoseconds since the machine booted (CLOCK_BOOTTIME).
///
/// Comparable between processes on one machine within one boot, and
/// meaningless anywhere else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BootInstant(pub u64);

impl BootInstant {
    /// The present. Safe to call between fork and exec.
    #[must_use]
    pub fn now() -> Self {
        let now = clock_gettime(ClockId::Boottime);
        let secs = u64::try_from(now.tv_sec).unwrap_or(0);
        let nanos = u64::try_from(now.tv_nsec).unwrap_or(0);
        Self(secs.saturating_mul(1_000_000_000).saturating_add(nanos))
    }

    /// This instant moved into the future; saturates at the end of time.
    #[must_use]
    pub fn plus(self, by: Duration) -> Self {
        let by_ns = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(by_ns))
    }

    /// How long after `earlier` this instant lies; zero when it lies before.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_instead_of_wrapping() {
        let late = BootInstant(u64::MAX - 1);
        assert_eq!(late.plus(Duration::from_secs(1)), BootInstant(u64::MAX));
        assert_eq!(BootInstant(1).since(late), Duration::ZERO);
        assert_eq!(
            BootInstant(5).plus(Duration::from_nanos(7)),
            BootInstant(12)
        );
    }

    #[test]
    fn the_clock_runs_forward() {
        let first = BootInstant::now();
        assert!(first.0 > 0);
        assert!(BootInstant::now() >= first);
    }
}
