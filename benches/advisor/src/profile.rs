//! What a profiler's recording tells about memory: its maxima, what ran then, and what grew.

mod text;

use coalesce_workloads::formats::profile::{
    DeviceProfile, NamedBytes, Point, Profile, Running, RunningKind, Step,
};
use schemars::JsonSchema;
use serde::Serialize;

pub use self::text::page;

/// What a profile tells.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct ProfileAnswer {
    /// The devices.
    pub devices: Vec<DeviceAnswer>,
    /// What is missing or unusual, one sentence each.
    pub remarks: Vec<String>,
}

/// What a profile tells of one device.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct DeviceAnswer {
    /// The device, such as `cuda:0`; `None` if the file does not tell.
    pub device: Option<String>,
    /// The name of its model, if recorded.
    pub model: Option<String>,
    /// Bytes of its memory, if recorded.
    pub total_bytes: Option<u64>,
    /// Allocations and frees, or times at which the amounts are recorded.
    pub events: usize,
    /// The most bytes in live allocations.
    pub peak_allocated_bytes: u64,
    /// The time of that, in nanoseconds after the first event.
    pub peak_after_ns: u64,
    /// Bytes that were reserved then, if recorded.
    pub reserved_at_peak_bytes: Option<u64>,
    /// The most bytes that the allocator held, if recorded.
    pub peak_reserved_bytes: Option<u64>,
    /// The time of that, in nanoseconds after the first event.
    pub peak_reserved_after_ns: Option<u64>,
    /// The operators that ran at the peak of allocated memory, outermost first; empty if unknown.
    pub operators: Vec<String>,
    /// The innermost named part of the program at the peak, such as `Optimizer.step#AdamW.step`.
    pub part: Option<String>,
    /// The function of the program at the peak, such as `train.py(31): step`.
    pub function: Option<String>,
    /// Bytes that the operators held at the peak of what they requested while the profiler ran, largest first.
    pub by_operator: Vec<NamedBytes>,
    /// Bytes of each category at the peak, largest first; empty if not recorded.
    pub by_category: Vec<NamedBytes>,
    /// The steps.
    pub steps: Vec<StepAnswer>,
    /// Bytes that each step after the first leaves, if each leaves some.
    pub growth_per_step_bytes: Option<u64>,
}

/// A step of the program.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct StepAnswer {
    /// Its name, such as `ProfilerStep#3`.
    pub name: String,
    /// The most bytes allocated during it.
    pub peak_bytes: u64,
    /// Bytes allocated at its end.
    pub end_bytes: u64,
}

impl ProfileAnswer {
    /// What a profile tells.
    #[must_use]
    pub fn of(profile: &Profile) -> Self {
        let devices = profile.devices.iter();
        Self {
            devices: devices
                .filter_map(|device| DeviceAnswer::of(device, &profile.steps))
                .collect(),
            remarks: profile.remarks.clone(),
        }
    }
}

impl DeviceAnswer {
    /// What a profile tells of a device; none if it has no events.
    fn of(device: &DeviceProfile, steps: &[Step]) -> Option<Self> {
        let (first, peak) = (device.points.first()?, device.peak_allocated()?);
        let after = |point: Point| {
            let after = point.time_ns.saturating_sub(first.time_ns);
            u64::try_from(after).unwrap_or(0)
        };
        let reserved = device.peak_reserved();
        let running = &device.running_at_peak;
        let of_kind = |kind| {
            let names = running.iter().filter(move |one| one.kind == kind);
            names.map(|one| one.name.clone())
        };
        let functions = running.iter().rev().filter(|one| is_of_program(one));
        let steps = step_answers(device, steps);
        Some(Self {
            device: device.device.map(|device| device.to_string()),
            model: device.model.clone(),
            total_bytes: device.total_bytes,
            events: device.points.len(),
            peak_allocated_bytes: peak.allocated,
            peak_after_ns: after(peak),
            reserved_at_peak_bytes: peak.reserved,
            peak_reserved_bytes: reserved.and_then(|point| point.reserved),
            peak_reserved_after_ns: reserved.map(after),
            operators: of_kind(RunningKind::Operator).collect(),
            part: of_kind(RunningKind::Annotation).next_back(),
            function: functions.map(|one| one.name.clone()).next(),
            by_operator: device.by_operator.clone(),
            by_category: device.by_category.clone(),
            growth_per_step_bytes: growth(&steps),
            steps,
        })
    }

    /// Bytes reserved beyond what was allocated at the peak, if recorded.
    fn unused_at_peak(&self) -> Option<u64> {
        let reserved = self.reserved_at_peak_bytes?;
        Some(reserved.saturating_sub(self.peak_allocated_bytes))
    }
}

/// Whether it is a function of the program rather than of Python or PyTorch, by the names that
/// torch/csrc/autograd/profiler_python.cpp gives: `FILE(LINE): FUNCTION`, relative to the folders of packages.
fn is_of_program(running: &Running) -> bool {
    const OTHERS: [&str; 7] = [
        "torch/",
        "nn.Module:",
        "<built-in",
        "<frozen",
        "contextlib.py",
        "threading.py",
        "runpy.py",
    ];
    running.kind == RunningKind::Python
        && !OTHERS.iter().any(|other| running.name.starts_with(other))
        && !running.name.contains("-packages/")
        && running.name.contains("): ")
}

fn step_answers(device: &DeviceProfile, steps: &[Step]) -> Vec<StepAnswer> {
    let answers = steps.iter().filter_map(|step| {
        Some(StepAnswer {
            name: step.name.clone(),
            peak_bytes: device.most_between(step.start_ns, step.end_ns)?,
            end_bytes: device.at(step.end_ns)?.allocated,
        })
    });
    answers.collect()
}

/// Bytes that each step after the first leaves, on average, if each leaves some. The first makes what stays, such as the
/// state of an optimizer.
fn growth(steps: &[StepAnswer]) -> Option<u64> {
    /// Fewer steps do not show a trend.
    const FEWEST: usize = 3;
    let (first, last) = (steps.first()?, steps.last()?);
    let grows = |pair: &[StepAnswer]| match pair {
        [before, after] => after.end_bytes > before.end_bytes,
        _ => false,
    };
    let is_growing = steps.len() >= FEWEST && steps.windows(2).all(grows);
    let grown = last.end_bytes.saturating_sub(first.end_bytes);
    let count = u64::try_from(steps.len()).unwrap_or(u64::MAX);
    let per_step = grown.checked_div(count.saturating_sub(1))?;
    is_growing.then_some(per_step)
}

#[cfg(test)]
mod tests;
