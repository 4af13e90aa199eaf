//! Streams and private pools as any allocator offers them. `transcripts/private_pools.txt` has which memory serves a
//! request, and what returns with a pool.

use std::collections::HashSet;

use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::driver::{DeviceAddr, StreamId};
use coalesce_alloc::settings::Settings;
use coalesce_alloc::{Allocator as _, MempoolId, PyTorch};

const MIB: u64 = 1 << 20;
const POOL: MempoolId = MempoolId(0, 1);
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
