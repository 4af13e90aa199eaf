//! Queries of an allocator, and devices with extreme configurations.

use coalesce_alloc::Allocator as _;
use coalesce_alloc::MempoolId;
use coalesce_alloc::PyTorch;
use coalesce_alloc::driver::calls::CallKind;
use coalesce_alloc::driver::hooks::cost::{Cost, Costs};
use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::driver::{DeviceAddr, DriverError, StreamId};
use coalesce_alloc::error::Error;
use coalesce_alloc::history::HistoryOptions;
use coalesce_alloc::release::{Release, two};
use coalesce_alloc::settings::Settings;

const MIB: u64 = 1 << 20;

type Allocator = PyTorch<SimDevice>;

fn on(config: &SimConfig, conf: &str) -> Allocator {
    PyTorch::new(SimDevice::new(config), Settings::from_conf(conf).unwrap())
}

fn malloc(allocator: &mut Allocator, bytes: u64) -> DeviceAddr {
    allocator.malloc(bytes, StreamId::DEFAULT).unwrap()
}

#[test]
fn base_allocation_returns_the_segment() {
    let mut allocator = on(&SimConfig::with_capacity(256 * MIB), "");
    let first = malloc(&mut allocator, 8 * MIB);
    let second = malloc(&mut allocator, 8 * MIB);
    assert_eq!(second, first.offset(8 * MIB));
    for addr in [first, second] {
        assert_eq!(allocator.base_allocation(addr), Ok((first, 20 * MIB)));
    }

    let mut allocator = on(
        &SimConfig::with_capacity(256 * MIB),
        "expandable_segments:True",
    );
    let blocks = [(); 3].map(|()| malloc(&mut allocator, 20 * MIB));
    let whole = Ok((blocks[0], 60 * MIB));
    assert!(
        blocks
            .iter()
            .all(|&b| allocator.base_allocation(b) == whole)
    );
    allocator.free(blocks[1]).unwrap();
    allocator.empty_cache().unwrap(); // leaves a hole between the other two
    for addr in [blocks[0], blocks[2]] {
        assert_eq!(allocator.base_allocation(addr), Ok((addr, 20 * MIB)));
    }
}

#[test]
fn a_block_is_as_large_as_the_rounded_request() {
    let mut allocator = on(&SimConfig::with_capacity(256 * MIB), "");
    for (bytes, size) in [(1, 512), (513, 1024), (3 * MIB, 3 * MIB)] {
        let addr = malloc(&mut allocator, bytes);
        assert_eq!(allocator.block_size(addr), Ok(size));
        let inside = addr.offset(512);
        let error = allocator.block_size(inside).unwrap_err();
        assert_eq!(error, Error::InvalidPointer(inside));
    }
}

#[test]
fn segments_end_where_their_last_block_ends() {
    let mut allocator = on(&SimConfig::with_capacity(256 * MIB), "");
    let addr = malloc(&mut allocator, 3 * MIB);
    let mut segment = allocator.segments().remove(0);
    assert_eq!(segment.blocks.len(), 2);
    assert_eq!(segment.end(), addr.offset(20 * MIB));
    segment.blocks.clear();
    assert_eq!(segment.end(), addr);
}

#[test]
fn the_segments_of_a_pool_can_be_observed_alone() {
    const POOL: MempoolId = MempoolId(0, 7);
    let mut allocator = on(&SimConfig::with_capacity(256 * MIB), "");
    let outside = malloc(&mut allocator, 30 * MIB);
    let begun = allocator.begin_allocate_to_pool(POOL, Box::new(|_| true));
    begun.unwrap();
    let inside = malloc(&mut allocator, 40 * MIB);
    allocator.record_history(Some(HistoryOptions::default()));
    for (pool, expected) in [
        (POOL, &[inside][..]),
        (MempoolId::DEFAULT, &[outside, inside]),
    ] {
        let segments = allocator.observed_segments(pool).into_iter();
        let found: Vec<DeviceAddr> = segments.map(|segment| segment.address).collect();
        assert_eq!(found, expected);
    }
    let entries = allocator.history();
    let entries: Vec<_> = entries.map(|e| (e.action.name(), e.size)).collect();
    assert_eq!(entries, [("snapshot", 40 * MIB), ("snapshot", 70 * MIB)]);
}

