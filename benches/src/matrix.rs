//! What `cargo bench` compares: every workload under a dozen settings of PyTorch's allocator, some of
//! them on a tight device, too.

use std::path::Path;

use allocator::driver::sim::GRANULARITY;
use anyhow::{Context, ensure};
use workloads::op::Workload;
use workloads::presets;
use workloads::trace::TraceFile;

/// The policy that is measured.
pub const POLICY: &str = "pytorch";

/// A setting, and how much memory there is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setting {
    /// What it is called in tables.
    pub name: &'static str,
    /// `PYTORCH_CUDA_ALLOC_CONF`.
    pub conf: &'static str,
    /// The device.
    pub memory: Memory,
}

/// How much memory the device has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Memory {
    /// More than anybody asks for: nothing is ever given back.
    Roomy,
    /// A share of what the workload asks for at its peak, in percent.
    Tight(u64),
}

impl Memory {
    /// Bytes for a workload that asks for `peak_requested` at its peak.
    #[must_use]
    pub fn capacity(self, peak_requested: u64) -> u64 {
        match self {
            Self::Roomy => 1 << 40,
            Self::Tight(percent) => {
                let share = u128::from(peak_requested) * u128::from(percent) / 100;
                let share = u64::try_from(share).unwrap_or(u64::MAX);
                share.checked_next_multiple_of(GRANULARITY).unwrap_or(share)
            }
        }
    }
}

impl Setting {
    /// The setting of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        SETTINGS.into_iter().find(|setting| setting.name == name)
    }

    /// Whether the device has little more than is asked for.
    #[must_use]
    pub fn is_tight(&self) -> bool {
        self.memory != Memory::Roomy
    }
}

const fn roomy(name: &'static str, conf: &'static str) -> Setting {
    Setting {
        name,
        conf,
        memory: Memory::Roomy,
    }
}

/// A device with a tenth more than the program ever asks for.
const fn tight(name: &'static str, conf: &'static str) -> Setting {
    Setting {
        name,
        conf,
        memory: Memory::Tight(110),
    }
}

/// The settings, in the order in which they are shown. The collector needs a limit, and a limit of
/// everything is none.
pub const SETTINGS: [Setting; 15] = [
    roomy("default", ""),
    roomy("split64", "max_split_size_mb:64"),
    roomy("split128", "max_split_size_mb:128"),
    roomy("split256", "max_split_size_mb:256"),
    roomy("split512", "max_split_size_mb:512"),
    roomy("round4", "roundup_power2_divisions:4"),
    roomy("round8", "roundup_power2_divisions:8"),
    roomy(
        "roundlst",
        "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]",
    ),
    roomy("seg64", "large_segment_size_mb:64"),
    roomy("expand", "expandable_segments:True"),
    roomy("exp+s128", "expandable_segments:True,max_split_size_mb:128"),
    tight("default@110", ""),
    tight("split64@110", "max_split_size_mb:64"),
    tight(
        "gc0.8@110",
        "garbage_collection_threshold:0.8,per_process_memory_fraction:0.999",
    ),
    tight("expand@110", "expandable_segments:True"),
];

/// The recorded traces in `folder`, by name, and then the presets of the families. A trace that cannot
/// be read is an error in its place.
///
/// # Errors
/// If the folder cannot be read or has no traces.
pub fn workloads(folder: &Path) -> anyhow::Result<Vec<anyhow::Result<Box<dyn Workload>>>> {
    let cannot = || format!("cannot read {}", folder.display());
    let mut files = Vec::new();
    for entry in folder.read_dir().with_context(cannot)? {
        let path = entry.with_context(cannot)?.path();
        if path.to_string_lossy().ends_with(".csv.gz") {
            files.push(path);
        }
    }
    files.sort();
    ensure!(!files.is_empty(), "no traces in {}", folder.display());
    let mut workloads: Vec<anyhow::Result<Box<dyn Workload>>> = Vec::new();
    for file in files {
        let trace = TraceFile::open(file).map_err(Into::into);
        workloads.push(trace.map(|trace| Box::new(trace) as Box<dyn Workload>));
    }
    workloads.extend(presets::all().into_iter().map(Ok));
    Ok(workloads)
}
