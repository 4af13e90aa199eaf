//! Timing a malloc and its free with criterion.
//!
//! An iteration is a few walks through a workload. A sample is the [`Fastest`] time of its walks, divided by the time that a
//! plain allocator needs for the same requests, because that ratio changes less between runs than a time. Criterion compares
//! these ratios with those of the run before. It prints them as times: multiplied by what the plain allocator needs for a
//! malloc and its free on this machine when nothing disturbs it.
//!
//! Every walk must make all of its allocations and free them, so that a broken allocator cannot look fast.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{bail, ensure};
use coalesce_alloc::Allocator;
use coalesce_alloc::error::Error;
use coalesce_bench::timing::fastest::Fastest;
use coalesce_bench::timing::walk::Walk;
use criterion::measurement::{Measurement, ValueFormatter};
use criterion::{Criterion, SamplingMode, Throughput};

/// Smallest relative change that is flagged. It covers how much the ratio of an unchanged program differs between runs.
const NOISE: f64 = 0.2;

/// The beginning of the names of workloads with a threshold of their own. They never wait for memory, so another program on
/// the same core slows them more than the yardstick.
const HOT: (&str, f64) = ("hot_", 0.5);

/// Options with which criterion runs no benchmark, even if one matches.
const RUNNING_NONE: [&str; 3] = ["--list", "--ignored", "--load-baseline"];

/// How long criterion measures a benchmark, and how many mallocs an iteration has at least.
#[derive(Clone, Copy)]
pub struct Effort {
    pub warm_up: Duration,
    pub measurement: Duration,
    pub pairs: u64,
}

/// Benchmarks that time a malloc and its free.
pub struct Pairs {
    criterion: Criterion<Relative>,
    yardstick: Rc<Cell<Duration>>,
    pairs: u64,
    names: Vec<String>,
    /// Whether any of them ran.
    ran: bool,
}

impl Pairs {
    /// No benchmarks yet. The arguments of the program select them.
    pub fn new(effort: Effort) -> Self {
        let yardstick = Rc::default();
        let criterion = Criterion::default()
            .with_measurement(Relative(Rc::clone(&yardstick)))
            .sample_size(10)
            .nresamples(10_000)
            .without_plots()
            .warm_up_time(effort.warm_up)
            .measurement_time(effort.measurement)
            .noise_threshold(NOISE)
            .configure_from_args();
        Self {
            criterion,
            yardstick,
            pairs: effort.pairs,
            names: Vec::new(),
            ran: false,
        }
    }

    /// Times an allocator, whose memory stays cached between walks. `settle` waits until the device has completed a walk.
    /// Returns the nanoseconds for a malloc and its free in each sample; none if the arguments do not select the benchmark.
    ///
    /// # Errors
    /// If the allocator fails or loses count.
    pub fn time<A: Allocator + ?Sized>(
        &mut self,
        (workload, name): (&str, &str),
        walk: &Walk,
        allocator: &mut A,
        settle: impl Fn(&mut A) -> Result<(), Error>,
    ) -> anyhow::Result<Vec<f64>> {
        self.names.push(format!("{workload}/{name}"));
        let mut slots = walk.slots();
        let mut walk_once = |fastest: &mut Fastest<'_>, allocator: &mut A| {
            fastest.run(allocator, &mut slots, &settle)
        };
        walk_once(&mut Fastest::of(walk), allocator)?;
        let ns = |time: Duration| time.as_secs_f64() * 1e9 / walk.pairs() as f64;
        let (mut walks, mut outcome, mut samples) = (1, Ok(()), Vec::new());
        let mut group = self.criterion.benchmark_group(workload);
        // An iteration takes long enough to be a sample.
        group.sampling_mode(SamplingMode::Flat);
        if workload.starts_with(HOT.0) && !is_given("--noise-threshold") {
            group.noise_threshold(HOT.1);
        }
        self.yardstick.set(Duration::MAX);
        let yardstick = &self.yardstick;
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|iterations| {
                let mut fastest = Fastest::of(walk);
                for _ in 0..iterations * self.pairs.div_ceil(walk.pairs()) {
                    walks += 1;
                    let walked = walk_once(&mut fastest, allocator);
                    if walked.is_err() {
                        outcome = walked;
                    }
                }
                samples.push(ns(fastest.total()));
                let for_pair = fastest.yardstick().div_f64(walk.pairs() as f64);
                yardstick.set(yardstick.get().min(for_pair));
                fastest.ratio() * iterations as f64
            });
        });
        group.finish();
        self.ran |= !samples.is_empty();
        outcome?;
        let count = allocator.stats().allocation.all();
        ensure!(
            (count.allocated as u64, count.current) == (walks * walk.pairs(), 0),
            "{workload}/{name}: {} mallocs in {walks} walks, {} blocks at their end",
            count.allocated,
            count.current
        );
        allocator.check()?;
        Ok(samples)
    }

    /// Checks that `cargo bench` ran at least one. `cargo test --benches` has filters that select tests.
    ///
    /// # Errors
    /// If no benchmark matches the arguments.
    pub fn check(&self, arguments: impl Iterator<Item = String>) -> anyhow::Result<()> {
        let (of_cargo, given): (Vec<_>, Vec<_>) = arguments.partition(|one| one == "--bench");
        let runs_none = |one: &String| RUNNING_NONE.iter().any(|option| one.starts_with(option));
        if self.ran || of_cargo.is_empty() || given.iter().any(runs_none) {
            return Ok(());
        }
        bail!(
            "no benchmark matches `{}`. There are:\n  {}",
            given.join(" "),
            self.names.join("\n  ")
        )
    }
}

/// Whether the command line has this option, so that it counts for all workloads.
fn is_given(option: &str) -> bool {
    std::env::args().any(|argument| argument.starts_with(option))
}

/// Times divided by those of the yardstick, and what the yardstick needs for a malloc and its free.
struct Relative(Rc<Cell<Duration>>);

impl Measurement for Relative {
    type Intermediate = ();
    type Value = f64;

    fn start(&self) -> Self::Intermediate {}

    fn end(&self, (): Self::Intermediate) -> Self::Value {
        unreachable!("every benchmark calls iter_custom")
    }

    fn add(&self, one: &Self::Value, other: &Self::Value) -> Self::Value {
        one + other
    }

    fn zero(&self) -> Self::Value {
        0.0
    }

    fn to_f64(&self, value: &Self::Value) -> f64 {
        *value
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        self
    }
}

impl ValueFormatter for Relative {
    fn scale_values(&self, _: f64, values: &mut [f64]) -> &'static str {
        let ns = self.0.get().as_secs_f64() * 1e9;
        values.iter_mut().for_each(|value| *value *= ns);
        "ns"
    }

    fn scale_throughputs(&self, typical: f64, _: &Throughput, values: &mut [f64]) -> &'static str {
        self.scale_values(typical, values)
    }

    fn scale_for_machines(&self, _: &mut [f64]) -> &'static str {
        "ratio"
    }
}
