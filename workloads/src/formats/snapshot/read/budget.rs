//! Limits the work of reading a snapshot to a multiple of the file size.
//!
//! A pickle refers to a value that it has already built in two or three bytes. A malicious file of a
//! megabyte could thus contain more frames with one long name than memory holds, or thousands of entries
//! that are the same huge dict. Real snapshots share only frames, which are read once, and short strings;
//! they stay far below the limits.

use std::borrow::Cow;

use super::fields;
use crate::formats::pickle::{Node, Pickle, PickleError};

/// The remaining budget.
#[derive(Debug)]
pub(super) struct Budget {
    /// Items of lists; at most one per byte of the file.
    items: usize,
    /// Keys of dicts and bytes of strings.
    steps: usize,
}

impl Budget {
    pub(super) fn of(pickle: &Pickle) -> Self {
        /// A frame takes about 20 bytes and may refer to a string of about 200. Snapshots of real programs
        /// need a fifth of a step per byte.
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
    ) -> Result<impl Iterator<Item = Node<'a>> + use<'a>, PickleError> {
        let count = fields::items(node, what)?.count();
        let left = self.items.checked_sub(count);
        self.items = left.ok_or_else(|| {
            node.error(format!(
                "{what}: the lists have more items than the file has bytes"
            ))
        })?;
        fields::items(node, what)
    }

    /// The values of a dict under these keys.
    pub(super) fn fields<'a, const N: usize>(
        &mut self,
        node: Node<'a>,
        what: &str,
        keys: [&str; N],
    ) -> Result<[Option<Node<'a>>; N], PickleError> {
        let (found, count) = fields::fields(node, what, keys)?;
        self.take(count, node, what)?;
        Ok(found)
    }

    pub(super) fn text<'a>(
        &mut self,
        node: Node<'a>,
        what: &str,
    ) -> Result<Cow<'a, str>, PickleError> {
        let len = node.raw_text().map_or(0, <[u8]>::len);
        self.take(len, node, what)?;
        fields::text(node, what)
    }

    /// Fails if the budget is exhausted.
    pub(super) fn take(
        &mut self,
        steps: usize,
        node: Node<'_>,
        what: &str,
    ) -> Result<(), PickleError> {
        let left = self.steps.checked_sub(steps);
        self.steps = left.ok_or_else(|| {
            let reason = "the dicts and strings are many times larger than the file, because it refers \
                          to the same long ones again and again; no snapshot does that";
            node.error(format!("{what}: {reason}"))
        })?;
        Ok(())
    }
}
