//! Programs in the formats of other tools.

use anyhow::Context;
use coalesce_alloc::PyTorch;
use coalesce_alloc::WithHistory;
use coalesce_alloc::driver::sim::address::AddressPolicy;
use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::history::HistoryOptions;
use coalesce_alloc::policy;
use coalesce_alloc::settings::Settings;
use coalesce_alloc::snapshot::Snapshot;
use coalesce_workloads::formats::minimalloc::{self, Instance};
use coalesce_workloads::formats::pickle;
use coalesce_workloads::formats::{rmm, trace};
use coalesce_workloads::op::Workload;
use coalesce_workloads::replay::replay;
use serde_json::Map;

use crate::measure::cell;

/// What to write.
#[derive(Clone, Copy, Debug)]
pub enum Format<'a> {
    /// A trace of ours.
    Trace,
    /// A log as of RMM's `logging_resource_adaptor`.
    RmmLog,
    /// An instance of offline placement, in multiples of `unit` bytes.
    MiniMalloc {
        /// In bytes, at least 1.
        unit: u64,
    },
    /// A memory snapshot of what an allocator made of the program.
    Snapshot(Replayed<'a>),
}

/// The allocator that a program is replayed with.
#[derive(Clone, Copy, Debug)]
pub struct Replayed<'a> {
    /// Its name.
    pub policy: &'a str,
    /// Its settings; of the reference, `PYTORCH_CUDA_ALLOC_CONF`.
    pub conf: &'a str,
    /// Bytes of the device.
    pub capacity: u64,
    /// How the device places memory.
    pub address_policy: AddressPolicy,
}

/// A program in another format.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Converted {
    /// The file.
    pub bytes: Vec<u8>,
    /// Operations that the format has no word for.
    pub left_out: u64,
}

/// Writes `workload` in another format.
///
/// # Errors
/// If it cannot be read; of a snapshot, if there is no such policy, its settings are wrong or it fails.
pub fn convert(workload: &dyn Workload, format: &Format<'_>) -> anyhow::Result<Converted> {
    let mut bytes = Vec::new();
    let left_out = match format {
        Format::Trace => {
            let name = workload.name().into();
            let header = Map::from_iter([("name".to_owned(), name)]);
            trace::write(workload, &header, &mut bytes)?
        }
        Format::RmmLog => rmm::write(workload, &mut bytes)?,
        Format::MiniMalloc { unit } => {
            let instance = Instance::of(workload, *unit)?;
            minimalloc::write(&instance, None, &mut bytes)?;
            0
        }
        Format::Snapshot(replayed) => {
            pickle::to_writer(&replayed.snapshot(workload)?, &mut bytes)?;
            0
        }
    };
    Ok(Converted { bytes, left_out })
}

impl Replayed<'_> {
    /// What a snapshot at the end of the program would show, with its whole history. Requests that find
    /// no memory do not end it.
    ///
    /// # Errors
    /// If there is no such policy, its settings are wrong, the workload cannot be read, or the allocator
    /// fails other than for lack of memory.
    pub fn snapshot(&self, workload: &dyn Workload) -> anyhow::Result<Snapshot> {
        const REFERENCE: &str = "pytorch";
        let device = SimDevice::new(&SimConfig {
            address_policy: self.address_policy,
            ..SimConfig::with_capacity(self.capacity)
        });
        let told = || format!("{}, {}", workload.name(), self.policy);
        if self.policy == REFERENCE {
            // It has a history of its own, which knows more than one that is kept from outside.
            let settings = Settings::from_conf(self.conf)?;
            let mut allocator = PyTorch::new(device, settings);
            allocator.record_history(Some(HistoryOptions::default()));
            replay(workload, &mut allocator, &mut ()).with_context(told)?;
            return Ok(allocator.snapshot());
        }
        let allocator = match cell::plan(self.policy, self.conf, workload)? {
            Some(plan) => plan.build(device),
            None => policy::build(self.policy, device, self.conf)?,
        };
        let mut traced = WithHistory::new(allocator, HistoryOptions::default());
        replay(workload, &mut traced, &mut ()).with_context(told)?;
        Ok(traced.snapshot())
    }
}
