//! The addresses that are in use at one moment. An expandable segment has all pages of its owner.
//!
//! An expandable segment whose pages are all unmapped gives its address range back, and another one may take it.

use std::collections::BTreeMap;

use coalesce_alloc::driver::DeviceAddr;
use coalesce_alloc::snapshot::SegmentInfo;
use coalesce_alloc::stats::PoolKind;

use crate::start::{Owner, owner};

/// The starts of what is in use, and how close to each other they came.
#[derive(Debug, Default)]
pub(super) struct InUse {
    /// The start of each expandable segment that has pages, with its owner, and of other segments without one. An expandable
    /// segment starts at the lowest page that it had since it last had none.
    starts: BTreeMap<DeviceAddr, Option<Owner>>,
    /// The start and the mapped bytes of each expandable segment that has any.
    mapped: BTreeMap<Owner, (DeviceAddr, u64)>,
    /// Bytes from the start of an expandable segment to the next address in use, at least, by the kind of its pool.
    pub(super) gaps: BTreeMap<PoolKind, u64>,
}

impl InUse {
    /// What is in use while these segments exist.
    pub(super) fn at(segments: &[SegmentInfo]) -> Self {
        let mut in_use = Self::default();
        for segment in segments {
            if segment.is_expandable {
                in_use.map(segment.address, segment.total_size(), owner(segment))
            } else {
                in_use.add(segment.address)
            }
        }
        in_use
    }

    /// Pages are mapped.
    pub(super) fn map(&mut self, addr: DeviceAddr, bytes: u64, owner: Owner) {
        let (start, mapped) = self.mapped.get(&owner).copied().unwrap_or((addr, 0));
        let lowest = start.min(addr);
        self.mapped
            .insert(owner, (lowest, mapped.saturating_add(bytes)));
        if mapped == 0 || lowest < start {
            self.starts.remove(&start);
            self.begin(lowest, Some(owner));
        }
    }

    /// Pages are unmapped.
    pub(super) fn unmap(&mut self, addr: DeviceAddr, bytes: u64) {
        let below = self.starts.range(..=addr).next_back();
        if let Some((&start, &Some(owner))) = below
            && let Some((_, mapped)) = self.mapped.get_mut(&owner)
        {
            *mapped = mapped.saturating_sub(bytes);
            if *mapped == 0 {
                self.mapped.remove(&owner);
                self.starts.remove(&start);
            }
        }
    }

    /// A segment that is not expandable is taken.
    pub(super) fn add(&mut self, addr: DeviceAddr) {
        self.begin(addr, None);
    }

    /// A segment that is not expandable is returned.
    pub(super) fn remove(&mut self, addr: DeviceAddr) {
        self.starts.remove(&addr);
    }

    fn begin(&mut self, addr: DeviceAddr, owner: Option<Owner>) {
        self.starts.insert(addr, owner);
        let below = self.starts.range(..addr).next_back();
        let behind = self.starts.range(addr..).nth(1);
        let before = below.map(|(&start, &before)| (start, before, addr));
        let own = behind.map(|(&behind, _)| (addr, owner, behind));
        for (start, owner, next) in before.into_iter().chain(own) {
            if let Some((_, kind, _)) = owner {
                let bytes = next.offset_from(start);
                let least = self.gaps.entry(kind).or_insert(bytes);
                *least = bytes.min(*least);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use PoolKind::{Large, Small};
    use coalesce_alloc::MempoolId;
    use coalesce_alloc::driver::StreamId;

    use super::*;
    use crate::cases;
    use crate::formats::snapshot::fixture::number;

    fn owner(name: &str) -> Owner {
        let (stream, kind) = match name {
            "A" => (StreamId::DEFAULT, Large),
            "B" => (StreamId(7), Large),
            _ => (StreamId(7), Small),
        };
        (stream, kind, MempoolId::DEFAULT)
    }

    /// The least gaps of small and of large pages after each change, and the addresses of pages at the end.
    #[test]
    fn gaps_reach_from_the_first_page_to_the_next_address_of_another() {
        cases::check("src/formats/snapshot/cases/in-use.txt", |text| {
            let mut in_use = InUse::default();
            let mut told = String::new();
            for line in text.lines() {
                let words: Vec<&str> = line.split(' ').collect();
                let addr = DeviceAddr(number(words[1]));
                match words[0] {
                    "map" => in_use.map(addr, 10, owner(words[2])),
                    "unmap" => in_use.unmap(addr, number(words[2])),
                    "add" => in_use.add(addr),
                    _ => in_use.remove(addr),
                }
                let gaps = [Small, Large].map(|kind| in_use.gaps.get(&kind));
                told += &format!("{line}: {gaps:?}\n");
            }
            let starts = in_use.starts.into_iter();
            let starts = starts.map(|(addr, owner)| (addr.0, owner.map(|owner| owner.0.0)));
            let mapped = in_use.mapped.into_iter();
            let mapped = mapped.map(|(owner, (addr, bytes))| (owner.0.0, addr.0, bytes));
            let left = (starts.collect::<Vec<_>>(), mapped.collect::<Vec<_>>());
            format!("{told}starts {:?}, mapped {:?}", left.0, left.1)
        });
    }
}
