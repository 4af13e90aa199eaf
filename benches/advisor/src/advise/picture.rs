//! What a run looks like: memory over time, and the segments when most was held.

use std::collections::HashMap;

use coalesce_alloc::driver::DeviceAddr;
use coalesce_alloc::snapshot::SegmentInfo;
use coalesce_workloads::op::{Op, WorkloadError};
use coalesce_workloads::replay::{Observer, Outcome, Step, replay_until};

use super::peak::FindPeak;
use super::{Ground, Question};
use coalesce_bench::measure::timeline::{Point, Timeline};

/// A run of the program on the device.
#[derive(Clone, Debug)]
pub struct Picture {
    /// The setting.
    pub conf: String,
    /// Memory over time.
    pub points: Vec<Point>,
    /// Where steps begin: the event and the mark.
    pub steps: Vec<(u64, String)>,
    /// The segments when most was held.
    pub segments: Vec<SegmentInfo>,
    /// Who asked for the blocks that were handed out then, by their addresses.
    pub owners: HashMap<DeviceAddr, String>,
}

/// A run under the setting `conf`.
///
/// # Errors
/// If there is no such setting, or the program cannot be replayed under it.
pub fn picture(question: &Question<'_>, conf: &str) -> anyhow::Result<Picture> {
    let ground = Ground::of(question)?;
    let mut steps = Steps::default();
    let mut peak = (FindPeak::default(), &mut steps);
    let mut watch = (Timeline::default(), &mut peak);
    ground.watched_on_device(conf, &mut watch)?;
    let points = watch.0.points().to_vec();
    let mut owners = Owners::default();
    let mut allocator = ground.allocator(conf)?;
    let event = peak.0.peak.event;
    replay_until(question.answering, allocator.as_mut(), event, &mut owners)?;
    Ok(Picture {
        conf: conf.to_owned(),
        points,
        steps: steps.0,
        segments: allocator.segments(),
        owners: owners.owners,
    })
}

/// Collects where steps begin.
#[derive(Default)]
struct Steps(Vec<(u64, String)>);

impl Observer for Steps {
    fn after(&mut self, step: &Step<'_>) -> Result<(), WorkloadError> {
        match step.op {
            Op::Mark { tag } if tag.starts_with("step") => {
                self.0.push((step.event, tag.to_owned()));
            }
            _ => {}
        }
        Ok(())
    }
}

/// Knows who asked for what lives.
#[derive(Default)]
struct Owners {
    owners: HashMap<DeviceAddr, String>,
    addresses: HashMap<u64, DeviceAddr>,
}

impl Observer for Owners {
    fn after(&mut self, step: &Step<'_>) -> Result<(), WorkloadError> {
        match (step.op, step.outcome) {
            (Op::Malloc { id, tag, .. }, Outcome::Placed(addr)) => {
                self.addresses.insert(id, addr);
                self.owners.insert(addr, tag.to_owned());
            }
            (Op::Free { id }, _) => {
                if let Some(addr) = self.addresses.remove(&id) {
                    self.owners.remove(&addr);
                }
            }
            _ => {}
        }
        Ok(())
    }
}
