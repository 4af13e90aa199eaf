//! Measures every policy on a device: the time of its calls, and its memory by its own count and by the device's.
//!
//! By default only driver calls run, no kernels, so no work is pending when memory is freed. A cell is a workload, a policy
//! and a setting. Each cell gets an unused device, in a context that stays open.

pub mod latency;
pub mod record;
pub mod text;

mod cell;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::bail;
use coalesce_alloc::Kernels;
use coalesce_alloc::driver::cuda::{CudaDevice, StreamHandles};
use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::driver::{Driver, DriverError};
use coalesce_alloc::error::Error;
use coalesce_alloc::registry::POLICIES;
use coalesce_workloads::formats::source::Source;
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
use crate::timing::on_gpu::warm_up;
use crate::timing::shapes;
use crate::timing::walk::Walk;

/// What to measure.
pub struct Plan {
    /// Workloads: shapes, or what [`Input::open`] accepts. Empty: all shapes.
    pub workloads: Vec<String>,
    /// Folder of recorded traces; by default that of the checkout.
    pub traces: Option<PathBuf>,
    /// Names of policies. Empty: all.
    pub policies: Vec<String>,
    /// The kernels to run between requests, if any.
    pub kernels: Option<Kernels>,
    /// Time for each cell. The last call of each phase may exceed it.
    pub time: Duration,
    /// When to start no further cell.
    pub until: Deadline,
}

/// The results.
#[derive(Default)]
pub struct Measurements {
    /// A row for each cell.
    pub rows: Vec<Row>,
    /// Latencies of two phases and two calls for each cell, as far as time allowed.
    pub latencies: Vec<Latency>,
}

/// Settings to measure besides the defaults: policy, name, settings.
const FURTHER: [(&str, &str, &str); 2] = [
    ("pytorch", "expandable", "expandable_segments:True"),
    ("cuda_async", "threshold_0", "release_threshold:0"),
];

/// Measures all cells, and passes the results to `keep` after each workload. A failing cell becomes a row with the
/// reason.
///
/// # Errors
/// If a workload cannot be read, the device is broken, or `keep` fails.
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
            // Keeps the CUDA context alive.
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
    let programs = if plan.workloads.is_empty() {
        shapes::NAMES.map(str::to_owned).to_vec()
    } else {
        plan.workloads.clone()
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
                policy,
                setting,
                conf,
                ..Cell::new(&*workload, &profile)
            };
            let measured = if plan.until.has_passed() {
                Ok((left_out("no time"), Vec::new()))
            } else {
                measure(cell, &walk, plan, &device)
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

/// Policies, setting names and settings to measure; all policies if none is named.
fn settings(policies: &[String]) -> Vec<(&'static str, &'static str, &'static str)> {
    let is_wanted = |name: &str| policies.is_empty() || policies.iter().any(|one| one == name);
    let defaults = POLICIES.iter().map(|policy| (policy.name, "default", ""));
    let all = defaults.chain(FURTHER);
    all.filter(|&(policy, ..)| is_wanted(policy)).collect()
}

fn open(program: &str, traces: Option<&Path>) -> anyhow::Result<Box<dyn Workload>> {
    match shapes::find(program, traces)? {
        Some(shape) => Ok(shape),
        None => Ok(Input::open(&Source::named(program), None)?.workload),
    }
}

/// Measures a cell on a new device. Offline policies plan first.
fn measure<D: Measured>(
    cell: Cell<'_>,
    walk: &Walk,
    of: &Plan,
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
        kernels: of.kernels,
        time: of.time,
    };
    subject.measure()
}

