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
    use coalesce_alloc::driver::StreamId;
    use coalesce_alloc::history::TraceEntry;
    use coalesce_alloc::snapshot::{BlockInfo, BlockState};
    use coalesce_alloc::stats::PoolKind;

    use super::*;

    /// A segment that is reserved before the first entry, which allocates a block in it.
    fn warm(conf: &str, pool: MempoolId) -> Recording {
        const SIZE: u64 = 2 << 20;
        let address = DeviceAddr(SIZE);
        let block = BlockInfo::new(address, SIZE, SIZE, BlockState::ActiveAllocated);
        Recording {
            conf: Some(conf.to_owned()),
            entries: vec![TraceEntry {
                action: Action::Alloc,
                addr: address,
                size: SIZE,
                stream: StreamId::DEFAULT,
                time_us: 0,
            }],
            segments: vec![SegmentInfo {
                device: 0,
                address,
                stream: StreamId::DEFAULT,
                kind: PoolKind::Large,
                pool,
                is_expandable: false,
                blocks: vec![block],
            }],
            ..Recording::default()
        }
    }

    #[test]
    fn what_a_replay_cannot_follow_allows_estimates_only() {
        let plain = warm("", MempoolId::DEFAULT).coverage();
        assert_eq!(plain.extent, Extent::BeginningMissing);
        assert!(!plain.allows_estimates_only());
        let pools = warm("", MempoolId(0, 1)).coverage();
        assert!(pools.has_private_pools && !pools.allows_estimates_only());
        let collected = warm("garbage_collection_threshold:0.8", MempoolId::DEFAULT).coverage();
        assert!(collected.lacks_ages && collected.allows_estimates_only());
    }

    #[test]
    fn a_part_is_missing_if_memory_was_reserved_before_the_first_entry() {
        let warm = warm("", MempoolId::DEFAULT);
        let coverage = |entries: Vec<TraceEntry>, segments: Vec<SegmentInfo>| {
            let recording = Recording {
                entries,
                segments,
                ..warm.clone()
            };
            recording.coverage()
        };
        let alloc = warm.entries[0];
        let of = |action| TraceEntry { action, ..alloc };
        let (taken, returned) = (of(Action::SegmentAlloc), of(Action::SegmentFree));
        let (freed, requested) = (of(Action::FreeCompleted), of(Action::FreeRequested));
        let quiet = vec![of(Action::Snapshot), of(Action::Oom)];
        let here = || warm.segments.clone();
        let reserved = |start, end, peak| (start * alloc.size, end * alloc.size, peak * alloc.size);
        use Extent::{BeginningMissing, Complete, NoHistory};
        for (entries, segments, extent, (start, end, peak)) in [
            (vec![], here(), NoHistory, reserved(1, 1, 1)),
            (quiet.clone(), here(), NoHistory, reserved(1, 1, 1)),
            (
                [&quiet[..], &[alloc]].concat(),
                here(),
                BeginningMissing,
                reserved(1, 1, 1),
            ),
            (vec![taken, alloc], here(), Complete, reserved(0, 1, 1)),
            (quiet, vec![], Complete, reserved(0, 0, 0)),
            (vec![], vec![], Complete, reserved(0, 0, 0)),
            (vec![returned], vec![], BeginningMissing, reserved(1, 0, 1)),
            (
                vec![taken, alloc, requested, freed, returned],
                vec![],
                Complete,
                reserved(0, 0, 1),
            ),
        ] {
            let count = entries.len();
            let found = coverage(entries, segments);
            assert_eq!((found.extent, found.entries), (extent, count), "{found:?}");
            let bytes = [
                found.start.reserved_bytes,
                found.end.reserved_bytes,
                found.peak_reserved_bytes,
            ];
            assert_eq!(bytes, [start, end, peak]);
            assert_eq!(found.is_complete(), extent == Complete);
            assert!(!found.has_private_pools && !found.lacks_ages);
        }
        let complete = Recording {
            conf: Some("garbage_collection_threshold:0.8".to_owned()),
            entries: vec![taken, alloc],
            ..warm.clone()
        };
        assert!(!complete.coverage().allows_estimates_only());
    }

    #[test]
    fn blocks_in_use_before_the_first_entry_are_counted_once() {
        let entry = |action, addr, size| TraceEntry {
            action,
            addr: DeviceAddr(addr),
            size,
            stream: StreamId::DEFAULT,
            time_us: 0,
        };
        use Action::{Alloc, FreeCompleted, FreeRequested};
        let block =
            |addr, requested, state| BlockInfo::new(DeviceAddr(addr), 1000, requested, state);
        let (used, pending) = (BlockState::ActiveAllocated, BlockState::ActivePendingFree);
        let in_use = |entries: &[TraceEntry], blocks: Vec<BlockInfo>| {
            let segment = SegmentInfo {
                blocks,
                ..warm("", MempoolId::DEFAULT).segments[0].clone()
            };
            let recording = Recording {
                entries: entries.to_vec(),
                segments: vec![segment],
                ..Recording::default()
            };
            recording.coverage().start.in_use_bytes
        };
        // Still there at the end, of a known and of an unknown size.
        let left = || {
            vec![
                block(1000, 7, used),
                block(2000, 0, pending),
                block(3000, 9, BlockState::Inactive),
            ]
        };
        assert_eq!(in_use(&[], left()), 1007);
        assert_eq!(in_use(&[entry(Alloc, 1000, 7)], left()), 1000);
        assert_eq!(in_use(&[entry(FreeRequested, 2000, 30)], left()), 37);
        // Freed, in one entry or in two; and used again by others.
        let completed = entry(FreeCompleted, 5000, 50);
        let freed = [entry(FreeRequested, 5000, 50), completed];
        let again = [
            entry(Alloc, 5000, 60),
            entry(FreeRequested, 5000, 60),
            entry(FreeCompleted, 5000, 60),
        ];
        assert_eq!(in_use(&[completed], vec![]), 50);
        assert_eq!(in_use(&freed, vec![]), 50);
        assert_eq!(in_use(&[&freed[..], &again, &again].concat(), vec![]), 50);
        assert_eq!(in_use(&again, vec![]), 0);
        assert_eq!(
            in_use(
                &[&[completed][..], &again[..1]].concat(),
                vec![block(5000, 60, used)]
            ),
            50
        );
    }

    #[test]
    fn as_many_entries_as_a_ring_buffer_has_may_have_lost_others() {
        let coverage = |extent, entries| Coverage {
            extent,
            entries,
            ..warm("", MempoolId::DEFAULT).coverage()
        };
        let missing =
            |entries| coverage(Extent::BeginningMissing, entries).may_have_dropped_entries();
        assert_eq!(
            [999, 1000, 1001, 65_000].map(missing),
            [false, true, false, true]
        );
        for extent in [Extent::Complete, Extent::NoHistory] {
            assert!(!coverage(extent, 1000).may_have_dropped_entries());
        }
    }
}
