//! Free ranges of segments: best fit, split, coalesce.
//!
//! The original lists the blocks of each segment and merges every freed block with its free neighbours. Its
//! free blocks are therefore the maximal free ranges of a segment, and only these are kept here.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::check::{Violation, ensure};
use crate::driver::{DeviceAddr, StreamId};
use crate::policy::Block;

use super::Request;

/// A contiguous range of bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Range {
    pub(super) addr: DeviceAddr,
    pub(super) bytes: u64,
}

impl Range {
    /// The range of a block.
    pub(super) fn of(block: Block) -> Self {
        let Block { addr, bytes, .. } = block;
        Self { addr, bytes }
    }

    fn between(addr: DeviceAddr, end: DeviceAddr) -> Self {
        let bytes = end.offset_from(addr);
        Self { addr, bytes }
    }

    pub(super) fn end(self) -> DeviceAddr {
        self.addr.offset(self.bytes)
    }

    /// Returns its first `bytes`, or all of it if it has fewer.
    pub(super) fn first(self, bytes: u64) -> Self {
        let bytes = bytes.min(self.bytes);
        Self { bytes, ..self }
    }

    pub(super) fn overlaps(self, other: Self) -> bool {
        self.addr < other.end() && other.addr < self.end()
    }

    fn contains(self, other: Self) -> bool {
        self.addr <= other.addr && other.end() <= self.end()
    }
}

/// Search order: stream, bytes, address.
type BySize = (StreamId, u64, DeviceAddr);

#[derive(Clone, Copy, Debug)]
struct Segment {
    range: Range,
    /// The stream whose requests it serves.
    stream: StreamId,
}

/// The segments of a pool and their free ranges.
///
/// Invariants: `by_addr` and `by_size` hold the same ranges; each lies in one segment; two ranges of a
/// segment never touch.
#[derive(Debug, Default)]
pub(super) struct FreeRanges {
    segments: BTreeMap<DeviceAddr, Segment>,
    by_addr: BTreeMap<DeviceAddr, u64>,
    by_size: BTreeSet<BySize>,
}

impl FreeRanges {
    /// Adds a segment, entirely free.
    pub(super) fn add_segment(&mut self, range: Range, stream: StreamId) {
        self.segments.insert(range.addr, Segment { range, stream });
        self.insert(range, stream);
    }

    /// Removes a segment that is entirely free.
    pub(super) fn remove_segment(&mut self, range: Range) {
        if let Some(segment) = self.segments.remove(&range.addr) {
            self.remove(range, segment.stream);
        }
    }

    /// Returns the segments that are entirely free, in search order.
    pub(super) fn whole_segments(&self) -> Vec<Range> {
        let free = self
            .by_size
            .iter()
            .map(|&(_, bytes, addr)| Range { addr, bytes });
        let is_whole = |free: &Range| {
            let segment = self.segments.get(&free.addr);
            segment.is_some_and(|segment| segment.range == *free)
        };
        free.filter(is_whole).collect()
    }

    /// Returns the smallest free range of the stream with at least `bytes`, the lowest address among equals.
    pub(super) fn best_fit(&self, stream: StreamId, bytes: u64) -> Option<Range> {
        let from = (stream, bytes, DeviceAddr::NULL);
        let &(of, bytes, addr) = self.by_size.range(from..).next()?;
        (of == stream).then_some(Range { addr, bytes })
    }

    /// Returns the free ranges of the stream, the largest first, the highest address among equals.
    pub(super) fn largest_first(&self, stream: StreamId) -> impl Iterator<Item = Range> {
        let least = (stream, 0, DeviceAddr::NULL);
        let most = (stream, u64::MAX, DeviceAddr(u64::MAX));
        let of_stream = self.by_size.range(least..=most);
        of_stream
            .rev()
            .map(|&(_, bytes, addr)| Range { addr, bytes })
    }

