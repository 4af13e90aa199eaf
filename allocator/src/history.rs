//! The history of an allocator: the entries of `torch.cuda.memory._record_memory_history`.
//!
//! Source: PyTorch 2.11, `TraceEntry` and its ring buffer. Stack traces are not recorded; they belong
//! to the calling language, which can add them with a [`Listener`].

use std::collections::BTreeMap;
use std::fmt;

use crate::driver::{DeviceAddr, StreamId};
use crate::mempool::MempoolId;

named! {
    /// The kind of a history entry, with its name in snapshots.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Action {
        /// A block was allocated. The size is the requested size.
        Alloc = "alloc",
        /// A block was freed; it may still wait for a stream.
        FreeRequested = "free_requested",
        /// A block became free. Recorded before it is coalesced.
        FreeCompleted = "free_completed",
        /// A segment was reserved with `cudaMalloc`.
        SegmentAlloc = "segment_alloc",
        /// A segment is about to be returned with `cudaFree`.
        SegmentFree = "segment_free",
        /// Pages of an expandable segment were mapped.
        SegmentMap = "segment_map",
        /// Pages of an expandable segment were unmapped.
        SegmentUnmap = "segment_unmap",
        /// A snapshot was taken. The size is the sum of active bytes.
        Snapshot = "snapshot",
        /// A request failed. The address is the device's free memory in bytes, the size the rounded
        /// request.
        Oom = "oom",
    }
}

impl Action {
    /// Whether it ends a request, successfully or not.
    #[must_use]
    pub fn ends_request(self) -> bool {
        matches!(self, Self::Alloc | Self::Oom)
    }

    /// Whether it reserved memory.
    #[must_use]
    pub fn takes_memory(self) -> bool {
        matches!(self, Self::SegmentAlloc | Self::SegmentMap)
    }

    /// Whether it returned memory to the device.
    #[must_use]
    pub fn returns_memory(self) -> bool {
        matches!(self, Self::SegmentFree | Self::SegmentUnmap)
    }

    /// Whether it reserved or returned memory. Other entries concern a block or the whole allocator.
    #[must_use]
    pub fn is_about_segments(self) -> bool {
        self.takes_memory() || self.returns_memory()
    }

    /// Whether it concerns pages of an expandable segment.
    #[must_use]
    pub fn is_about_pages(self) -> bool {
        matches!(self, Self::SegmentMap | Self::SegmentUnmap)
    }
}

/// One entry of the history.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceEntry {
    /// The kind.
    pub action: Action,
    /// The address; for [`Action::Oom`], the device's free memory in bytes.
    pub addr: DeviceAddr,
    /// Bytes.
    pub size: u64,
    /// The stream of the request.
    pub stream: StreamId,
    /// The time in microseconds of the device's clock.
    pub time_us: u64,
}

/// Options for recording a history.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HistoryOptions {
    /// Entries to keep, at least one; the oldest are dropped. (PyTorch's "state" is 1.)
    pub max_entries: usize,
    /// Whether to discard earlier entries.
    pub clear: bool,
    /// Actions to leave out.
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

/// Receives each entry when it happens, with its pool, whether or not it is recorded.
///
/// It is called in the middle of an operation and must not call the allocator.
pub type Listener = Box<dyn FnMut(&TraceEntry, MempoolId) + Send>;

/// A ring buffer of entries, off until started.
///
/// As in PyTorch, shrinking the ring does not drop the entries beyond its new end: only the first
/// `max_entries` are overwritten from then on. If a full ring is enlarged, new entries come before
/// those that had overwritten the oldest ones.
#[derive(Debug, Default)]
pub struct History {
    /// Whether entries are recorded or listened to.
    wanted: bool,
    recording: bool,
    max_entries: usize,
    skip: Vec<Action>,
    entries: Vec<TraceEntry>,
    /// The private pools of entries, by index. The others concern a default pool.
    pools: BTreeMap<usize, MempoolId>,
    /// The oldest entry, once the ring is full.
    next: usize,
    listener: Listening,
}

