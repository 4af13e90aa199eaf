//! The host memory of an allocator: little for each block, and none that a warm one has to ask for.

use coalesce_alloc::PyTorch;
use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::driver::{DeviceAddr, StreamId};
use coalesce_alloc::settings::Settings;

/// Numbers below a bound, the same each time.
fn numbers() -> impl FnMut(u64) -> u64 {
    let mut state = 1_u64;
    move |bound| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % bound
    }
}

/// One step of a program with mixed sizes, streams and lifetimes, the same each time.
fn step(allocator: &mut PyTorch<SimDevice>, live: &mut Vec<u64>) {
    let mut next = numbers();
    for _ in 0..20_000 {
        if live.len() < 500 && next(2) == 0 {
            let bytes = 1 << next(25);
            let stream = StreamId::nth(next(3) as u32);
            let addr = allocator.malloc(bytes + next(bytes), stream).unwrap();
            live.push(addr.0);
        } else if !live.is_empty() {
            let victim = next(live.len() as u64) as usize;
            let addr = DeviceAddr(live.swap_remove(victim));
            if next(8) == 0 {
                for _ in 0..next(8) {
                    let stream = StreamId::nth(next(8) as u32);
                    allocator.record_stream(addr, stream).unwrap();
                }
            }
            allocator.free(addr).unwrap();
        }
    }
    for addr in live.drain(..) {
        allocator.free(DeviceAddr(addr)).unwrap();
    }
}

#[test]
fn malloc_and_free_of_a_warm_allocator_allocate_no_host_memory() {
    for conf in ["", "expandable_segments:True", "max_split_size_mb:64"] {
        let settings = Settings::from_conf(conf).unwrap();
        let device = SimDevice::new(&SimConfig::default());
        let mut allocator = PyTorch::new(device, settings);
        let mut live = Vec::with_capacity(512);
        // Each round reuses the bookkeeping in another order. After a few rounds every container has
        // its final capacity.
        for _ in 0..5 {
            step(&mut allocator, &mut live);
        }
        let reserved = allocator.stats().reserved_bytes.all().current;
        let host = allocation_counter::measure(|| step(&mut allocator, &mut live));
        assert_eq!(host.count_total, 0, "{conf}: {host:?}");
        assert_eq!(allocator.stats().reserved_bytes.all().current, reserved);
    }
}

#[test]
fn a_block_takes_at_most_96_bytes_of_host_memory() {
    const LIVE: usize = 100_000;
    const MOST: u64 = 96;
    let device = SimDevice::new(&SimConfig::with_capacity(1 << 40));
    let mut allocator = PyTorch::new(device, Settings::default());
    let mut live = Vec::with_capacity(LIVE);
    let mut next = numbers();
    let host = allocation_counter::measure(|| {
        for _ in 0..3 * LIVE {
            if live.len() == LIVE {
                let victim = next(LIVE as u64) as usize;
                allocator.free(live.swap_remove(victim)).unwrap();
            }
            let bytes = 1 << next(17);
            let addr = allocator.malloc(bytes + next(bytes), StreamId::DEFAULT);
            live.push(addr.unwrap());
        }
    });
    let segments = allocator.segments();
    let blocks: usize = segments.iter().map(|segment| segment.blocks.len()).sum();
    let each = host.bytes_current as u64 / blocks as u64;
    assert!(each <= MOST, "{each} bytes for each of {blocks} blocks");
}
