//! What is known of a program before it runs: every request, how long it lives, and the phases.
//!
//! A policy that plans ahead is given this when it is made. Nothing else may look into the future.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use crate::allocator::ONE_EXABYTE;
use crate::driver::StreamId;
use crate::placement::Buffer;

/// A request and its lifetime.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Request {
    /// Bytes asked for, at least 1.
    pub bytes: u64,
    /// The stream it is for.
    pub stream: StreamId,
    /// The event that asks for it.
    pub from: u64,
    /// The event that gives it back, later than `from`. What the program never gives back goes after
    /// the last event, in the order of the requests.
    pub until: u64,
}

/// The program enters a phase.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mark {
    /// The event before which it does.
    pub at: u64,
    /// What the phase is called: `step 3`, `forward`, …
    pub tag: String,
}

/// A program as it is known in advance. An *event* is a request or the end of one; they are counted
/// from 0, so that no two are at the same moment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Foresight {
    /// All requests, in the order in which they are made.
    pub requests: Vec<Request>,
    /// All phases, in order.
    pub marks: Vec<Mark>,
    /// How many events there are. Lifetimes that end later are never ended by the program.
    pub events: u64,
}

impl Foresight {
    /// What there is to place: a buffer for each request, in their order, its size rounded up to a
    /// multiple of `unit` > 0. Streams are not looked at: what counts is the order in which the program
    /// asks.
    #[must_use]
    pub fn buffers(&self, unit: u64) -> Vec<Buffer> {
        // What is too large to be rounded is too large to be placed.
        let rounded = |bytes: u64| bytes.checked_next_multiple_of(unit).unwrap_or(u64::MAX);
        let buffer = |request: &Request| Buffer {
            lower: request.from,
            upper: request.until,
            size: rounded(request.bytes),
        };
        self.requests.iter().map(buffer).collect()
    }
}

/// Watches a program from its first event to its last, so that the next run is known in advance.
#[derive(Debug, Default)]
pub struct Observed {
    foresight: Foresight,
    /// Position in `requests` of what is live, by the program's name for it.
    live: HashMap<u64, usize, FixedState>,
}

impl Observed {
    /// The program asks for memory and calls it `id`. What no policy ever sees is no event: a request
    /// for nothing, or for an exabyte.
    pub fn malloc(&mut self, id: u64, bytes: u64, stream: StreamId) {
        if bytes == 0 || bytes >= ONE_EXABYTE {
            return;
        }
        self.live.insert(id, self.foresight.requests.len());
        let from = self.next_event();
        let until = u64::MAX;
        self.foresight.requests.push(Request {
            bytes,
            stream,
            from,
            until,
        });
    }

    /// The program gives `id` back. What is not live is no event.
    pub fn free(&mut self, id: u64) {
        if let Some(index) = self.live.remove(&id) {
            let until = self.next_event();
            self.foresight.requests[index].until = until;
        }
    }

    /// The program enters a phase.
    pub fn mark(&mut self, tag: &str) {
        self.foresight.marks.push(Mark {
            at: self.foresight.events,
            tag: tag.to_owned(),
        });
    }

    /// The program is over.
    #[must_use]
    pub fn finish(mut self) -> Foresight {
        let requests = self.foresight.requests.iter_mut();
        let never_freed = requests.filter(|request| request.until == u64::MAX);
        for (request, end) in never_freed.zip(self.foresight.events..) {
            request.until = end;
        }
        self.foresight
    }

    fn next_event(&mut self) -> u64 {
        let event = self.foresight.events;
        self.foresight.events += 1;
        event
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetimes_are_counted_in_requests_and_their_ends() {
        let mut program = Observed::default();
        program.mark("step 0");
        program.malloc(7, 100, StreamId::DEFAULT);
        program.malloc(8, 0, StreamId::DEFAULT);
        program.malloc(9, 200, StreamId::nth(1));
        program.free(8);
        program.free(7);
        program.mark("step 1");
        program.malloc(7, 300, StreamId::DEFAULT);
        let foresight = program.finish();
        let lifetimes = foresight
            .requests
            .iter()
            .map(|r| (r.bytes, r.from, r.until));
        assert!(lifetimes.eq([(100, 0, 2), (200, 1, 4), (300, 3, 5)]));
        assert_eq!(foresight.events, 4);
        assert_eq!(foresight.requests[1].stream, StreamId::nth(1));
        let marks = foresight.marks.iter().map(|mark| (mark.at, &*mark.tag));
        assert!(marks.eq([(0, "step 0"), (3, "step 1")]));
        let buffers = foresight.buffers(512).into_iter();
        let buffers = buffers.map(|b| (b.lower, b.upper, b.size));
        assert!(buffers.eq([(0, 2, 512), (1, 4, 512), (3, 5, 512)]));
    }
}
