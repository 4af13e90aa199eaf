//! What lies behind a device's addresses: patterns that are written there and looked for again.
//!
//! An allocator only hands out addresses; that two of its blocks share a byte, or that memory is handed out
//! while another stream still works on it, shows in what the memory holds. The pattern of a block follows
//! from a number of its own, the seed: word `i` is [`word`]`(seed, i)`. On a GPU two kernels write and
//! compare it, which are carried as text ([`PTX`]).

use super::tap::{Hook, Tap};
use super::{DeviceAddr, Driver, DriverError, StreamId};

/// Bytes of a word.
pub const WORD: u64 = 8;

/// The kernel that writes a pattern: `(u64* first, u64 words, u64 seed)`.
pub const FILL: &str = "coalesce_fill";

/// The kernel that compares with a pattern and adds the words that are others to a count:
/// `(const u64* first, u64 words, u64 seed, u64* mismatches)`.
pub const CHECK: &str = "coalesce_check";

/// Threads of a block of either kernel.
pub const THREADS: u32 = 256;
/// Blocks at most. Each thread goes on in strides of all threads, so any number covers all words; as many
/// keep the largest GPUs busy.
pub const MOST_BLOCKS: u32 = 2048;

/// Both kernels, for every GPU since Maxwell (`sm_50`) and every driver since CUDA 9.0 (PTX 6.0), which
/// compiles the text for its device. The assemblers of CUDA 12.9 and 13.5 take it.
pub const PTX: &str = include_str!("contents.ptx");

/// Blocks that the kernels are launched with for so many words.
#[must_use]
pub fn blocks(words: u64) -> u32 {
    let blocks = words.div_ceil(u64::from(THREADS));
    u32::try_from(blocks).map_or(MOST_BLOCKS, |blocks| blocks.clamp(1, MOST_BLOCKS))
}

/// Word `i` of the pattern of a seed: that of a block shifted by some words is another.
#[must_use]
pub const fn word(seed: u64, i: u64) -> u64 {
    mixed(seed.wrapping_add(i))
}

/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014): each
/// number has one of its own, in which every bit depends on every bit.
#[must_use]
pub const fn mixed(number: u64) -> u64 {
    let z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A device whose memory can be written and looked at, in the order of the work on its streams.
pub trait Contents: Driver {
    /// Checks that may be under way before [`Contents::mismatches`] has to be asked.
    const CHECKS: usize;

    /// Lets `stream` write the pattern of `seed` to `words` words from `addr` on.
    ///
    /// # Errors
    /// If the device refuses the work.
    fn fill(
        &mut self,
        addr: DeviceAddr,
        words: u64,
        seed: u64,
        stream: StreamId,
    ) -> Result<(), DriverError>;

    /// Lets `stream` count which of `words` words from `addr` on are not those of the pattern of `seed`.
    ///
    /// # Errors
    /// If the device refuses the work, or [`Contents::CHECKS`] are under way.
    fn check(
        &mut self,
        addr: DeviceAddr,
        words: u64,
        seed: u64,
        stream: StreamId,
    ) -> Result<(), DriverError>;

    /// Lets all later work of `follower` wait until `stream` has done the work it has now.
    ///
    /// # Errors
    /// If the device refuses.
    fn follow(&mut self, follower: StreamId, stream: StreamId) -> Result<(), DriverError>;

    /// Waits for all work of all streams; words that were wrong in each check since the last time, in the
    /// order of the calls.
    ///
    /// # Errors
    /// If the work fails.
    fn mismatches(&mut self) -> Result<Vec<u64>, DriverError>;
}

/// Passed by, not to be seen: it is not the allocator's doing.
impl<D: Contents, H: Hook> Contents for Tap<D, H> {
    const CHECKS: usize = D::CHECKS;

    fn fill(
        &mut self,
        addr: DeviceAddr,
        words: u64,
        seed: u64,
        stream: StreamId,
    ) -> Result<(), DriverError> {
        self.driver_mut().fill(addr, words, seed, stream)
    }

    fn check(
        &mut self,
        addr: DeviceAddr,
        words: u64,
        seed: u64,
        stream: StreamId,
    ) -> Result<(), DriverError> {
        self.driver_mut().check(addr, words, seed, stream)
    }

    fn follow(&mut self, follower: StreamId, stream: StreamId) -> Result<(), DriverError> {
        self.driver_mut().follow(follower, stream)
    }

    fn mismatches(&mut self) -> Result<Vec<u64>, DriverError> {
        self.driver_mut().mismatches()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers themselves: the kernels and whoever stands in for them have the same. Those of seed 0
    /// are the published ones of SplitMix64, whose state grows by the constant added first.
    #[test]
    fn the_pattern_is_the_published_one() {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        assert_eq!(mixed(0), 0xe220_a839_7b1d_cdaf);
        assert_eq!(mixed(STEP), 0x6e78_9e6a_a1b9_65f4);
        assert_eq!(mixed(STEP.wrapping_mul(2)), 0x06c4_5d18_8009_454f);
        assert_eq!(word(u64::MAX, 1), mixed(0));
    }

    /// Steps, shifts and factors stand in the text a second time.
    #[test]
    fn the_kernels_mix_by_the_same_numbers() {
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
        for kernel in [FILL, CHECK] {
            assert_eq!(times(&format!(".visible .entry {kernel}(")), 1);
        }
    }

    #[test]
    fn there_are_as_many_blocks_as_there_is_work() {
        assert_eq!([1, 256, 257].map(blocks), [1, 1, 2]);
        assert_eq!([1 << 31, u64::MAX].map(blocks), [MOST_BLOCKS; 2]);
    }
}
