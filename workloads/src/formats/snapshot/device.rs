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
        let segments = self
            .entries
            .iter()
            .filter(|entry| entry.action == Action::SegmentAlloc);
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
    use super::*;
    use crate::cases;
    use crate::formats::snapshot::fixture::{entry, number};

    #[test]
    fn the_direction_of_most_segments_is_the_address_policy() {
        cases::check(
            "src/formats/snapshot/cases/address-policies.txt",
            |starts| {
                let starts = starts.split(' ').filter(|start| *start != "none");
                let entries = starts.map(|start| match start.strip_prefix('p') {
                    Some(pages) => entry(Action::SegmentMap, number(pages), 1),
                    None => entry(Action::SegmentAlloc, number(start), 1),
                });
                let recording = Recording {
                    entries: entries.collect(),
                    ..Recording::default()
                };
                format!("{:?}", recording.address_policy())
            },
        );
    }
}
