//! Flags about the conditions of a replay, the same for all verbs.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use coalesce_advisor::Opened;
use coalesce_advisor::conditions::{Conditions, Given};
use coalesce_alloc::bytes;
use coalesce_alloc::driver::sim::address::AddressPolicy;
use coalesce_workloads::formats::snapshot::release::Release;
use coalesce_workloads::formats::source::Source;
use coalesce_workloads::input::{Input, InputError};

use super::input;
use super::output::notice;

/// Flags about the conditions of a replay.
#[derive(clap::Args)]
pub struct ConditionFlags {
    /// Settings to replay under, in the format of PYTORCH_CUDA_ALLOC_CONF; "" for the defaults. Default: those in
    /// the snapshot. The variable itself is not read.
    #[arg(long)]
    pub conf: Option<String>,
    /// Memory of the simulated device: 24GiB or 24G for 24 * 2^30 bytes, 24GB for 24 * 10^9. Default: if a request
    /// failed in the snapshot, the reserved and the free memory at that time; if coalesce.record() wrote it, those at its
    /// end; 80GiB for traces and presets; else enough for everything.
    #[arg(long, value_parser = bytes::parse_memory)]
    pub capacity: Option<u64>,
    /// The most memory that the process may reserve, as with torch.cuda.set_per_process_memory_fraction. Default:
    /// as coalesce.record() noted, else inferred from failed and repeated requests in the snapshot.
    #[arg(long, value_name = "BYTES", value_parser = bytes::parse_memory)]
    pub limit: Option<u64>,
    /// Part of the device memory that other processes, the CUDA context and libraries use.
    #[arg(long = "reserve-for-others", value_name = "BYTES", default_value = "0", value_parser = bytes::parse_memory)]
    pub others: u64,
    /// Where the simulated device places memory: up, down, firstfit, or cuda (as NVIDIA's driver does). Default:
    /// as recorded in the snapshot, or cuda if it does not tell; up for traces and presets. Results depend on it, because
    /// allocators prefer low addresses.
    #[arg(long, value_parser = addresses())]
    pub addresses: Option<AddressPolicy>,
    /// PyTorch release that the program runs under, such as 2.8. Replays follow its rules (2.6 to 2.15), and settings
    /// that it lacks are not advised. Default: the release that the snapshot shows; 2.15 for traces and presets.
    #[arg(long = "torch", value_name = "RELEASE")]
    pub release: Option<Release>,
    /// Device number, if the snapshot or trace covers several devices. Default: in a snapshot, the device that ran out of
    /// memory last, or the one with the most entries if none did; in a trace, the first device.
    #[arg(long, value_name = "NUMBER")]
    pub recorded_device: Option<u32>,
}

/// The names of the address policies, as a parser for the command line.
pub fn addresses() -> impl TypedValueParser<Value = AddressPolicy> {
    PossibleValuesParser::new(AddressPolicy::ALL.map(AddressPolicy::name))
        .try_map(|name| name.parse::<AddressPolicy>())
}

impl ConditionFlags {
    /// Opens the workload.
    pub fn open(&self, workload: &Source) -> Result<Input, InputError> {
        input::open(workload, self.recorded_device)
    }

    /// Opens a workload that has a history, with the conditions for the reference.
    pub fn open_for_reference(&self, workload: &Source) -> anyhow::Result<Opened> {
        let opened = Opened::under(&self.given(), self.open(workload)?)?;
        self.tell_release(&opened.conditions);
        Ok(opened)
    }

    /// The conditions for a replay under a policy.
    pub fn resolve(&self, input: &Input, policy: &str) -> anyhow::Result<Conditions> {
        let conditions = self.given().resolve(input, policy)?;
        self.tell_release(&conditions);
        Ok(conditions)
    }

    fn given(&self) -> Given {
        Given {
            conf: self.conf.clone(),
            capacity: self.capacity,
            limit: self.limit,
            others: self.others,
            addresses: self.addresses,
            release: self.release,
        }
    }

    /// Says if the replay follows the rules of another release than the given one.
    fn tell_release(&self, conditions: &Conditions) {
        let release = conditions.replay.release;
        if let Some(given) = self.release.filter(|&given| given != release) {
            notice(&format!(
                "PyTorch {given} is not reproduced; the replay follows the rules of {release}"
            ));
        }
    }
}
