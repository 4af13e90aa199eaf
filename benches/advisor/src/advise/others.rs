//! What other allocators would do with the program.

use std::time::Duration;

use coalesce_alloc::policy::POLICIES;
use serde::Serialize;

use super::ground::{Figures, Ground};
use coalesce_bench::measure::cell::{self, unsupported_feature};
use coalesce_bench::measure::deadline::Deadline;
use coalesce_bench::measure::parallel;

/// Another policy beside PyTorch's.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Other {
    /// Its name, as `coalesce policies` lists it.
    pub policy: &'static str,
    /// What it is, in a line.
    pub summary: &'static str,
    /// What it does not serve of the program, if anything. There are no figures then.
    pub unsupported: Option<&'static str>,
    /// Why else there are none, if there are none.
    pub error: Option<String>,
    /// Peak reserved with room for everything, in bytes.
    pub peak_reserved_bytes: Option<u64>,
    /// The least bytes that it must be able to have, as far as they were found.
    pub least_capacity_bytes: Option<u64>,
    /// On the device.
    pub on_device: Option<Figures>,
}

impl Other {
    /// Why there are no figures, if there are none.
    pub(super) fn hindrance(&self) -> Option<String> {
        let unsupported = self
            .unsupported
            .map(|what| format!("does not serve {what}"));
        unsupported.or(self.error.clone())
    }
}

/// Those that are shown: what a program can have instead, and what could be had at best.
const SHOWN: [&str; 5] = ["cuda_async", "gmlake", "stalloc", "offline", "direct"];

pub(super) fn others(ground: Ground<'_>, deadline: Deadline) -> Vec<Other> {
    let shown = POLICIES
        .iter()
        .filter(|policy| SHOWN.contains(&policy.name));
    let mut shown: Vec<_> = shown.collect();
    shown.sort_by_key(|policy| SHOWN.iter().position(|name| *name == policy.name));
    let others = parallel::map(&shown, |policy| {
        if deadline.has_passed() {
            return None;
        }
        let mut other = Other {
            policy: policy.name,
            summary: policy.summary,
            unsupported: None,
            error: None,
            peak_reserved_bytes: None,
            least_capacity_bytes: None,
            on_device: None,
        };
        if let Err(error) = run(ground, policy.offline, &mut other, deadline) {
            match unsupported_feature(&error) {
                Some(what) => other.unsupported = Some(what),
                None => other.error = Some(format!("{error:#}")),
            }
        }
        Some(other)
    });
    others.into_iter().flatten().collect()
}

/// Fills in the figures.
fn run(
    ground: Ground<'_>,
    foreseeing: bool,
    other: &mut Other,
    deadline: Deadline,
) -> anyhow::Result<()> {
    let begun = Deadline::after(None);
    let plan = cell::plan(other.policy, "", ground.program)?;
    let ground = ground.planned(plan.as_ref());
    let (on_device, with_room) = ground.both(other.policy, "")?;
    other.on_device = Some(on_device);
    let held = with_room.peak_reserved_bytes;
    other.peak_reserved_bytes = Some(held);
    // What was planned takes what it takes, however large the device is.
    if foreseeing {
        other.least_capacity_bytes = Some(held);
        return Ok(());
    }
    // A dozen replays more, or not at all.
    const REPLAYS: u32 = 7;
    let needed: Duration = begun.elapsed() * REPLAYS;
    if deadline.is_within(needed) {
        return Ok(());
    }
    let bracket = ground.bracket(other.policy, "", held)?;
    other.least_capacity_bytes = Some(ground.least(other.policy, "", bracket)?);
    Ok(())
}
