//! Limits the work of reading a snapshot to a multiple of the file size, and what is kept of it to the budget of the file.
//!
//! A pickle refers to a value that it has already built in two or three bytes. A malicious file of a
//! megabyte could thus contain more frames with one long name than memory holds, or thousands of entries
//! that are the same huge dict. Real snapshots share only frames, which are read once, and short strings;
//! they stay far below the limits.

use std::borrow::Cow;

use super::fields;
use crate::budget;
use crate::formats::pickle::{Node, PickleError, Place};

/// The work so far. The limits grow with the bytes of the file that have been read.
#[derive(Debug, Default)]
pub(super) struct Budget {
    /// Items of lists; at most one per byte of the file.
    items: u64,
    /// Keys of dicts and bytes of strings.
    steps: u64,
    /// Bytes of memory for what is made of the values, and the most that there may be.
    pub(super) kept: u64,
    pub(super) most: budget::Budget,
}

/// Bytes of memory for an item of a list: a segment, a block, an entry; for an item that is a frame; and for a key of a dict.
const PER_ITEM: u64 = 64;
const PER_FRAME: u64 = 8;
const PER_KEY: u64 = 16;

/// A frame takes about 20 bytes and may refer to a string of about 200. Snapshots of real programs need a fifth of a
/// step per byte.
const STEPS_PER_BYTE: u64 = 16;

impl Budget {
    /// The items of a list.
    pub(super) fn list<'a>(
        &mut self,
        node: Node<'a>,
        what: &str,
    ) -> Result<impl Iterator<Item = Node<'a>> + use<'a>, PickleError> {
        let count = fields::items(node, what)?.count();
        self.take_items(count, node.place(), what)?;
        self.keep(
            (PER_ITEM - PER_FRAME).saturating_mul(count as u64),
            node.place(),
        )?;
        fields::items(node, what)
    }

    /// Fails if the lists have too many items.
    pub(super) fn take_items(
        &mut self,
        count: usize,
        place: Place,
        what: &str,
    ) -> Result<(), PickleError> {
        let items = self.items.saturating_add(count as u64);
        if items > place.bytes_read {
            return Err(place.error(format!(
                "{what}: the lists have more items than the file has bytes"
            )));
        }
        self.items = items;
        self.keep(PER_FRAME.saturating_mul(count as u64), place)
    }

    /// Fails if more must be kept than the file allows.
    fn keep(&mut self, bytes: u64, place: Place) -> Result<(), PickleError> {
        self.kept = self.kept.saturating_add(bytes);
        let checked = self.most.check(self.kept);
        checked.map_err(|reason| place.error(reason.to_string()))
    }

    /// The values of a dict under these keys.
    pub(super) fn fields<'a, const N: usize>(
        &mut self,
        node: Node<'a>,
        what: &str,
        keys: [&str; N],
    ) -> Result<[Option<Node<'a>>; N], PickleError> {
        let (found, count) = fields::fields(node, what, keys)?;
        self.take_keys(count, node.place(), what)?;
        Ok(found)
    }

    pub(super) fn text<'a>(
        &mut self,
        node: Node<'a>,
        what: &str,
    ) -> Result<Cow<'a, str>, PickleError> {
        let len = node.raw_text().map_or(0, <[u8]>::len);
        self.take(len, node.place(), what)?;
        self.keep(2 * len as u64, node.place())?;
        fields::text(node, what)
    }

    /// Fails if the dicts have too many keys.
    pub(super) fn take_keys(
        &mut self,
        count: usize,
        place: Place,
        what: &str,
    ) -> Result<(), PickleError> {
        self.take(count, place, what)?;
        self.keep(PER_KEY.saturating_mul(count as u64), place)
    }

    /// Fails if the budget is exhausted.
    pub(super) fn take(
        &mut self,
        steps: usize,
        place: Place,
        what: &str,
    ) -> Result<(), PickleError> {
        let steps = self.steps.saturating_add(steps as u64);
        if steps > place.bytes_read.saturating_mul(STEPS_PER_BYTE) {
            let reason = "the dicts and strings are many times larger than the file, because it refers \
                          to the same long ones again and again; no snapshot does that";
            return Err(place.error(format!("{what}: {reason}")));
        }
        self.steps = steps;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::formats::pickle::Pickle;

    use super::*;

    const PLACE: Place = Place {
        at: 3,
        bytes_read: 1000,
    };

    /// The budget of a file of which at most so many bytes may be kept.
    fn within(most: u64) -> Budget {
        Budget {
            most: budget::Budget::of_plain(0).within(most),
            ..Budget::default()
        }
    }

    #[test]
    fn what_is_kept_has_a_limit() {
        let budget = || within(96);
        let is_kept = |items: usize| budget().take_items(items, PLACE, "frames").is_ok();
        assert!(is_kept(12) && !is_kept(13));
        let is_kept = |keys: usize| budget().take_keys(keys, PLACE, "frame").is_ok();
        assert!(is_kept(6) && !is_kept(7));
        // The sum counts.
        let mut sum = budget();
        sum.take_items(4, PLACE, "frames").unwrap();
        sum.take_keys(4, PLACE, "frame").unwrap();
        let error = sum.take_items(1, PLACE, "frames").unwrap_err().to_string();
        assert!(error.contains("the limit of 96 bytes"), "{error}");
    }

    #[test]
    fn what_is_kept_of_a_list_and_of_a_text() {
        let pickle = Pickle::read(b"\x80\x02](K\x01K\x02K\x03e.".to_vec()).unwrap();
        let list = |most| {
            let items = within(most).list(pickle.root(), "segments")?;
            Ok::<_, PickleError>(items.count())
        };
        assert_eq!(list(192).unwrap(), 3);
        list(191).unwrap_err();
        let pickle = Pickle::read(b"\x80\x02X\x05\0\0\0hello.".to_vec()).unwrap();
        let text = |most| {
            within(most)
                .text(pickle.root(), "name")
                .map(Cow::into_owned)
        };
        assert_eq!(text(10).unwrap(), "hello");
        text(9).unwrap_err();
    }

    #[test]
    fn work_is_in_proportion_to_the_bytes_read() {
        let mut budget = Budget::default();
        budget.take_items(1000, PLACE, "frames").unwrap();
        let error = budget.take_items(1, PLACE, "frames").unwrap_err();
        let expected = "frames: the lists have more items than the file has bytes";
        assert!(error.to_string().contains(expected), "{error}");
        budget.take(16_000, PLACE, "frame").unwrap();
        let error = budget.take_keys(1, PLACE, "frame").unwrap_err();
        let expected = "frame: the dicts and strings are many times larger than the file";
        assert!(error.to_string().contains(expected), "{error}");
    }
}
