//! The file that describes a sweep.
//!
//! ```toml
//! # What it shows.
//! profile = "published"                    # what driver calls cost; or the path of a file
//!
//! [settings]                               # names for settings: of pytorch, PYTORCH_CUDA_ALLOC_CONF
//! default = ""
//! split64 = "max_split_size_mb:64"
//!
//! [[workload]]
//! traces = "../workloads/traces"           # a trace, or a folder of traces
//! [[workload]]
//! presets = ["transformer_gpt2_small"]     # or "all"
//! [[workload]]
//! preset = "transformer_gpt2_small"        # one, with other parameters
//! name = "gpt2_batch_16"
//! with = { batch = 16 }
//! [[workload]]
//! family = "fragmentation"
//! name = "holes"
//! with = { blocks = 100, bytes = "1MiB" }
//!
//! [[run]]                                  # all combinations of what stands in it
//! settings = ["default"]                   # all settings, if it is not there
//! capacities = ["1TiB", "110%", "least"]   # 1TiB
//! policies = ["pytorch"]                   # pytorch
//! addresses = ["up"]                       # up; or down, firstfit
//! families = ["recorded"]                  # all workloads; or those of these families alone
//! seeds = [1, 2, 3]                        # those of the workloads themselves
//! timing = 15                              # timed runs of each cell: none
//! ```
//!
//! Paths count from the folder of the file.

use std::path::PathBuf;

use serde::Deserialize;
use toml::Table;

/// A sweep as it is written down.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// What driver calls cost.
    #[serde(default = "published")]
    pub profile: String,
    /// Settings of policies by name.
    pub settings: Table,
    /// What is run.
    pub workload: Vec<WorkloadSpec>,
    /// How.
    pub run: Vec<RunSpec>,
}

/// One entry of workloads: exactly one of the first four says which.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorkloadSpec {
    /// A trace, or a folder of traces.
    pub traces: Option<PathBuf>,
    /// Presets as they are.
    pub presets: Option<Presets>,
    /// A preset with other parameters.
    pub preset: Option<String>,
    /// A family with parameters.
    pub family: Option<String>,
    /// What a preset or a member of a family is called in results.
    pub name: Option<String>,
    /// Parameters.
    pub with: Table,
}

/// Which presets.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Presets {
    /// These.
    Named(Vec<String>),
    /// `"all"`.
    All(String),
}

/// One entry of runs.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunSpec {
    /// Names of settings; all of them, if there are none here.
    pub settings: Option<Vec<String>>,
    /// Devices.
    pub capacities: Vec<String>,
    /// Policies.
    pub policies: Vec<String>,
    /// Families of the workloads that it is about; all workloads, if there are none here.
    pub families: Option<Vec<String>>,
    /// How devices place memory.
    pub addresses: Vec<String>,
    /// Seeds for workloads that have one; their own, if there are none here.
    pub seeds: Vec<u64>,
    /// Timed runs of each cell.
    pub timing: u32,
}

impl Default for RunSpec {
    fn default() -> Self {
        Self {
            settings: None,
            capacities: vec!["1TiB".to_owned()],
            policies: vec!["pytorch".to_owned()],
            families: None,
            addresses: vec!["up".to_owned()],
            seeds: Vec::new(),
            timing: 0,
        }
    }
}

fn published() -> String {
    crate::measure::profile::PUBLISHED.to_owned()
}
