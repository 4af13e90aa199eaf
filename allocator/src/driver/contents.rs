//! Contents of device memory: patterns written to blocks and checked later.
//!
//! Overlapping blocks, or memory reused while another stream still works on it, show up as wrong contents.
//! Each block has a seed; word `i` of its pattern is [`word`]`(seed, i)`. On a GPU, two kernels write and
//! compare the pattern ([`PTX`]).

use super::tap::{Hook, Tap};
use super::{DeviceAddr, Driver, Status, StreamId};

/// Bytes of a word.
pub const WORD: u64 = 8;

/// The kernel that writes a pattern: `(u64* first, u64 words, u64 seed)`.
pub const FILL: &str = "coalesce_fill";

/// The kernel that compares memory with a pattern and adds the number of mismatches to a count:
/// `(const u64* first, u64 words, u64 seed, u64* mismatches)`.
pub const CHECK: &str = "coalesce_check";

/// The kernel that finds the first word that is not `word`: `(const u64* first, u64 words, u64 word, u64* found)`. If
/// there is one, `*found` becomes the complement of its number, so that an atomic maximum keeps the first; else it stays 0.
pub const FIND: &str = "coalesce_find";

/// Threads per block of the kernels.
pub const THREADS: u32 = 256;
/// Maximum number of blocks. Threads stride over the words, so any number of blocks covers all of them; this
/// many keep the largest GPUs busy.
pub const MOST_BLOCKS: u32 = 2048;

/// Source of the kernels, for GPUs since Maxwell (`sm_50`) and drivers since CUDA 9.0 (PTX 6.0). The driver
/// compiles it for its device. The assemblers of CUDA 12.9 and 13.5 accept it.
pub const PTX: &str = include_str!("contents.ptx");

/// Returns the number of blocks to launch a kernel with for `words`.
#[must_use]
pub fn blocks(words: u64) -> u32 {
    let blocks = words.div_ceil(u64::from(THREADS));
    u32::try_from(blocks).map_or(MOST_BLOCKS, |blocks| blocks.clamp(1, MOST_BLOCKS))
}

/// Returns word `i` of a pattern. A pattern shifted by some words differs from the original.
#[must_use]
pub const fn word(seed: u64, i: u64) -> u64 {
    mixed(seed.wrapping_add(i))
}

/// Mixes a number with SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators",
/// OOPSLA 2014): a bijection in which every output bit depends on every input bit.
#[must_use]
pub const fn mixed(number: u64) -> u64 {
    let z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A device whose memory can be written and checked in stream order.
pub trait Contents: Driver {
    /// Maximum number of checks before [`Contents::mismatches`] must be called.
    const CHECKS: usize;

    /// Writes the pattern of `seed` to `words` words at `addr` as work of `stream`.
    ///
    /// # Errors
    /// If the device refuses the work.
    fn fill(&mut self, addr: DeviceAddr, words: u64, seed: u64, stream: StreamId) -> Status;

    /// Counts the words at `addr` that differ from the pattern of `seed`, as work of `stream`.
    ///
    /// # Errors
    /// If the device refuses the work, or [`Contents::CHECKS`] are pending.
    fn check(&mut self, addr: DeviceAddr, words: u64, seed: u64, stream: StreamId) -> Status;

    /// Makes later work of `follower` wait for the work submitted to `stream` so far.
    ///
    /// # Errors
    /// If the device refuses.
    fn follow(&mut self, follower: StreamId, stream: StreamId) -> Status;

    /// Waits for all streams and returns the number of mismatches of each check since the last call, in
    /// order.
    ///
    /// # Errors
    /// If the work fails.
    fn mismatches(&mut self) -> Status<Vec<u64>>;
}

/// Bypasses the hook: these calls are not the allocator's.
impl<D: Contents, H: Hook> Contents for Tap<D, H> {
    const CHECKS: usize = D::CHECKS;

    fn fill(&mut self, addr: DeviceAddr, words: u64, seed: u64, stream: StreamId) -> Status {
        self.driver_mut().fill(addr, words, seed, stream)
    }

    fn check(&mut self, addr: DeviceAddr, words: u64, seed: u64, stream: StreamId) -> Status {
        self.driver_mut().check(addr, words, seed, stream)
    }

    fn follow(&mut self, follower: StreamId, stream: StreamId) -> Status {
        self.driver_mut().follow(follower, stream)
    }

    fn mismatches(&mut self) -> Status<Vec<u64>> {
        self.driver_mut().mismatches()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernels and the simulated device must compute the same words. Those of seed 0 are the published
    /// outputs of SplitMix64, whose state advances by the constant added first.
    #[test]
    fn the_pattern_is_splitmix64() {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        assert_eq!(mixed(0), 0xe220_a839_7b1d_cdaf);
        assert_eq!(mixed(STEP), 0x6e78_9e6a_a1b9_65f4);
        assert_eq!(mixed(STEP.wrapping_mul(2)), 0x06c4_5d18_8009_454f);
        assert_eq!(word(u64::MAX, 1), mixed(0));
    }

    /// The PTX repeats the constants of [`mixed`].
    #[test]
    fn the_kernels_use_the_same_constants() {
        let times = |text: &str| PTX.matches(text).count();
        for constant in [
            0x9e37_79b9_7f4a_7c15_u64,
            0xbf58_476d_1ce4_e5b9,
            0x94d0_49bb_1331_11eb,
        ] {
            assert_eq!(times(&format!("0x{constant:x}")), 2, "{constant:x}");
        }
        for shift in [30, 27, 31] {
            assert_eq!(times(&format!("shr.u64 %y, %z, {shift};")), 2);
        }
        for kernel in [FILL, CHECK, FIND] {
            assert_eq!(times(&format!(".visible .entry {kernel}(")), 1);
        }
    }

    #[test]
    fn the_number_of_blocks_follows_the_work() {
        assert_eq!([1, 256, 257].map(blocks), [1, 1, 2]);
        assert_eq!([1 << 31, u64::MAX].map(blocks), [MOST_BLOCKS; 2]);
    }
}
