//! The address ranges of expandable segments.
//!
//! PyTorch reserves an address range of 1 1/8 times the device memory for each expandable segment. The
//! device memory is not recorded, but nothing else lies in such a range, so the gaps between addresses in
//! use bound it from above.

use std::collections::BTreeMap;

use coalesce_alloc::driver::DeviceAddr;
use coalesce_alloc::history::Action;
use coalesce_alloc::pytorch::size;
use coalesce_alloc::settings::Settings;
use coalesce_alloc::stats::PoolKind;

use super::super::Recording;
use super::super::rewind::{KindsByAddress, Start};
pub(in super::super) use crate::start::{Owner, owner};

/// Addresses in use: pages of expandable segments with their owner, and other segments without one.
#[derive(Debug, Default)]
pub(in super::super) struct Extents(BTreeMap<DeviceAddr, Option<Owner>>);

impl Extents {
    pub(in super::super) fn of(
        recording: &Recording,
        start: &Start,
        kinds: &KindsByAddress,
    ) -> Self {
        let mut used = BTreeMap::new();
        for segment in start.segments.iter().chain(&recording.segments) {
            let owner = segment.is_expandable.then(|| owner(segment));
            used.insert(segment.address, owner);
        }
        for (index, entry) in recording.entries.iter().enumerate() {
            match entry.action {
                Action::SegmentAlloc | Action::SegmentFree => {
                    used.insert(entry.addr, None);
                }
                // The start knows more about pages that were mapped before.
                Action::SegmentMap => {
                    let end = DeviceAddr(entry.addr.0.saturating_add(entry.size));
                    let kind = kinds.around(entry.addr, end).unwrap_or(PoolKind::Large);
                    let owner = (entry.stream, kind, recording.pool_of(index));
                    used.insert(entry.addr, Some(owner));
                }
                _ => {}
            }
        }
        Self(used)
    }

    /// Whether there are any pages.
    pub(in super::super) fn is_any_owned(&self) -> bool {
        self.0.values().any(Option::is_some)
    }

    /// The start of the range that contains an owner's pages from `first` to `end`, on a device of `memory`
    /// bytes: the lowest address that the owner used and from which a range reaches `end`.
    pub(in super::super) fn base(
        &self,
        (first, end): (DeviceAddr, DeviceAddr),
        memory: u64,
        settings: &Settings,
    ) -> DeviceAddr {
        let owner = self.0.get(&first).copied().flatten();
        let kind = owner.map_or(PoolKind::Small, |(_, kind, _)| kind);
        let page = size::page_size(kind, settings).max(1);
        let bytes = memory
            .saturating_add(memory / 8)
            .div_ceil(page)
            .saturating_mul(page);
        let below = self.0.range(..first).rev();
        let own = below.take_while(|&(&addr, &other)| {
            owner.is_some() && other == owner && end.offset_from(addr) <= bytes
        });
        own.last().map_or(first, |(&base, _)| base)
    }

    /// The maximum bytes of device memory that the addresses allow.
    pub(in super::super) fn most_memory(&self, settings: &Settings) -> u64 {
        /// 2 TiB: more than any device has, and few enough pages for a table. A power of two, so that the
        /// share for any limit is exact.
        const PLENTY: u64 = 1 << 41;
        let mut most = PLENTY;
        // The start of the current owner's addresses.
        let mut current: Option<(DeviceAddr, Owner)> = None;
        for (&addr, &owner) in &self.0 {
            if let Some((base, before)) = current {
                if owner == Some(before) {
                    continue;
                }
                most = most.min(self.memory_between(base, addr, settings));
            }
            current = owner.map(|owner| (addr, owner));
        }
        most
    }

    /// The maximum bytes of device memory for which the range that begins at `base` ends before `end`.
    pub(in super::super) fn memory_between(
        &self,
        base: DeviceAddr,
        end: DeviceAddr,
        settings: &Settings,
    ) -> u64 {
        let owner = self.0.get(&base).copied().flatten();
        let kind = owner.map_or(PoolKind::Small, |(_, kind, _)| kind);
        let page = size::page_size(kind, settings).max(1);
        end.offset_from(base) / page * page / 9 * 8
    }
}
