//! One measurement: a workload under a policy and its settings on a device.

use std::sync::Arc;

use anyhow::{Context, bail};
use coalesce_alloc::driver::Driver;
use coalesce_alloc::driver::calls::{CallCounts, CallKind};
use coalesce_alloc::driver::hooks::Instruments;
use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::driver::tap::Tap;
use coalesce_alloc::error::Error;
use coalesce_alloc::printable::printable;
use coalesce_alloc::registry::{self, OfflinePlan};
use coalesce_alloc::release::Release;
use coalesce_alloc::scheduled::{Schedule, Scheduled};
use coalesce_alloc::settings::Settings;
use coalesce_alloc::{Allocator, PyTorch};
use coalesce_plugin::Library;
use coalesce_workloads::conditions::ReplayConditions;
use coalesce_workloads::demand::Demand;
use coalesce_workloads::families::batch_probe::LargestBatch;
use coalesce_workloads::late::{LateCount, StepCount, counted};
use coalesce_workloads::lifetimes;
use coalesce_workloads::limited::Limited;
use coalesce_workloads::measure::{AtPeak, Measures};
use coalesce_workloads::op::{Op, Workload, WorkloadError};
use coalesce_workloads::replay::{Observer, Tally, replay_with};
use coalesce_workloads::surroundings::Surroundings;

use crate::measure::capacity::{Capacity, ROOMY};
use crate::measure::profile::Profile;
pub use crate::measure::record::REFERENCE;
use crate::measure::record::{Row, six_digits};

/// A measurement to make.
#[derive(Clone, Copy)]
pub struct Cell<'a> {
    /// The workload.
    pub workload: &'a dyn Workload,
    /// Its demand: the peak requested.
    pub demand: Demand,
    /// The policy's name; of a library, `plugin:PATH`.
    pub policy: &'a str,
    /// The setting's name in the row.
    pub setting: &'a str,
    /// The settings string; of the reference, in the format of `PYTORCH_CUDA_ALLOC_CONF`.
    pub conf: &'a str,
    /// The plan for the workload, if the policy is offline.
    pub plan: Option<&'a OfflinePlan>,
    /// The release and the device. The reference compares the limit with whole segments; a limit on the device's memory
    /// would be more generous. Other policies have no such limit: they run on a device of that size. A limit that the
    /// workload sets is never above it.
    pub conditions: ReplayConditions,
    /// Costs of driver calls.
    pub profile: &'a Profile,
    /// What the program does to the reference at given requests besides, if anything.
    pub schedule: Option<&'a Arc<Schedule>>,
}

/// The plan of an offline policy for a workload, which is read for it; `None` for all other policies.
///
/// # Errors
/// If the settings are invalid or the workload cannot be read.
pub fn plan(
    policy: &str,
    conf: &str,
    workload: &dyn Workload,
) -> anyhow::Result<Option<OfflinePlan>> {
    let mut policies = registry::POLICIES.iter();
    if !policies.any(|known| known.name == policy && known.offline) {
        return Ok(None);
    }
    let known = lifetimes::of(workload)?;
    Ok(registry::plan_offline(policy, conf, &known)?)
}

/// A completed run.
pub struct Run<A = Box<dyn Allocator<Driver = SimDevice>>> {
    /// The allocator in its final state.
    pub allocator: A,
    /// Counts of replayed operations and failures.
    pub tally: Tally,
}

impl<'a> Cell<'a> {
    /// The reference with default settings, on a [roomy](ROOMY) device. The demand is left at zero.
    #[must_use]
    pub fn new(workload: &'a dyn Workload, profile: &'a Profile) -> Self {
        Self {
            workload,
            demand: Demand::default(),
            policy: REFERENCE,
            setting: "default",
            conf: "",
            plan: None,
            conditions: ReplayConditions::on(ROOMY),
            profile,
            schedule: None,
        }
    }

