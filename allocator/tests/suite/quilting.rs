//! `quilt` step by step: what it maps, what it shares between streams, and what it repeats.

use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::driver::{DeviceAddr, StreamId};
use coalesce_alloc::error::{CheckpointError, Error, PoolError};
use coalesce_alloc::registry;
use coalesce_alloc::{Allocator, MempoolId, PoolCall};
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng as _, SeedableRng as _};

type DynAllocator = Box<dyn Allocator<Driver = SimDevice>>;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const MAIN: StreamId = StreamId::DEFAULT;
const GRAPHS: MempoolId = MempoolId(1, 0);

fn allocator_on(config: &SimConfig) -> DynAllocator {
    let mut device = SimDevice::new(config);
    device.set_logging(true);
    registry::build("quilt", device, "").unwrap()
}

fn allocator() -> DynAllocator {
    allocator_on(&SimConfig::with_capacity(1024 * MIB))
}

fn reserved(allocator: &DynAllocator) -> i64 {
    allocator.stats().reserved_bytes.all().current
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
fn free_pieces_serve_a_request_that_none_of_them_could_serve() {
    let mut allocator = allocator();
    let sizes = [3 * MIB + 512 * KIB, 300 * KIB, 9 * MIB, 300 * KIB, 5 * MIB];
    let blocks = sizes.map(|bytes| allocator.malloc(bytes, MAIN).unwrap());
    let before = reserved(&allocator);
    for block in [blocks[0], blocks[2], blocks[4]] {
        allocator.free(block).unwrap();
    }
    calls(&mut allocator);
    let large = allocator.malloc(14 * MIB, MAIN).unwrap();
    assert_eq!(reserved(&allocator), before, "of the memory that was there");
    assert!(!made(&calls(&mut allocator), "create"));
    allocator.check().unwrap();
    allocator.free(large).unwrap();
    assert_eq!(
        allocator.malloc(14 * MIB, MAIN).unwrap(),
        large,
        "the view is still there"
    );
    assert!(calls(&mut allocator).is_empty());
}

#[test]
fn a_repeated_program_calls_the_driver_in_its_first_steps_only() {
    let mut allocator = allocator();
    let mut kept = Vec::new();
    for step in 0..8 {
        let mut random = ChaCha8Rng::seed_from_u64(7);
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
        if step >= 4 {
            assert!(of_step.is_empty(), "step {step}: {of_step:?}");
        }
        kept.push(reserved(&allocator));
        allocator.check().unwrap();
    }
    assert_eq!(kept[1..], [kept[0]; 7], "what the first step needed");
}

#[test]
fn memory_of_another_stream_is_waited_for_on_the_device() {
    let config = SimConfig {
        hold_events: true,
        ..SimConfig::with_capacity(64 * MIB)
    };
    let (mut allocator, side) = (allocator_on(&config), StreamId::nth(1));
    let first = allocator.malloc(40 * MIB, MAIN).unwrap();
    allocator.free(first).unwrap();
    calls(&mut allocator);
    assert_eq!(allocator.malloc(40 * MIB, side).unwrap(), first);
    let all = calls(&mut allocator);
    assert!(made(&all, "event_wait"), "{all:?}");
    assert!(!made(&all, "devsync"), "{all:?}");
    allocator.free(first).unwrap();
    calls(&mut allocator);
    assert_eq!(allocator.malloc(20 * MIB, side).unwrap(), first);
    assert!(
        !made(&calls(&mut allocator), "event_wait"),
        "its own memory"
    );
}

#[test]
fn a_stream_prefers_memory_that_it_need_not_wait_for() {
    let config = SimConfig {
        hold_events: true,
        ..SimConfig::default()
    };
    let (mut allocator, side) = (allocator_on(&config), StreamId::nth(1));
    let [of_main, _apart, of_side] =
        [MAIN, MAIN, side].map(|stream| allocator.malloc(8 * MIB, stream).unwrap());
    allocator.free(of_main).unwrap();
    allocator.free(of_side).unwrap();
    calls(&mut allocator);
    assert_eq!(allocator.malloc(7 * MIB, side).unwrap(), of_side);
    assert!(calls(&mut allocator).is_empty());
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
        // Home, four times the memory in views, and one view more.
        assert!(allocator.driver().reserved_addresses() <= 7 * capacity);
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

#[test]
fn units_are_smaller_if_memory_is_scarce() {
    let units_on = |capacity: u64| {
        let mut allocator = allocator_on(&SimConfig::with_capacity(capacity));
        allocator.malloc(2048 * MIB, MAIN).unwrap();
        calls(&mut allocator);
        allocator.malloc(256 * MIB, MAIN).unwrap();
        let calls = calls(&mut allocator);
        calls.iter().filter(|&call| call == "create").count()
    };
    assert_eq!(units_on(1 << 40), 256 / 8, "1/256 of all memory");
    assert_eq!(units_on(4096 * MIB), 256 / 2, "the smallest");
}

/// A graph may be launched on any stream, so memory whose work is not complete is not for it.
#[test]
fn a_captured_graph_gets_no_memory_that_streams_still_work_on() {
    let config = SimConfig {
        hold_events: true,
        ..SimConfig::with_capacity(1024 * MIB)
    };
    let mut allocator = allocator_on(&config);
    let (side, pool) = (StreamId::nth(1), MempoolId(1, 0));
    let block = allocator.malloc(64 * MIB, side).unwrap();
    allocator.pool_call(PoolCall::Begin(pool)).unwrap();
    allocator.free(block).unwrap();
    calls(&mut allocator);
    for stream in [MAIN, side] {
        allocator.malloc(16 * MIB, stream).unwrap();
    }
    assert!(made(&calls(&mut allocator), "create"));
    allocator.pool_call(PoolCall::End(pool)).unwrap();
    assert_eq!(
        allocator.malloc(64 * MIB, side).unwrap(),
        block,
        "it is still common memory"
    );
}

#[test]
fn a_captured_request_gets_new_memory_beside_memory_that_it_must_not_use() {
    let config = SimConfig {
        hold_events: true,
        ..SimConfig::with_capacity(1024 * MIB)
    };
    let mut allocator = allocator_on(&config);
    let pool = MempoolId(1, 0);
    allocator.pool_call(PoolCall::Begin(pool)).unwrap();
    let freed = allocator.malloc(4 * MIB, StreamId::nth(1)).unwrap();
    allocator.free(freed).unwrap();
    allocator.malloc(12 * MIB, MAIN).unwrap();
    assert_eq!(reserved(&allocator), 16 << 20);
    allocator.check().unwrap();
}

#[test]
fn the_memory_of_a_graph_is_common_once_its_pool_is_released_and_the_device_was_waited_for() {
    let mut allocator = allocator();
    let pool = MempoolId(1, 0);
    allocator.pool_call(PoolCall::Begin(pool)).unwrap();
    let captured = allocator.malloc(64 * MIB, MAIN).unwrap();
    allocator.free(captured).unwrap();
    allocator.pool_call(PoolCall::End(pool)).unwrap();
    let other = allocator.malloc(64 * MIB, MAIN).unwrap();
    assert_eq!(reserved(&allocator), 128 << 20);
    allocator.free(other).unwrap();
    allocator.pool_call(PoolCall::Release(pool)).unwrap();
    calls(&mut allocator);
    allocator.malloc(48 * MIB, MAIN).unwrap();
    assert!(!made(&calls(&mut allocator), "devsync"), "not needed yet");
    allocator.malloc(64 * MIB, MAIN).unwrap();
    assert!(made(&calls(&mut allocator), "devsync"));
    assert_eq!(reserved(&allocator), 128 << 20);
}

/// Allocates in a pool of graphs.
fn in_pool<const N: usize>(allocator: &mut DynAllocator, sizes: [u64; N]) -> [DeviceAddr; N] {
    allocator.pool_call(PoolCall::Begin(GRAPHS)).unwrap();
    let made = sizes.map(|bytes| allocator.malloc(bytes, MAIN).unwrap());
    allocator.pool_call(PoolCall::End(GRAPHS)).unwrap();
    made
}

#[test]
fn a_restored_pool_has_the_blocks_of_the_checkpoint_and_the_memory_that_it_got_since() {
    let mut allocator = allocator();
    let [a, b, c] = in_pool(&mut allocator, [6 * MIB, 40 * MIB, 700]);
    allocator.free(a).unwrap();
    let pools = allocator.private_pools().unwrap();
    let checkpoint = pools.checkpoint_pool(GRAPHS).unwrap();
    allocator.free(b).unwrap();
    // Larger than any free run: they lie in views.
    let [d, e] = in_pool(&mut allocator, [44 * MIB, 900]);
    let before = reserved(&allocator);

    let pools = allocator.private_pools().unwrap();
    let restored = pools.restore_pool(&checkpoint).unwrap();
    assert_eq!(restored.freed.len(), 3);
    assert!([c, d, e].iter().all(|addr| restored.freed.contains(addr)));
    assert_eq!(restored.allocated.len(), 2);
    assert_eq!(
        pools.pool_live_allocations_are(GRAPHS, &[b, c].into()),
        Ok(true)
    );
    allocator.check().unwrap();
    let allocated = allocator.stats().allocated_bytes.all().current;
    assert_eq!(allocated, (40 << 20) + 1024, "700 bytes take 1024");
    assert_eq!(allocator.free(d), Err(Error::InvalidPointer(d)));
    let all_that_is_free = before.cast_unsigned() - 42 * MIB;
    in_pool(&mut allocator, [all_that_is_free]);
    assert_eq!(reserved(&allocator), before);
}

#[test]
fn a_checkpoint_whose_memory_is_gone_is_refused() {
    let mut allocator = allocator();
    let [block] = in_pool(&mut allocator, [6 * MIB]);
    let pools = allocator.private_pools().unwrap();
    let checkpoint = pools.checkpoint_pool(GRAPHS).unwrap();
    allocator.free(block).unwrap();
    allocator.pool_call(PoolCall::Release(GRAPHS)).unwrap();
    let restore = |allocator: &mut DynAllocator| {
        let pools = allocator.private_pools().unwrap();
        pools.restore_pool(&checkpoint).unwrap_err().to_string()
    };
    assert_eq!(
        restore(&mut allocator),
        "Not expected to checkpoint freeable graph"
    );
    allocator.empty_cache().unwrap();
    assert_eq!(restore(&mut allocator), "Could not find private pool id");
    in_pool(&mut allocator, [MIB]);
    let gone = "the memory of the checkpoint was returned";
    assert_eq!(restore(&mut allocator), gone);
    allocator.check().unwrap();
}

#[test]
fn a_released_pool_is_gone_only_if_its_memory_was_taken() {
    let mut allocator = allocator();
    let pool = MempoolId(0, 1);
    allocator.pool_call(PoolCall::Begin(pool)).unwrap();
    let block = allocator.malloc(6 * MIB, MAIN).unwrap();
    allocator.pool_call(PoolCall::End(pool)).unwrap();
    allocator.free(block).unwrap();
    allocator.pool_call(PoolCall::Release(pool)).unwrap();

    // During a capture nothing is emptied.
    allocator.pool_call(PoolCall::Begin(GRAPHS)).unwrap();
    allocator.empty_cache().unwrap();
    allocator.pool_call(PoolCall::Empty(pool)).unwrap();
    allocator.pool_call(PoolCall::End(GRAPHS)).unwrap();
    let again = allocator.pool_call(PoolCall::Begin(pool));
    assert_eq!(again, Err(Error::Pool(PoolError::Released(pool))));
    let pools = allocator.private_pools().unwrap();
    let refused = pools.checkpoint_pool(pool).unwrap_err();
    assert_eq!(refused, Error::Checkpoint(CheckpointError::Released));

    allocator.empty_cache().unwrap();
    allocator.pool_call(PoolCall::Begin(pool)).unwrap();
}

#[test]
fn a_device_without_virtual_memory_is_refused() {
    let config = SimConfig {
        virtual_memory: false,
        ..SimConfig::default()
    };
    let answer = allocator_on(&config).malloc(MIB, MAIN);
    let text = answer.unwrap_err().to_string();
    assert!(
        text.contains("quilt") && text.contains("virtual memory"),
        "{text}"
    );
}
