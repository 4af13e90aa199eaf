//! `vpmm` step by step: where free pages are mapped again, what streams wait for, and the driver calls.
//!
//! The four cases of `docs/vpmm_spec.md` and the layouts come from OpenVM's own tests
//! (`crates/cuda-common/src/memory_manager/tests.rs`).

use coalesce_alloc::Allocator;
use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::driver::{DeviceAddr, DriverError, StreamId};
use coalesce_alloc::error::Error;
use coalesce_alloc::registry;

type DynAllocator = Box<dyn Allocator<Driver = SimDevice>>;

const PAGE: u64 = 2 << 20;
/// The first address that the device assigns.
const BASE: DeviceAddr = DeviceAddr(0x200_0000_0000);
const MAIN: StreamId = StreamId::DEFAULT;

fn other() -> StreamId {
    StreamId::nth(1)
}

fn allocator_on(config: &SimConfig, conf: &str) -> DynAllocator {
    let mut device = SimDevice::new(config);
    device.set_logging(true);
    registry::build("vpmm", device, conf).unwrap()
}

fn allocator(conf: &str) -> DynAllocator {
    allocator_on(&SimConfig::with_capacity(512 * PAGE), conf)
}

/// On a device on which events stay pending until completed.
fn with_pending_events(conf: &str) -> DynAllocator {
    let config = SimConfig {
        hold_events: true,
        ..SimConfig::with_capacity(512 * PAGE)
    };
    allocator_on(&config, conf)
}

/// Requests pages. Returns the first one's number, counted from the first address.
fn malloc_on(allocator: &mut DynAllocator, pages: u64, stream: StreamId) -> u64 {
    let addr = allocator.malloc(pages * PAGE, stream).unwrap();
    addr.offset_from(BASE) / PAGE
}

fn malloc(allocator: &mut DynAllocator, pages: u64) -> u64 {
    malloc_on(allocator, pages, MAIN)
}

fn free(allocator: &mut DynAllocator, page: u64) {
    allocator.free(at(page)).unwrap();
    allocator.check().unwrap();
}

fn at(page: u64) -> DeviceAddr {
    BASE.offset(page * PAGE)
}

/// The pages reserved.
fn reserved(allocator: &DynAllocator) -> u64 {
    let bytes = allocator.stats().reserved_bytes.all().current;
    bytes.cast_unsigned() / PAGE
}

/// The driver calls since the last time: the name, and the page for calls with an address.
fn calls(allocator: &mut DynAllocator) -> Vec<String> {
    let short = |call: String| {
        let mut words = call.split(' ');
        let name = words.next().unwrap_or_default();
        let address = words.find_map(|word| word.strip_prefix("0x"));
        match address.map(|hex| u64::from_str_radix(hex, 16).unwrap()) {
            Some(addr) => format!("{name} {}", (addr - BASE.0) / PAGE),
            None => name.to_owned(),
        }
    };
    let log = allocator.driver_mut().take_log();
    log.iter().map(|call| short(call.to_string())).collect()
}

fn complete(allocator: &mut DynAllocator, stream: StreamId) {
    let streams = allocator.driver_mut().streams_mut();
    streams.complete(stream, u64::MAX);
}

fn assert_all_comes_back(allocator: &mut DynAllocator) {
    allocator.driver_mut().streams_mut().complete_all();
    allocator.empty_cache().unwrap();
    allocator.check().unwrap();
    let device = allocator.driver();
    assert_eq!((device.used(), device.reserved_addresses()), (0, 0));
}

/// The calls that make a free region of new pages, and those that map old ones after them.
fn region(start: u64, new: u64, old: u64) -> Vec<String> {
    let mut calls = Vec::new();
    for page in start..start + new {
        calls.extend(["create".to_owned(), format!("map {page}")]);
    }
    if new > 0 {
        calls.extend([format!("setaccess {start}"), "event_record".to_owned()]);
    }
    let start = start + new;
    calls.extend((start..start + old).map(|page| format!("map {page}")));
    if old > 0 {
        calls.extend([format!("setaccess {start}"), "event_record".to_owned()]);
    }
    calls
}

#[test]
fn a_worked_example() {
    let allocator = &mut with_pending_events("");
    let [a, b] = [2, 1].map(|pages| malloc(allocator, pages));
    assert_eq!((a, b), (0, 2));
    let mut expected = vec!["reserve 0".to_owned()];
    expected.extend([region(0, 2, 0), region(2, 1, 0)].concat());
    assert_eq!(calls(allocator), expected);
    free(allocator, a);
    assert_eq!(calls(allocator), ["event_record"]);

    // Two pages are free and three requested: a new one, and then the two.
    let c = malloc(allocator, 3);
    assert_eq!((c, reserved(allocator)), (3, 4));
    assert_eq!(calls(allocator), region(3, 1, 2));
    let behind = |allocator: &DynAllocator, page| {
        let mapped = allocator.driver().mapped_behind(at(page), PAGE);
        mapped[0].handle
    };
    assert_eq!(behind(allocator, 4), behind(allocator, 0), "mapped twice");

    // The old addresses become a hole once the work before the free is complete.
    let d = malloc(allocator, 1);
    assert_eq!(d, 6);
    calls(allocator);
    complete(allocator, MAIN);
    let e = malloc(allocator, 2);
    assert_eq!(e, 0);
    let unmapped = ["unmap 1", "unmap 0"].map(str::to_owned).to_vec();
    assert_eq!(calls(allocator), [unmapped, region(0, 2, 0)].concat());
    for page in [b, c, d, e] {
        free(allocator, page);
    }
    assert_all_comes_back(allocator);
}

