//! What other policies would achieve with the workload.

use std::time::Duration;

use anyhow::Context;
use coalesce_alloc::registry::{self, OfflinePlan, POLICIES, PolicyInfo};
use coalesce_bench::measure::cell::unsupported_feature;
use coalesce_bench::measure::deadline::{self, Deadline};
use coalesce_workloads::lifetimes;
use coalesce_workloads::op::{Answer, Op, Workload};
use schemars::JsonSchema;
use serde::Serialize;

use super::simulator::{RunFigures, Simulator};

/// A policy other than PyTorch's.
#[derive(Clone, PartialEq, Debug, Default, JsonSchema, Serialize)]
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

/// The policy of our own, under which a program can be trained.
pub(super) const OWN: &str = "quilt";
/// The policies to show: the alternatives for a program, and what would be possible at best.
const SHOWN: [&str; 6] = ["cuda_async", "gmlake", OWN, "offline", "stalloc", "direct"];
/// The policy that returns memory as soon as it is free.
const UNCACHED: &str = "direct";
/// Finding the minimum memory takes about this many times the first two replays.
const REPLAYS: u32 = 7;

/// Runs the workload under other policies until the deadline. Those without figures by then are left out.
pub(super) fn compare(simulator: Simulator<'_>, deadline: Deadline) -> Vec<OtherPolicy> {
    let mut shown: Vec<_> = SHOWN
        .map(|name| POLICIES.iter().find(|policy| policy.name == name))
        .into_iter()
        .flatten()
        .collect();
    // Planning cannot be interrupted, so it comes last.
    shown.sort_by_key(|policy| policy.offline);
    let of = |policy: &&PolicyInfo| other(simulator, policy, deadline);
    let mut others: Vec<_> = simulator
        .jobs
        .map(&shown, of)
        .into_iter()
        .flatten()
        .collect();
    others.sort_by_key(|other| SHOWN.iter().position(|&name| name == other.policy));
    others
}

/// The figures of a policy; `None` if the deadline passes before any is found.
fn other(simulator: Simulator<'_>, policy: &PolicyInfo, deadline: Deadline) -> Option<OtherPolicy> {
    if deadline.has_passed() {
        return None;
    }
    let mut other = OtherPolicy {
        policy: policy.name,
        summary: policy.summary,
        ..OtherPolicy::default()
    };
    if let Err(error) = run(simulator, policy.offline, &mut other, deadline) {
        match unsupported_feature(&error) {
            Some(feature) => other.unsupported = Some(feature),
            None if !deadline.has_passed() => other.error = Some(format!("{error:#}")),
            None if other.peak_reserved_bytes.is_none() => return None,
            None => {}
        }
    }
    Some(other)
}

/// The policies to show that are missing.
pub(super) fn missing(others: &[OtherPolicy]) -> impl Iterator<Item = &'static str> {
    let is_there = |name: &str| others.iter().any(|other| other.policy == name);
    SHOWN.into_iter().filter(move |name| !is_there(name))
}

/// Fills in the figures.
fn run(
    simulator: Simulator<'_>,
    is_offline: bool,
    other: &mut OtherPolicy,
    deadline: Deadline,
) -> anyhow::Result<()> {
    let begun = Deadline::after(None);
    let plan = if is_offline {
        plan(&simulator.until(deadline), other.policy)?
    } else {
        None
    };
    let simulator = simulator.until(deadline).with_plan(plan.as_ref());
    let (on_device, with_room) = simulator.both(other.policy, "")?;
    other.on_device = Some(on_device);
    let reserved = with_room.peak_reserved_bytes;
    other.peak_reserved_bytes = Some(reserved);
    // On any device, an offline policy needs what it planned, and one without a cache what is live.
    let is_uncached = other.policy == UNCACHED && !is_constrained(&simulator)?;
    if is_offline || is_uncached {
        other.least_capacity_bytes = Some(reserved);
        return Ok(());
    }
    let needed: Duration = begun.elapsed() * REPLAYS;
    if !deadline.is_within(needed) {
        other.least_capacity_bytes = Some(simulator.minimum(other.policy, "", reserved)?);
    }
    Ok(())
}

/// Whether a limit or memory outside of the program changes, which may come at a time when little is live.
fn is_constrained(simulator: &Simulator<'_>) -> anyhow::Result<bool> {
    let mut found = false;
    simulator.workload.emit(&mut |op: Op<'_>| {
        found |= matches!(op, Op::Limit { .. } | Op::Surroundings(_));
        Ok(Answer::Done)
    })?;
    Ok(found)
}

/// The plan of an offline policy. Planning may take much longer than a replay and cannot be interrupted.
fn plan(simulator: &Simulator<'_>, policy: &'static str) -> anyhow::Result<Option<OfflinePlan>> {
    let known = lifetimes::of(&simulator.timed(simulator.workload))?;
    let planned = deadline::within(simulator.deadline, move || {
        registry::plan_offline(policy, "", &known)
    });
    Ok(planned.context("time ran out")??)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn other(policy: &'static str) -> OtherPolicy {
        OtherPolicy {
            policy,
            summary: "",
            ..OtherPolicy::default()
        }
    }

    #[test]
    fn policies_that_are_missing() {
        let missing = |others: &[OtherPolicy]| missing(others).collect::<Vec<_>>();
        assert_eq!(missing(&[]), SHOWN);
        let some = [other("gmlake"), other("cuda_async"), other("direct")];
        assert_eq!(missing(&some), [OWN, "offline", "stalloc"]);
    }

    #[test]
    fn why_there_are_no_figures() {
        assert_eq!(other("direct").obstacle(), None);
        let failed = OtherPolicy {
            error: Some("it fails".to_owned()),
            ..other("direct")
        };
        assert_eq!(failed.obstacle().as_deref(), Some("it fails"));
        let lacks = OtherPolicy {
            unsupported: Some("streams"),
            ..failed
        };
        assert_eq!(
            lacks.obstacle().as_deref(),
            Some("does not support streams")
        );
    }
}
