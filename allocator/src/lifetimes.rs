//! The lifetimes of a workload's requests, known in advance.
//!
//! Only offline policies see them, when they plan.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use crate::allocator::ONE_EXABYTE;
use crate::driver::StreamId;
use crate::placement::Buffer;

/// A request and its lifetime.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TimedRequest {
    /// Bytes requested, at least 1.
    pub bytes: u64,
    /// The stream it is requested on.
    pub stream: StreamId,
    /// The event that allocates it.
    pub from: u64,
    /// The event that frees it, later than `from`. Blocks that the workload never frees end after the
    /// last event, in the order of the requests.
    pub until: u64,
}

/// The beginning of a phase.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mark {
    /// The first event of the phase.
    pub at: u64,
    /// The name of the phase: `step 3`, `forward`, …
    pub tag: String,
}

/// All requests of a workload with their lifetimes, and its phases. An *event* is a request or its
/// end. Events are numbered from 0.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Lifetimes {
    /// The requests, in order.
    pub requests: Vec<TimedRequest>,
    /// The phases, in order.
    pub marks: Vec<Mark>,
    /// Number of events. The workload never frees a request that ends later.
    pub events: u64,
}

impl Lifetimes {
    /// Returns a buffer to place for each request, in order, its size rounded up to a multiple of
    /// `unit` > 0. Streams are ignored: only the order of events counts.
    #[must_use]
    pub fn buffers(&self, unit: u64) -> Vec<Buffer> {
        // A size that cannot be rounded up is too large to place.
        let rounded = |bytes: u64| bytes.checked_next_multiple_of(unit).unwrap_or(u64::MAX);
        let buffer = |request: &TimedRequest| Buffer {
            lower: request.from,
            upper: request.until,
            size: rounded(request.bytes),
        };
        self.requests.iter().map(buffer).collect()
    }
}

/// Records the lifetimes of a workload from its operations.
#[derive(Debug, Default)]
pub struct LifetimeRecorder {
    lifetimes: Lifetimes,
    /// Index in `requests` of each live block, by the workload's id.
    live: HashMap<u64, usize, FixedState>,
}

impl LifetimeRecorder {
    /// Records a request. Requests that no policy ever sees are not events: for 0 bytes, or for an
    /// exabyte.
    pub fn malloc(&mut self, id: u64, bytes: u64, stream: StreamId) {
        if bytes == 0 || bytes >= ONE_EXABYTE {
            return;
        }
        self.live.insert(id, self.lifetimes.requests.len());
        let from = self.next_event();
        let until = u64::MAX;
        self.lifetimes.requests.push(TimedRequest {
            bytes,
            stream,
            from,
            until,
        });
    }

    /// Records the end of a request. Ids that are not live are ignored.
    pub fn free(&mut self, id: u64) {
        if let Some(index) = self.live.remove(&id) {
            let until = self.next_event();
            self.lifetimes.requests[index].until = until;
        }
    }

    /// Records the beginning of a phase.
    pub fn mark(&mut self, tag: &str) {
        self.lifetimes.marks.push(Mark {
            at: self.lifetimes.events,
            tag: tag.to_owned(),
        });
    }

    /// Ends the recording.
    #[must_use]
    pub fn finish(mut self) -> Lifetimes {
        let requests = self.lifetimes.requests.iter_mut();
        let never_freed = requests.filter(|request| request.until == u64::MAX);
        for (request, end) in never_freed.zip(self.lifetimes.events..) {
            request.until = end;
        }
        self.lifetimes
    }

    fn next_event(&mut self) -> u64 {
        let event = self.lifetimes.events;
        self.lifetimes.events += 1;
        event
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetimes_are_counted_in_requests_and_their_ends() {
        let mut program = LifetimeRecorder::default();
        program.mark("step 0");
        program.malloc(7, 100, StreamId::DEFAULT);
        program.malloc(8, 0, StreamId::DEFAULT);
        program.malloc(9, 200, StreamId::nth(1));
        program.free(8);
        program.free(7);
        program.mark("step 1");
        program.malloc(7, 300, StreamId::DEFAULT);
        let lifetimes = program.finish();
        let requests = lifetimes
            .requests
            .iter()
            .map(|r| (r.bytes, r.from, r.until));
        assert!(requests.eq([(100, 0, 2), (200, 1, 4), (300, 3, 5)]));
        assert_eq!(lifetimes.events, 4);
        assert_eq!(lifetimes.requests[1].stream, StreamId::nth(1));
        let marks = lifetimes.marks.iter().map(|mark| (mark.at, &*mark.tag));
        assert!(marks.eq([(0, "step 0"), (3, "step 1")]));
        let buffers = lifetimes
            .buffers(512)
            .into_iter()
            .map(|b| (b.lower, b.upper, b.size));
        assert!(buffers.eq([(0, 2, 512), (1, 4, 512), (3, 5, 512)]));
    }
}
