//! Checks the state of an allocator with plain arithmetic. Deliberately naive: it compares everything
//! with everything and knows nothing of the allocator.

use coalesce_alloc::snapshot::{BlockState, SegmentInfo};
use coalesce_alloc::stats::{DeviceStats, PoolKind, StatArray};

use super::shadow::Live;

/// Checks that blocks tile their segments, segments are disjoint, free neighbours are merged, every
/// live allocation is one block of at least its size, and the statistics are the sums of these. A
/// policy may also count `unmapped` bytes, which have no address and belong to no segment.
pub fn validate(segments: &[SegmentInfo], stats: &DeviceStats, live: &[Live], unmapped: u64) {
    for segment in segments {
        let mut expected = segment.address;
        for block in &segment.blocks {
            assert_eq!(
                block.address, expected,
                "gap or overlap in {}",
                segment.address
            );
            assert!(block.size > 0);
            expected = expected.offset(block.size);
        }
        for pair in segment.blocks.windows(2) {
            let both_free = pair.iter().all(|block| block.state == BlockState::Inactive);
            assert!(
                !both_free,
                "{} and its free neighbour are not merged",
                pair[0].address
            );
        }
    }
    for (i, a) in segments.iter().enumerate() {
        for b in &segments[..i] {
            let apart = a.address.0 >= b.address.0 + b.total_size()
                || b.address.0 >= a.address.0 + a.total_size();
            assert!(apart, "segments {} and {} overlap", a.address, b.address);
        }
    }
    validate_live(segments, live);
    validate_stats(segments, stats, unmapped);
}

fn validate_live(segments: &[SegmentInfo], live: &[Live]) {
    let blocks = || segments.iter().flat_map(|segment| &segment.blocks);
    for allocation in live {
        let found: Vec<_> = blocks()
            .filter(|block| block.is_allocated() && block.address == allocation.addr)
            .collect();
        assert_eq!(
            found.len(),
            1,
            "{} is {} blocks",
            allocation.addr,
            found.len()
        );
        assert!(
            found[0].size >= allocation.bytes,
            "{} is too small",
            allocation.addr
        );
        assert_eq!(found[0].requested_size, allocation.bytes);
    }
    let allocated = blocks().filter(|block| block.is_allocated()).count();
    assert_eq!(allocated, live.len(), "allocated blocks without a request");
}

fn validate_stats(segments: &[SegmentInfo], stats: &DeviceStats, unmapped: u64) {
    type Count = fn(&SegmentInfo) -> u64;
    let figures: [(&str, &StatArray, Count); 7] = [
        ("allocation", &stats.allocation, |s| {
            count(s, BlockState::ActiveAllocated)
        }),
        ("active", &stats.active(), |s| {
            s.blocks.len() as u64 - count(s, BlockState::Inactive)
        }),
        (
            "allocated_bytes",
            &stats.allocated_bytes,
            SegmentInfo::allocated_size,
        ),
        (
            "active_bytes",
            &stats.active_bytes(),
            SegmentInfo::active_size,
        ),
        (
            "requested_bytes",
            &stats.requested_bytes,
            SegmentInfo::requested_size,
        ),
        ("segment", &stats.segment, |s| u64::from(!s.is_expandable)),
        ("inactive_split_bytes", &stats.inactive_split_bytes, |s| {
            let whole = s.blocks.len() == 1;
            if s.is_expandable || whole {
                0
            } else {
                s.total_size() - s.active_size()
            }
        }),
    ];
    for (name, array, of_segment) in figures {
        for kind in [PoolKind::Small, PoolKind::Large] {
            let of_kind = segments.iter().filter(|segment| segment.kind == kind);
            let sum: u64 = of_kind.map(of_segment).sum();
            assert_eq!(array.of(kind).current as u64, sum, "{name} of {kind:?}");
        }
    }
    for kind in [PoolKind::Small, PoolKind::Large] {
        let reserved = stats.reserved_bytes.of(kind).current as u64;
        let of_kind = segments.iter().filter(|segment| segment.kind == kind);
        let mapped: u64 = of_kind.map(SegmentInfo::total_size).sum();
        assert!(
            (mapped..=mapped + unmapped).contains(&reserved),
            "{reserved} bytes of {kind:?} reserved, {mapped} in segments"
        );
    }
}

fn count(segment: &SegmentInfo, state: BlockState) -> u64 {
    segment
        .blocks
        .iter()
        .filter(|block| block.state == state)
        .count() as u64
}
