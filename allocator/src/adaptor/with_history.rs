//! Records a history of an allocator's requests and segments.

mod extents;
mod pools;

use std::collections::HashMap;

use foldhash::fast::FixedState;

use self::extents::Extents;
use crate::allocator::{Allocator, delegate};
use crate::driver::{DeviceAddr, Driver, StreamId};
use crate::error::Error;
use crate::history::{Action, History, HistoryOptions, Listener, TraceEntry};
use crate::mempool::MempoolId;
use crate::private_pools::HasPrivatePools;
use crate::settings::Settings;
use crate::snapshot::Snapshot;
use crate::stats::DeviceStats;

/// Wraps any allocator and records the entries of [`History`] that follow from its calls and segments:
/// allocations, frees, failures, and the growth and shrinkage of segments.
///
/// The reference records its own, more detailed history. Here a free completes when it is requested,
/// and of the changes that one call makes to the segments only the net effect is visible.
///
/// While entries are neither recorded nor listened to, calls cost nothing more than the allocator's own. Allocations
/// made meanwhile have no entries; their frees are recorded with size 0 on the default stream.
#[derive(Debug)]
pub struct WithHistory<A> {
    allocator: A,
    history: History,
    /// Requested bytes and stream of each allocation with an entry.
    live: HashMap<DeviceAddr, (u64, StreamId), FixedState>,
    /// The segments according to the history.
    extents: Extents,
    /// Number of calls that reserved and returned memory when the segments were last compared.
    device_calls: (i64, i64),
}

impl<A: Allocator> WithHistory<A> {
    /// Wraps an allocator. Nothing is recorded until [`Self::record_history`] or [`Self::listen`].
    #[must_use]
    pub fn new(allocator: A) -> Self {
        Self {
            live: HashMap::default(),
            extents: Extents::default(),
            device_calls: (0, 0),
            allocator,
            history: History::default(),
        }
    }

    /// The history.
    #[must_use]
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Sends each entry to a listener from now on, or to none.
    pub fn listen(&mut self, listener: Option<Listener>) {
        let was_wanted = self.history.is_wanted();
        self.history.listen(listener);
        self.begin_after(was_wanted);
    }

    /// Starts recording anew, or stops it.
    pub fn record_history(&mut self, options: Option<HistoryOptions>) {
        let was_wanted = self.history.is_wanted();
        match options {
            Some(options) => self.history.start(options),
            None => self.history.stop(),
        }
        self.begin_after(was_wanted);
    }

    /// Notes the segments that exist when the history begins.
    fn begin_after(&mut self, was_wanted: bool) {
        if self.history.is_wanted() && !was_wanted {
            self.live.clear();
            self.extents = Extents::of(&self.allocator.segments());
            self.device_calls = device_calls(self.allocator.stats());
        }
    }

    /// Everything at this moment, as PyTorch's snapshots tell it, under the default settings of PyTorch.
    pub fn snapshot(&mut self) -> Snapshot {
        self.record_segments();
        Snapshot {
            segments: self.allocator.segments(),
            device_traces: vec![self.history.entries().copied().collect()],
            entry_pools: Vec::new(),
            allocator_settings: Settings::default(),
        }
    }

    fn record(&mut self, action: Action, addr: DeviceAddr, size: u64, stream: StreamId) {
        let time_us = self.allocator.driver().now_us();
        let entry = TraceEntry {
            action,
            addr,
            size,
            stream,
            time_us,
        };
        self.history.record(entry, MempoolId::DEFAULT);
    }

    fn record_malloc(&mut self, addr: DeviceAddr, bytes: u64, stream: StreamId) {
        self.live.insert(addr, (bytes, stream));
        self.record(Action::Alloc, addr, bytes, stream);
    }

    fn record_free(&mut self, addr: DeviceAddr) {
        let live = self.live.remove(&addr);
        let (bytes, stream) = live.unwrap_or((0, StreamId::DEFAULT));
        self.record(Action::FreeRequested, addr, bytes, stream);
        self.record(Action::FreeCompleted, addr, bytes, stream);
    }

