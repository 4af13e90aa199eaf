//! Device memory and limit, as given and as recorded, and where they come from.

use std::path::Path;

use coalesce_alloc::driver::sim::address::AddressPolicy;
use coalesce_alloc::release::Release;
use coalesce_bench::measure::capacity::{ROOMY, USUAL};
use coalesce_bench::measure::cell::Cell;
use coalesce_bench::measure::profile::{PUBLISHED, Profile};
use coalesce_bench::text::amount;
use coalesce_workloads::conditions::ReplayConditions;
use coalesce_workloads::formats::snapshot::Recording;
use coalesce_workloads::formats::snapshot::limit::{LimitCause, MemoryLimit, Refusal};
use coalesce_workloads::formats::snapshot::verify::{Known, verify};
use coalesce_workloads::formats::snapshot::workload::FAILED;
use coalesce_workloads::input::Input;
use coalesce_workloads::op::{Op, WorkloadError};
use coalesce_workloads::replay::{Outcome, Step};

use super::Given;

/// The origin of what the header of a trace names.
const AS_RECORDED: &str = "as recorded";

/// Device memory and limit.
pub(super) struct Memory {
    /// Bytes of device memory.
    pub capacity: u64,
    pub limit: Option<ProcessLimit>,
    /// Where they come from, one line each.
    pub sources: Vec<String>,
}

/// The most bytes that the process may reserve.
pub(super) struct ProcessLimit {
    pub bytes: u64,
    /// Bytes that it may not reserve, if the limit is only known to lie below.
    pub below: Option<u64>,
    source: String,
}

impl Given {
    /// Device memory and limit.
    pub(super) fn memory(&self, input: &Input, addresses: AddressPolicy) -> anyhow::Result<Memory> {
        let found = input.recording.as_ref().and_then(Recording::memory_limit);
        let mut sources = Vec::new();
        if let (Some(found), Some(_), None) = (&found, self.capacity, self.limit) {
            sources.push(format!(
                "limit: none, because --capacity is given; the recorded process could reserve at least {}",
                amount(found.at_least)
            ));
        }
        let found = found.filter(|_| self.capacity.is_none());
        let trial = Trial::of(input, addresses)?;
        let device = self.device(input, found.as_ref(), &trial)?;
        let mut capacity = device.as_ref().map_or(ROOMY, |(bytes, _)| *bytes);
        let is_recorded = input.recording.is_some() || input.workload.conditions().is_some();
        if self.capacity.is_none() && is_recorded {
            // What others held when it was recorded is not part of it.
            capacity = capacity.saturating_add(self.others);
        }
        let limit = self.process_limit(input, found.as_ref(), capacity, &trial)?;
        sources.push(match device {
            Some((bytes, origin)) => format!("device memory: {}, {origin}", amount(bytes)),
            None if limit.is_some() => {
                "device memory: not recorded; simulated as more than the limit".to_owned()
            }
            None => "device memory: not recorded; simulated without a limit".to_owned(),
        });
        sources.extend(limit.as_ref().map(|limit| limit.source.clone()));
        Ok(Memory {
            capacity,
            limit,
            sources,
        })
    }

    /// The device memory and its origin, if either is known.
    fn device(
        &self,
        input: &Input,
        found: Option<&MemoryLimit>,
        trial: &Trial<'_>,
    ) -> anyhow::Result<Option<(u64, String)>> {
        if let Some(capacity) = self.capacity {
            return Ok(Some((capacity, "as requested".to_owned())));
        }
        if let Some(found) = found.filter(|found| found.cause == LimitCause::Device) {
            let bytes = trial.reproducing(found, |bytes| (bytes, None))?;
            return Ok(Some((bytes, full_device(found))));
        }
        if let Some(device) = found.and_then(MemoryLimit::device) {
            let origin = "reserved and free memory together when a request failed";
            return Ok(Some((device, origin.to_owned())));
        }
        if let Some(bytes) = input.recording.as_ref().and_then(Recording::device_at_end) {
            let origin = "reserved and free memory together when the snapshot was written";
            return Ok(Some((bytes, origin.to_owned())));
        }
        if let Some(named) = input.workload.conditions() {
            return Ok(named.capacity.map(|bytes| (bytes, AS_RECORDED.to_owned())));
        }
        let usual = || (USUAL, "because none is given".to_owned());
        Ok(input.recording.is_none().then(usual))
    }

    /// The limit of the process on a device with `capacity` bytes.
    fn process_limit(
        &self,
        input: &Input,
        found: Option<&MemoryLimit>,
        capacity: u64,
        trial: &Trial<'_>,
    ) -> anyhow::Result<Option<ProcessLimit>> {
        let exactly = |bytes: u64, origin: &str| ProcessLimit {
            bytes,
            below: None,
            source: format!("limit: {}, {origin}", amount(bytes)),
        };
        if let Some(limit) = self.limit {
            return Ok(Some(exactly(limit, "as requested")));
        }
        if let Some(named) = input.workload.conditions()
            && self.capacity.is_none()
        {
            let limit = named.limit.map(|bytes| ProcessLimit {
                below: named.limit_below,
                ..exactly(bytes, AS_RECORDED)
            });
            return Ok(limit);
        }
        if let Some(limit) = self.noted_limit(input, found) {
            return Ok(Some(exactly(limit, "as coalesce.record() noted")));
        }
        if let Some(limit) = self.collector_limit(input) {
            let origin = "found by trial: with it the garbage collector acts as recorded";
            return Ok(Some(exactly(limit, origin)));
        }
        let Some(found) = found.filter(|found| found.cause != LimitCause::Device) else {
            return Ok(None);
        };
        let bytes = trial.reproducing(found, |bytes| (capacity, Some(bytes)))?;
        Ok(Some(ProcessLimit {
            bytes,
            below: Some(found.below),
            source: limit_source(found, bytes),
        }))
    }

