//! `quilt` over long random programs: what it repeats, and the addresses that it needs. `transcripts/quilt.txt` has its
//! rules step by step.

use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::driver::{DeviceAddr, StreamId};
use coalesce_alloc::error::Error;
use coalesce_alloc::registry;
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng as _, SeedableRng as _};

use crate::harness::DynAllocator;

const MIB: u64 = 1 << 20;
const MAIN: StreamId = StreamId::DEFAULT;

fn allocator_on(config: &SimConfig) -> DynAllocator {
    let mut device = SimDevice::new(config);
    device.set_logging(true);
    registry::build("quilt", device, "").unwrap()
}

/// The driver calls since the last time, without their arguments.
fn calls(allocator: &mut DynAllocator) -> Vec<String> {
    let log = allocator.driver_mut().take_log();
    let name = |call: String| call.split(' ').next().unwrap_or_default().to_owned();
    log.iter().map(|call| name(call.to_string())).collect()
}

fn made(calls: &[String], name: &str) -> bool {
    calls.iter().any(|call| call == name)
}

#[test]
fn a_repeated_program_calls_the_driver_in_its_first_steps_only() {
    for seed in 0..16 {
        let mut allocator = allocator_on(&SimConfig::with_capacity(1024 * MIB));
        let mut kept = Vec::new();
        for step in 0..10 {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            let mut live: Vec<DeviceAddr> = Vec::new();
            for _ in 0..300 {
                let bytes = u64::from(random.next_u32()) % (9 * MIB) + 1;
                live.push(allocator.malloc(bytes, MAIN).unwrap());
                if live.len() > 12 {
                    let victim = random.next_u32() as usize % live.len();
                    allocator.free(live.swap_remove(victim)).unwrap();
                }
            }
            live.into_iter()
                .for_each(|block| allocator.free(block).unwrap());
            let of_step = calls(&mut allocator);
            if step >= 8 {
                assert!(of_step.is_empty(), "seed {seed}, step {step}: {of_step:?}");
            }
            kept.push(allocator.stats().reserved_bytes.all().current);
            allocator.check().unwrap();
        }
        // Each step begins with the memory of the one before free, and the first with none.
        assert!(kept[9] <= kept[0] + kept[0] / 8, "seed {seed}: {kept:?}");
    }
}

#[test]
fn addresses_are_bounded_however_long_a_program_runs() {
    let capacity = 256 * MIB;
    let mut allocator = allocator_on(&SimConfig::with_capacity(capacity));
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let mut live: Vec<DeviceAddr> = Vec::new();
    for _ in 0..20_000 {
        let bytes = u64::from(random.next_u32()) % (16 * MIB) + 1;
        match allocator.malloc(bytes, MAIN) {
            Ok(block) => live.push(block),
            Err(Error::OutOfMemory(_)) => {}
            Err(other) => panic!("{other}"),
        }
        while live.len() > 20 {
            let victim = random.next_u32() as usize % live.len();
            allocator.free(live.swap_remove(victim)).unwrap();
        }
        // Home, five times the memory for views, and one view with its room.
        assert!(allocator.driver().reserved_addresses() <= 9 * capacity);
    }
    assert!(made(&calls(&mut allocator), "unmap"), "views are retired");
    allocator.check().unwrap();
}

#[test]
fn views_that_work_may_use_are_unmapped_after_it() {
    let config = SimConfig {
        hold_events: true,
        ..SimConfig::with_capacity(256 * MIB)
    };
    let mut allocator = allocator_on(&config);
    let mut random = ChaCha8Rng::seed_from_u64(3);
    let mut live: Vec<DeviceAddr> = Vec::new();
    let mut churn = |allocator: &mut DynAllocator| {
        for _ in 0..2000 {
            let bytes = u64::from(random.next_u32()) % (16 * MIB) + 1;
            live.extend(allocator.malloc(bytes, MAIN));
            while live.len() > 9 {
                let victim = random.next_u32() as usize % live.len();
                allocator.free(live.swap_remove(victim)).unwrap();
            }
        }
    };
    churn(&mut allocator);
    assert!(
        !made(&calls(&mut allocator), "unmap"),
        "the work is pending"
    );
    allocator.driver_mut().streams_mut().complete_all();
    churn(&mut allocator);
    let all = calls(&mut allocator);
    assert!(made(&all, "unmap"));
    assert!(!made(&all, "devsync"), "the host does not wait");
}
