//! A workload held in memory, to be replayed many times.
//!
//! Reading a recording takes as long as replaying it, so whoever replays one a hundred times reads it
//! once. An operation takes 32 bytes, each different tag is kept once.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use crate::op::{Answer, Op, Sink, Workload, WorkloadError};
use crate::surroundings::Change;

/// The operations of another workload, as that sends them when every request is served. One that looks
/// at the answers does so no more.
#[derive(Clone, Debug)]
pub struct Cached {
    name: String,
    pub(crate) ops: Vec<CachedOp>,
    /// Every tag, once.
    tags: Vec<String>,
}

/// An [`Op`] whose tag is a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CachedOp {
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
    Around(Change),
    Mark {
        tag: Tag,
    },
}

/// The number of a tag in [`Cached::tags`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tag(u32);

impl Cached {
    /// Reads a workload.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn of(workload: &dyn Workload) -> Result<Self, WorkloadError> {
        let mut ops = Vec::new();
        let mut tags = Tags::default();
        workload.emit(&mut |op: Op<'_>| {
            ops.push(match op {
                Op::Malloc {
                    id,
                    bytes,
                    stream,
                    tag,
                } => CachedOp::Malloc {
                    id,
                    bytes,
                    stream,
                    tag: tags.number(tag)?,
                },
                Op::Free { id } => CachedOp::Free { id },
                Op::RecordStream { id, stream } => CachedOp::RecordStream { id, stream },
                Op::EmptyCache => CachedOp::EmptyCache,
                Op::Around(change) => CachedOp::Around(change),
                Op::Mark { tag } => CachedOp::Mark {
                    tag: tags.number(tag)?,
                },
            });
            Ok(Answer::Done)
        })?;
        Ok(Self {
            name: workload.name().to_owned(),
            ops,
            tags: tags.texts,
        })
    }

    /// How many operations there are, marks included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Whether it does nothing at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    fn text(&self, tag: Tag) -> &str {
        self.tags.get(tag.0 as usize).map_or("", String::as_str)
    }
}

impl Workload for Cached {
    fn name(&self) -> &str {
        &self.name
    }

    fn emit(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
        for op in &self.ops {
            sink.op(match *op {
                CachedOp::Malloc {
                    id,
                    bytes,
                    stream,
                    tag,
                } => Op::Malloc {
                    id,
                    bytes,
                    stream,
                    tag: self.text(tag),
                },
                CachedOp::Free { id } => Op::Free { id },
                CachedOp::RecordStream { id, stream } => Op::RecordStream { id, stream },
                CachedOp::EmptyCache => Op::EmptyCache,
                CachedOp::Around(change) => Op::Around(change),
                CachedOp::Mark { tag } => Op::Mark {
                    tag: self.text(tag),
                },
            })?;
        }
        Ok(())
    }
}

/// Tags by number while they are collected.
#[derive(Default)]
struct Tags {
    numbers: HashMap<String, Tag, FixedState>,
    texts: Vec<String>,
}

impl Tags {
    fn number(&mut self, text: &str) -> Result<Tag, WorkloadError> {
        if let Some(&tag) = self.numbers.get(text) {
            return Ok(tag);
        }
        let too_many = |_| WorkloadError::Stopped("more than 2^32 different tags".to_owned());
        let tag = Tag(u32::try_from(self.texts.len()).map_err(too_many)?);
        self.texts.push(text.to_owned());
        self.numbers.insert(text.to_owned(), tag);
        Ok(tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presets;

    fn operations(workload: &dyn Workload) -> Vec<String> {
        let mut ops = Vec::new();
        workload
            .emit(&mut |op: Op<'_>| {
                ops.push(format!("{op:?}"));
                Ok(Answer::Done)
            })
            .unwrap();
        ops
    }

    #[test]
    fn it_sends_what_the_other_sends() {
        for name in ["streams_in_time", "shared_gpu", "churn"] {
            let workload = presets::find(name).unwrap();
            let workload = workload.build(toml::Table::new()).unwrap();
            let cached = Cached::of(workload.as_ref()).unwrap();
            assert_eq!(cached.name(), workload.name());
            assert_eq!(operations(&cached), operations(workload.as_ref()));
            assert!(!cached.is_empty());
        }
        assert_eq!(size_of::<CachedOp>(), 32);
    }
}
