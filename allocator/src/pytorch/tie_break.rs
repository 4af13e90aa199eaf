//! The order of free blocks of one stream and size.
//!
//! Blocks have ranks: of two free blocks of one stream and size, the one with the lower rank comes first. No two
//! blocks of one stream have the same rank.

use super::size::MIN_BLOCK;
use crate::driver::DeviceAddr;

/// Which of several free blocks of one stream and size comes first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TieBreak {
    /// The lowest address. Until 2.11.
    Address,
    /// The block that was created first. A split creates its front, so the remainder is older. 2.12
    /// (pytorch#178362).
    Block,
    /// The segment that was created first, in it the lowest address. From 2.13 on (pytorch#183591).
    Segment,
}

/// Ranks blocks, as addresses in units of 512 bytes or as numbers. The ranks of a segment from 2.13 on are
/// as many as its units, and follow those of the segment before it.
#[derive(Debug)]
pub(super) struct Ranks {
    tie_break: TieBreak,
    /// The next number.
    next: u64,
}

impl Ranks {
    pub(super) fn new(tie_break: TieBreak) -> Self {
        Self { tie_break, next: 0 }
    }

    /// The rank of a block that covers a new segment.
    pub(super) fn of_segment(&mut self, addr: DeviceAddr, bytes: u64) -> u64 {
        match self.tie_break {
            TieBreak::Address => units(addr),
            TieBreak::Block => self.take(1),
            TieBreak::Segment => self.take(bytes.div_ceil(MIN_BLOCK)),
        }
    }

    /// The rank of a new block at `addr` that is cut from the block at `whole`, which has the rank `rank`.
    #[inline]
    pub(super) fn of_part(&mut self, rank: u64, whole: DeviceAddr, addr: DeviceAddr) -> u64 {
        match self.tie_break {
            TieBreak::Address | TieBreak::Segment => moved(rank, whole, addr),
            TieBreak::Block => self.take(1),
        }
    }

    /// The new rank of a block whose start moves.
    #[inline]
    pub(super) fn of_moved(&self, rank: u64, from: DeviceAddr, to: DeviceAddr) -> u64 {
        match self.tie_break {
            TieBreak::Address | TieBreak::Segment => moved(rank, from, to),
            TieBreak::Block => rank,
        }
    }

    fn take(&mut self, count: u64) -> u64 {
        let first = self.next;
        self.next += count;
        first
    }
}

fn units(addr: DeviceAddr) -> u64 {
    addr.0 / MIN_BLOCK
}

fn moved(rank: u64, from: DeviceAddr, to: DeviceAddr) -> u64 {
    rank.wrapping_add(units(to)).wrapping_sub(units(from))
}
