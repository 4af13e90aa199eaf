//! The conditions of a replay, the same for all programs: settings, device memory, limit and addresses, as given
//! and as recorded.

mod memory;

use anyhow::ensure;
use coalesce_alloc::driver::sim::address::AddressPolicy;
use coalesce_alloc::printable::printable;
use coalesce_alloc::settings::{Settings, SettingsError};
use coalesce_bench::measure::capacity::ROOMY;
use coalesce_bench::measure::cell::REFERENCE;
use coalesce_bench::text::coverage::RECIPE;
use coalesce_bench::text::{amount, quoted};
use coalesce_workloads::conditions::{RecordedConditions, ReplayConditions};
use coalesce_workloads::formats::snapshot::Recording;
use coalesce_workloads::formats::snapshot::coverage::Extent;
use coalesce_workloads::formats::snapshot::release::{Release, Releases};
use coalesce_workloads::formats::snapshot::settings::KnownSettings;
use coalesce_workloads::input::Input;

use crate::diagnose::Subject;
use crate::present::Present;

/// What a person gives instead of the recorded conditions. By default nothing.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Given {
    /// The settings string; empty for the defaults.
    pub conf: Option<String>,
    /// Bytes of device memory.
    pub capacity: Option<u64>,
    /// The most bytes that the process may reserve.
    pub limit: Option<u64>,
    /// Bytes of device memory that others hold.
    pub others: u64,
    /// Where the device places memory.
    pub addresses: Option<AddressPolicy>,
    /// The release that the program runs under.
    pub release: Option<Release>,
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
    /// The release that the reference reproduces, and the device.
    pub replay: ReplayConditions,
    /// Bytes that it may not reserve, if the limit is only known to lie below.
    pub limit_below: Option<u64>,
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
            conditions: self.replay.without_others(),
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

/// A snapshot without a history, which cannot be replayed.
#[derive(Debug, thiserror::Error)]
#[error(
    "{file}: the snapshot has no history, only the memory at its end; record one with\n\n{RECIPE}\n"
)]
pub struct NoHistory {
    /// The name of its file.
    pub file: String,
    /// The memory at its end.
    pub present: Box<Present>,
}

/// Fails if the input is a snapshot without a history, and tells how to record one.
///
/// # Errors
/// [`NoHistory`].
pub fn require_history(input: &Input) -> Result<(), NoHistory> {
    let coverage = input.coverage.as_ref();
    let recording = input.recording.as_ref();
    let recording =
        recording.filter(|_| coverage.is_some_and(|coverage| coverage.extent == Extent::NoHistory));
    match recording {
        None => Ok(()),
        Some(recording) => Err(NoHistory {
            file: input.source.to_string(),
            present: Box::new(Present::of(recording, input.device.is_some())),
        }),
    }
}

impl Given {
    /// The recorded conditions of an input, for a trace of it; none if they are unknown.
    ///
    /// # Errors
    /// As [`Self::resolve`].
    pub fn recorded(&self, input: &Input) -> anyhow::Result<Option<RecordedConditions>> {
        let Some(recording) = &input.recording else {
            return Ok(input.workload.conditions().cloned());
        };
        let conditions = self.resolve(input, REFERENCE)?;
        let replay = conditions.replay;
        Ok(Some(RecordedConditions {
            device: recording.device,
            conf: conditions.present,
            release: replay.release,
            addresses: replay.addresses,
            capacity: Some(replay.capacity).filter(|&bytes| bytes != ROOMY),
            limit: replay.limit,
            limit_below: conditions.limit_below,
        }))
    }

