//! Where expandable segments lie.
//!
//! The range of addresses of one is reserved for 1 1/8 of the device's memory, which is not recorded.
//! But nothing else lies in it: so the gaps between what is there say how much memory there was at most.

use std::collections::BTreeMap;

use allocator::driver::sim::GRANULARITY;
use allocator::driver::{DeviceAddr, StreamId};
use allocator::history::Action;
use allocator::mempool::MempoolId;
use allocator::snapshot::SegmentInfo;
use allocator::stats::PoolKind;

use super::super::Recording;
use super::super::rewind::{KindsByAddress, Start};

/// Whose pages a range of addresses is for. There is one such range as a rule.
pub(super) type Owner = (StreamId, PoolKind, MempoolId);

/// Whose pages a mapped run is part of.
pub(super) fn owner(segment: &SegmentInfo) -> Owner {
    (segment.stream, segment.kind, segment.pool)
}

/// What is known of the ranges: from the first page ever mapped to the end of the last.
#[derive(Debug, Default)]
pub(super) struct Extents {
    ranges: BTreeMap<Owner, (DeviceAddr, DeviceAddr)>,
    /// Where segments lay that are not expandable.
    others: Vec<DeviceAddr>,
}

impl Extents {
    pub(super) fn of(recording: &Recording, start: &Start, kinds: &KindsByAddress) -> Self {
        let mut extents = Self::default();
        for segment in start.segments.iter().chain(&recording.segments) {
            if segment.is_expandable {
                let end = segment.address.offset(segment.total_size());
                extents.add(owner(segment), segment.address, end);
            } else {
                extents.others.push(segment.address);
            }
        }
        for (index, entry) in recording.entries.iter().enumerate() {
            match entry.action {
                Action::SegmentAlloc | Action::SegmentFree => extents.others.push(entry.addr),
                Action::SegmentMap | Action::SegmentUnmap => {
                    let end = DeviceAddr(entry.addr.0.saturating_add(entry.size));
                    let kind = kinds.around(entry.addr, end).unwrap_or(PoolKind::Large);
                    let pool = recording.pool_of(index);
                    extents.add((entry.stream, kind, pool), entry.addr, end);
                }
                _ => {}
            }
        }
        extents
    }

    fn add(&mut self, owner: Owner, start: DeviceAddr, end: DeviceAddr) {
        let known = self.ranges.entry(owner).or_insert((start, end));
        *known = (known.0.min(start), known.1.max(end));
    }

    /// Where the range of an owner begins.
    pub(super) fn base(&self, owner: Owner) -> Option<DeviceAddr> {
        self.ranges.get(&owner).map(|&(base, _)| base)
    }

    /// The most memory, in bytes, that the device can have had. Ranges are whole pages of `page`
    /// bytes.
    pub(super) fn most_memory(&self, page: u64) -> u64 {
        /// More than any device has. A power of two, of which every limit is a share without rounding.
        const PLENTY: u64 = 1 << 46;
        let bases = self.ranges.values().map(|&(base, _)| base);
        let all: Vec<DeviceAddr> = bases.chain(self.others.iter().copied()).collect();
        let mut most = PLENTY;
        let mut least = 0;
        for &(base, end) in self.ranges.values() {
            least = least.max(end.offset_from(base));
            let next = all.iter().filter(|&&other| other > base).min();
            let reserved = next.map_or(u64::MAX, |next| next.offset_from(base));
            let memory = reserved.saturating_sub(page) / 9 * 8;
            most = most.min(memory / GRANULARITY * GRANULARITY);
        }
        most.max(least)
    }
}
