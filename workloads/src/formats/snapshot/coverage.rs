//! How much of a program a recording covers.

use std::collections::HashSet;

use coalesce_alloc::MempoolId;
use coalesce_alloc::driver::DeviceAddr;
use coalesce_alloc::history::Action;
use coalesce_alloc::snapshot::SegmentInfo;
use foldhash::fast::FixedState;
use schemars::JsonSchema;
use serde::Serialize;

use super::Recording;

/// How much of a program a recording covers, with the memory that it shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct Coverage {
    /// Which part is missing.
    pub extent: Extent,
    /// Number of entries.
    pub entries: usize,
    /// Memory before the first entry.
    pub start: MemoryUse,
    /// Memory after the last entry.
    pub end: MemoryUse,
    /// The peak of reserved memory from the first entry to the last, in bytes.
    pub peak_reserved_bytes: u64,
    /// Whether memory is in private pools (CUDA graphs, `MemPool`).
    pub has_private_pools: bool,
    /// Whether the garbage collector depends on the ages of blocks that were free before the first entry.
    pub lacks_ages: bool,
}

/// The part of a program that a recording lacks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Extent {
    /// Nothing was reserved before the first entry, so nothing of the memory's history is missing.
    Complete,
    /// Memory was reserved before the first entry: the recorder started later, or its ring buffer dropped
    /// the oldest entries.
    BeginningMissing,
    /// Only the segments at the end are recorded.
    NoHistory,
}

/// Memory at one moment, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, JsonSchema, Serialize)]
pub struct MemoryUse {
    /// Reserved from the device.
    pub reserved_bytes: u64,
    /// Requested in blocks that are allocated or wait for a stream.
    pub in_use_bytes: u64,
}

impl Coverage {
    /// Whether nothing of the memory's history is missing.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.extent == Extent::Complete
    }

    /// Whether a replay decides from what the recording lacks, so that its figures are estimates.
    #[must_use]
    pub fn allows_estimates_only(&self) -> bool {
        self.lacks_ages
    }

    /// Whether the history looks as if the recorder's ring buffer was full, so that it dropped older
    /// entries: their number is as round as its size usually is.
    #[must_use]
    pub fn may_have_dropped_entries(&self) -> bool {
        const ROUND: usize = 1000;
        self.extent == Extent::BeginningMissing && self.entries.is_multiple_of(ROUND)
    }
}

impl Recording {
    /// How much of the program is recorded.
    #[must_use]
    pub fn coverage(&self) -> Coverage {
        let end = memory_at_end(&self.segments);
        let reserved = self.reserved_before_entries();
        let start = MemoryUse {
            reserved_bytes: reserved.first().copied().unwrap_or(0),
            in_use_bytes: self.in_use_at_start(),
        };
        let is_about_memory = |action: Action| !matches!(action, Action::Snapshot | Action::Oom);
        let mut actions = self.entries.iter().map(|entry| entry.action);
        let extent = match start.reserved_bytes {
            _ if !actions.any(is_about_memory) && !self.segments.is_empty() => Extent::NoHistory,
            0 => Extent::Complete,
            _ => Extent::BeginningMissing,
        };
        let collects = self
            .settings()
            .is_ok_and(|known| known.settings.garbage_collection_threshold() > 0.0);
        Coverage {
            extent,
            entries: self.entries.len(),
            start,
            end,
            peak_reserved_bytes: reserved.into_iter().max().unwrap_or(0),
            has_private_pools: self.has_private_pools(),
            lacks_ages: collects && extent == Extent::BeginningMissing,
        }
    }

    /// Whether memory is in private pools.
    pub(super) fn has_private_pools(&self) -> bool {
        let is_private = |pool: MempoolId| pool != MempoolId::DEFAULT;
        let mut segments = self.segments.iter();
        let mut entries = self.entry_pools.iter();
        segments.any(|segment| is_private(segment.pool)) || entries.any(|&pool| is_private(pool))
    }

    /// Bytes requested in the blocks that were in use before the first entry.
    fn in_use_at_start(&self) -> u64 {
        // Addresses whose latest user began after the first entry, or is already counted.
        let mut known: HashSet<DeviceAddr, FixedState> = HashSet::default();
        let mut bytes = 0_u64;
        for entry in &self.entries {
            match entry.action {
                Action::Alloc => _ = known.insert(entry.addr),
                Action::FreeRequested if known.insert(entry.addr) => {
                    bytes = bytes.saturating_add(entry.size);
                }
                Action::FreeCompleted if !known.remove(&entry.addr) => {
                    bytes = bytes.saturating_add(entry.size);
                }
                _ => {}
            }
        }
        let blocks = self.segments.iter().flat_map(|segment| &segment.blocks);
        let unknown = blocks.filter(|block| block.is_active() && !known.contains(&block.address));
        // Some versions did not record the requested size.
        let sizes = unknown.map(|block| match block.requested_size {
            0 => block.size,
            requested => requested,
        });
        sizes.fold(bytes, u64::saturating_add)
    }
}

fn memory_at_end(segments: &[SegmentInfo]) -> MemoryUse {
    let sum = |of: fn(&SegmentInfo) -> u64| segments.iter().map(of).fold(0, u64::saturating_add);
    MemoryUse {
        reserved_bytes: sum(SegmentInfo::total_size),
        in_use_bytes: sum(SegmentInfo::requested_size),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases;
    use crate::formats::snapshot::fixture::{recording, short};

    #[test]
    fn coverage_is_found_in_entries_and_segments() {
        cases::check("src/formats/snapshot/cases/coverage.txt", |text| {
            let found = recording(text).coverage();
            assert_eq!(found.is_complete(), found.extent == Extent::Complete);
            let [before, in_use, end, peak] = [
                found.start.reserved_bytes,
                found.start.in_use_bytes,
                found.end.reserved_bytes,
                found.peak_reserved_bytes,
            ]
            .map(short);
            let mut told = format!(
                "{:?}, {} entries: {before} reserved and {in_use} in use before, {end} at the end, at most {peak}",
                found.extent, found.entries
            );
            for (holds, what) in [
                (found.has_private_pools, ", private pools"),
                (found.lacks_ages, ", no ages"),
                (found.allows_estimates_only(), ", estimates only"),
            ] {
                told += if holds { what } else { "" };
            }
            told
        });
    }

    #[test]
    fn as_many_entries_as_a_ring_buffer_has_may_have_lost_others() {
        let may_have = |extent, entries| {
            let coverage = Coverage {
                extent,
                entries,
                ..Recording::default().coverage()
            };
            coverage.may_have_dropped_entries()
        };
        let missing = |entries| may_have(Extent::BeginningMissing, entries);
        let found = [999, 1000, 1001, 65_000].map(missing);
        assert_eq!(found, [false, true, false, true]);
        assert!(!may_have(Extent::Complete, 1000) && !may_have(Extent::NoHistory, 1000));
    }
}
