//! How large units are.

use crate::driver::GRANULARITY;

/// Bytes of the smallest unit, and the granularity of all of them.
pub(super) const PAGE: u64 = GRANULARITY;
/// A unit is usually at most this fraction (1/256) of the most memory that all units ever had, so that small programs have
/// small units. A mapping costs the same for a unit of any size, but a view can only contain whole units in its middle.
const USUAL_PART: u64 = 256;
/// Bytes of the largest usual unit.
const LARGEST_USUAL: u64 = 16 << 20;
/// Units are larger if even this fraction (1/512) of that memory is.
const LARGE_PART: u64 = 512;
/// And if this fraction (1/32) of what a request lacks is: a block of gigabytes is mapped again as a whole.
const REQUEST_PART: u64 = 32;
/// Bytes of the largest of these.
const LARGEST_BY_NEED: u64 = 64 << 20;
/// A program that empties its cache pays for each unit again. Its units double each time, but not more often than this.
const MOST_DOUBLINGS: u32 = 4;
/// While there are private pools, which keep whole units, no unit is larger than after this many doublings.
const MOST_DOUBLINGS_BESIDE_POOLS: u32 = 2;
/// They are halved instead if more than this fraction (1/16) of its memory is free then but cannot be returned, because units
/// are in use in part.
const LEFT_PART: u64 = 16;
/// Bytes of the largest unit.
pub(super) const LARGEST: u64 = LARGEST_USUAL << MOST_DOUBLINGS;

/// What the sizes of units depend on.
#[derive(Debug, Default)]
pub(super) struct Sizes {
    /// The most bytes that all units ever had.
    most_bytes: u64,
    /// How often the next units are doubled.
    doublings: u32,
}

impl Sizes {
    /// Notes the bytes of all units.
    pub(super) fn note_bytes(&mut self, bytes: u64) {
        self.most_bytes = self.most_bytes.max(bytes);
    }

    /// Notes that units were returned, and that `left` bytes are free in those that could not be.
    pub(super) fn note_return(&mut self, left: u64) {
        self.doublings = if left > self.most_bytes / LEFT_PART {
            self.doublings.saturating_sub(1)
        } else {
            (self.doublings + 1).min(MOST_DOUBLINGS)
        };
    }

    /// The least bytes of the next units, unless the device has less.
    pub(super) fn least(&self) -> u64 {
        if self.doublings == 0 {
            return PAGE;
        }
        1 << self.usual().ilog2()
    }

    /// The most bytes of the next units while there are private pools.
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