    /// Records changes of the segments if the device was called or `addr` is in none.
    fn record_segments_for(&mut self, addr: DeviceAddr) {
        let calls = device_calls(self.allocator.stats());
        if calls != self.device_calls || !self.extents.contains(addr) {
            self.record_segments();
        }
    }

    /// Records changes of the segments.
    fn record_segments(&mut self) {
        if !self.history.is_wanted() {
            return;
        }
        self.device_calls = device_calls(self.allocator.stats());
        let extents = Extents::of(&self.allocator.segments());
        for (action, addr, bytes) in self.extents.changes(&extents) {
            self.record(action, addr, bytes, StreamId::DEFAULT);
        }
        self.extents = extents;
    }
}

fn device_calls(stats: &DeviceStats) -> (i64, i64) {
    (stats.num_device_alloc, stats.num_device_free)
}

impl<A: Allocator> Allocator for WithHistory<A> {
    type Driver = A::Driver;

    fn malloc(&mut self, bytes: u64, stream: StreamId) -> Result<DeviceAddr, Error> {
        let answer = self.allocator.malloc(bytes, stream);
        if !self.history.is_wanted() {
            return answer;
        }
        match &answer {
            Ok(addr) if !addr.is_null() => {
                self.record_segments_for(*addr);
                self.record_malloc(*addr, bytes, stream);
            }
            Err(Error::OutOfMemory(error)) => {
                let free = DeviceAddr(error.device_free);
                self.record_segments();
                self.record(Action::Oom, free, bytes, stream);
            }
            _ => {}
        }
        answer
    }

    fn free(&mut self, addr: DeviceAddr) -> Result<(), Error> {
        let answer = self.allocator.free(addr);
        if answer.is_ok() && !addr.is_null() && self.history.is_wanted() {
            self.record_free(addr);
            if device_calls(self.allocator.stats()) != self.device_calls {
                self.record_segments();
            }
        }
        answer
    }

    fn empty_cache(&mut self) -> Result<(), Error> {
        let answer = self.allocator.empty_cache();
        self.record_segments();
        answer
    }

    fn private_pools(&mut self) -> Option<&mut dyn HasPrivatePools> {
        let has = self.allocator.private_pools().is_some();
        has.then_some(self as &mut dyn HasPrivatePools)
    }

    delegate!(self, self.allocator; record_stream, set_memory_limit, reports);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::GRANULARITY;
    use crate::driver::hooks::limit::Limit;
    use crate::driver::sim::{SimConfig, SimDevice};
    use crate::driver::tap::Tap;
    use crate::managed::Managed;
    use crate::policy::direct::Direct;

    /// Three adaptors around a policy, independent of each other.
    #[test]
    fn adaptors_compose() {
        let page = GRANULARITY;
        let device = SimDevice::new(&SimConfig::default());
        let limited = Tap::over(device, Limit::new(2 * page, page));
        let counted = Managed::new("direct", Direct::default(), limited);
        let mut traced = WithHistory::new(counted);
        let before = traced.malloc(page, StreamId::DEFAULT).unwrap();
        traced.free(before).unwrap();
        traced.record_history(Some(HistoryOptions::default()));
        let stream = StreamId::nth(3);
        let first = traced.malloc(page - 1, stream).unwrap();
        assert!(traced.malloc(2 * page, StreamId::DEFAULT).is_err());
        traced.free(first).unwrap();
        let entries: Vec<_> = traced
            .snapshot()
            .device_traces
            .remove(0)
            .iter()
            .map(|e| (e.action, e.size))
            .collect();
        let expected = [
            (Action::SegmentAlloc, page),
            (Action::Alloc, page - 1),
            (Action::Oom, 2 * page),
            (Action::FreeRequested, page - 1),
            (Action::FreeCompleted, page - 1),
            (Action::SegmentFree, page),
        ];
        assert_eq!(entries, expected);
        assert_eq!(traced.stats().num_ooms, 1);
        let found = traced.stats().reserved_bytes.all().peak.cast_unsigned();
        assert_eq!(found, page);
    }
}
