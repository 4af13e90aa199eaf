//! A recording prepared for replays, and the deviation that ends a replay.

use std::collections::BTreeMap;
use std::sync::Arc;

use coalesce_alloc::driver::DeviceAddr;
use coalesce_alloc::driver::sim::address::Placement;
use coalesce_alloc::error::Error;
use coalesce_alloc::history::{Action, TraceEntry};
use coalesce_alloc::pytorch::restore::RestoreError;
use coalesce_alloc::release::Release;
use coalesce_alloc::settings::Settings;

use super::super::Recording;
use super::super::calls::{Call, calls};
use super::super::rewind::{RecordingError, Start, rewind};
use super::extents::{Extents, Owner, owner};
use super::pools::GoneSegments;

/// A recording prepared for any number of replays.
pub(super) struct Prepared<'a> {
    pub(super) recording: &'a Recording,
    pub(super) settings: Settings,
    pub(super) start: Start,
    pub(super) calls: Arc<Vec<Call>>,
    /// The segments that were returned before the end.
    pub(super) gone: GoneSegments,
    extents: Extents,
}

impl<'a> Prepared<'a> {
    /// For replays by the rules of a release.
    pub(super) fn new(recording: &'a Recording, release: Release) -> Result<Self, RecordingError> {
        let known = recording.settings_in(release)?;
        let start = rewind(recording, &known)?;
        let settings = known.settings;
        Ok(Self {
            recording,
            extents: Extents::of(recording, &start, &settings),
            calls: Arc::new(calls(
                recording,
                settings.garbage_collection_threshold() > 0.0,
            )),
            gone: GoneSegments::of(recording),
            settings,
            start,
        })
    }

    /// Whether there are expandable segments.
    pub(super) fn is_expandable(&self) -> bool {
        self.extents.is_any_owned()
    }

    /// The maximum bytes of device memory that the recorded addresses allow.
    pub(super) fn most_memory(&self) -> u64 {
        self.extents.most_memory(&self.settings)
    }

    /// The maximum bytes of device memory for which a range reserved at `base` ends before `end`.
    pub(super) fn memory_between(&self, base: DeviceAddr, end: DeviceAddr) -> u64 {
        self.extents.memory_between(base, end, &self.settings)
    }

    pub(super) fn entries_of(&self, call: &Call) -> &'a [TraceEntry] {
        &self.recording.entries[call.entries()]
    }

    /// Whether a malloc looks as if it belongs to a private pool that the recording does not name: the replay
    /// serves it from cached memory, but the recording takes new memory, which is gone at the end.
    pub(super) fn is_of_unknown_pool(
        &self,
        call: &Call,
        recorded: &[TraceEntry],
        ours: &[TraceEntry],
    ) -> bool {
        let takes = |entry: &TraceEntry| entry.action.takes_memory();
        let is_served = ours.last().is_some_and(|last| last.action == Action::Alloc);
        let taken = recorded.iter().find(|entry| takes(entry));
        let is_gone = |taken: &TraceEntry| match taken.action {
            Action::SegmentAlloc => self.gone.contains(taken.addr, call.entries().end - 1),
            _ => {
                let mut segments = self.recording.segments.iter();
                !segments.any(|it| it.address <= taken.addr && taken.addr < it.end())
            }
        };
        let knows_pools = !self.recording.entry_pools.is_empty();
        is_served && !knows_pools && !ours.iter().any(takes) && taken.is_some_and(is_gone)
    }

    /// The placements of the segments at the start on a device of `memory` bytes, in the order in which the
    /// allocator restores them.
    ///
    /// # Errors
    /// If the pages are too far apart, because the allocator keeps a table of the pages between them.
    pub(super) fn placements(&self, memory: u64) -> Result<Vec<Placement>, RestoreError> {
        /// Bytes of addresses that 16 streams reserve on a device of 512 GiB.
        const MOST_ADDRESSES: u64 = 9 << 40;
        let segments = &self.start.segments;
        let (runs, plain): (Vec<_>, Vec<_>) = segments.iter().partition(|s| s.is_expandable);
        let mut placements: Vec<Placement> = plain
            .iter()
            .map(|segment| Placement {
                bytes: Some(segment.total_size()),
                addr: segment.address,
            })
            .collect();
        // The owners of pages, with the first and the last address.
        let mut owners: Vec<(Owner, DeviceAddr, DeviceAddr)> = Vec::new();
        for run in runs {
            let end = run.address.offset(run.total_size());
            match owners.iter_mut().find(|(known, ..)| *known == owner(run)) {
                Some((_, _, last)) => *last = end,
                None => owners.push((owner(run), run.address, end)),
            }
        }
        let mut addresses = 0_u64;
        for (_, first, end) in owners {
            let base = self.extents.base((first, end), memory, &self.settings);
            addresses = addresses.saturating_add(end.offset_from(base));
            if addresses > MOST_ADDRESSES {
                return Err(RestoreError::Impossible {
                    segment: first,
                    reason: format!(
                        "the pages of all streams are spread over more than {MOST_ADDRESSES} bytes of \
                         addresses"
                    ),
                });
            }
            placements.push(Placement {
                bytes: None,
                addr: base,
            });
        }
        Ok(placements)
    }
}