    /// The limit at the end of the recording, unless it was another one when memory was refused.
    fn noted_limit(&self, input: &Input, found: Option<&MemoryLimit>) -> Option<u64> {
        let noted = input.recording.as_ref()?.process.limit()?;
        let agrees = found.is_none_or(|found| {
            found.cause == LimitCause::Device || (found.at_least..found.below).contains(&noted)
        });
        (agrees && self.capacity.is_none()).then_some(noted)
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

/// Where the device memory comes from if the recording ended on a full device.
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
    let bracket = if low == high {
        format!("about {low}")
    } else {
        format!("between {low} and {high}")
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
    let changed = if found.changed {
        "; it changed during the recording, this is the last"
    } else {
        ""
    };
    let used = amount(used);
    format!("limit: {bracket}, inferred from {evidence}{cause}{changed}; replays use {used}")
}

/// Replays a recording under its own settings, to see whether requests fail as recorded.
struct Trial<'a> {
    input: &'a Input,
    conf: String,
    release: Release,
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
            release: recording.map_or(Release::DEFAULT, Recording::release),
            addresses,
            profile: Profile::load(PUBLISHED, Path::new(""))?,
        })
    }

    /// The bytes within a bracket to replay with: the fewest if requests then fail as recorded, else the most.
    /// `device` tells capacity and limit for a number of bytes.
    fn reproducing(
        &self,
        found: &MemoryLimit,
        device: impl Fn(u64) -> (u64, Option<u64>),
    ) -> anyhow::Result<u64> {
        let (capacity, limit) = device(found.at_least);
        if self.fails_as_recorded(capacity, limit)? {
            Ok(found.at_least)
        } else {
            Ok(found.below - 1)
        }
    }

    fn fails_as_recorded(&self, capacity: u64, limit: Option<u64>) -> anyhow::Result<bool> {
        let cell = Cell {
            setting: &self.conf,
            conf: &self.conf,
            conditions: ReplayConditions {
                release: self.release,
                capacity,
                others: 0,
                limit,
                addresses: self.addresses,
            },
            ..Cell::new(&*self.input.workload, &self.profile)
        };
        let mut is_different = false;
        let mut watch = |step: &Step<'_>| {
            is_different = differs(step);
            if is_different {
                let reason = "differs from the recording".to_owned();
                return Err(WorkloadError::Stopped(reason));
            }
            Ok(())
        };
        match cell.run(&mut watch) {
            Ok(_) => Ok(true),
            Err(_) if is_different => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Whether a request fails and did not when recorded, or the other way round.
fn differs(step: &Step<'_>) -> bool {
    let Op::Malloc { tag, .. } = step.op else {
        return false;
    };
    (step.outcome == Outcome::OutOfMemory) != tag.starts_with(FAILED)
}

#[cfg(test)]
mod tests {
    use coalesce_alloc::DeviceAddr;
    use coalesce_alloc::stats::DeviceStats;

    use super::*;
    use crate::diagnose::testing::MIB;

    fn found(at_least: u64, below: u64) -> MemoryLimit {
        let refusal = |requested: u64, free: Option<u64>| Refusal {
            reserved: 60 * MIB,
            requested: requested * MIB,
            segment: requested * MIB,
            free: free.map(|mib| mib * MIB),
            had_room: free.map(|_| true),
        };
        MemoryLimit {
            at_least,
            below,
            cause: LimitCause::Limit,
            evidence: refusal(30, None),
            failure: Some(refusal(50, Some(200))),
            changed: false,
        }
    }

    #[test]
    fn a_replay_ends_where_failures_differ_from_the_recording() {
        let differs = |tag: &str, outcome: Outcome| {
            let op = Op::malloc(1, MIB).with_tag(|_| tag);
            super::differs(&Step {
                event: 0,
                op,
                outcome,
                bytes: MIB,
                stats: &DeviceStats::default(),
            })
        };
        let placed = Outcome::Placed(DeviceAddr(MIB));
        let failed = format!("{FAILED}: linear");
        assert!(!differs("linear", placed));
        assert!(differs("linear", Outcome::OutOfMemory));
        assert!(differs(&failed, placed));
        assert!(!differs(&failed, Outcome::OutOfMemory));
    }

    #[test]
    fn where_a_limit_comes_from() {
        let source = |found: &MemoryLimit| limit_source(found, 70 * MIB);
        assert_eq!(
            source(&found(70 * MIB, 120 * MIB)),
            "limit: between 70.0 MiB and 120.0 MiB, inferred from the refusal of 50.0 MiB while the device had \
             200.0 MiB free; replays use 70.0 MiB"
        );
        let close = MemoryLimit {
            cause: LimitCause::Unknown,
            failure: None,
            ..found(70 * MIB, 70 * MIB + 1)
        };
        assert_eq!(
            source(&close),
            "limit: about 70.0 MiB, inferred from the return of cached memory to serve a request of 30.0 MiB; \
             whether a limit or a full device refused it is not recorded; replays use 70.0 MiB"
        );
        let changed = MemoryLimit {
            changed: true,
            ..found(70 * MIB, 120 * MIB)
        };
        assert_eq!(
            source(&changed),
            "limit: between 70.0 MiB and 120.0 MiB, inferred from the refusal of 50.0 MiB while the device had \
             200.0 MiB free; it changed during the recording, this is the last; replays use 70.0 MiB"
        );
    }
}
