//! An ordered set that allocates no host memory once warm.
//!
//! `BTreeSet` allocates and frees nodes as it grows and shrinks, but a malloc must not allocate. This
//! set keeps its items in short sorted runs. The smallest item, which is taken most often, is the last one of its
//! run, so that nothing moves when it goes. Other items are found and moved in one pass from the end, which a
//! processor predicts better than a binary search and a copy.

/// The most items in a run.
const RUN: usize = 16;

/// An ordered set of distinct items.
///
/// Invariants: every run has fewer than [`RUN`] items, and only `low` may be empty. The items of `low` are the
/// smallest, and the items of each high run are larger than those of the next.
#[derive(Debug, Default)]
pub(super) struct OrderedSet<T> {
    /// The smallest items. Most sets have no others.
    low: Run<T>,
    /// All other items, the largest first.
    high: Vec<Run<T>>,
}

/// Sorted items, the largest first. Those of a short run share a cache line with their number.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
struct Run<T> {
    len: usize,
    /// Only the first `len` are in the set.
    items: [T; RUN],
}

/// The position of an item in an [`OrderedSet`], valid until the set changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cursor {
    /// The high run, or their number for the low run.
    run: u32,
    slot: u32,
}

impl Cursor {
    fn new(run: usize, slot: usize) -> Self {
        let (run, slot) = (run as u32, slot as u32);
        Self { run, slot }
    }
}

impl<T: Copy + Ord> Run<T> {
    fn items(&self) -> &[T] {
        self.items.get(..self.len).unwrap_or(&self.items)
    }

    fn largest(&self) -> T {
        self.items[0]
    }

    fn smallest(&self) -> T {
        self.items[(self.len - 1) % RUN]
    }

    /// The slot of the smallest item that is not less than `item`.
    #[inline]
    fn lower_bound(&self, item: &T) -> Option<usize> {
        self.items().iter().rposition(|other| other >= item)
    }

    /// Inserts an item. There must be room.
    #[inline(always)]
    fn insert(&mut self, item: T) {
        let mut slot = self.len % RUN;
        while slot > 0 && self.items[slot - 1] < item {
            self.items[slot] = self.items[slot - 1];
            slot -= 1;
        }
        debug_assert!(slot == 0 || self.items[slot - 1] != item, "inserted twice");
        self.items[slot] = item;
        self.len += 1;
    }

    /// Removes the item in a slot.
    #[inline]
    fn remove_at(&mut self, slot: usize) {
        self.len -= 1;
        for at in slot..self.len.min(RUN - 1) {
            self.items[at] = self.items[at + 1];
        }
    }

    /// Moves the larger half of the items to a new run.
    fn take_larger(&mut self) -> Self {
        let mut larger = *self;
        larger.len = self.len / 2;
        self.items.copy_within(larger.len.., 0);
        self.len -= larger.len;
        larger
    }
}

impl<T: Copy + Ord> OrderedSet<T> {
    /// Whether it has no items.
    pub(super) fn is_empty(&self) -> bool {
        self.low.len == 0
    }

    /// Inserts an item that is not present.
    #[inline(always)]
    pub(super) fn insert(&mut self, item: T) {
        let above = match self.high.last() {
            Some(run) if run.smallest() < item => {
                self.high.partition_point(|run| run.smallest() > item)
            }
            _ => self.high.len(),
        };
        let run = self.high.get_mut(above).unwrap_or(&mut self.low);
        run.insert(item);
        if run.len == RUN {
            let larger = run.take_larger();
            self.high.insert(above, larger);
        }
    }

    /// Removes an item. Returns whether it was present.
    pub(super) fn remove(&mut self, item: &T) -> bool {
        match self.lower_bound(item) {
            Some(at) if self.get(at) == *item => {
                self.remove_at(at);
                true
            }
            _ => false,
        }
    }

    /// Removes the item at a position.
    #[inline]
    pub(super) fn remove_at(&mut self, at: Cursor) {
        let number = at.run as usize;
        if let Some(run) = self.high.get_mut(number) {
            run.remove_at(at.slot as usize);
            if run.len == 0 {
                self.high.remove(number);
            }
            return;
        }
        self.low.remove_at(at.slot as usize);
        if self.low.len == 0
            && let Some(next) = self.high.pop()
        {
            self.low = next;
        }
    }

    /// The position of the smallest item.
    #[inline]
    pub(super) fn first(&self) -> Option<Cursor> {
        let slot = self.low.len.checked_sub(1)?;
        Some(Cursor::new(self.high.len(), slot))
    }

    /// The position of the smallest item that is not less than `item`.
    #[inline]
    pub(super) fn lower_bound(&self, item: &T) -> Option<Cursor> {
        if let Some(slot) = self.low.lower_bound(item) {
            return Some(Cursor::new(self.high.len(), slot));
        }
        let larger = self.high.partition_point(|run| run.largest() >= *item);
        let number = larger.checked_sub(1)?;
        let slot = self.high[number].lower_bound(item)?;
        Some(Cursor::new(number, slot))
    }

    /// The item at a position.
    #[inline]
    pub(super) fn get(&self, at: Cursor) -> T {
        let run = self.high.get(at.run as usize).unwrap_or(&self.low);
        run.items[at.slot as usize % RUN]
    }

    /// The position of the next larger item.
    pub(super) fn after(&self, at: Cursor) -> Option<Cursor> {
        if let Some(slot) = at.slot.checked_sub(1) {
            return Some(Cursor { slot, ..at });
        }
        let number = at.run.checked_sub(1)? as usize;
        Some(Cursor::new(number, self.high[number].len - 1))
    }

    /// All items, smallest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        let runs = self.high.iter().chain([&self.low]);
        runs.flat_map(Run::items).rev()
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
                prop_assert_eq!(bound.map(|at| set.get(at)), model.range(item..).next().copied());
                let next = bound.and_then(|at| set.after(at));
                prop_assert_eq!(next.map(|at| set.get(at)), model.range(item..).nth(1).copied());
                prop_assert_eq!(set.first().map(|at| set.get(at)), model.first().copied());
            }
            prop_assert!(set.iter().eq(model.iter()));
            prop_assert_eq!(set.is_empty(), model.is_empty());
            prop_assert!(set.high.iter().all(|run| (1..RUN).contains(&run.len)));
        }
    }
}
