//! What happened, in order: the entries of `torch.cuda.memory._record_memory_history`.
//!
//! Source: PyTorch 2.11, `TraceEntry` and its ring buffer. Stack traces are not recorded: they
//! belong to the language above.

use crate::driver::{DeviceAddr, StreamId};

/// What an entry tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// A block was handed out. The size is what was asked for.
    Alloc,
    /// A block was given back; it may still wait for a stream.
    FreeRequested,
    /// A block became free; recorded before it is merged with its neighbours.
    FreeCompleted,
    /// A segment came from `cudaMalloc`.
    SegmentAlloc,
    /// A segment is about to go back through `cudaFree`.
    SegmentFree,
    /// Pages of an expandable segment were mapped.
    SegmentMap,
    /// Pages of an expandable segment were unmapped.
    SegmentUnmap,
    /// A snapshot was taken. The size is all active bytes.
    Snapshot,
    /// A request failed. The address is the bytes the device had free, the size the rounded
    /// request.
    Oom,
}

impl Action {
    /// All actions.
    pub const ALL: [Self; 9] = [
        Self::Alloc,
        Self::FreeRequested,
        Self::FreeCompleted,
        Self::SegmentAlloc,
        Self::SegmentFree,
        Self::SegmentMap,
        Self::SegmentUnmap,
        Self::Snapshot,
        Self::Oom,
    ];

    /// The name in snapshots.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Alloc => "alloc",
            Self::FreeRequested => "free_requested",
            Self::FreeCompleted => "free_completed",
            Self::SegmentAlloc => "segment_alloc",
            Self::SegmentFree => "segment_free",
            Self::SegmentMap => "segment_map",
            Self::SegmentUnmap => "segment_unmap",
            Self::Snapshot => "snapshot",
            Self::Oom => "oom",
        }
    }

    /// The action of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.name() == name)
    }

    /// Whether a request ended, well or not.
    #[must_use]
    pub fn ends_request(self) -> bool {
        matches!(self, Self::Alloc | Self::Oom)
    }

    /// Whether memory came from the device.
    #[must_use]
    pub fn takes_memory(self) -> bool {
        matches!(self, Self::SegmentAlloc | Self::SegmentMap)
    }

    /// Whether memory went back to the device.
    #[must_use]
    pub fn returns_memory(self) -> bool {
        matches!(self, Self::SegmentFree | Self::SegmentUnmap)
    }

    /// Whether memory came from the device or went back to it; otherwise the entry is about a block, or
    /// about all.
    #[must_use]
    pub fn is_about_segments(self) -> bool {
        self.takes_memory() || self.returns_memory()
    }

    /// Whether it is about pages of an expandable segment.
    #[must_use]
    pub fn is_about_pages(self) -> bool {
        matches!(self, Self::SegmentMap | Self::SegmentUnmap)
    }
}

/// One thing that happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceEntry {
    /// What.
    pub action: Action,
    /// Where; of an [`Action::Oom`] the bytes the device had free.
    pub addr: DeviceAddr,
    /// Bytes.
    pub size: u64,
    /// On whose behalf.
    pub stream: StreamId,
    /// When, in microseconds of the device's clock.
    pub time_us: u64,
}

/// How to record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HistoryOptions {
    /// Entries to keep; the oldest go first. At least one is kept. (PyTorch's "state" is 1.)
    pub max_entries: usize,
    /// Whether to forget what was recorded before.
    pub clear: bool,
    /// Actions that are not recorded.
    pub skip: Vec<Action>,
}

impl Default for HistoryOptions {
    fn default() -> Self {
        Self {
            max_entries: usize::MAX,
            clear: false,
            skip: Vec::new(),
        }
    }
}

/// A ring of entries, off until switched on.
///
/// As in PyTorch, making the ring smaller does not forget the entries beyond its new end: only
/// the first `max_entries` are overwritten from then on. And if a full ring is made larger, what is
/// added from then on stands before the entries that had been written over the oldest ones.
#[derive(Debug, Default)]
pub struct History {
    recording: bool,
    max_entries: usize,
    skip: Vec<Action>,
    entries: Vec<TraceEntry>,
    /// The oldest entry, once the ring is full.
    next: usize,
}

impl History {
    /// Starts recording.
    pub fn start(&mut self, options: HistoryOptions) {
        self.recording = true;
        self.max_entries = options.max_entries.max(1);
        self.skip = options.skip;
        if options.clear {
            self.forget();
        }
    }

    /// Stops recording and forgets everything.
    pub fn stop(&mut self) {
        self.recording = false;
        self.skip.clear();
        self.forget();
    }

    /// Whether entries are recorded now.
    #[must_use]
    pub fn is_recording(&self) -> bool {
        self.recording
    }

    /// Adds an entry if its action is recorded now.
    pub fn record(&mut self, entry: TraceEntry) {
        if !self.recording || self.skip.contains(&entry.action) {
            return;
        }
        if self.entries.len() < self.max_entries {
            self.entries.push(entry);
            return;
        }
        if let Some(slot) = self.entries.get_mut(self.next) {
            *slot = entry;
        }
        self.next += 1;
        if self.next >= self.max_entries {
            self.next = 0;
        }
    }

    /// All entries, oldest first; but see [`History`] on rings whose size was changed.
    pub fn entries(&self) -> impl Iterator<Item = &TraceEntry> {
        let (newer, older) = self.entries.split_at(self.next.min(self.entries.len()));
        older.iter().chain(newer)
    }

    fn forget(&mut self) {
        self.entries = Vec::new();
        self.next = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(size: u64) -> TraceEntry {
        TraceEntry {
            action: Action::Alloc,
            addr: DeviceAddr::NULL,
            size,
            stream: StreamId::DEFAULT,
            time_us: 0,
        }
    }

    fn sizes(history: &History) -> Vec<u64> {
        history.entries().map(|e| e.size).collect()
    }

    #[test]
    fn a_full_ring_drops_the_oldest() {
        let mut history = History::default();
        history.record(entry(0));
        assert_eq!(sizes(&history), [0; 0], "off");
        history.start(HistoryOptions {
            max_entries: 3,
            ..HistoryOptions::default()
        });
        (1..=5).for_each(|size| history.record(entry(size)));
        assert_eq!(sizes(&history), [3, 4, 5]);
        history.stop();
        assert_eq!(sizes(&history), [0; 0]);
    }

    #[test]
    fn a_full_ring_that_is_made_larger_tells_things_in_pytorchs_order() {
        let ring = |max_entries: usize| HistoryOptions {
            max_entries,
            ..HistoryOptions::default()
        };
        let mut history = History::default();
        history.start(ring(3));
        (1..=4).for_each(|size| history.record(entry(size)));
        history.start(ring(10));
        history.record(entry(5));
        assert_eq!(sizes(&history), [2, 3, 5, 4]);
    }

    #[test]
    fn skipped_actions_leave_no_entry() {
        let mut history = History::default();
        history.start(HistoryOptions {
            skip: vec![Action::Alloc],
            ..HistoryOptions::default()
        });
        history.record(entry(1));
        assert_eq!(sizes(&history), [0; 0]);
    }
}
