//! Memory freed on one stream, apart from other free memory.

use std::collections::HashMap;

use crate::driver::EventId;
use crate::gaps::Gaps;

/// Invariant: `turns` has exactly the starts of the gaps.
#[derive(Debug, Default)]
pub(super) struct Freed {
    gaps: Gaps,
    /// When each gap was freed, by its start. What remains of a gap keeps its turn.
    turns: HashMap<u64, u64>,
    next_turn: u64,
    /// An event to query the stream's progress.
    pub(super) end: Option<EventId>,
}

impl Freed {
    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// All gaps: start and bytes.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.gaps.iter()
    }

    /// Adds a freed range, joined with the gaps beside it.
    pub(super) fn give(&mut self, start: u64, bytes: u64) {
        self.turns.remove(&(start + bytes));
        let gap = self.gaps.give(start, bytes, 0..u64::MAX);
        self.turns.insert(gap, self.next_turn);
        self.next_turn += 1;
    }

    /// Returns the start and the bytes of the smallest gap that is large enough. Among equal gaps it is the oldest.
    pub(super) fn best_fit(&self, bytes: u64) -> Option<(u64, u64)> {
        self.gaps.fitting(bytes).next()
    }

    /// Takes the first `bytes` of the best fit. Returns its start.
    pub(super) fn take(&mut self, bytes: u64) -> Option<u64> {
        let (start, length) = self.best_fit(bytes)?;
        self.gaps.take(start, bytes);
        let turn = self.turns.remove(&start);
        if length > bytes {
            self.turns.extend(turn.map(|turn| (start + bytes, turn)));
        }
        Some(start)
    }

    /// Removes all gaps. Returns them, those freed last first: start and bytes.
    pub(super) fn drain(&mut self) -> Vec<(u64, u64)> {
        let mut starts: Vec<(u64, u64)> = self.turns.drain().collect();
        starts.sort_by_key(|&(_, turn)| std::cmp::Reverse(turn));
        let gap = |(start, _)| Some((start, self.gaps.remove(start)?));
        starts.into_iter().filter_map(gap).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_a_gap_keeps_its_turn_but_counts_as_new_among_equal_ones() {
        let mut freed = Freed::default();
        freed.give(0, 6);
        freed.give(100, 4);
        assert_eq!(freed.take(2), Some(100));
        freed.give(200, 2);
        assert_eq!(freed.take(4), Some(0), "of 6");
        assert_eq!(freed.best_fit(2), Some((102, 2)), "the oldest of three");
        assert_eq!(freed.drain(), [(200, 2), (102, 2), (4, 2)]);
        assert!(freed.is_empty());
    }

    #[test]
    fn a_gap_that_grows_was_freed_last() {
        let mut freed = Freed::default();
        freed.give(10, 5);
        freed.give(50, 5);
        freed.give(15, 5);
        assert_eq!(freed.drain(), [(10, 10), (50, 5)]);
        freed.give(50, 5);
        freed.give(10, 5);
        freed.give(45, 5);
        assert_eq!(freed.drain(), [(45, 10), (10, 5)]);
    }
}
