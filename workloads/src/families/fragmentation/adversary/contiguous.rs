//! A model of best fit in one range that grows at its end.

use std::collections::{BTreeMap, BTreeSet};

/// A range of memory, in units.
#[derive(Debug, Default)]
pub(super) struct Contiguous {
    /// Lengths of the holes by start. Holes are never adjacent, and none follows the last block.
    holes: BTreeMap<u64, u64>,
    /// The holes as (length, start).
    by_length: BTreeSet<(u64, u64)>,
    /// The end of the last block.
    end: u64,
}

impl Contiguous {
    /// Places a block in the smallest hole that fits, the lowest of equal ones, or at the end.
    pub(super) fn place(&mut self, len: u64) -> u64 {
        let fit = self.by_length.range((len, 0)..).next().copied();
        let Some((hole, start)) = fit else {
            let start = self.end;
            self.end += len;
            return start;
        };
        self.remove(start, hole);
        if hole > len {
            self.insert(start + len, hole - len);
        }
        start
    }

    /// Frees a block and coalesces it with adjacent holes.
    pub(super) fn free(&mut self, mut start: u64, mut len: u64) {
        let before = self.holes.range(..start).next_back();
        if let Some((&hole, &hole_len)) = before
            && hole + hole_len == start
        {
            self.remove(hole, hole_len);
            start = hole;
            len += hole_len;
        }
        if let Some(&hole_len) = self.holes.get(&(start + len)) {
            self.remove(start + len, hole_len);
            len += hole_len;
        }
        if start + len == self.end {
            self.end = start;
        } else {
            self.insert(start, len);
        }
    }

    fn insert(&mut self, start: u64, len: u64) {
        self.holes.insert(start, len);
        self.by_length.insert((len, start));
    }

    fn remove(&mut self, start: u64, len: u64) {
        self.holes.remove(&start);
        self.by_length.remove(&(len, start));
    }
}

#[cfg(test)]
mod tests {
    use super::Contiguous;

    #[test]
    fn places_in_the_smallest_lowest_hole_or_at_the_end() {
        let mut range = Contiguous::default();
        let starts: Vec<u64> = [3, 1, 2, 1, 2, 1].map(|len| range.place(len)).into();
        assert_eq!(starts, [0, 3, 4, 6, 7, 9]);
        for (start, len) in [(0, 3), (7, 2), (4, 2)] {
            range.free(start, len);
        }
        let found = [2, 2, 2, 1, 1].map(|len| range.place(len));
        assert_eq!(found, [4, 7, 0, 2, 10]);
    }

    #[test]
    fn holes_coalesce_and_the_last_one_shrinks_the_range() {
        let mut range = Contiguous::default();
        for _ in 0..6 {
            range.place(1);
        }
        for start in [1, 3, 2] {
            range.free(start, 1);
        }
        assert_eq!(range.place(3), 1);
        range.free(5, 1);
        range.free(4, 1);
        assert_eq!(range.place(9), 4);
    }
}