    /// The same cell on a device of `capacity` bytes.
    #[must_use]
    pub fn on(self, capacity: u64) -> Self {
        let conditions = ReplayConditions {
            capacity,
            ..self.conditions
        };
        Self { conditions, ..self }
    }
}

impl Cell<'_> {
    /// Replays the workload on a simulated device, and checks the invariants of the allocator, so that a broken allocator
    /// cannot look good.
    ///
    /// # Errors
    /// If the policy is unknown, the settings are invalid, the workload cannot be read, the allocator fails for a reason
    /// other than out of memory or violates an invariant, or the observer stops the replay.
    pub fn run(&self, observer: &mut dyn Observer) -> anyhow::Result<Run> {
        self.run_with(self.allocator()?, observer)
    }

    /// [`Cell::run`] with an existing allocator.
    ///
    /// # Errors
    /// As [`Cell::run`].
    pub fn run_with<A: Allocator>(
        &self,
        allocator: A,
        observer: &mut dyn Observer,
    ) -> anyhow::Result<Run<A>>
    where
        A::Driver: Surroundings,
    {
        self.run_watched(allocator, observer, &mut |_, _| {})
    }

    /// [`Cell::run_with`], and shows `watch` each operation and the allocator after it.
    fn run_watched<A: Allocator>(
        &self,
        mut allocator: A,
        observer: &mut dyn Observer,
        watch: &mut dyn FnMut(Op<'_>, &A),
    ) -> anyhow::Result<Run<A>>
    where
        A::Driver: Surroundings,
    {
        let name = printable(self.workload.name());
        let setting = printable(self.setting);
        let limited = Limited {
            workload: self.workload,
            limit: self.conditions.limit,
        };
        let tally = match replay_with(&limited, &mut allocator, observer, watch) {
            Ok(tally) => tally,
            // The message contains the file and the line.
            Err(error @ WorkloadError::Source(_)) => return Err(error.into()),
            Err(error) => {
                return Err(error).with_context(|| format!("{name}, {setting}"));
            }
        };
        allocator
            .check()
            .with_context(|| format!("{name}, {setting}: the allocator is broken"))?;
        Ok(Run { allocator, tally })
    }

    /// A new allocator on a new simulated device. If the workload has a [start](Workload::start), the reference holds that
    /// memory, unless the settings rule it out.
    ///
    /// # Errors
    /// If the policy is unknown, the settings are invalid, the policy is offline and `plan` is missing, or a library
    /// does not start.
    pub fn allocator(&self) -> anyhow::Result<Box<dyn Allocator<Driver = SimDevice>>> {
        let ReplayConditions {
            release,
            capacity,
            others,
            limit,
            addresses,
        } = self.conditions;
        let capacity = match limit.filter(|_| self.policy != REFERENCE) {
            Some(limit) => capacity.min(limit.saturating_add(others)),
            None => capacity,
        };
        let config = SimConfig {
            foreign: others,
            addresses,
            costs: self.profile.costs.clone(),
            ..SimConfig::with_capacity(capacity)
        };
        if let Some(library) = Library::named(self.policy)? {
            return Ok(coalesce_plugin::build(&library, &config, self.conf)?);
        }
        // Other policies cannot begin with segments of the reference.
        if self.policy == REFERENCE
            && let Some(start) = self.workload.start()
            && let Ok(settings) = Settings::of_release(release).started_with(self.conf)
            && let Some(mut allocator) = start.restore(&config, &settings, limit)
        {
            if limit.is_some() {
                allocator.set_memory_limit(limit);
            }
            return Ok(self.scheduled(allocator));
        }
        self.allocator_on(SimDevice::new(&config))
    }

    /// A new allocator on an unused device.
    ///
    /// # Errors
    /// As [`Cell::allocator`].
    pub fn allocator_on<D: Driver + 'static>(
        &self,
        device: D,
    ) -> anyhow::Result<Box<dyn Allocator<Driver = D>>> {
        if let Some(plan) = self.plan {
            return Ok(plan.build(device));
        }
        if Library::named(self.policy)?.is_some() {
            bail!(
                "{}: a library runs over the simulated device only",
                self.policy
            );
        }
        if self.policy != REFERENCE {
            return Ok(registry::build(self.policy, device, self.conf)?);
        }
        let settings = Settings::of_release(self.conditions.release)
            .started_with(self.conf)
            .with_context(|| format!("PYTORCH_CUDA_ALLOC_CONF '{}'", self.conf))?;
        let mut allocator = PyTorch::new(device, settings);
        if self.conditions.limit.is_some() {
            allocator.set_memory_limit(self.conditions.limit);
        }
        Ok(self.scheduled(allocator))
    }

    /// The reference in a program that follows the schedule. The first requests get the blocks that it begins with.
    fn scheduled<D: Driver + 'static>(
        &self,
        allocator: PyTorch<D>,
    ) -> Box<dyn Allocator<Driver = D>> {
        let Some(schedule) = self.schedule else {
            return Box::new(allocator);
        };
        let live = allocator.stats().allocation.all().current;
        let schedule = Arc::clone(schedule);
        Box::new(Scheduled::new(allocator, schedule, live.unsigned_abs()))
    }

    /// The row of a cell that cannot be measured because the policy does not support `feature`.
    #[must_use]
    pub fn unsupported(&self, feature: &str) -> Row {
        Row {
            unsupported: feature.to_owned(),
            ..self.described()
        }
    }

    /// A row with what is known before the cell is measured.
    fn described(&self) -> Row {
        Row {
            workload: self.workload.name().to_owned(),
            policy: self.policy.to_owned(),
            setting: self.setting.to_owned(),
            conf: self.conf.to_owned(),
            address_policy: self.conditions.addresses.name().to_owned(),
            torch: torch_column(self.policy, self.conditions.release),
            lower_bound_bytes: self.demand.lower_bound_bytes,
            streams: Some(self.demand.streams),
            pools: Some(self.demand.pools),
            lower_bound_with_pools_bytes: Some(self.demand.lower_bound_with_pools_bytes),
            profile: self.profile.name.clone(),
            ..Row::default()
        }
    }

    /// Runs and measures the cell. The row lacks the columns of sweeps and timings.
    ///
    /// # Errors
    /// As [`Cell::run`].
    pub fn measure(&self, observer: &mut dyn Observer) -> anyhow::Result<Row> {
        let (row, _) = self.measure_with(self.allocator()?, observer)?;
        Ok(row)
    }

    /// [`Cell::measure`] with an existing allocator, which is returned in its final state.
    ///
    /// # Errors
    /// As [`Cell::run`].
    pub fn measure_with<A, D>(
        &self,
        allocator: A,
        observer: &mut dyn Observer,
    ) -> anyhow::Result<(Row, A)>
    where
        A: Allocator<Driver = Tap<D, Instruments>>,
        D: Surroundings,
    {
        let mut probe = (LargestBatch::default(), observer);
        let mut watch = (AtPeak::default(), &mut probe);
        let (mut late, mut steps) = (LateCount::default(), StepCount::default());
        let mut count = |op: Op<'_>, allocator: &A| {
            let served = allocator.stats().allocation.all().allocated;
            let calls = counted(allocator.driver().counts());
            late.after(served.cast_unsigned(), calls);
            steps.after(op, calls);
        };
        let Run { allocator, tally } = self.run_watched(allocator, &mut watch, &mut count)?;
        let (at_peak, largest_batch) = (watch.0, probe.0.batch);
        let measures = Measures::of(allocator.stats());
        let counts = allocator.driver().counts();
        // A library tells addresses, not the sizes of its blocks.
        let knows_blocks = Library::named(self.policy)?.is_none();
        let of_blocks = |bytes: u64| knows_blocks.then_some(bytes);
        let if_complete = |share: Option<f64>| share.filter(|_| tally.ooms == 0).map(six_digits);
        let calls: u64 = CallKind::ALL.iter().map(|&kind| counts.of(kind)).sum();
        let per_1000 = calls as f64 / measures.allocations as f64 * 1000.0;
        let late = late.of(measures.allocations, counted(counts));
        let steps = steps.finish(counted(counts));
        let first_oom = tally.first_oom;
        let row = Row {
            capacity: Capacity::Bytes(self.conditions.capacity).to_string(),
            capacity_bytes: self.conditions.capacity,
            events: tally.events,
            allocations: measures.allocations,
            peak_requested_bytes: measures.peak_requested_bytes,
            peak_allocated_bytes: of_blocks(measures.peak_allocated_bytes),
            peak_active_bytes: of_blocks(measures.peak_active_bytes),
            peak_reserved_bytes: measures.peak_reserved_bytes,
            peak_inactive_split_bytes: of_blocks(measures.peak_inactive_split_bytes),
            inactive_split_at_peak_bytes: of_blocks(at_peak.inactive_split_bytes),
            efficiency: if_complete(measures.efficiency()),
            fragmentation: if_complete(measures.fragmentation().filter(|_| knows_blocks)),
            retries: measures.retries,
            ooms: tally.ooms,
            skipped_frees: tally.skipped_frees,
            first_oom_event: first_oom.map(|first| first.event),
            shatter_at_oom: first_oom
                .and_then(|first| first.shatter())
                .filter(|_| knows_blocks)
                .map(six_digits),
            largest_batch,
            device_allocs: measures.device_allocs,
            device_frees: measures.device_frees,
            syncs: measures.syncs,
            driver_calls_per_1000: (measures.allocations > 0).then(|| six_digits(per_1000)),
            late_calls: Some(late.calls),
            late_calls_per_1000: late.rate().map(|rate| six_digits(1000.0 * rate)),
            steps: Some(steps.steps),
            quiet_from_step: steps.quiet_from,
            late_calls_per_step: steps.late.rate().map(six_digits),
            driver_time_ns: allocator.driver().elapsed_ns(),
            ..self.described()
        };
        Ok((with_calls(row, counts), allocator))
    }
}

