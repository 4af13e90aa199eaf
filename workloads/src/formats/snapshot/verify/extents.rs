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
use super::super::rewind::{Start, kind_of};
use super::in_use::InUse;
pub(in super::super) use crate::start::{Owner, owner};

/// Addresses in use at any time, and how close to each other they are.
#[derive(Debug, Default)]
pub(in super::super) struct Extents {
    /// The starts of pages of expandable segments with their owner, and of other segments without one.
    used: BTreeMap<DeviceAddr, Option<Owner>>,
    /// Bytes from the start of an expandable segment to the next address that was in use at the same time, at least,
    /// by the kind of its pool.
    gaps: BTreeMap<PoolKind, u64>,
}

impl Extents {
    pub(in super::super) fn of(recording: &Recording, start: &Start, settings: &Settings) -> Self {
        let mut used = BTreeMap::new();
        for segment in start.segments.iter().chain(&recording.segments) {
            let owner = segment.is_expandable.then(|| owner(segment));
            used.insert(segment.address, owner);
        }
        let mut in_use = InUse::at(&start.segments);
        let kinds = kinds_of_mapped(recording, settings);
        for (index, entry) in recording.entries.iter().enumerate() {
            match entry.action {
                Action::SegmentAlloc => {
                    used.insert(entry.addr, None);
                    in_use.add(entry.addr);
                }
                Action::SegmentFree => {
                    used.insert(entry.addr, None);
                    in_use.remove(entry.addr);
                }
                Action::SegmentMap => {
                    let kind = kinds.get(&index).copied().unwrap_or(PoolKind::Large);
                    let owner = (entry.stream, kind, recording.pool_of(index));
                    used.insert(entry.addr, Some(owner));
                    in_use.map(entry.addr, entry.size, owner);
                }
                Action::SegmentUnmap => in_use.unmap(entry.addr, entry.size),
                _ => {}
            }
        }
        let gaps = in_use.gaps;
        Self { used, gaps }
    }

    /// Whether there are any pages.
    pub(in super::super) fn is_any_owned(&self) -> bool {
        self.used.values().any(Option::is_some)
    }

    /// The start of the range that contains an owner's pages from `first` to `end`, on a device of `memory`
    /// bytes: the lowest address that the owner used and from which a range reaches `end`.
    pub(in super::super) fn base(
        &self,
        (first, end): (DeviceAddr, DeviceAddr),
        memory: u64,
        settings: &Settings,
    ) -> DeviceAddr {
        let owner = self.used.get(&first).copied().flatten();
        let kind = owner.map_or(PoolKind::Small, |(_, kind, _)| kind);
        let page = size::page_size(kind, settings).max(1);
        let bytes = memory
            .saturating_add(memory / 8)
            .div_ceil(page)
            .saturating_mul(page);
        let below = self.used.range(..first).rev();
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
        let gaps = self.gaps.iter();
        let most = gaps.map(|(&kind, &gap)| memory_of_range(gap, kind, settings));
        most.min().unwrap_or(PLENTY).min(PLENTY)
    }

    /// The maximum bytes of device memory for which the range that begins at `base` ends before `end`.
    pub(in super::super) fn memory_between(
        &self,
        base: DeviceAddr,
        end: DeviceAddr,
        settings: &Settings,
    ) -> u64 {
        let owner = self.used.get(&base).copied().flatten();
        let kind = owner.map_or(PoolKind::Small, |(_, kind, _)| kind);
        memory_of_range(end.offset_from(base), kind, settings)
    }
}

/// The maximum bytes of device memory for which a range has no more than these bytes.
fn memory_of_range(bytes: u64, kind: PoolKind, settings: &Settings) -> u64 {
    let page = size::page_size(kind, settings).max(1);
    bytes / page * page / 9 * 8
}

/// The kind of the pool for whose request pages were mapped, by the index of the entry.
fn kinds_of_mapped(recording: &Recording, settings: &Settings) -> BTreeMap<usize, PoolKind> {
    let mut kinds = BTreeMap::new();
    let mut mapped = Vec::new();
    for (index, entry) in recording.entries.iter().enumerate() {
        if entry.action == Action::SegmentMap {
            mapped.push(index);
        } else if entry.action.ends_request() {
            let kind = kind_of(entry, settings);
            kinds.extend(mapped.drain(..).map(|index| (index, kind)));
        }
    }
    kinds
}

#[cfg(test)]
mod tests {
    use Action::{Alloc, Oom, SegmentAlloc, SegmentFree, SegmentMap, SegmentUnmap};

    use super::*;
    use crate::formats::snapshot::fixture::entry;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;
    const PAGE: u64 = 20 * MIB;
    const PLENTY: u64 = 1 << 41;