    /// Whether all of `range` is free.
    pub(super) fn is_free(&self, range: Range) -> bool {
        self.free_around(range).is_some()
    }

    /// Whether any of `range` is free.
    pub(super) fn has_free(&self, range: Range) -> bool {
        let before_end = self.by_addr.range(..range.end()).next_back();
        before_end.is_some_and(|(&addr, &bytes)| Range { addr, bytes }.overlaps(range))
    }

    /// Takes `range`, which is free. The free bytes around it stay.
    pub(super) fn take(&mut self, range: Range) {
        let (Some(free), Some(segment)) = (self.free_around(range), self.segment_around(range))
        else {
            return;
        };
        self.remove(free, segment.stream);
        let before = Range::between(free.addr, range.addr);
        let behind = Range::between(range.end(), free.end());
        for rest in [before, behind] {
            if rest.bytes > 0 {
                self.insert(rest, segment.stream);
            }
        }
    }

    /// Takes the first bytes of `free`, a free range.
    pub(super) fn take_first(&mut self, free: Range, request: Request) -> Block {
        let Range { addr, bytes } = free.first(request.bytes);
        self.take(Range { addr, bytes });
        let stream = request.stream;
        Block::new(addr, bytes, stream)
    }

    /// Frees `range` and merges it with the free ranges next to it.
    pub(super) fn give(&mut self, range: Range) {
        let Some(segment) = self.segment_around(range) else {
            return;
        };
        let mut joined = range;
        if let Some(before) = self.free_at_or_below(range.addr)
            && before.end() == range.addr
            && segment.range.contains(before)
        {
            self.remove(before, segment.stream);
            joined = Range::between(before.addr, joined.end());
        }
        if let Some(&bytes) = self.by_addr.get(&range.end())
            && range.end() < segment.range.end()
        {
            let behind = Range {
                addr: range.end(),
                bytes,
            };
            self.remove(behind, segment.stream);
            joined = Range::between(joined.addr, behind.end());
        }
        self.insert(joined, segment.stream);
    }

    fn insert(&mut self, range: Range, stream: StreamId) {
        self.by_addr.insert(range.addr, range.bytes);
        self.by_size.insert((stream, range.bytes, range.addr));
    }

    fn remove(&mut self, range: Range, stream: StreamId) {
        self.by_addr.remove(&range.addr);
        self.by_size.remove(&(stream, range.bytes, range.addr));
    }

    fn free_at_or_below(&self, addr: DeviceAddr) -> Option<Range> {
        let (&addr, &bytes) = self.by_addr.range(..=addr).next_back()?;
        Some(Range { addr, bytes })
    }

    fn free_around(&self, range: Range) -> Option<Range> {
        let free = self.free_at_or_below(range.addr)?;
        free.contains(range).then_some(free)
    }

    fn segment_around(&self, range: Range) -> Option<Segment> {
        let (_, &segment) = self.segments.range(..=range.addr).next_back()?;
        segment.range.contains(range).then_some(segment)
    }

    pub(super) fn check(&self) -> Result<(), Violation> {
        ensure!(
            self.by_addr.len() == self.by_size.len(),
            "free ranges by address and by size differ in number"
        );
        let mut before: Option<Range> = None;
        for (&addr, &bytes) in &self.by_addr {
            let free = Range { addr, bytes };
            let segment = self.segment_around(free);
            ensure!(
                bytes > 0 && segment.is_some(),
                "{addr} is free in no segment"
            );
            let stream = segment.map_or(StreamId::DEFAULT, |segment| segment.stream);
            let entry = (stream, bytes, addr);
            ensure!(
                self.by_size.contains(&entry),
                "{addr} is not in the size index"
            );
            if let Some(before) = before {
                ensure!(before.end() <= addr, "{addr} is free twice");
                let is_start = self.segments.contains_key(&addr);
                ensure!(before.end() < addr || is_start, "{addr} is not merged");
            }
            before = Some(free);
        }
        Ok(())
    }
}