#[test]
fn a_listener_hears_of_each_request() {
    let mut allocator = on(&SimConfig::with_capacity(256 * MIB), "");
    let (sender, heard) = std::sync::mpsc::channel();
    allocator.listen(Some(Box::new(move |entry, _| {
        sender.send((entry.action.name(), entry.size)).unwrap();
    })));
    let addr = malloc(&mut allocator, 3 * MIB);
    allocator.free(addr).unwrap();
    allocator.listen(None);
    malloc(&mut allocator, MIB);
    let heard: Vec<_> = heard.iter().collect();
    let expected = [
        ("segment_alloc", 20 * MIB),
        ("alloc", 3 * MIB),
        ("free_requested", 3 * MIB),
        ("free_completed", 3 * MIB),
    ];
    assert_eq!(heard, expected);
}

#[test]
fn debug_output_tells_who_listens_and_where_pools_get_their_memory() {
    const POOL: MempoolId = MempoolId(0, 7);
    let mut allocator = on(&SimConfig::with_capacity(256 * MIB), "");
    let shows = |allocator: &Allocator, text: &str| format!("{allocator:?}").contains(text);
    assert!(shows(&allocator, "listener: off"));
    allocator.listen(Some(Box::new(|_, _| {})));
    assert!(shows(&allocator, "listener: listening"));
    let begun = allocator.begin_allocate_to_pool(POOL, Box::new(|_| true));
    begun.unwrap();
    assert!(shows(&allocator, "source: device"));
    assert!(shows(&allocator, &format!("Recording({POOL})")));
}

#[test]
fn expandable_segments_of_streams_report_what_is_mapped() {
    let conf = "expandable_segments:True";
    let mut allocator = on(&SimConfig::with_capacity(512 * MIB), conf);
    let streams = [2, 1, 0].map(StreamId::nth);
    let sizes = |allocator: &Allocator| {
        let sizes = allocator.expandable_segment_sizes();
        sizes
            .map(|size| (size.stream, size.is_small, size.mapped / MIB))
            .collect::<Vec<_>>()
    };
    assert_eq!(sizes(&allocator), []);
    let large = streams.map(|stream| allocator.malloc(50 * MIB, stream).unwrap());
    let small = allocator.malloc(MIB, streams[0]).unwrap();
    let of_streams = [
        (streams[0], false, 60),
        (streams[1], false, 60),
        (streams[0], true, 2),
    ];
    assert_eq!(sizes(&allocator), of_streams, "oldest first");
    for block in [large[0], small] {
        allocator.free(block).unwrap();
    }
    allocator.empty_cache().unwrap();
    assert_eq!(sizes(&allocator), of_streams[1..2]);
    allocator.malloc(50 * MIB, streams[0]).unwrap();
    assert_eq!(
        sizes(&allocator),
        [of_streams[1], of_streams[0]],
        "a new segment is the last one"
    );
}

#[test]
fn largest_free_is_the_largest_servable_request() {
    let mut allocator = on(&SimConfig::with_capacity(100 * MIB), "");
    assert_eq!(
        allocator.largest_free(),
        Ok(100 * MIB),
        "all memory of the device"
    );
    let held = malloc(&mut allocator, 70 * MIB);
    assert_eq!(allocator.largest_free(), Ok(30 * MIB));
    allocator.free(held).unwrap();
    assert_eq!(allocator.largest_free(), Ok(70 * MIB), "the cached block");
    let held = malloc(&mut allocator, 50 * MIB);
    assert_eq!(
        allocator.largest_free(),
        Ok(30 * MIB),
        "the rest of the segment has only 20 MiB"
    );
    allocator.free(held).unwrap();
}

/// PyTorch warns, and goes on without them.
#[test]
fn expandable_segments_are_off_on_a_device_without_virtual_memory() {
    let conf = "expandable_segments:True";
    let config = SimConfig {
        virtual_memory: false,
        ..SimConfig::default()
    };
    let mut allocator = on(&config, conf);
    assert!(!allocator.settings().expandable_segments());
    allocator.apply_settings(conf).unwrap();
    assert!(!allocator.settings().expandable_segments());
    malloc(&mut allocator, MIB);
    assert!(!allocator.segments()[0].is_expandable);
}

#[test]
fn a_device_without_memory_serves_nothing() {
    for conf in ["", "expandable_segments:True", "max_split_size_mb:20"] {
        let mut allocator = on(&SimConfig::with_capacity(0), conf);
        for bytes in [1, MIB, 1 << 40] {
            let error = allocator.malloc(bytes, StreamId::DEFAULT).unwrap_err();
            // A device without memory reserves no addresses.
            let is_refused = matches!(error, Error::VirtualMemory(DriverError::InvalidValue));
            let is_refused = is_refused && conf.starts_with("expandable");
            assert!(
                is_refused || matches!(error, Error::OutOfMemory(_)),
                "{conf}: {error}"
            );
        }
        assert_eq!(allocator.memory_fraction(), 1.0);
        allocator.set_memory_fraction(0.5).unwrap();
        assert!((0.0..=1.0).contains(&allocator.memory_fraction()));
        assert_eq!(allocator.largest_free(), Ok(0));
        allocator.empty_cache().unwrap();
        allocator.check().unwrap();
    }
}

