//! Operations in memory: 32 bytes each, with each distinct tag stored once.

use std::collections::HashMap;
use std::sync::Arc;

use coalesce_alloc::PoolCall;
use foldhash::fast::FixedState;

use crate::op::Op;
use crate::surroundings::Change;

/// A sequence of operations.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Ops {
    pub(crate) kept: Vec<KeptOp>,
    tags: Tags,
}

/// An [`Op`] with a tag number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum KeptOp {
    Malloc {
        id: u64,
        bytes: u64,
        stream: u32,
        tag: Tag,
    },
    Free {
        id: u64,
    },
    RecordStream {
        id: u64,
        stream: u32,
    },
    EmptyCache,
    Pool(PoolCall),
    Limit {
        bytes: Option<u64>,
    },
    Surroundings(Change),
    Mark {
        tag: Tag,
    },
}

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
        self.kept.push(match op {
            Op::Malloc {
                id,
                bytes,
                stream,
                tag,
            } => KeptOp::Malloc {
                id,
                bytes,
                stream,
                tag: self.tags.number(tag),
            },
            Op::Free { id } => KeptOp::Free { id },
            Op::RecordStream { id, stream } => KeptOp::RecordStream { id, stream },
            Op::EmptyCache => KeptOp::EmptyCache,
            Op::Pool(call) => KeptOp::Pool(call),
            Op::Limit { bytes } => KeptOp::Limit { bytes },
            Op::Surroundings(change) => KeptOp::Surroundings(change),
            Op::Mark { tag } => KeptOp::Mark {
                tag: self.tags.number(tag),
            },
        });
    }

    /// All operations, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Op<'_>> {
        self.kept.iter().map(|&op| match op {
            KeptOp::Malloc {
                id,
                bytes,
                stream,
                tag,
            } => Op::Malloc {
                id,
                bytes,
                stream,
                tag: self.tags.text(tag),
            },
            KeptOp::Free { id } => Op::Free { id },
            KeptOp::RecordStream { id, stream } => Op::RecordStream { id, stream },
            KeptOp::EmptyCache => Op::EmptyCache,
            KeptOp::Pool(call) => Op::Pool(call),
            KeptOp::Limit { bytes } => Op::Limit { bytes },
            KeptOp::Surroundings(change) => Op::Surroundings(change),
            KeptOp::Mark { tag } => Op::Mark {
                tag: self.tags.text(tag),
            },
        })
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
