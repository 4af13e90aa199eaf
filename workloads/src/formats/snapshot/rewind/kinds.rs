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
    use super::*;
    use crate::formats::snapshot::fixture::{number, recording};

    #[test]
    fn pages_are_of_the_kind_of_the_blocks_that_began_in_them_since_they_were_mapped() {
        let recording = recording(
            "segment_map 100M 20M\nfree_completed 100M 5M\nalloc 119M 1M\nsegment_unmap 100M 20M\n\
             segment_unmap 100M 20M\nalloc 101M 1M\nfree_requested 100M 5M\nsegment_unmap 100M 2M\n\
             alloc 140M 5M\nsegment_unmap 120M 20M\nsegment_unmap 140M 20M",
        );
        let kinds = kinds_of_unmapped(&recording, &Settings::default());
        let (small, large) = (PoolKind::Small, PoolKind::Large);
        assert!(kinds.into_iter().eq([(3, large), (7, small), (10, large)]));
    }

    #[test]
    fn an_address_has_the_kind_of_its_last_block_if_there_are_pages() {
        let blocks = "alloc 100M 5M\nalloc 100M 1M\nfree_completed 102M 5M";
        let steps = format!("{blocks}\nsegment_map 104M 5M");
        let kind = |steps: &str, start: &str, end: &str| {
            let kinds = KindsByAddress::of(&recording(steps), &Settings::default());
            kinds.within(DeviceAddr(number(start)), DeviceAddr(number(end)))
        };
        assert_eq!(kind(&steps, "100M", "110M"), Some(PoolKind::Small));
        assert_eq!(kind(&steps, "101M", "110M"), Some(PoolKind::Large));
        assert_eq!(kind(&steps, "101M", "102M"), None);
        assert_eq!(kind(&steps, "103M", "110M"), None);
        assert_eq!(kind(blocks, "100M", "110M"), None);
    }
}
