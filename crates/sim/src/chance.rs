//! Every random decision of a run, drawn from its seed, and how often faults are drawn.
//!
//! What it promises: equal seeds give equal decisions as long as they are asked for in
//! the same order, which the single-threaded runtime gives. Once the run is quiet no
//! decision is a fault.
//!
//! What it must not know: what the decisions are about.

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often each fault is drawn, in thousandths of its opportunities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Faults {
    /// A call of the node into the bus or the world is where it crashes.
    pub crash: u32,
    /// A request or its answer is lost.
    pub message_lost: u32,
    /// A request is delivered twice.
    pub message_twice: u32,
    /// A request is delivered seconds late.
    pub message_late: u32,
    /// An append is applied and not answered, or not applied and not answered, or
    /// applied seconds after its asker gave up.
    pub append_unclear: u32,
    /// An append is applied and answered "fenced".
    pub append_false_fence: u32,
    /// Chance in each second that the journal refuses everything for 9 s.
    pub journal_outage: u32,
    /// A slot is written, or not, and the answer is an error.
    pub slot_unclear: u32,
    /// The executor's ledger does not take an outcome.
    pub ledger: u32,
    /// Chance in each second that probes can't look for some seconds.
    pub probe_outage: u32,
    /// A tool fails, hangs, dies after its effect or says "done" without one.
    pub tool: u32,
    /// What a tool sent arrives late.
    pub settle_late: u32,
    /// Chance in each second that the node is killed whatever it does.
    pub kill: u32,
    /// Chance in each second that the actor of an open goal panics.
    pub panic: u32,
}

impl Faults {
    /// Nothing ever goes wrong.
    pub const NONE: Faults = Faults {
        crash: 0,
        message_lost: 0,
        message_twice: 0,
        message_late: 0,
        append_unclear: 0,
        append_false_fence: 0,
        journal_outage: 0,
        slot_unclear: 0,
        ledger: 0,
        probe_outage: 0,
        tool: 0,
        settle_late: 0,
        kill: 0,
        panic: 0,
    };

    /// A mix drawn from `seed`: in each run some faults are frequent, some rare and
    /// some absent, because faults that always come together hide one another.
    pub fn swarm(seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed ^ 0x5eed_fa17);
        let mut draw = |rare: u32, frequent: u32| match rng.random_range(0..3u32) {
            0 => 0,
            1 => rare,
            _ => frequent,
        };
        Self {
            crash: draw(3, 12),
            message_lost: draw(10, 60),
            message_twice: draw(20, 150),
            message_late: draw(10, 60),
            append_unclear: draw(10, 60),
            append_false_fence: draw(10, 60),
            journal_outage: draw(10, 40),
            slot_unclear: draw(20, 120),
            ledger: draw(20, 100),
            probe_outage: draw(20, 60),
            tool: draw(100, 350),
            settle_late: draw(100, 500),
            kill: draw(10, 60),
            panic: draw(20, 100),
        }
    }
}

/// The seeded source of a run's decisions.
pub struct Chance {
    rng: Mutex<ChaCha8Rng>,
    faults: Faults,
    quiet: AtomicBool,
    /// Without delays everything happens at once, as the conformance suite wants it.
    delays: bool,
}

impl Chance {
    /// A source for `seed`; with `delays` every call takes some simulated time.
    pub fn new(seed: u64, faults: Faults, delays: bool) -> Self {
        Self {
            rng: Mutex::new(ChaCha8Rng::seed_from_u64(seed)),
            faults,
            quiet: AtomicBool::new(false),
            delays,
        }
    }

    /// From here on no fault is drawn.
    pub fn be_quiet(&self) {
        self.quiet.store(true, Ordering::Relaxed);
    }

    /// Has [`Chance::be_quiet`] been called?
    pub fn is_quiet(&self) -> bool {
        self.quiet.load(Ordering::Relaxed)
    }

    /// Is this fault drawn now?
    pub fn fault(&self, of: impl Fn(&Faults) -> u32) -> bool {
        let per_mille = of(&self.faults);
        // Nothing is drawn where nothing can come of it, so that a profile without a
        // fault runs as if the fault did not exist.
        per_mille > 0 && !self.is_quiet() && self.below(1000) < u64::from(per_mille)
    }

    /// A number in `0..end`; 0 where `end` is 0.
    pub fn below(&self, end: u64) -> u64 {
        if end == 0 {
            return 0;
        }
        self.rng().random_range(0..end)
    }

    /// A number in `from..to`, or `from` where that is empty.
    pub fn between(&self, from: u64, to: u64) -> u64 {
        from + self.below(to.saturating_sub(from))
    }

    /// True in `per_mille` of a thousand cases, quiet or not: for what publishers do.
    pub fn happens(&self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }

    /// 64 random bits.
    pub fn bits(&self) -> u64 {
        self.rng().next_u64()
    }

    /// Does anything take time?
    pub fn has_delays(&self) -> bool {
        self.delays
    }

    /// Sleeps a moment of `from..to` microseconds.
    pub async fn delay_us(&self, from: u64, to: u64) {
        if self.delays {
            let us = self.between(from, to);
            tokio::time::sleep(Duration::from_micros(us)).await;
        }
    }

    fn rng(&self) -> MutexGuard<'_, ChaCha8Rng> {
        // Drawing a number can't panic half-way.
        self.rng.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_everything_and_quiet_ends_the_faults() {
        let all = Faults {
            crash: 500,
            ..Faults::NONE
        };
        let draws = |seed| {
            let chance = Chance::new(seed, all, true);
            let drawn: Vec<_> = (0..64).map(|_| chance.fault(|f| f.crash)).collect();
            chance.be_quiet();
            assert!((0..64).all(|_| !chance.fault(|f| f.crash)));
            drawn
        };
        assert_eq!(draws(7), draws(7));
        assert_ne!(draws(7), draws(8));
        assert!(draws(7).contains(&true) && draws(7).contains(&false));
    }
}
