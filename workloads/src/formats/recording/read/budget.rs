//! How much a snapshot may be to read.
//!
//! A pickle names what it has already built in two or three bytes. So a file of a megabyte could have
//! more frames with one long name than memory holds, or many entries that are one dict of a hundred
//! thousand keys, and take hours. What a writer of snapshots shares are frames, which are read once, and
//! short texts: it stays far below these limits, which grow with the file alone.

use std::borrow::Cow;

use super::fields::{self, Mistake};
use crate::formats::pickle::{Node, Pickle};

/// What may still be read.
#[derive(Debug)]
pub(super) struct Budget {
    /// Items of lists. A list has fewer items than the file bytes.
    items: usize,
    /// Keys of dicts and bytes of texts.
    steps: usize,
}

impl Budget {
    pub(super) fn of(pickle: &Pickle) -> Self {
        /// A frame takes some 20 bytes of a file and may name another of some 200. Snapshots of real
        /// programs take a fifth of a step for each byte.
        const STEPS_PER_BYTE: usize = 16;
        Self {
            items: pickle.len(),
            steps: pickle.len().saturating_mul(STEPS_PER_BYTE),
        }
    }

    /// The items of a list.
    pub(super) fn list<'a>(
        &mut self,
        node: Node<'a>,
        what: &str,
    ) -> Result<impl Iterator<Item = Node<'a>> + use<'a>, Mistake> {
        let count = fields::items(node, what)?.count();
        let left = self.items.checked_sub(count);
        self.items = left.ok_or_else(|| {
            Mistake::at(
                node,
                format!("{what}: with the lists before, more items than the file has bytes"),
            )
        })?;
        fields::items(node, what)
    }

    /// What a dict has under these keys.
    pub(super) fn fields<'a, const N: usize>(
        &mut self,
        node: Node<'a>,
        what: &str,
        keys: [&str; N],
    ) -> Result<[Option<Node<'a>>; N], Mistake> {
        let (found, count) = fields::fields(node, what, keys)?;
        self.take(count, node, what)?;
        Ok(found)
    }

    pub(super) fn text<'a>(&mut self, node: Node<'a>, what: &str) -> Result<Cow<'a, str>, Mistake> {
        let len = node.raw_text().map_or(0, <[u8]>::len);
        self.take(len, node, what)?;
        fields::text(node, what)
    }

    /// Fails if this is too much for the file.
    pub(super) fn take(&mut self, steps: usize, node: Node<'_>, what: &str) -> Result<(), Mistake> {
        let left = self.steps.checked_sub(steps);
        self.steps = left.ok_or_else(|| {
            let reason = "with the dicts and texts before, many times what the file has: it names \
                          a few long ones again and again, as no snapshot does";
            Mistake::at(node, format!("{what}: {reason}"))
        })?;
        Ok(())
    }
}
