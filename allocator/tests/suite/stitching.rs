//! GMLake's stitching, step by step: the memory behind each address, and the driver calls.
//!
//! `originals.rs` compares the decisions with recorded vectors. These examples are written by hand;
//! one of them is also a vector (`worked-example.txt`).

use coalesce_alloc::Allocator;
use coalesce_alloc::driver::calls::CallKind;
use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::driver::{DeviceAddr, DriverError, StreamId};
use coalesce_alloc::error::Error;
use coalesce_alloc::registry;

type DynAllocator = Box<dyn Allocator<Driver = SimDevice>>;

const MIB: u64 = 1 << 20;
/// Bytes of a handle.
const CHUNK: u64 = 2 * MIB;
/// The first address that the device assigns.
const BASE: DeviceAddr = DeviceAddr(0x200_0000_0000);

fn allocator_on(config: &SimConfig, conf: &str) -> DynAllocator {
    let mut device = SimDevice::new(config);
    device.set_logging(true);
    registry::build("gmlake", device, conf).unwrap()
}

fn allocator(conf: &str) -> DynAllocator {
    allocator_on(&SimConfig::with_capacity(1024 * MIB), conf)
}

fn try_malloc(allocator: &mut DynAllocator, mib: u64) -> Result<DeviceAddr, Error> {
    allocator.malloc(mib * MIB, StreamId::DEFAULT)
}

fn malloc(allocator: &mut DynAllocator, mib: u64) -> DeviceAddr {
    try_malloc(allocator, mib).unwrap()
}

/// The address `mib` MiB above the first.
fn at(mib: u64) -> DeviceAddr {
    BASE.offset(mib * MIB)
}

/// The driver calls since the last time, one per line.
fn calls(allocator: &mut DynAllocator) -> Vec<String> {
    let log = allocator.driver_mut().take_log();
    log.iter().map(ToString::to_string).collect()
}

/// The calls that map handles to new addresses at `base`.
fn mapping(base: DeviceAddr, handles: &[u64]) -> Vec<String> {
    let mut calls = vec![format!("reserve {} {base}", CHUNK * handles.len() as u64)];
    for (chunk, handle) in (0..).zip(handles) {
        let addr = base.offset(chunk * CHUNK);
        calls.push(format!("map {addr} {CHUNK} h{handle}"));
        calls.push(format!("setaccess {addr} {CHUNK}"));
    }
    calls
}

/// The calls that create the handles and map them.
fn new_segment(base: DeviceAddr, handles: &[u64]) -> Vec<String> {
    let create = |handle| format!("create {CHUNK} h{handle}");
    let mut calls: Vec<String> = handles.iter().map(create).collect();
    calls.extend(mapping(base, handles));
    calls
}

/// The handles behind a block.
fn handles(allocator: &DynAllocator, addr: DeviceAddr, mib: u64) -> Vec<u64> {
    let mapped = allocator.driver().mapped_behind(addr, mib * MIB);
    mapped.iter().map(|piece| piece.handle.0).collect()
}

fn assert_all_comes_back(allocator: &mut DynAllocator) {
    allocator.driver_mut().streams_mut().complete_all();
    allocator.empty_cache().unwrap();
    allocator.check().unwrap();
    let device = allocator.driver();
    assert_eq!((device.used(), device.reserved_addresses()), (0, 0));
}

#[test]
fn a_worked_example() {
    let allocator = &mut allocator("frag_limit:4MiB");
    // Two segments: handles 1 to 5 and 6 to 11.
    let x = malloc(allocator, 10);
    let y = malloc(allocator, 12);
    assert_eq!((x, y), (at(0), at(10)));
    let taken = [
        new_segment(at(0), &[1, 2, 3, 4, 5]),
        new_segment(at(10), &[6, 7, 8, 9, 10, 11]),
    ];
    assert_eq!(calls(allocator), taken.concat());
    allocator.free(x).unwrap();
    allocator.free(y).unwrap();

    // 22 MiB are free and 20 requested: takes the larger range first, then the rest from the other.
    let s = malloc(allocator, 20);
    assert_eq!(s, at(22));
    let stitched = [6, 7, 8, 9, 10, 11, 1, 2, 3, 4];
    assert_eq!(calls(allocator), mapping(s, &stitched));
    assert_eq!(allocator.stats().reserved_bytes.all().current, 22 << 20);
    let t = malloc(allocator, 2);
    assert_eq!(t, at(8), "the rest stays free");
    allocator.free(s).unwrap();
    assert_eq!(calls(allocator), ["event_record stream=(nil)"]);

    // The memory of a free stitched block serves other requests under its own addresses ...
    let u = malloc(allocator, 12);
    assert_eq!(u, at(10));
    assert_eq!(calls(allocator), Vec::<String>::new());
    // ... and then the stitched block is unusable: one range has only 8 MiB left.
    let v = malloc(allocator, 20);
    let segment: Vec<u64> = (12..22).collect();
    assert_eq!(v, at(42));
    assert_eq!(calls(allocator), new_segment(v, &segment));
    allocator.free(u).unwrap();

    // Once free again, the block serves a smaller request and leaves the memory behind its end to
    // others.
    let w = malloc(allocator, 18);
    assert_eq!(w, s);
    assert_eq!(handles(allocator, w, 18), stitched[..9]);
    let z = malloc(allocator, 2);
    assert_eq!(z, at(6));
    assert_eq!(handles(allocator, z, 2), stitched[9..]);
    assert_eq!(calls(allocator), Vec::<String>::new());
    assert_eq!(allocator.stats().reserved_bytes.all().current, 42 << 20);

    for addr in [t, v, w, z] {
        allocator.free(addr).unwrap();
    }
    assert_all_comes_back(allocator);
}

