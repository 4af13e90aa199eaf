//! Recognises strings by their numbers, because the entries of a snapshot share their keys and actions.

use crate::formats::pickle::Node;

/// The meanings of strings, by their numbers.
#[derive(Debug)]
pub(super) struct Words<T>(Vec<Option<T>>);

impl<T> Default for Words<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Copy> Words<T> {
    /// The meaning of a string, which `meaning` tells when it is first seen. None if the value is not a string.
    #[inline]
    pub(super) fn of(&mut self, node: Node<'_>, meaning: impl Fn(&[u8]) -> T) -> Option<T> {
        let number = node.text_number()? as usize;
        if let Some(&Some(known)) = self.0.get(number) {
            return Some(known);
        }
        let known = meaning(node.raw_text()?);
        self.keep(number, known);
        Some(known)
    }

    #[cold]
    fn keep(&mut self, number: usize, known: T) {
        /// The strings that are shared come first.
        const MOST: usize = 1 << 16;
        if number < MOST {
            let len = self.0.len().max(number + 1);
            self.0.resize(len, None);
            self.0[number] = Some(known);
        }
    }
}
