//! Every policy on a device: how long its calls take, and what it holds beside what the device says.
//!
//! On a GPU the driver's calls are real, and nothing but them runs there: no kernels, so no work is pending
//! when memory is freed. A cell is a program, a policy and a setting; each has a device of its own, of which
//! nothing is taken, in a context that stays.

pub mod latency;
pub mod record;

mod cell;

use std::fmt::Write as _;
use std::time::Duration;

use allocator::driver::cuda::{CudaDevice, StreamHandles};
use allocator::driver::sim::address::AddressPolicy;
use allocator::driver::sim::{SimConfig, SimDevice};
use allocator::driver::{Driver, DriverError};
use allocator::error::Error;
use allocator::policy::POLICIES;
use anyhow::{bail, ensure};
use workloads::demand::Demand;
use workloads::op::Workload;

use self::cell::{Measured, Subject};
use self::latency::{Latency, clock_ns};
use self::record::Row;
use crate::capacity::ROOMY;
use crate::cell::{self as cells, Cell};
use crate::deadline::Deadline;
use crate::device::Device;
use crate::input;
use crate::profile::{PUBLISHED, Profile};
use crate::progress::Progress;
use crate::shapes;
use crate::walk::Walk;

/// What is measured.
pub struct Plan {
    /// Programs: shapes, or what [`input::open`] finds. Empty: all shapes.
    pub programs: Vec<String>,
    /// Policies by name. Empty: all.
    pub policies: Vec<String>,
    /// Time for each cell; the last call of each of its parts may take longer.
    pub time: Duration,
    /// When no further cell is begun.
    pub until: Deadline,
}

/// What came of it.
#[derive(Default)]
pub struct Measurements {
    /// A row for each cell.
    pub rows: Vec<Row>,
    /// Two walks and two calls for each cell, as far as there was time.
    pub latencies: Vec<Latency>,
}

/// Settings that are another way to use the device, beside the default ones: policy, name, settings.
const FURTHER: [(&str, &str, &str); 2] = [
    ("pytorch", "expandable", "expandable_segments:True"),
    ("cuda_async", "threshold_0", "release_threshold:0"),
];

/// Measures all cells, and lets `keep` see what there is after each program. A cell that fails is a row that
/// says why.
///
/// # Errors
/// If a program cannot be read, the device is of no use any more, or `keep` fails.
pub fn run(
    device: Device,
    plan: &Plan,
    keep: impl FnMut(&Measurements) -> anyhow::Result<()>,
) -> anyhow::Result<Measurements> {
    match device {
        Device::Sim(_) => run_on("sim", plan, keep, || {
            Ok(SimDevice::new(&SimConfig::with_capacity(ROOMY)))
        }),
        Device::Cuda(open) => {
            // It stays open, so that the context does.
            let number = open.ordinal();
            let name = format!("cuda:{number}");
            run_on(&name, plan, keep, || {
                Ok(CudaDevice::open(number, StreamHandles::Numbered)?)
            })
        }
    }
}

fn run_on<D: Measured>(
    name: &str,
    plan: &Plan,
    mut keep: impl FnMut(&Measurements) -> anyhow::Result<()>,
    device: impl Fn() -> anyhow::Result<D>,
) -> anyhow::Result<Measurements> {
    let shapes = || shapes::NAMES.map(str::to_owned).to_vec();
    let programs = match plan.programs.is_empty() {
        true => shapes(),
        false => plan.programs.clone(),
    };
    let is_wanted =
        |policy: &str| plan.policies.is_empty() || plan.policies.iter().any(|name| name == policy);
    let settings: Vec<(&str, &str, &str)> = POLICIES
        .iter()
        .map(|policy| (policy.name, "default", ""))
        .chain(FURTHER)
        .filter(|&(policy, ..)| is_wanted(policy))
        .collect();
    let profile = Profile::load(PUBLISHED, "".as_ref())?;
    let clock_ns = clock_ns();
    let progress = Progress::new("cells", Some((programs.len() * settings.len()) as u64));
    let mut all = Measurements::default();
    for program in &programs {
        let workload = open(program)?;
        let workload = &*workload;
        let walk = Walk::prepare(workload)?;
        for &(policy, setting, conf) in &settings {
            let measured = (|| {
                ensure!(!plan.until.has_passed(), "no time");
                let prepared = cells::plan(policy, conf, workload)?;
                let cell = Cell {
                    workload,
                    demand: Demand::default(),
                    policy,
                    setting,
                    conf,
                    plan: prepared.as_ref(),
                    others: 0,
                    address_policy: AddressPolicy::default(),
                    profile: &profile,
                };
                let subject = Subject {
                    cell: &cell,
                    walk: &walk,
                    device: device()?,
                    time: plan.time,
                };
                subject.measure()
            })();
            let (row, latencies) = measured.or_else(|error| left_out(&error, &device))?;
            all.rows.push(Row {
                device: name.to_owned(),
                program: workload.name().to_owned(),
                policy: policy.to_owned(),
                setting: setting.to_owned(),
                conf: conf.to_owned(),
                clock_ns: row.pairs.map(|_| clock_ns),
                ..row
            });
            all.latencies
                .extend(latencies.into_iter().map(|latency| Latency {
                    device: name.to_owned(),
                    program: workload.name().to_owned(),
                    policy: policy.to_owned(),
                    setting: setting.to_owned(),
                    ..latency
                }));
            progress.add(1, &format!("{program}, {policy}"));
        }
        keep(&all)?;
    }
    Ok(all)
}

