//! Whether a history is complete and free of contradictions, no matter which allocator recorded it.
//!
//! An allocator other than PyTorch's may split, round and coalesce as it likes, so the rules by which a
//! recording is rewound do not apply to it. If its history passes this check, its requests are known anyway.

use std::collections::BTreeMap;

use coalesce_alloc::driver::DeviceAddr;
use coalesce_alloc::history::{Action, TraceEntry};

use super::Recording;

/// Whether a history is complete and free of contradictions under any allocator: it begins with nothing
/// reserved, every request lies in reserved memory that no other one uses, every free is of a whole request,
/// and what is left is the state at the end.
#[must_use]
pub(super) fn is_consistent(recording: &Recording) -> bool {
    let mut state = State::default();
    let is_possible = |entry: &TraceEntry| state.apply(entry).is_some();
    if !recording.entries.iter().all(is_possible) {
        return false;
    }
    let mut at_end = State::default();
    for segment in &recording.segments {
        let blocks = segment.blocks.iter().filter(|block| block.is_active());
        let used = blocks.map(|block| (block.address.0, block.requested_size));
        at_end.used.extend(used);
        let added = at_end.reserved.add(segment.address, segment.total_size());
        if added.is_none() {
            return false;
        }
    }
    at_end.used == state.used && at_end.reserved.joined() == state.reserved.joined()
}

/// Memory while a history is applied.
#[derive(Default)]
struct State {
    reserved: Ranges,
    /// Start and bytes of each request that was not freed.
    used: BTreeMap<u64, u64>,
}

impl State {
    /// Applies an entry. `None` if it contradicts the entries before it.
    fn apply(&mut self, entry: &TraceEntry) -> Option<()> {
        let &TraceEntry { addr, size, .. } = entry;
        match entry.action {
            Action::SegmentAlloc | Action::SegmentMap => self.reserved.add(addr, size),
            Action::SegmentFree | Action::SegmentUnmap => self.reserved.remove(addr, size),
            Action::Alloc => {
                let end = addr.0.checked_add(size)?;
                let is_free = overlapping(&self.used, addr.0, end).next().is_none();
                let fits = is_free && self.reserved.contains(addr.0, end);
                fits.then(|| _ = self.used.insert(addr.0, size))
            }
            Action::FreeRequested => (self.used.get(&addr.0) == Some(&size)).then_some(()),
            Action::FreeCompleted => (self.used.remove(&addr.0) == Some(size)).then_some(()),
            Action::Snapshot | Action::Oom => Some(()),
        }
    }
}

/// Disjoint ranges of addresses: start and bytes.
#[derive(Default)]
struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// Adds a range. `None` if a part of it is there already.
    fn add(&mut self, start: DeviceAddr, bytes: u64) -> Option<()> {
        let end = start.0.checked_add(bytes)?;
        let is_new = overlapping(&self.0, start.0, end).next().is_none();
        is_new.then(|| _ = self.0.insert(start.0, bytes))
    }

    /// Removes a range. `None` if a part of it is missing.
    fn remove(&mut self, start: DeviceAddr, bytes: u64) -> Option<()> {
        let end = start.0.checked_add(bytes)?;
        if !self.contains(start.0, end) {
            return None;
        }
        let parts: Vec<(u64, u64)> = overlapping(&self.0, start.0, end).collect();
        for (first, bytes) in parts {
            self.0.remove(&first);
            let last = first + bytes;
            if first < start.0 {
                self.0.insert(first, start.0 - first);
            }
            if last > end {
                self.0.insert(end, last - end);
            }
        }
        Some(())
    }

    /// Whether the ranges cover everything from `start` to `end`.
    fn contains(&self, start: u64, end: u64) -> bool {
        let mut covered = start;
        for (first, bytes) in overlapping(&self.0, start, end) {
            if first > covered {
                return false;
            }
            covered = first + bytes;
        }
        covered >= end
    }

    /// The ranges, contiguous ones joined.
    fn joined(&self) -> Vec<(u64, u64)> {
        let mut joined: Vec<(u64, u64)> = Vec::new();
        for (&start, &bytes) in &self.0 {
            match joined
                .last_mut()
                .filter(|(first, before)| first + before == start)
            {
                Some((_, before)) => *before += bytes,
                None => joined.push((start, bytes)),
            }
        }
        joined
    }
}

/// The ranges that share addresses with those from `start` to `end`.
fn overlapping(
    ranges: &BTreeMap<u64, u64>,
    start: u64,
    end: u64,
) -> impl Iterator<Item = (u64, u64)> {
    let before = ranges
        .range(..start)
        .next_back()
        .filter(move |&(first, bytes)| first + bytes > start);
    let within = ranges.range(start..end.max(start));
    before
        .into_iter()
        .chain(within)
        .map(|(&first, &bytes)| (first, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases;
    use crate::formats::snapshot::fixture::{number, recording};

    /// A case is ranges, each as `start:bytes`, and one that is added or removed.
    #[test]
    fn ranges_are_added_once_and_removed_in_part() {
        cases::check("src/formats/snapshot/cases/ranges.txt", |case| {
            let range = |text: &str| {
                let (start, bytes) = text.split_once(':').unwrap();
                (number(start), number(bytes))
            };
            let (before, change) = case.split_once(" and ").unwrap();
            let mut ranges = Ranges(before.split(", ").map(range).collect());
            let (start, bytes) = range(change.split_once(' ').unwrap().1);
            let done = if change.starts_with("add") {
                ranges.add(DeviceAddr(start), bytes)
            } else {
                ranges.remove(DeviceAddr(start), bytes)
            };
            let joined = ranges.joined();
            done.map_or("refused".to_owned(), |()| {
                format!("{:?}, joined {joined:?}", ranges.0)
            })
        });
        assert_eq!(Ranges(BTreeMap::new()).joined(), []);
    }

    #[test]
    fn a_history_that_contradicts_itself_is_found() {
        let history = "segment_alloc 100 50; alloc 100 20; alloc 120 30; free_requested 100 20; free_completed 100 20; \
                       alloc 110 10; free_requested 110 10; free_completed 110 10; free_requested 120 30; \
                       free_completed 120 30; segment_free 100 50";
        let history: Vec<&str> = history.split("; ").collect();
        let check = |entries: &[&str]| is_consistent(&recording(&entries.join("\n")));
        assert!(check(&history) && check(&[]));
        // Without its end, memory is left that the state at the end does not have.
        for end in 1..history.len() {
            assert!(!check(&history[..end]), "{end}");
        }
        for (index, wrong) in [
            (0, "segment_alloc 100 49"),
            (1, "alloc 100 21"),
            (1, "alloc 99 20"),
            (2, "alloc 119 31"),
            (3, "free_requested 100 19"),
            (3, "free_requested 101 20"),
            (4, "free_completed 100 19"),
            (5, "alloc 111 10"),
            (10, "segment_free 100 51"),
            (10, "segment_free 99 50"),
        ] {
            let mut history = history.clone();
            history[index] = wrong;
            assert!(!check(&history), "{wrong}");
        }
    }

    #[test]
    fn what_is_left_is_the_state_at_the_end() {
        let is_consistent = |segments: &str| {
            let entries = "segment_map 100 10\nsegment_map 110 10\n";
            is_consistent(&recording(&(entries.to_owned() + segments)))
        };
        assert!(is_consistent("segment 100 pages | -20"));
        for segments in [
            "",
            "segment 100 pages | -10",
            "segment 100 pages | -21",
            "segment 100 pages | -10\nsegment 105 pages | -15",
        ] {
            assert!(!is_consistent(segments), "{segments}");
        }
    }
}
