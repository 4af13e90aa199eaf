//! The kinds of pools that used addresses, because entries about pages do not contain them.

use std::collections::BTreeMap;

use coalesce_alloc::driver::DeviceAddr;
use coalesce_alloc::history::{Action, TraceEntry};
use coalesce_alloc::pytorch::size;
use coalesce_alloc::settings::Settings;
use coalesce_alloc::stats::PoolKind;

use super::super::Recording;

/// The pool kind for the request of an entry.
pub(in super::super) fn kind_of(entry: &TraceEntry, settings: &Settings) -> PoolKind {
    let rounded = size::round_size(entry.size, settings);
    rounded.map_or(PoolKind::Large, size::pool_kind)
}

/// The pool kinds of the pages that entries unmap, as far as blocks began in these pages while they were mapped. Later,
/// another segment may have the addresses.
pub(super) fn kinds_of_unmapped(
    recording: &Recording,
    settings: &Settings,
) -> BTreeMap<usize, PoolKind> {
    let entries = &recording.entries;
    let mut kinds = BTreeMap::new();
    if !entries
        .iter()
        .any(|entry| entry.action == Action::SegmentUnmap)
    {
        return kinds;
    }
    let mut used: BTreeMap<DeviceAddr, PoolKind> = BTreeMap::new();
    for (index, entry) in entries.iter().enumerate() {
        match entry.action {
            Action::Alloc | Action::FreeCompleted => {
                used.insert(entry.addr, kind_of(entry, settings));
            }
            Action::SegmentUnmap => {
                let end = DeviceAddr(entry.addr.0.saturating_add(entry.size));
                let of_pages: Vec<_> = used.range(entry.addr..end).collect();
                kinds.extend(of_pages.first().map(|&(_, &kind)| (index, kind)));
                let gone: Vec<_> = of_pages.into_iter().map(|(&addr, _)| addr).collect();
                for addr in gone {
                    used.remove(&addr);
                }
            }
            _ => {}
        }
    }
    kinds
}

/// The pool kind that used each address, because entries about pages do not contain it.
pub(super) struct KindsByAddress(BTreeMap<DeviceAddr, PoolKind>);

impl KindsByAddress {
    pub(super) fn of(recording: &Recording, settings: &Settings) -> Self {
        let mut entries = recording.entries.iter();
        let has_pages = entries.any(|entry| entry.action.is_about_pages());
        let users = recording.entries.iter().filter(|entry| {
            has_pages && matches!(entry.action, Action::Alloc | Action::FreeCompleted)
        });
        Self(
            users
                .map(|entry| (entry.addr, kind_of(entry, settings)))
                .collect(),
        )
    }

    /// The pool kind of the pages from `start` to `end`; none if no known block begins there.
    pub(super) fn within(&self, start: DeviceAddr, end: DeviceAddr) -> Option<PoolKind> {
        let (_, &kind) = self.0.range(start..end).next()?;
        Some(kind)
    }
}

#[cfg(test)]
mod tests {
    use Action::{Alloc, FreeCompleted, FreeRequested, SegmentMap, SegmentUnmap};

    use super::super::super::calls::tests::entry;
    use super::*;

    const MIB: u64 = 1 << 20;

    fn recording(steps: &[(Action, u64, u64)]) -> Recording {
        let entries = steps.iter();
        let entries = entries.map(|&(action, addr, size)| entry(action, addr * MIB, size * MIB));
        Recording {
            entries: entries.collect(),
            ..Recording::default()
        }
    }

    #[test]
    fn pages_are_of_the_kind_of_the_blocks_that_began_in_them_since_they_were_mapped() {
        let recording = recording(&[
            (SegmentMap, 100, 20),
            (FreeCompleted, 100, 5),
            (Alloc, 119, 1),
            (SegmentUnmap, 100, 20),
            (SegmentUnmap, 100, 20),
            (Alloc, 101, 1),
            (FreeRequested, 100, 5),
            (SegmentUnmap, 100, 2),
            (Alloc, 140, 5),
            (SegmentUnmap, 120, 20),
            (SegmentUnmap, 140, 20),
        ]);
        let kinds = kinds_of_unmapped(&recording, &Settings::default());
        let (small, large) = (PoolKind::Small, PoolKind::Large);
        let found: Vec<_> = kinds.into_iter().collect();
        assert_eq!(found, [(3, large), (7, small), (10, large)]);
    }

    #[test]
    fn an_address_has_the_kind_of_its_last_block_if_there_are_pages() {
        let steps = [
            (Alloc, 100, 5),
            (Alloc, 100, 1),
            (FreeCompleted, 102, 5),
            (SegmentMap, 104, 5),
        ];
        let kind = |steps: &[(Action, u64, u64)], start: u64, end: u64| {
            let kinds = KindsByAddress::of(&recording(steps), &Settings::default());
            kinds.within(DeviceAddr(start * MIB), DeviceAddr(end * MIB))
        };
        let (small, large) = (Some(PoolKind::Small), Some(PoolKind::Large));
        assert_eq!(kind(&steps, 100, 110), small);
        assert_eq!(kind(&steps, 101, 110), large);
        assert_eq!([kind(&steps, 101, 102), kind(&steps, 103, 110)], [None; 2]);
        assert_eq!(kind(&steps[..3], 100, 110), None);
    }
}
