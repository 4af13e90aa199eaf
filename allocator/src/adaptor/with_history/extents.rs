//! The memory that an allocator holds, and what became of it since.

use std::collections::BTreeMap;

use crate::driver::DeviceAddr;
use crate::history::Action;
use crate::snapshot::SegmentInfo;

/// Segments by address: their bytes, and whether they are expandable. They are disjoint.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Extents(BTreeMap<DeviceAddr, (u64, bool)>);

impl Extents {
    pub(super) fn of(segments: &[SegmentInfo]) -> Self {
        let held = |segment: &SegmentInfo| {
            let what = (segment.total_size(), segment.is_expandable);
            (segment.address, what)
        };
        Self(segments.iter().map(held).collect())
    }

    /// Whether an address is in one of them.
    pub(super) fn contains(&self, addr: DeviceAddr) -> bool {
        let before = self.0.range(..=addr).next_back();
        before.is_some_and(|(start, (bytes, _))| addr < start.offset(*bytes))
    }

    /// What leads from here to `later`: first what was returned, then what was taken. Of expandable
    /// segments that is only the memory at their ends or in between.
    pub(super) fn changes(&self, later: &Self) -> Vec<(Action, DeviceAddr, u64)> {
        let gone = self.without(later, [Action::SegmentFree, Action::SegmentUnmap]);
        let taken = later.without(self, [Action::SegmentAlloc, Action::SegmentMap]);
        gone.into_iter().chain(taken).collect()
    }

    /// The segments that are not in `other`, told as one action; of expandable ones the parts, as another.
    fn without(&self, other: &Self, actions: [Action; 2]) -> Vec<(Action, DeviceAddr, u64)> {
        let [whole, part] = actions;
        let mut told = Vec::new();
        for (&start, &(bytes, is_expandable)) in &self.0 {
            if other.0.get(&start) == Some(&(bytes, is_expandable)) {
                continue;
            }
            if !is_expandable {
                told.push((whole, start, bytes));
                continue;
            }
            for (start, bytes) in other.gaps(start, bytes) {
                told.push((part, start, bytes));
            }
        }
        told
    }

    /// The parts of a range that no expandable segment here covers.
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

    fn held(segments: &[(u64, u64, bool)]) -> Extents {
        let segments = segments.iter();
        Extents(
            segments
                .map(|&(at, bytes, is)| (DeviceAddr(at), (bytes, is)))
                .collect(),
        )
    }

    #[test]
    fn plain_segments_come_and_go_as_a_whole() {
        let before = held(&[(0, 10, false), (20, 10, false)]);
        let after = held(&[(0, 20, false), (20, 10, false)]);
        let expected = [
            (Action::SegmentFree, DeviceAddr(0), 10),
            (Action::SegmentAlloc, DeviceAddr(0), 20),
        ];
        assert_eq!(before.changes(&after), expected);
        assert_eq!(after.changes(&after), []);
    }

    #[test]
    fn expandable_segments_grow_shrink_split_and_merge() {
        let before = held(&[(10, 40, true), (60, 10, true)]);
        let after = held(&[(10, 10, true), (30, 50, true)]);
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
    fn an_address_is_in_a_segment_or_not() {
        let held = held(&[(10, 10, false)]);
        assert!(held.contains(DeviceAddr(10)) && held.contains(DeviceAddr(19)));
        assert!(!held.contains(DeviceAddr(9)) && !held.contains(DeviceAddr(20)));
    }
}