#[derive(Default)]
struct Listening(Option<Listener>);

impl fmt::Debug for Listening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "listening" } else { "off" })
    }
}

impl History {
    /// Starts recording.
    pub fn start(&mut self, options: HistoryOptions) {
        self.recording = true;
        self.wanted = true;
        self.max_entries = options.max_entries.max(1);
        self.skip = options.skip;
        if options.clear {
            self.forget();
        }
    }

    /// Stops recording and discards all entries.
    pub fn stop(&mut self) {
        self.recording = false;
        self.wanted = self.listener.0.is_some();
        self.forget();
    }

    /// Sends each entry to a listener from now on, or to none.
    pub fn listen(&mut self, listener: Option<Listener>) {
        self.listener = Listening(listener);
        self.wanted = self.recording || self.listener.0.is_some();
    }

    /// Whether entries are recorded or listened to now.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// Adds an entry about a pool if its action is currently recorded.
    #[inline]
    pub fn record(&mut self, entry: TraceEntry, pool: MempoolId) {
        if self.listener.0.is_some() {
            self.tell(entry, pool);
        }
        if !self.recording || self.skip.contains(&entry.action) {
            return;
        }
        let is_full = self.entries.len() >= self.max_entries;
        let index = if is_full {
            self.next
        } else {
            self.entries.len()
        };
        if pool != MempoolId::DEFAULT {
            self.pools.insert(index, pool);
        } else if is_full {
            self.pools.remove(&index);
        }
        if !is_full {
            self.entries.push(entry);
            return;
        }
        if let Some(slot) = self.entries.get_mut(index) {
            *slot = entry;
        }
        self.next += 1;
        if self.next >= self.max_entries {
            self.next = 0;
        }
    }

    /// Sends an entry to the listener. Not inline, and by value, so that an entry for the ring alone stays in registers.
    #[cold]
    fn tell(&mut self, entry: TraceEntry, pool: MempoolId) {
        if let Some(listener) = &mut self.listener.0 {
            listener(&entry, pool);
        }
    }

    /// All entries, oldest first; see [`History`] for rings whose size changed.
    pub fn entries(&self) -> impl Iterator<Item = &TraceEntry> {
        let (newer, older) = self.entries.split_at(self.next.min(self.entries.len()));
        older.iter().chain(newer)
    }

    /// The private pools of entries, by position in [`Self::entries`]. The others concern a default pool.
    #[must_use]
    pub fn pools(&self) -> BTreeMap<usize, MempoolId> {
        let newer = self.next.min(self.entries.len());
        let older = self.entries.len() - newer;
        let position = |index: usize| index.checked_sub(newer).unwrap_or(older + index);
        let pools = self.pools.iter();
        pools
            .map(|(&index, &pool)| (position(index), pool))
            .collect()
    }

