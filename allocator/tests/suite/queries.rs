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
use coalesce_alloc::release::Release;
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
    let entries: Vec<_> = allocator
        .history()
        .map(|e| (e.action.name(), e.size))
        .collect();
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
fn a_device_without_memory_serves_nothing() {
    for conf in ["", "expandable_segments:True", "max_split_size_mb:20"] {
        let mut allocator = on(&SimConfig::with_capacity(0), conf);
        for bytes in [1, MIB, 1 << 40] {
            let error = allocator.malloc(bytes, StreamId::DEFAULT).unwrap_err();
            // A device without memory reserves no addresses.
            let is_refused = matches!(error, Error::VirtualMemory(DriverError::InvalidValue));
            let is_refused = is_refused && conf.starts_with("expandable");
            let is_expected = is_refused || matches!(error, Error::OutOfMemory(_));
            assert!(is_expected, "{conf}: {error}");
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
