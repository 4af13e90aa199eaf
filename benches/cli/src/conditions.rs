//! The conditions of a replay, the same for all verbs: settings, device memory, limit and addresses, from flags
//! and from the recording.

use std::path::Path;

use anyhow::ensure;
use coalesce_alloc::bytes;
use coalesce_alloc::driver::sim::address::AddressPolicy;
use coalesce_alloc::settings::{Settings, SettingsError};
use coalesce_bench::measure::capacity::{ROOMY, USUAL};
use coalesce_bench::measure::cell::{Cell, REFERENCE};
use coalesce_bench::measure::profile::{PUBLISHED, Profile};
use coalesce_bench::text::{amount, quoted};
use coalesce_workloads::demand::Demand;
use coalesce_workloads::formats::snapshot::Recording;
use coalesce_workloads::formats::snapshot::limit::{LimitCause, MemoryLimit, Refusal};
use coalesce_workloads::formats::snapshot::release::{Release, Releases};
use coalesce_workloads::formats::snapshot::verify::{Known, verify};
use coalesce_workloads::formats::snapshot::workload::FAILED;
use coalesce_workloads::input::{Input, InputError};
use coalesce_workloads::op::{Op, WorkloadError};
use coalesce_workloads::replay::{Observer, Outcome, Step};

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
    /// Where the simulated device places memory: up, down, firstfit, or cuda (as NVIDIA's driver does). Default: as
    /// recorded in the snapshot, else up. Results depend on it, because allocators prefer low addresses.
    #[arg(long, value_parser = str::parse::<AddressPolicy>)]
    pub addresses: Option<AddressPolicy>,
    /// PyTorch release that the program runs under, such as 2.8: settings that it lacks are not advised. Default: as
    /// far as the snapshot shows it; 2.11 for traces and presets.
    #[arg(long, value_name = "RELEASE")]
    pub torch: Option<Release>,
    /// Device number, if the snapshot covers several devices. Default: the device that ran out of memory last,
    /// else the busiest.
    #[arg(long, value_name = "NUMBER")]
    pub recorded_device: Option<u32>,
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
    /// Where each condition comes from, one sentence each.
    pub sources: Vec<String>,
}

