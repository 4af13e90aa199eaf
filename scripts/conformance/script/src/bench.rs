//! Measures the throughput of replaying a script, and prints it as the oracle does.
//!
//! A run walks the whole script; run 0 only warms up. The time covers mallocs and frees with the
//! operations on streams, events and the cache between them; printing and rare operations are skipped.
//! The unit is nanoseconds per allocation, each of which is freed once.

use std::hint::black_box;
use std::io::Write;
use std::sync::Barrier;
use std::time::Instant;

use crate::{Op, RunError, Script};
use anyhow::ensure;
use coalesce_alloc::driver::calls::CallKind;
use coalesce_alloc::driver::sim::SimDevice;
use coalesce_alloc::driver::{DeviceAddr, StreamId};
use coalesce_alloc::error::Error;
use coalesce_alloc::{PyTorch, Shared};
use cpu_time::ThreadTime;
use statrs::statistics::{Data, Max, Min, OrderStatistics};

type Allocator = PyTorch<SimDevice>;

/// Options of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct BenchOptions {
    /// Timed runs, after one to warm up.
    pub runs: usize,
    /// Walks over the script in each run.
    pub walks: usize,
    /// Threads that walk the whole script at the same time, each on its own streams.
    pub threads: usize,
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
            self.runs > 0 && self.walks > 0,
            "--bench and --inner need at least 1"
        );
        ensure!((1..=64).contains(&self.threads), "--threads needs 1 to 64");
        ensure!(
            !self.unlocked || self.threads == 1,
            "--unlocked needs a single thread"
        );
        Ok(())
    }
}

/// The times of a run.
#[derive(Default)]
struct RunTimes {
    wall_ns: f64,
    cpu_ns: f64,
    tally: Tally,
}

/// Requests of a run, and failed requests among them.
#[derive(Clone, Copy, Default)]
struct Tally {
    allocations: u64,
    ooms: u64,
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
        let run = if options.threads > 1 {
            walker.run_threads(&allocator, options.threads)?
        } else if options.unlocked {
            walker.run(&mut *allocator.lock())?
        } else {
            walker.run(&allocator)?
        };
        let after = Counters::of(&allocator.lock());
        allocator.lock().driver_mut().streams_mut().complete_all();
        let per_pair = |ns: f64| ns / run.tally.allocations.max(1) as f64;
        let empty = per_pair(walker.run_without_allocator());
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

/// A timed operation. Small, so that walking the script costs little.
#[derive(Clone, Copy)]
enum Step {
    Malloc { id: u32, stream: u16, bytes: u64 },
    Free { id: u32 },
    RecordStream { id: u32, stream: u16 },
    HoldEvents(bool),
    CompleteEvents { stream: u16, count: u64 },
    CompleteAllEvents,
    EmptyCache,
    SetMemoryFraction(f64),
}

impl Step {
    /// The operations of a script, without printing and rare ones.
    fn timed(script: &Script) -> Vec<Self> {
        script.ops().iter().filter_map(Self::of).collect()
    }

    /// An operation, unless it is not timed.
    fn of(op: &Op) -> Option<Self> {
        // Streams beyond the first 65,536 share their places.
        let short = |stream: u32| stream as u16;
        match *op {
            Op::Malloc { id, bytes, stream } => Some(Self::Malloc {
                id,
                stream: short(stream),
                bytes,
            }),
            Op::Free { id } => Some(Self::Free { id }),
            Op::RecordStream { id, stream } => Some(Self::RecordStream {
                id,
                stream: short(stream),
            }),
            Op::HoldEvents(hold) => Some(Self::HoldEvents(hold)),
            Op::CompleteEvents { stream, count } => Some(match stream {
                Some(stream) => Self::CompleteEvents {
                    stream: short(stream),
                    count,
                },
                None => Self::CompleteAllEvents,
            }),
            Op::EmptyCache => Some(Self::EmptyCache),
            Op::SetMemoryFraction(fraction) => Some(Self::SetMemoryFraction(fraction)),
            _ => None,
        }
    }
}

/// Access to the allocator for one step.
trait Access {
    fn with<R>(&mut self, call: impl FnOnce(&mut Allocator) -> R) -> R;
}

/// An allocator of one thread.
impl Access for &mut Allocator {
    fn with<R>(&mut self, call: impl FnOnce(&mut Allocator) -> R) -> R {
        call(self)
    }
}

/// An allocator behind a lock, which each step takes.
impl Access for &Shared<Allocator> {
    fn with<R>(&mut self, call: impl FnOnce(&mut Allocator) -> R) -> R {
        call(&mut self.lock())
    }
}

/// Replays a script.
#[derive(Clone, Copy)]
struct Walker<'a> {
    script: &'a Script,
    steps: &'a [Step],
    walks: usize,
}

/// The address of each id; null if it is not live.
type Live = Vec<DeviceAddr>;

