//! What is diagnosed, and its replay under other settings.

use anyhow::Context;
use coalesce_alloc::Allocator;
use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::printable::printable;
use coalesce_alloc::pytorch::PyTorch;
use coalesce_alloc::settings::Settings;
use coalesce_alloc::snapshot::SegmentInfo;
use coalesce_workloads::conditions::ReplayConditions;
use coalesce_workloads::formats::snapshot::Recording;
use coalesce_workloads::limited::Limited;
use coalesce_workloads::measure::Measures;
use coalesce_workloads::op::{Workload, WorkloadError};
use coalesce_workloads::replay::{Observer, Tally, replay, replay_until};
use coalesce_workloads::start;

/// What is diagnosed: a workload under its settings on a device.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// The workload.
    pub workload: &'a dyn Workload,
    /// The recording that the workload was read from. The workload's last requests are those of the
    /// recording, in order; requests for the blocks that were live when it began precede them.
    pub recording: Option<&'a Recording>,
    /// The settings string, `PYTORCH_CUDA_ALLOC_CONF`.
    pub conf: &'a str,
    /// The release and the device, which the program has for itself.
    pub conditions: ReplayConditions,
}

/// The result of a replay under other settings or on another device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trial {
    /// Peaks and counters.
    pub measures: Measures,
    /// Requests that failed.
    pub ooms: u64,
}

impl Subject<'_> {
    /// The reference under settings on a device, in the state that the workload begins in.
    pub(crate) fn allocator(
        &self,
        conf: &str,
        capacity: u64,
    ) -> anyhow::Result<PyTorch<SimDevice>> {
        let config = SimConfig {
            addresses: self.conditions.addresses,
            ..SimConfig::with_capacity(capacity)
        };
        let settings = Settings::of_release(self.conditions.release).started_with(conf);
        let settings = settings.with_context(|| format!("settings '{}'", printable(conf)))?;
        let mut allocator = start::reference(
            self.workload.start().map(AsRef::as_ref),
            &config,
            settings,
            self.conditions.limit,
        );
        if self.conditions.limit.is_some() {
            allocator.set_memory_limit(self.conditions.limit);
        }
        Ok(allocator)
    }

    /// Replays the workload with one of its allocators.
    pub(crate) fn replay(
        &self,
        allocator: &mut PyTorch<SimDevice>,
        observer: &mut impl Observer,
    ) -> Result<Tally, WorkloadError> {
        replay(&self.limited(), allocator, observer)
    }

    /// The workload under the limit.
    fn limited(&self) -> Limited<'_> {
        Limited {
            workload: self.workload,
            limit: self.conditions.limit,
        }
    }

    /// Replays the workload under other settings or on another device.
    ///
    /// # Errors
    /// If the settings are invalid or the workload cannot be read.
    pub fn tried(&self, conf: &str, capacity: u64) -> anyhow::Result<Trial> {
        let mut allocator = self.allocator(conf, capacity)?;
        let tally = self.replay(&mut allocator, &mut ())?;
        Ok(Trial {
            measures: Measures::of(allocator.stats()),
            ooms: tally.ooms,
        })
    }

    /// The segments after an event.
    pub(crate) fn segments_after(&self, event: u64) -> anyhow::Result<Vec<SegmentInfo>> {
        let mut allocator = self.allocator(self.conf, self.conditions.capacity)?;
        replay_until(&self.limited(), &mut allocator, event, &mut ())?;
        Ok(allocator.segments())
    }
}
