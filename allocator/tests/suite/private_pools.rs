//! Which memory serves a request: that of its stream, and of the private pool that accepts it. What returns with a pool.

use std::collections::HashSet;

use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::driver::{DeviceAddr, StreamId};
use coalesce_alloc::error::Error;
use coalesce_alloc::settings::Settings;
use coalesce_alloc::snapshot::SegmentInfo;
use coalesce_alloc::{Allocator as _, MempoolId, PyTorch};

const MIB: u64 = 1 << 20;
const POOL: MempoolId = MempoolId(0, 1);
const OTHER_POOL: MempoolId = MempoolId(0, 2);
const ONE: StreamId = StreamId::nth(1);

type Allocator = PyTorch<SimDevice>;

fn allocator(conf: &str) -> Allocator {
    let device = SimDevice::new(&SimConfig::with_capacity(1024 * MIB));
    PyTorch::new(device, Settings::from_conf(conf).unwrap())
}

/// Allocates 30 MiB, which have a segment of their own.
fn malloc(allocator: &mut Allocator, stream: StreamId) -> DeviceAddr {
    allocator.malloc(30 * MIB, stream).unwrap()
}

/// The pool of the segment at an address.
fn pool_of(allocator: &Allocator, addr: DeviceAddr) -> MempoolId {
    let is_there = |segment: &SegmentInfo| segment.address == addr;
    let segments = allocator.segments();
    segments.into_iter().find(is_there).unwrap().pool
}

/// Among the handles are numbers: 1 is `cudaStreamLegacy`, 2 `cudaStreamPerThread`.
#[test]
fn each_handle_of_a_stream_has_memory_of_its_own() {
    let mut allocator = allocator("");
    let streams = [0, 1, 2, 3, 5, 0x1000, 0x7fff_1234_5678, u64::MAX].map(StreamId);
    let made = streams.map(|stream| malloc(&mut allocator, stream));
    for addr in made {
        allocator.free(addr).unwrap();
    }
    for (stream, addr) in streams.into_iter().zip(made).rev() {
        assert_eq!(malloc(&mut allocator, stream), addr, "{stream:?}");
    }
    allocator.check().unwrap();
}

/// `torch.cuda.graph` directs the requests of its own stream only.
#[test]
fn a_pool_serves_the_streams_that_it_accepts() {
    let mut allocator = allocator("");
    for (pool, accepted) in [(POOL, ONE), (OTHER_POOL, StreamId::DEFAULT)] {
        let begun = allocator.begin_allocate_to_pool(pool, Box::new(move |s| s == accepted));
        begun.unwrap();
    }
    for (stream, pool) in [
        (ONE, POOL),
        (StreamId::DEFAULT, OTHER_POOL),
        (StreamId::nth(2), MempoolId::DEFAULT),
    ] {
        let addr = malloc(&mut allocator, stream);
        assert_eq!(pool_of(&allocator, addr), pool, "{stream:?}");
    }
    allocator.check().unwrap();
}

#[test]
fn emptying_a_pool_leaves_the_others_alone() {
    let mut allocator = allocator("");
    for pool in [POOL, OTHER_POOL] {
        let begun = allocator.begin_allocate_to_pool(pool, Box::new(|_| true));
        begun.unwrap();
        let addr = malloc(&mut allocator, StreamId::DEFAULT);
        allocator.free(addr).unwrap();
        allocator.end_allocate_to_pool(pool).unwrap();
        allocator.release_pool(pool).unwrap();
    }
    let pools = |allocator: &Allocator| -> Vec<MempoolId> {
        let segments = allocator.segments().into_iter();
        segments.map(|segment| segment.pool).collect()
    };
    allocator.empty_pool(OTHER_POOL).unwrap();
    assert_eq!(pools(&allocator), [POOL]);
    assert!(allocator.pool_use_count(OTHER_POOL).is_err(), "it is gone");
    allocator.empty_pool(POOL).unwrap();
    assert_eq!(pools(&allocator), []);
}

/// A segment of a pool for which the device had no memory has addresses alone. PyTorch leaks them with the pool.
#[test]
fn addresses_without_memory_are_returned_with_their_pool() {
    for bytes in [1, 30 * MIB] {
        let mut allocator = allocator("expandable_segments:True");
        let begun = allocator.begin_allocate_to_pool(POOL, Box::new(|_| true));
        begun.unwrap();
        allocator.driver_mut().faults_mut().refuse_next(2);
        let error = allocator.malloc(bytes, StreamId::DEFAULT).unwrap_err();
        assert!(matches!(error, Error::OutOfMemory(_)), "{error}");
        allocator.end_allocate_to_pool(POOL).unwrap();
        allocator.release_pool(POOL).unwrap();
        assert!(allocator.driver().reserved_addresses() > 0);
        allocator.empty_cache().unwrap();
        assert_eq!(allocator.driver().reserved_addresses(), 0, "{bytes} bytes");
    }
}

/// As any allocator offers them.
#[test]
fn a_program_that_knows_no_policy_can_use_pools() {
    let mut allocator = allocator("");
    let pools = allocator.private_pools().unwrap();
    for users in 1..=2 {
        pools.create_or_use_pool(POOL).unwrap();
        assert_eq!(pools.pool_use_count(POOL), Ok(users));
    }
    pools
        .begin_allocate_to_pool(POOL, Box::new(|stream| stream == ONE))
        .unwrap();
    let addr = malloc(&mut allocator, ONE);
    let pools = allocator.private_pools().unwrap();
    for (expected, is_so) in [(HashSet::new(), false), (HashSet::from([addr]), true)] {
        assert_eq!(pools.pool_live_allocations_are(POOL, &expected), Ok(is_so));
    }
    pools.end_allocate_to_pool(POOL).unwrap();
    let saved = pools.checkpoint_pool(POOL).unwrap();
    assert_eq!(format!("{saved:?}"), "Checkpoint((0, 1))");
    assert_eq!(pools.restore_pool(&saved).unwrap().allocated, [addr]);
    for _ in 0..3 {
        pools.release_pool(POOL).unwrap();
    }
    allocator.free(addr).unwrap();
    let pools = allocator.private_pools().unwrap();
    pools.empty_pool(POOL).unwrap();
    assert!(pools.pool_use_count(POOL).is_err());
    assert_eq!(allocator.driver().used(), 0);
}
