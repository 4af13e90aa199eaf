//! The returns of segments to the device: which of them one pool may have made at once.
//!
//! The default pool returns its large segments, then its small ones; then each private pool returns its small segments, then
//! its large ones.

use coalesce_alloc::history::TraceEntry;
use coalesce_alloc::pytorch::size::SMALL_SEGMENT;

/// The return of a segment to the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Returned {
    /// The number of the run of entries that return segments; other kinds of entries separate runs.
    pub(super) run: usize,
    /// The number of the part of a run that a single private pool may have returned.
    pub(super) part: usize,
    /// Whether the default pool may have returned it: it comes first in a run.
    pub(super) may_be_of_default: bool,
}

impl Returned {
    /// The return after this one. `before` is the entry of this one if no other entry is between them.
    pub(super) fn next(self, before: Option<&TraceEntry>, entry: &TraceEntry) -> Self {
        let Some(before) = before else {
            return Self {
                run: self.run + 1,
                part: self.part + 1,
                may_be_of_default: true,
            };
        };
        Self {
            run: self.run,
            part: self.part + usize::from(!is_in_order(before, entry)),
            may_be_of_default: self.may_be_of_default && is_in_order_of_default(before, entry),
        }
    }
}

/// Whether a private pool that returns both segments, `first` and `next`, returns them in this order.
fn is_in_order(first: &TraceEntry, next: &TraceEntry) -> bool {
    let place = |entry: &TraceEntry| (is_large(entry), entry.stream, entry.size, entry.addr);
    place(first) < place(next)
}

/// Whether the default pool returns both segments, `first` and `next`, in this order: the large ones come first.
fn is_in_order_of_default(first: &TraceEntry, next: &TraceEntry) -> bool {
    let place = |entry: &TraceEntry| (!is_large(entry), entry.stream, entry.size, entry.addr);
    place(first) < place(next)
}

/// Whether the segment of an entry is in the pool for large blocks.
pub(super) fn is_large(entry: &TraceEntry) -> bool {
    entry.size > SMALL_SEGMENT
}

#[cfg(test)]
mod tests {
    use coalesce_alloc::history::Action;

    use super::super::super::calls::tests::entry;
    use super::*;

    const MIB: u64 = 1 << 20;

    /// The run and the part of each return, and whether the default pool may have made it; `None` separates runs.
    fn returns(segments: &[Option<(u64, u64)>]) -> Vec<(usize, usize, bool)> {
        let mut returned = Returned::default();
        let mut before: Option<TraceEntry> = None;
        let mut found = Vec::new();
        for segment in segments {
            let Some((addr, size)) = *segment else {
                before = None;
                continue;
            };
            let entry = entry(Action::SegmentFree, addr, size);
            returned = returned.next(before.as_ref(), &entry);
            before = Some(entry);
            found.push((returned.run, returned.part, returned.may_be_of_default));
        }
        found
    }

    #[test]
    fn a_private_pool_returns_its_small_segments_first() {
        let (small, large) = (2 * MIB, 2 * MIB + 1);
        // One private pool; the default pool can have returned the first only.
        assert_eq!(
            returns(&[
                Some((5, small)),
                Some((7, small)),
                Some((1, large)),
                Some((0, large + 1))
            ]),
            [(1, 1, true), (1, 1, true), (1, 1, false), (1, 1, false)]
        );
        // The default pool; each of its parts may be of another private one.
        assert_eq!(
            returns(&[
                Some((1, large)),
                Some((2, large)),
                Some((0, small)),
                Some((3, small))
            ]),
            [(1, 1, true), (1, 1, true), (1, 2, true), (1, 2, true)]
        );
        // Not in search order, or the same segment again.
        assert_eq!(
            returns(&[
                Some((2, large)),
                Some((1, large)),
                Some((1, large)),
                Some((9, large))
            ]),
            [(1, 1, true), (1, 2, false), (1, 3, false), (1, 3, false)]
        );
        // Another entry between them begins a run.
        assert_eq!(
            returns(&[
                Some((2, large)),
                Some((1, large)),
                None,
                Some((3, large)),
                Some((4, large))
            ]),
            [(1, 1, true), (1, 2, false), (2, 3, true), (2, 3, true)]
        );
    }
}
