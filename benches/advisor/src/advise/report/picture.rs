//! The data that charts and maps show: memory over time, and the segments at the peak.

use std::collections::HashMap;

use coalesce_alloc::driver::DeviceAddr;
use coalesce_alloc::snapshot::SegmentInfo;
use coalesce_bench::measure::timeline::{Point, Timeline};
use coalesce_workloads::op::{Op, WorkloadError};
use coalesce_workloads::replay::{Observer, Outcome, Step, replay_until};

use crate::advise::failure::FailureFinder;
use crate::advise::peak::PeakFinder;
use crate::advise::simulator::Simulator;

/// A replay of the workload on the given device.
#[derive(Clone, Debug)]
pub(super) struct Picture {
    /// What the settings are: `Current settings`.
    pub title: &'static str,
    /// The settings string.
    pub conf: String,
    /// Memory over time.
    pub points: Vec<Point>,
    /// The events at which steps begin.
    pub steps: Vec<u64>,
    /// The event of the request that fails; none if no request fails.
    pub failure: Option<u64>,
    /// The segments at the peak.
    pub segments: Vec<SegmentInfo>,
    /// The tags of the blocks allocated at the peak, by address.
    pub owners: HashMap<DeviceAddr, String>,
}

impl Picture {
    /// Replays the workload under a settings string, until the simulator's deadline.
    ///
    /// # Errors
    /// If the workload cannot be replayed, or the deadline passes.
    pub fn of(simulator: Simulator<'_>, title: &'static str, conf: &str) -> anyhow::Result<Self> {
        let mut steps = StepMarks::default();
        let mut failure = (FailureFinder::default(), &mut steps);
        let mut peak = (PeakFinder::default(), &mut failure);
        let mut timeline = (Timeline::default(), &mut peak);
        simulator.observe(conf, &mut timeline)?;
        let points = timeline.0.points().to_vec();
        let event = peak.0.peak.event;
        let failure = failure.0;
        let mut owners = Owners::default();
        let mut allocator = simulator.allocator(conf)?;
        let workload = simulator.timed(simulator.reactive);
        replay_until(&workload, allocator.as_mut(), event, &mut owners)?;
        Ok(Self {
            title,
            conf: conf.to_owned(),
            points,
            failure: failure.found().map(|failure| failure.event),
            steps: steps.0,
            segments: allocator.segments(),
            owners: owners.tags,
        })
    }

    /// The events at which steps begin; none if there are too many to mark.
    pub fn marked_steps(&self) -> &[u64] {
        const MOST: usize = 60;
        match self.steps.len() {
            0..=MOST => &self.steps,
            _ => &[],
        }
    }

    /// Bytes reserved at the peak.
    pub fn reserved(&self) -> u64 {
        self.segments.iter().map(SegmentInfo::total_size).sum()
    }
}

/// Collects the events at which steps begin.
#[derive(Default)]
struct StepMarks(Vec<u64>);

impl Observer for StepMarks {
    fn after(&mut self, step: &Step<'_>) -> Result<(), WorkloadError> {
        match step.op {
            Op::Mark { tag } if tag.starts_with("step") => self.0.push(step.event),
            _ => {}
        }
        Ok(())
    }
}

/// Collects the tags of live allocations.
#[derive(Default)]
struct Owners {
    tags: HashMap<DeviceAddr, String>,
    addresses: HashMap<u64, DeviceAddr>,
}

impl Observer for Owners {
    fn after(&mut self, step: &Step<'_>) -> Result<(), WorkloadError> {
        match (step.op, step.outcome) {
            (Op::Malloc { id, tag, .. }, Outcome::Placed(addr)) => {
                self.addresses.insert(id, addr);
                self.tags.insert(addr, tag.to_owned());
            }
            (Op::Free { id }, _) => {
                if let Some(addr) = self.addresses.remove(&id) {
                    self.tags.remove(&addr);
                }
            }
            _ => {}
        }
        Ok(())
    }
}
