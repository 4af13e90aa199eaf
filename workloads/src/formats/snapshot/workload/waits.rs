//! Streams for pending frees to wait for.
//!
//! A free of a block that other streams use waits for their events (`record_stream`). A history contains
//! the request and the completion of the free, but not the streams. Each such free therefore waits for one
//! event on a separate stream, which finishes where the recording completes the free. An allocator finds it
//! finished from there on, or waits for it earlier if it is out of memory.
//!
//! If a malloc out of memory waited for a free, the recording does not tell when its event would have
//! finished. The event then finishes together with the next one that no malloc waited for.

use std::collections::{BTreeSet, HashMap};

use coalesce_alloc::driver::DeviceAddr;
use foldhash::fast::FixedState;

/// The pending frees, each with the number of the stream that it waits for.
#[derive(Debug, Default)]
pub struct Waits {
    /// The first stream number that the program does not use.
    first: u32,
    /// Streams that frees wait for.
    taken: BTreeSet<u32>,
    by_addr: HashMap<DeviceAddr, u32, FixedState>,
    /// Streams of frees that completed because a malloc waited for them.
    waited_for: Vec<u32>,
}

impl Waits {
    /// No pending frees; the program uses the streams below `first`.
    pub fn new(first: u32) -> Self {
        Self {
            first,
            ..Self::default()
        }
    }

    /// Begins the free of the block at `addr`. Returns the stream that it waits for.
    pub fn begin(&mut self, addr: DeviceAddr) -> u32 {
        let in_use = self.taken.iter().zip(self.first..);
        let gap = in_use
            .take_while(|&(&taken, number)| taken == number)
            .count();
        let stream = self
            .first
            .saturating_add(u32::try_from(gap).unwrap_or(u32::MAX));
        self.taken.insert(stream);
        self.by_addr.insert(addr, stream);
        stream
    }

    /// Completes the free of the block at `addr`. Returns the streams whose events finish then: none if the
    /// allocator `waited` for the free, or if the free is unknown.
    pub fn end(&mut self, addr: DeviceAddr, waited: bool) -> Vec<u32> {
        let Some(stream) = self.by_addr.remove(&addr) else {
            return Vec::new();
        };
        self.waited_for.push(stream);
        if waited {
            return Vec::new();
        }
        let over = std::mem::take(&mut self.waited_for);
        for stream in &over {
            self.taken.remove(stream);
        }
        over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pending_free_has_a_separate_stream() {
        let [a, b, c] = [1, 2, 3].map(DeviceAddr);
        let mut waits = Waits::new(2);
        assert_eq!([waits.begin(a), waits.begin(b)], [2, 3]);
        assert_eq!(waits.end(a, false), [2]);
        assert_eq!(waits.begin(c), 2, "reused");
        assert!(waits.end(b, true).is_empty(), "still pending");
    }

    #[test]
    fn an_event_that_a_malloc_waited_for_finishes_with_the_next_other_one() {
        let [a, b] = [1, 2].map(DeviceAddr);
        let mut waits = Waits::new(1);
        waits.begin(a);
        waits.begin(b);
        assert!(waits.end(a, true).is_empty());
        let again = waits.begin(a);
        assert_eq!(again, 3, "the event of the first is still pending");
        assert_eq!(waits.end(b, false), [1, 2]);
    }
}