/// Makes two free ranges of 10 MiB, from which a request for 20 MiB is stitched.
fn two_free_ranges(allocator: &mut DynAllocator) {
    let [a, b] = [malloc(allocator, 10), malloc(allocator, 10)];
    allocator.free(a).unwrap();
    allocator.free(b).unwrap();
}

#[test]
fn no_memory_is_lost_when_a_call_fails_during_stitching() {
    for breaks in [false, true] {
        for after in 0.. {
            let allocator = &mut allocator("frag_limit:4MiB");
            two_free_ranges(allocator);
            let error = DriverError::Failed("planned".to_owned());
            let faults = allocator.driver_mut().faults_mut();
            if breaks {
                faults.break_after(after, error);
            } else {
                faults.fail_after(after, error);
            }
            let stitched = try_malloc(allocator, 20);
            let faults = allocator.driver_mut().faults_mut();
            faults.set_sticky(None);
            if faults.cancel() {
                assert_eq!(after, 1 + 2 * 10, "calls: reserve, then map and set access");
                break;
            }
            assert!(matches!(stitched, Err(Error::Driver(_))), "{stitched:?}");
            allocator.check().unwrap();
            assert_eq!(allocator.stats().reserved_bytes.all().current, 20 << 20);
            let stitched = malloc(allocator, 20);
            assert_eq!(allocator.stats().reserved_bytes.all().current, 20 << 20);
            allocator.free(stitched).unwrap();
            assert_all_comes_back(allocator);
        }
    }
}

#[test]
fn a_segment_behind_the_unused_end_of_a_block_can_be_released() {
    let allocator = &mut allocator("frag_limit:4MiB");
    let segments = [10, 10, 10].map(|mib| malloc(allocator, mib));
    for addr in segments {
        allocator.free(addr).unwrap();
    }
    let whole = malloc(allocator, 30);
    let behind = handles(allocator, whole, 30);
    assert_eq!(
        behind[10..],
        [1, 2, 3, 4, 5],
        "the first segment comes last"
    );
    allocator.free(whole).unwrap();
    let front = malloc(allocator, 20);
    assert_eq!(front, whole);

    allocator.empty_cache().unwrap();
    allocator.check().unwrap();
    assert_eq!(allocator.driver().used(), 20 << 20);
    assert_eq!(handles(allocator, front, 20), behind[..10]);

    calls(allocator);
    allocator.free(front).unwrap();
    let given_up = format!("addrfree {front} {}", 30 * MIB);
    assert_eq!(
        calls(allocator).last(),
        Some(&given_up),
        "it can no longer serve 30 MiB"
    );
    assert_all_comes_back(allocator);
}

/// Makes a free stitched block of 20 MiB with one of its chunks in use. Returns both.
fn unusable_block(allocator: &mut DynAllocator) -> (DeviceAddr, DeviceAddr) {
    two_free_ranges(allocator);
    let stitched = malloc(allocator, 20);
    allocator.free(stitched).unwrap();
    (stitched, malloc(allocator, 2))
}

#[test]
fn unusable_blocks_are_dropped_when_addresses_run_out() {
    let allocator = &mut allocator("frag_limit:4MiB");
    let (unusable, pin) = unusable_block(allocator);
    calls(allocator);
    let faults = allocator.driver_mut().faults_mut();
    faults.fail_after(0, DriverError::OutOfMemory); // the call for addresses
    let stitched = malloc(allocator, 18);

    let chunk = |number: u64| unusable.offset(number * CHUNK);
    let unmap = |number| format!("unmap {} {CHUNK}", chunk(number));
    let mut expected: Vec<String> = (0..10).rev().map(unmap).collect();
    expected.push(format!("addrfree {unusable} {}", 20 * MIB));
    expected.extend(mapping(stitched, &[6, 7, 8, 9, 10, 2, 3, 4, 5]));
    assert_eq!(calls(allocator), expected);

    allocator.free(pin).unwrap();
    allocator.free(stitched).unwrap();
    assert_all_comes_back(allocator);
}

