//! Measures the throughput of replaying a script, and prints it as the oracle does.
//!
//! A run walks the whole script; run 0 only warms up. The time covers mallocs and frees with the
//! operations on streams, events and the cache between them; printing and rare operations are skipped.
//! The unit is nanoseconds per allocation, each of which is freed once.

mod handover;
mod runs;
mod walk;

use std::io::Write;

use anyhow::ensure;
use coalesce_alloc::driver::calls::CallKind;
use coalesce_alloc::driver::sim::SimDevice;
use coalesce_alloc::{PyTorch, Shared};
use statrs::statistics::{Data, Max, Min, OrderStatistics};

use self::walk::{Step, Tally, Walker};
use crate::Script;

type Allocator = PyTorch<SimDevice>;

/// More would keep times in memory without telling more.
const MOST_RUNS: usize = 1_000_000;

/// Options of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct BenchOptions {
    /// Timed runs, after one to warm up.
    pub runs: usize,
    /// Walks over the script in each run.
    pub walks: usize,
    /// Threads that walk the whole script at the same time, each on its own streams.
    pub threads: usize,
    /// Whether one thread walks the script and a second one performs its frees.
    pub free_on_other_thread: bool,
    /// Whether to empty the cache before each run, outside the measured time.
    pub cold: bool,
    /// Whether a single thread calls the allocator without the lock that several threads need.
    pub unlocked: bool,
}

impl BenchOptions {
    /// Validates the options.
    ///
    /// # Errors
    ///
    /// If a number is out of range.
    pub fn validate(self) -> anyhow::Result<()> {
        ensure!(
            (1..=MOST_RUNS).contains(&self.runs) && (1..=MOST_RUNS).contains(&self.walks),
            "--bench and --inner need 1 to {MOST_RUNS}"
        );
        ensure!((1..=64).contains(&self.threads), "--threads needs 1 to 64");
        ensure!(
            !self.unlocked || self.threads == 1,
            "--unlocked needs a single thread"
        );
        ensure!(
            !self.free_on_other_thread || self.threads == 2,
            "--free-on-other-thread needs --threads 2"
        );
        Ok(())
    }
}

/// Measures, and prints one line after each run and a summary.
///
/// # Errors
///
/// If the output cannot be written, the script allocates under a live id, or the allocator fails for
/// another reason than lack of memory.
pub fn bench(
    script: &Script,
    allocator: Allocator,
    options: BenchOptions,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let walker = Walker {
        script,
        steps: &Step::timed(script),
        walks: options.walks,
    };
    let allocator = Shared::new(allocator);
    let mut wall = Vec::new();
    let mut cpu = Vec::new();
    let mut overhead = Vec::new();
    let mut last = Tally::default();
    for number in 0..=options.runs {
        if options.cold {
            allocator.lock().empty_cache()?;
        }
        let before = Counters::of(&allocator.lock());
        let run = if options.free_on_other_thread {
            walker.run_freed_on_other_thread(&allocator)?
        } else if options.threads > 1 {
            walker.run_threads(&allocator, options.threads)?
        } else if options.unlocked {
            walker.run(&mut *allocator.lock())?
        } else {
            walker.run(&allocator)?
        };
        let after = Counters::of(&allocator.lock());
        allocator.lock().driver_mut().streams_mut().complete_all();
        let per_pair = |ns: f64| ns / run.tally.allocations.max(1) as f64;
        let empty = per_pair(if options.free_on_other_thread {
            walker.run_handover_without_allocator()
        } else {
            walker.run_without_allocator()
        });
        let warm_up = if number == 0 { " (warm-up)" } else { "" };
        writeln!(
            out,
            "run {number}{warm_up} ns_per_pair={:.2} loop_overhead={empty:.2} {}",
            per_pair(run.wall_ns),
            after.since(before)
        )?;
        out.flush()?;
        if number > 0 {
            wall.push(per_pair(run.wall_ns));
            cpu.push(per_pair(run.cpu_ns));
            overhead.push(empty);
        }
        last = run.tally;
    }
    let (wall, cpu) = (Data::new(wall), Data::new(cpu));
    writeln!(
        out,
        "bench api=raw cold={} threads={} ops={} allocs={} ooms={} runs={} \
         median_ns_per_pair={:.2} min={:.2} max={:.2} median_cpu={:.2} min_cpu={:.2} \
         loop_overhead={:.2}",
        u8::from(options.cold),
        options.threads,
        script.ops().len(),
        last.allocations,
        last.ooms,
        options.runs,
        wall.clone().median(),
        wall.min(),
        wall.max(),
        cpu.clone().median(),
        cpu.min(),
        Data::new(overhead).median(),
    )?;
    Ok(())
}

/// Counters of the allocator and the device.
#[derive(Clone, Copy)]
struct Counters {
    device_allocs: i64,
    device_frees: i64,
    events: u64,
    queries: u64,
}

impl Counters {
    fn of(allocator: &Allocator) -> Self {
        let (stats, calls) = (allocator.stats(), allocator.driver().counts());
        Self {
            device_allocs: stats.num_device_alloc,
            device_frees: stats.num_device_free,
            events: calls.of(CallKind::RecordEvent),
            queries: calls.of(CallKind::QueryEvent),
        }
    }

    fn since(self, before: Self) -> String {
        format!(
            "device_alloc={} device_free={} events={} queries={}",
            self.device_allocs - before.device_allocs,
            self.device_frees - before.device_frees,
            self.events - before.events,
            self.queries - before.queries
        )
    }
}
