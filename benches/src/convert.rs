//! Converts workloads to the formats of other tools.

use std::io::{self, Write};

use anyhow::{Context, bail};
use coalesce_alloc::PyTorch;
use coalesce_alloc::WithHistory;
use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::history::HistoryOptions;
use coalesce_alloc::registry;
use coalesce_alloc::settings::Settings;
use coalesce_alloc::snapshot::Snapshot;
use coalesce_workloads::budget::Budget;
use coalesce_workloads::conditions::ReplayConditions;
use coalesce_workloads::formats::minimalloc::{self, Instance};
use coalesce_workloads::formats::pickle;
use coalesce_workloads::formats::{Device, binary, rmm, trace};
use coalesce_workloads::keeping::Keeping;
use coalesce_workloads::op::Workload;
use coalesce_workloads::replay::replay;
use serde_json::Map;

use crate::measure::cell;

/// The format to write.
#[derive(Clone, Copy, Debug)]
pub enum Format<'a> {
    /// Our trace format.
    Trace,
    /// The same in binary form.
    BinaryTrace,
    /// A log of RMM's `logging_resource_adaptor`.
    RmmLog,
    /// An instance of offline placement, in multiples of `unit` bytes.
    MiniMalloc {
        /// In bytes, at least 1.
        unit: u64,
    },
    /// A memory snapshot of a replay.
    Snapshot(Replayed<'a>),
}

/// The content of a file in memory, within the budget of the input that it is made of.
struct Output {
    bytes: Vec<u8>,
    budget: Budget,
}

impl Output {
    fn of(workload: &dyn Workload) -> Self {
        Self {
            bytes: Vec::new(),
            budget: workload.budget(),
        }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = self.bytes.len() + bytes.len();
        self.budget.check(length as u64).map_err(io::Error::other)?;
        self.bytes.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The allocator and the device of a replay.
#[derive(Clone, Copy, Debug)]
pub struct Replayed<'a> {
    /// The name of the policy.
    pub policy: &'a str,
    /// Its settings string; for the reference, `PYTORCH_CUDA_ALLOC_CONF`.
    pub conf: &'a str,
    /// The release and the device.
    pub conditions: ReplayConditions,
}

/// A workload in another format.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Converted {
    /// The content of the file.
    pub bytes: Vec<u8>,
    /// Operations that the format cannot express.
    pub left_out: u64,
}

/// Writes `workload` in another format.
///
/// # Errors
/// If the workload cannot be read; for a snapshot, as [`Replayed::snapshot`].
pub fn convert(workload: &dyn Workload, format: &Format<'_>) -> anyhow::Result<Converted> {
    /// Bytes of memory for the lifetime or the entry of an operation, and for the form in which it is written.
    const PER_EVENT: u64 = 256;
    let mut out = Output::of(workload);
    let kept = Keeping {
        workload,
        per_event: PER_EVENT,
    };
    let header = || Map::from_iter([("name".to_owned(), workload.name().into())]);
    let left_out = match format {
        Format::Trace => {
            trace::write(workload, &header(), &mut out)?;
            0
        }
        Format::BinaryTrace => {
            binary::write(workload, &header(), &mut out)?;
            0
        }
        Format::RmmLog => rmm::write(workload, &mut out)?,
        Format::MiniMalloc { unit } => {
            let instance = Instance::of(workload, *unit)?;
            minimalloc::write(&instance, None, &mut out)?;
            0
        }
        Format::Snapshot(replayed) => {
            pickle::to_writer(&replayed.snapshot(&kept)?, &mut out.bytes)?;
            0
        }
    };
    let bytes = out.bytes;
    Ok(Converted { bytes, left_out })
}

/// Writes the operations on several devices as a trace; those on a single one as [`convert`] does.
///
/// # Errors
/// As [`convert`], and if the format takes one device only.
pub fn convert_devices(devices: &[Device<'_>], format: &Format<'_>) -> anyhow::Result<Converted> {
    let [(_, first), others @ ..] = devices else {
        bail!("no device to convert");
    };
    if others.is_empty() {
        return convert(*first, format);
    }
    let mut out = Output::of(*first);
    let header = Map::from_iter([("name".to_owned(), first.name().into())]);
    match format {
        Format::Trace => trace::write_devices(devices, &header, &mut out)?,
        Format::BinaryTrace => binary::write_devices(devices, &header, &mut out)?,
        _ => bail!("only traces have several devices"),
    }
    let bytes = out.bytes;
    Ok(Converted { bytes, left_out: 0 })
}

impl Replayed<'_> {
    /// The snapshot at the end of a replay, with its whole history. Failed requests do not end the replay.
    ///
    /// # Errors
    /// If the policy does not exist, its settings are invalid, the workload cannot be read, or the allocator
    /// fails for another reason than lack of memory.
    pub fn snapshot(&self, workload: &dyn Workload) -> anyhow::Result<Snapshot> {
        const REFERENCE: &str = "pytorch";
        let device = SimDevice::new(&SimConfig {
            addresses: self.conditions.addresses,
            ..SimConfig::with_capacity(self.conditions.capacity)
        });
        let what = || format!("{}, {}", workload.name(), self.policy);
        if self.policy == REFERENCE {
            // Its own history contains more than one recorded from outside.
            let settings = Settings::of_release(self.conditions.release).started_with(self.conf)?;
            let mut allocator = PyTorch::new(device, settings);
            allocator.record_history(Some(HistoryOptions::default()));
            replay(workload, &mut allocator, &mut ()).with_context(what)?;
            return Ok(allocator.snapshot());
        }
        let allocator = match cell::plan(self.policy, self.conf, workload)? {
            Some(plan) => plan.build(device),
            None => registry::build(self.policy, device, self.conf)?,
        };
        let mut traced = WithHistory::new(allocator);
        traced.record_history(Some(HistoryOptions::default()));
        replay(workload, &mut traced, &mut ()).with_context(what)?;
        Ok(traced.snapshot())
    }
}
