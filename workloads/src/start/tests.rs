//! Where the segments of a start state lie, and what of them is left on a smaller device.

use coalesce_alloc::driver::sim::SimConfig;
use coalesce_alloc::driver::{DeviceAddr, StreamId};
use coalesce_alloc::release::Release;
use coalesce_alloc::settings::Settings;
use coalesce_alloc::snapshot::SegmentInfo;

use super::{FIRST, RANGE, StartState, without_free_pages};
use crate::formats::snapshot::fixture;

const MIB: u64 = 1 << 20;
const EXPANDABLE: &str = "expandable_segments:True";

/// A segment at an address in MiB, with blocks of these sizes in MiB: negative ones are free.
fn segment(mib: u64, stream: u32, is_expandable: bool, blocks: &[i64]) -> SegmentInfo {
    let blocks = blocks.iter().map(|&mib| match mib {
        1.. => format!("{mib}M/{} ", mib * (1 << 20) - 1),
        _ => format!("{mib}M "),
    });
    SegmentInfo {
        device: 3,
        stream: StreamId::nth(stream),
        is_expandable,
        ..fixture::segment(&format!("{mib}M | {}", blocks.collect::<String>()))
    }
}

fn state(segments: Vec<SegmentInfo>, base_mib: u64, conf: &str) -> Option<StartState> {
    let settings = Settings::of_release(Release::DEFAULT);
    let settings = settings.started_with(conf).unwrap();
    let base = |_: &SegmentInfo| DeviceAddr(base_mib * MIB);
    StartState::new(segments, base, settings, conf.to_owned())
}

/// MiB after the first address that states use.
fn places(segments: &[SegmentInfo]) -> Vec<u64> {
    let places = segments.iter().map(|segment| segment.address.0 - FIRST);
    places.map(|place| place / MIB).collect()
}

#[test]
fn segments_keep_their_distances() {
    let segments = vec![
        segment(1000, 0, false, &[20]),
        segment(1020, 0, false, &[8, -12]),
        segment(1100, 1, false, &[-3, 30]),
        // Not a multiple of the granularity of the device, which therefore needs more.
        segment(1133, 0, false, &[3]),
        segment(1136, 0, false, &[20]),
    ];
    let state = state(segments, 0, "").unwrap();
    assert_eq!(places(&state.segments), [0, 20, 100, 134, 138]);
    assert!(state.segments.iter().all(|segment| segment.device == 0));
    let live: Vec<u64> = (0..)
        .map_while(|id| state.address_of(id))
        .map(|addr| (addr.0 - FIRST) / MIB)
        .collect();
    assert_eq!(live, [0, 20, 103, 134, 138]);
    assert!(state.ranges.is_empty());
}

#[test]
fn runs_of_an_expandable_segment_share_a_range() {
    let segments = vec![
        segment(1020, 0, true, &[20]),
        segment(1060, 1, true, &[20]),
        segment(1100, 0, true, &[-20, 20]),
    ];
    let state = state(segments, 1000, EXPANDABLE).unwrap();
    let range = RANGE / MIB;
    assert_eq!(places(&state.segments), [20, 100, range + 60]);
    let bases: Vec<u64> = state.ranges.iter().map(|range| range.base.0).collect();
    assert_eq!(bases, [FIRST, FIRST + RANGE]);
    let reach = state.segments.iter().map(|run| state.reach(run) / MIB);
    assert_eq!(reach.collect::<Vec<_>>(), [40, 140, 80]);
}

#[test]
fn a_run_before_the_start_of_its_range_moves_the_start() {
    let state = state(vec![segment(1000, 0, true, &[20])], 1100, EXPANDABLE).unwrap();
    assert_eq!(places(&state.segments), [0]);
}

/// The allocator keeps a table of all pages between the first and the last.
#[test]
fn pages_may_be_9_tib_apart() {
    let most = (9 << 20) - 20;
    let at = |mib: u64| state(vec![segment(mib, 0, true, &[20])], 0, EXPANDABLE);
    assert!(at(most).is_some());
    assert!(at(most + 1).is_none());
}

