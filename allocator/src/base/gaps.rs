//! Free ranges of addresses: the best fit, and among equal ranges the oldest.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Free ranges, called gaps. A request takes the start of a gap. What remains of the gap counts as new, and so does a gap
/// that grows.
///
/// Invariants: gaps do not overlap; both indexes hold the same gaps.
#[derive(Debug, Default)]
pub(crate) struct Gaps {
    by_start: BTreeMap<u64, Gap>,
    /// Bytes, age and start: the smallest gap first, and among equal gaps the oldest.
    by_size: BTreeSet<(u64, u64, u64)>,
    /// The age of the next gap.
    next_age: u64,
}

/// A gap, without its start.
#[derive(Clone, Copy, Debug)]
struct Gap {
    bytes: u64,
    /// Older gaps have a smaller age.
    age: u64,
}

impl Gaps {
    /// All gaps in the order of their addresses: start and bytes.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, u64)> {
        self.by_start.iter().map(|(&start, gap)| (start, gap.bytes))
    }

    /// Returns the start and the bytes of each gap of at least `bytes`: the smallest gap first, and among equal gaps the oldest.
    pub(crate) fn fitting(&self, bytes: u64) -> impl Iterator<Item = (u64, u64)> {
        let from = self.by_size.range((bytes, 0, 0)..);
        from.map(|&(bytes, _, start)| (start, bytes))
    }

    /// Adds a gap that is not joined with others.
    pub(crate) fn add(&mut self, start: u64, bytes: u64) {
        let age = self.next_age;
        self.next_age += 1;
        self.by_start.insert(start, Gap { bytes, age });
        self.by_size.insert((bytes, age, start));
    }

    /// Removes the gap at `start`. Returns its bytes.
    pub(crate) fn remove(&mut self, start: u64) -> Option<u64> {
        let Gap { bytes, age } = self.by_start.remove(&start)?;
        self.by_size.remove(&(bytes, age, start));
        Some(bytes)
    }

    /// Takes the first `bytes` of the gap at `start`.
    pub(crate) fn take(&mut self, start: u64, bytes: u64) {
        if let Some(length) = self.remove(start)
            && length > bytes
        {
            self.add(start + bytes, length - bytes);
        }
    }

    /// Adds a free range, joined with the gaps beside it that lie in `within`. Returns the start of the gap.
    pub(crate) fn give(&mut self, mut start: u64, mut bytes: u64, within: Range<u64>) -> u64 {
        if within.contains(&(start + bytes))
            && let Some(after) = self.remove(start + bytes)
        {
            bytes += after;
        }
        let before = self.by_start.range(within.start..start).next_back();
        if let Some((&first, gap)) = before
            && first + gap.bytes == start
        {
            bytes += gap.bytes;
            start = first;
            self.remove(first);
        }
        self.add(start, bytes);
        start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Range<u64> = 0..u64::MAX;

    fn starts(gaps: &Gaps, bytes: u64) -> Vec<u64> {
        gaps.fitting(bytes).map(|(start, _)| start).collect()
    }

    #[test]
    fn the_smallest_gap_comes_first_and_of_equal_ones_the_oldest() {
        let mut gaps = Gaps::default();
        for (start, bytes) in [(100, 9), (40, 5), (0, 5), (20, 3)] {
            gaps.give(start, bytes, ALL);
        }
        assert_eq!(starts(&gaps, 4), [40, 0, 100]);
        gaps.take(40, 2);
        assert_eq!(starts(&gaps, 3), [20, 42, 0, 100]);
    }

    #[test]
    fn a_range_is_joined_with_its_neighbours_within_bounds() {
        let mut gaps = Gaps::default();
        gaps.give(0, 8, ALL);
        gaps.give(16, 8, ALL);
        gaps.give(8, 8, 8..16);
        assert_eq!(gaps.iter().count(), 3, "both neighbours lie outside");
        gaps.take(8, 8);
        gaps.give(8, 8, ALL);
        assert_eq!(gaps.iter().collect::<Vec<_>>(), [(0, 24)]);
    }
}
