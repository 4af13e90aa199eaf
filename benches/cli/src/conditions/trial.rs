//! Replays a recording to see whether requests fail as recorded.

use std::path::Path;

use coalesce_alloc::driver::sim::address::AddressPolicy;
use coalesce_bench::measure::cell::{Cell, REFERENCE};
use coalesce_bench::measure::profile::{PUBLISHED, Profile};
use coalesce_workloads::demand::Demand;
use coalesce_workloads::formats::snapshot::limit::MemoryLimit;
use coalesce_workloads::formats::snapshot::workload::FAILED;
use coalesce_workloads::input::Input;
use coalesce_workloads::op::{Op, WorkloadError};
use coalesce_workloads::replay::{Observer, Outcome, Step};

/// Replays a recording under its own settings, to see whether requests fail as recorded.
pub(super) struct Trial<'a> {
    input: &'a Input,
    conf: String,
    addresses: AddressPolicy,
    profile: Profile,
}

impl<'a> Trial<'a> {
    pub fn of(input: &'a Input, addresses: AddressPolicy) -> anyhow::Result<Self> {
        let recording = input.recording.as_ref();
        let settings = recording.and_then(|recording| recording.settings().ok());
        Ok(Self {
            input,
            conf: settings.map_or_else(String::new, |known| known.conf),
            addresses,
            profile: Profile::load(PUBLISHED, Path::new(""))?,
        })
    }

    /// The bytes within a bracket for which requests fail as recorded: the fewest possible if those do, else the
    /// most. `device` tells capacity and limit for a number of bytes.
    pub fn reproducing(
        &self,
        found: &MemoryLimit,
        device: impl Fn(u64) -> (u64, Option<u64>),
    ) -> anyhow::Result<u64> {
        let (capacity, limit) = device(found.at_least);
        match self.fails_as_recorded(capacity, limit)? {
            true => Ok(found.at_least),
            false => Ok(found.below - 1),
        }
    }

    fn fails_as_recorded(&self, capacity: u64, limit: Option<u64>) -> anyhow::Result<bool> {
        let cell = Cell {
            workload: &*self.input.workload,
            demand: Demand::default(),
            policy: REFERENCE,
            setting: &self.conf,
            conf: &self.conf,
            plan: None,
            others: 0,
            limit,
            address_policy: self.addresses,
            profile: &self.profile,
        };
        let mut watch = UntilDifferent { differs: false };
        match cell.run(capacity, &mut watch) {
            Ok(_) => Ok(true),
            Err(_) if watch.differs => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Ends a replay at the first request that fails and did not when recorded, or the other way round.
struct UntilDifferent {
    differs: bool,
}

impl Observer for UntilDifferent {
    fn after(&mut self, step: &Step<'_>) -> Result<(), WorkloadError> {
        let Op::Malloc { tag, .. } = step.op else {
            return Ok(());
        };
        self.differs = (step.outcome == Outcome::OutOfMemory) != tag.starts_with(FAILED);
        match self.differs {
            true => Err(WorkloadError::Stopped(
                "differs from the recording".to_owned(),
            )),
            false => Ok(()),
        }
    }
}