impl Walker<'_> {
    /// Walks the script on one thread.
    fn run(self, mut allocator: impl Access) -> anyhow::Result<RunTimes> {
        let mut live = self.nothing_live();
        let (started, cpu) = (Instant::now(), ThreadTime::try_now()?);
        let tally = self.walk(0, &mut live, &mut allocator)?;
        let run = RunTimes {
            wall_ns: started.elapsed().as_nanos() as f64,
            cpu_ns: cpu.try_elapsed()?.as_nanos() as f64,
            tally,
        };
        allocator.with(|allocator| free_all(allocator, &live))?;
        Ok(run)
    }

    /// Walks the script on several threads at once, on one allocator behind a lock. Thread i adds i to
    /// the script's streams. The clock starts before the first thread and stops after the last.
    fn run_threads(
        self,
        allocator: &Shared<Allocator>,
        threads: usize,
    ) -> anyhow::Result<RunTimes> {
        let start = Barrier::new(threads + 1);
        let work = |offset: u16| -> anyhow::Result<(f64, Tally, Live)> {
            let mut live = self.nothing_live();
            start.wait();
            let cpu = ThreadTime::try_now()?;
            let tally = self.walk(offset, &mut live, &mut &*allocator)?;
            Ok((cpu.try_elapsed()?.as_nanos() as f64, tally, live))
        };
        let (elapsed, results) = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads as u16)
                .map(|offset| scope.spawn(move || work(offset)))
                .collect();
            let started = Instant::now();
            start.wait();
            let results: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
            (started.elapsed(), results)
        });
        let mut run = RunTimes {
            wall_ns: elapsed.as_nanos() as f64,
            ..RunTimes::default()
        };
        for result in results {
            let (cpu_ns, tally, live) = match result {
                Ok(result) => result?,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            run.cpu_ns += cpu_ns;
            run.tally.allocations += tally.allocations;
            run.tally.ooms += tally.ooms;
            free_all(&mut allocator.lock(), &live)?;
        }
        Ok(run)
    }

    /// Measures the walk without an allocator, in nanoseconds.
    fn run_without_allocator(self) -> f64 {
        let mut live = self.nothing_live();
        let started = Instant::now();
        for _ in 0..self.walks {
            for step in self.steps {
                match *black_box(step) {
                    Step::Malloc { id, bytes, .. } => live[id as usize] = DeviceAddr(bytes),
                    Step::Free { id } => live[id as usize] = DeviceAddr::NULL,
                    _ => {}
                }
            }
        }
        black_box(&live);
        started.elapsed().as_nanos() as f64
    }

    fn nothing_live(self) -> Live {
        vec![DeviceAddr::NULL; self.script.ids().len()]
    }

    /// Performs every step. A function of its own, so that profilers can tell it from the rest.
    #[inline(never)]
    fn walk(
        self,
        stream_offset: u16,
        live: &mut [DeviceAddr],
        access: &mut impl Access,
    ) -> anyhow::Result<Tally> {
        let mut tally = Tally::default();
        let stream = |number: u16| StreamId::nth(number.into());
        for _ in 0..self.walks {
            for (at, &step) in self.steps.iter().enumerate() {
                match step {
                    Step::Malloc {
                        id,
                        bytes,
                        stream: number,
                    } => {
                        let place = &mut live[id as usize];
                        if !place.is_null() {
                            return Err(self.already_live(at, id));
                        }
                        tally.allocations += 1;
                        let stream = stream(number.wrapping_add(stream_offset));
                        match access.with(|allocator| allocator.raw_malloc(bytes, stream)) {
                            Ok(addr) => *place = addr,
                            Err(error) if error.is_out_of_memory() => tally.ooms += 1,
                            Err(error) => return Err(error.into()),
                        }
                    }
                    Step::Free { id } => {
                        let addr = std::mem::take(&mut live[id as usize]);
                        access.with(|allocator| allocator.free(addr))?;
                    }
                    Step::RecordStream { id, stream: number } => {
                        let addr = live[id as usize];
                        access.with(|allocator| allocator.record_stream(addr, stream(number)))?;
                    }
                    Step::CompleteEvents {
                        stream: number,
                        count,
                    } => access.with(|allocator| {
                        let streams = allocator.driver_mut().streams_mut();
                        streams.complete(stream(number), count);
                    }),
                    Step::CompleteAllEvents => {
                        access.with(|allocator| {
                            allocator.driver_mut().streams_mut().complete_all();
                        });
                    }
                    Step::HoldEvents(hold) => {
                        access.with(|allocator| {
                            allocator.driver_mut().streams_mut().set_hold(hold);
                        });
                    }
                    Step::EmptyCache => access.with(Allocator::empty_cache)?,
                    Step::SetMemoryFraction(fraction) => {
                        access.with(|allocator| allocator.set_memory_fraction(fraction))?;
                    }
                }
            }
        }
        Ok(tally)
    }

    /// Step `at` allocates under the id of a live allocation.
    fn already_live(self, at: usize, id: u32) -> anyhow::Error {
        let ops = self.script.ops().iter().enumerate();
        let mut timed = ops.filter(|(_, op)| Step::of(op).is_some());
        let op = timed.nth(at).map_or(0, |(op, _)| op);
        let id = self.script.ids()[id as usize].clone();
        RunError::AlreadyLive { op, id }.into()
    }
}

fn free_all(allocator: &mut Allocator, live: &Live) -> Result<(), Error> {
    live.iter().try_for_each(|&addr| allocator.free(addr))
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
