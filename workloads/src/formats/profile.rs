//! What a profiler recorded about memory: how much was allocated and reserved over time.
//!
//! | file | content |
//! |---|---|
//! | a trace of `torch.profiler` with `profile_memory=True` | both amounts at each allocation and free, with the operators (`kineto.rs`) |
//! | a file of `export_memory_timeline` | the allocated amount by category (`timeline.rs`) |
//!
//! Neither has the segments of the allocator, so a profile cannot be replayed.

mod kineto;
mod operators;
mod timeline;

use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;

use super::file::{FileError, InputFile};
use super::foreign::contains;
use super::source::Source;

/// A profile of memory.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Profile {
    /// The devices with any memory event, in the order of their kinds and numbers. CPUs are left out.
    pub devices: Vec<DeviceProfile>,
    /// The steps of the program, in order of time. If the profiler marks no steps, they are those of the optimizers.
    pub steps: Vec<Step>,
    /// What is missing or unusual, one sentence each.
    pub remarks: Vec<String>,
}

/// The memory of one device over time.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct DeviceProfile {
    /// The device; none if the file does not tell.
    pub device: Option<Device>,
    /// The name of its model, such as `NVIDIA H100 80GB HBM3`, if recorded.
    pub model: Option<String>,
    /// Bytes of its memory, if recorded.
    pub total_bytes: Option<u64>,
    /// The amounts after each event, in order of time.
    pub points: Vec<Point>,
    /// What ran when most was allocated, outermost first; empty if unknown.
    pub running_at_peak: Vec<Running>,
    /// What was allocated while the profiler ran and was live when most was allocated, by operator, largest first.
    pub by_operator: Vec<NamedBytes>,
    /// What was allocated at the peak by category, such as `PARAMETER`, largest first; empty if not recorded.
    pub by_category: Vec<NamedBytes>,
}

/// A device, as `torch.device` names it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Device {
    /// The number of its kind, a `c10::DeviceType`.
    pub kind: u8,
    /// Its number.
    pub number: u32,
}

/// The amounts after an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Point {
    /// Nanoseconds, on the clock of the file.
    pub time_ns: i64,
    /// Bytes in live allocations.
    pub allocated: u64,
    /// Bytes that the allocator holds, if recorded.
    pub reserved: Option<u64>,
}

/// A step of the program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// Its name, such as `ProfilerStep#3`.
    pub name: String,
    /// Nanoseconds.
    pub start_ns: i64,
    /// Nanoseconds.
    pub end_ns: i64,
}

/// A function or an operator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Running {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: RunningKind,
}

/// What runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RunningKind {
    /// An operator of PyTorch.
    Operator,
    /// A part of the program that has a name (`record_function`).
    Annotation,
    /// A function in Python.
    Python,
}

/// An amount of memory and what it belongs to.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct NamedBytes {
    /// What it belongs to; empty if unknown.
    pub name: String,
    /// Bytes.
    pub bytes: u64,
}

impl Device {
    /// The kinds by number. Source: c10/core/DeviceType.h of PyTorch 2.11. ROCm is reported as `cuda`.
    #[rustfmt::skip]
    const KINDS: [&str; 21] = [
        "cpu", "cuda", "mkldnn", "opengl", "opencl", "ideep", "hip", "fpga", "maia", "xla",
        "vulkan", "metal", "xpu", "mps", "meta", "hpu", "ve", "lazy", "ipu", "mtia",
        "privateuseone",
    ];

    /// Whether it is the memory of the host.
    fn is_cpu(self) -> bool {
        self.kind == 0
    }

    /// Whether the properties of CUDA devices in a trace are about it.
    fn is_cuda(self) -> bool {
        matches!(self.kind, 1 | 6)
    }
}

/// `cuda:0`
impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = Self::KINDS.get(usize::from(self.kind));
        write!(f, "{}:{}", kind.unwrap_or(&"device"), self.number)
    }
}

impl DeviceProfile {
    /// The first point at which most is allocated.
    #[must_use]
    pub fn peak_allocated(&self) -> Option<Point> {
        let points = self.points.iter().rev();
        points.max_by_key(|point| point.allocated).copied()
    }

