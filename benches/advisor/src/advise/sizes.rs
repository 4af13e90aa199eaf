//! The sizes that matter in a workload: where a setting can draw a line.

use std::collections::BTreeMap;

use coalesce_alloc::pytorch::size::MIN_BLOCK;
use coalesce_workloads::op::{Answer, Op, Workload, WorkloadError};

const MIB: u64 = 1 << 20;
/// Segments are multiples of this many bytes.
const LARGE_ROUNDING: u64 = 2 * MIB;
/// Ranges of sizes that `roundup_power2_divisions` tells apart: [2^k MiB, 2^(k+1) MiB).
const RANGES: usize = 16;

/// How much is asked for in requests of each size.
#[derive(Clone, Debug, Default)]
pub struct Sizes {
    /// Bytes asked for in all, by the size of the block in bytes, above 1 MiB.
    large: BTreeMap<u64, u64>,
    /// Different sizes in each range, those below 1 MiB in the first.
    distinct: [u64; RANGES],
}

impl Sizes {
    /// The sizes of a workload.
    ///
    /// # Errors
    /// If it cannot be read.
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

    /// Values of `max_split_size_mb` that draw different lines between the sizes asked for, ascending:
    /// each is just below one size, so that it and all larger ones are kept whole, and above the segments
    /// of the next smaller one, so that none of those is too large for its own request. Of at least
    /// `least` MiB.
    #[must_use]
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

    /// At most `count` of these lines, such that about as many bytes are asked for between each two.
    #[must_use]
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

    /// The ranges in which at least `count` different sizes are asked for, as k of [2^k MiB, 2^(k+1) MiB).
    #[must_use]
    pub fn ranges_with(&self, count: u64) -> Vec<usize> {
        let ranges = self.distinct.iter().enumerate();
        let crowded = ranges.filter(|&(_, &distinct)| distinct >= count);
        crowded.map(|(range, _)| range).collect()
    }

    /// Whether anything of `low` to below `high` bytes is asked for.
    #[must_use]
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
    use coalesce_workloads::op::Sink;

    use super::*;

    struct Requests(&'static [u64]);

    impl Workload for Requests {
        fn name(&self) -> &'static str {
            "requests"
        }

        fn emit(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
            for (id, &bytes) in (0..).zip(self.0) {
                sink.op(Op::Malloc {
                    id,
                    bytes,
                    stream: 0,
                    tag: "",
                })?;
            }
            Ok(())
        }
    }

    #[test]
    fn lines_are_between_sizes_and_above_the_segments_of_smaller_ones() {
        const REQUESTS: &[u64] = &[
            10,
            30 * MIB,
            30 * MIB,
            // Its segment has 100 MiB, as many as the next size: no line is between them.
            99 * MIB,
            100 * MIB,
            200 * MIB + 1,
        ];
        let sizes = Sizes::of(&Requests(REQUESTS)).unwrap();
        assert_eq!(sizes.split_lines(20), [30, 99, 200]);
        assert_eq!(sizes.split_lines(50), [99, 200]);
        assert_eq!(sizes.main_split_lines(20, 2), [30, 200]);
        assert_eq!(sizes.ranges_with(2), [6]);
        assert!(sizes.any_between(MIB, 31 * MIB) && !sizes.any_between(MIB, 30 * MIB));
    }
}
