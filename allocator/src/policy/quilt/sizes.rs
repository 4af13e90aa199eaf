//! How large units are.

use crate::driver::GRANULARITY;

/// Bytes of the smallest unit. Every unit is a multiple of it.
pub(super) const PAGE: u64 = GRANULARITY;
/// A usual unit has at most 1/256 of the peak of all units' bytes. Large units need fewer mappings. Small units fill more of
/// the gaps between blocks, because only the first and the last unit of a view's block can be partly used.
const USUAL_PART: u64 = 256;
/// Bytes of the largest usual unit.
const LARGEST_USUAL: u64 = 16 << 20;
/// If 1/512 of that peak is more than the largest usual unit, units are that large.
const LARGE_PART: u64 = 512;
/// So they are if 1/32 of the bytes that a request still needs is more: a block of gigabytes is mapped again as a whole.
const REQUEST_PART: u64 = 32;
/// Bytes of the largest unit for these two reasons.
const LARGEST_BY_NEED: u64 = 64 << 20;
/// A program that empties its cache pays for each unit again. Its units double each time, at most this often.
const MOST_DOUBLINGS: u32 = 4;
/// While there are private pools, which keep whole units, no unit is larger than after this many doublings.
const MOST_DOUBLINGS_BESIDE_POOLS: u32 = 2;
/// Units are halved instead if, after a return, more than 1/16 of that peak is free and cannot be returned, because it belongs
/// to units that are partly used.
const LEFT_PART: u64 = 16;
/// Bytes of the largest unit.
pub(super) const LARGEST: u64 = LARGEST_USUAL << MOST_DOUBLINGS;

/// What the sizes of units depend on.
#[derive(Debug, Default)]
pub(super) struct Sizes {
    /// The peak of all units' bytes.
    most_bytes: u64,
    /// How often the next units are doubled.
    doublings: u32,
}

impl Sizes {
    /// Notes the bytes of all units.
    pub(super) fn note_bytes(&mut self, bytes: u64) {
        self.most_bytes = self.most_bytes.max(bytes);
    }

    /// Notes a return of units. After it, `left` bytes are free in units that are partly used.
    pub(super) fn note_return(&mut self, left: u64) {
        self.doublings = if left > self.most_bytes / LEFT_PART {
            self.doublings.saturating_sub(1)
        } else {
            (self.doublings + 1).min(MOST_DOUBLINGS)
        };
    }

    /// Bytes of the smallest unit that is created next, unless the device has less.
    pub(super) fn least(&self) -> u64 {
        if self.doublings == 0 {
            return PAGE;
        }
        1 << self.usual().ilog2()
    }

    /// Bytes of the largest unit that is created while there are private pools.
    pub(super) fn largest_beside_pools(&self) -> u64 {
        self.usual() << MOST_DOUBLINGS_BESIDE_POOLS
    }

    /// Bytes of the next unit, of which at most `bytes` are needed.
    pub(super) fn next(&self, bytes: u64) -> u64 {
        let usual = self.usual() << self.doublings;
        let share = (self.most_bytes / LARGE_PART).max(bytes / REQUEST_PART);
        let largest = if share > LARGEST_USUAL {
            usual.max(share.min(LARGEST_BY_NEED))
        } else {
            usual
        };
        let most = largest.min(bytes).max(PAGE);
        1 << most.ilog2()
    }

    /// Bytes of a usual unit.
    fn usual(&self) -> u64 {
        (self.most_bytes / USUAL_PART).clamp(PAGE, LARGEST_USUAL)
    }
}
