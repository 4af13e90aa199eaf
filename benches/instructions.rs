//! Instructions of a malloc and its free, counted by valgrind for each script: a shape under some settings.
//!
//! Unlike times, the counts of an unchanged program are the same in every run, so small changes show.
//! `scripts/speed/instructions.py` runs this and compares the counts with the recorded ones.
//!
//! The device is simulated. What is counted is [`PAIRS`] mallocs and their frees by the allocator. Its creation and a first
//! walk, after which the device is not asked for memory again, are not.

// What the macros declare has no documentation, and takes its names from the shapes.
#![allow(missing_docs, non_snake_case)]

use coalesce_alloc::driver::DeviceAddr;
use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::history::HistoryOptions;
use coalesce_alloc::settings::Settings;
use coalesce_alloc::{Allocator, PyTorch};
use coalesce_bench::timing::shapes;
use coalesce_bench::timing::walk::Walk;
use gungraun::{
    Callgrind, LibraryBenchmarkConfig, library_benchmark, library_benchmark_group, main,
};

/// Mallocs in each script. scripts/speed/instructions.py divides by it.
const PAIRS: u64 = 10_000;

const DEFAULT: &str = "";
const EXPANDABLE: &str = "expandable_segments:True";

/// An allocator with the walk that is counted.
struct Script {
    allocator: PyTorch<SimDevice>,
    walk: Walk,
    slots: Vec<DeviceAddr>,
}

impl Script {
    fn new(shape: &str, conf: &str) -> Self {
        let workload = shapes::find(shape, None).expect("the shape can be read");
        let workload = workload.expect("the scripts name shapes");
        let walk = Walk::prepare(&*workload).expect("the shape can be read");
        let settings = Settings::from_conf(conf).expect("the settings are valid");
        let device = SimDevice::new(&SimConfig::with_capacity(1 << 40));
        Self {
            allocator: PyTorch::new(device, settings),
            slots: walk.slots(),
            walk: walk.of_pairs(PAIRS),
        }
    }

    fn walk(&mut self) {
        // A trait object, because calls that the compiler inlines into their callers would count otherwise whenever
        // the callers change.
        let allocator: &mut dyn Allocator<Driver = SimDevice> = &mut self.allocator;
        let walked = self.walk.run(allocator, &mut self.slots);
        walked.expect("the device is large enough");
    }
}

/// A script that has been walked once.
fn warm(shape: &str, conf: &str) -> Box<Script> {
    let mut script = Box::new(Script::new(shape, conf));
    script.walk();
    script
}

/// The same with a recorded history, which is full when counting starts.
fn recording(shape: &str, conf: &str) -> Box<Script> {
    let mut script = Box::new(Script::new(shape, conf));
    script.allocator.record_history(Some(HistoryOptions {
        max_entries: 1000,
        ..HistoryOptions::default()
    }));
    script.walk();
    script
}

/// Checks that every block was allocated and freed, so that a broken allocator cannot look fast.
fn check(script: Box<Script>) {
    let blocks = script.allocator.stats().allocation.all();
    assert_eq!(blocks.allocated as u64, 2 * PAIRS);
    assert_eq!(blocks.current, 0, "blocks were not freed");
    assert_eq!(script.allocator.check(), Ok(()));
}

#[library_benchmark(setup = warm, teardown = check)]
#[bench::hot_4KiB("hot_4KiB", DEFAULT)]
#[bench::hot_4MiB("hot_4MiB", DEFAULT)]
#[bench::mixed_1000_live("mixed_1000_live", DEFAULT)]
#[bench::small_1000_live("small_1000_live", DEFAULT)]
#[bench::fragmented("fragmented", DEFAULT)]
#[bench::transformer("transformer", DEFAULT)]
#[bench::record_stream_4_streams("record_stream_4_streams", DEFAULT)]
#[bench::mixed_expandable("mixed_1000_live", EXPANDABLE)]
#[bench::mixed_history(args = ("mixed_1000_live", DEFAULT), setup = recording)]
fn counted(mut script: Box<Script>) -> Box<Script> {
    script.walk();
    script
}

library_benchmark_group!(name = scripts; benchmarks = counted);

main!(
    // The cache is not simulated: only instructions are compared, and counting them alone is faster.
    config = LibraryBenchmarkConfig::default().tool(Callgrind::with_args(["--cache-sim=no"]));
    library_benchmark_groups = scripts
);
