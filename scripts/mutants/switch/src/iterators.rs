//! Adaptors in place of those that a mutant leaves out, so that both have one type.

use crate::at;

/// In place of `iterator.rev()`: mutant number `first` does not reverse it.
pub fn reversed<I: DoubleEndedIterator>(iterator: I, first: u32) -> Reversed<I> {
    Reversed {
        iterator,
        is_reversed: at(first, 1) == 0,
    }
}

/// An iterator that is reversed or not.
#[derive(Clone, Debug)]
pub struct Reversed<I> {
    iterator: I,
    is_reversed: bool,
}

impl<I: DoubleEndedIterator> Iterator for Reversed<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        match self.is_reversed {
            true => self.iterator.next_back(),
            false => self.iterator.next(),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.iterator.size_hint()
    }
}

impl<I: DoubleEndedIterator> DoubleEndedIterator for Reversed<I> {
    fn next_back(&mut self) -> Option<I::Item> {
        match self.is_reversed {
            true => self.iterator.next(),
            false => self.iterator.next_back(),
        }
    }
}

impl<I: DoubleEndedIterator + ExactSizeIterator> ExactSizeIterator for Reversed<I> {}

/// In place of `iterator` as the argument of `chain`: mutant number `first` chains nothing.
pub fn kept<I: IntoIterator>(iterator: I, first: u32) -> Kept<I::IntoIter> {
    Kept((at(first, 1) == 0).then(|| iterator.into_iter()))
}

/// An iterator that is empty or not.
#[derive(Clone, Debug)]
pub struct Kept<I>(Option<I>);

impl<I: Iterator> Iterator for Kept<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        self.0.as_mut()?.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.as_ref().map_or((0, Some(0)), I::size_hint)
    }
}

impl<I: DoubleEndedIterator> DoubleEndedIterator for Kept<I> {
    fn next_back(&mut self) -> Option<I::Item> {
        self.0.as_mut()?.next_back()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_mutant_both_do_what_they_stand_for() {
        assert!(reversed(0..3, 7).eq([2, 1, 0]));
        assert!(reversed(0..3, 7).rev().eq([0, 1, 2]));
        assert_eq!(reversed(0..3, 7).len(), 3);
        assert!((0..2).chain(kept([5, 6], 7)).eq([0, 1, 5, 6]));
        assert!((0..2).chain(kept([5, 6], 7)).rev().eq([6, 5, 1, 0]));
    }
}