impl Conditions {
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
        Input::open(workload, self.recorded_device)
    }

    /// The conditions for a replay under a policy.
    pub fn resolve(&self, input: &Input, policy: &str) -> anyhow::Result<Conditions> {
        if let Some(conf) = self.conf.as_deref().filter(|_| policy == REFERENCE) {
            // The replay reports other errors.
            if let Err(error @ SettingsError::UnknownKey { .. }) = Settings::from_conf(conf) {
                return Err(anyhow::Error::new(error).context(format!("--conf '{conf}'")));
            }
        }
        let recording = input.recording.as_ref();
        let (present, settings) = self.settings(recording, policy);
        let known = recording
            .filter(|_| self.conf.is_none() && policy == REFERENCE)
            .and_then(|recording| recording.settings().ok());
        let conf = known.map_or_else(|| present.clone(), |known| known.conf);
        let recorded = input.recording.as_ref().and_then(Recording::address_policy);
        let (addresses, placed) = match (self.addresses, recorded) {
            (Some(addresses), _) => (addresses, "as requested"),
            (None, Some(addresses)) => (addresses, "as recorded"),
            (None, None) => (AddressPolicy::default(), "the default"),
        };
        let mut conditions = Conditions {
            conf,
            present,
            releases: match (self.torch, recording) {
                (Some(release), _) => Releases::given(release),
                (None, Some(recording)) => recording.releases(),
                (None, None) => Releases::REFERENCE,
            },
            capacity: 0,
            others: self.reserve_for_others,
            limit: self.limit,
            limit_below: None,
            addresses,
            sources: Vec::new(),
        };
        let found = input.recording.as_ref().and_then(Recording::memory_limit);
        self.memory(input, found.as_ref(), &mut conditions)?;
        ensure!(
            conditions.others < conditions.capacity,
            "--reserve-for-others leaves no device memory for the workload"
        );
        conditions.sources.push(settings);
        let addresses = format!("addresses: {}, {placed}", addresses.name());
        conditions.sources.push(addresses);
        if conditions.releases != Releases::REFERENCE {
            let releases = format!(
                "release: {}; settings that it lacks are not advised",
                conditions.releases
            );
            conditions.sources.push(releases);
        }
        Ok(conditions)
    }

    fn settings(&self, recording: Option<&Recording>, policy: &str) -> (String, String) {
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
        match (&recording.conf, recording.settings()) {
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

    /// Sets device memory and limit, and describes their origin.
    fn memory(
        &self,
        input: &Input,
        found: Option<&MemoryLimit>,
        conditions: &mut Conditions,
    ) -> anyhow::Result<()> {
        if let (Some(found), Some(_), None) = (found, self.capacity, self.limit) {
            conditions.sources.push(format!(
                "limit: none, because --capacity is given; the recorded process could reserve at least {}",
                amount(found.at_least)
            ));
        }
        let found = found.filter(|_| self.capacity.is_none());
        let full = found.filter(|found| found.cause == LimitCause::Device);
        let limit = self.limit.or_else(|| self.collector_limit(input));
        let trial = Trial::of(input, conditions.addresses)?;
        let memory = match (self.capacity, full, found.and_then(MemoryLimit::device)) {
            (Some(capacity), ..) => Some((capacity, "as requested".to_owned())),
            (None, Some(found), _) => {
                let bytes = trial.reproducing(found, |bytes| (bytes, None))?;
                Some((bytes, full_device(found)))
            }
            (None, None, Some(device)) => {
                let origin = "reserved and free memory together when a request failed";
                Some((device, origin.to_owned()))
            }
            (None, None, None) if input.recording.is_some() => None,
            (None, None, None) => Some((USUAL, "because none is given".to_owned())),
        };
        let source = match &memory {
            Some((bytes, origin)) => format!("device memory: {}, {origin}", amount(*bytes)),
            None if limit.is_some() || found.is_some() => {
                "device memory: not recorded; simulated as more than the limit".to_owned()
            }
            None => "device memory: not recorded; simulated without a limit".to_owned(),
        };
        conditions.sources.push(source);
        conditions.capacity = memory.map_or(ROOMY, |(bytes, _)| bytes);
        if self.capacity.is_none() && input.recording.is_some() {
            // What others held when it was recorded is not part of it.
            conditions.capacity = conditions.capacity.saturating_add(conditions.others);
        }
        let source = match (limit, found) {
            (Some(limit), _) if self.limit.is_some() => {
                format!("limit: {}, as requested", amount(limit))
            }
            (Some(limit), _) => {
                conditions.limit = Some(limit);
                let limit = amount(limit);
                format!(
                    "limit: {limit}, found by trial: with it the garbage collector acts as recorded"
                )
            }
            (None, Some(found)) if full.is_none() => {
                let capacity = conditions.capacity;
                let limit = trial.reproducing(found, |bytes| (capacity, Some(bytes)))?;
                conditions.limit = Some(limit);
                conditions.limit_below = Some(found.below);
                limit_source(found, limit)
            }
            _ => return Ok(()),
        };
        conditions.sources.push(source);
        Ok(())
    }

    /// The limit under which the garbage collector acts as recorded, if it acted.
    fn collector_limit(&self, input: &Input) -> Option<u64> {
        let recording = input.recording.as_ref()?;
        let known = recording.settings().ok()?;
        if self.capacity.is_some() || known.settings.garbage_collection_threshold() == 0.0 {
            return None;
        }
        verify(recording, Known::default()).ok()?.limit
    }
}

/// The device memory of a recording that ended on a full device, where it comes from.
fn full_device(found: &MemoryLimit) -> String {
    let Refusal {
        reserved,
        requested,
        free,
        ..
    } = found.failure.unwrap_or(found.evidence);
    format!(
        "all that this process could have: it held {} and {} were free when a request for {} failed; whatever \
         else the device has was in use by others",
        amount(reserved),
        amount(free.unwrap_or(0)),
        amount(requested),
    )
}

/// Where a limit comes from.
fn limit_source(found: &MemoryLimit, used: u64) -> String {
    let (low, high) = (amount(found.at_least), amount(found.below));
    let bracket = match low == high {
        true => format!("about {low}"),
        false => format!("between {low} and {high}"),
    };
    let Refusal {
        requested, free, ..
    } = found.failure.unwrap_or(found.evidence);
    let requested = amount(requested);
    let evidence = match free {
        Some(free) => format!(
            "the refusal of {requested} while the device had {} free",
            amount(free)
        ),
        None => format!("the return of cached memory to serve a request of {requested}"),
    };
    let cause = match found.cause {
        LimitCause::Unknown => "; whether a limit or a full device refused it is not recorded",
        _ => "",
    };
    let changed = match found.changed {
        true => "; it changed during the recording, this is the last",
        false => "",
    };
    let used = amount(used);
    format!("limit: {bracket}, inferred from {evidence}{cause}{changed}; replays use {used}")
}

/// Replays a recording under its own settings, to see whether requests fail as recorded.
struct Trial<'a> {
    input: &'a Input,
    conf: String,
    addresses: AddressPolicy,
    profile: Profile,
}

impl<'a> Trial<'a> {
    fn of(input: &'a Input, addresses: AddressPolicy) -> anyhow::Result<Self> {
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
    fn reproducing(
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