/// The behaviour of the allocator at a call, if it differs from the recording.
pub(super) struct Deviation {
    pub(super) ours: Vec<TraceEntry>,
    /// The error of the allocator, unless it is out of memory.
    pub(super) error: Option<Error>,
    /// The reserved address ranges before the call: start → bytes.
    pub(super) ranges: BTreeMap<DeviceAddr, u64>,
}

impl Deviation {
    /// The start of the range that contained `addr` before the call.
    pub(super) fn range_around(&self, addr: DeviceAddr) -> Option<DeviceAddr> {
        let (&start, &bytes) = self.ranges.range(..=addr).next_back()?;
        (addr.offset_from(start) < bytes).then_some(start)
    }
}

#[cfg(test)]
mod tests {
    use Action::{Alloc, Oom, SegmentAlloc, SegmentMap};
    use coalesce_alloc::MempoolId;

    use super::super::super::calls::CallKind;
    use super::*;
    use crate::formats::snapshot::fixture::{entry, recording};

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_range_around_an_address_begins_below_it() {
        let ranges = [(100, 50), (200, 10)].map(|(start, bytes)| (DeviceAddr(start), bytes));
        let deviation = Deviation {
            ours: Vec::new(),
            error: None,
            ranges: ranges.into(),
        };
        let around = |addr| {
            deviation
                .range_around(DeviceAddr(addr))
                .map(|start| start.0)
        };
        let found = [99, 100, 149, 150, 199, 200, 209, 210].map(around);
        let (one, two) = (Some(100), Some(200));
        assert_eq!(found, [None, one, one, None, None, two, two, None]);
    }

    /// A request takes a segment of 20 MiB that is returned, although the replay serves it from cached memory.
    #[test]
    fn a_served_request_that_took_memory_looks_like_one_of_an_unknown_pool() {
        let recording = recording(
            "segment_alloc 100M 20M\nalloc 100M 20M\nfree_requested 100M 20M\nfree_completed 100M 20M\n\
             segment_free 100M 20M\nsegment 1M | -20M",
        );
        let history = &recording.entries;
        let prepared = Prepared::new(&recording, Release::DEFAULT).unwrap();
        let call = Call::new(CallKind::Malloc, 0..2);
        let is_unknown = |recorded: &[TraceEntry], ours: &[TraceEntry]| {
            prepared.is_of_unknown_pool(&call, recorded, ours)
        };
        let recorded = &history[..2];
        let served = [entry(Alloc, MIB, 20 * MIB)];
        assert!(is_unknown(recorded, &served));
        // The replay fails, or takes memory as well; or the recording takes none.
        assert!(!is_unknown(recorded, &[entry(Oom, 1, 20 * MIB)]) && !is_unknown(recorded, &[]));
        assert!(!is_unknown(recorded, &[history[0], served[0]]));
        assert!(!is_unknown(&history[1..2], &served));
        // Memory that is still there.
        let kept = [entry(SegmentAlloc, 200 * MIB, 20 * MIB), history[1]];
        assert!(!is_unknown(&kept, &served));
        // Pages are looked for at the end.
        let pages = |addr| [entry(SegmentMap, addr, 20 * MIB), history[1]];
        assert!(is_unknown(&pages(100 * MIB), &served));
        assert!(!is_unknown(&pages(MIB), &served) && !is_unknown(&pages(21 * MIB - 1), &served));
        assert!(is_unknown(&pages(21 * MIB), &served) && is_unknown(&pages(MIB - 1), &served));
        // With recorded pools, there is no unknown one.
        let told = Recording {
            entry_pools: vec![MempoolId::DEFAULT; history.len()],
            ..recording.clone()
        };
        let prepared = Prepared::new(&told, Release::DEFAULT).unwrap();
        assert!(!prepared.is_of_unknown_pool(&call, recorded, &served));
    }
}
