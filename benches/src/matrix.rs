//! What `cargo bench` compares: every workload under a dozen settings of PyTorch's allocator.

use std::path::Path;

use allocator::allocator::Allocator;
use allocator::driver::sim::address::AddressPolicy;
use allocator::driver::sim::{GRANULARITY, SimConfig, SimDevice};
use allocator::policy;
use allocator::settings::Settings;
use anyhow::{Context, ensure};
use workloads::measure::Measures;
use workloads::op::Workload;
use workloads::presets;
use workloads::replay::{Observer, replay};
use workloads::trace::TraceFile;

use crate::record::{Key, Row};

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
                let share = u64::try_from(share).unwrap_or(u64::MAX / 2);
                share.next_multiple_of(GRANULARITY)
            }
        }
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

/// The recorded traces in `folder`, by name, and then the presets of the families.
///
/// # Errors
/// If the folder cannot be read or a trace in it is none.
pub fn workloads(folder: &Path) -> anyhow::Result<Vec<Box<dyn Workload>>> {
    let mut files = Vec::new();
    let entries = folder.read_dir();
    for entry in entries.with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        if path.to_string_lossy().ends_with(".csv.gz") {
            files.push(path);
        }
    }
    files.sort();
    ensure!(!files.is_empty(), "no traces in {}", folder.display());
    let mut workloads: Vec<Box<dyn Workload>> = Vec::new();
    for file in files {
        workloads.push(Box::new(TraceFile::open(file)?));
    }
    workloads.extend(presets::all());
    Ok(workloads)
}

/// A cell of the matrix: what is run, and on what.
#[derive(Clone, Copy)]
pub struct Cell<'a> {
    /// The workload.
    pub workload: &'a dyn Workload,
    /// The policy's name.
    pub policy: &'a str,
    /// The setting's name, for the row.
    pub setting: &'a str,
    /// `PYTORCH_CUDA_ALLOC_CONF`.
    pub conf: &'a str,
    /// Bytes of the device.
    pub capacity: u64,
    /// How the device places memory.
    pub address_policy: AddressPolicy,
}

impl Cell<'_> {
    /// Runs it and checks what came of it: all memory must have been given back by the program, and
    /// the allocator's state must be sound, so that a wrong allocator cannot look good.
    ///
    /// # Errors
    /// If the workload cannot be read, the settings are wrong, the allocator fails, or its state is
    /// not sound.
    pub fn run(&self, observer: &mut dyn Observer) -> anyhow::Result<Row> {
        let name = self.workload.name();
        let mut allocator = self.build()?;
        let tally = replay(self.workload, allocator.as_mut(), observer)
            .with_context(|| format!("{name}, {}", self.setting))?;
        allocator
            .check()
            .with_context(|| format!("{name}, {}: the allocator is broken", self.setting))?;
        let key = Key {
            workload: name.to_owned(),
            policy: self.policy.to_owned(),
            setting: self.setting.to_owned(),
            conf: self.conf.to_owned(),
            capacity: self.capacity,
            address_policy: self.address_policy.name().to_owned(),
        };
        Ok(Row::new(key, tally, &Measures::of(allocator.stats())))
    }

    /// The allocator that the cell is about.
    ///
    /// # Errors
    /// If there is no such policy or the settings are wrong.
    pub fn build(&self) -> anyhow::Result<Box<dyn Allocator<Driver = SimDevice>>> {
        let settings = Settings::from_conf(self.conf)
            .with_context(|| format!("PYTORCH_CUDA_ALLOC_CONF '{}'", self.conf))?;
        let device = SimDevice::new(&SimConfig {
            address_policy: self.address_policy,
            ..SimConfig::with_capacity(self.capacity)
        });
        Ok(policy::build(self.policy, device, settings)?)
    }
}
