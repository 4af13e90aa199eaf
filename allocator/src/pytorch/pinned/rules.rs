//! What changed in the allocator of pinned memory from release to release.

use super::pool::Choice;
use super::stats::{FreedBytes, PoolCounters, Report};
use crate::release::{Release, in_force, v2};

/// Whether a block keeps the table of the streams that used it after a free. The table decides the order in which the next
/// free records events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum StreamSets {
    /// Kept by the block. Until 2.8.
    Kept,
    /// Given back. From 2.9 on.
    New,
}

/// The form that each rule has in one release.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Rules {
    /// Which free block serves a request.
    pub(super) choice: Choice,
    /// Whether a request looks for complete events of its size if another thread processes the events.
    pub(super) searches_events: bool,
    /// Whether a block keeps the table of its streams.
    pub(super) stream_sets: StreamSets,
    /// Whether captures of graphs have pools of their own.
    pub(super) captures_have_pools: bool,
    /// What is reported.
    pub(super) report: Report,
    /// What a free counts if no stream used the block.
    pub(super) count_of_unused: FreedBytes,
    /// What is counted when all streams have finished that used a block.
    pub(super) count_of_waited: FreedBytes,
    /// How blocks of several pools are counted.
    pub(super) pool_counters: PoolCounters,
}

const V2_6: Rules = Rules {
    choice: Choice::Last,
    searches_events: true,
    stream_sets: StreamSets::Kept,
    captures_have_pools: false,
    report: Report::None,
    count_of_unused: FreedBytes::OfBlock,
    count_of_waited: FreedBytes::OfSearch(None),
    pool_counters: PoolCounters::Shared,
};
const V2_7: Rules = Rules {
    report: Report::Segments,
    ..V2_6
};
const V2_9: Rules = Rules {
    stream_sets: StreamSets::New,
    ..V2_7
};
const V2_10: Rules = Rules {
    searches_events: false,
    report: Report::Active,
    count_of_unused: FreedBytes::NotCounted,
    ..V2_9
};
const V2_11: Rules = Rules {
    captures_have_pools: true,
    ..V2_10
};
const V2_13: Rules = Rules {
    count_of_unused: FreedBytes::OfBlock,
    count_of_waited: FreedBytes::OfBlock,
    ..V2_11
};
const V2_14: Rules = Rules {
    choice: Choice::LastLargeEnough,
    ..V2_13
};
const V2_15: Rules = Rules {
    pool_counters: PoolCounters::Separate,
    ..V2_14
};

/// The rules after the oldest, with the first release that has them, oldest first.
const LATER: [(Release, Rules); 7] = [
    (v2(7), V2_7),
    (v2(9), V2_9),
    (v2(10), V2_10),
    (v2(11), V2_11),
    (v2(13), V2_13),
    (v2(14), V2_14),
    (v2(15), V2_15),
];

impl Rules {
    /// The rules of a release.
    pub(super) fn of(release: Release) -> Self {
        in_force(V2_6, &LATER, release)
    }
}
