//! The table of policies, and building an allocator by name.

use std::sync::Arc;

use crate::allocator::Allocator;
use crate::driver::Driver;
use crate::lifetimes::Lifetimes;
use crate::managed::Managed;
use crate::policy::Policy;
use crate::policy::planned::{AllocationPlan, Planned};
use crate::policy::settings::{PolicySettings, PolicySettingsError};
use crate::pytorch::PyTorch;
use crate::settings::{Settings, SettingsError};

/// An entry of the table of policies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PolicyInfo {
    /// Name on the command line and in results.
    pub name: &'static str,
    /// What it is, in a line.
    pub summary: &'static str,
    /// Whether it must know the workload in advance: [`plan_offline`] builds it.
    pub offline: bool,
    /// Whether it has private pools, which CUDA graphs need.
    pub private_pools: bool,
}

impl PolicyInfo {
    /// Whether it serves requests, or large ones, only on devices with
    /// [virtual memory](Driver::virtual_memory).
    #[must_use]
    pub fn needs_virtual_memory(&self) -> bool {
        matches!(self.name, "cuda_async" | "gmlake" | "quilt" | "vpmm")
    }
}

macro_rules! policies {
    (@has) => { false };
    (@has private_pools) => { true };
    (
        $($name:literal, $summary:literal => $module:ident::$policy:ident $(, $pools:ident)?;)+
        offline:
        $($planner:literal, $plan_summary:literal => $plan_module:ident::$plan:ident;)+
    ) => {
        /// All policies, the reference first.
        pub const POLICIES: &[PolicyInfo] = &[
            PolicyInfo {
                name: "pytorch",
                summary: "the caching allocator of PyTorch 2.6 to 2.15 (native backend), with all its settings",
                offline: false,
                private_pools: true,
            },
            $(PolicyInfo {
                name: $name,
                summary: $summary,
                offline: false,
                private_pools: policies!(@has $($pools)?),
            },)+
            $(PolicyInfo {
                name: $planner,
                summary: $plan_summary,
                offline: true,
                private_pools: false,
            },)+
        ];

        /// Builds the policy `name` with the settings string `conf`. It does not depend on the driver, so it is compiled
        /// once. The reference is not a `Policy`.
        fn policy(name: &str, conf: &str) -> Result<(&'static str, Box<dyn Policy>), BuildError> {
            match name {
                $($name => PolicySettings::read(conf, crate::policy::$module::$policy::from_settings)
                    .map(|policy| ($name, Box::new(policy) as Box<dyn Policy>))
                    .map_err(settings_error($name)),)+
                $($planner => Err(BuildError::Offline { policy: $planner }),)+
                _ => Err(BuildError::UnknownPolicy { name: name.to_owned() }),
            }
        }

        /// Plans a workload with the offline policy `name`; returns `None` for all other policies. All
        /// the work is done here: [`OfflinePlan::build`] is quick.
        ///
        /// # Errors
        /// If the policy does not take the settings.
        pub fn plan_offline(
            name: &str,
            conf: &str,
            lifetimes: &Lifetimes,
        ) -> Result<Option<OfflinePlan>, BuildError> {
            let (policy, plan) = match name {
                $($planner => ($planner, crate::policy::$plan_module::$plan(conf, lifetimes)),)+
                _ => return Ok(None),
            };
            let plan = Arc::new(plan.map_err(settings_error(policy))?);
            Ok(Some(OfflinePlan { policy, plan }))
        }
    };
}

