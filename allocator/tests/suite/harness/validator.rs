//! Checks the state of an allocator with plain arithmetic. Deliberately naive: it compares everything
//! with everything and knows nothing of the allocator.

use coalesce_alloc::snapshot::{BlockState, SegmentInfo};
use coalesce_alloc::stats::{DeviceStats, PoolKind};

use super::shadow::Live;

/// Checks that blocks tile their segments, segments are disjoint, free neighbours are merged, every
/// live allocation is one block of at least its size, and the statistics are the sums of these. A
/// policy may also count `unmapped` bytes, which have no address and belong to no segment.
pub fn validate(segments: &[SegmentInfo], stats: &DeviceStats, live: &[Live], unmapped: u64) {
    for segment in segments {
        let mut expected = segment.address;
        for block in &segment.blocks {
            let at = block.address;
            assert_eq!(at, expected, "gap or overlap in {}", segment.address);
            assert!(block.size > 0);
            expected = expected.offset(block.size);
        }
        for pair in segment.blocks.windows(2) {
            let both_free = pair.iter().all(|block| block.state == BlockState::Inactive);
            let at = pair[0].address;
            assert!(!both_free, "{at} and its free neighbour are not merged");
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
        let addr = allocation.addr;
        let found = blocks().filter(|block| block.is_allocated() && block.address == addr);
        let found: Vec<_> = found.collect();
        assert_eq!(found.len(), 1, "{addr} is {} blocks", found.len());
        assert!(found[0].size >= allocation.bytes, "{addr} is too small");
        assert_eq!(found[0].requested_size, allocation.bytes);
    }
    let allocated = blocks().filter(|block| block.is_allocated()).count();
    assert_eq!(allocated, live.len(), "allocated blocks without a request");
}

fn validate_stats(segments: &[SegmentInfo], stats: &DeviceStats, unmapped: u64) {
    type Count = fn(&SegmentInfo) -> u64;
    for (name, array) in stats.arrays() {
        let of_segment: Count = match name {
            "allocation" => |s| count(s, BlockState::ActiveAllocated),
            "segment" => |s| u64::from(!s.is_expandable),
            "active" => |s| s.blocks.len() as u64 - count(s, BlockState::Inactive),
            "allocated_bytes" => SegmentInfo::allocated_size,
            "active_bytes" => SegmentInfo::active_size,
            "requested_bytes" => SegmentInfo::requested_size,
            "inactive_split_bytes" => |s| {
                let whole = s.is_expandable || s.blocks.len() == 1;
                if whole {
                    0
                } else {
                    s.total_size() - s.active_size()
                }
            },
            _ => continue,
        };
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
    let blocks = segment.blocks.iter();
    blocks.filter(|block| block.state == state).count() as u64
}
