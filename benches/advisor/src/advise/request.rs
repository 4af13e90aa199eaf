//! What advice is requested for.

use std::time::Duration;

use coalesce_bench::measure::parallel::Jobs;
use coalesce_bench::measure::profile::Profile;
use coalesce_workloads::cached::Cached;
use coalesce_workloads::conditions::ReplayConditions;
use coalesce_workloads::formats::snapshot::Recording;
use coalesce_workloads::formats::snapshot::release::Releases;
use coalesce_workloads::op::Workload;
use schemars::JsonSchema;
use serde::Serialize;

use crate::diagnose::Subject;

coalesce_alloc::named! {
    /// What settings are chosen for, with the name on the command line.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, JsonSchema, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Aim {
        /// The lowest minimum device memory: to fit, with the least risk, or with a larger batch.
        LeastCapacity = "least-capacity",
        /// The shortest driver time.
        DriverTime = "driver-time",
        /// The lowest peak of reserved memory on the given device, to leave memory to others.
        Reserved = "reserved",
    }
}

/// A workload, a device and the current settings.
#[derive(Clone, Copy)]
pub struct AdviceRequest<'a> {
    /// The workload, in memory.
    pub workload: &'a Cached,
    /// The same workload, if it reacts to the results of its requests, such as one that ends at the first
    /// failed request; otherwise `workload` itself.
    pub reactive: &'a dyn Workload,
    /// The snapshot that the workload was read from.
    pub recording: Option<&'a Recording>,
    /// What is unusual or unknown about the workload, one sentence each.
    pub remarks: &'a [String],
    /// Where settings, device memory, limit and addresses come from, one line each.
    pub sources: &'a [String],
    /// The current settings string, `PYTORCH_CUDA_ALLOC_CONF`.
    pub present: &'a str,
    /// The releases of PyTorch that the program may run under. Only settings that all of them know are advised.
    pub releases: Releases,
    /// The release and the device.
    pub conditions: ReplayConditions,
    /// Bytes that it may not reserve, if the limit is only known to lie between `limit` and this.
    pub limit_below: Option<u64>,
    /// What settings are chosen for.
    pub aim: Aim,
    /// The costs of driver calls.
    pub profile: &'a Profile,
    /// How long to search; whatever is unfinished then is omitted. Without a limit, the advice is the same on
    /// every machine.
    pub time_limit: Option<Duration>,
    /// Who is told what is known of a large workload before other settings are tried.
    pub tell: Option<fn(&str)>,
    /// How many threads replay the workload at a time.
    pub jobs: Jobs,
    /// Whether to look for what the program could do at some of its lines, too.
    pub schedules: bool,
    /// Keys that the program cannot have all the time, but in some of its phases.
    pub not_throughout: &'a [String],
    /// Number of perturbed copies of the workload that test how far the advice holds.
    pub copies: u64,
}

impl<'a> AdviceRequest<'a> {
    /// The subject of a diagnosis: a replay under `conf`. `workload` is the request's own, or an adaptor around it that
    /// may end the replay early.
    pub(super) fn subject<'s>(&self, workload: &'s dyn Workload, conf: &'s str) -> Subject<'s>
    where
        'a: 's,
    {
        Subject {
            workload,
            recording: self.recording,
            conf,
            conditions: self.conditions.without_others(),
        }
    }

    /// The most bytes that may be available to the workload, as far as the limit is known.
    #[must_use]
    pub fn most_available(&self) -> u64 {
        let below = self.limit_below.map(|below| below.saturating_sub(1));
        ReplayConditions {
            limit: below.or(self.conditions.limit),
            ..self.conditions
        }
        .available()
    }
}
