//! Operations in memory: 32 bytes each, with each distinct tag stored once.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::FixedState;

use crate::op::{Op, Operation};

/// A sequence of operations.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Ops {
    pub(crate) kept: Vec<KeptOp>,
    tags: Tags,
}

/// An [`Op`] with the number of its tag.
pub(crate) type KeptOp = Operation<Tag>;

/// The number of a tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tag(usize);

impl Ops {
    /// The number of operations.
    pub(crate) fn len(&self) -> usize {
        self.kept.len()
    }

    /// Bytes of memory for the tag of an operation; none if it is not the first with this tag.
    pub(crate) fn new_tag(&self, op: Op<'_>) -> u64 {
        const PER_TAG: u64 = 128;
        match op {
            Op::Malloc { tag, .. } | Op::Mark { tag } if !self.tags.numbers.contains_key(tag) => {
                PER_TAG + tag.len() as u64
            }
            _ => 0,
        }
    }

    /// Appends an operation.
    pub(crate) fn push(&mut self, op: Op<'_>) {
        self.kept.push(op.with_tag(|tag| self.tags.number(tag)));
    }

    /// All operations, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Op<'_>> {
        self.kept
            .iter()
            .map(|op| op.with_tag(|tag| self.tags.text(tag)))
    }
}

/// The distinct tags by number, and their numbers.
#[derive(Clone, PartialEq, Debug, Default)]
struct Tags {
    texts: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, Tag, FixedState>,
}

impl Tags {
    fn number(&mut self, text: &str) -> Tag {
        if let Some(&tag) = self.numbers.get(text) {
            return tag;
        }
        let (text, tag) = (Arc::<str>::from(text), Tag(self.texts.len()));
        self.texts.push(Arc::clone(&text));
        self.numbers.insert(text, tag);
        tag
    }

    fn text(&self, Tag(number): Tag) -> &str {
        self.texts.get(number).map_or("", |text| text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_takes_32_bytes() {
        assert_eq!(size_of::<KeptOp>(), 32);
    }
}