#[test]
fn the_limit_on_addresses_spares_blocks_that_the_device_uses() {
    for hold_events in [false, true] {
        let config = SimConfig {
            hold_events,
            ..SimConfig::with_capacity(1024 * MIB)
        };
        let allocator = &mut allocator_on(&config, "frag_limit:4MiB,auto_gc:37MiB");
        let (_, pin) = unusable_block(allocator);
        let stitched = malloc(allocator, 18);
        let given_up = allocator.driver().counts().of(CallKind::FreeAddress);
        assert_eq!(
            given_up,
            u64::from(!hold_events),
            "20 and 18 MiB exceed the limit"
        );
        allocator.free(pin).unwrap();
        allocator.free(stitched).unwrap();
        assert_all_comes_back(allocator);
    }
}

#[test]
fn a_block_used_by_other_streams_keeps_its_memory_until_they_finish() {
    let config = SimConfig {
        hold_events: true,
        ..SimConfig::with_capacity(1024 * MIB)
    };
    let allocator = &mut allocator_on(&config, "frag_limit:4MiB");
    two_free_ranges(allocator);
    let stitched = malloc(allocator, 20);
    for other in [1, 2] {
        allocator
            .record_stream(stitched, StreamId::nth(other))
            .unwrap();
    }
    allocator.free(stitched).unwrap();
    let streams = allocator.driver_mut().streams_mut();
    streams.complete(StreamId::DEFAULT, u64::MAX);
    streams.complete(StreamId::nth(1), u64::MAX);
    let elsewhere = malloc(allocator, 10);
    assert_eq!(elsewhere, at(40), "its memory waits for the second stream");
    let streams = allocator.driver_mut().streams_mut();
    streams.complete(StreamId::nth(2), u64::MAX);
    let again = malloc(allocator, 20);
    assert_eq!(again, stitched);
    allocator.free(elsewhere).unwrap();
    allocator.free(again).unwrap();
    assert_all_comes_back(allocator);
}

/// Makes two segments of 10 MiB with 8 MiB free in each.
fn two_pinned_ranges(allocator: &mut DynAllocator) {
    let first = malloc(allocator, 10);
    allocator.free(first).unwrap();
    malloc(allocator, 2);
    let second = malloc(allocator, 10);
    let rest_of_first = malloc(allocator, 8);
    allocator.free(second).unwrap();
    malloc(allocator, 2);
    allocator.free(rest_of_first).unwrap();
}

#[test]
fn the_defrag_level_decides_when_memory_is_stitched() {
    let with_room = SimConfig::with_capacity(1024 * MIB);
    let without = SimConfig::with_capacity(24 * MIB);
    for (conf, reserved_with_room, served_without) in [
        ("frag_limit:16MiB", 20, true),
        ("frag_limit:16385KiB", 36, false),
        ("frag_limit:16MiB,defrag_level:1", 36, true),
        ("frag_limit:16MiB,defrag_level:2", 36, true),
        ("frag_limit:16MiB,defrag_level:3", 36, false),
    ] {
        let allocator = &mut allocator_on(&with_room, conf);
        two_pinned_ranges(allocator);
        malloc(allocator, 16);
        let reserved = allocator.stats().reserved_bytes.all().current;
        assert_eq!(reserved, reserved_with_room << 20, "{conf}");

        let allocator = &mut allocator_on(&without, conf);
        two_pinned_ranges(allocator);
        assert_eq!(try_malloc(allocator, 16).is_ok(), served_without, "{conf}");
    }
}

#[test]
fn a_much_larger_block_is_not_used() {
    for (conf, is_reused) in [
        ("", true),
        (",reuse_limit:1.5", true),
        (",reuse_limit:1.4", false),
    ] {
        let allocator = &mut allocator(&format!("frag_limit:4MiB{conf}"));
        for addr in [10, 10, 10].map(|mib| malloc(allocator, mib)) {
            allocator.free(addr).unwrap();
        }
        let stitched = malloc(allocator, 30);
        allocator.free(stitched).unwrap();
        assert_eq!(malloc(allocator, 20) == stitched, is_reused, "{conf}");
    }
}

#[test]
fn small_requests_need_no_virtual_memory() {
    let config = SimConfig {
        virtual_memory: false,
        ..SimConfig::default()
    };
    let allocator = &mut allocator_on(&config, "");
    let small = allocator.malloc(MIB, StreamId::DEFAULT).unwrap();
    let refused = allocator.malloc(MIB + 1, StreamId::DEFAULT);
    assert!(
        matches!(refused, Err(Error::Unsupported { .. })),
        "{refused:?}"
    );
    allocator.free(small).unwrap();
    assert_all_comes_back(allocator);
}
