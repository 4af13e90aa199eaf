//! An allocator restored from a snapshot continues as the original does.

use coalesce_alloc::MempoolId;
use coalesce_alloc::PyTorch;
use coalesce_alloc::driver::calls::Call;
use coalesce_alloc::driver::sim::address::Placement;
use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::driver::{DeviceAddr, StreamId};
use coalesce_alloc::pytorch::restore::{RestoreError, ensure_possible};
use coalesce_alloc::settings::Settings;
use coalesce_alloc::snapshot::{BlockInfo, BlockState, SegmentInfo};
use coalesce_alloc::stats::PoolKind;
use proptest::prelude::*;

use crate::harness::{self, ops::TestOp};

type Reference = PyTorch<SimDevice>;

fn config() -> SimConfig {
    SimConfig::with_capacity(512 << 20)
}

/// Performs one operation and returns the decision. Skips operations on streams: a snapshot does not
/// contain the streams recorded on live blocks. Live addresses are in order of allocation.
fn step(allocator: &mut Reference, live: &mut Vec<DeviceAddr>, op: &TestOp) -> String {
    match *op {
        TestOp::Malloc { bytes, stream } if bytes > 0 => {
            let result = allocator.malloc(bytes, stream);
            live.extend(&result);
            format!("{result:?}")
        }
        TestOp::Free { victim } if !live.is_empty() => {
            let addr = live.remove(victim % live.len());
            format!("{:?}", allocator.free(addr))
        }
        TestOp::EmptyCache => format!("{:?}", allocator.empty_cache()),
        _ => String::new(),
    }
}

/// Where a device places the memory of `segments`, and then the memory of `calls`.
fn placements(segments: &[SegmentInfo], calls: &[Call]) -> Vec<Placement> {
    let (expandable, plain): (Vec<_>, Vec<_>) = segments.iter().partition(|s| s.is_expandable);
    let place = |bytes: Option<u64>, addr: DeviceAddr| Placement { bytes, addr };
    let whole = |s: &&SegmentInfo| place(Some(s.total_size()), s.address);
    let mut all: Vec<Placement> = plain.iter().map(whole).collect();
    let mut ranges: Vec<&SegmentInfo> = Vec::new();
    for run in expandable {
        let of_range =
            |r: &&SegmentInfo| (r.stream, r.kind, r.pool) == (run.stream, run.kind, run.pool);
        if !ranges.iter().any(of_range) {
            ranges.push(run);
        }
    }
    all.extend(ranges.iter().map(|run| place(None, run.address)));
    all.extend(calls.iter().filter_map(|call| match *call {
        Call::Malloc { bytes, addr } | Call::Reserve { bytes, addr } => {
            Some(place(Some(bytes), addr))
        }
        _ => None,
    }));
    all
}

fn goes_on_the_same(conf: &str, before: &[TestOp], after: &[TestOp]) -> Result<(), TestCaseError> {
    let settings = Settings::from_conf(conf).unwrap();
    let mut original = PyTorch::new(SimDevice::new(&config()), settings.clone());
    let mut live = Vec::new();
    for op in before {
        step(&mut original, &mut live, op);
    }
    let segments = original.segments();
    let mut live_too = live.clone();
    original.driver_mut().set_logging(true);
    let decided = after.iter().map(|op| step(&mut original, &mut live, op));
    let decided: Vec<String> = decided.collect();

    let mut device = SimDevice::new(&config());
    device.follow_recording(placements(&segments, &original.driver_mut().take_log()));
    let mut restored = PyTorch::restore(device, settings, &segments).unwrap();
    restored.check().unwrap();
    prop_assert_eq!(restored.segments(), segments);
    for (op, decided) in after.iter().zip(&decided) {
        prop_assert_eq!(&step(&mut restored, &mut live_too, op), decided);
        restored.check().unwrap();
    }
    prop_assert_eq!(told(restored.segments()), told(original.segments()));
    Ok(())
}

/// Removes the last users of free blocks, which snapshots do not contain for unmapped ranges.
fn told(mut segments: Vec<SegmentInfo>) -> Vec<SegmentInfo> {
    for block in segments.iter_mut().flat_map(|segment| &mut segment.blocks) {
        if !block.is_active() {
            block.requested_size = 0;
        }
    }
    segments
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(harness::cases()))]

    #[test]
    fn plain_segments(before in harness::ops::peaceful(), after in harness::ops::peaceful()) {
        goes_on_the_same("", &before, &after)?;
        goes_on_the_same("max_split_size_mb:40", &before, &after)?;
    }
}

/// Expandable segments whose first pages are mapped. A snapshot does not tell where other segments
/// begin.
#[test]
fn expandable_segments() {
    let mib = 1 << 20;
    let malloc = |bytes: u64| TestOp::Malloc {
        bytes,
        stream: StreamId::DEFAULT,
    };
    let free = |victim: usize| TestOp::Free { victim };
    let mut before = [30 * mib, 50 * mib, 90 * mib, 5 * mib, 1000]
        .map(malloc)
        .to_vec();
    // Whole pages in the middle, which are unmapped: a hole.
    before.extend([free(2), TestOp::EmptyCache, free(1)]);
    let [one, two, three] = [25 * mib, 100 * mib, 200 * mib].map(malloc);
    let after = [one, two, free(0), three];
    goes_on_the_same("expandable_segments:True", &before, &after).unwrap();
}

