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

    const A: Owner = (StreamId::DEFAULT, Large, MempoolId::DEFAULT);
    const B: Owner = (StreamId(7), Large, MempoolId::DEFAULT);
    const C: Owner = (StreamId(7), Small, MempoolId::DEFAULT);

    fn map(in_use: &mut InUse, addr: u64, owner: Owner) {
        in_use.map(DeviceAddr(addr), 10, owner);
    }

    /// The least gaps of small and of large pages.
    fn gaps(in_use: &InUse) -> (Option<u64>, Option<u64>) {
        let gap = |kind| in_use.gaps.get(&kind).copied();
        (gap(Small), gap(Large))
    }

    #[test]
    fn gaps_reach_from_the_first_page_to_the_next_address_of_another() {
        let mut in_use = InUse::default();
        map(&mut in_use, 100, A);
        map(&mut in_use, 130, A);
        assert_eq!(gaps(&in_use), (None, None));
        map(&mut in_use, 900, C);
        assert_eq!(gaps(&in_use), (None, Some(800)));
        // More pages of the same range, also below the others.
        for addr in [130, 120, 90] {
            map(&mut in_use, addr, A);
            assert_eq!(gaps(&in_use), (None, Some(800)));
        }
        // Plain segments end ranges, too; they have none themselves.
        in_use.add(DeviceAddr(500));
        assert_eq!(gaps(&in_use), (None, Some(410)));
        in_use.add(DeviceAddr(1000));
        assert_eq!(gaps(&in_use), (Some(100), Some(410)));
        in_use.add(DeviceAddr(50));
        assert_eq!(gaps(&in_use), (Some(100), Some(410)));
        // A page before the pages of another.
        map(&mut in_use, 650, B);
        assert_eq!(gaps(&in_use), (Some(100), Some(250)));
    }

    #[test]
    fn addresses_are_free_again_when_all_pages_are_unmapped() {
        let mut in_use = InUse::default();
        map(&mut in_use, 100, A);
        map(&mut in_use, 110, A);
        in_use.unmap(DeviceAddr(110), 10);
        // The range is still there.
        map(&mut in_use, 400, B);
        assert_eq!(gaps(&in_use), (None, Some(300)));
        in_use.unmap(DeviceAddr(100), 10);
        map(&mut in_use, 105, B);
        assert_eq!(gaps(&in_use), (None, Some(300)));
        map(&mut in_use, 200, A);
        assert_eq!(gaps(&in_use), (None, Some(95)));
        // A returned segment, and pages below all others.
        in_use.add(DeviceAddr(210));
        in_use.remove(DeviceAddr(210));
        in_use.unmap(DeviceAddr(1), 10);
        assert_eq!(gaps(&in_use), (None, Some(10)));
        assert_eq!(in_use.starts.len(), 2);
        in_use.unmap(DeviceAddr(105), 30);
        let left: Vec<_> = in_use.starts.into_iter().collect();
        assert_eq!(left, [(DeviceAddr(200), Some(A))]);
        let mapped: Vec<_> = in_use.mapped.into_iter().collect();
        assert_eq!(mapped, [(A, (DeviceAddr(200), 10))]);
    }
}