/// The value of the column `torch`: the release that the reference reproduces, empty for other policies.
#[must_use]
pub fn torch_column(policy: &str, release: Release) -> String {
    if policy == REFERENCE {
        release.to_string()
    } else {
        String::new()
    }
}

/// The feature that a policy does not support, if that is the cause of an error.
#[must_use]
pub fn unsupported_feature(error: &anyhow::Error) -> Option<&'static str> {
    error.chain().find_map(|cause| match cause.downcast_ref() {
        Some(Error::Unsupported { what, .. }) => Some(*what),
        _ => None,
    })
}

/// The row with the number of driver calls of each kind.
fn with_calls(row: Row, counts: &CallCounts) -> Row {
    Row {
        calls_malloc: counts.of(CallKind::Malloc),
        calls_free: counts.of(CallKind::Free),
        calls_memory_info: counts.of(CallKind::MemoryInfo),
        calls_reserve: counts.of(CallKind::Reserve),
        calls_free_address: counts.of(CallKind::FreeAddress),
        calls_create: counts.of(CallKind::Create),
        calls_release: counts.of(CallKind::Release),
        calls_map: counts.of(CallKind::Map),
        calls_set_access: counts.of(CallKind::SetAccess),
        calls_unmap: counts.of(CallKind::Unmap),
        calls_create_event: counts.of(CallKind::CreateEvent),
        calls_record_event: counts.of(CallKind::RecordEvent),
        calls_query_event: counts.of(CallKind::QueryEvent),
        calls_wait_event: counts.of(CallKind::WaitEvent),
        calls_synchronize_event: counts.of(CallKind::SynchronizeEvent),
        calls_synchronize_stream: counts.of(CallKind::SynchronizeStream),
        calls_synchronize_device: counts.of(CallKind::SynchronizeDevice),
        ..row
    }
}

#[cfg(test)]
mod tests;
