//! Properties of the recorded device.

use std::cmp::Ordering;

use coalesce_alloc::driver::sim::address::AddressPolicy;
use coalesce_alloc::history::Action;

use super::Recording;

impl Recording {
    /// Whether the device placed segments at ascending or descending addresses, which decides between free
    /// blocks of one size: the direction of most segments relative to the one before. (An H200 places them
    /// at descending addresses while there are no gaps to fill.) None if it is unknown because there are
    /// too few segments, as under `expandable_segments:True`.
    #[must_use]
    pub fn address_policy(&self) -> Option<AddressPolicy> {
        let segments = self.entries.iter();
        let segments = segments.filter(|entry| entry.action == Action::SegmentAlloc);
        let starts: Vec<_> = segments.map(|entry| entry.addr).collect();
        let upwards = starts.windows(2).filter(|pair| pair[0] < pair[1]).count();
        let downwards = starts.windows(2).filter(|pair| pair[0] > pair[1]).count();
        match upwards.cmp(&downwards) {
            Ordering::Greater => Some(AddressPolicy::Up),
            Ordering::Less => Some(AddressPolicy::Down),
            Ordering::Equal => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use coalesce_alloc::driver::{DeviceAddr, StreamId};
    use coalesce_alloc::history::TraceEntry;

    use super::*;

    #[test]
    fn the_direction_of_most_segments_is_the_address_policy() {
        let recording = |starts: &[u64]| Recording {
            entries: starts
                .iter()
                .map(|&start| TraceEntry {
                    action: Action::SegmentAlloc,
                    addr: DeviceAddr(start),
                    size: 1,
                    stream: StreamId::DEFAULT,
                    time_us: 0,
                })
                .collect(),
            ..Recording::default()
        };
        let policy = |starts: &[u64]| recording(starts).address_policy();
        assert_eq!(policy(&[1, 2, 3, 2, 5]), Some(AddressPolicy::Up));
        assert_eq!(policy(&[9, 8, 12, 7, 6]), Some(AddressPolicy::Down));
        assert_eq!(policy(&[4]), None);
    }
}
