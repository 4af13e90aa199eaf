//! The format of the file that describes a sweep.
//!
//! ```toml
//! # What the sweep shows.
//! profile = "published"                    # cost of driver calls; or the path of a file
//!
//! [settings]                               # settings strings by name; default: the next line
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
//! [[run]]                                  # all combinations of its values
//! settings = ["default"]                   # default: all settings
//! capacities = ["1TiB", "110%", "least"]   # default: 1TiB; least: minimum device memory
//! policies = ["pytorch"]                   # default: pytorch; plugin:PATH is a library,
//!                                          # others all policies that no other run has
//! addresses = ["up"]                       # default: up; or down, firstfit, cuda
//! torch = ["2.11", "2.15"]                 # releases that pytorch reproduces; default: the newest
//! families = ["recorded"]                  # default: workloads of all families
//! seeds = [1, 2, 3]                        # default: the seeds of the workloads
//! timing = 15                              # timed runs of each cell; default: none
//! ```
//!
//! Paths are relative to the folder of the file.

use std::path::PathBuf;

use coalesce_alloc::release::Release;
use serde::Deserialize;
use toml::Table;

/// A sweep file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// Cost profile: `published` or a file.
    #[serde(default = "published")]
    pub profile: String,
    /// Settings strings by name; without any, `default` is empty.
    #[serde(default)]
    pub settings: Table,
    /// Workloads; at least one.
    #[serde(default)]
    pub workload: Vec<WorkloadSpec>,
    /// How to run them; at least one.
    #[serde(default)]
    pub run: Vec<RunSpec>,
}

/// One or several workloads. Exactly one of the first four fields is set.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorkloadSpec {
    /// A trace, or a folder of traces.
    pub traces: Option<PathBuf>,
    /// Unmodified presets.
    pub presets: Option<Presets>,
    /// A preset with other parameters.
    pub preset: Option<String>,
    /// A family with parameters.
    pub family: Option<String>,
    /// Name of the workload in results.
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

/// Stands for the policies that no other run has.
pub const OTHERS: &str = "others";

/// Combinations to run.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunSpec {
    /// Names of settings; by default all.
    pub settings: Option<Vec<String>>,
    /// Capacities.
    pub capacities: Vec<String>,
    /// Policies, libraries, and [`OTHERS`].
    pub policies: Vec<String>,
    /// Families of workloads; by default all.
    pub families: Option<Vec<String>>,
    /// Address policies.
    pub addresses: Vec<String>,
    /// Releases of PyTorch, for the policy `pytorch`.
    pub torch: Vec<String>,
    /// Seeds for workloads that have one; by default their own.
    pub seeds: Vec<u64>,
    /// Number of timed runs of each cell.
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
            torch: vec![Release::DEFAULT.to_string()],
            seeds: Vec::new(),
            timing: 0,
        }
    }
}

fn published() -> String {
    crate::measure::profile::PUBLISHED.to_owned()
}
