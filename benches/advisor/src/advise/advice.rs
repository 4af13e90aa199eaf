//! The result. Written as JSON, its fields keep their names and meaning.

use coalesce_workloads::formats::snapshot::coverage::Coverage;
use schemars::JsonSchema;
use serde::Serialize;

use super::answer::Answer;
use super::check::RecordingCheck;
use super::in_time::{InOrder, InTime};
use super::others::OtherPolicy;
use super::peak::PeakBreakdown;
use super::request::Aim;
use super::search::SearchExtent;
use super::simulator::RunFigures;
use super::stability::Stability;
use crate::diagnose::Finding;
use crate::holders::Holdings;

/// Which settings to use, and why.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct Advice {
    /// The version of this format: 2.
    pub format: u32,
    /// The workload's name.
    pub workload: String,
    /// Its operations, marks included.
    pub events: u64,
    /// Its requests.
    pub allocations: u64,
    /// The peak of requested memory, a lower bound for every allocator.
    pub lower_bound_bytes: u64,
    /// Bytes of device memory.
    pub capacity_bytes: u64,
    /// Bytes of it that others hold.
    pub others_bytes: u64,
    /// Bytes in use beside PyTorch's allocator at the end of the recording: by CUDA, its libraries and other processes; none
    /// if it does not tell.
    pub beside_bytes: Option<u64>,
    /// What settings were chosen for.
    pub aim: Aim,
    /// The cost profile of driver time.
    pub profile: String,
    /// Where the device places memory: `up`, `down`, `firstfit` or `cuda`.
    pub addresses: &'static str,
    /// What to do, and why.
    pub answer: Answer,
    /// Whether the replay reproduces the recording; none without a recording.
    pub check: Option<RecordingCheck>,
    /// Problems in how the program uses its memory, largest first.
    pub findings: Vec<Finding>,
    /// Who holds memory when a request fails under the current settings, or else at the peak of requested
    /// memory.
    pub holdings: Holdings,
    /// What memory is used for at the peak on the device, under the current settings.
    pub peak: PeakBreakdown,
    /// The settings worth showing: the current ones first, then by the aim.
    pub ranking: Vec<RankedSettings>,
    /// What other policies would achieve.
    pub others: Vec<OtherPolicy>,
    /// How far the figures hold for the next run; none if there was no time or nothing to compare.
    pub stability: Option<Stability>,
    /// What the program could do at some of its lines, if that is better than all settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_time: Option<InTime>,
    /// What the program could create first, if that would be better than all settings and what it could do at lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_order: Option<InOrder>,
    /// Where settings, device memory, limit and addresses come from, one line each.
    pub conditions: Vec<String>,
    /// How much of the program is recorded; none without a recording.
    pub coverage: Option<Coverage>,
    /// What is unusual or unknown about the workload, one sentence each.
    pub remarks: Vec<String>,
    /// How much was searched.
    pub search: SearchExtent,
    /// What the time limit left out, in a few words each.
    pub skipped: Vec<String>,
}

/// Settings with their figures.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct RankedSettings {
    /// The settings string; empty for the defaults.
    pub conf: String,
    /// Whether these are the current settings.
    pub is_present: bool,
    /// Whether these are the advised settings.
    pub is_advised: bool,
    /// Aims that these settings are best for.
    pub best_for: Vec<Aim>,
    /// Whether they are Pareto-optimal: no other row is better in one of minimum memory, driver time and
    /// reserved memory and no worse in the others.
    pub on_front: bool,
    /// The minimum device memory, without what others hold; none if it was not found in time.
    pub least_capacity_bytes: Option<u64>,
    /// A lower bound of it; the same if it is known.
    pub least_capacity_at_least_bytes: u64,
    /// A larger amount of memory with which the program fails nevertheless, if one was found. Tested only for
    /// the current and the best settings.
    pub fails_above_bytes: Option<u64>,
    /// The peak of reserved memory on a roomy device.
    pub peak_reserved_bytes: u64,
    /// Figures on the given device.
    pub on_device: RunFigures,
    /// The rules of the findings that evaluated these settings.
    pub suggested_by: Vec<&'static str>,
    /// Why the allocator fails under the current settings; the figures mean nothing then.
    pub error: Option<String>,
}
