//! Random numbers that are the same on every platform and in every version.
//!
//! Uses only `next_u64` of ChaCha8: distributions in libraries change between versions, and
//! floating-point results between platforms.

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng as _, SeedableRng};

/// A random number generator.
#[derive(Clone, Debug)]
pub struct Rng(ChaCha8Rng);

impl Rng {
    /// Creates a generator with a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        Self(ChaCha8Rng::from_seed(bytes))
    }

    /// A number below `bound`, or 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        let product = u128::from(self.0.next_u64()) * u128::from(bound);
        (product >> 64) as u64
    }

    /// A number from `low` to `high`, inclusive.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below((high - low.min(high)).saturating_add(1))
    }

    /// A number from 1 to 2^`bits` − 1, with each bit length equally likely.
    pub fn of_any_magnitude(&mut self, bits: u32) -> u64 {
        let floor = 1 << self.below(u64::from(bits.clamp(1, 64)));
        floor + self.below(floor)
    }

    /// A number from `low` to `high`, inclusive, with each bit length equally likely.
    pub fn log_uniform(&mut self, low: u64, high: u64) -> u64 {
        let bits = |number: u64| u64::from(number.max(1).ilog2());
        let floor = 1 << self.between(bits(low), bits(high));
        let ceiling = (floor - 1) + floor;
        self.between(low.max(floor), high.min(ceiling))
    }

    /// True with probability `part` / `whole`.
    pub fn happens(&mut self, part: u64, whole: u64) -> bool {
        self.below(whole) < part
    }

    /// Shuffles a list.
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for last in (1..list.len()).rev() {
            let other = self.below(last as u64 + 1) as usize;
            list.swap(last, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Rng;

    /// A change of these numbers changes every workload.
    #[test]
    fn seed_determines_the_numbers() {
        let mut rng = Rng::new(7);
        let numbers: Vec<u64> = (0..4).map(|_| rng.below(1000)).collect();
        assert_eq!(numbers, [764, 465, 5, 301]);
    }

    #[test]
    fn numbers_are_within_bounds() {
        let mut rng = Rng::new(1);
        for _ in 0..1000 {
            assert!(rng.below(3) < 3);
            assert!((5..=9).contains(&rng.between(5, 9)));
            assert!((7..=900).contains(&rng.log_uniform(7, 900)));
            assert!((1..1 << 20).contains(&rng.of_any_magnitude(20)));
        }
        assert_eq!((rng.below(0), rng.between(4, 4)), (0, 4));
        assert!(rng.of_any_magnitude(64) > 0);
    }

    #[test]
    fn shuffle_keeps_all_items() {
        let mut list: Vec<u32> = (0..50).collect();
        Rng::new(3).shuffle(&mut list);
        assert!(!list.is_sorted());
        list.sort_unstable();
        assert!(list.into_iter().eq(0..50));
    }
}
