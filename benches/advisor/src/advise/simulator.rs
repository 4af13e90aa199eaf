//! Replays a workload on a simulated device under given settings.

use std::sync::Arc;

use anyhow::ensure;
use coalesce_alloc::driver::calls::CallKind;
use coalesce_alloc::printable::printable;
use coalesce_alloc::registry::OfflinePlan;
use coalesce_alloc::scheduled::Schedule;
use coalesce_bench::measure::capacity::ROOMY;
pub(super) use coalesce_bench::measure::cell::REFERENCE as PYTORCH;
use coalesce_bench::measure::cell::{Cell, Run};
use coalesce_bench::measure::deadline::{Deadline, UntilDeadline};
use coalesce_bench::measure::least::{self, Bracket};
use coalesce_bench::measure::parallel::Jobs;
use coalesce_bench::measure::plausible::check_demand;
use coalesce_bench::measure::profile::Profile;
use coalesce_bench::measure::progress::Progress;
use coalesce_workloads::cached::Cached;
use coalesce_workloads::conditions::ReplayConditions;
use coalesce_workloads::demand::Demand;
use coalesce_workloads::measure::Measures;
use coalesce_workloads::op::Workload;
use coalesce_workloads::replay::Observer;
use schemars::JsonSchema;
use serde::Serialize;

use super::request::AdviceRequest;
use crate::settings_string::{known_part, label};

/// A workload on a device.
#[derive(Clone, Copy)]
pub(super) struct Simulator<'a> {
    /// The workload as it runs while every request is served.
    pub workload: &'a Cached,
    /// The same workload where requests may fail: it may end then, or continue differently.
    pub reactive: &'a dyn Workload,
    pub demand: Demand,
    pub conditions: ReplayConditions,
    pub profile: &'a Profile,
    /// The plan of an offline policy.
    pub plan: Option<&'a OfflinePlan>,
    /// What the program does besides, under the reference.
    pub schedule: Option<&'a Arc<Schedule>>,
    /// Shows each replay.
    pub progress: Option<&'a Progress>,
    /// How many replays run at a time.
    pub jobs: Jobs,
    /// When replays end with an error.
    pub deadline: Deadline,
}

/// The costs of a replay.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, JsonSchema, Serialize)]
pub struct RunFigures {
    /// The peak of reserved memory, in bytes.
    pub peak_reserved_bytes: u64,
    /// Retries after emptying the cache.
    pub retries: u64,
    /// Failed requests. A program ends at the first.
    pub ooms: u64,
    /// Times memory was taken from the device.
    pub device_allocs: u64,
    /// Times memory was returned to it.
    pub device_frees: u64,
    /// Driver calls of any kind.
    pub driver_calls: u64,
    /// Time spent in them, in ns, by the cost profile.
    pub driver_time_ns: u64,
}

impl RunFigures {
    /// Whether the workload completes.
    #[must_use]
    pub fn fits(&self) -> bool {
        self.ooms == 0
    }

    /// Whether memory was never returned, so that a larger device changes nothing.
    pub(super) fn had_room(&self) -> bool {
        self.fits() && self.device_frees == 0
    }

    fn of(run: &Run) -> Self {
        let measures = Measures::of(run.allocator.stats());
        let device = run.allocator.driver();
        let calls = CallKind::ALL.iter().map(|&kind| device.counts().of(kind));
        Self {
            peak_reserved_bytes: measures.peak_reserved_bytes,
            retries: measures.retries,
            ooms: run.tally.ooms,
            device_allocs: measures.device_allocs,
            device_frees: measures.device_frees,
            driver_calls: calls.sum(),
            driver_time_ns: device.elapsed_ns(),
        }
    }
}

impl<'a> Simulator<'a> {
    /// The simulator for a request.
    ///
    /// # Errors
    /// If the workload cannot be read, or needs more memory than any device has.
    pub fn of(request: &AdviceRequest<'a>) -> anyhow::Result<Self> {
        let demand = Demand::of(request.workload)?;
        check_demand(request.workload, &demand)?;
        Ok(Self {
            workload: request.workload,
            reactive: request.reactive,
            demand,
            conditions: request.conditions,
            profile: request.profile,
            progress: None,
            plan: None,
            schedule: None,
            jobs: request.jobs,
            deadline: Deadline::after(None),
        })
    }

    fn report_progress(&self, policy: &str, conf: &str) {
        if let Some(progress) = self.progress {
            let settings = if policy == PYTORCH {
                label(conf)
            } else {
                policy
            };
            progress.add(1, settings);
        }
    }