    /// The extents of these entries: the address in MiB, and the size.
    fn extents(entries: &[(Action, u64, u64)]) -> Extents {
        let entries = entries
            .iter()
            .map(|&(action, addr, size)| entry(action, addr * MIB, size));
        let recording = Recording {
            entries: entries.collect(),
            ..Recording::default()
        };
        Extents::of(&recording, &Start::default(), &Settings::default())
    }

    fn most(entries: &[(Action, u64, u64)]) -> u64 {
        extents(entries).most_memory(&Settings::default())
    }

    #[test]
    fn the_next_address_in_use_bounds_the_memory() {
        let plain = [(SegmentAlloc, 1, PAGE), (Alloc, 1, PAGE)];
        assert_eq!(most(&plain), PLENTY);
        assert!(!extents(&plain).is_any_owned());
        // Pages for large blocks, and a segment 909 MiB above them: 45 pages fit.
        let above = (SegmentAlloc, 1009, PAGE);
        let large = [(SegmentMap, 100, PAGE), (Alloc, 100, PAGE), above];
        assert_eq!(most(&large), 900 * MIB / 9 * 8);
        assert!(extents(&large).is_any_owned());
        // Small pages: 454 of 2 MiB. The request tells the kind, whether it failed or not.
        for action in [Alloc, Oom] {
            let small = [(SegmentMap, 100, 2 * MIB), (action, 100, MIB), above];
            assert_eq!(most(&small), 908 * MIB / 9 * 8);
        }
        // Without one, pages are taken to be for large blocks.
        let found = most(&[(SegmentMap, 100, 2 * MIB), above]);
        assert_eq!(found, 900 * MIB / 9 * 8);
        let found = most(&[(SegmentMap, 100, PAGE), (SegmentAlloc, 1 << 30, PAGE)]);
        assert_eq!(found, PLENTY);
    }

    /// PyTorch gives the addresses of an expandable segment back when all of its pages are unmapped.
    #[test]
    fn addresses_bound_the_memory_only_while_they_are_in_use() {
        let first = [(SegmentMap, 100, PAGE), (Alloc, 100, PAGE)];
        let near = (SegmentAlloc, 140, PAGE);
        let of = |between: &[(Action, u64, u64)]| most(&[&first[..], between, &[near]].concat());
        assert_eq!(of(&[]), 40 * MIB / 9 * 8);
        assert_eq!(of(&[(SegmentUnmap, 100, PAGE)]), PLENTY);
        assert_eq!(of(&[(SegmentUnmap, 100, PAGE / 2)]), 40 * MIB / 9 * 8);
        let gone = [(SegmentAlloc, 130, PAGE), (SegmentFree, 130, PAGE)];
        assert_eq!(most(&[&gone[..], &first].concat()), PLENTY);
        assert_eq!(most(&[&gone[..1], &first].concat()), 20 * MIB / 9 * 8);
    }

    #[test]
    fn the_base_of_a_range_is_the_lowest_address_from_which_it_reaches_the_end() {
        let pages = [100, 500, 900, 1300].map(|addr| (SegmentMap, addr, PAGE));
        let plain = [600, 650].map(|addr| (SegmentAlloc, addr, 2 * MIB));
        let others = extents(&[&plain[..], &[(Alloc, 600, MIB)]].concat());
        let extents = extents(&[&pages[..], &[(Alloc, 100, PAGE)]].concat());
        let base = |first: u64, end: u64, memory: u64| {
            let pages = (DeviceAddr(first * MIB), DeviceAddr(end * MIB));
            extents.base(pages, memory, &Settings::default()).0 / MIB
        };
        assert_eq!(base(1300, 1320, 8 * GIB), 100);
        // A range has 9/8 of the memory, in whole pages.
        assert_eq!(base(1300, 1320, 1220 * MIB / 9 * 8), 100);
        assert_eq!(base(1300, 1320, 1200 * MIB / 9 * 8), 500);
        assert_eq!(base(1300, 1320, 0), 1300);
        assert_eq!(base(700, 720, 8 * GIB), 700, "nobody's");
        let pages = (DeviceAddr(700 * MIB), DeviceAddr(720 * MIB));
        let nobody = others.base(pages, 8 * GIB, &Settings::default());
        assert_eq!(nobody, pages.0, "those below are plain segments");
        let memory = |base: u64, end: u64| {
            let [base, end] = [base, end].map(|addr| DeviceAddr(addr * MIB));
            extents.memory_between(base, end, &Settings::default())
        };
        let expected = [200 * MIB / 9 * 8, 208 * MIB / 9 * 8];
        assert_eq!([memory(100, 309), memory(700, 909)], expected);
    }
}
