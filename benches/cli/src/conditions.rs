//! The conditions of a replay, the same for all verbs: settings, device memory, limit and addresses, from flags
//! and from the recording.

mod memory;

use anyhow::ensure;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use coalesce_advisor::Subject;
use coalesce_alloc::bytes;
use coalesce_alloc::driver::sim::address::AddressPolicy;
use coalesce_alloc::settings::{Settings, SettingsError};
use coalesce_bench::measure::cell::REFERENCE;
use coalesce_bench::text::quoted;
use coalesce_workloads::formats::snapshot::Recording;
use coalesce_workloads::formats::snapshot::release::{Release, Releases};
use coalesce_workloads::input::{Input, InputError};

use super::output::notice;
use super::{history, input};

/// Flags about the conditions of a replay.
#[derive(clap::Args)]
pub struct ConditionFlags {
    /// Settings to replay under, in the format of PYTORCH_CUDA_ALLOC_CONF; "" for the defaults. Default: those in
    /// the snapshot. The variable itself is not read.
    #[arg(long)]
    pub conf: Option<String>,
    /// Memory of the simulated device: 24GiB or 24G for 24 * 2^30 bytes, 24GB for 24 * 10^9. Default: if a request
    /// failed in the snapshot, the reserved and the free memory at that time; 80GiB for traces and presets; else
    /// enough for everything.
    #[arg(long, value_parser = bytes::parse_memory)]
    pub capacity: Option<u64>,
    /// The most memory that the process may reserve, as with torch.cuda.set_per_process_memory_fraction. Default:
    /// inferred from failed and repeated requests in the snapshot.
    #[arg(long, value_name = "BYTES", value_parser = bytes::parse_memory)]
    pub limit: Option<u64>,
    /// Part of the device memory that other processes, the CUDA context and libraries use.
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = bytes::parse_memory)]
    pub reserve_for_others: u64,
    /// Where the simulated device places memory: up, down, firstfit, or cuda (as NVIDIA's driver does). Default:
    /// as recorded in the snapshot, else up. Results depend on it, because allocators prefer low addresses.
    #[arg(long, value_parser = addresses())]
    pub addresses: Option<AddressPolicy>,
    /// PyTorch release that the program runs under, such as 2.8. Replays follow its rules (2.6 to 2.15), and settings
    /// that it lacks are not advised. Default: as far as the snapshot shows it; 2.15 for traces and presets.
    #[arg(long, value_name = "RELEASE")]
    pub torch: Option<Release>,
    /// Device number, if the snapshot covers several devices. Default: the device that ran out of memory last,
    /// else the busiest.
    #[arg(long, value_name = "NUMBER")]
    pub recorded_device: Option<u32>,
}

/// The names of the address policies, as a parser for the command line.
pub fn addresses() -> impl TypedValueParser<Value = AddressPolicy> {
    PossibleValuesParser::new(AddressPolicy::ALL.map(AddressPolicy::name))
        .try_map(|name| name.parse::<AddressPolicy>())
}

/// The conditions of a replay.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Conditions {
    /// The settings string, without keys that the reference does not know.
    pub conf: String,
    /// The settings string of the program.
    pub present: String,
    /// The releases of PyTorch that the program may run under.
    pub releases: Releases,
    /// The release that the reference reproduces.
    pub release: Release,
    /// Bytes of device memory.
    pub capacity: u64,
    /// Bytes of it that others hold.
    pub others: u64,
    /// The most bytes that the process may reserve.
    pub limit: Option<u64>,
    /// Bytes that it may not reserve, if the limit is only known to lie below.
    pub limit_below: Option<u64>,
    /// Where the device places memory.
    pub addresses: AddressPolicy,
    /// Where each condition comes from, one line each.
    pub sources: Vec<String>,
}

impl Conditions {
    /// The input under these conditions.
    pub fn subject<'a>(&'a self, input: &'a Input) -> Subject<'a> {
        Subject {
            workload: input.workload.as_ref(),
            recording: input.recording.as_ref(),
            conf: &self.conf,
            release: self.release,
            capacity: self.capacity - self.others,
            limit: self.limit,
            address_policy: self.addresses,
        }
    }

