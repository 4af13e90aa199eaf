//! Samples that a seed reproduces.

use std::time::{SystemTime, UNIX_EPOCH};

/// A seed that differs each time, short enough to be typed.
#[must_use]
pub fn fresh_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let nanos = now.map_or(0, |now| now.as_nanos());
    let mut state = u64::try_from(nanos & u128::from(u64::MAX)).unwrap_or(0);
    next(&mut state) % 1_000_000
}

/// Puts elements into an order that depends on the seed alone.
pub fn shuffle<T>(elements: &mut [T], seed: u64) {
    let mut state = seed;
    for end in (1..elements.len()).rev() {
        let other = next(&mut state) % (end as u64 + 1);
        elements.swap(end, usize::try_from(other).unwrap_or(0));
    }
}

/// The generator SplitMix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_order_of_all_elements() {
        let shuffled = |seed| {
            let mut elements: Vec<u32> = (0..100).collect();
            shuffle(&mut elements, seed);
            elements
        };
        assert_eq!(shuffled(1), shuffled(1));
        assert_ne!(shuffled(1), shuffled(2));
        let mut sorted = shuffled(3);
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..100));
    }
}
