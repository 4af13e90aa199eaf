//! Classes of block sizes, and maps from classes.
//!
//! Sizes below 256 KiB have a class each. Above, every range between two powers of two has 256 classes. All
//! sizes of 2 TiB and more are one class.

use super::size::MIN_BLOCK;

/// Classes between two powers of two.
const STEPS: u64 = 1 << STEPS_LOG2;
const STEPS_LOG2: u32 = 8;
/// Classes of a group.
const GROUP: usize = 64;
/// More groups than there are.
const GROUPS: usize = 128;
/// The size in units from which on all sizes are one class.
const MOST_UNITS: u64 = 1 << 32;

/// The class of a block size. Larger sizes never have smaller classes.
#[inline]
pub(super) fn class_of(size: u64) -> usize {
    let units = (size / MIN_BLOCK).min(MOST_UNITS);
    let shift = (units | STEPS).ilog2() - STEPS_LOG2;
    ((units >> shift) + u64::from(shift) * STEPS) as usize
}

/// A map from classes to values, in which the next larger class with a value is found at once.
#[derive(Debug)]
pub(super) struct ClassMap<T> {
    /// The groups up to the largest one ever used; sizes have fewer than 128.
    groups: Vec<Group<T>>,
    /// Bit `i` tells whether group `i` has a value.
    in_use: u128,
}

#[derive(Debug)]
struct Group<T> {
    /// Bit `i` tells whether value `i` is set.
    in_use: u64,
    values: [T; GROUP],
}

impl<T> Default for ClassMap<T> {
    fn default() -> Self {
        Self {
            groups: Vec::new(),
            in_use: 0,
        }
    }
}

impl<T: Copy> ClassMap<T> {
    /// The value of a class.
    #[inline]
    pub(super) fn get(&self, class: usize) -> Option<T> {
        let group = self.groups.get(class / GROUP)?;
        let is_set = group.in_use >> (class % GROUP) & 1 != 0;
        is_set.then_some(group.values[class % GROUP])
    }

    /// Sets the value of a class.
    #[inline]
    pub(super) fn set(&mut self, class: usize, value: T) {
        let number = class / GROUP;
        if number >= self.groups.len() {
            self.grow(number, value);
        }
        let group = &mut self.groups[number];
        group.in_use |= 1 << (class % GROUP);
        group.values[class % GROUP] = value;
        self.in_use |= 1 << (number % GROUPS);
    }

    #[cold]
    fn grow(&mut self, number: usize, filler: T) {
        self.groups.resize_with(number + 1, || Group {
            in_use: 0,
            values: [filler; GROUP],
        });
    }

    /// Removes the value of a class that has one.
    #[inline]
    pub(super) fn remove(&mut self, class: usize) {
        let number = class / GROUP;
        let group = &mut self.groups[number];
        group.in_use &= !(1 << (class % GROUP));
        if group.in_use == 0 {
            self.in_use &= !(1 << (number % GROUPS));
        }
    }

    /// The first class at or after `class` that has a value.
    #[inline]
    pub(super) fn at_or_after(&self, class: usize) -> Option<(usize, T)> {
        let number = class / GROUP;
        let group = self.groups.get(number)?;
        let rest = group.in_use & (!0 << (class % GROUP));
        if rest != 0 {
            return Some(group.at(number, rest.trailing_zeros()));
        }
        let later = self.in_use & (!1 << (number % GROUPS));
        let number = later.trailing_zeros() as usize;
        let group = self.groups.get(number)?;
        Some(group.at(number, group.in_use.trailing_zeros()))
    }
}

impl<T: Copy> Group<T> {
    fn at(&self, number: usize, bit: u32) -> (usize, T) {
        let place = bit as usize % GROUP;
        (number * GROUP + place, self.values[place])
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn small_sizes_have_a_class_each_and_groups_are_few() {
        for units in 1..512 {
            assert_eq!(class_of(units * MIN_BLOCK), units as usize);
        }
        assert!(class_of(u64::MAX) / GROUP < GROUPS);
    }

    proptest! {
        #[test]
        fn larger_sizes_have_no_smaller_classes(size: u64, shift in 0_u32..64, more in 0_u64..1 << 20) {
            let size = size >> shift;
            prop_assert!(class_of(size) <= class_of(size.saturating_add(more)));
        }

        /// Compares with the standard library's map.
        #[test]
        fn behaves_as_a_btree_map(
            ops in prop::collection::vec((any::<bool>(), 0..=class_of(u64::MAX)), 1..300),
        ) {
            let mut map = ClassMap::default();
            let mut model = BTreeMap::new();
            for (at, (insert, class)) in ops.into_iter().enumerate() {
                prop_assert_eq!(map.get(class), model.get(&class).copied());
                if insert {
                    map.set(class, at);
                    model.insert(class, at);
                } else if model.remove(&class).is_some() {
                    map.remove(class);
                }
                for class in [class, class + 1, class + 64, class.saturating_sub(64), 0] {
                    let entry = |(&class, &value): (&usize, &usize)| (class, value);
                    prop_assert_eq!(map.at_or_after(class), model.range(class..).next().map(entry));
                }
            }
        }
    }
}
