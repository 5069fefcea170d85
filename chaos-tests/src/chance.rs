//! Chance under a seed, so that a failure can be played again.

/// A small generator (SplitMix64): the same seed gives the same numbers on every
/// machine and in every version.
#[derive(Debug, Clone)]
pub struct Chance(u64);

impl Chance {
    /// A generator for part `part` of the experiment under `seed`.
    pub fn new(seed: u64, part: u64) -> Self {
        let mut chance = Self(seed ^ part.wrapping_mul(0xa076_1d64_78bd_642f));
        chance.next();
        chance
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from `from` to `to`, both included; `from` where the range is empty.
    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        let span = to.saturating_sub(from).saturating_add(1);
        from + self.next() % span
    }
}

/// The seed of this run: `DETENT_SEED`, or one of the clock's.
///
/// # Errors
/// `DETENT_SEED` is not a whole number.
pub fn seed() -> crate::Result<u64> {
    match std::env::var("DETENT_SEED") {
        Ok(text) => text
            .parse()
            .map_err(|e| format!("DETENT_SEED={text:?}: {e}")),
        Err(_) => {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            // Short enough to type.
            Ok(now.map_or(1, |d| d.as_micros() as u64 % 1_000_000_000))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_its_numbers_again_and_parts_differ() {
        let draw = |seed, part| {
            let mut chance = Chance::new(seed, part);
            (0..8).map(|_| chance.between(1, 1000)).collect::<Vec<_>>()
        };
        assert_eq!(draw(7, 1), draw(7, 1));
        assert_ne!(draw(7, 1), draw(7, 2));
        assert_ne!(draw(7, 1), draw(8, 1));
        assert!(draw(7, 1).iter().all(|n| (1..=1000).contains(n)));
    }
}
