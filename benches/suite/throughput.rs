//! Throughput of malloc and free, measured with criterion for each workload shape.
//!
//! By default the device is simulated and its calls take no time, so this measures the allocator alone. With
//! `COALESCE_DEVICE=cuda:0` or `auto` it runs on a GPU, and the benchmarks carry its name. An element is a malloc and its
//! free. Every walk must make all of its allocations and free them, so that a broken allocator cannot look fast.
//!
//! A sample is the [`Fastest`] time of several walks, divided by the time that a plain allocator needs for the same requests,
//! because that ratio changes less between runs than a time. The time itself is printed below. Criterion compares with the
//! run before and flags changes beyond [`NOISE`], or those in [`HOT`]. results/METHODOLOGY.md says how often an unchanged
//! program is flagged, and how to see smaller changes.

use std::time::Duration;

use anyhow::{Context, bail};
use coalesce_alloc::PyTorch;
use coalesce_alloc::driver::cuda::{CudaDevice, StreamHandles};
use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::driver::{Driver, DriverError};
use coalesce_alloc::error::Error;
use coalesce_alloc::settings::Settings;
use coalesce_bench::timing::device::{Device, DeviceName};
use coalesce_bench::timing::fastest::Fastest;
use coalesce_bench::timing::shapes;
use coalesce_bench::timing::walk::Walk;
use criterion::measurement::{Measurement, ValueFormatter};
use criterion::{Criterion, SamplingMode};

/// Mallocs in an iteration: enough walks to find each part of a walk undisturbed once. They take about 0.1 s.
const PAIRS: u64 = 300_000;

const SETTINGS: [(&str, &str); 2] = [("default", ""), ("expandable", "expandable_segments:True")];

/// Smallest relative change that is flagged. It covers how much the ratio of an unchanged program differs between runs.
const NOISE: f64 = 0.2;

/// The beginning of the names of shapes with a threshold of their own. They never wait for memory, so another program on the
/// same core slows them more than the yardstick.
const HOT: (&str, f64) = ("hot_", 0.5);

/// Options with which criterion runs no benchmark, even if one matches.
const RUNNING_NONE: [&str; 3] = ["--list", "--ignored", "--load-baseline"];

/// Runs the benchmarks that the arguments select.
///
/// # Errors
/// If a workload cannot be read, the device cannot be opened, or no benchmark matches.
pub fn main() -> anyhow::Result<()> {
    let criterion = || {
        Criterion::default()
            .with_measurement(Relative)
            .sample_size(10)
            .nresamples(10_000)
            .warm_up_time(Duration::from_millis(200))
            .noise_threshold(NOISE)
            .measurement_time(Duration::from_secs(2))
            .configure_from_args()
    };
    let benchmarks = throughput(&mut criterion())?;
    criterion().final_summary();
    benchmarks.check(std::env::args().skip(1))
}

/// The benchmarks there are.
#[derive(Default)]
struct Benchmarks {
    names: Vec<String>,
    /// Whether any of them ran.
    ran: bool,
}

impl Benchmarks {
    /// Checks that `cargo bench` ran at least one. `cargo test --benches` has filters that select tests.
    fn check(&self, arguments: impl Iterator<Item = String>) -> anyhow::Result<()> {
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

fn throughput(criterion: &mut Criterion<Relative>) -> anyhow::Result<Benchmarks> {
    match DeviceName::from_environment(DeviceName::Sim)?.open()? {
        Device::Sim(_) => {
            let device = || SimDevice::new(&SimConfig::with_capacity(1 << 40));
            shapes_on(criterion, "", device, |_| Ok(()))
        }
        // Keeps the CUDA context alive, so that its creation is not measured.
        Device::Cuda(open) => {
            let number = open.ordinal();
            let device = || {
                let device = CudaDevice::open(number, StreamHandles::Numbered);
                device.expect("the GPU is gone")
            };
            let on = format!("cuda:{number}/");
            shapes_on(criterion, &on, device, CudaDevice::synchronize_device)
        }
    }
}

/// Whether the command line has this option, so that it counts for all shapes.
fn is_given(option: &str) -> bool {
    std::env::args().any(|argument| argument.starts_with(option))
}

/// Measures all shapes under all settings, each on a new device. `settle` waits until the device has completed a walk.
fn shapes_on<D: Driver>(
    criterion: &mut Criterion<Relative>,
    on: &str,
    device: impl Fn() -> D,
    settle: impl Fn(&mut D) -> Result<(), DriverError>,
) -> anyhow::Result<Benchmarks> {
    let mut benchmarks = Benchmarks::default();
    for shape in shapes::NAMES {
        let workload = shapes::find(shape, None)?.context("NAMES are shapes")?;
        let walk = Walk::prepare(&*workload)?;
        let mut slots = walk.slots();
        let mut group = criterion.benchmark_group(shape);
        // An iteration takes long enough to be a sample.
        group.sampling_mode(SamplingMode::Flat);
        if shape.starts_with(HOT.0) && !is_given("--noise-threshold") {
            group.noise_threshold(HOT.1);
        }
        for (name, conf) in SETTINGS {
            let name = format!("{on}{name}");
            benchmarks.names.push(format!("{shape}/{name}"));
            let settings = Settings::from_conf(conf).expect("SETTINGS are valid");
            let mut allocator = PyTorch::new(device(), settings);
            let mut walk_once = |fastest: &mut Fastest<'_>, allocator: &mut PyTorch<D>| {
                fastest.run(allocator, &mut slots, |allocator| {
                    settle(allocator.driver_mut()).map_err(Error::from)
                })
            };
            let first = walk_once(&mut Fastest::of(&walk), &mut allocator);
            if let Err(Error::OutOfMemory(_)) = first {
                eprintln!("throughput: skipping {on}{shape}: out of memory");
                break;
            }
            let mut outcome = Ok(());
            let (mut walks, mut shortest) = (1, Duration::MAX);
            group.bench_function(name.as_str(), |bencher| {
                benchmarks.ran = true;
                bencher.iter_custom(|iterations| {
                    let mut fastest = Fastest::of(&walk);
                    for _ in 0..iterations * PAIRS.div_ceil(walk.pairs()) {
                        walks += 1;
                        let walked = walk_once(&mut fastest, &mut allocator);
                        if walked.is_err() {
                            outcome = walked;
                        }
                    }
                    shortest = shortest.min(fastest.total());
                    fastest.ratio() * iterations as f64
                });
            });
            if shortest < Duration::MAX {
                let ns = shortest.as_secs_f64() * 1e9 / walk.pairs() as f64;
                println!("{:24}wall:   {ns:.1} ns for a malloc and its free", "");
            }
            assert_eq!(outcome, Ok(()), "{shape}, {name}: a walk ended early");
            let stats = allocator.stats();
            assert_eq!(
                stats.allocation.all().allocated as u64,
                walks * walk.pairs()
            );
            assert_eq!(stats.allocation.all().current, 0, "blocks were not freed");
            assert_eq!(allocator.check(), Ok(()));
        }
        group.finish();
    }
    Ok(benchmarks)
}

/// Times divided by those of the yardstick.
struct Relative;

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
    fn scale_values(&self, _: f64, _: &mut [f64]) -> &'static str {
        "x yardstick"
    }

    fn scale_throughputs(
        &self,
        typical: f64,
        _: &criterion::Throughput,
        values: &mut [f64],
    ) -> &'static str {
        self.scale_values(typical, values)
    }

    fn scale_for_machines(&self, _: &mut [f64]) -> &'static str {
        "ratio"
    }
}
