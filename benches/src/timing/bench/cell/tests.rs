use std::path::Path;
use std::sync::atomic::Ordering;

use coalesce_alloc::driver::sim::SimConfig;

use super::*;
use crate::measure::profile::{PUBLISHED, Profile};
use crate::timing::pooled::Pooled;
use crate::timing::shapes;

impl Measured for Pooled {
    fn mark(&mut self) -> Result<Option<EventId>, DriverError> {
        self.create_event().map(Some)
    }

    fn ns_between(&mut self, from: EventId, to: EventId) -> Result<f64, DriverError> {
        assert_ne!(from, to);
        Ok(12_345.6)
    }
}

const PAGE: u64 = 2 << 20;
const MIB: u64 = 1 << 20;

/// A device of 8 GiB, of which other processes use one.
fn device() -> SimDevice {
    SimDevice::new(&SimConfig {
        foreign: 1 << 30,
        ..SimConfig::with_capacity(8 << 30)
    })
}

/// Calls `test` with a cell of a shape under a policy, and a walk of so many pairs.
fn with_cell<R>(
    shape: &str,
    policy: &str,
    pairs: u64,
    test: impl FnOnce(&Cell<'_>, &Walk) -> R,
) -> R {
    let workload = shapes::find(shape, None).unwrap().unwrap();
    let profile = Profile::load(PUBLISHED, Path::new("")).unwrap();
    let cell = Cell {
        policy,
        ..Cell::new(&*workload, &profile)
    };
    let walk = Walk::prepare(&*workload).unwrap();
    test(&cell, &walk.of_pairs(pairs))
}

fn on<D: Measured>(cell: &Cell<'_>, device: D) -> On<D> {
    cell.allocator_on(metered(device, &Costs::default()))
        .unwrap()
}

/// The walks of a shape on a device with a pool that are timed as a whole, and the time by the clock of the device.
fn walks(shape: &str, policy: &str, limit: Option<Duration>) -> (i64, Option<f64>) {
    with_cell(shape, policy, 8, |cell, walk| {
        let mut allocator = on(cell, Pooled::new(device()));
        // The first walk takes memory from the pool.
        walk.run(&mut allocator, &mut walk.slots()).unwrap();
        let mut row = Row::default();
        let until = Deadline::after(limit);
        let begun = Instant::now();
        whole(&mut allocator, walk, &mut walk.slots(), until, &mut row).unwrap();
        let all = begun.elapsed().as_nanos() as f64;
        let [low, time, high] =
            [row.ns_per_pair_low, row.ns_per_pair, row.ns_per_pair_high].map(Option::unwrap);
        assert!(0.0 < low && low <= time && time <= high && high < 1e9);
        assert!(8.0 * time < all, "a walk is a part of all walks");
        for figure in [low, time, high] {
            assert_eq!(format!("{figure:.1}").parse(), Ok(figure));
        }
        let pairs = allocator.stats().allocation.all().allocated;
        (pairs / 8 - 1, row.stream_ns_per_pair)
    })
}

#[test]
fn three_to_fifty_walks_are_timed_as_a_whole() {
    let over = Some(Duration::ZERO);
    // 12,345.6 ns for 8 pairs.
    assert_eq!(walks("hot_4KiB", "cuda_async", over), (3, Some(1543.2)));
    assert_eq!(walks("hot_4KiB", "cuda_async", None), (50, Some(1543.2)));
    assert_eq!(walks("hot_4KiB", "pytorch", over), (3, None));
    let streams = "record_stream_4_streams";
    assert_eq!(walks(streams, "cuda_async", over), (3, None));
}

/// The row of a single pair and the number of calls in each walk; the number of kernels, and of waits for all work.
fn measured(policy: &str, kernels: Option<Kernels>) -> (Row, String, [u64; 2]) {
    with_cell("hot_4MiB", policy, 1, |cell, walk| {
        let device = Pooled::new(device());
        let counts = [device.submitted.clone(), device.waited.clone()];
        let subject = Subject {
            cell,
            walk,
            device,
            kernels,
            // A walk of one pair is whole even if the time is over.
            time: Duration::ZERO,
        };
        let (row, latencies) = subject.measure().unwrap();
        let latencies = latencies
            .iter()
            .map(|it| format!("{} {} {}", it.walks, it.call, it.count));
        let counts = counts.map(|count| count.load(Ordering::Relaxed));
        (row, latencies.collect::<Vec<_>>().join(", "), counts)
    })
}

const CALLS: &str = "first malloc 1, first free 1, further malloc 1, further free 1";

#[test]
fn the_row_of_a_cell_has_its_memory_and_its_times() {
    let (row, calls, counts) = measured("pytorch", None);
    assert_eq!(calls, CALLS);
    // After warming up, and after each of five walks.
    assert_eq!(counts, [0, 6]);
    assert!(row.ns_per_pair.is_some() && row.ns_per_pair_low <= row.ns_per_pair_high);
    let expected = Row {
        pairs: Some(1),
        walked: Some(1),
        ns_per_pair: row.ns_per_pair,
        ns_per_pair_low: row.ns_per_pair_low,
        ns_per_pair_high: row.ns_per_pair_high,
        driver_calls: Some(1),
        driver_ns: row.driver_ns,
        peak_requested_bytes: Some(4 * MIB),
        peak_reserved_bytes: Some(20 * MIB),
        peak_device_bytes: Some(20 * MIB),
        difference_bytes: Some(0),
        asked_bytes: Some(20 * MIB),
        before_bytes: Some(1 << 30),
        ..Row::default()
    };
    assert_eq!(row, expected);
    assert!(row.driver_ns > Some(0));
    let (row, calls, _) = measured("cuda_async", None);
    assert_eq!((row.stream_ns_per_pair, &*calls), (Some(12_345.6), CALLS));
    assert_eq!(row.peak_device_bytes, Some(4 * MIB));
}

/// One kernel for each malloc. The walks are not timed as a whole: the kernels would count.
#[test]
fn kernels_run_in_the_walks_whose_calls_are_timed() {
    let (row, calls, counts) = measured("pytorch", Some(Kernels::default()));
    assert_eq!((row.ns_per_pair, &*calls), (None, CALLS));
    assert_eq!(counts, [2, 3]);
}

#[test]
fn the_peak_by_the_count_of_the_device_is_kept() {
    with_cell("hot_4MiB", "pytorch", 1, |cell, _| {
        let mut allocator = on(cell, device());
        let free = 7 << 30;
        let mut peak = Peak::default();
        let mut row = Row::default();
        let mut update = |allocator: &mut On<SimDevice>| {
            peak.update(allocator, free).unwrap();
            peak.write(allocator, &mut row);
            let figures = [
                row.peak_requested_bytes,
                row.peak_reserved_bytes,
                row.peak_device_bytes,
                row.asked_bytes,
            ];
            (
                figures.map(|bytes| bytes.unwrap() >> 20),
                row.difference_bytes,
            )
        };
        let one = allocator.malloc(30 * MIB, StreamId::DEFAULT).unwrap();
        assert_eq!(update(&mut allocator), ([30; 4], Some(0)));
        // What the device gives to others meanwhile shows.
        let device = allocator.driver_mut().driver_mut().driver_mut();
        device.malloc(8 * MIB).unwrap();
        assert_eq!(update(&mut allocator), ([30; 4], Some(0)), "no new peak");
        let two = allocator.malloc(40 * MIB, StreamId::DEFAULT).unwrap();
        let both = ([70, 70, 78, 70], Some(8 << 20));
        assert_eq!(update(&mut allocator), both);
        allocator.free(one).unwrap();
        allocator.free(two).unwrap();
        allocator.empty_cache().unwrap();
        assert_eq!(update(&mut allocator), both);
    });
}

/// Of equal peaks the last counts, in which the allocator has a larger part.
#[test]
fn what_was_asked_for_is_that_of_the_last_peak() {
    with_cell("hot_4MiB", "pytorch", 1, |cell, _| {
        let mut allocator = on(cell, device());
        let mut peak = Peak::default();
        let others = allocator.driver_mut().driver_mut().driver_mut();
        let other = others.malloc(40 * MIB).unwrap();
        allocator.malloc(30 * MIB, StreamId::DEFAULT).unwrap();
        peak.update(&mut allocator, 7 << 30).unwrap();
        assert_eq!([peak.device, peak.asked], [70 * MIB, 30 * MIB]);
        let others = allocator.driver_mut().driver_mut().driver_mut();
        others.free(other, 40 * MIB).unwrap();
        allocator.malloc(40 * MIB, StreamId::DEFAULT).unwrap();
        peak.update(&mut allocator, 7 << 30).unwrap();
        assert_eq!([peak.device, peak.asked], [70 * MIB; 2]);
        // A peak of the allocator alone does not count.
        peak.device = 200 * MIB;
        allocator.malloc(40 * MIB, StreamId::DEFAULT).unwrap();
        peak.update(&mut allocator, 7 << 30).unwrap();
        assert_eq!([peak.device, peak.asked], [200 * MIB, 70 * MIB]);
    });
}

/// A walk of one pair takes far less than the time.
#[test]
fn walks_are_timed_call_by_call_until_the_time_is_over() {
    with_cell("hot_4MiB", "pytorch", 1, |cell, walk| {
        let mut allocator = on(cell, device());
        let until = Deadline::after(Some(Duration::from_millis(200)));
        let latencies = again(&mut allocator, walk, &mut walk.slots(), until, None).unwrap();
        assert!(until.has_passed());
        assert!(latencies.iter().all(|latency| latency.count > 1));
        assert_eq!(latencies.len(), 2);
    });
}

#[test]
fn an_allocator_must_free_and_return_all_memory() {
    let torn_down = |change: &dyn Fn(&mut On<SimDevice>)| {
        with_cell("hot_4MiB", "pytorch", 1, |cell, walk| {
            let mut allocator = on(cell, device());
            walk.run(&mut allocator, &mut walk.slots()).unwrap();
            change(&mut allocator);
            tear_down(allocator).map_err(|error| error.to_string())
        })
    };
    assert_eq!(torn_down(&|_| {}), Ok(()));
    let leak = |allocator: &mut On<SimDevice>| {
        allocator.malloc(1, StreamId::DEFAULT).unwrap();
    };
    let found = torn_down(&leak);
    assert_eq!(found, Err("1 blocks were never freed".to_owned()));
    let held = |allocator: &mut On<SimDevice>| {
        allocator.driver_mut().malloc(PAGE).unwrap();
    };
    let message = "2097152 bytes are still reserved after emptying the cache";
    assert_eq!(torn_down(&held), Err(message.to_owned()));
}
