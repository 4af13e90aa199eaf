//! What memory is filled with when its contents are checked.
//!
//! A block is filled with 64-bit words that follow from a number of its own, the seed, and checked
//! before it is given back. Whoever wrote to it in between has left a word that is not the block's.
//! Everything that fills or checks follows [`word`], on the device and on the host.

/// The word at position `index` of memory that is filled for `seed`: SplitMix64 of their sum.
///
/// It is a bijection of the sum, so words of one sum are equal and words of two sums never are; seeds of
/// blocks must lie further apart than the blocks are long, in words.
#[must_use]
pub const fn word(seed: u64, index: u64) -> u64 {
    // Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014.
    let mut z = seed.wrapping_add(index).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The generator's known output: one step from state 0.
    #[test]
    fn it_is_split_mix() {
        assert_eq!(word(0, 0), 0xe220_a839_7b1d_cdaf);
        assert_eq!(word(5, 3), word(8, 0));
        assert_ne!(word(5, 3), word(5, 4));
    }
}