    /// The first point at which most is reserved; none if that is not recorded.
    #[must_use]
    pub fn peak_reserved(&self) -> Option<Point> {
        let points = self.points.iter().rev();
        let recorded = points.filter(|point| point.reserved.is_some());
        recorded.max_by_key(|point| point.reserved).copied()
    }

    /// The last point up to a time, in nanoseconds.
    #[must_use]
    pub fn at(&self, time_ns: i64) -> Option<Point> {
        let behind = self
            .points
            .partition_point(|point| point.time_ns <= time_ns);
        self.points.get(behind.checked_sub(1)?).copied()
    }

    /// The most bytes allocated from one time up to another, in nanoseconds.
    #[must_use]
    pub fn most_between(&self, start_ns: i64, end_ns: i64) -> Option<u64> {
        let within = |point: &&Point| (start_ns..=end_ns).contains(&point.time_ns);
        let inside = self.points.iter().filter(within);
        let before = self.at(start_ns);
        inside
            .chain(before.iter())
            .map(|point| point.allocated)
            .max()
    }
}

/// The forms of a file that may be a profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    Kineto,
    Timeline,
    RawTimeline,
}

impl Form {
    /// The form of an unpacked file with this start.
    fn of(start: &[u8]) -> Option<Self> {
        let mut rest = start.trim_ascii_start();
        let mut next = || {
            let (&first, behind) = rest.split_first()?;
            rest = behind.trim_ascii_start();
            Some(first)
        };
        match (next()?, next()?) {
            (b'{', _) => {
                let keys: [&[u8]; 2] = [b"\"traceEvents\"", b"\"schemaVersion\""];
                let is_trace = keys.iter().any(|key| contains(start, key));
                is_trace.then_some(Self::Kineto)
            }
            // A trace without the object around its events.
            (b'[', b'{') if contains(start, b"\"ph\"") => Some(Self::Kineto),
            (b'[', b'[') => {
                // The second list is a list of lists, unless the first is an event.
                let end = start.iter().position(|&byte| byte == b']');
                let second = end.and_then(|end| start.get(end..));
                let is_list = |byte: &u8| *byte == b'[';
                let mut second = second
                    .unwrap_or_default()
                    .iter()
                    .skip_while(|byte| !is_list(byte));
                let is_event = second.nth(1).is_some_and(|byte| !is_list(byte));
                Some(if is_event {
                    Self::RawTimeline
                } else {
                    Self::Timeline
                })
            }
            _ => None,
        }
    }
}

/// Whether an unpacked file with this start may be a profile.
pub(super) fn is_profile(start: &[u8]) -> bool {
    Form::of(start).is_some()
}

/// Reads a profile, plain or compressed; none if the file is of another kind.
///
/// # Errors
/// [`FileError`] if the file cannot be read, or is a profile that has nothing about the memory of a device.
pub fn read(source: impl Into<Source>) -> Result<Option<Profile>, FileError> {
    let file = InputFile::open(source)?;
    let is_one = is_profile(file.start());
    is_one.then(|| read_file(file)).transpose()
}

pub(super) fn read_file(file: InputFile) -> Result<Profile, FileError> {
    let path = file.path().to_owned();
    let profile = match Form::of(file.start()) {
        Some(Form::Timeline) => timeline::read(file),
        Some(Form::RawTimeline) => timeline::read_raw(file),
        Some(Form::Kineto) | None => kineto::read(file),
    };
    let profile = profile.map_err(|reason| FileError::new(&path, reason))?;
    if profile.devices.is_empty() {
        let reason = "a profile without memory events of a device; record one with \
                      torch.profiler.profile(profile_memory=True)";
        return Err(FileError::new(&path, reason));
    }
    Ok(profile)
}

/// The amounts of names, largest first; those of nothing are left out.
fn largest_first(amounts: impl IntoIterator<Item = (String, u64)>) -> Vec<NamedBytes> {
    let mut amounts: Vec<NamedBytes> = amounts
        .into_iter()
        .filter(|&(_, bytes)| bytes > 0)
        .map(|(name, bytes)| NamedBytes { name, bytes })
        .collect();
    amounts.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
    amounts
}
