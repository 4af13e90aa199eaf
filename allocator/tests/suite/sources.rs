//! Private pools whose segments come from another allocator than the device.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::driver::{DeviceAddr, StreamId};
use coalesce_alloc::error::{Error, PoolError};
use coalesce_alloc::settings::Settings;
use coalesce_alloc::{MempoolId, PoolSource, PyTorch};

const MIB: u64 = 1 << 20;
const POOL: MempoolId = MempoolId(0, 1);
/// Far above the addresses of the simulated device.
const BASE: u64 = 1 << 50;

/// The segments that a source has given out.
type Segments = Arc<Mutex<BTreeMap<DeviceAddr, u64>>>;

/// Gives out at most 64 MiB.
struct Source(Segments);

impl PoolSource for Source {
    fn malloc(&mut self, bytes: u64) -> Option<DeviceAddr> {
        let mut segments = self.0.lock().unwrap();
        let held: u64 = segments.values().sum();
        let addr = DeviceAddr(BASE + held);
        (held + bytes <= 64 * MIB).then(|| {
            segments.insert(addr, bytes);
            addr
        })
    }

    fn free(&mut self, addr: DeviceAddr, bytes: u64) {
        assert_eq!(self.0.lock().unwrap().remove(&addr), Some(bytes));
    }
}

/// An allocator that directs all requests to the pool, and the segments of its source.
fn allocator(conf: &str) -> (PyTorch<SimDevice>, Segments) {
    let settings = Settings::from_conf(conf).unwrap();
    let mut allocator = PyTorch::new(SimDevice::new(&SimConfig::default()), settings);
    let segments = Segments::default();
    let source = Box::new(Source(Arc::clone(&segments)));
    allocator.create_or_use_pool(POOL).unwrap();
    allocator.set_pool_source(POOL, source).unwrap();
    let begun = allocator.begin_allocate_to_pool(POOL, Box::new(|_| true));
    begun.unwrap();
    (allocator, segments)
}

#[test]
fn segments_come_from_the_source_and_return_to_it() {
    for conf in ["", "expandable_segments:True"] {
        let (mut allocator, segments) = allocator(conf);
        assert!(format!("{allocator:?}").contains("source: own"));
        let sizes = [MIB, 3 * MIB, 30 * MIB];
        let made = sizes.map(|bytes| allocator.malloc(bytes, StreamId::DEFAULT).unwrap());
        assert!(made.iter().all(|addr| addr.0 >= BASE));
        let held: Vec<u64> = segments.lock().unwrap().values().copied().collect();
        assert_eq!(held, [2 * MIB, 20 * MIB, 30 * MIB], "{conf}");
        assert!(allocator.segments().iter().all(|s| !s.is_expandable));
        for addr in made {
            allocator.free(addr).unwrap();
        }
        allocator.end_allocate_to_pool(POOL).unwrap();
        allocator.release_pool(POOL).unwrap();
        allocator.release_pool(POOL).unwrap();
        allocator.empty_cache().unwrap();
        assert!(segments.lock().unwrap().is_empty());
        assert_eq!(allocator.stats().reserved_bytes.all().current, 0);
        allocator.check().unwrap();
    }
}

/// Blocks of expandable segments are split for any remainder, blocks of other segments only if it is large.
#[test]
fn blocks_of_a_source_are_split_as_those_of_plain_segments() {
    for conf in ["", "expandable_segments:True"] {
        let (mut allocator, _) = allocator(conf);
        allocator.malloc(12 * MIB - 512, StreamId::DEFAULT).unwrap();
        allocator
            .malloc(12 * MIB - 2048 * 512, StreamId::DEFAULT)
            .unwrap();
        allocator.malloc(3 * MIB, StreamId::DEFAULT).unwrap();
        let segments = allocator.segments();
        let blocks: Vec<usize> = segments.iter().map(|s| s.blocks.len()).collect();
        assert_eq!(blocks, [1, 1, 2], "{conf}");
    }
}

#[test]
fn a_source_without_memory_is_out_of_memory() {
    let (mut allocator, _) = allocator("");
    let failed = allocator.malloc(70 * MIB, StreamId::DEFAULT).unwrap_err();
    assert!(matches!(failed, Error::OutOfMemory(_)), "{failed}");
    let made = allocator.malloc(40 * MIB, StreamId::DEFAULT).unwrap();
    allocator.free(made).unwrap();
    allocator.check().unwrap();
}

#[test]
fn a_pool_that_does_not_exist_has_no_source() {
    let mut allocator = PyTorch::new(SimDevice::new(&SimConfig::default()), Settings::default());
    let source = Box::new(Source(Segments::default()));
    let refused = allocator.set_pool_source(POOL, source);
    assert_eq!(refused, Err(Error::Pool(PoolError::Unknown(POOL))));
}