#[test]
fn impossible_states_are_refused() {
    let block = |addr: u64, size: u64, state| BlockInfo::new(DeviceAddr(addr), size, 0, state);
    let segment = |address: u64, blocks: Vec<BlockInfo>| SegmentInfo {
        device: 0,
        address: DeviceAddr(address),
        stream: StreamId::DEFAULT,
        kind: PoolKind::Large,
        pool: MempoolId::DEFAULT,
        is_expandable: false,
        blocks,
    };
    const LAST: u64 = u64::MAX - 511;
    let (used, free) = (BlockState::ActiveAllocated, BlockState::Inactive);
    let whole = |address: u64| segment(address, vec![block(address, 4096, used)]);
    let one = |addr: u64, size: u64| vec![segment(addr, vec![block(addr, size, used)])];
    let two = |first, then| vec![segment(0x10000, vec![first, then])];
    let too_small = BlockInfo::new(DeviceAddr(0x10000), 512, 513, used);
    let apart = segment(0x10000, vec![block(0x10200, 512, used)]);
    let free = two(block(0x10000, 512, free), block(0x10200, 512, free));
    let cases = [
        (vec![segment(0x10000, vec![])], "no blocks"),
        (one(0x10000, 100), "100 bytes"),
        (one(0x10001, 512), "multiples of 512"),
        (vec![apart], "gap or overlap"),
        (free, "not merged"),
        (vec![whole(0x10000), whole(0x10200)], "overlaps"),
        (vec![whole(0)], "null"),
        (one(LAST, 1 << 20), "end of the address space"),
        (vec![segment(0x10000, vec![too_small])], "cannot serve 513"),
    ];
    for (segments, why) in cases {
        let device = SimDevice::new(&config());
        let error = Reference::restore(device, Settings::default(), &segments).map(|_| ());
        let Err(RestoreError::Impossible { reason, .. }) = error else {
            panic!("{error:?}, expected: {why}");
        };
        assert!(reason.contains(why), "{reason}, expected: {why}");
    }
    // A device that follows no recording places memory elsewhere.
    let device = SimDevice::new(&config());
    let moved = Reference::restore(device, Settings::default(), &[whole(0x10000)]);
    assert!(matches!(moved.err(), Some(RestoreError::Placed { .. })));
}

/// Adjacent runs of one range would be one run, and runs consist of whole pages.
#[test]
fn impossible_runs_of_expandable_segments_are_refused() {
    const PAGE: u64 = 20 << 20;
    let base = DeviceAddr(0x200_0000_0000);
    let used = BlockState::ActiveAllocated;
    let run_at = |offset: u64, bytes: u64| SegmentInfo {
        device: 0,
        address: base.offset(offset),
        stream: StreamId::DEFAULT,
        kind: PoolKind::Large,
        pool: MempoolId::DEFAULT,
        is_expandable: true,
        blocks: vec![BlockInfo::new(base.offset(offset), bytes, bytes, used)],
    };
    let run = |pages_before: u64, bytes: u64| run_at(pages_before * PAGE, bytes);
    let restore = |runs: &[SegmentInfo]| {
        let settings = Settings::from_conf("expandable_segments:True").unwrap();
        Reference::restore(SimDevice::new(&config()), settings, runs)
    };
    // 1 1/8 of the memory, in whole pages.
    let pages = (config().capacity * 9 / 8).div_ceil(PAGE);
    for last in [2, pages - 1] {
        let restored = restore(&[run(0, PAGE), run(last, PAGE)]);
        restored.unwrap().check().unwrap();
    }
    let beside_pages = run_at(2 * PAGE + 512, PAGE);
    for (runs, why) in [
        ([run(0, PAGE), run(1, PAGE)], "begins where the run before"),
        ([run(0, PAGE), run(2, PAGE + 512)], "not whole pages"),
        ([run(0, PAGE), beside_pages], "not whole pages"),
        ([run(0, PAGE), run(pages - 1, 2 * PAGE)], "not whole pages"),
        ([run(0, PAGE), run(1 << 10, PAGE)], "not whole pages"),
    ] {
        let error = restore(&runs).map(drop).unwrap_err().to_string();
        assert!(error.contains(why), "{error}, expected: {why}");
    }
    let mut below = run(0, PAGE);
    below.address = DeviceAddr(base.0 - PAGE);
    below.blocks[0].address = below.address;
    let (recorded, placed) = (below.address, base);
    let error = restore(&[below]).map(drop).unwrap_err();
    assert_eq!(error, RestoreError::Placed { recorded, placed });
}

#[test]
fn states_can_be_examined_without_a_device() {
    let mut original = PyTorch::new(SimDevice::new(&config()), Settings::default());
    for mib in [30, 40] {
        original.malloc(mib << 20, StreamId::DEFAULT).unwrap();
    }
    let mut segments = original.segments();
    segments.reverse();
    assert_eq!(ensure_possible(&segments), Ok(()));
    segments[0].blocks.clear();
    assert!(ensure_possible(&segments).is_err());
}
