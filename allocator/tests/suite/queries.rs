//! Queries of an allocator. `transcripts/queries.txt` has those of a program, and devices with extreme configurations.

use coalesce_alloc::Allocator as _;
use coalesce_alloc::driver::calls::CallKind;
use coalesce_alloc::driver::hooks::cost::{Cost, Costs};
use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::driver::{DeviceAddr, StreamId};
use coalesce_alloc::history::HistoryOptions;
use coalesce_alloc::settings::Settings;
use coalesce_alloc::{MempoolId, PoolSource, PyTorch};

const MIB: u64 = 1 << 20;

type Allocator = PyTorch<SimDevice>;

fn on(config: &SimConfig, conf: &str) -> Allocator {
    PyTorch::new(SimDevice::new(config), Settings::from_conf(conf).unwrap())
}

fn malloc(allocator: &mut Allocator, bytes: u64) -> DeviceAddr {
    allocator.malloc(bytes, StreamId::DEFAULT).unwrap()
}

#[test]
fn segments_end_where_their_last_block_ends() {
    let mut allocator = on(&SimConfig::with_capacity(256 * MIB), "");
    let addr = malloc(&mut allocator, 3 * MIB);
    let mut segment = allocator.segments().remove(0);
    assert_eq!(segment.blocks.len(), 2);
    assert_eq!(segment.end(), addr.offset(20 * MIB));
    segment.blocks.clear();
    assert_eq!(segment.end(), addr);
}

#[test]
fn a_listener_hears_of_each_request() {
    let mut allocator = on(&SimConfig::with_capacity(256 * MIB), "");
    let (sender, heard) = std::sync::mpsc::channel();
    allocator.listen(Some(Box::new(move |entry, _| {
        sender.send((entry.action.name(), entry.size)).unwrap();
    })));
    let addr = malloc(&mut allocator, 3 * MIB);
    allocator.free(addr).unwrap();
    allocator.listen(None);
    malloc(&mut allocator, MIB);
    let heard: Vec<_> = heard.iter().collect();
    let expected = [
        ("segment_alloc", 20 * MIB),
        ("alloc", 3 * MIB),
        ("free_requested", 3 * MIB),
        ("free_completed", 3 * MIB),
    ];
    assert_eq!(heard, expected);
}

#[test]
fn streams_are_directed_to_a_pool_while_it_records() {
    const POOL: MempoolId = MempoolId(0, 7);
    let mut allocator = on(&SimConfig::with_capacity(256 * MIB), "");
    let directed =
        |allocator: &Allocator| [0, 1].map(|stream| allocator.is_directed(StreamId::nth(stream)));
    assert_eq!(directed(&allocator), [false, false]);
    let second = Box::new(|stream| stream == StreamId::nth(1));
    allocator.begin_allocate_to_pool(POOL, second).unwrap();
    assert_eq!(directed(&allocator), [false, true]);
    allocator.end_allocate_to_pool(POOL).unwrap();
    assert_eq!(directed(&allocator), [false, false]);
}

#[test]
fn debug_output_tells_who_listens_and_where_pools_get_their_memory() {
    const POOL: MempoolId = MempoolId(0, 7);
    let mut allocator = on(&SimConfig::with_capacity(256 * MIB), "");
    let shows = |allocator: &Allocator, text: &str| format!("{allocator:?}").contains(text);
    assert!(shows(&allocator, "listener: off"));
    allocator.listen(Some(Box::new(|_, _| {})));
    assert!(shows(&allocator, "listener: listening"));
    let begun = allocator.begin_allocate_to_pool(POOL, Box::new(|_| true));
    begun.unwrap();
    assert!(shows(&allocator, "source: device"));
    assert!(shows(&allocator, &format!("Recording({POOL})")));
    allocator.set_pool_source(POOL, Box::new(Nothing)).unwrap();
    assert!(shows(&allocator, "source: own"));
    let pools = allocator.private_pools().unwrap();
    let saved = format!("{:?}", pools.checkpoint_pool(POOL));
    assert_eq!(saved, "Ok(Checkpoint((0, 7)))");
}

struct Nothing;

impl PoolSource for Nothing {
    fn malloc(&mut self, _: u64) -> Option<DeviceAddr> {
        None
    }

    fn free(&mut self, _: DeviceAddr, _: u64) {}
}

/// Simulated time passes only in driver calls; the history has it in microseconds.
#[test]
fn the_cost_of_driver_calls_determines_the_times_in_the_history() {
    let cost = |ns: u64, ns_per_mib: u64| Cost { ns, ns_per_mib };
    let costs = Costs::default()
        .with(CallKind::Malloc, cost(300_000, 20_000)) // 2 MiB, then 30 MiB
        .with(CallKind::Free, cost(5_200_000, 50_000)); // 2 MiB
    let mut allocator = on(
        &SimConfig {
            costs,
            ..SimConfig::default()
        },
        "",
    );
    allocator.record_history(Some(HistoryOptions::default()));
    let addr = malloc(&mut allocator, MIB);
    allocator.free(addr).unwrap();
    let again = malloc(&mut allocator, MIB); // from the cache
    allocator.free(again).unwrap();
    assert_eq!(allocator.driver().elapsed_ns(), 340_000);
    allocator.empty_cache().unwrap();
    malloc(&mut allocator, 30 * MIB);
    assert_eq!(allocator.driver().elapsed_ns(), 6_540_000);
    let first = allocator.history().next().unwrap().time_us;
    let last = allocator.history().last().unwrap().time_us;
    assert_eq!(last - first, 6_200);
}