    fn forget(&mut self) {
        self.entries = Vec::new();
        self.pools = BTreeMap::new();
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

    /// A history of at most so many entries.
    fn ring(max_entries: usize) -> History {
        let mut history = History::default();
        history.start(of(max_entries));
        history
    }

    fn of(max_entries: usize) -> HistoryOptions {
        HistoryOptions {
            max_entries,
            ..HistoryOptions::default()
        }
    }

    fn sizes(history: &History) -> Vec<u64> {
        history.entries().map(|e| e.size).collect()
    }

    #[test]
    fn an_enlarged_full_ring_has_pytorchs_order() {
        let mut history = ring(3);
        (1..=4).for_each(|size| history.record(entry(size), MempoolId::DEFAULT));
        history.start(of(10));
        history.record(entry(5), MempoolId::DEFAULT);
        assert_eq!(sizes(&history), [2, 3, 5, 4]);
    }

    #[test]
    fn a_listener_hears_what_is_not_recorded() {
        let (sender, heard) = std::sync::mpsc::channel();
        let mut history = History::default();
        history.listen(Some(Box::new(move |entry, pool| {
            let _ = sender.send((entry.size, pool));
        })));
        assert!(history.is_wanted());
        history.record(entry(1), MempoolId(0, 1));
        history.start(HistoryOptions::default());
        history.record(entry(2), MempoolId::DEFAULT);
        history.stop();
        assert!(history.is_wanted());
        history.listen(None);
        assert!(!history.is_wanted());
        history.record(entry(3), MempoolId::DEFAULT);
        let heard: Vec<_> = heard.iter().collect();
        assert_eq!(heard, [(1, MempoolId(0, 1)), (2, MempoolId::DEFAULT)]);
    }

    #[test]
    fn skipped_actions_leave_no_entry() {
        let mut history = History::default();
        history.start(HistoryOptions {
            skip: vec![Action::Alloc],
            ..HistoryOptions::default()
        });
        history.record(entry(1), MempoolId::DEFAULT);
        assert_eq!(sizes(&history), [0; 0]);
        history.start(HistoryOptions::default());
        history.record(entry(2), MempoolId::DEFAULT);
        assert_eq!(sizes(&history), [2], "skipped no longer");
    }

    #[test]
    fn a_ring_has_at_least_one_entry_and_goes_round() {
        for max_entries in [0, 1, 2, 3] {
            let mut history = History::default();
            history.record(entry(0), MempoolId::DEFAULT);
            assert_eq!(sizes(&history), [0; 0], "off");
            history.start(of(max_entries));
            for size in 1..=20 {
                let pool = MempoolId(size % 2, 0);
                history.record(entry(size), pool);
                let kept = size.min(max_entries.max(1) as u64);
                let expected: Vec<u64> = (size - kept + 1..=size).collect();
                assert_eq!(sizes(&history), expected);
                let odd = expected
                    .iter()
                    .enumerate()
                    .filter(|(_, size)| *size % 2 == 1);
                let pools: BTreeMap<usize, MempoolId> =
                    odd.map(|(at, _)| (at, MempoolId(1, 0))).collect();
                assert_eq!(history.pools(), pools);
            }
        }
    }

    #[test]
    fn entries_are_discarded_at_the_stop_and_on_request() {
        let again = |clear| HistoryOptions { clear, ..of(2) };
        let fill = |history: &mut History| {
            (1..=3).for_each(|size| history.record(entry(size), MempoolId(1, 0)));
        };
        let mut history = ring(2);
        fill(&mut history);
        history.start(again(false));
        assert_eq!(sizes(&history), [2, 3]);
        for restart in [|_: &mut History| {}, History::stop] {
            restart(&mut history);
            assert_eq!(history.is_wanted(), !sizes(&history).is_empty());
            history.start(again(true));
            assert_eq!((sizes(&history).len(), history.pools().len()), (0, 0));
            fill(&mut history);
            assert_eq!(sizes(&history), [2, 3], "the oldest is the first again");
            assert_eq!(history.pools().len(), 2);
        }
    }

    #[test]
    fn actions_say_what_they_are_about() {
        let those = |holds: fn(Action) -> bool| -> Vec<&str> {
            let all = Action::ALL.into_iter().filter(|&action| holds(action));
            all.map(Action::name).collect()
        };
        assert_eq!(those(Action::ends_request), ["alloc", "oom"]);
        let takes = ["segment_alloc", "segment_map"];
        assert_eq!(those(Action::takes_memory), takes);
        let returns = ["segment_free", "segment_unmap"];
        assert_eq!(those(Action::returns_memory), returns);
        let segments = [
            "segment_alloc",
            "segment_free",
            "segment_map",
            "segment_unmap",
        ];
        assert_eq!(those(Action::is_about_segments), segments);
        let pages = ["segment_map", "segment_unmap"];
        assert_eq!(those(Action::is_about_pages), pages);
    }
}
