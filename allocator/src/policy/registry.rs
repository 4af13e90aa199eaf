//! The table of all policies, and making an allocator by name.

use std::sync::Arc;

use crate::allocator::Allocator;
use crate::driver::Driver;
use crate::lifetimes::Lifetimes;
use crate::managed::Managed;
use crate::pytorch::PyTorch;
use crate::settings::{Settings, SettingsError};

use super::planned::{AllocationPlan, Planned};
use super::settings::{PolicySettings, PolicySettingsError};
use super::stream_safe::StreamSafe;
use super::{
    bfc, bfc_two_ended, buddy, cubecl, cuda_async, cupy, direct, gmlake, offline, offset_allocator,
    paddle_auto_growth, rmm_arena, rmm_binning, rmm_pool, stalloc, tlsf,
};

/// A policy that can be made by name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PolicyInfo {
    /// What it is called on the command line and in results.
    pub name: &'static str,
    /// What it is, in a line.
    pub summary: &'static str,
    /// Whether it has to know the program in advance: [`plan_offline`] comes before.
    pub offline: bool,
}

macro_rules! policies {
    (
        $($name:literal, $summary:literal => $policy:ty;)+
        offline:
        $($planner:literal, $plan_summary:literal => $plan:path;)+
    ) => {
        /// All policies, the reference first.
        pub const POLICIES: &[PolicyInfo] = &[
            PolicyInfo {
                name: "pytorch",
                summary: "the caching allocator of PyTorch 2.11 (native backend), with all its settings",
                offline: false,
            },
            $(PolicyInfo { name: $name, summary: $summary, offline: false },)+
            $(PolicyInfo { name: $planner, summary: $plan_summary, offline: true },)+
        ];

        /// Makes an allocator of the policy called `name`, with its settings.
        ///
        /// # Errors
        /// If there is none of that name, the settings are wrong, or it has to know the program in
        /// advance.
        pub fn build<D: Driver + 'static>(
            name: &str,
            driver: D,
            conf: &str,
        ) -> Result<Box<dyn Allocator<Driver = D>>, BuildError> {
            match name {
                "pytorch" => {
                    let settings = settings(conf)?;
                    Ok(Box::new(PyTorch::new(driver, settings)))
                }
                $($name => {
                    let policy = PolicySettings::read(conf, <$policy>::from_settings)
                        .map_err(settings_error($name))?;
                    Ok(Box::new(Managed::new($name, policy, driver)))
                })+
                $($planner => Err(BuildError::Offline { policy: $planner }),)+
                _ => Err(BuildError::UnknownPolicy { name: name.to_owned() }),
            }
        }

        /// What the policy called `name` plans for a program, if it is one that plans ahead. This is
        /// where all its work is; [`OfflinePlan::build`] is quick.
        ///
        /// # Errors
        /// If the settings are wrong.
        pub fn plan_offline(
            name: &str,
            conf: &str,
            lifetimes: &Lifetimes,
        ) -> Result<Option<OfflinePlan>, BuildError> {
            let (policy, plan) = match name {
                $($planner => ($planner, $plan(conf, lifetimes).map_err(settings_error($planner))?),)+
                _ => return Ok(None),
            };
            Ok(Some(OfflinePlan { policy, plan: Arc::new(plan) }))
        }

        /// Whether the policy called `name` takes these settings.
        ///
        /// # Errors
        /// As [`build`].
        pub fn check_conf(name: &str, conf: &str) -> Result<(), BuildError> {
            match name {
                "pytorch" => settings(conf).map(|_| ()),
                $($name => PolicySettings::read(conf, <$policy>::from_settings)
                    .map(|_| ())
                    .map_err(settings_error($name)),)+
                $($planner => plan_offline(name, conf, &Lifetimes::default()).map(|_| ()),)+
                _ => Err(BuildError::UnknownPolicy { name: name.to_owned() }),
            }
        }
    };
}

