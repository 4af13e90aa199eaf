//! Free memory or addresses as maximal runs of bytes.

use std::cell::Cell;
use std::hint::select_unpredictable;

use crate::base::check::{Violation, ensure};

/// A range of positions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Run {
    pub(super) start: u64,
    pub(super) bytes: u64,
}

impl Run {
    pub(super) fn between(start: u64, end: u64) -> Self {
        let bytes = end - start;
        Self { start, bytes }
    }

    pub(super) fn end(self) -> u64 {
        self.start + self.bytes
    }

    /// Returns its first `bytes`, or all of it if it has fewer, and the rest.
    pub(super) fn split_at(self, bytes: u64) -> (Self, Self) {
        let middle = self.start + bytes.min(self.bytes);
        (
            Self::between(self.start, middle),
            Self::between(middle, self.end()),
        )
    }

    pub(super) fn contains(self, other: Self) -> bool {
        self.start <= other.start && other.end() <= self.end()
    }
}

/// The number of elements at the start of a list for which a condition holds. It holds for none behind them.
///
/// Unlike in a binary search, hardly any comparison waits for another one. For the tens to hundreds of elements of these
/// lists this takes half as long.
pub(super) fn count_at_start<T>(list: &[T], is_before: impl Fn(&T) -> bool) -> usize {
    const GROUP: usize = 16;
    let (groups, _) = list.as_chunks::<GROUP>();
    let is_whole = |group: &&[T; GROUP]| is_before(&group[GROUP - 1]);
    let whole = GROUP * groups.iter().filter(is_whole).count();
    let rest = list[whole..].iter().take(GROUP);
    whole + rest.filter(|element| is_before(element)).count()
}

/// The same number, in less time if it is what the last search found or one more. Notes it for the next search.
pub(super) fn count_from_last<T>(
    list: &[T],
    last: &Cell<usize>,
    is_before: impl Fn(&T) -> bool,
) -> usize {
    let has_before = |index: usize| list.get(index).is_some_and(&is_before);
    let is_count = |&count: &usize| !has_before(count) && (count == 0 || has_before(count - 1));
    let near = [last.get(), last.get() + 1].into_iter().find(is_count);
    let count = near.unwrap_or_else(|| count_at_start(list, &is_before));
    last.set(count);
    count
}

/// Free runs by position. No two touch.
///
/// A sorted list: programs have tens to hundreds of free runs, and a list of so few is read and changed in fewer
/// cache lines than a tree. Between two requests, a program evicts everything from the cache.
#[derive(Clone, Debug, Default)]
pub(super) struct FreeRuns {
    list: Vec<Run>,
    /// The index of the run that was found last, which is often taken next.
    found: Cell<usize>,
}

impl FreeRuns {
    /// Frees a run, none of which is free, and merges it with its neighbours. Returns the run that it is part of.
    pub(super) fn give(&mut self, run: Run) -> Run {
        const NONE: Run = Run {
            start: u64::MAX,
            bytes: 0,
        };
        let index = count_at_start(&self.list, |free| free.start < run.start);
        let before = *self.list.get(index.wrapping_sub(1)).unwrap_or(&NONE);
        let behind = *self.list.get(index).unwrap_or(&NONE);
        // Without a branch on which neighbours are free, as none could be foreseen.
        let joins_before = before.end() == run.start;
        let joins_behind = behind.start == run.end();
        let joined = Run::between(
            select_unpredictable(joins_before, before.start, run.start),
            select_unpredictable(joins_behind, behind.end(), run.end()),
        );
        let first = index - usize::from(joins_before);
        let rest = index + usize::from(joins_behind);
        let count = self.list.len();
        self.list.push(joined);
        self.list.copy_within(rest..count, first + 1);
        self.list[first] = joined;
        self.list.truncate(count + 1 + first - rest);
        joined
    }

    /// Takes a run, all of which is free.
    pub(super) fn take(&mut self, run: Run) {
        let Some(index) = self.index_around(run) else {
            return;
        };
        let free = self.list[index];
        let before = Run::between(free.start, run.start);
        let behind = Run::between(run.end(), free.end());
        match (before.bytes > 0, behind.bytes > 0) {
            (false, false) => {
                self.list.remove(index);
            }
            (true, false) => self.list[index] = before,
            (false, true) => self.list[index] = behind,
            (true, true) => {
                self.list[index] = before;
                self.list.insert(index + 1, behind);
            }
        }
    }

    /// Whether all of a run is free.
    pub(super) fn contains(&self, run: Run) -> bool {
        self.index_around(run).is_some()
    }

    /// The smallest free run of at least `bytes`, the lowest among equals.
    pub(super) fn smallest(&self, bytes: u64) -> Option<Run> {
        let index = self.index_of_smallest(bytes)?;
        self.found.set(index);
        Some(self.list[index])
    }

    /// Without a branch on lengths, as none could be foreseen.
    fn index_of_smallest(&self, bytes: u64) -> Option<usize> {
        /// A comparison waits only for the one before it in its lane.
        const LANES: usize = 2;
        let (groups, rest) = self.list.as_chunks::<LANES>();
        // The bytes that the best run of each lane has to spare, and its index.
        let (mut least, mut index, mut at) = ([u64::MAX; LANES], [0; LANES], 0);
        let mut compare = |lane: usize, run: &Run| {
            // A run that is too short has more to spare than any that is not.
            let spare = run.bytes.wrapping_sub(bytes);
            let is_less = spare < least[lane];
            least[lane] = select_unpredictable(is_less, spare, least[lane]);
            index[lane] = select_unpredictable(is_less, at, index[lane]);
            at += 1;
        };
        for group in groups {
            for (lane, run) in group.iter().enumerate() {
                compare(lane, run);
            }
        }
        for run in rest {
            compare(0, run);
        }
        let lanes = least.into_iter().zip(index);
        let best = lanes.reduce(|best, lane| {
            let is_better = (lane.0 < best.0) | ((lane.0 == best.0) & (lane.1 < best.1));
            let spare = select_unpredictable(is_better, lane.0, best.0);
            (spare, select_unpredictable(is_better, lane.1, best.1))
        });
        let index = best?.1;
        let run = self.list.get(index)?;
        (run.bytes >= bytes).then_some(index)
    }

