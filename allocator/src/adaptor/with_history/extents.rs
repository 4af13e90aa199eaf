//! Compares the reserved memory of an allocator at two times.

use std::collections::BTreeMap;

use crate::driver::DeviceAddr;
use crate::history::Action;
use crate::snapshot::SegmentInfo;

/// Disjoint segments by address, with their bytes and whether they are expandable.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Extents(BTreeMap<DeviceAddr, (u64, bool)>);

impl Extents {
    pub(super) fn of(segments: &[SegmentInfo]) -> Self {
        let extents = |segment: &SegmentInfo| {
            let what = (segment.total_size(), segment.is_expandable);
            (segment.address, what)
        };
        Self(segments.iter().map(extents).collect())
    }

    /// Whether a segment contains an address.
    pub(super) fn contains(&self, addr: DeviceAddr) -> bool {
        let before = self.0.range(..=addr).next_back();
        before.is_some_and(|(start, (bytes, _))| addr < start.offset(*bytes))
    }

    /// The changes from `self` to `later`: first the memory returned, then the memory reserved. For
    /// expandable segments, only the changed parts.
    pub(super) fn changes(&self, later: &Self) -> Vec<(Action, DeviceAddr, u64)> {
        let gone = self.without(later, [Action::SegmentFree, Action::SegmentUnmap]);
        let taken = later.without(self, [Action::SegmentAlloc, Action::SegmentMap]);
        gone.into_iter().chain(taken).collect()
    }

    /// The segments that are not in `other`, as the first action; of expandable ones the parts, as the
    /// second.
    fn without(&self, other: &Self, actions: [Action; 2]) -> Vec<(Action, DeviceAddr, u64)> {
        let [whole, part] = actions;
        let mut changes = Vec::new();
        for (&start, &(bytes, is_expandable)) in &self.0 {
            if other.0.get(&start) == Some(&(bytes, is_expandable)) {
                continue;
            }
            if !is_expandable {
                changes.push((whole, start, bytes));
                continue;
            }
            for (start, bytes) in other.gaps(start, bytes) {
                changes.push((part, start, bytes));
            }
        }
        changes
    }

    /// The parts of a range that no expandable segment covers.
    fn gaps(&self, start: DeviceAddr, bytes: u64) -> Vec<(DeviceAddr, u64)> {
        let end = start.offset(bytes);
        let mut gaps = Vec::new();
        let mut from = start;
        let mut add = |from: DeviceAddr, to: DeviceAddr| {
            if from < to {
                gaps.push((from, to.offset_from(from)));
            }
        };
        let first = self
            .0
            .range(..=start)
            .next_back()
            .map_or(start, |(at, _)| *at);
        for (&at, &(bytes, is_expandable)) in self.0.range(first..end) {
            let covered_to = at.offset(bytes);
            if is_expandable && covered_to > from {
                add(from, at.max(from));
                from = covered_to.min(end);
            }
        }
        add(from, end);
        gaps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extents(segments: &[(u64, u64, bool)]) -> Extents {
        let segments = segments.iter();
        Extents(
            segments
                .map(|&(at, bytes, is)| (DeviceAddr(at), (bytes, is)))
                .collect(),
        )
    }

    #[test]
    fn ordinary_segments_change_as_a_whole() {
        let before = extents(&[(0, 10, false), (20, 10, false)]);
        let after = extents(&[(0, 20, false), (20, 10, false)]);
        let expected = [
            (Action::SegmentFree, DeviceAddr(0), 10),
            (Action::SegmentAlloc, DeviceAddr(0), 20),
        ];
        assert_eq!(before.changes(&after), expected);
        assert_eq!(after.changes(&after), []);
    }

    #[test]
    fn expandable_segments_grow_shrink_split_and_merge() {
        let before = extents(&[(10, 40, true), (60, 10, true)]);
        let after = extents(&[(10, 10, true), (30, 50, true)]);
        let expected = [
            (Action::SegmentUnmap, DeviceAddr(20), 10),
            (Action::SegmentMap, DeviceAddr(50), 10),
            (Action::SegmentMap, DeviceAddr(70), 10),
        ];
        assert_eq!(before.changes(&after), expected);
        let nothing = Extents::default();
        assert_eq!(nothing.changes(&before).len(), 2);
        assert_eq!(
            before.changes(&nothing)[0],
            (Action::SegmentUnmap, DeviceAddr(10), 40)
        );
    }

    #[test]
    fn segments_contain_their_addresses() {
        let extents = extents(&[(10, 10, false)]);
        assert!(extents.contains(DeviceAddr(10)) && extents.contains(DeviceAddr(19)));
        assert!(!extents.contains(DeviceAddr(9)) && !extents.contains(DeviceAddr(20)));
    }
}