/// +10, +1, -10, +4, +11 pages, with some created in advance. Returns where 1, 4 and 11 are.
fn documented_steps(initial: u64) -> (DynAllocator, [u64; 3]) {
    let mut allocator = allocator(&format!("initial_pages:{initial}"));
    let [ten, one] = [10, 1].map(|pages| malloc(&mut allocator, pages));
    assert_eq!((ten, reserved(&allocator)), (0, initial));
    free(&mut allocator, ten);
    let [four, eleven] = [4, 11].map(|pages| malloc(&mut allocator, pages));
    allocator.check().unwrap();
    (allocator, [one, four, eleven])
}

#[test]
fn the_four_documented_cases() {
    for (initial, [four, eleven], pages) in [
        (22, [0, 11], 22),  // A: enough pages behind the others
        (18, [11, 18], 18), // B: 3 + 8 free pages are mapped again
        (15, [11, 15], 16), // C: the 10 free pages, and a new one
        (12, [0, 11], 16),  // D: 4 new pages, behind a free one, and 6 free pages
    ] {
        let (mut allocator, placed) = documented_steps(initial);
        assert_eq!(placed, [10, four, eleven], "{initial} initial pages");
        assert_eq!(reserved(&allocator), pages, "{initial} initial pages");
        for page in placed {
            free(&mut allocator, page);
        }
        assert_all_comes_back(&mut allocator);
    }
}

#[test]
fn the_end_of_a_hole_that_was_not_needed_is_abandoned() {
    let (mut allocator, _) = documented_steps(12);
    // The hole from page 12 had 11 pages, of which 4 got new pages and 6 free ones. The old addresses of
    // those six are a hole.
    assert_eq!(malloc(&mut allocator, 6), 4);
    assert_eq!(malloc(&mut allocator, 1), 23, "22 is not used");
    allocator.empty_cache().unwrap();
    assert_eq!(malloc(&mut allocator, 1), 22);
}

#[test]
fn neighbours_of_one_stream_are_merged() {
    // The order in which three neighbours are freed.
    for order in [[0, 1, 2], [1, 0, 2], [0, 2, 1], [2, 1, 0]] {
        let allocator = &mut with_pending_events("");
        let blocks = [2, 2, 2].map(|pages| malloc(allocator, pages));
        for index in order {
            free(allocator, blocks[index]);
        }
        assert_eq!(malloc(allocator, 6), blocks[0]);
        assert_eq!(reserved(allocator), 6);
    }
    let allocator = &mut with_pending_events("");
    let blocks = [MAIN, other(), MAIN].map(|stream| malloc_on(allocator, 2, stream));
    for page in blocks {
        free(allocator, page);
    }
    calls(allocator);
    assert_eq!(malloc(allocator, 4), 6, "first and last, mapped again");
    assert_eq!(calls(allocator), region(6, 0, 4));
}

#[test]
fn a_region_of_another_stream_is_taken_only_if_its_work_is_complete() {
    for is_complete in [true, false] {
        let allocator = &mut with_pending_events("");
        let first = malloc_on(allocator, 2, other());
        free(allocator, first);
        if is_complete {
            complete(allocator, other());
        }
        calls(allocator);
        let second = malloc(allocator, 2);
        assert_eq!(reserved(allocator), 2);
        if is_complete {
            assert_eq!(second, first);
            assert_eq!(calls(allocator), [""; 0]);
        } else {
            // The stream waits, the host does not. The pages have new addresses.
            assert_eq!(second, 2);
            let waits = vec!["event_wait".to_owned()];
            assert_eq!(calls(allocator), [waits, region(2, 0, 2)].concat());
        }
    }
}

#[test]
fn own_regions_are_mapped_again_before_those_of_other_streams() {
    let allocator = &mut with_pending_events("");
    let foreign = malloc_on(allocator, 1, other());
    let pin = malloc_on(allocator, 1, other());
    let own = malloc(allocator, 1);
    free(allocator, foreign);
    free(allocator, own);
    let handle = |allocator: &DynAllocator, page| {
        let mapped = allocator.driver().mapped_behind(at(page), PAGE);
        mapped[0].handle
    };
    let [foreign, own] = [foreign, own].map(|page| handle(allocator, page));
    let both = malloc(allocator, 2);
    assert_eq!(
        [0, 1].map(|page| handle(allocator, both + page)),
        [own, foreign]
    );
    for page in [pin, both] {
        free(allocator, page);
    }
    assert_all_comes_back(allocator);
}

