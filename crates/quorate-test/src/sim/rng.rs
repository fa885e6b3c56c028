use std::{ops::RangeInclusive, time::Duration};

/// Random numbers from a seed (splitmix64). The generator is part of this crate, so that a seed that once failed still
/// fails after every update of dependencies.
#[derive(Clone, Debug)]
pub struct SeedRng(u64);

impl SeedRng {
    /// Returns the random stream named `label` of `seed`. The streams of a seed are independent: a further draw
    /// from one leaves the numbers of the others unchanged.
    pub fn new(seed: u64, label: &str) -> Self {
        // This is FNV-1a over the label. The multiplication makes the streams of neighbouring seeds differ
        // widely.
        let start = 0xcbf2_9ce4_8422_2325 ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self(label.bytes().fold(start, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)))
    }

    /// Returns a new stream that is derived from this one.
    pub fn split(&mut self) -> Self {
        Self(self.bits())
    }

    /// Returns 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number from `range`, both ends included.
    pub fn number(&mut self, range: RangeInclusive<u64>) -> u64 {
        let width = range.end().saturating_sub(*range.start()).saturating_add(1);
        range.start() + self.bits() % width
    }

    /// Returns a number from `range`, both ends included.
    pub fn signed(&mut self, range: RangeInclusive<i64>) -> i64 {
        let width = range.end().abs_diff(*range.start());
        range.start().saturating_add_unsigned(self.number(0..=width))
    }

    /// Returns whole milliseconds from `range`.
    pub fn millis(&mut self, range: RangeInclusive<u64>) -> Duration {
        Duration::from_millis(self.number(range))
    }

    /// Returns a number of whole milliseconds, up to a limit that is itself drawn from `tops`. With limits of
    /// different sizes, short and long waits both occur.
    pub fn millis_up_to(&mut self, tops: &[u64]) -> Duration {
        let top = tops[self.index(tops.len())];
        self.millis(0..=top)
    }

    /// Returns `true` with a probability of `per_mille` / 1,000.
    pub fn chance(&mut self, per_mille: u64) -> bool {
        self.number(0..=999) < per_mille
    }

    /// Returns an index below `len`, which must not be zero.
    pub fn index(&mut self, len: usize) -> usize {
        (self.bits() % len as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_and_a_label_fix_the_numbers() {
        let draw = |seed, label| {
            let mut rng = SeedRng::new(seed, label);
            [rng.bits(), rng.bits(), rng.bits()]
        };
        assert_eq!(draw(7, "net"), draw(7, "net"));
        assert_ne!(draw(7, "net"), draw(8, "net"));
        assert_ne!(draw(7, "net"), draw(7, "worker"));
        // These values must never change. Otherwise the seeds in old reports would give other histories.
        assert_eq!(SeedRng::new(1, "pin").bits(), 8_608_811_249_459_458_844);
    }

    #[test]
    fn ranges_are_kept_and_reached() {
        let mut rng = SeedRng::new(1, "range");
        let drawn: Vec<i64> = (0..200).map(|_| rng.signed(-2..=2)).collect();
        assert!(drawn.iter().all(|n| (-2..=2).contains(n)));
        assert!((-2..=2).all(|n| drawn.contains(&n)));
        assert!((0..200).any(|_| rng.chance(500)) && !(0..200).any(|_| rng.chance(0)));
    }
}
