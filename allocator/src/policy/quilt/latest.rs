//! The block that was freed last.
//!
//! Programs often request as many bytes as they freed last. The block is then handed out again as it is, which takes less time
//! than to free it, to merge it with its neighbours and to cut it off again. Before anything else looks at the free memory, it is
//! freed.

use crate::driver::Driver;

use super::Quilt;
use super::streams::{Mark, StreamNumber};
use super::tag::PoolNumber;
use super::uses::Marks;
use super::views::Place;

/// A large block that is not in use, and not yet free memory. No other stream used it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Latest {
    pub(super) place: Place,
    pub(super) bytes: u64,
    stream: StreamNumber,
    pool: PoolNumber,
    /// What a stream that uses its memory must be ordered after.
    mark: Mark,
}

impl Quilt {
    /// Keeps a block that was freed in the pool that is served.
    pub(super) fn keep_latest(
        &mut self,
        device: &mut dyn Driver,
        place: Place,
        bytes: u64,
        stream: StreamNumber,
    ) {
        self.free_latest(device);
        self.latest = Some(Latest {
            place,
            bytes,
            stream,
            pool: self.pools.served(),
            mark: self.streams.end_of(stream),
        });
    }

    /// Takes the block that was freed last, if it is what the pool that is served would use for such a request.
    pub(super) fn take_latest(&mut self, bytes: u64, stream: StreamNumber) -> Option<Place> {
        let pool = self.pools.served();
        let fits = |latest: &mut Latest| {
            latest.bytes == bytes && latest.stream == stream && latest.pool == pool
        };
        self.latest.take_if(fits).map(|latest| latest.place)
    }

    /// Makes the block that was freed last free memory.
    pub(super) fn free_latest(&mut self, device: &mut dyn Driver) {
        if let Some(latest) = self.latest.take() {
            self.serve_from(latest.pool, |quilt| {
                quilt.give(
                    device,
                    latest.place,
                    latest.bytes,
                    latest.stream,
                    Marks::One(latest.mark),
                );
            });
        }
    }
}