policies! {
    "direct", "every malloc and free goes to the device: no caching" => direct::Direct;
    "cuda_async", "the driver's stream-ordered pool (cudaMallocAsync), or a model of it where there is none" => cuda_async::CudaAsync;
    "bfc", "best fit with coalescing: the allocator of TensorFlow, XLA and JAX" => bfc::Bfc;
    "bfc_two_ended", "bfc from both ends of one arena, as JAX has it since 2026" => bfc_two_ended::BfcTwoEnded;
    "rmm_pool", "RMM's pool: best fit in large pieces, a free list for each stream" => rmm_pool::RmmPool;
    "rmm_arena", "RMM's arena: one region, first fit, superblocks lent to streams" => rmm_arena::RmmArena;
    "rmm_binning", "RMM's bins of 256 KiB to 4 MiB over its pool" => rmm_binning::RmmBinning;
    "buddy", "the binary buddy system: powers of two, halved and joined" => buddy::Buddy;
    "tlsf", "two-level segregated fit in blocks, as in the Vulkan Memory Allocator" => tlsf::Tlsf;
    "cubecl_sliced", "CubeCL 0.10: slices of pages of several sizes, first fit" => cubecl::Sliced;
    "cubecl_exclusive", "CubeCL 0.10: a page for each request, in buckets of sizes" => cubecl::Exclusive;
    "cupy", "the memory pool of CuPy 14: best fit, always cut to size" => cupy::Cupy;
    "paddle_auto_growth", "the default of PaddlePaddle 3: best fit, cut from the high end" => StreamSafe<paddle_auto_growth::AutoGrowth>;
    "offset_allocator", "the crate offset-allocator (256 bins) over blocks of the device" => offset_allocator::OffsetAllocator;
    "gmlake", "GMLake: free memory in pieces, stitched to blocks by mapping it twice" => gmlake::GmLake;
    offline:
    "offline", "every request placed before the first, by the best of several packers" => offline::plan;
    "stalloc", "STAlloc's plan of two iterations, done over and over" => stalloc::plan;
}

/// What a policy that plans ahead made of a program: any number of allocators.
#[derive(Clone, Debug)]
pub struct OfflinePlan {
    policy: &'static str,
    plan: Arc<AllocationPlan>,
}

impl OfflinePlan {
    /// An allocator that carries the plan out.
    #[must_use]
    pub fn build<D: Driver + 'static>(&self, driver: D) -> Box<dyn Allocator<Driver = D>> {
        let policy = Planned::new(Arc::clone(&self.plan));
        Box::new(Managed::new(self.policy, policy, driver))
    }
}

fn settings(conf: &str) -> Result<Settings, BuildError> {
    Settings::from_conf(conf).map_err(|source| BuildError::PyTorch {
        conf: conf.to_owned(),
        source,
    })
}

fn settings_error(policy: &'static str) -> impl Fn(PolicySettingsError) -> BuildError {
    move |source| BuildError::Settings { policy, source }
}

/// Why an allocator cannot be made.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// No policy has this name.
    #[error("unknown policy '{name}'; expected one of: {}", names())]
    UnknownPolicy {
        /// The name given.
        name: String,
    },
    /// An offline policy, whose workload is not known: see [`plan_offline`].
    #[error("{policy} is an offline policy: it must know the workload in advance")]
    Offline {
        /// The policy.
        policy: &'static str,
    },
    /// PyTorch does not take this settings string.
    #[error("PYTORCH_CUDA_ALLOC_CONF '{conf}'")]
    PyTorch {
        /// The string.
        conf: String,
        /// Why not.
        source: SettingsError,
    },
    /// Another policy does not take its settings string.
    #[error("settings of {policy}")]
    Settings {
        /// The policy.
        policy: &'static str,
        /// Why not.
        source: PolicySettingsError,
    },
}

fn names() -> String {
    let names: Vec<_> = POLICIES.iter().map(|policy| policy.name).collect();
    names.join(", ")
}
