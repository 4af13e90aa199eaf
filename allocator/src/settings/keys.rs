//! The keys of a settings string, and the releases that accept them.

use crate::release::{Release, v2};

/// A key, with the first release that accepts it, and the first that does not any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key {
    /// The key as it is written.
    pub name: &'static str,
    /// The first release that accepts it.
    pub since: Release,
    /// The first later release that does not.
    pub until: Option<Release>,
    /// The parser that reads its value, from 2.10 on.
    pub(super) parser: Parser,
}

/// The parsers of a settings string. Each skips the keys of the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Parser {
    /// For all devices.
    Shared,
    /// For CUDA alone.
    Cuda,
}

impl Key {
    /// The key of this name, if any release has it.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        KEYS.iter().find(|key| key.name == name)
    }

    /// Whether the release accepts it.
    #[must_use]
    pub fn is_accepted(&self, release: Release) -> bool {
        self.since <= release && self.until.is_none_or(|until| release < until)
    }
}

/// Whether the parser of this release reads the value of a key.
pub(super) fn reads(parser: Parser, release: Release, key: &str) -> bool {
    Key::named(key).is_some_and(|key| key.parser == parser && key.is_accepted(release))
}

const fn shared(name: &'static str, since: Release) -> Key {
    Key {
        name,
        since,
        until: None,
        parser: Parser::Shared,
    }
}

const fn cuda(name: &'static str, since: Release) -> Key {
    Key {
        parser: Parser::Cuda,
        ..shared(name, since)
    }
}

/// All keys.
///
/// Source: `c10/cuda/CUDAAllocatorConfig.h` and `c10/core/AllocatorConfig.h` of the releases 2.0 to 2.15,
/// and the pull requests of pytorch/pytorch that are named behind the keys.
pub const KEYS: [Key; 23] = [
    cuda("backend", v2(0)),
    shared("max_split_size_mb", v2(0)),
    shared("garbage_collection_threshold", v2(0)),
    shared("roundup_power2_divisions", v2(0)),
    // Replaced by the list form of roundup_power2_divisions.
    Key {
        until: Some(v2(0)),
        ..shared(
            "roundup_bypass_threshold_mb",
            Release {
                major: 1,
                minor: 13,
            },
        )
    },
    shared("expandable_segments", v2(1)),      // #96995
    cuda("release_lock_on_cudamalloc", v2(2)), // #108367
    cuda("release_lock_on_hipmalloc", v2(2)),
    cuda("pinned_use_cuda_host_register", v2(2)), // #110123
    cuda("pinned_use_hip_host_register", v2(2)),
    cuda("pinned_num_register_threads", v2(2)), // #110123
    shared("max_non_split_rounding_mb", v2(6)), // #136174
    shared("pinned_use_background_threads", v2(6)), // #135524
    cuda("graph_capture_record_stream_reuse", v2(9)), // #158352
    cuda("per_process_memory_fraction", v2(10)), // #161035
    cuda("pinned_reserve_segment_size_mb", v2(10)), // #164501
    shared("large_segment_size_mb", v2(11)),    // #172056
    cuda("throw_on_cudamalloc_oom", v2(12)),    // #179473
    cuda("pinned_free_catch_all", v2(12)),
    cuda("pinned_max_round_threshold_mb", v2(13)),
    cuda("pinned_max_cached_size_mb", v2(13)),
    cuda("expandable_segments_reserve", v2(15)), // #192269
    cuda("expandable_segments_reserve_by_class", v2(15)), // #192269
];
