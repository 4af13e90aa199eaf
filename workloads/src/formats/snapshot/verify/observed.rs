//! What the recorded addresses show of the segments, whatever their pools are: which parts of each are free at any time.
//!
//! Two segments of one stream were in different pools if a request took new memory or a larger free block although a free
//! block of the other segment fits.

use std::collections::{BTreeMap, BTreeSet};

use coalesce_alloc::MempoolId;
use coalesce_alloc::driver::StreamId;
use coalesce_alloc::history::{Action, TraceEntry};
use coalesce_alloc::pytorch::size::{self, MIN_BLOCK, SMALL_LIMIT};
use coalesce_alloc::snapshot::SegmentInfo;
use coalesce_alloc::stats::PoolKind;

use super::pools::Key;
use super::prepared::Prepared;
use super::returned::Returned;

/// What a recording shows.
#[derive(Debug, Default)]
pub(super) struct Observations {
    /// The segments, in the order in which they were first used.
    pub(super) segments: Vec<Observed>,
    /// The segment of each request, as an index.
    pub(super) requests: Vec<usize>,
}

impl Observations {
    /// Follows a recording. Those with expandable segments or with limits on splitting show nothing.
    pub(super) fn of(prepared: &Prepared<'_>) -> Self {
        if prepared.is_expandable() || prepared.settings.max_split_size().is_some() {
            return Self::default();
        }
        let mut collector = Collector::new(prepared);
        for (index, entry) in prepared.recording.entries.iter().enumerate() {
            if collector.take(index, entry, prepared).is_none() {
                break;
            }
        }
        collector.finished(&prepared.recording.segments)
    }
}

/// A segment of the device.
#[derive(Debug, Default)]
pub(super) struct Observed {
    pub(super) key: Key,
    pub(super) stream: StreamId,
    /// Its pool, if it existed at the end.
    pub(super) known: Option<MempoolId>,
    /// Its return to the device; none if it existed at the end.
    pub(super) returned: Option<Returned>,
    /// The segments that were in other pools, as indices.
    pub(super) differs_from: BTreeSet<usize>,
    /// The runs after which it was wholly free.
    pub(super) idle_after: BTreeSet<usize>,
}

/// A segment while it exists.
struct Present {
    index: usize,
    bytes: u64,
    stream: StreamId,
    kind: PoolKind,
    /// Free blocks: start → bytes. Adjacent ones are coalesced.
    free: BTreeMap<u64, u64>,
}

impl Present {
    fn is_idle(&self) -> bool {
        self.free.values().next() == Some(&self.bytes)
    }

    /// The best free block for a request: its bytes and its start.
    fn best_fit(&self, bytes: u64) -> Option<(u64, u64)> {
        let free = self.free.iter().map(|(&start, &size)| (size, start));
        free.filter(|&(size, _)| size >= bytes).min()
    }

    fn add_free(&mut self, start: u64, bytes: u64) {
        let (mut start, mut end) = (start, start + bytes);
        if let Some((&before, &size)) = self.free.range(..start).next_back()
            && before + size == start
        {
            self.free.remove(&before);
            start = before;
        }
        if let Some(size) = self.free.remove(&end) {
            end += size;
        }
        self.free.insert(start, end - start);
    }
}

/// Follows the entries of a recording.
#[derive(Default)]
struct Collector {
    observed: Observations,
    present: BTreeMap<u64, Present>,
    /// The allocated blocks: start → bytes.
    blocks: BTreeMap<u64, u64>,
    /// The segments that were taken since the last request.
    new: BTreeSet<u64>,
    /// The last return, and its entry if that was the last one.
    returned: Returned,
    returning: Option<TraceEntry>,
    /// Blocks that may still be compared: bounds the time.
    left: u64,
}

impl Collector {
    fn new(prepared: &Prepared<'_>) -> Self {
        const MOST_COMPARISONS: u64 = 100_000_000;
        let mut collector = Self {
            left: MOST_COMPARISONS,
            ..Self::default()
        };
        for segment in &prepared.start.segments {
            collector.start_with(segment);
        }
        collector
    }

    fn start_with(&mut self, segment: &SegmentInfo) {
        let index = self.observe((segment.address, 0), segment.stream);
        let mut present = Present {
            index,
            bytes: segment.total_size(),
            stream: segment.stream,
            kind: segment.kind,
            free: BTreeMap::new(),
        };
        for block in &segment.blocks {
            if block.is_active() {
                self.blocks.insert(block.address.0, block.size);
            } else {
                present.add_free(block.address.0, block.size)
            }
        }
        self.observed.requests.push(index);
        self.present.insert(segment.address.0, present);
    }

