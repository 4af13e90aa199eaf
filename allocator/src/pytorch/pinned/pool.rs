//! The blocks of the default pool, or of the graphs that share a pool, and which free block a request gets.

use std::collections::VecDeque;

use super::PinnedBlock;
use super::size::{CLASSES, SizeClass};
use super::stats::Counters;
use crate::driver::EventId;

/// Which block of a free list serves a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Choice {
    /// The one freed last, also if a request that is not rounded needs more. Until 2.13.
    Last,
    /// Of those that are large enough, the one freed last. From 2.14 on.
    LastLargeEnough,
}

impl Choice {
    /// Takes the block out of the list.
    pub(super) fn take(
        self,
        list: &mut Vec<PinnedBlock>,
        bytes: u64,
        size_of: impl Fn(PinnedBlock) -> u64,
    ) -> Option<PinnedBlock> {
        match self {
            Self::Last => list.pop(),
            Self::LastLargeEnough => {
                let at = list.iter().rposition(|&block| size_of(block) >= bytes)?;
                Some(list.remove(at))
            }
        }
    }

    /// The bytes that are counted as allocated again.
    pub(super) fn counted_bytes(self, requested: u64, of_block: u64) -> u64 {
        match self {
            Self::Last => requested,
            Self::LastLargeEnough => of_block,
        }
    }
}

/// A pool of blocks.
#[derive(Debug)]
pub(super) struct Pool {
    /// Captures and graphs that use it; the default pool has none.
    pub(super) users: u64,
    /// The number of its blocks.
    pub(super) blocks: u64,
    /// The free blocks of each size class, in the order in which they became free.
    free: [Vec<PinnedBlock>; CLASSES],
    /// The events that freed blocks wait for, the oldest at the back.
    pub(super) events: VecDeque<(EventId, PinnedBlock)>,
    pub(super) counters: Counters,
}

impl Default for Pool {
    fn default() -> Self {
        Self {
            users: 0,
            blocks: 0,
            free: [const { Vec::new() }; CLASSES],
            events: VecDeque::new(),
            counters: Counters::default(),
        }
    }
}

impl Pool {
    /// The free blocks of a size class.
    pub(super) fn free_list(&mut self, class: SizeClass) -> &mut Vec<PinnedBlock> {
        &mut self.free[class.index()]
    }

    /// Empties the free lists, the smallest size class first.
    pub(super) fn take_free(&mut self) -> Vec<PinnedBlock> {
        self.free
            .iter_mut()
            .flat_map(|list| list.drain(..))
            .collect()
    }
}