    /// The sources, one a line.
    pub fn text(&self) -> String {
        self.sources
            .iter()
            .map(|source| format!("{source}\n"))
            .collect::<String>()
            + "\n"
    }
}

impl ConditionFlags {
    /// Opens the workload.
    pub fn open(&self, workload: &str) -> Result<Input, InputError> {
        input::open(workload, self.recorded_device)
    }

    /// Opens a workload that has a history, with the conditions for the reference.
    pub fn open_for_reference(&self, workload: &str) -> anyhow::Result<(Input, Conditions)> {
        let input = self.open(workload)?;
        history::require(&input, workload)?;
        let conditions = self.resolve(&input, REFERENCE)?;
        Ok((input, conditions))
    }

    /// The conditions for a replay under a policy.
    pub fn resolve(&self, input: &Input, policy: &str) -> anyhow::Result<Conditions> {
        let recording = input.recording.as_ref();
        let releases = match (self.torch, recording) {
            (Some(release), _) => Releases::given(release),
            (None, Some(recording)) => recording.releases(),
            (None, None) => Releases::REFERENCE,
        };
        let release = releases.reproduced()[0];
        if let Some(given) = self.torch.filter(|&given| given != release) {
            notice(&format!(
                "PyTorch {given} is not reproduced; the replay follows the rules of {release}"
            ));
        }
        if let Some(conf) = self.conf.as_deref().filter(|_| policy == REFERENCE) {
            // The replay reports other errors.
            let settings = Settings::of_release(release).started_with(conf);
            if let Err(error @ SettingsError::UnknownKey { .. }) = settings {
                return Err(anyhow::Error::new(error).context(format!("--conf '{conf}'")));
            }
        }
        let (present, settings) = self.settings(recording, release, policy);
        let known = recording
            .filter(|_| self.conf.is_none() && policy == REFERENCE)
            .and_then(|recording| recording.settings_in(release).ok());
        let conf = known.map_or_else(|| present.clone(), |known| known.conf);
        let recorded = recording.and_then(Recording::address_policy);
        let (addresses, placed) = match (self.addresses, recorded) {
            (Some(addresses), _) => (addresses, "as requested"),
            (None, Some(addresses)) => (addresses, "as recorded"),
            (None, None) => (AddressPolicy::default(), "the default"),
        };
        let memory = self.memory(input, addresses)?;
        let mut conditions = Conditions {
            conf,
            present,
            releases,
            release,
            capacity: memory.capacity,
            others: self.reserve_for_others,
            limit: memory.limit.as_ref().map(|limit| limit.bytes),
            limit_below: memory.limit.and_then(|limit| limit.below),
            addresses,
            sources: memory.sources,
        };
        ensure!(
            conditions.others < conditions.capacity,
            "--reserve-for-others leaves no device memory for the workload"
        );
        conditions.sources.push(settings);
        let addresses = format!("addresses: {}, {placed}", addresses.name());
        conditions.sources.push(addresses);
        if conditions.releases != Releases::REFERENCE {
            let releases = format!(
                "release: {}; replays follow the rules of {}",
                conditions.releases, conditions.release
            );
            conditions.sources.push(releases);
        }
        Ok(conditions)
    }

    /// The settings string of the program, and where it comes from.
    fn settings(
        &self,
        recording: Option<&Recording>,
        release: Release,
        policy: &str,
    ) -> (String, String) {
        let of = |conf: &str, origin: &str| {
            (
                conf.to_owned(),
                format!("settings: {}, {origin}", quoted(conf)),
            )
        };
        if let Some(conf) = &self.conf {
            return of(conf, "as requested");
        }
        let Some(recording) = recording.filter(|_| policy == REFERENCE) else {
            return of("", "because none are given");
        };
        match (&recording.conf, recording.settings_in(release)) {
            (Some(conf), Ok(known)) if !known.unknown.is_empty() => of(
                conf,
                &format!("as recorded; {} is not simulated", known.unknown.join(", ")),
            ),
            (Some(conf), _) => of(conf, "as recorded"),
            (None, known) => of(
                &known.map_or_else(|_| String::new(), |known| known.conf),
                "because none are recorded",
            ),
        }
    }
}
