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
    use super::*;
    use crate::cases;
    use crate::formats::snapshot::fixture::{number, recording, short};

    /// A case has entries, and behind them questions about their extents.
    #[test]
    fn addresses_in_use_bound_the_memory() {
        cases::check("src/formats/snapshot/cases/extents.txt", |text| {
            let is_question = |line: &&str| {
                ["most", "base", "between"].contains(&line.split(' ').next().unwrap())
            };
            let (questions, entries): (Vec<&str>, Vec<&str>) = text.lines().partition(is_question);
            let recording = recording(&entries.join("\n"));
            let settings = Settings::default();
            let extents = Extents::of(&recording, &Start::default(), &settings);
            let answer = |question: &&str| {
                let words: Vec<&str> = question.split(' ').skip(1).collect();
                let numbers: Vec<u64> = words.iter().map(|word| number(word)).collect();
                let answer = match numbers[..] {
                    [] => extents.most_memory(&settings),
                    [base, end] => {
                        extents.memory_between(DeviceAddr(base), DeviceAddr(end), &settings)
                    }
                    // A range has 9/8 of the memory, in whole pages.
                    [first, end, range, ..] => {
                        let pages = (DeviceAddr(first), DeviceAddr(end));
                        extents.base(pages, range / 9 * 8, &settings).0
                    }
                    [_] => panic!("{question}"),
                };
                format!("{question}: {}\n", short(answer))
            };
            let answers: String = questions.iter().map(answer).collect();
            format!("{answers}owned: {}", extents.is_any_owned())
        });
    }
}
