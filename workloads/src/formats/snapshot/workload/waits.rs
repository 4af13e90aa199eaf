//! What frees wait for.
//!
//! A free of memory that other streams work on waits for their events (`record_stream`). Recorded is when
//! it was requested and when it was found completed, but not by which streams. So each free waits for
//! one event on a stream of its own, and that event is over where the free was found completed: an
//! allocator that looks there finds it, and one that is out of memory can wait for it earlier.
//!
//! A malloc that was out of memory did just that, and completed frees that nobody knows how long the
//! device would have taken for. Their events are over with the next that was not waited for.

use std::collections::{BTreeSet, HashMap};

use coalesce_alloc::driver::DeviceAddr;
use foldhash::fast::FixedState;

/// The frees that have not completed, each with the number of the stream that it waits for.
#[derive(Debug)]
pub struct Waits {
    /// Streams from this number on are none of the program.
    first: u32,
    /// Streams that frees wait for.
    taken: BTreeSet<u32>,
    by_addr: HashMap<DeviceAddr, u32, FixedState>,
    /// Of frees that completed because a malloc waited for them.
    waited_for: Vec<u32>,
}

impl Waits {
    /// Nothing waits. The program itself has streams below `first`.
    pub fn new(first: u32) -> Self {
        Self {
            first,
            taken: BTreeSet::new(),
            by_addr: HashMap::default(),
            waited_for: Vec::new(),
        }
    }

    /// A stream for the free of the block at `addr` to wait for.
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

    /// The free of the block at `addr` was found completed. Returns the streams whose events are over
    /// then, none if the allocator had `waited` for it. None is also returned if no such free was
    /// requested.
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
    fn each_free_has_a_stream_of_its_own_until_its_event_is_over() {
        let [a, b, c] = [1, 2, 3].map(DeviceAddr);
        let mut waits = Waits::new(2);
        assert_eq!([waits.begin(a), waits.begin(b)], [2, 3]);
        assert_eq!(waits.end(a, false), [2]);
        assert_eq!(waits.begin(c), 2, "free again");
        assert!(waits.end(b, true).is_empty(), "not over yet");
    }

    #[test]
    fn what_a_malloc_waited_for_is_over_with_the_next_that_it_did_not() {
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
