//! Classes of block sizes, and the set of classes that are not empty.
//!
//! Sizes below 128 KiB have a class each. Above, every range between two powers of two has 128 classes.

use super::size::MIN_BLOCK;

/// Classes between two powers of two.
const STEPS: u64 = 1 << STEPS_LOG2;
const STEPS_LOG2: u32 = 7;
/// Words of 64 classes, enough for all sizes.
const WORDS: usize = 98;

/// The class of a block size. Larger sizes never have smaller classes.
#[inline]
pub(super) fn class_of(size: u64) -> usize {
    let units = size / MIN_BLOCK;
    let shift = (units | 1).ilog2().saturating_sub(STEPS_LOG2);
    ((units >> shift) + u64::from(shift) * STEPS) as usize
}

/// A set of classes.
#[derive(Debug)]
pub(super) struct ClassSet {
    /// Bit `i` of word `w` stands for class `64 w + i`.
    words: [u64; WORDS],
    /// Bit `w` tells whether word `w` is not zero.
    summary: u128,
}

impl Default for ClassSet {
    fn default() -> Self {
        Self {
            words: [0; WORDS],
            summary: 0,
        }
    }
}

impl ClassSet {
    /// Adds a class.
    #[inline]
    pub(super) fn insert(&mut self, class: usize) {
        self.words[class / 64] |= 1 << (class % 64);
        self.summary |= 1 << (class / 64);
    }

    /// Removes a class.
    #[inline]
    pub(super) fn remove(&mut self, class: usize) {
        let word = &mut self.words[class / 64];
        *word &= !(1 << (class % 64));
        if *word == 0 {
            self.summary &= !(1 << (class / 64));
        }
    }

    /// The first class after `class`.
    #[inline]
    pub(super) fn after(&self, class: usize) -> Option<usize> {
        let word = class / 64;
        let rest = self.words[word] & (!1 << (class % 64));
        if rest != 0 {
            return Some(word * 64 + rest.trailing_zeros() as usize);
        }
        self.first_in(self.summary & (!1 << word))
    }

    /// The last class before `class`.
    pub(super) fn before(&self, class: usize) -> Option<usize> {
        let word = class / 64;
        let rest = self.words[word] & !(!0 << (class % 64));
        if rest != 0 {
            return Some(word * 64 + rest.ilog2() as usize);
        }
        let word = (self.summary & !(!0 << word)).checked_ilog2()? as usize;
        Some(word * 64 + self.words[word].checked_ilog2()? as usize)
    }

    /// The first class.
    pub(super) fn first(&self) -> Option<usize> {
        self.first_in(self.summary)
    }

    /// The first class of the words in a summary.
    #[inline]
    fn first_in(&self, summary: u128) -> Option<usize> {
        if summary == 0 {
            return None;
        }
        let word = summary.trailing_zeros() as usize;
        Some(word * 64 + self.words[word].trailing_zeros() as usize)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn small_sizes_have_a_class_each_and_every_size_has_one() {
        for units in 1..256 {
            assert_eq!(class_of(units * MIN_BLOCK), units as usize);
        }
        assert_eq!(class_of(u64::MAX) / 64, WORDS - 1);
    }

    proptest! {
        #[test]
        fn larger_sizes_have_no_smaller_classes(size: u64, shift in 0_u32..64, more in 0_u64..1 << 20) {
            let size = size >> shift;
            prop_assert!(class_of(size) <= class_of(size.saturating_add(more)));
        }

        /// Compares with the standard library's set.
        #[test]
        fn behaves_as_a_btree_set(
            ops in prop::collection::vec((any::<bool>(), 0_usize..WORDS * 64), 1..300),
        ) {
            let mut set = ClassSet::default();
            let mut model = BTreeSet::new();
            for (insert, class) in ops {
                if insert {
                    set.insert(class);
                    model.insert(class);
                } else {
                    set.remove(class);
                    model.remove(&class);
                }
                prop_assert_eq!(set.first(), model.first().copied());
                for class in [class, class.saturating_sub(64), (class + 64).min(WORDS * 64 - 1)] {
                    prop_assert_eq!(set.after(class), model.range(class + 1..).next().copied());
                    prop_assert_eq!(set.before(class), model.range(..class).next_back().copied());
                }
            }
        }
    }
}
