//! What other policies would achieve with the workload.

use std::time::Duration;

use coalesce_alloc::policy::POLICIES;
use coalesce_bench::measure::cell::{self, unsupported_feature};
use coalesce_bench::measure::deadline::Deadline;
use coalesce_bench::measure::parallel;
use serde::Serialize;

use super::simulator::{RunFigures, Simulator};

/// A policy other than PyTorch's.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct OtherPolicy {
    /// Its name, as `coalesce policies` lists it.
    pub policy: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// A feature of the workload that it does not support. There are no figures then.
    pub unsupported: Option<&'static str>,
    /// Another reason why there are no figures.
    pub error: Option<String>,
    /// The peak of reserved memory on a roomy device, in bytes.
    pub peak_reserved_bytes: Option<u64>,
    /// The minimum device memory in bytes, if it was found in time.
    pub least_capacity_bytes: Option<u64>,
    /// Figures on the given device.
    pub on_device: Option<RunFigures>,
}

impl OtherPolicy {
    /// Why there are no figures.
    pub(super) fn obstacle(&self) -> Option<String> {
        let unsupported = self
            .unsupported
            .map(|feature| format!("does not support {feature}"));
        unsupported.or(self.error.clone())
    }
}

/// The policies to show: the alternatives for a program, and what would be possible at best.
const SHOWN: [&str; 5] = ["cuda_async", "gmlake", "stalloc", "offline", "direct"];
/// Finding the minimum memory takes about this many times the first two replays.
const REPLAYS: u32 = 7;

/// Runs the workload under other policies until the deadline.
pub(super) fn compare(simulator: Simulator<'_>, deadline: Deadline) -> Vec<OtherPolicy> {
    let policies = SHOWN.map(|name| POLICIES.iter().find(|policy| policy.name == name));
    let policies: Vec<_> = policies.into_iter().flatten().collect();
    let others = parallel::map(&policies, |policy| {
        if deadline.has_passed() {
            return None;
        }
        let mut other = OtherPolicy {
            policy: policy.name,
            summary: policy.summary,
            unsupported: None,
            error: None,
            peak_reserved_bytes: None,
            least_capacity_bytes: None,
            on_device: None,
        };
        if let Err(error) = run(simulator, policy.offline, &mut other, deadline) {
            match unsupported_feature(&error) {
                Some(feature) => other.unsupported = Some(feature),
                None => other.error = Some(format!("{error:#}")),
            }
        }
        Some(other)
    });
    others.into_iter().flatten().collect()
}

/// Fills in the figures.
fn run(
    simulator: Simulator<'_>,
    is_offline: bool,
    other: &mut OtherPolicy,
    deadline: Deadline,
) -> anyhow::Result<()> {
    let begun = Deadline::after(None);
    let plan = cell::plan(other.policy, "", simulator.workload)?;
    let simulator = simulator.with_plan(plan.as_ref());
    let (on_device, with_room) = simulator.both(other.policy, "")?;
    other.on_device = Some(on_device);
    let reserved = with_room.peak_reserved_bytes;
    other.peak_reserved_bytes = Some(reserved);
    // An offline policy needs what it planned, whatever the capacity.
    if is_offline {
        other.least_capacity_bytes = Some(reserved);
        return Ok(());
    }
    let needed: Duration = begun.elapsed() * REPLAYS;
    if !deadline.is_within(needed) {
        let bracket = simulator.bracket(other.policy, "", reserved)?;
        other.least_capacity_bytes = Some(simulator.minimum(other.policy, "", bracket)?);
    }
    Ok(())
}
