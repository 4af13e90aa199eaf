//! Properties of the recorded device.

use std::cmp::Ordering;

use coalesce_alloc::driver::DeviceAddr;
use coalesce_alloc::driver::sim::address::AddressPolicy;
use coalesce_alloc::driver::sim::address::cuda::CHUNK_UNIT;
use coalesce_alloc::history::Action;

use super::Recording;

impl Recording {
    /// The order in which the device handed out addresses. The allocator chooses between free blocks of one
    /// size by their addresses, so its decisions depend on it.
    ///
    /// `cuda` if more segments lie below all earlier ones than above, and most of those start where the CUDA driver
    /// starts its chunks: between them, it fills holes in any order. Otherwise up or down, whichever holds for most
    /// segments and the one before. `None` if there are too few segments to tell, as under
    /// `expandable_segments:True`.
    #[must_use]
    pub fn address_policy(&self) -> Option<AddressPolicy> {
        let segments = self.entries.iter();
        let segments = segments.filter(|entry| entry.action == Action::SegmentAlloc);
        let starts: Vec<_> = segments.map(|entry| entry.addr).collect();
        if go_down_in_chunks(&starts) {
            return Some(AddressPolicy::Cuda);
        }
        let upwards = starts.windows(2).filter(|pair| pair[0] < pair[1]).count();
        let downwards = starts.windows(2).filter(|pair| pair[0] > pair[1]).count();
        match upwards.cmp(&downwards) {
            Ordering::Greater => Some(AddressPolicy::Up),
            Ordering::Less => Some(AddressPolicy::Down),
            Ordering::Equal => None,
        }
    }
}

/// Whether more segments lie below all earlier ones than above, and most of those start at a multiple of the driver's
/// chunks.
fn go_down_in_chunks(starts: &[DeviceAddr]) -> bool {
    let Some(&first) = starts.first() else {
        return false;
    };
    let (mut lowest, mut highest) = (first, first);
    let (mut below, mut above, mut aligned) = (0, 0, 0);
    for &start in &starts[1..] {
        if start < lowest {
            lowest = start;
            below += 1;
            aligned += usize::from(start.0.is_multiple_of(CHUNK_UNIT));
        } else if start > highest {
            highest = start;
            above += 1;
        }
    }
    below > above && aligned * 2 > below
}

#[cfg(test)]
mod tests {
    use coalesce_alloc::driver::StreamId;
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
        let chunks = |starts: &[u64]| starts.iter().map(|start| start << 25).collect::<Vec<_>>();
        assert_eq!(
            policy(&chunks(&[9, 8, 12, 7, 6])),
            Some(AddressPolicy::Cuda)
        );
        let with_filled_holes = chunks(&[9, 8, 7, 8, 9, 6, 7, 8, 9]);
        assert_eq!(policy(&with_filled_holes), Some(AddressPolicy::Cuda));
        // Equally many upwards and downwards, the same address again, and none.
        for starts in [&[][..], &[4, 5, 4], &[4, 4], &[4, 5, 5, 4]] {
            assert_eq!(policy(starts), None, "{starts:?}");
        }
        // As many below all earlier ones as above, and only half of those below at the start of a chunk.
        assert_eq!(policy(&chunks(&[9, 8, 10, 8])), Some(AddressPolicy::Down));
        let half = [9 << 25, 8 << 25, (7 << 25) + 512];
        assert_eq!(policy(&half), Some(AddressPolicy::Down));
        let most = [9 << 25, 8 << 25, (7 << 25) + 512, 6 << 25];
        assert_eq!(policy(&most), Some(AddressPolicy::Cuda));
        // The first does not count.
        assert_eq!(
            policy(&[9 << 25, (8 << 25) + 512]),
            Some(AddressPolicy::Down)
        );
        let filled = [
            9 << 25,
            8 << 25,
            9 << 25,
            8 << 25,
            (9 << 25) - 512,
            10 << 25,
        ];
        assert_eq!(policy(&filled), Some(AddressPolicy::Up));
        // Other entries are no segments.
        let mut other = recording(&[4, 5]);
        other.entries[1].action = Action::SegmentMap;
        assert_eq!(other.address_policy(), None);
    }
}