    /// The smallest free run of at least `bytes` for which a condition holds, the lowest among equals.
    pub(super) fn smallest_where(
        &self,
        bytes: u64,
        is_suitable: impl Fn(Run) -> bool,
    ) -> Option<Run> {
        let mut smallest: Option<Run> = None;
        for (index, &run) in self.list.iter().enumerate() {
            let is_smaller = smallest.is_none_or(|best| run.bytes < best.bytes);
            if run.bytes >= bytes && is_smaller && is_suitable(run) {
                smallest = Some(run);
                self.found.set(index);
            }
        }
        smallest
    }

    /// All free runs by position.
    pub(super) fn iter(&self) -> impl Iterator<Item = Run> {
        self.list.iter().copied()
    }

    /// The free parts of a run, by position.
    pub(super) fn within(&self, run: Run) -> impl Iterator<Item = Run> {
        let first = count_from_last(&self.list, &self.found, |free| free.end() <= run.start);
        let overlapping = self.list[first..]
            .iter()
            .take_while(move |free| free.start < run.end());
        overlapping.map(move |free| {
            let end = free.end().min(run.end());
            Run::between(free.start.max(run.start), end)
        })
    }

    /// Bytes at the start of a run that are free, and at its end.
    pub(super) fn free_ends(&self, run: Run) -> (u64, u64) {
        let mut within = self.within(run);
        let Some(first) = within.next() else {
            return (0, 0);
        };
        let last = within.last().unwrap_or(first);
        let at_start = Some(first).filter(|free| free.start == run.start);
        let at_end = Some(last).filter(|free| free.end() == run.end());
        let bytes = |free: Option<Run>| free.map_or(0, |free| free.bytes);
        (bytes(at_start), bytes(at_end))
    }

    fn index_around(&self, run: Run) -> Option<usize> {
        let contains = |index: &usize| self.list.get(*index).is_some_and(|free| free.contains(run));
        let found = Some(self.found.get()).filter(contains);
        found.or_else(|| {
            let after = count_at_start(&self.list, |free| free.start <= run.start);
            after.checked_sub(1).filter(contains)
        })
    }

    pub(super) fn check(&self) -> Result<(), Violation> {
        for run in self.iter() {
            ensure!(run.bytes > 0, "an empty free run at {}", run.start);
        }
        for pair in self.list.windows(2) {
            ensure!(
                pair[0].end() < pair[1].start,
                "free runs touch at {}",
                pair[1].start
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The maximal runs of `true`.
    fn runs(free: &[bool]) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for (start, _) in (0..).zip(free).filter(|(_, free)| **free) {
            match runs.last_mut() {
                Some(last) if last.end() == start => last.bytes += 1,
                _ => runs.push(Run { start, bytes: 1 }),
            }
        }
        runs
    }

    proptest! {
        #[test]
        fn counts_what_is_before(list in prop::collection::btree_set(0_u32..200, 0..100), middle in 0_u32..200) {
            let list: Vec<u32> = list.into_iter().collect();
            let is_before = |element: &u32| *element < middle;
            prop_assert_eq!(count_at_start(&list, is_before), list.partition_point(is_before));
        }

        #[test]
        fn free_runs_are_maximal_and_the_smallest_comes_first(
            ranges in prop::collection::vec((0_u64..64, 1_u64..16), 0..64),
        ) {
            let (mut free, mut map) = (FreeRuns::default(), [false; 80]);
            for (start, bytes) in ranges {
                let run = Run { start, bytes };
                let of_run = &mut map[start as usize..run.end() as usize];
                if of_run.iter().all(|free| *free) {
                    prop_assert!(free.contains(run));
                    free.take(run);
                    of_run.fill(false);
                } else if of_run.iter().all(|free| !free) {
                    of_run.fill(true);
                    let joined = free.give(run);
                    prop_assert!(runs(&map).contains(&joined));
                }
                free.check().unwrap();
                prop_assert_eq!(free.iter().collect::<Vec<_>>(), runs(&map));
                let cut = map[start as usize..run.end() as usize].iter().copied();
                let cut: Vec<bool> = std::iter::repeat_n(false, start as usize).chain(cut).collect();
                let cut = runs(&cut);
                let at_start: u64 = cut.iter().filter(|part| part.start == run.start).map(|part| part.bytes).sum();
                let at_end: u64 = cut.iter().filter(|part| part.end() == run.end()).map(|part| part.bytes).sum();
                prop_assert_eq!(free.free_ends(run), (at_start, at_end));
                prop_assert_eq!(free.within(run).collect::<Vec<_>>(), cut);
                let fitting = runs(&map).into_iter().filter(|run| run.bytes >= bytes);
                let smallest = fitting.min_by_key(|run| (run.bytes, run.start));
                prop_assert_eq!(free.smallest(bytes), smallest);
            }
        }
    }
}
