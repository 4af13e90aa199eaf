//! What scripts cannot say; `tests/pinned` has the rest.

use super::*;
use crate::driver::sim::{SimConfig, SimDevice};

#[test]
fn blocks_that_are_not_allocated() {
    let device = SimDevice::new(&SimConfig::default());
    let mut allocator = PinnedAllocator::new(device, Settings::default());
    let block = allocator.allocate(1).unwrap().unwrap();
    allocator.free(block).unwrap();
    for block in [block, PinnedBlock(7)] {
        let error = Error::NotPinned(block.0);
        assert_eq!(allocator.free(block), Err(error.clone()));
        let found = allocator.record_stream(block, StreamId::DEFAULT);
        assert_eq!(found, Err(error));
    }
}
