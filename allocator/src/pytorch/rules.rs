//! What changed in the allocator from release to release.
//!
//! Each rule is a type in the file that applies it, which describes its forms side by side. What changed in
//! the parsers of the settings is listed in `settings/rules.rs`; nothing else asks for the release.

use super::capture::PoolScope;
use super::checkpoint::GrownSegment;
use super::events::DeferredFrees;
use super::expandable::Reservation;
use super::limit::{Fraction, InvalidFraction};
use super::out_of_memory::OomHint;
use super::pages::LaterFailures;
use super::private_pool::{BorrowedBlock, Borrowing, Nesting, PoolStatistics};
use super::tie_break::TieBreak;
use crate::release::{Release, in_force, v2};

/// The form that each rule has in one release.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Rules {
    /// Which of several free blocks of one size comes first.
    pub(super) tie_break: TieBreak,
    /// What counts as a capture of a graph.
    pub(super) pool_scope: PoolScope,
    /// When the frees that a capture deferred are processed.
    pub(super) deferred_frees: DeferredFrees,
    /// Which of several redirections to private pools applies.
    pub(super) nesting: Nesting,
    /// When private pools lend memory.
    pub(super) borrowing: Borrowing,
    /// How private pools lend memory while expandable segments are on.
    pub(super) borrowed_block: BorrowedBlock,
    /// Whether an expandable segment may have grown since a checkpoint.
    pub(super) grown_segment: GrownSegment,
    /// Whether the memory of each private pool is counted separately.
    pub(super) pool_statistics: PoolStatistics,
    /// The limit that a fraction of memory means.
    pub(super) fraction: Fraction,
    /// How a fraction outside 0 to 1 is reported.
    pub(super) invalid_fraction: InvalidFraction,
    /// How much of an expandable segment's reservation a request may need.
    pub(super) reservation: Reservation,
    /// What later failures to create shareable memory are.
    pub(super) later_failures: LaterFailures,
    /// What the message of an out-of-memory error ends with.
    pub(super) oom_hint: OomHint,
}

const V2_6: Rules = Rules {
    tie_break: TieBreak::Address,
    pool_scope: PoolScope::IsCapture,
    deferred_frees: DeferredFrees::AtNextRequest,
    nesting: Nesting::Outermost,
    borrowing: Borrowing::LastResort,
    borrowed_block: BorrowedBlock::AsExpandable,
    grown_segment: GrownSegment::Refused,
    pool_statistics: PoolStatistics::None,
    fraction: Fraction::OfMemoryWhenSet,
    invalid_fraction: InvalidFraction::Asserted,
    reservation: Reservation::Unchecked,
    later_failures: LaterFailures::AreLackOfMemory,
    oom_hint: OomHint::OldPage,
};
const V2_8: Rules = Rules {
    invalid_fraction: InvalidFraction::Checked,
    ..V2_6
};
const V2_10: Rules = Rules {
    nesting: Nesting::Innermost,
    borrowed_block: BorrowedBlock::AsPlain,
    fraction: Fraction::OfMemoryAtStart,
    oom_hint: OomHint::AnyDevice,
    ..V2_8
};
const V2_11: Rules = Rules {
    borrowing: Borrowing::BeforeReturning,
    grown_segment: GrownSegment::Restored,
    oom_hint: OomHint::NewPage,
    ..V2_10
};
const V2_12: Rules = Rules {
    tie_break: TieBreak::Block,
    ..V2_11
};
const V2_13: Rules = Rules {
    tie_break: TieBreak::Segment,
    pool_scope: PoolScope::IsNoCapture,
    deferred_frees: DeferredFrees::AtEndOfPool,
    pool_statistics: PoolStatistics::Kept,
    fraction: Fraction::Rounded,
    later_failures: LaterFailures::AreErrors,
    ..V2_12
};
const V2_14: Rules = Rules {
    oom_hint: OomHint::UnlessExpandable,
    ..V2_13
};
const V2_15: Rules = Rules {
    reservation: Reservation::Checked,
    oom_hint: OomHint::AboutAddresses,
    ..V2_14
};

/// The rules after the oldest, with the first release that has them, oldest first.
const LATER: [(Release, Rules); 7] = [
    (v2(8), V2_8),
    (v2(10), V2_10),
    (v2(11), V2_11),
    (v2(12), V2_12),
    (v2(13), V2_13),
    (v2(14), V2_14),
    (v2(15), V2_15),
];

/// Whether two releases make the same decisions. Their messages and statistics may differ. The parsers of
/// the settings are not compared: no two releases differ in those alone.
#[must_use]
pub fn decide_alike(one: Release, other: Release) -> bool {
    let decisions = |release| Rules {
        invalid_fraction: V2_6.invalid_fraction,
        oom_hint: V2_6.oom_hint,
        pool_statistics: V2_6.pool_statistics,
        ..Rules::of(release)
    };
    decisions(one) == decisions(other)
}

impl Rules {
    /// The rules of a release.
    pub(super) fn of(release: Release) -> Self {
        in_force(V2_6, &LATER, release)
    }
}
