//! An ordered set that allocates no host memory once warm.
//!
//! `BTreeSet` allocates and frees nodes as it grows and shrinks, but a malloc must not allocate. This
//! set keeps its items in short sorted runs and reuses empty runs.
//!
//! Invariants: every run is sorted and not empty; all items of a run are smaller than all of the next;
//! no run holds more than [`RUN`] items.

/// The most items in a run: shifting half of one costs less than a cache miss.
const RUN: usize = 32;

/// An ordered set of distinct items.
#[derive(Debug)]
pub(super) struct OrderedSet<T> {
    runs: Vec<Vec<T>>,
    spare: Vec<Vec<T>>,
}

/// A position in an [`OrderedSet`], valid until the set changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Cursor {
    run: u32,
    slot: u32,
}

impl<T> Default for OrderedSet<T> {
    fn default() -> Self {
        Self {
            runs: Vec::new(),
            spare: Vec::new(),
        }
    }
}

impl<T: Copy + Ord> OrderedSet<T> {
    /// Whether it has no items.
    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Inserts an item that is not present.
    pub(super) fn insert(&mut self, item: T) {
        let run = self.run_of(&item).min(self.runs.len().saturating_sub(1));
        let Some(items) = self.runs.get_mut(run) else {
            let mut first = self.spare_run();
            first.push(item);
            self.runs.push(first);
            return;
        };
        let slot = items.partition_point(|other| *other < item);
        debug_assert!(items.get(slot) != Some(&item), "inserted twice");
        items.insert(slot, item);
        if items.len() == RUN {
            self.halve(run);
        }
    }

    /// Removes an item. Returns whether it was present.
    pub(super) fn remove(&mut self, item: &T) -> bool {
        let cursor = self.lower_bound(item);
        let found = self.get(cursor) == Some(item);
        if found {
            self.remove_at(cursor);
        }
        found
    }

    /// Removes the item at a cursor, if there is one.
    pub(super) fn remove_at(&mut self, cursor: Cursor) {
        let (run, slot) = (cursor.run as usize, cursor.slot as usize);
        let Some(items) = self.runs.get_mut(run) else {
            return;
        };
        if slot < items.len() {
            items.remove(slot);
        }
        if items.is_empty() {
            let empty = self.runs.remove(run);
            self.spare.push(empty);
        }
    }

    /// The first item that is not less than `item`, or the end.
    pub(super) fn lower_bound(&self, item: &T) -> Cursor {
        let run = self.run_of(item);
        let slot = self
            .runs
            .get(run)
            .map_or(0, |items| items.partition_point(|other| other < item));
        Cursor {
            run: run as u32,
            slot: slot as u32,
        }
    }

    /// The item at a cursor; `None` at the end.
    pub(super) fn get(&self, cursor: Cursor) -> Option<&T> {
        let run = self.runs.get(cursor.run as usize)?;
        run.get(cursor.slot as usize)
    }

    /// The position after `cursor`.
    pub(super) fn after(&self, cursor: Cursor) -> Cursor {
        match self.runs.get(cursor.run as usize) {
            Some(items) if cursor.slot as usize + 1 < items.len() => Cursor {
                slot: cursor.slot + 1,
                ..cursor
            },
            _ => Cursor {
                run: cursor.run + 1,
                slot: 0,
            },
        }
    }

    /// All items in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.runs.iter().flatten()
    }

    /// The run that contains `item` if any does. If all items are smaller, the last run or the number of runs.
    #[inline]
    fn run_of(&self, item: &T) -> usize {
        if self.runs.len() == 1 {
            return 0;
        }
        self.runs
            .partition_point(|items| items.last().is_some_and(|last| last < item))
    }

    fn halve(&mut self, run: usize) {
        let mut upper = self.spare_run();
        upper.extend(self.runs[run].drain(RUN / 2..));
        self.runs.insert(run + 1, upper);
    }

    fn spare_run(&mut self) -> Vec<T> {
        self.spare.pop().unwrap_or_else(|| Vec::with_capacity(RUN))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Compares with the standard library's set, over enough items for many runs.
        #[test]
        fn behaves_as_a_btree_set(ops in prop::collection::vec((any::<bool>(), 0_u16..2000), 1..4000)) {
            let mut set = OrderedSet::default();
            let mut model = BTreeSet::new();
            for (insert, item) in ops {
                if insert && model.insert(item) {
                    set.insert(item);
                } else if !insert {
                    prop_assert_eq!(set.remove(&item), model.remove(&item));
                }
                let bound = set.lower_bound(&item);
                prop_assert_eq!(set.get(bound), model.range(item..).next());
                prop_assert_eq!(set.get(set.after(bound)), model.range(item..).nth(1));
            }
            prop_assert!(set.iter().eq(model.iter()));
            prop_assert_eq!(set.is_empty(), model.is_empty());
            prop_assert!(set.runs.iter().all(|run| !run.is_empty() && run.len() < RUN));
        }
    }
}