#[test]
fn the_rest_of_a_split_region_stays_with_its_stream() {
    let allocator = &mut with_pending_events("");
    let foreign = malloc_on(allocator, 3, other());
    free(allocator, foreign);
    assert_eq!(malloc(allocator, 1), 3, "one page, mapped again");
    calls(allocator);
    assert_eq!(malloc_on(allocator, 2, other()), foreign + 1);
    assert_eq!(calls(allocator), [""; 0], "no event, no wait, no mapping");
}

#[test]
fn a_request_that_fails_leaves_no_pages_behind() {
    let allocator = &mut allocator_on(&SimConfig::with_capacity(8 * PAGE), "");
    let held = malloc(allocator, 4);
    let freed = malloc(allocator, 2);
    free(allocator, freed);
    let refused = allocator.malloc(5 * PAGE, MAIN);
    assert!(matches!(refused, Err(Error::OutOfMemory(_))), "{refused:?}");
    allocator.check().unwrap();
    assert_eq!(reserved(allocator), 6, "two pages more were created");
    let rest = malloc(allocator, 4);
    assert_eq!(reserved(allocator), 8);
    for page in [held, rest] {
        free(allocator, page);
    }
    assert_all_comes_back(allocator);
}

#[test]
fn no_memory_is_lost_when_a_call_fails() {
    for breaks in [false, true] {
        for after in 0.. {
            let allocator = &mut with_pending_events("va_size:16MiB");
            let [first, pin] = [2, 1].map(|pages| malloc_on(allocator, pages, other()));
            free(allocator, first);
            let error = DriverError::Failed("planned".to_owned());
            let faults = allocator.driver_mut().faults_mut();
            match breaks {
                true => faults.break_after(after, error),
                false => faults.fail_after(after, error),
            }
            let requested = allocator.malloc(4 * PAGE, MAIN);
            let faults = allocator.driver_mut().faults_mut();
            faults.set_sticky(None);
            if faults.cancel() {
                assert_eq!(
                    after,
                    (2 * 2 + 3) + 2 + (2 + 3),
                    "calls: new pages, their access and event, then a query, a wait, and old pages"
                );
                break;
            }
            assert!(matches!(requested, Err(Error::Driver(_))), "{requested:?}");
            allocator.check().unwrap();
            let again = malloc(allocator, 4);
            allocator.check().unwrap();
            assert_eq!(reserved(allocator), 5, "after {after} calls");
            free(allocator, again);
            free(allocator, pin);
            assert_all_comes_back(allocator);
        }
    }
}

#[test]
fn addresses_are_reserved_again_when_they_run_out() {
    let allocator = &mut allocator("va_size:4MiB");
    let pages = [1; 4].map(|pages| malloc(allocator, pages));
    assert_eq!(pages, [0, 1, 2, 3]);
    assert_eq!(allocator.driver().reserved_addresses(), 4 * PAGE);
    let larger = allocator.malloc(2 * PAGE + 1, MAIN);
    assert!(matches!(larger, Err(Error::OutOfMemory(_))), "{larger:?}");
    for page in pages {
        free(allocator, page);
    }
    assert_all_comes_back(allocator);
}

#[test]
fn emptying_the_cache_keeps_only_what_is_in_use() {
    let allocator = &mut allocator("initial_pages:4");
    let [_, live, _] = [3, 1, 2].map(|pages| malloc(allocator, pages));
    free(allocator, 0);
    free(allocator, 4);
    allocator.empty_cache().unwrap();
    allocator.check().unwrap();
    assert_eq!(reserved(allocator), 1);
    assert_eq!(malloc(allocator, 3), 0, "a hole");
    free(allocator, 0);
    free(allocator, live);
    assert_all_comes_back(allocator);
    assert_eq!(malloc(allocator, 1), (8 << 40) / PAGE, "new addresses");
    assert_eq!(reserved(allocator), 1, "the initial pages are gone");
}

#[test]
fn requests_smaller_than_a_page_get_memory_from_the_drivers_pool() {
    let allocator = &mut allocator("");
    let addr = allocator.malloc(PAGE - 1, MAIN).unwrap();
    assert_eq!(calls(allocator)[..2], ["reserve 0", "create"]);
    allocator.free(addr).unwrap();
    assert_all_comes_back(allocator);
}

#[test]
fn blocks_belong_to_one_stream() {
    let allocator = &mut allocator("");
    let block = malloc(allocator, 1);
    let recorded = allocator.record_stream(at(block), other());
    assert!(matches!(recorded, Err(Error::Unsupported { .. })));
}
