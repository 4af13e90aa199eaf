//! Free memory as maximal runs of bytes, by position and by size.

use std::collections::{BTreeMap, BTreeSet};

use crate::check::{Violation, ensure};

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

    pub(super) fn contains(self, other: Self) -> bool {
        self.start <= other.start && other.end() <= self.end()
    }
}

/// Free runs. No two touch.
#[derive(Debug, Default)]
pub(super) struct FreeRuns {
    by_start: BTreeMap<u64, u64>,
    /// Bytes and start.
    by_size: BTreeSet<(u64, u64)>,
}

impl FreeRuns {
    /// Frees a run, none of which is free, and merges it with its neighbours. Returns the run that it is part of.
    pub(super) fn give(&mut self, run: Run) -> Run {
        let mut joined = run;
        if let Some(before) = self.last_from(run.start)
            && before.end() == run.start
        {
            self.remove(before);
            joined = Run::between(before.start, joined.end());
        }
        if let Some(&bytes) = self.by_start.get(&run.end()) {
            let start = run.end();
            self.remove(Run { start, bytes });
            joined.bytes += bytes;
        }
        self.insert(joined);
        joined
    }

    /// Takes a run, all of which is free.
    pub(super) fn take(&mut self, run: Run) {
        let Some(free) = self.around(run) else {
            return;
        };
        self.remove(free);
        for rest in [
            Run::between(free.start, run.start),
            Run::between(run.end(), free.end()),
        ] {
            if rest.bytes > 0 {
                self.insert(rest);
            }
        }
    }

    /// The free run that contains all of `run`.
    pub(super) fn around(&self, run: Run) -> Option<Run> {
        self.last_from(run.start).filter(|free| free.contains(run))
    }

    /// The free runs of at least `bytes`, the smallest first, the lowest among equals.
    pub(super) fn fitting(&self, bytes: u64) -> impl Iterator<Item = Run> {
        let fitting = self.by_size.range((bytes, 0)..);
        fitting.map(|&(bytes, start)| Run { start, bytes })
    }

    /// All free runs by position.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = Run> {
        self.by_start
            .iter()
            .map(|(&start, &bytes)| Run { start, bytes })
    }

    /// The free parts of a run, by position.
    pub(super) fn within(&self, run: Run) -> impl Iterator<Item = Run> {
        let before = self.by_start.range(..run.start).next_back();
        let inside = self.by_start.range(run.start..run.end());
        let all = before.into_iter().chain(inside);
        let ends = all.map(move |(&start, &bytes)| {
            let end = (start + bytes).min(run.end());
            (start.max(run.start), end)
        });
        let overlapping = ends.filter(|(start, end)| start < end);
        overlapping.map(|(start, end)| Run::between(start, end))
    }

    fn last_from(&self, at: u64) -> Option<Run> {
        let (&start, &bytes) = self.by_start.range(..=at).next_back()?;
        Some(Run { start, bytes })
    }

    fn insert(&mut self, run: Run) {
        self.by_start.insert(run.start, run.bytes);
        self.by_size.insert((run.bytes, run.start));
    }

    fn remove(&mut self, run: Run) {
        self.by_start.remove(&run.start);
        self.by_size.remove(&(run.bytes, run.start));
    }

    pub(super) fn check(&self) -> Result<(), Violation> {
        let mut end = None;
        for run in self.iter() {
            ensure!(run.bytes > 0, "an empty free run at {}", run.start);
            ensure!(
                end.is_none_or(|end| end < run.start),
                "free runs touch at {}",
                run.start
            );
            ensure!(
                self.by_size.contains(&(run.bytes, run.start)),
                "the free run at {} is not in the size index",
                run.start
            );
            end = Some(run.end());
        }
        ensure!(
            self.by_start.len() == self.by_size.len(),
            "a free run by size only"
        );
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
        fn free_runs_are_maximal_and_the_smallest_comes_first(
            ranges in prop::collection::vec((0_u64..64, 1_u64..16), 0..64),
        ) {
            let (mut free, mut map) = (FreeRuns::default(), [false; 80]);
            for (start, bytes) in ranges {
                let run = Run { start, bytes };
                let of_run = &mut map[start as usize..run.end() as usize];
                if of_run.iter().all(|free| *free) {
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
                prop_assert_eq!(free.within(run).collect::<Vec<_>>(), runs(&cut));
                let fitting = runs(&map).into_iter().filter(|run| run.bytes >= bytes);
                let smallest = fitting.min_by_key(|run| (run.bytes, run.start));
                prop_assert_eq!(free.fitting(bytes).next(), smallest);
            }
        }
    }
}
