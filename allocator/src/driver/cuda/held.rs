//! The memory and addresses allocated from a device.

use std::collections::{BTreeMap, HashMap};

use foldhash::fast::FixedState;

use crate::driver::{DeviceAddr, MemoryHandle};

/// Disjoint ranges: start → bytes.
pub(super) type Ranges = BTreeMap<DeviceAddr, u64>;

/// Everything to free when the device is dropped.
#[derive(Debug, Default)]
pub(super) struct Leftovers {
    /// From `cuMemAlloc`.
    pub(super) allocations: Ranges,
    /// From the stream-ordered pool.
    pub(super) pool_blocks: Ranges,
    pub(super) reservations: Ranges,
    /// Physical memory, with its bytes.
    pub(super) handles: HashMap<MemoryHandle, u64, FixedState>,
    /// The files by which other processes get physical memory.
    #[cfg(unix)]
    pub(super) files: HashMap<MemoryHandle, std::os::fd::OwnedFd, FixedState>,
    pub(super) mappings: Ranges,
}

impl Leftovers {
    /// Returns whether all of `bytes` from `addr` is memory of this device, in one allocation or in adjacent
    /// mappings.
    pub(super) fn covers(&self, addr: DeviceAddr, bytes: u64) -> bool {
        let pieces = [&self.allocations, &self.pool_blocks, &self.mappings];
        pieces.iter().any(|ranges| cover(ranges, addr, bytes))
    }
}

fn cover(ranges: &Ranges, addr: DeviceAddr, bytes: u64) -> bool {
    let Some(end) = addr.0.checked_add(bytes) else {
        return false;
    };
    let mut covered = addr.0;
    let first = ranges.range(..=addr).next_back();
    let further = ranges.range(addr.offset(1)..);
    for (start, bytes) in first.into_iter().chain(further) {
        if covered >= end || start.0 > covered {
            break;
        }
        covered = covered.max(start.0.saturating_add(*bytes));
    }
    covered >= end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_ranges_cover_without_gaps() {
        let ranges: Ranges = [(100, 10), (110, 10), (130, 10)]
            .map(|(start, bytes)| (DeviceAddr(start), bytes))
            .into();
        let covered = |start, bytes| cover(&ranges, DeviceAddr(start), bytes);
        assert!(covered(100, 20) && covered(105, 15) && covered(139, 1));
        assert!(!covered(99, 1) && !covered(115, 6) && !covered(120, 1) && !covered(140, 1));
        assert!(!covered(u64::MAX, 2));
    }
}
