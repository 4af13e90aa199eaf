//! The request sizes of a workload, which determine the values of settings that make a difference.

use std::collections::BTreeMap;

use coalesce_alloc::pytorch::size::MIN_BLOCK;
use coalesce_workloads::op::{Answer, Op, Workload, WorkloadError};

pub(super) const MIB: u64 = 1 << 20;
/// Segments are multiples of this many bytes.
const LARGE_ROUNDING: u64 = 2 * MIB;
/// Ranges of sizes that `roundup_power2_divisions` distinguishes: [2^k MiB, 2^(k+1) MiB).
const RANGES: usize = 16;

/// The bytes requested in each size.
#[derive(Clone, Debug, Default)]
pub(in crate::advise) struct RequestSizes {
    /// Total bytes requested, by block size in bytes, above 1 MiB.
    large: BTreeMap<u64, u64>,
    /// The number of different sizes in each range; the first includes those below 1 MiB.
    distinct: [u64; RANGES],
}

impl RequestSizes {
    /// The sizes of a workload.
    pub fn of(workload: &dyn Workload) -> Result<Self, WorkloadError> {
        let mut by_size: BTreeMap<u64, u64> = BTreeMap::new();
        workload.emit(&mut |op: Op<'_>| {
            if let Op::Malloc { bytes, .. } = op {
                let size = bytes.checked_next_multiple_of(MIN_BLOCK).unwrap_or(bytes);
                let sum = by_size.entry(size).or_default();
                *sum = sum.saturating_add(size);
            }
            Ok(Answer::Done)
        })?;
        let mut sizes = Self::default();
        for (&size, &sum) in &by_size {
            if let Some(distinct) = sizes.distinct.get_mut(range_of(size)) {
                *distinct += 1;
            }
            if size > MIB {
                sizes.large.insert(size, sum);
            }
        }
        Ok(sizes)
    }

    /// The values of `max_split_size_mb` from `least` MiB that separate the requested sizes differently, in
    /// ascending order. Each is just below one size, so that blocks of this size and above are kept whole, and
    /// above the segments of the next smaller size, so that these can serve their own requests.
    pub fn split_lines(&self, least: u64) -> Vec<u64> {
        let mut lines = Vec::new();
        let mut segment_below = 0;
        for &size in self.large.keys() {
            let line = size / MIB;
            if line >= least && line * MIB > segment_below {
                lines.push(line);
            }
            segment_below = size.next_multiple_of(LARGE_ROUNDING);
        }
        lines.dedup();
        lines
    }

    /// At most `count` of these values, with about the same number of bytes requested between each two.
    pub fn main_split_lines(&self, least: u64, count: u64) -> Vec<u64> {
        let lines = self.split_lines(least);
        let Some(&first) = lines.first() else {
            return lines;
        };
        let above = self.large.range(first * MIB..);
        let total: u128 = above.clone().map(|(_, &sum)| u128::from(sum)).sum();
        let mut chosen = Vec::new();
        let (mut passed, mut marks) = (0, 0);
        let mut sizes = above.peekable();
        for line in lines {
            while let Some((_, &sum)) = sizes.next_if(|&(&size, _)| size < line * MIB) {
                passed += u128::from(sum);
            }
            let mark = passed * u128::from(count) / total.max(1);
            if chosen.is_empty() || mark > marks {
                chosen.push(line);
                marks = mark;
            }
        }
        chosen
    }

    /// The ranges with at least `count` different sizes, as k of [2^k MiB, 2^(k+1) MiB).
    pub fn ranges_with(&self, count: u64) -> Vec<usize> {
        let ranges = self.distinct.iter().enumerate();
        let crowded = ranges.filter(|&(_, &distinct)| distinct >= count);
        crowded.map(|(range, _)| range).collect()
    }

    /// Whether any request has a size in [`low`, `high`) bytes.
    pub fn any_between(&self, low: u64, high: u64) -> bool {
        self.large.range(low..high).next().is_some()
    }
}

fn range_of(size: u64) -> usize {
    let log2 = size.max(MIB).ilog2() as usize;
    (log2 - 20).min(RANGES - 1)
}

#[cfg(test)]
mod tests {
    use coalesce_workloads::written::listed;

    use super::*;

    fn sizes(requests: &[u64]) -> RequestSizes {
        let ops = (0..)
            .zip(requests)
            .map(|(id, &bytes)| Op::malloc(id, bytes));
        RequestSizes::of(&listed("requests", ops.collect())).unwrap()
    }

    #[test]
    fn lines_are_between_sizes_and_above_the_segments_of_smaller_sizes() {
        // The segment of 99 MiB has 100 MiB, the same as the next size: no line separates them.
        let sizes = sizes(&[10, 30 * MIB, 30 * MIB, 99 * MIB, 100 * MIB, 200 * MIB + 1]);
        assert_eq!(sizes.split_lines(20), [30, 99, 200]);
        assert_eq!(sizes.split_lines(50), [99, 200]);
        assert_eq!(sizes.main_split_lines(20, 2), [30, 200]);
        assert_eq!(sizes.ranges_with(2), [6]);
        assert!(sizes.any_between(MIB, 31 * MIB) && !sizes.any_between(MIB, 30 * MIB));
    }

    #[test]
    fn lines_of_equal_and_of_small_sizes() {
        // Both have segments of 32 MiB, and the same line.
        let alike = sizes(&[30 * MIB + MIB / 4, 30 * MIB + MIB / 2, 31 * MIB]);
        assert_eq!(alike.split_lines(20), [30]);
        assert_eq!(sizes(&[21 * MIB, 22 * MIB]).split_lines(21), [21]);
        assert_eq!(sizes(&[21 * MIB, 23 * MIB]).split_lines(21), [21, 23]);
        assert_eq!(sizes(&[20 * MIB]).split_lines(21), [0; 0]);
        assert_eq!(sizes(&[20 * MIB]).main_split_lines(21, 4), [0; 0]);
        let many: Vec<u64> = (22..=50).step_by(4).map(|mib| mib * MIB).collect();
        let many = sizes(&many);
        assert_eq!(many.main_split_lines(20, 3), [22, 38, 46]);
        assert_eq!(many.main_split_lines(20, 100).len(), 8);
    }

    #[test]
    fn ranges_of_sizes() {
        let range = |bytes: u64| range_of(bytes);
        assert_eq!([range(1), range(2 * MIB - 1), range(2 * MIB)], [0, 0, 1]);
        let shown = [range(1 << 35), range(1 << 36), range(u64::MAX)];
        assert_eq!(shown, [15, 15, 15]);
        // Sizes are rounded to 512 bytes.
        let found = sizes(&[1, 512, 513, 3 * MIB, 3 * MIB + 1]);
        assert_eq!(found.ranges_with(2), [0, 1]);
        assert_eq!(found.ranges_with(3), [0; 0]);
        assert!(found.any_between(3 * MIB, 3 * MIB + 1));
        let small = sizes(&[MIB]);
        assert!(!small.any_between(0, 2 * MIB), "not a large request");
    }
}