    fn observe(&mut self, key: Key, stream: StreamId) -> usize {
        self.observed.segments.push(Observed {
            key,
            stream,
            ..Observed::default()
        });
        self.observed.segments.len() - 1
    }

    /// Follows an entry. None if the entries before cannot have led to it.
    fn take(&mut self, index: usize, entry: &TraceEntry, prepared: &Prepared<'_>) -> Option<()> {
        if entry.action != Action::SegmentFree && self.returning.take().is_some() {
            for present in self.present.values().filter(|present| present.is_idle()) {
                let observed = &mut self.observed.segments[present.index];
                observed.idle_after.insert(self.returned.run);
            }
        }
        let start = entry.addr.0;
        match entry.action {
            Action::SegmentAlloc => {
                let number = self.observe((entry.addr, index), entry.stream);
                let present = Present {
                    index: number,
                    bytes: entry.size,
                    stream: entry.stream,
                    // The request says it.
                    kind: PoolKind::Large,
                    free: BTreeMap::from([(start, entry.size)]),
                };
                self.present.insert(start, present);
                self.new.insert(start);
            }
            Action::SegmentFree => {
                self.returned = self.returned.next(self.returning.as_ref(), entry);
                self.returning = Some(*entry);
                let present = self.present.remove(&start)?;
                self.observed.segments[present.index].returned = Some(self.returned);
            }
            Action::Alloc => self.allocate(entry, prepared)?,
            Action::FreeCompleted => {
                let bytes = self.blocks.remove(&start)?;
                let (_, present) = self.present.range_mut(..=start).next_back()?;
                present.add_free(start, bytes);
            }
            _ => {}
        }
        Some(())
    }

    fn allocate(&mut self, entry: &TraceEntry, prepared: &Prepared<'_>) -> Option<()> {
        let start = entry.addr.0;
        let bytes = size::round_size(entry.size, &prepared.settings)?;
        let kind = size::pool_kind(bytes);
        let (&base, present) = self.present.range_mut(..=start).next_back()?;
        let is_new = self.new.contains(&base);
        if is_new {
            present.kind = kind;
        }
        let size = present.free.remove(&start)?;
        let (index, stream) = (present.index, present.stream);
        // As the allocator splits without a limit.
        let rest = size.checked_sub(bytes)?;
        let is_split = match kind {
            PoolKind::Small => rest >= MIN_BLOCK,
            PoolKind::Large => rest > SMALL_LIMIT,
        };
        let taken = if is_split { bytes } else { size };
        if is_split {
            present.free.insert(start + taken, rest);
        }
        self.blocks.insert(start, taken);
        self.observed.requests.push(index);
        self.new.clear();

        let others = self
            .present
            .values()
            .filter(|other| other.index != index && other.stream == stream && other.kind == kind);
        for other in others {
            self.left = self.left.checked_sub(other.free.len() as u64)?;
            let best = other.best_fit(bytes);
            if best.is_some_and(|best| is_new || best < (size, start)) {
                let (one, two) = (index, other.index);
                self.observed.segments[one].differs_from.insert(two);
                self.observed.segments[two].differs_from.insert(one);
            }
        }
        Some(())
    }

    fn finished(mut self, segments: &[SegmentInfo]) -> Observations {
        for segment in segments {
            if let Some(present) = self.present.get(&segment.address.0) {
                self.observed.segments[present.index].known = Some(segment.pool);
            }
        }
        self.observed
    }
}

#[cfg(test)]
mod tests {
    use coalesce_alloc::release::Release;

    use super::*;
    use crate::cases;
    use crate::formats::snapshot::fixture::recording;

    /// For each segment its first entry and address in MiB, the segments that differ from it, the runs after which it was
    /// free, its pool and its return; then the segments of the requests.
    #[test]
    fn what_addresses_show_of_segments() {
        cases::check("src/formats/snapshot/cases/observed.txt", |text| {
            let recording = recording(text);
            let prepared = Prepared::new(&recording, Release::DEFAULT).unwrap();
            let observations = Observations::of(&prepared);
            let segments = observations.segments.iter().map(|one| {
                let (addr, first) = one.key;
                let mut text = format!("{first}@{}", addr.0 >> 20);
                if !one.differs_from.is_empty() {
                    text += &format!(" differs {:?}", one.differs_from);
                }
                if !one.idle_after.is_empty() {
                    text += &format!(" idle {:?}", one.idle_after);
                }
                if let Some(pool) = one.known {
                    text += &format!(" pool {}", pool.1);
                }
                if let Some(returned) = one.returned {
                    text += &format!(" returned {}", returned.run);
                }
                text + "\n"
            });
            segments.collect::<String>() + &format!("requests {:?}", observations.requests)
        });
    }
}
