//! The places where PyTorch 2.11 corrupts its own state. The reference detects and names each, keeps
//! its state consistent and loses no memory.

use coalesce_alloc::MempoolId;
use coalesce_alloc::PyTorch;
use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::driver::{DeviceAddr, Driver, StreamId};
use coalesce_alloc::error::{Error, Hazard};
use coalesce_alloc::settings::Settings;

const MIB: u64 = 1 << 20;
const POOL: MempoolId = MempoolId(0, 7);

type Allocator = PyTorch<SimDevice>;

fn allocator(mib: u64, conf: &str) -> Allocator {
    let device = SimDevice::new(&SimConfig::with_capacity(mib * MIB));
    PyTorch::new(device, Settings::from_conf(conf).unwrap())
}

fn malloc(allocator: &mut Allocator, mib: u64) -> DeviceAddr {
    allocator.malloc(mib * MIB, StreamId::DEFAULT).unwrap()
}

/// Directs all allocations to the pool.
fn begin_pool(allocator: &mut Allocator) {
    let begun = allocator.begin_allocate_to_pool(POOL, Box::new(|_| true));
    begun.unwrap();
}

/// Stops directing allocations to the pool and releases it.
fn release_pool(allocator: &mut Allocator) {
    allocator.end_allocate_to_pool(POOL).unwrap();
    allocator.release_pool(POOL).unwrap();
}

/// Checks that the state is consistent and that everything can still be freed and returned.
fn nothing_is_lost(mut allocator: Allocator, live: &[DeviceAddr]) {
    allocator.check().unwrap();
    for &addr in live {
        allocator.free(addr).unwrap();
    }
    // The first call may name a hazard again; the memory is returned nevertheless.
    let _ = allocator.empty_cache();
    allocator.check().unwrap();
    assert_eq!(allocator.stats().reserved_bytes.all().current, 0);
    assert_eq!(allocator.driver().used(), 0);
}

#[test]
fn lowering_max_split_size_makes_pytorch_free_an_interior_pointer() {
    let mut allocator = allocator(150, "");
    let whole = malloc(&mut allocator, 100);
    allocator.free(whole).unwrap();
    let front = malloc(&mut allocator, 40); // leaves 60 MiB free behind it
    allocator.apply_settings("max_split_size_mb:20").unwrap();

    let error = allocator.malloc(120 * MIB, StreamId::DEFAULT).unwrap_err();
    let Error::Hazard(Hazard::ReleaseOfSplitBlock {
        addr,
        bytes,
        is_head,
    }) = error
    else {
        panic!("{error}");
    };
    assert_eq!(
        (addr, bytes, is_head),
        (front.offset(40 * MIB), 60 * MIB, false)
    );
    assert!(error.to_string().contains("max_split_size_mb"), "{error}");
    nothing_is_lost(allocator, &[front]);
}

#[test]
fn switching_expandable_segments_on_makes_pytorch_free_memory_in_use() {
    let mut allocator = allocator(150, "max_split_size_mb:64");
    let whole = malloc(&mut allocator, 100);
    allocator.free(whole).unwrap();
    allocator
        .apply_settings("max_split_size_mb:64,expandable_segments:True")
        .unwrap();
    let front = malloc(&mut allocator, 90); // an oversize block is cut after all
    let tail = malloc(&mut allocator, 10);
    assert_eq!(tail, front.offset(90 * MIB));
    allocator.free(front).unwrap();

    let error = allocator.malloc(120 * MIB, StreamId::DEFAULT).unwrap_err();
    let expected = Hazard::ReleaseOfSplitBlock {
        addr: front,
        bytes: 90 * MIB,
        is_head: true,
    };
    assert_eq!(error, Error::Hazard(expected));
    nothing_is_lost(allocator, &[tail]);
}

#[test]
fn a_private_pool_that_returns_more_ranges_than_it_took_trips_an_assertion() {
    let mut allocator = allocator(1024, "expandable_segments:True");
    begin_pool(&mut allocator);
    let a = malloc(&mut allocator, 100);
    allocator.free(a).unwrap();
    let pages = [20; 5].map(|mib| malloc(&mut allocator, mib));
    let [_, second, _, fourth, _] = pages; // the free pages will be three regions
    for page in pages.into_iter().step_by(2) {
        allocator.free(page).unwrap();
    }
    release_pool(&mut allocator);

    let error = allocator.empty_cache().unwrap_err();
    let expected = Hazard::PrivatePoolOverreleased { pool: POOL };
    assert_eq!(error, Error::Hazard(expected));
    assert_eq!(
        allocator.stats().reserved_bytes.all().current,
        40 << 20,
        "all of them were returned"
    );
    nothing_is_lost(allocator, &[second, fourth]);
}

#[test]
fn a_private_pool_that_looks_empty_is_destroyed_under_a_live_block() {
    let mut allocator = allocator(1024, "expandable_segments:True");
    begin_pool(&mut allocator);
    let a = malloc(&mut allocator, 100);
    allocator.free(a).unwrap();
    let live = malloc(&mut allocator, 20); // one mapping, partly live, the rest one region
    release_pool(&mut allocator);

    let error = allocator.empty_cache().unwrap_err();
    let expected = Hazard::PrivatePoolDestroyedInUse { pool: POOL };
    assert_eq!(error, Error::Hazard(expected));
    assert_eq!(
        allocator.pool_use_count(POOL),
        Ok(0),
        "the pool still exists"
    );
    nothing_is_lost(allocator, &[live]);
}

#[test]
fn a_request_whose_rounding_overflows_is_refused() {
    let mut allocator = allocator(1024, "");
    let bytes = u64::MAX;
    let error = allocator.raw_malloc(bytes, StreamId::DEFAULT).unwrap_err();
    assert_eq!(error, Error::Hazard(Hazard::SizeOverflow { bytes }));
    nothing_is_lost(allocator, &[]);
}

/// Not corruption, but surprising: memory that becomes free during the flush before an out-of-memory
/// error is not used even if it fits. The same request succeeds when repeated.
#[test]
fn a_fitting_block_may_be_overlooked_once() {
    let config = SimConfig {
        hold_events: true,
        ..SimConfig::with_capacity(100 * MIB)
    };
    let mut allocator = PyTorch::new(SimDevice::new(&config), Settings::default());
    let big = malloc(&mut allocator, 80);
    let small = malloc(&mut allocator, 15);
    allocator.free(big).unwrap();
    let big = malloc(&mut allocator, 40); // the segment is split, so it cannot be returned
    let rest = malloc(&mut allocator, 40);
    allocator.record_stream(rest, StreamId::nth(1)).unwrap();
    allocator.free(rest).unwrap();
    let again = allocator.malloc(40 * MIB, StreamId::DEFAULT);
    assert!(matches!(again, Err(Error::OutOfMemory(_))));
    assert_eq!(allocator.malloc(40 * MIB, StreamId::DEFAULT), Ok(rest));
    assert!(allocator.driver_mut().last_error().is_ok());
    nothing_is_lost(allocator, &[big, small, rest]);
}
