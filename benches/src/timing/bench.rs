//! Every policy on a device: how long its calls take, and what it holds beside what the device says.
//!
//! On a GPU the driver's calls are real, and nothing but them runs there: no kernels, so no work is pending
//! when memory is freed. A cell is a program, a policy and a setting; each has a device of its own, of which
//! nothing is taken, in a context that stays.

pub mod latency;
pub mod record;
pub mod text;

mod cell;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::bail;
use coalesce_alloc::driver::cuda::{CudaDevice, StreamHandles};
use coalesce_alloc::driver::sim::address::AddressPolicy;
use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::driver::{Driver, DriverError};
use coalesce_alloc::error::Error;
use coalesce_alloc::policy::POLICIES;
use coalesce_workloads::demand::Demand;
use coalesce_workloads::input::Input;
use coalesce_workloads::op::Workload;

use self::cell::{Measured, Subject};
use self::latency::{Latency, clock_ns};
use self::record::Row;
use crate::measure::capacity::ROOMY;
use crate::measure::cell::{self as cells, Cell};
use crate::measure::deadline::Deadline;
use crate::measure::profile::{PUBLISHED, Profile};
use crate::measure::progress::Progress;
use crate::timing::device::Device;
use crate::timing::shapes;
use crate::timing::walk::Walk;

/// What is measured.
pub struct Plan {
    /// Programs: shapes, or what [`Input::open`] finds. Empty: all shapes.
    pub programs: Vec<String>,
    /// Folder of recorded traces; by default that of the checkout.
    pub traces: Option<PathBuf>,
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
    let programs = match plan.programs.is_empty() {
        true => shapes::NAMES.map(str::to_owned).to_vec(),
        false => plan.programs.clone(),
    };
    let settings = settings(&plan.policies);
    let profile = Profile::load(PUBLISHED, "".as_ref())?;
    let clock_ns = clock_ns();
    let progress = Progress::new("cells", Some((programs.len() * settings.len()) as u64));
    let mut all = Measurements::default();
    for program in &programs {
        let workload = open(program, plan.traces.as_deref())?;
        let walk = Walk::prepare(&*workload)?;
        for &(policy, setting, conf) in &settings {
            let cell = Cell {
                workload: &*workload,
                demand: Demand::default(),
                policy,
                setting,
                conf,
                plan: None,
                others: 0,
                address_policy: AddressPolicy::default(),
                profile: &profile,
            };
            let measured = match plan.until.has_passed() {
                true => Ok((left_out("no time"), Vec::new())),
                false => measure(cell, &walk, plan.time, &device),
            };
            let measured = measured.or_else(|error| explain(&error, &device));
            let (row, latencies) = measured?;
            all.rows.push(Row {
                device: name.to_owned(),
                program: workload.name().to_owned(),
                policy: policy.to_owned(),
                setting: setting.to_owned(),
                conf: conf.to_owned(),
                clock_ns: row.pairs.map(|_| clock_ns),
                ..row
            });
            let of_cell = |latency| Latency {
                device: name.to_owned(),
                program: workload.name().to_owned(),
                policy: policy.to_owned(),
                setting: setting.to_owned(),
                ..latency
            };
            all.latencies.extend(latencies.into_iter().map(of_cell));
            progress.add(1, &format!("{program}, {policy}"));
        }
        keep(&all)?;
    }
    Ok(all)
}

/// Policies, names and settings to be measured; of all policies, if none is named.
fn settings(policies: &[String]) -> Vec<(&'static str, &'static str, &'static str)> {
    let is_wanted = |name: &str| policies.is_empty() || policies.iter().any(|one| one == name);
    let defaults = POLICIES.iter().map(|policy| (policy.name, "default", ""));
    let all = defaults.chain(FURTHER);
    all.filter(|&(policy, ..)| is_wanted(policy)).collect()
}

fn open(program: &str, traces: Option<&Path>) -> anyhow::Result<Box<dyn Workload>> {
    match shapes::find(program, traces)? {
        Some(shape) => Ok(shape),
        None => Ok(Input::open(program, None)?.workload),
    }
}

/// A cell on a new device, with what it plans ahead, if it does.
fn measure<D: Measured>(
    cell: Cell<'_>,
    walk: &Walk,
    time: Duration,
    device: impl Fn() -> anyhow::Result<D>,
) -> anyhow::Result<(Row, Vec<Latency>)> {
    let plan = cells::plan(cell.policy, cell.conf, cell.workload)?;
    let subject = Subject {
        cell: &Cell {
            plan: plan.as_ref(),
            ..cell
        },
        walk,
        device: device()?,
        time,
    };
    subject.measure()
}

/// The row of a cell that could not be measured, for a reason that is its own.
///
/// # Errors
/// If that is because the device is of no use any more.
fn explain<D: Driver>(
    error: &anyhow::Error,
    device: impl Fn() -> anyhow::Result<D>,
) -> anyhow::Result<(Row, Vec<Latency>)> {
    match cell::warm_up(&mut device()?) {
        Ok(()) | Err(DriverError::OutOfMemory) => {}
        Err(broken) => bail!("the device is broken: {broken}; before that: {error:#}"),
    }
    let is_short = error
        .chain()
        .any(|cause| matches!(cause.downcast_ref(), Some(Error::OutOfMemory(_))));
    let reason = match cells::what_is_unsupported(error) {
        Some(what) => format!("does not serve {what}"),
        None if is_short => "out of memory".to_owned(),
        None => format!("{error:#}"),
    };
    Ok((left_out(&reason), Vec::new()))
}

fn left_out(reason: &str) -> Row {
    Row {
        left_out: reason.to_owned(),
        ..Row::default()
    }
}
