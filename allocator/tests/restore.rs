//! An allocator rebuilt from a snapshot goes on as the original does.

mod suite;

use allocator::driver::sim::address::Placement;
use allocator::driver::sim::calls::Call;
use allocator::driver::sim::{SimConfig, SimDevice};
use allocator::driver::{DeviceAddr, StreamId};
use allocator::policy::pytorch::DeviceCachingAllocator;
use allocator::policy::pytorch::restore::RestoreError;
use allocator::settings::Settings;
use allocator::snapshot::{BlockInfo, BlockState, SegmentInfo};
use proptest::prelude::*;
use suite::ops::TestOp;

type Reference = DeviceCachingAllocator<SimDevice>;

fn config() -> SimConfig {
    SimConfig::with_capacity(512 << 20)
}

/// Does one operation; what it decided. Live addresses are in the order in which they were made.
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

/// Where a device places what `segments` tell, and then what `calls` took.
fn placements(segments: &[SegmentInfo], calls: &[Call]) -> Vec<Placement> {
    let (expandable, plain): (Vec<_>, Vec<_>) = segments.iter().partition(|s| s.is_expandable);
    let place = |bytes: Option<u64>, addr: DeviceAddr| Placement { bytes, addr };
    let mut all: Vec<Placement> = plain
        .iter()
        .map(|s| place(Some(s.total_size()), s.address))
        .collect();
    let mut ranges: Vec<&SegmentInfo> = Vec::new();
    for run in expandable {
        if !ranges
            .iter()
            .any(|r| (r.stream, r.kind) == (run.stream, run.kind))
        {
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
    let mut original = DeviceCachingAllocator::new(SimDevice::new(&config()), settings.clone());
    let mut live = Vec::new();
    for op in before {
        step(&mut original, &mut live, op);
    }
    let segments = original.segments();
    let mut live_too = live.clone();
    original.driver_mut().set_logging(true);
    let decided: Vec<String> = after
        .iter()
        .map(|op| step(&mut original, &mut live, op))
        .collect();

    let mut device = SimDevice::new(&config());
    device.follow_recording(placements(&segments, &original.driver_mut().take_log()));
    let mut restored = DeviceCachingAllocator::restore(device, settings, &segments).unwrap();
    restored.check().unwrap();
    prop_assert_eq!(restored.segments(), segments);
    for (op, decided) in after.iter().zip(&decided) {
        prop_assert_eq!(&step(&mut restored, &mut live_too, op), decided);
        restored.check().unwrap();
    }
    prop_assert_eq!(told(restored.segments()), told(original.segments()));
    Ok(())
}

/// Without what free blocks remember of their last user: of unmapped ranges no snapshot tells it.
fn told(mut segments: Vec<SegmentInfo>) -> Vec<SegmentInfo> {
    for block in segments.iter_mut().flat_map(|segment| &mut segment.blocks) {
        if !block.is_active() {
            block.requested_size = 0;
        }
    }
    segments
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(suite::cases()))]

    #[test]
    fn plain_segments(before in suite::ops::peaceful(), after in suite::ops::peaceful()) {
        goes_on_the_same("", &before, &after)?;
        goes_on_the_same("max_split_size_mb:40", &before, &after)?;
    }
}

/// Expandable segments whose first pages are mapped: where the others begin, no snapshot tells.
#[test]
fn expandable_segments() {
    let mib = 1 << 20;
    let malloc = |bytes: u64| TestOp::Malloc {
        bytes,
        stream: StreamId::DEFAULT,
    };
    let free = |victim: usize| TestOp::Free { victim };
    let before = [
        malloc(30 * mib),
        malloc(50 * mib),
        malloc(90 * mib),
        malloc(5 * mib),
        malloc(1000),
        free(2),            // whole pages in the middle,
        TestOp::EmptyCache, // which are unmapped: a hole
        free(1),
    ];
    let after = [
        malloc(25 * mib),
        malloc(100 * mib),
        free(0),
        malloc(200 * mib),
    ];
    goes_on_the_same("expandable_segments:True", &before, &after).unwrap();
}

#[test]
fn what_no_allocator_can_have_been_in_is_refused() {
    let block = |addr: u64, size: u64, state| BlockInfo::new(DeviceAddr(addr), size, 0, state);
    let segment = |address: u64, blocks: Vec<BlockInfo>| SegmentInfo {
        device: 0,
        address: DeviceAddr(address),
        stream: StreamId::DEFAULT,
        kind: allocator::stats::PoolKind::Large,
        pool: allocator::mempool::MempoolId::DEFAULT,
        is_expandable: false,
        blocks,
    };
    let (used, free) = (BlockState::ActiveAllocated, BlockState::Inactive);
    let whole = |address: u64| segment(address, vec![block(address, 4096, used)]);
    let cases = [
        (vec![segment(0x10000, vec![])], "no blocks"),
        (
            vec![segment(0x10000, vec![block(0x10000, 100, used)])],
            "100 bytes",
        ),
        (
            vec![segment(0x10001, vec![block(0x10001, 512, used)])],
            "multiples of 512",
        ),
        (
            vec![segment(0x10000, vec![block(0x10200, 512, used)])],
            "gap or overlap",
        ),
        (
            vec![segment(
                0x10000,
                vec![block(0x10000, 512, free), block(0x10200, 512, free)],
            )],
            "not merged",
        ),
        (vec![whole(0x10000), whole(0x10200)], "overlaps"),
    ];
    for (segments, why) in cases {
        let device = SimDevice::new(&config());
        let error = Reference::restore(device, Settings::default(), &segments).map(|_| ());
        let Err(RestoreError::Impossible { reason, .. }) = error else {
            panic!("{error:?}, not: {why}");
        };
        assert!(reason.contains(why), "{reason}, not: {why}");
    }
    // A device that follows no recording places it elsewhere.
    let moved = Reference::restore(
        SimDevice::new(&config()),
        Settings::default(),
        &[whole(0x10000)],
    );
    assert!(matches!(
        moved.map(|_| ()),
        Err(RestoreError::Placed { .. })
    ));
}