/// The row of a cell that could not be measured.
///
/// # Errors
/// If the device is broken.
fn explain<D: Driver>(
    error: &anyhow::Error,
    device: impl Fn() -> anyhow::Result<D>,
) -> anyhow::Result<(Row, Vec<Latency>)> {
    match warm_up(&mut device()?) {
        Ok(()) | Err(DriverError::OutOfMemory) => {}
        Err(broken) => bail!("the device is broken: {broken}; the error before: {error:#}"),
    }
    let is_short = error
        .chain()
        .any(|cause| matches!(cause.downcast_ref(), Some(Error::OutOfMemory(_))));
    let reason = match cells::unsupported_feature(error) {
        Some(feature) => format!("does not serve {feature}"),
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

#[cfg(test)]
mod tests {
    use coalesce_alloc::driver::calls::CallKind;
    use coalesce_alloc::driver::tap::{Hook, Tap};

    use super::*;

    #[test]
    fn some_policies_are_also_measured_with_other_settings() {
        let named = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            settings(&names)
        };
        let of_pool = [
            ("cuda_async", "default", ""),
            ("cuda_async", "threshold_0", "release_threshold:0"),
        ];
        assert_eq!(named(&["cuda_async"]), of_pool);
        let both = [
            ("pytorch", "default", ""),
            ("bfc", "default", ""),
            ("pytorch", "expandable", "expandable_segments:True"),
        ];
        assert_eq!(named(&["bfc", "pytorch"]), both);
        assert_eq!(named(&[]).len(), POLICIES.len() + 2);
    }

    fn plan(limit: Option<Duration>) -> Plan {
        Plan {
            workloads: ["hot_4KiB", "hot_4MiB"].map(str::to_owned).to_vec(),
            traces: None,
            policies: ["bfc", "tlsf"].map(str::to_owned).to_vec(),
            kernels: None,
            time: Duration::ZERO,
            until: Deadline::after(limit),
        }
    }

    /// Without time for a cell, its first walk ends after the first pair.
    #[test]
    fn each_workload_is_kept_when_all_of_its_cells_are_measured() {
        let mut kept = Vec::new();
        let keep = |all: &Measurements| {
            kept.push((all.rows.len(), all.latencies.len()));
            Ok(())
        };
        let all = run(Device::Sim(None), &plan(None), keep).unwrap();
        assert_eq!(kept, [(2, 2), (4, 4)]);
        let rows = all.rows.iter().map(|row| {
            assert!(row.clock_ns.is_some() && row.left_out.is_empty());
            let names = [
                &*row.device,
                &row.program,
                &row.policy,
                &row.setting,
                &row.conf,
            ];
            format!("{} {:?}/{:?}", names.join(" "), row.walked, row.pairs)
        });
        let of_latencies = all.latencies.iter().map(|it| {
            let names = [
                &*it.device,
                &it.program,
                &it.policy,
                &it.setting,
                it.walks,
                it.call,
            ];
            format!("{} {}", names.join(" "), it.count)
        });
        insta::assert_snapshot!(rows.chain(of_latencies).collect::<Vec<_>>().join("\n"));
    }

    #[test]
    fn no_cell_begins_when_time_is_over_and_results_must_be_kept() {
        let over = plan(Some(Duration::ZERO));
        let all = run(Device::Sim(None), &over, |_| Ok(())).unwrap();
        assert!(
            all.rows
                .iter()
                .all(|row| row.left_out == "no time" && row.clock_ns.is_none())
        );
        assert_eq!((all.rows.len(), all.latencies.len()), (4, 0));
        let failed = run(Device::Sim(None), &over, |_| bail!("the disk is full"));
        let found = failed.map(|_| ()).unwrap_err().to_string();
        assert_eq!(found, "the disk is full");
    }

    /// Fails every request for memory.
    struct Broken(DriverError);

    impl Hook for Broken {
        fn before(&mut self, kind: CallKind, _: u64) -> Result<(), DriverError> {
            if kind == CallKind::Malloc {
                return Err(self.0.clone());
            }
            Ok(())
        }
    }

    #[test]
    fn a_cell_that_fails_says_why_unless_the_device_is_broken() {
        let reason = |error: anyhow::Error, broken: Option<DriverError>| {
            let sim = || SimDevice::new(&SimConfig::with_capacity(ROOMY));
            let explained = match broken {
                Some(broken) => explain(&error, || Ok(Tap::over(sim(), Broken(broken.clone())))),
                None => explain(&error, || Ok(sim())),
            };
            explained
                .map(|(row, _)| row.left_out)
                .map_err(|error| error.to_string())
        };
        let other = || anyhow::anyhow!("something").context("while measuring");
        let unsupported = Error::Unsupported {
            policy: "bfc",
            what: "graphs",
        };
        let device = SimDevice::new(&SimConfig::with_capacity(2 << 20));
        let mut allocator = coalesce_alloc::registry::build("direct", device, "").unwrap();
        let short = allocator.malloc(3 << 20, coalesce_alloc::driver::StreamId::DEFAULT);
        let of = |error: Error| anyhow::Error::from(error).context("while measuring");
        let (full, broken) = (DriverError::OutOfMemory, DriverError::InvalidValue);
        for (error, device, expected) in [
            (other(), None, Ok("while measuring: something")),
            (other(), Some(full), Ok("while measuring: something")),
            (of(unsupported), None, Ok("does not serve graphs")),
            (of(short.unwrap_err()), None, Ok("out of memory")),
            (
                other(),
                Some(broken),
                Err(
                    "the device is broken: invalid argument; the error before: while measuring: something",
                ),
            ),
        ] {
            let expected = expected.map(str::to_owned).map_err(str::to_owned);
            assert_eq!(reason(error, device), expected);
        }
    }
}
