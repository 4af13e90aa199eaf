//! The kinds of pools that used addresses, because entries about pages do not contain them.

use std::collections::BTreeMap;

use coalesce_alloc::driver::DeviceAddr;
use coalesce_alloc::history::{Action, TraceEntry};
use coalesce_alloc::pytorch::size;
use coalesce_alloc::settings::Settings;
use coalesce_alloc::stats::PoolKind;

use super::super::Recording;

/// The pool kind for the request of an entry.
fn kind_of(entry: &TraceEntry, settings: &Settings) -> PoolKind {
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
