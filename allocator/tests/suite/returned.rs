//! Which cached memory is returned for a request, and which blocks are split for one.

use coalesce_alloc::driver::StreamId;
use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::settings::Settings;
use coalesce_alloc::{MempoolId, PyTorch};

const MIB: u64 = 1 << 20;

type Allocator = PyTorch<SimDevice>;

fn allocator(mib: u64, conf: &str) -> Allocator {
    let device = SimDevice::new(&SimConfig::with_capacity(mib * MIB));
    PyTorch::new(device, Settings::from_conf(conf).unwrap())
}

fn cache(allocator: &mut Allocator, sizes: &[u64]) {
    let live: Vec<_> = sizes
        .iter()
        .map(|mib| allocator.malloc(mib * MIB, StreamId::DEFAULT).unwrap())
        .collect();
    for addr in live {
        allocator.free(addr).unwrap();
    }
}

/// The largest oversize blocks are returned until they are as large as the request. If all of them are not, everything
/// is returned.
#[test]
fn no_more_oversize_blocks_are_returned_than_needed() {
    for (cached, capacity, request, left) in [
        (&[64, 70, 30, 64][..], 240, 127, 30 + 64),
        (&[64, 70, 30, 64], 240, 150, 30),
        (&[64, 70, 30, 64], 240, 230, 0),
        (&[64, 30, 64], 160, 128, 30),
        (&[64, 30, 64], 160, 129, 0),
        (&[64, 30, 64, 64], 222, 128, 64 + 30),
    ] {
        let mut allocator = allocator(capacity, "max_split_size_mb:64");
        cache(&mut allocator, cached);
        let addr = allocator.malloc(request * MIB, StreamId::DEFAULT).unwrap();
        let (_, bytes) = allocator.base_allocation(addr).unwrap();
        let reserved = allocator.stats().reserved_bytes.all().current as u64;
        assert_eq!(reserved - bytes, left * MIB, "{cached:?}, {request} MiB");
        allocator.check().unwrap();
    }
}

#[test]
fn only_the_blocks_of_pools_that_say_so_are_never_split() {
    const WHOLE: MempoolId = MempoolId(0, 1);
    const CUT: MempoolId = MempoolId(0, 2);
    let mut allocator = allocator(1024, "");
    allocator.set_no_split(WHOLE);
    for (pool, blocks) in [(None, 2), (Some(WHOLE), 1), (Some(CUT), 2)] {
        if let Some(pool) = pool {
            let begun = allocator.begin_allocate_to_pool(pool, Box::new(|_| true));
            begun.unwrap();
        }
        let addr = allocator.malloc(3 * MIB, StreamId::DEFAULT).unwrap();
        if let Some(pool) = pool {
            allocator.end_allocate_to_pool(pool).unwrap();
        }
        let segments = allocator.segments();
        let mut of_addr = segments.iter().filter(|segment| segment.address == addr);
        assert_eq!(of_addr.next().unwrap().blocks.len(), blocks, "{pool:?}");
    }
}