policies! {
    "direct", "every malloc and free goes to the device: no caching" => direct::Direct;
    "cuda_async", "the driver's stream-ordered pool (cudaMallocAsync), or a model of it on devices without one" => cuda_async::CudaAsync;
    "bfc", "best fit with coalescing: the allocator of TensorFlow, XLA and JAX" => bfc::Bfc;
    "bfc_two_ended", "bfc from both ends of one arena, as in JAX since 2026" => bfc_two_ended::BfcTwoEnded;
    "rmm_pool", "RMM's pool: best fit in large chunks, a free list for each stream" => rmm_pool::RmmPool;
    "rmm_arena", "RMM's arena: one region, first fit, superblocks lent to streams" => rmm_arena::RmmArena;
    "rmm_binning", "RMM's bins of 256 KiB to 4 MiB over its pool" => rmm_binning::RmmBinning;
    "buddy", "the binary buddy system: power-of-two blocks, split in halves and merged" => buddy::Buddy;
    "tlsf", "two-level segregated fit in blocks, as in the Vulkan Memory Allocator" => tlsf::Tlsf;
    "cubecl_sliced", "CubeCL 0.10: slices of pages of several sizes, first fit" => cubecl::Sliced;
    "cubecl_exclusive", "CubeCL 0.10: a page for each request, in buckets by size" => cubecl::Exclusive;
    "cupy", "the memory pool of CuPy 14: best fit, always split to size" => cupy::Cupy;
    "paddle_auto_growth", "the default of PaddlePaddle 3: best fit, split from the high end" => paddle_auto_growth::PaddleAutoGrowth;
    "offset_allocator", "the crate offset-allocator (256 bins) over blocks of device memory" => offset_allocator::OffsetAllocator;
    "gmlake", "GMLake: maps free memory a second time to stitch it into larger blocks" => gmlake::GmLake;
    "quilt", "maps free memory at additional addresses" => quilt::Quilt, private_pools;
    "vpmm", "OpenVM's VPMM: pages that are mapped again to join free memory" => vpmm::Vpmm;
    offline:
    "offline", "places every request in advance, with the best of several packers" => offline::plan;
    "stalloc", "STAlloc: plans two iterations in advance and repeats the second" => stalloc::plan;
}

/// Builds an allocator with the policy `name` and the settings string `conf`.
///
/// # Errors
/// If no policy has this name, it does not take the settings, or it is an offline policy.
pub fn build<D: Driver + 'static>(
    name: &str,
    driver: D,
    conf: &str,
) -> Result<Box<dyn Allocator<Driver = D>>, BuildError> {
    if name == "pytorch" {
        return Ok(Box::new(PyTorch::new(driver, reference_settings(conf)?)));
    }
    let (name, policy) = policy(name, conf)?;
    Ok(Box::new(Managed::boxed(name, policy, driver)))
}

/// Checks that the policy `name` takes the settings string `conf`.
///
/// # Errors
/// If no policy has this name, or it does not take the settings.
pub fn check_conf(name: &str, conf: &str) -> Result<(), BuildError> {
    if name == "pytorch" {
        return reference_settings(conf).map(drop);
    }
    match plan_offline(name, conf, &Lifetimes::default())? {
        Some(_) => Ok(()),
        None => policy(name, conf).map(drop),
    }
}

/// What an offline policy planned for a workload. Any number of allocators can follow it.
#[derive(Clone, Debug)]
pub struct OfflinePlan {
    policy: &'static str,
    plan: Arc<AllocationPlan>,
}

impl OfflinePlan {
    /// Builds an allocator that follows the plan.
    #[must_use]
    pub fn build<D: Driver + 'static>(&self, driver: D) -> Box<dyn Allocator<Driver = D>> {
        Box::new(Managed::boxed(self.policy, self.follower(), driver))
    }

    fn follower(&self) -> Box<dyn Policy> {
        Box::new(Planned::new(Arc::clone(&self.plan)))
    }
}

fn reference_settings(conf: &str) -> Result<Settings, BuildError> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::StreamId;
    use crate::driver::sim::{SimConfig, SimDevice};
    use crate::error::Error;

    #[test]
    fn only_some_policies_need_virtual_memory() {
        for policy in POLICIES.iter().filter(|policy| !policy.offline) {
            let device = SimDevice::new(&SimConfig {
                virtual_memory: false,
                ..SimConfig::default()
            });
            let mut allocator = build(policy.name, device, "").unwrap();
            let answer = allocator.malloc(64 << 20, StreamId::DEFAULT);
            let unsupported = matches!(answer, Err(Error::Unsupported { .. }));
            assert_eq!(unsupported, policy.needs_virtual_memory(), "{answer:?}");
            assert!(unsupported || answer.is_ok(), "{answer:?}");
        }
    }
}
