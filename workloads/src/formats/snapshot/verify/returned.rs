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

    use super::*;
    use crate::cases;
    use crate::formats::snapshot::fixture::{entry, number};

    #[test]
    fn a_private_pool_returns_its_small_segments_first() {
        cases::check("src/formats/snapshot/cases/returned.txt", |segments| {
            let mut returned = Returned::default();
            let mut before: Option<TraceEntry> = None;
            let mut found = Vec::new();
            for segment in segments.split(' ') {
                before = segment.split_once(':').map(|(addr, size)| {
                    let entry = entry(Action::SegmentFree, number(addr), number(size));
                    returned = returned.next(before.as_ref(), &entry);
                    let default = if returned.may_be_of_default {
                        " default"
                    } else {
                        ""
                    };
                    found.push(format!("{}.{}{default}", returned.run, returned.part));
                    entry
                });
            }
            found.join(", ")
        });
    }
}
