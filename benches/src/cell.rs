//! One measurement: a workload with a policy, its settings and a device.

use allocator::driver::sim::address::AddressPolicy;
use allocator::driver::sim::{SimConfig, SimDevice};
use allocator::policy;
use allocator::settings::Settings;
use anyhow::Context;
use workloads::measure::Measures;
use workloads::op::{Workload, WorkloadError};
use workloads::replay::{Observer, replay};

use crate::record::Row;

/// What is run, and on what.
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
    /// Runs it. The allocator's state must be sound at the end, so that a wrong allocator cannot look
    /// good.
    ///
    /// # Errors
    /// If there is no such policy, the settings are wrong, the workload cannot be read, the allocator
    /// fails other than for lack of memory, or its state is not sound.
    pub fn run(&self, observer: &mut dyn Observer) -> anyhow::Result<Row> {
        let name = self.workload.name();
        let settings = Settings::from_conf(self.conf)
            .with_context(|| format!("PYTORCH_CUDA_ALLOC_CONF '{}'", self.conf))?;
        let device = SimDevice::new(&SimConfig {
            address_policy: self.address_policy,
            ..SimConfig::with_capacity(self.capacity)
        });
        let mut allocator = policy::build(self.policy, device, settings)?;
        let tally = match replay(self.workload, allocator.as_mut(), observer) {
            Ok(tally) => tally,
            // It says where.
            Err(error @ WorkloadError::Trace(_)) => return Err(error.into()),
            Err(error) => {
                return Err(error).with_context(|| format!("{name}, {}", self.setting));
            }
        };
        allocator
            .check()
            .with_context(|| format!("{name}, {}: the allocator is broken", self.setting))?;
        let measures = Measures::of(allocator.stats());
        let efficiency = measures.efficiency().filter(|_| tally.ooms == 0);
        Ok(Row {
            workload: name.to_owned(),
            policy: self.policy.to_owned(),
            setting: self.setting.to_owned(),
            conf: self.conf.to_owned(),
            capacity_bytes: self.capacity,
            address_policy: self.address_policy.name().to_owned(),
            events: tally.events,
            allocations: measures.allocations,
            peak_requested_bytes: measures.peak_requested_bytes,
            peak_allocated_bytes: measures.peak_allocated_bytes,
            peak_active_bytes: measures.peak_active_bytes,
            peak_reserved_bytes: measures.peak_reserved_bytes,
            peak_inactive_split_bytes: measures.peak_inactive_split_bytes,
            // Six digits: a spreadsheet shows no more, and the file stays easy to compare.
            efficiency: efficiency.map(|share| (share * 1e6).round() / 1e6),
            device_allocs: measures.device_allocs,
            device_frees: measures.device_frees,
            syncs: measures.syncs,
            retries: measures.retries,
            ooms: tally.ooms,
            skipped_frees: tally.skipped_frees,
        })
    }
}
