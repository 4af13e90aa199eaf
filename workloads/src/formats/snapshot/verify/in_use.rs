//! The addresses that are in use at one moment.
//!
//! An expandable segment whose pages are all unmapped gives its address range back, and another one may take it.

use std::collections::BTreeMap;

use coalesce_alloc::driver::DeviceAddr;
use coalesce_alloc::snapshot::SegmentInfo;
use coalesce_alloc::stats::PoolKind;

use crate::start::{Owner, owner};

/// The addresses in use, and how close to each other they came.
#[derive(Debug, Default)]
pub(super) struct InUse {
    /// The starts of pages of expandable segments with their owner, and of other segments without one. A page keeps its
    /// address until all pages of its owner are unmapped.
    starts: BTreeMap<DeviceAddr, Option<Owner>>,
    /// The mapped bytes of each owner that has any.
    mapped: Vec<(Owner, u64)>,
    /// Bytes from the start of an expandable segment to the next address in use, at least, by the kind of its pool.
    pub(super) gaps: BTreeMap<PoolKind, u64>,
}

impl InUse {
    /// With these segments.
    pub(super) fn at(segments: &[SegmentInfo]) -> Self {
        let mut in_use = Self::default();
        for segment in segments {
            match segment.is_expandable {
                true => in_use.map(segment.address, segment.total_size(), owner(segment)),
                false => in_use.add(segment.address, None),
            }
        }
        in_use
    }

    /// Pages are mapped.
    pub(super) fn map(&mut self, addr: DeviceAddr, bytes: u64, owner: Owner) {
        match self.mapped.iter_mut().find(|(known, _)| *known == owner) {
            Some((_, mapped)) => *mapped = mapped.saturating_add(bytes),
            None => self.mapped.push((owner, bytes)),
        }
        self.add(addr, Some(owner));
    }

    /// Pages are unmapped.
    pub(super) fn unmap(&mut self, addr: DeviceAddr, bytes: u64) {
        let below = self.starts.range(..=addr).next_back();
        let Some(owner) = below.and_then(|(_, &owner)| owner) else {
            return;
        };
        let Some(place) = self.mapped.iter().position(|(known, _)| *known == owner) else {
            return;
        };
        let left = self.mapped[place].1.saturating_sub(bytes);
        self.mapped[place].1 = left;
        if left == 0 {
            self.mapped.swap_remove(place);
            self.starts.retain(|_, other| *other != Some(owner));
        }
    }

    /// A segment begins at an address.
    pub(super) fn add(&mut self, addr: DeviceAddr, owner: Option<Owner>) {
        if self.starts.insert(addr, owner) == Some(owner) {
            return;
        }
        let below = self.starts.range(..addr).next_back();
        if let Some((_, &Some(before))) = below
            && owner != Some(before)
        {
            self.note_gap(addr, before);
        }
        let Some(owner) = owner else {
            return;
        };
        let mut above = self.starts.range(addr..);
        let behind = above.find(|(_, other)| **other != Some(owner));
        if let Some((&behind, _)) = behind {
            self.note_gap(behind, owner);
        }
    }

    /// A segment that is not expandable is returned.
    pub(super) fn remove(&mut self, addr: DeviceAddr) {
        self.starts.remove(&addr);
    }

    /// Notes the bytes from the start of the owner's addresses below `end` to there.
    fn note_gap(&mut self, end: DeviceAddr, owner: Owner) {
        let below = self.starts.range(..end).rev();
        let own = below.take_while(|(_, other)| **other == Some(owner));
        if let Some((&base, _)) = own.last() {
            let (_, kind, _) = owner;
            let bytes = end.offset_from(base);
            let least = self.gaps.entry(kind).or_insert(bytes);
            *least = bytes.min(*least);
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
        in_use.add(DeviceAddr(500), None);
        assert_eq!(gaps(&in_use), (None, Some(410)));
        in_use.add(DeviceAddr(1000), None);
        assert_eq!(gaps(&in_use), (Some(100), Some(410)));
        in_use.add(DeviceAddr(50), None);
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
        in_use.add(DeviceAddr(210), None);
        in_use.remove(DeviceAddr(210));
        in_use.unmap(DeviceAddr(1), 10);
        assert_eq!(gaps(&in_use), (None, Some(10)));
        assert_eq!(in_use.starts.len(), 3);
        in_use.unmap(DeviceAddr(401), 30);
        let left: Vec<_> = in_use.starts.into_iter().collect();
        assert_eq!(left, [(DeviceAddr(200), Some(A))]);
        assert_eq!(in_use.mapped, [(A, 10)]);
    }
}