    /// The conditions for a replay under a policy.
    ///
    /// # Errors
    /// If the given settings have an unknown key, the recording cannot be replayed, or others hold the whole device.
    pub fn resolve(&self, input: &Input, policy: &str) -> anyhow::Result<Conditions> {
        let recording = input.recording.as_ref();
        let named = input.workload.conditions();
        let releases = match (self.release, recording) {
            (Some(release), recording) => Releases {
                is_rocm: recording.is_some_and(|one| one.releases().is_rocm),
                ..Releases::given(release)
            },
            (None, Some(recording)) => recording.releases(),
            (None, None) => {
                named.map_or(Releases::REFERENCE, |named| Releases::named(named.release))
            }
        };
        let release = releases.reproduced()[0];
        if let Some(conf) = self.conf.as_deref().filter(|_| policy == REFERENCE) {
            // The replay reports other errors.
            let settings = Settings::of_release(release).started_with(conf);
            if let Err(error @ SettingsError::UnknownKey { .. }) = settings {
                return Err(
                    anyhow::Error::new(error).context(format!("--conf '{}'", printable(conf)))
                );
            }
        }
        let (present, settings) = self.settings(input, release, policy);
        let is_recorded = recording.is_some() || named.is_some();
        let known = (is_recorded && self.conf.is_none() && policy == REFERENCE)
            .then(|| KnownSettings::of(release, &present).ok())
            .flatten();
        let conf = known.map_or_else(|| present.clone(), |known| known.conf);
        let recorded = recording
            .and_then(Recording::address_policy)
            .or(named.map(|named| named.addresses));
        let (addresses, placed) = match (self.addresses, recorded) {
            (Some(addresses), _) => (addresses, "as requested"),
            (None, Some(addresses)) => (addresses, "as recorded"),
            // Real programs run on real devices, most of them NVIDIA's.
            (None, None) if is_recorded => (AddressPolicy::Cuda, "the default for recordings"),
            (None, None) => (AddressPolicy::default(), "the default"),
        };
        let memory = self.memory(input, addresses)?;
        ensure!(
            self.others < memory.capacity,
            "--reserve-for-others leaves no device memory for the workload"
        );
        let mut conditions = Conditions {
            conf,
            present,
            releases,
            replay: ReplayConditions {
                release,
                capacity: memory.capacity,
                others: self.others,
                limit: memory.limit.as_ref().map(|limit| limit.bytes),
                addresses,
            },
            limit_below: memory.limit.and_then(|limit| limit.below),
            sources: input
                .device
                .map(|device| format!("device: number {device} of several that are recorded"))
                .into_iter()
                .chain(memory.sources)
                .collect(),
        };
        if self.others > 0 {
            let others = amount(self.others);
            conditions
                .sources
                .push(format!("reserved for others: {others}, as requested"));
        }
        conditions.sources.push(settings);
        let addresses = format!("addresses: {}, {placed}", addresses.name());
        conditions.sources.push(addresses);
        if conditions.releases != Releases::REFERENCE {
            let releases = format!(
                "release: {}; replays follow the rules of {}",
                conditions.releases, release
            );
            conditions.sources.push(releases);
        }
        Ok(conditions)
    }

    /// The settings string of the program, and where it comes from.
    fn settings(&self, input: &Input, release: Release, policy: &str) -> (String, String) {
        let of = |conf: &str, origin: &str| {
            (
                conf.to_owned(),
                format!("settings: {}, {origin}", quoted(conf)),
            )
        };
        if let Some(conf) = &self.conf {
            return of(conf, "as requested");
        }
        let recording = input.recording.as_ref();
        let named = input.workload.conditions();
        let recorded = match recording {
            Some(recording) => recording.conf.as_ref(),
            None => named.map(|named| &named.conf),
        };
        match (recorded, recording) {
            _ if policy != REFERENCE => of("", "because none are given"),
            (Some(conf), _) => match KnownSettings::of(release, conf) {
                Ok(known) if !known.unknown.is_empty() => {
                    let unknown = known.unknown.join(", ");
                    let unknown = printable(&unknown);
                    of(conf, &format!("as recorded; {unknown} is not simulated"))
                }
                _ => of(conf, "as recorded"),
            },
            (None, Some(recording)) => of(
                &recording
                    .settings_in(release)
                    .map_or_else(|_| String::new(), |known| known.conf),
                "because none are recorded",
            ),
            (None, None) => of("", "because none are given"),
        }
    }
}

#[cfg(test)]
mod tests;
