//! How low the search may still place buffers.

/// The place of the buffer that was placed last: nothing goes below, and at the same offset nothing
/// of a lower rank.
#[derive(Clone, Copy, Debug)]
pub(super) struct Floor {
    offset: u64,
    rank: u32,
    /// Names the ranking: ranks of two rankings say nothing of each other.
    ranking: u64,
}

impl Floor {
    pub(super) const HIGHEST: Self = Self {
        offset: u64::MAX,
        rank: u32::MAX,
        ranking: 0,
    };

    /// Everything from `offset` on.
    pub(super) fn from(offset: u64, ranking: u64) -> Self {
        Self {
            offset,
            rank: 0,
            ranking,
        }
    }

    /// The floor after a buffer of the same ranking was placed.
    pub(super) fn raised_to(self, offset: u64, rank: u32) -> Self {
        Self {
            offset,
            rank,
            ..self
        }
    }

    pub(super) fn offset(self) -> u64 {
        self.offset
    }

    /// Whether a buffer of this rank may be placed at `offset`.
    pub(super) fn admits(self, offset: u64, rank: u32) -> bool {
        (offset, rank) >= (self.offset, self.rank)
    }

    /// Whether it is certain that this floor admits all that `other` admits.
    pub(super) fn is_at_most(self, other: Self) -> bool {
        let same_ranking = self.ranking == other.ranking;
        self.offset < other.offset
            || self.offset == other.offset && same_ranking && self.rank <= other.rank
    }
}
