//! The order of free blocks of one stream and size.
//!
//! Blocks are numbered so that the lower number comes first, and among equal numbers the lower address.

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

/// Numbers blocks by creation.
#[derive(Debug)]
pub(super) struct Creations {
    tie_break: TieBreak,
    count: u64,
}

impl Creations {
    pub(super) fn new(tie_break: TieBreak) -> Self {
        Self {
            tie_break,
            count: 0,
        }
    }

    /// The number of a block that covers a new segment.
    pub(super) fn segment(&mut self) -> u64 {
        match self.tie_break {
            TieBreak::Address => 0,
            TieBreak::Block | TieBreak::Segment => self.next(),
        }
    }

    /// The number of a block that was a part of block number `whole`.
    pub(super) fn part(&mut self, whole: u64) -> u64 {
        match self.tie_break {
            TieBreak::Address | TieBreak::Segment => whole,
            TieBreak::Block => self.next(),
        }
    }

    fn next(&mut self) -> u64 {
        self.count += 1;
        self.count
    }
}