/// Unlike a fraction, a limit in bytes is not rounded.
#[test]
fn a_limit_in_bytes_allows_exactly_so_many() {
    for release in Release::REPRODUCED {
        for (limit, fits) in [(40 * MIB - 1, false), (40 * MIB, true)] {
            let device = SimDevice::new(&SimConfig::with_capacity(3 * 1000 * MIB));
            let mut allocator = PyTorch::new(device, Settings::of_release(release));
            assert!(allocator.set_memory_limit(Some(limit)));
            malloc(&mut allocator, 20 * MIB);
            let second = allocator.malloc(20 * MIB, StreamId::DEFAULT);
            assert_eq!(second.is_ok(), fits, "{release}, {limit} bytes");
            for unlimited in [None, Some(u64::MAX)] {
                allocator.set_memory_limit(unlimited);
                assert_eq!(allocator.memory_fraction(), 1.0);
                let addr = malloc(&mut allocator, 100 * MIB);
                allocator.free(addr).unwrap();
            }
        }
    }
}

#[test]
fn a_limit_of_all_memory_is_none() {
    let mut allocator = on(&SimConfig::with_capacity(100 * MIB), "");
    for (limit, allowed) in [(99, Some(99 * MIB)), (100, None)] {
        allocator.set_memory_limit(Some(limit * MIB));
        let error = allocator.malloc(200 * MIB, StreamId::DEFAULT).unwrap_err();
        let Error::OutOfMemory(details) = error else {
            panic!("{error}");
        };
        assert_eq!(details.limit, allowed);
    }
}

/// Simulated time passes only in driver calls; the history has it in microseconds.
#[test]
fn the_cost_of_driver_calls_determines_the_times_in_the_history() {
    let cost = |ns: u64, ns_per_mib: u64| Cost { ns, ns_per_mib };
    let costs = Costs::default()
        .with(CallKind::Malloc, cost(300_000, 20_000)) // 2 MiB, then 30 MiB
        .with(CallKind::Free, cost(5_200_000, 50_000)); // 2 MiB
    let mut allocator = on(
        &SimConfig {
            costs,
            ..SimConfig::default()
        },
        "",
    );
    allocator.record_history(Some(HistoryOptions::default()));
    let addr = malloc(&mut allocator, MIB);
    allocator.free(addr).unwrap();
    let again = malloc(&mut allocator, MIB); // from the cache
    allocator.free(again).unwrap();
    assert_eq!(allocator.driver().elapsed_ns(), 340_000);
    allocator.empty_cache().unwrap();
    malloc(&mut allocator, 30 * MIB);
    assert_eq!(allocator.driver().elapsed_ns(), 6_540_000);
    let first = allocator.history().next().unwrap().time_us;
    let last = allocator.history().last().unwrap().time_us;
    assert_eq!(last - first, 6_200);
}

/// Until 2.12, streams recorded while allocations go to a pool count as finished when the pool ends;
/// streams recorded earlier must finish. The streams of one block do not count for another.
#[test]
fn streams_of_a_capture_are_finished_at_its_end() {
    let config = SimConfig {
        hold_events: true,
        ..SimConfig::default()
    };
    let settings = Settings::of_release(two(12));
    let mut allocator = PyTorch::new(SimDevice::new(&config), settings);
    let [in_capture, before, another] = [(); 3].map(|()| malloc(&mut allocator, 30 * MIB));
    allocator.record_stream(before, StreamId::nth(1)).unwrap();
    let pool = MempoolId(0, 1);
    allocator
        .begin_allocate_to_pool(pool, Box::new(|_| false))
        .unwrap();
    for addr in [in_capture, another] {
        allocator.record_stream(addr, StreamId::nth(2)).unwrap();
    }
    for addr in [in_capture, before, another] {
        allocator.free(addr).unwrap();
    }
    allocator.end_allocate_to_pool(pool).unwrap();
    malloc(&mut allocator, 1); // looks at events
    let mut free: Vec<DeviceAddr> = Vec::new();
    for segment in allocator.segments() {
        free.extend(
            segment
                .blocks
                .iter()
                .filter(|b| !b.is_active())
                .map(|b| b.address),
        );
    }
    assert!(free.contains(&in_capture) && free.contains(&another));
    assert!(!free.contains(&before), "stream 1 has not finished");
    allocator.check().unwrap();
}
