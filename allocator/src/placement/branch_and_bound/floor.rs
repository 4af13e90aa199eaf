//! The lowest place that a search may still use.

/// The place of the last placed buffer. No buffer is placed below, and none of a lower rank at the same
/// offset.
#[derive(Clone, Copy, Debug)]
pub(super) struct Floor {
    offset: u64,
    rank: u32,
    /// Identifies the ranking. Ranks of different rankings cannot be compared.
    ranking: u64,
}

impl Floor {
    pub(super) const HIGHEST: Self = Self {
        offset: u64::MAX,
        rank: u32::MAX,
        ranking: 0,
    };

    /// Allows all places from `offset` on.
    pub(super) fn from(offset: u64, ranking: u64) -> Self {
        Self {
            offset,
            rank: 0,
            ranking,
        }
    }

    /// Returns the floor after a buffer of the same ranking was placed.
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

    /// Whether this floor certainly admits everything that `other` admits.
    pub(super) fn is_at_most(self, other: Self) -> bool {
        let same_ranking = self.ranking == other.ranking;
        self.offset < other.offset
            || self.offset == other.offset && same_ranking && self.rank <= other.rank
    }
}