#[test]
fn nothing_reserved_is_no_state() {
    assert_eq!(state(Vec::new(), 0, ""), None);
}

/// Reserved and allocated MiB after a start on a device of this capacity under these settings; none if the state is
/// impossible.
fn restored(state: &StartState, capacity_mib: u64, conf: &str) -> Option<(i64, i64)> {
    let settings = Settings::of_release(Release::DEFAULT);
    let settings = settings.started_with(conf).unwrap();
    let config = SimConfig::with_capacity(capacity_mib * MIB);
    let allocator = state.restore(&config, &settings, None)?;
    allocator.check().unwrap();
    let stats = allocator.stats();
    let mib = MIB.cast_signed();
    let reserved = stats.reserved_bytes.all().current / mib;
    Some((reserved, stats.allocated_bytes.all().current / mib))
}

#[test]
fn cached_segments_are_left_out_first_and_the_last_segments_next() {
    let segments = vec![
        segment(1000, 0, false, &[20]),
        segment(1020, 0, false, &[-40]),
        segment(1060, 0, false, &[-10, 12]),
        segment(1082, 0, false, &[30]),
    ];
    let state = state(segments, 0, "").unwrap();
    for (capacity, expected) in [
        (112, (112, 62)),
        // Without the segment that is wholly free.
        (111, (72, 62)),
        (72, (72, 62)),
        // Without the last one.
        (71, (42, 32)),
        (42, (42, 32)),
        // The third one does not fit, the last one does not either.
        (41, (20, 20)),
        (19, (0, 0)),
    ] {
        assert_eq!(restored(&state, capacity, ""), Some(expected), "{capacity}");
    }
    let half = "per_process_memory_fraction:0.5";
    assert_eq!(restored(&state, 224, half), Some((112, 62)));
    assert_eq!(restored(&state, 222, half), Some((72, 62)));
    assert_eq!(restored(&state, 112, EXPANDABLE), None);
}

#[test]
fn free_pages_are_left_out_and_far_runs_too() {
    let segments = vec![
        segment(1000, 0, true, &[30, -50, 20]),
        segment(1140, 0, true, &[20]),
    ];
    let state = state(segments, 1000, EXPANDABLE).unwrap();
    for (capacity, expected) in [
        // Addresses are reserved for nine eighths of the device.
        (142, (100, 50)),
        (143, (120, 70)),
        // Pages of 20 MiB: the second block covers the third and the fourth wholly.
        (128, (100, 50)),
        (90, (60, 50)),
        (59, (40, 30)),
    ] {
        assert_eq!(
            restored(&state, capacity, EXPANDABLE),
            Some(expected),
            "{capacity}"
        );
    }
}

/// The runs that are left: their place in MiB and their blocks, where free ones are negative.
fn left(blocks: &[i64], first_mib: u64) -> Vec<(u64, Vec<i64>)> {
    let run = segment(first_mib, 0, true, blocks);
    let runs = without_free_pages(&run, DeviceAddr(100 * MIB), 20 * MIB);
    let runs = runs.iter().map(|run| {
        let blocks = run.blocks.iter().map(|block| {
            let mib = (block.size / MIB).cast_signed();
            if block.is_active() { mib } else { -mib }
        });
        ((run.address.0 - 100 * MIB) / MIB, blocks.collect())
    });
    runs.collect()
}

#[test]
fn whole_pages_of_free_blocks_are_left_out() {
    // No page is wholly free.
    assert_eq!(left(&[10, -29, 1], 100), [(0, vec![10, -29, 1])]);
    // One is.
    assert_eq!(
        left(&[10, -30, 20], 100),
        [(0, vec![10, -10]), (40, vec![20])]
    );
    assert_eq!(
        left(&[10, -45, 5], 100),
        [(0, vec![10, -10]), (40, vec![-15, 5])]
    );
    // The first and the last are.
    assert_eq!(left(&[-20, 20, -20], 120), [(40, vec![20])]);
    assert_eq!(left(&[-60], 100), []);
}