fn open(program: &str) -> anyhow::Result<Box<dyn Workload>> {
    match shapes::find(program)? {
        Some(shape) => Ok(shape),
        None => Ok(input::open(program, None)?.workload),
    }
}

/// The row of a cell that could not be measured.
///
/// # Errors
/// If that is because the device is of no use any more.
fn left_out<D: Driver>(
    error: &anyhow::Error,
    device: &impl Fn() -> anyhow::Result<D>,
) -> anyhow::Result<(Row, Vec<Latency>)> {
    match cell::warm_up(&mut device()?) {
        Ok(()) | Err(DriverError::OutOfMemory) => {}
        Err(broken) => bail!("the device is broken: {broken}; before that: {error:#}"),
    }
    let is_short = error
        .chain()
        .any(|cause| matches!(cause.downcast_ref(), Some(Error::OutOfMemory(_))));
    let left_out = match cells::what_is_unsupported(error) {
        Some(what) => format!("does not serve {what}"),
        None if is_short => "out of memory".to_owned(),
        None => format!("{error:#}"),
    };
    let row = Row {
        left_out,
        ..Row::default()
    };
    Ok((row, Vec::new()))
}

/// What is printed: for each cell one line.
#[must_use]
pub fn text(all: &Measurements) -> String {
    let mut text = String::new();
    let mut program = "";
    for row in &all.rows {
        if row.program != program {
            program = &row.program;
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "\n{program} on {}\n{:<32}{:>10}  {:>38}  {:>38}  {:>24}",
                row.device,
                "",
                "ns/pair",
                "malloc ns: p50, p99, p99.9, max",
                "free ns: p50, p99, p99.9, max",
                "held, device's MiB"
            );
        }
        let name = match &*row.setting {
            "default" => row.policy.clone(),
            setting => format!("{}, {setting}", row.policy),
        };
        if !row.left_out.is_empty() {
            let _ = writeln!(text, "{name:<32}  {}", row.left_out);
            continue;
        }
        let pair = row
            .ns_per_pair
            .map_or("-".to_owned(), |ns| format!("{ns:.0}"));
        let mib = |bytes: Option<u64>| bytes.unwrap_or(0) as f64 / (1 << 20) as f64;
        let _ = writeln!(
            text,
            "{name:<32}{pair:>10}  {:>38}  {:>38}  {:>11.1} {:>12.1}",
            steady(all, row, "malloc"),
            steady(all, row, "free"),
            mib(row.peak_reserved_bytes),
            mib(row.peak_device_bytes)
        );
    }
    text
}

/// The latencies of a call when the memory is there; of the first walk, if there was no time for more.
fn steady(all: &Measurements, row: &Row, call: &str) -> String {
    let mut of_row = all.latencies.iter().filter(|latency| {
        (&latency.program, &latency.policy, &latency.setting)
            == (&row.program, &row.policy, &row.setting)
            && latency.call == call
    });
    of_row.next_back().map_or_else(String::new, |latency| {
        let Latency {
            p50_ns,
            p99_ns,
            p999_ns,
            max_ns,
            ..
        } = latency;
        format!("{p50_ns} {p99_ns} {p999_ns} {max_ns}")
    })
}