    /// The same simulator under other conditions.
    fn under(&self, conditions: ReplayConditions) -> Self {
        Self {
            conditions,
            ..*self
        }
    }

    /// The same simulator with another deadline.
    pub fn until(self, deadline: Deadline) -> Self {
        Self { deadline, ..self }
    }

    /// The same simulator for an offline policy.
    pub fn with_plan(self, plan: Option<&'a OfflinePlan>) -> Self {
        Self { plan, ..self }
    }

    /// The same simulator of a program that follows a schedule.
    pub fn following(self, schedule: &'a Arc<Schedule>) -> Self {
        Self {
            schedule: Some(schedule),
            ..self
        }
    }

    /// The same device with another workload.
    pub fn with(self, workload: &'a Cached) -> anyhow::Result<Self> {
        Ok(Self {
            workload,
            reactive: workload,
            demand: Demand::of(workload)?,
            ..self
        })
    }

    fn cell<'c>(&'c self, workload: &'c dyn Workload, policy: &'c str, conf: &'c str) -> Cell<'c> {
        Cell {
            workload,
            demand: self.demand,
            policy,
            setting: conf,
            conf,
            plan: self.plan,
            conditions: self.conditions,
            profile: self.profile,
            schedule: self.schedule,
        }
    }

    /// Replays on the given device under an observer.
    pub fn observe(&self, conf: &str, observer: &mut dyn Observer) -> anyhow::Result<RunFigures> {
        self.run(PYTORCH, conf, observer)
    }

    /// Replays on the given device and on a roomy one.
    pub fn both(&self, policy: &str, conf: &str) -> anyhow::Result<(RunFigures, RunFigures)> {
        let on_device = self.run(policy, conf, &mut ())?;
        Ok((on_device, self.with_room(policy, conf, on_device)?))
    }

    /// Replays on a roomy device, unless the figures on the given device are the same.
    pub fn with_room(
        &self,
        policy: &str,
        conf: &str,
        on_device: RunFigures,
    ) -> anyhow::Result<RunFigures> {
        if on_device.had_room() {
            return Ok(on_device);
        }
        let roomy = least::roomy(self.demand.lower_bound_bytes);
        let unlimited = self.under(ReplayConditions {
            capacity: roomy,
            limit: None,
            ..self.conditions
        });
        let with_room = unlimited.run(policy, conf, &mut ())?;
        ensure!(
            with_room.fits(),
            "{}, {policy} {}: requests fail on a device of any capacity",
            printable(self.workload.name()),
            printable(conf)
        );
        Ok(with_room)
    }

    fn run(
        &self,
        policy: &str,
        conf: &str,
        observer: &mut dyn Observer,
    ) -> anyhow::Result<RunFigures> {
        let workload = self.timed(self.reactive);
        let known = known_part(conf, self.conditions.release);
        let cell = self.cell(&workload, policy, &known);
        let run = cell.run(observer)?;
        self.report_progress(policy, conf);
        Ok(RunFigures::of(&run))
    }

    /// Whether the workload completes with `bytes` of memory: under such a limit if the program has a limit, else
    /// on such a device.
    pub fn fits(&self, policy: &str, conf: &str, bytes: u64) -> anyhow::Result<bool> {
        let device = bytes.saturating_add(self.conditions.others);
        let (limit, capacity) = match self.conditions.limit {
            Some(_) => (Some(bytes), device.max(ROOMY)),
            None => (None, device),
        };
        let workload = self.timed(self.workload);
        let known = known_part(conf, self.conditions.release);
        let limited = self.under(ReplayConditions {
            limit,
            ..self.conditions
        });
        let cell = limited.cell(&workload, policy, &known);
        let fits = least::fits(&cell, capacity)?;
        self.report_progress(policy, conf);
        Ok(fits)
    }

    /// The minimum memory, given the peak of reserved memory on a roomy device.
    pub fn minimum(&self, policy: &str, conf: &str, reserved: u64) -> anyhow::Result<u64> {
        let fits = |bytes: u64| self.fits(policy, conf, bytes);
        let mut bracket = Bracket::new(self.demand.lower_bound_bytes, reserved);
        bracket.widen(&fits)?;
        bracket.close(&fits)?;
        Ok(bracket.suffices())
    }

    /// The workload until the deadline.
    pub fn timed<'w>(&self, workload: &'w dyn Workload) -> UntilDeadline<'w> {
        UntilDeadline {
            workload,
            deadline: self.deadline,
        }
    }
}
